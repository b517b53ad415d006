//! The outcomes of a batch, written on a thread of their own, and those of an earlier run.
//!
//! Invariants: bounded. The writer writes whole lines, in the order in which they come. If the batch is dropped, everything that was handed
//! over is still written, as far as somebody reads within [`PATIENCE`].

use std::{
    collections::HashSet,
    fs::{self, File, Metadata, OpenOptions, TryLockError},
    io::{self, BufRead, BufReader, Seek, Write},
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::Path,
    sync::mpsc as threads,
    thread,
    time::Duration,
};

use serde::Deserialize;
use serde_json::Value;
use tokio::sync::mpsc;
use unhang::exit;

use super::item::BatchItem;

/// The number of bytes that are written together.
const TOGETHER: usize = 64 << 10;
/// The number of texts that may wait for the writer.
const WAITING: usize = 1024;
/// The time in which a batch that is given up still writes the remaining outcomes.
const PATIENCE: Duration = Duration::from_millis(500);

/// The way of the outcomes to their file or to stdout.
pub(super) struct BatchOutput {
    texts: Option<mpsc::Sender<Vec<u8>>>,
    ended: threads::Receiver<io::Result<()>>,
}

impl BatchOutput {
    pub(super) fn new(mut sink: impl Write + Send + 'static) -> io::Result<Self> {
        let (texts, mut received) = mpsc::channel::<Vec<u8>>(WAITING);
        let (done, ended) = threads::sync_channel(1);
        let mut write = move || -> io::Result<()> {
            let mut gathered = Vec::with_capacity(TOGETHER);
            while let Some(text) = received.blocking_recv() {
                gathered.extend_from_slice(&text);
                while gathered.len() < TOGETHER
                    && let Ok(more) = received.try_recv()
                {
                    gathered.extend_from_slice(&more);
                }
                sink.write_all(&gathered)?;
                sink.flush()?;
                gathered.clear();
            }
            Ok(())
        };
        // The receiver may have gone.
        thread::Builder::new().name("batch-out".into()).spawn(move || drop(done.send(write())))?;
        Ok(Self { texts: Some(texts), ended })
    }

    /// Takes one outcome. Waits while the writer is behind.
    ///
    /// # Errors
    /// Fails with the exit code if outcomes cannot be written any more.
    pub(super) async fn write(&self, text: Vec<u8>) -> Result<(), u8> {
        let Some(texts) = &self.texts else { return Err(exit::BUG) };
        match texts.send(text).await {
            Ok(()) => Ok(()),
            Err(_) => Err(code(&self.ended.recv().unwrap_or(Ok(())))),
        }
    }

    /// Waits until everything is written. Fails with the exit code if that is not possible.
    pub(super) async fn finish(&mut self) -> Result<(), u8> {
        self.texts = None;
        let (_none, nothing) = threads::sync_channel(1);
        let ended = std::mem::replace(&mut self.ended, nothing);
        let end = tokio::task::spawn_blocking(move || ended.recv().unwrap_or(Ok(()))).await;
        match end.unwrap_or(Ok(())) {
            Ok(()) => Ok(()),
            Err(error) => Err(code(&Err(error))),
        }
    }
}

impl Drop for BatchOutput {
    fn drop(&mut self) {
        if self.texts.take().is_some() {
            let _as_far_as_somebody_reads = self.ended.recv_timeout(PATIENCE);
        }
    }
}

/// Returns the exit code for the way in which the writer ended, and prints its error. If nobody reads the outcomes, the batch ends quietly.
fn code(end: &io::Result<()>) -> u8 {
    match end {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => exit::DONE,
        Err(error) => {
            unhang_terminal::output::error(
                &format!("stdout cannot be written: {error}; outcomes are missing there"),
                None,
            );
            exit::FAILED
        }
        Ok(()) => exit::DONE,
    }
}

/// The lines and ids for which an earlier run has an outcome that is ok.
#[derive(Debug, Default)]
pub(super) struct EarlierRun {
    lines: HashSet<u64>,
    /// The ids of items that have one. They count more than line numbers: lines may have been added or removed.
    ids: HashSet<String>,
}

/// The beginnings that an outcome may have.
const BEGINNINGS: [&[u8]; 2] = [br#"{"line":"#, br#"{"id":"#];

/// Returns the metadata of the file that the requests come from, or `None` if there is none.
fn requests_metadata(requests: &Path) -> Option<Metadata> {
    let stdin = || File::from(io::stdin().as_fd().try_clone_to_owned().ok()?).metadata().ok();
    if requests == Path::new("-") { stdin() } else { fs::metadata(requests).ok() }
}

#[derive(Deserialize)]
struct OutcomeEntry {
    id: Option<Value>,
    line: u64,
    ok: bool,
}

impl EarlierRun {
    /// Reads the outcomes of an earlier run, and opens their file so that more can be added. It removes a torn last line. `requests` names
    /// the file of the requests, `-` for stdin.
    ///
    /// # Errors
    /// Fails if the file cannot be used, or is the file of the requests. Also fails if it holds something else than outcomes, and leaves
    /// that unchanged.
    pub(super) fn read(path: &Path, requests: &Path) -> io::Result<(Self, File)> {
        if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(io::Error::other("it is not a regular file"));
        }
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let file_identity = |found: &Metadata| (found.dev(), found.ino());
        if requests_metadata(requests).is_some_and(|found| {
            file.metadata().is_ok_and(|own| file_identity(&own) == file_identity(&found))
        }) {
            return Err(io::Error::other("it is the file of the requests"));
        }
        // The lock lasts as long as the file is open. Without it, two batches would overwrite each other's outcomes.
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::other(
                    "another `unhang batch` adds its outcomes to it; wait until it has ended, or name another file",
                ));
            }
            // Some network file systems have no locks.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let mut earlier = EarlierRun::default();
        let mut input = BufReader::with_capacity(1 << 16, &file);
        let (mut whole, mut line) = (0, Vec::new());
        let mut holds_outcomes = false;
        loop {
            line.clear();
            let length = input.read_until(b'\n', &mut line)?;
            if line.last() != Some(&b'\n') {
                break;
            }
            whole += length as u64;
            let entry = serde_json::from_slice(&line);
            holds_outcomes |= entry.is_ok();
            match entry {
                Ok(OutcomeEntry { id: Some(id), ok: true, .. }) => drop(earlier.ids.insert(id.to_string())),
                Ok(OutcomeEntry { id: None, line, ok: true }) => drop(earlier.lines.insert(line)),
                // A request that failed is made again. A line that is not an outcome says nothing.
                _ => {}
            }
        }
        drop(input);
        // The earlier run may have ended in the middle of its first outcome.
        let is_begun =
            whole == 0 && BEGINNINGS.iter().any(|begin| line.starts_with(begin) || begin.starts_with(&line));
        if !holds_outcomes && !is_begun {
            return Err(io::Error::other(
                "it does not have outcomes of a batch, so unhang writes nothing into it",
            ));
        }
        let mut file = file;
        file.set_len(whole)?;
        file.seek(io::SeekFrom::End(0))?;
        Ok((earlier, file))
    }

    /// Returns whether an earlier run did this item.
    pub(super) fn has(&self, item: &BatchItem) -> bool {
        match &item.id {
            Some(id) => !self.ids.is_empty() && self.ids.contains(&id.to_string()),
            None => self.lines.contains(&item.line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_well_is_known_and_a_torn_line_is_taken_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let kept = "{\"line\":1,\"ok\":true}\n{\"id\":\"b\",\"line\":2,\"ok\":true}\n{\"line\":3,\"ok\":false}\nnonsense\n";
        fs::write(&path, format!("{kept}{{\"line\":4,\"ok\":tr")).unwrap();
        let (earlier, mut file) = EarlierRun::read(&path, Path::new("/nowhere")).unwrap();
        let has = |line: u64, id: &str| {
            earlier.has(&BatchItem::read(line, format!("{{\"tool\":\"t\"{id}}}").as_bytes()).unwrap())
        };
        assert!(has(1, "") && has(9, ",\"id\":\"b\""));
        assert!(!has(2, "") && !has(3, "") && !has(4, "") && !has(1, ",\"id\":\"c\""));
        file.write_all(b"more\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{kept}more\n"));
        let error = EarlierRun::read(&path, Path::new("/nowhere")).unwrap_err().to_string();
        assert!(error.contains("another `unhang batch`"), "{error}");
        // A process that another test starts has a copy of the open file until its `exec`, so closing the file does not end the lock.
        file.unlock().unwrap();
        assert!(EarlierRun::read(&path, Path::new("/nowhere")).is_ok());
    }
}
