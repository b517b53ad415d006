//! Journals of pipe ends: what a process has taken off a pipe or accepted for one outlives the process.
//!
//! A journal is a file in memory (`memfd`). Whoever has its descriptor and the pipe's can go on where a dead process stopped.
//!
//! Invariants
//! - All processes that have the descriptor share one file position, and only the kernel moves it, together with the bytes. So the position
//!   says exactly which bytes have left the pipe (reader) or have entered it (writer), whenever the process is killed.
//! - The mark, two numbers at the start of the file, is written in one piece. A reader's mark says which bytes are processed. A writer's
//!   mark says which bytes are accepted: it moves after the bytes of a whole call are in the file.
//! - One process at a time uses a journal. A successor opens it when its predecessor has ended.
//! - Memory is bounded. Bytes that nobody needs any more are given back in steps of [`KEPT`].
//! - A byte that has entered a pipe never changes in its page. The pipe shares the page with the file, and a server that splices its input
//!   onward shares it for longer. So a writer gives back whole pages, and writes over none.
//! - Positions start again from the front when everything is done, so a limit of the file size (`ulimit -f`) does not end a long stream.

use std::{
    io::{self, IoSlice},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{SeekFrom, ftruncate, seek, tell},
    io::{pread, pwrite, pwritev},
};

use super::retry;
use crate::system;

/// The most bytes that a reader takes off its pipe and has not processed: two of the longest messages that unhang lets pass (64 MiB each).
/// A reader at this limit waits until some are processed.
pub const LONGEST_UNPROCESSED: u64 = 128 << 20;
/// The number of accepted bytes outside the pipe from which a writer accepts no more. An owner has a queue of its own for the rest.
pub const LONGEST_BACKLOG: u64 = 16 << 20;

/// The largest page of any system. Memory is given back in whole pages.
const PAGE: u64 = 64 << 10;
/// Where the bytes begin; the mark is in the page before them.
const START: u64 = PAGE;
/// Bytes that are kept though nobody needs them: to give memory back for each line would cost more than the line.
const KEPT: u64 = 256 << 10;
/// The most parts of one `pwritev`; the system takes 1024.
const MOST_PARTS: usize = 1024;

/// The file behind a journal.
#[derive(Debug)]
struct JournalFile(OwnedFd);

/// The start of a journal's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    /// The place in the file up to which the bytes are processed, or accepted.
    place: u64,
    /// The bytes that were accepted before the place began again from the front.
    earlier: u64,
}

impl Mark {
    fn at(place: u64) -> Self {
        Self { place, earlier: 0 }
    }
}

impl JournalFile {
    fn create() -> io::Result<Self> {
        let file = Self(system::memory_file(c"mcp-journal")?);
        file.note(Mark::at(START))?;
        file.rewind()?;
        Ok(file)
    }

    /// Writes the mark. The kernel copies a few bytes of one page in one piece, so a killed process leaves the old mark or the new one.
    fn note(&self, mark: Mark) -> io::Result<()> {
        let bytes = [mark.place.to_ne_bytes(), mark.earlier.to_ne_bytes()];
        let count = retry(|| pwrite(&self.0, bytes.as_flattened(), 0))?;
        if count == size_of_val(&bytes) { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    fn mark(&self) -> io::Result<Mark> {
        let mut bytes = [[0; size_of::<u64>()]; 2];
        if retry(|| pread(&self.0, bytes.as_flattened_mut(), 0))? != size_of_val(&bytes) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "this is no journal of a pipe"));
        }
        let [place, earlier] = bytes.map(u64::from_ne_bytes);
        Ok(Mark { place, earlier })
    }

    fn position(&self) -> io::Result<u64> {
        Ok(tell(&self.0)?)
    }

    fn rewind(&self) -> io::Result<()> {
        self.move_to(START)
    }

    fn move_to(&self, position: u64) -> io::Result<()> {
        seek(&self.0, SeekFrom::Start(position))?;
        Ok(())
    }

    /// Writes all the parts from `at` on.
    fn write_at(&self, parts: &[IoSlice<'_>], mut at: u64) -> io::Result<u64> {
        let mut parts = parts.to_vec();
        let mut left = parts.as_mut_slice();
        // Empty parts at the front would look like a file that takes nothing.
        IoSlice::advance_slices(&mut left, 0);
        let begun = at;
        while !left.is_empty() {
            let batch = left.get(..left.len().min(MOST_PARTS)).unwrap_or_default();
            let count = retry(|| pwritev(&self.0, batch, at))?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            at += count as u64;
            IoSlice::advance_slices(&mut left, count);
        }
        Ok(at - begun)
    }
}

/// The journal of a pipe that we read.
///
/// `START ..= processed ..= cursor ..= taken`: the bytes before the first are done, up to the second they were given to the caller, and up to
/// the third they have left the pipe.
#[derive(Debug)]
pub(super) struct ReadJournal {
    file: JournalFile,
    processed: u64,
    cursor: u64,
    taken: u64,
    /// Up to where memory was given back.
    released: u64,
    /// [`LONGEST_UNPROCESSED`], or less in a test.
    limit: u64,
}

impl ReadJournal {
    /// Makes a journal. `unprocessed` are bytes that the caller has read from the pipe already, and has not processed.
    pub(super) fn create(unprocessed: &[u8]) -> io::Result<Self> {
        let file = JournalFile::create()?;
        let taken = START + file.write_at(&[IoSlice::new(unprocessed)], START)?;
        file.move_to(taken)?;
        Ok(Self { file, processed: START, cursor: taken, taken, released: START, limit: LONGEST_UNPROCESSED })
    }

    /// Opens the journal of a process that has ended. What it had not processed is unread again.
    pub(super) fn resume(file: OwnedFd) -> io::Result<Self> {
        let file = JournalFile(file);
        let taken = file.position()?;
        // The process may have ended between the two steps of a rewind. There was nothing unprocessed then.
        let processed = file.mark()?.place.min(taken);
        file.note(Mark::at(processed))?;
        Ok(Self { file, processed, cursor: processed, taken, released: START, limit: LONGEST_UNPROCESSED })
    }

    /// Returns how many bytes have left the pipe and were not given to the caller yet.
    pub(super) fn unread(&self) -> u64 {
        self.taken - self.cursor
    }

    pub(super) fn is_full(&self) -> bool {
        self.taken - self.processed >= self.limit
    }

    /// Takes up to `length` bytes off the pipe; 0 is its end. The journal must not be full.
    pub(super) fn receive(&mut self, pipe: &OwnedFd, length: usize) -> io::Result<usize> {
        let room = self.limit.saturating_sub(self.taken - self.processed);
        let length = length.min(usize::try_from(room).unwrap_or(usize::MAX));
        let count = retry(|| system::move_bytes(pipe, &self.file.0, length))?;
        self.taken += count as u64;
        Ok(count)
    }

    /// Gives unread bytes to the caller.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let unread = usize::try_from(self.unread()).unwrap_or(usize::MAX);
        let length = buffer.len().min(unread);
        let buffer = buffer.get_mut(..length).unwrap_or_default();
        let count = retry(|| pread(&self.file.0, &mut *buffer, self.cursor))?;
        self.cursor += count as u64;
        Ok(count)
    }

    /// Notes that the caller has done all that the next `count` bytes ask for.
    pub(super) fn processed(&mut self, count: u64) -> io::Result<()> {
        if count > self.cursor - self.processed {
            let text =
                format!("{count} bytes cannot be processed: {} were read", self.cursor - self.processed);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        self.file.note(Mark::at(self.processed + count))?;
        self.processed += count;
        self.let_go()
    }

    /// Gives back the memory of processed bytes.
    fn let_go(&mut self) -> io::Result<()> {
        if self.processed == self.taken && self.taken - START >= KEPT {
            // The position comes first: behind it a mark means that nothing is left.
            self.file.rewind()?;
            (self.taken, self.cursor) = (START, START);
            self.file.note(Mark::at(START))?;
            self.processed = START;
            self.released = START;
            ftruncate(&self.file.0, START + KEPT)?;
        } else if self.processed - self.released >= KEPT {
            system::punch_hole(&self.file.0, self.released, self.processed)?;
            self.released = self.processed;
        }
        Ok(())
    }
}

/// The journal of a pipe that we write to.
///
/// `START ..= moved ..= accepted`: the bytes before the second are in the pipe, and those before the third have been accepted.
#[derive(Debug)]
pub(super) struct WriteJournal {
    file: JournalFile,
    moved: u64,
    accepted: u64,
    /// The bytes that were accepted before the last rewind.
    earlier: u64,
    /// Up to where memory was given back.
    released: u64,
}

impl WriteJournal {
    pub(super) fn create() -> io::Result<Self> {
        let file = JournalFile::create()?;
        Ok(Self { file, moved: START, accepted: START, earlier: 0, released: START })
    }

    /// Opens the journal of a process that has ended. What it had accepted is the backlog.
    pub(super) fn resume(file: OwnedFd) -> io::Result<Self> {
        let file = JournalFile(file);
        let (Mark { place: accepted, earlier }, moved) = (file.mark()?, file.position()?);
        if moved > accepted {
            // The process has ended between two steps of a rewind. There was no backlog then.
            file.move_to(accepted)?;
        }
        // Behind the mark is what was not accepted as a whole, or the pages of before a rewind.
        ftruncate(&file.0, accepted)?;
        Ok(Self { file, moved: moved.min(accepted), accepted, earlier, released: START })
    }

    /// Returns how many bytes were accepted since the journal began.
    pub(super) fn accepted(&self) -> u64 {
        self.earlier + (self.accepted - START)
    }

    /// Returns how many accepted bytes are not in the pipe.
    pub(super) fn backlog(&self) -> u64 {
        self.accepted - self.moved
    }

    /// Accepts all the parts or nothing. `in_pipe` says how many bytes of the pipe are unread.
    pub(super) fn accept(&mut self, parts: &[IoSlice<'_>], in_pipe: u64) -> io::Result<usize> {
        if self.backlog() >= LONGEST_BACKLOG {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.let_go(in_pipe)?;
        let count = self.file.write_at(parts, self.accepted)?;
        self.file.note(Mark { place: self.accepted + count, earlier: self.earlier })?;
        self.accepted += count;
        usize::try_from(count).map_err(io::Error::other)
    }

    /// Moves accepted bytes into the pipe, as many as there is room for, and returns how many.
    pub(super) fn flush(&mut self, pipe: &OwnedFd) -> io::Result<usize> {
        let length = usize::try_from(self.backlog()).unwrap_or(usize::MAX);
        let count = retry(|| system::move_bytes(&self.file.0, pipe, length))?;
        if count == 0 && length > 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the journal of a pipe was cut"));
        }
        self.moved += count as u64;
        Ok(count)
    }

    /// Gives back the memory of bytes that were read from the pipe.
    fn let_go(&mut self, in_pipe: u64) -> io::Result<()> {
        let read = self.moved.saturating_sub(in_pipe).max(START) / PAGE * PAGE;
        if in_pipe == 0 && self.backlog() == 0 && self.moved - START >= KEPT {
            // The mark comes first: before the position it means that there is no backlog.
            let earlier = self.accepted();
            self.file.note(Mark { place: START, earlier })?;
            (self.accepted, self.earlier) = (START, earlier);
            self.file.rewind()?;
            self.moved = START;
            self.released = START;
            ftruncate(&self.file.0, START)?;
        } else if read.saturating_sub(self.released) >= KEPT {
            system::punch_hole(&self.file.0, self.released, read)?;
            self.released = read;
        }
        Ok(())
    }
}

impl AsFd for ReadJournal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.0.as_fd()
    }
}

impl AsFd for WriteJournal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.0.as_fd()
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;
