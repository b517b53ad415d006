//! The lines of a batch, read beside everything else.
//!
//! Invariants: bounded in lines that are read ahead, and in the length of a line; reading waits for whoever takes.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
    thread,
};

use tokio::sync::mpsc;

/// Lines that are read ahead.
const AHEAD: usize = 256;
/// The longest line: a message cannot be longer either.
const LONGEST: u64 = 64 << 20;

/// A line with its number, from 1, without its ending.
type Numbered = (u64, Vec<u8>);

/// The lines that are still to come.
pub(super) struct Lines {
    received: mpsc::Receiver<io::Result<Numbered>>,
    count: Option<u64>,
}

impl Lines {
    /// Opens a file, or stdin for `-`.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let (count, input): (Option<u64>, Box<dyn Read + Send>) = match path.to_str() {
            Some("-") => (None, Box::new(io::stdin())),
            _ => {
                let file = File::open(path)?;
                // What is no plain file cannot be read twice.
                let count = if file.metadata()?.is_file() { Some(count(File::open(path)?)?) } else { None };
                (count, Box::new(file))
            }
        };
        let (sender, received) = mpsc::channel(AHEAD);
        thread::Builder::new().name("batch-lines".into()).spawn(move || {
            let mut input = BufReader::with_capacity(1 << 16, input);
            for number in 1.. {
                let line = match next(&mut input) {
                    Ok(Some(line)) => Ok((number, line)),
                    Ok(None) => return,
                    Err(error) => Err(error),
                };
                let is_over = line.is_err();
                if sender.blocking_send(line).is_err() || is_over {
                    return;
                }
            }
        })?;
        Ok(Self { received, count })
    }

    /// How many there are, where that can be known.
    pub(super) fn count(&self) -> Option<u64> {
        self.count
    }

    /// The next one. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<io::Result<Numbered>> {
        self.received.recv().await
    }
}

fn next(input: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let length = input.take(LONGEST + 1).read_until(b'\n', &mut line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if length as u64 > LONGEST {
        return Err(io::Error::other(format!("a line has more than {LONGEST} bytes")));
    } else if length == 0 {
        return Ok(None);
    }
    Ok(Some(line))
}

fn count(file: File) -> io::Result<u64> {
    let mut input = BufReader::with_capacity(1 << 16, file);
    let (mut lines, mut ends_open) = (0, false);
    loop {
        let read = input.fill_buf()?;
        let Some(&last) = read.last() else { return Ok(lines + u64::from(ends_open)) };
        lines += read.iter().filter(|byte| **byte == b'\n').count() as u64;
        ends_open = last != b'\n';
        let length = read.len();
        input.consume(length);
    }
}
