//! Long answers of a server that was taken over: they go to the disk as they come, and not into memory.
//!
//! Theory of operation. When [`Lines`] holds the first MiB of a line, the bytes move into a file without a name, and so do all further bytes of
//! the line. The whole line is mapped into memory and read there. If it answers a request whose owner takes a result in a file, the owner gets
//! that part of the file, and the session gets the same answer with a short result. Any other line is read as if it had stayed in memory.
//!
//! Invariants
//!
//! - A line means the same, whichever way it came.
//! - If the disk is full, the line goes on in memory. So does a line that is too long, which [`Lines`] skims.

use std::{collections::HashMap, io, ops::Range, path::PathBuf};

use serde_json::value::RawValue;
use tokio::sync::oneshot;
use unhang_proc::unnamed_file::{FilePart, UnnamedFile};
use unhang_wire::{Body, Id, Json, Line, Lines, Piece, ResponseOutcome, read};

/// The length from which a line goes into a file.
const LONG: usize = 1 << 20;

/// The long lines of one server, and the requests whose results may be in files.
pub(crate) struct LongAnswers {
    folder: PathBuf,
    max_message: usize,
    wanted: HashMap<Id, oneshot::Sender<FilePart>>,
    /// The line that is coming.
    current: Option<UnnamedFile>,
    /// The line that is coming stays in memory.
    is_refused: bool,
}

impl LongAnswers {
    pub(crate) fn new(folder: PathBuf, max_message: usize) -> Self {
        Self { folder, max_message, wanted: HashMap::new(), current: None, is_refused: false }
    }

    /// Has a long result of this request passed on in a file.
    pub(crate) fn wanted(&mut self, id: Id) -> oneshot::Receiver<FilePart> {
        let (sender, receiver) = oneshot::channel();
        self.wanted.insert(id, sender);
        receiver
    }

    /// Begins a file if `lines` holds the beginning of a long line. No line that is whole waits there.
    pub(crate) fn begin(&mut self, lines: &mut Lines) {
        let held = lines.held();
        if held.len() < LONG {
            self.is_refused = false;
        } else if self.current.is_none() && !self.is_refused {
            let begun = UnnamedFile::create(&self.folder).and_then(|mut file| {
                file.append(held)?;
                Ok(file)
            });
            match begun {
                Ok(file) => {
                    let count = held.len();
                    lines.discard(count);
                    self.current = Some(file);
                }
                Err(error) => self.refuse(&error),
            }
        }
    }

    /// Moves the bytes of the coming line into its file, and returns the line when it is whole.
    pub(crate) fn take(&mut self, lines: &mut Lines) -> Option<FilePart> {
        let file = self.current.as_mut()?;
        let (bytes, is_whole) = lines.held_of_line();
        let (count, length) = (bytes.len(), file.length() + bytes.len() as u64);
        // A carriage return may belong to the ending.
        if length > self.max_message as u64 + 1 {
            self.skip(lines);
            return None;
        }
        let appended = match length > self.max_message as u64 {
            // `Lines` itself knows whether such a line is too long.
            true => Err(io::ErrorKind::FileTooLarge.into()),
            false => file.append(bytes),
        };
        if let Err(error) = appended {
            self.refuse(&error);
            self.give_up(lines);
            return None;
        }
        lines.discard(count + usize::from(is_whole));
        if !is_whole {
            return None;
        }
        self.current.take().map(UnnamedFile::finish)
    }

    /// Puts the bytes of a line that is not whole back into memory.
    pub(crate) fn give_up(&mut self, lines: &mut Lines) {
        self.refill(lines, Lines::push);
    }

    /// Reads of a line that is too long only what [`Lines`] keeps of it.
    fn skip(&mut self, lines: &mut Lines) {
        self.refill(lines, Lines::push_skipped);
    }

    /// Has `push` take the bytes of the line that is coming.
    fn refill(&mut self, lines: &mut Lines, mut push: impl FnMut(&mut Lines, &[u8])) {
        let Some(file) = self.current.take() else { return };
        let mut all = Lines::new(self.max_message);
        // A byte order mark counts at the beginning of the stream alone, and this is not it.
        all.push(b"\n");
        let _blank = all.next_line().is_some();
        let mut refill = Refill(|bytes: &[u8]| push(&mut all, bytes));
        if let Err(error) = file.finish().copy_to(&mut refill) {
            tracing::warn!("the beginning of a long line is lost: {error}");
        }
        all.push(lines.held());
        *lines = all;
    }

    /// Reads a whole line: passes its result on if that is wanted, and has `note` take the line, then with a short result.
    ///
    /// # Errors
    /// Fails if the file can neither be mapped nor read.
    pub(crate) fn read(&mut self, line: &FilePart, note: impl FnOnce(Line<'_>)) -> io::Result<()> {
        let Ok(whole) = line.map() else {
            // The process may have no more addresses.
            let mut whole = Vec::new();
            line.copy_to(&mut whole)?;
            note_whole(&whole, note);
            return Ok(());
        };
        let found = long_result(&whole).and_then(|found| Some((self.wanted.remove(&found.id)?, found)));
        let Some((wanted, LongResult { place, short, .. })) = found else {
            note_whole(&whole, note);
            return Ok(());
        };
        // Nobody may wait for it any more.
        let _unwanted = wanted.send(line.part(place));
        note(Line::Whole(&short));
        Ok(())
    }

    fn refuse(&mut self, error: &io::Error) {
        self.is_refused = true;
        tracing::info!("a long line stays in memory, because it cannot be written: {error}");
    }
}

/// Has `note` take a line as [`Lines`] would lend it.
fn note_whole(line: &[u8], note: impl FnOnce(Line<'_>)) {
    let content = line.strip_suffix(b"\r").unwrap_or(line);
    if !content.trim_ascii().is_empty() {
        note(Line::Whole(content));
    }
}

/// Takes the pieces of a line.
struct Refill<F>(F);

impl<F: FnMut(&[u8])> io::Write for Refill<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.0)(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The result of an answer that ends a call.
struct LongResult {
    id: Id,
    /// The place of the result in the line.
    place: Range<usize>,
    /// The same answer with a short result.
    short: Vec<u8>,
}

/// Finds the result in an answer; `None` if the line is no answer whose result ends a call.
fn long_result(line: &[u8]) -> Option<LongResult> {
    let mut pieces = read(line);
    let Some(Piece::Message(message)) = pieces.next() else { return None };
    let Body::Response { id, outcome: ResponseOutcome::Result(result), .. } = message.body else {
        return None;
    };
    if pieces.next().is_some() {
        return None;
    }
    // Another reader has to take it for one whole value too.
    serde_json::from_str::<&RawValue>(result.get()).ok()?;
    let text = |name| result.member(name).map(Json::get);
    let (kind, is_error) = (text("resultType"), text("isError"));
    if !result.get().starts_with('{') || kind.is_some_and(|kind| kind != r#""complete""#) {
        return None;
    }
    let is_error = if is_error == Some("true") { "true" } else { "false" };
    let kind = kind.map_or(String::new(), |kind| format!(r#","resultType":{kind}"#));
    let short =
        format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"isError":{is_error}{kind}}}}}"#, id.to_json());
    let start = result.get().as_ptr().addr() - line.as_ptr().addr();
    Some(LongResult { id, place: start..start + result.get().len(), short: short.into_bytes() })
}

#[cfg(test)]
mod tests;
