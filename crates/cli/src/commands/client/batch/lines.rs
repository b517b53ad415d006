//! The lines of a batch, read on a thread of their own.
//!
//! Invariants: the number of lines that are read ahead is bounded, and so is the length of a line. The reader waits until the batch takes
//! its lines. Only `--resume` keeps ids, those of the earlier run included.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, BufRead, BufReader, Read},
    os::fd::AsFd,
    path::Path,
    thread,
};

use serde::Deserialize;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::commands::large_numbers;

/// The number of lines that are read ahead.
const AHEAD: usize = 256;
/// The length of the longest line in bytes: a message cannot be longer either.
pub(super) const LONGEST: u64 = 64 << 20;

/// A line with its number, from 1.
type NumberedLine = (u64, BatchLine);

/// A line without its ending.
#[derive(Debug, PartialEq)]
pub(super) enum BatchLine {
    Whole(Vec<u8>),
    /// The line has more than [`LONGEST`] bytes, which are not kept.
    TooLong,
}

/// The lines that the batch has not taken yet.
pub(super) struct BatchLines {
    received: mpsc::Receiver<io::Result<NumberedLine>>,
    count: Option<u64>,
}

impl BatchLines {
    /// Opens a file, or stdin for `-`.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let (count, input): (Option<u64>, Box<dyn Read + Send>) = match path.to_str() {
            Some("-") => {
                let stdin = File::from(io::stdin().as_fd().try_clone_to_owned()?);
                if stdin.metadata()?.is_dir() {
                    return Err(io::ErrorKind::IsADirectory.into());
                }
                (None, Box::new(io::stdin()))
            }
            _ => {
                let file = File::open(path)?;
                // A folder can be opened, but not read.
                if file.metadata()?.is_dir() {
                    return Err(io::ErrorKind::IsADirectory.into());
                }
                // Only a plain file can be read twice.
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

    /// Returns the number of lines that ask for something, or `None` if it is not known beforehand.
    pub(super) fn count(&self) -> Option<u64> {
        self.count
    }

    /// Returns the next line, or `None` at the end. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<io::Result<NumberedLine>> {
        self.received.recv().await
    }
}

/// An id that two lines have.
#[derive(Debug, PartialEq)]
pub(super) struct RepeatedId {
    pub(super) id: String,
    pub(super) first: u64,
    pub(super) again: u64,
}

/// The ids so far, each with its line.
#[derive(Debug, Default)]
pub(super) struct Ids(HashMap<String, u64>);

impl Ids {
    /// Notes the id of a line.
    ///
    /// # Errors
    /// Fails with [`RepeatedId`] if another line has the same id.
    pub(super) fn meet(&mut self, id: &Value, line: u64) -> Result<(), RepeatedId> {
        let id = id.to_string();
        match self.0.get(&id) {
            Some(&first) => Err(RepeatedId { id, first, again: line }),
            None => {
                self.0.insert(id, line);
                Ok(())
            }
        }
    }
}

/// Finds the first id that two lines of a plain file share. A pipe cannot be read twice, so the batch checks its ids as they come.
pub(super) fn twice(path: &Path) -> io::Result<Option<RepeatedId>> {
    #[derive(Deserialize)]
    struct NamedLine {
        id: Option<Value>,
    }
    if path == Path::new("-") || !fs::metadata(path)?.is_file() {
        return Ok(None);
    }
    let mut input = BufReader::with_capacity(1 << 16, File::open(path)?);
    let mut ids = Ids::default();
    for number in 1.. {
        let Some(line) = next(&mut input)? else { break };
        // The batch reports a broken line when it comes to it.
        let BatchLine::Whole(line) = line else { continue };
        let id = serde_json::from_slice(&line).ok().and_then(|NamedLine { id }| id);
        if let Some(id) = id.filter(|_| large_numbers::in_json(&line).is_none())
            && let Err(twice) = ids.meet(&id, number)
        {
            return Ok(Some(twice));
        }
    }
    Ok(None)
}

fn next(input: &mut impl BufRead) -> io::Result<Option<BatchLine>> {
    let mut line = Vec::new();
    let length = input.take(LONGEST + 1).read_until(b'\n', &mut line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if length as u64 > LONGEST {
        input.skip_until(b'\n')?;
        return Ok(Some(BatchLine::TooLong));
    } else if length == 0 {
        return Ok(None);
    }
    Ok(Some(BatchLine::Whole(line)))
}

/// Counts the lines that are not blank. A blank line asks for nothing, and never counts as done.
fn count(input: impl Read) -> io::Result<u64> {
    let mut input = BufReader::with_capacity(1 << 16, input);
    let (mut lines, mut is_counted) = (0, false);
    loop {
        let read = input.fill_buf()?;
        if read.is_empty() {
            return Ok(lines);
        }
        for byte in read {
            if *byte == b'\n' {
                is_counted = false;
            } else if !is_counted && !byte.is_ascii_whitespace() {
                lines += 1;
                is_counted = true;
            }
        }
        let length = read.len();
        input.consume(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_costs_no_other() {
        let text = [b"{}\n".to_vec(), vec![b'x'; LONGEST as usize + 5], b"\nlast".to_vec()].concat();
        let mut input = BufReader::new(&*text);
        let read: Vec<_> = std::iter::from_fn(|| next(&mut input).unwrap()).collect();
        assert_eq!(
            read,
            [BatchLine::Whole(b"{}".into()), BatchLine::TooLong, BatchLine::Whole(b"last".into())]
        );
    }

    #[test]
    fn blank_lines_are_not_counted() {
        for (text, lines) in [("", 0), ("\n\n", 0), ("a\n \t\r\n\nb", 2), ("a b\n\n", 1), ("\n a\n", 1)] {
            assert_eq!(count(text.as_bytes()).unwrap(), lines, "{text:?}");
        }
    }

    #[test]
    fn an_id_that_stands_in_two_lines_is_found_with_both() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in");
        for (text, found) in [
            ("{\"id\":1}\n{\"id\":\"1\"}\n{}\n{\"id\":null}\n{\"id\":null}\n{\n", None),
            ("{\"id\":\"a\"}\n\n{\"tool\":\"t\",\"id\":\"\\u0061\"}", Some(("\"a\"", 1, 3))),
        ] {
            fs::write(&path, text).unwrap();
            let expect = found.map(|(id, first, again)| RepeatedId { id: id.to_owned(), first, again });
            assert_eq!(twice(&path).unwrap(), expect, "{text}");
        }
    }
}
