//! Reads the log of a job, by offsets that never move, while the job goes on writing.
//!
//! The work writes straight to its two files. The supervisor keeps them small by punching holes in their heads: a byte keeps its offset for
//! ever, and only its content goes.
//!
//! Invariants
//!
//! - A page has at most the bytes that were asked for. Wherever the text is UTF-8, it begins and ends between two characters. It says where
//!   the next page begins: a reader that follows that misses and repeats nothing.
//! - "At the end" is said only of a job that has ended.

use std::{
    fs::File,
    io::{self, ErrorKind},
    os::unix::fs::FileExt,
    path::Path,
};

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::folder::{FileError, open_file};

/// The fewest bytes that a page is asked for: a character has up to four.
pub(crate) const SHORTEST_PAGE: usize = 4;

/// The most bytes of a page.
pub const MAX_PAGE: usize = 1 << 20;

/// One of the two outputs of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl LogStream {
    /// Returns the name of the stream's file in the job's folder.
    #[must_use]
    pub fn file(self) -> &'static str {
        match self {
            Self::Stdout => crate::folder::STDOUT,
            Self::Stderr => crate::folder::STDERR,
        }
    }
}

/// A piece of a log, as text or as the bytes that were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPage<Text = String> {
    /// The text; bytes that are not UTF-8 are replaced.
    pub text: Text,
    /// The offset of the page, which is later than the requested one if that part has been dropped.
    pub offset: u64,
    /// The offset of the next page.
    pub next_offset: u64,
    /// Whether the log is complete.
    pub eof: bool,
    /// The offset before which everything has been dropped, to keep the log within its limit.
    pub dropped_before: u64,
}

impl LogPage<Vec<u8>> {
    /// Returns the page as text that begins and ends between two characters, as far as it is UTF-8. `has_ended` says that the job has ended.
    #[must_use]
    pub fn between_characters(mut self, has_ended: bool) -> LogPage {
        self.offset += cut_between_characters(&mut self.text, self.offset, has_ended && self.eof);
        self.next_offset = self.offset + wide(self.text.len());
        self.into_text()
    }

    fn into_text(self) -> LogPage {
        let Self { text, offset, next_offset, eof, dropped_before } = self;
        let text = String::from_utf8_lossy(&text).into_owned();
        LogPage { text, offset, next_offset, eof, dropped_before }
    }
}

/// Reads a page. A log that does not exist yet is empty.
///
/// # Errors
/// Fails if the file exists and cannot be read.
pub fn page(path: &Path, offset: u64, max_bytes: usize, has_ended: bool) -> Result<LogPage, FileError> {
    Ok(read_page(path, offset, max_bytes, has_ended, PageBoundary::BetweenCharacters)?.into_text())
}

/// Reads a page with the bytes as they were written, none of them left out.
///
/// # Errors
/// Fails as [`page`] does.
pub fn raw_page(
    path: &Path,
    offset: u64,
    max_bytes: usize,
    has_ended: bool,
) -> Result<LogPage<Vec<u8>>, FileError> {
    read_page(path, offset, max_bytes, has_ended, PageBoundary::Anywhere)
}

/// The places where a page may begin and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageBoundary {
    Anywhere,
    BetweenCharacters,
}

fn read_page(
    path: &Path,
    offset: u64,
    max_bytes: usize,
    has_ended: bool,
    cut: PageBoundary,
) -> Result<LogPage<Vec<u8>>, FileError> {
    let Some(file) = open_file(path)? else {
        return Ok(LogPage {
            text: Vec::new(),
            offset: 0,
            next_offset: 0,
            eof: has_ended,
            dropped_before: 0,
        });
    };
    let max_bytes = max_bytes.clamp(SHORTEST_PAGE, MAX_PAGE);
    read(&file, offset, max_bytes, has_ended, cut)
        .map_err(|error| FileError::system("cannot read", path, error))
}

/// Reads the end of a log.
///
/// # Errors
/// Fails if the file exists and cannot be read.
pub fn tail(path: &Path, max_bytes: usize) -> Result<String, FileError> {
    let Some(file) = open_file(path)? else { return Ok(String::new()) };
    let read = || -> io::Result<String> {
        let length = file.metadata()?.len();
        let wanted = u64::try_from(max_bytes).unwrap_or(u64::MAX);
        let page =
            read(&file, length.saturating_sub(wanted), max_bytes, true, PageBoundary::BetweenCharacters)?;
        Ok(page.into_text().text)
    };
    read().map_err(|error| FileError::system("cannot read", path, error))
}

/// Bytes of a file that all existed at one moment.
struct LogPiece {
    bytes: Vec<u8>,
    offset: u64,
    dropped_before: u64,
    /// The length of the file before the bytes were read.
    end: u64,
}

/// The number of times that a piece is read again if it was dropped while it was read. A log that is dropped faster than it is read has no
/// bytes at that offset; the reader goes on where its data begins.
const TRIES: usize = 8;

/// Reads from this offset on. The head of the log may be dropped at any moment, and dropped bytes read as zeros. So the look at where the
/// data begins is repeated after the read.
fn read_piece(file: &File, start: u64, max_bytes: usize) -> io::Result<LogPiece> {
    let mut dropped_before = first_byte(file)?;
    let mut tries = 0;
    loop {
        // A reader that asks for later bytes waits at the end.
        let end = file.metadata()?.len();
        let mut offset = start.clamp(dropped_before, end.max(dropped_before));
        let mut bytes = vec![0; max_bytes];
        let length = read_full(file, &mut bytes, offset)?;
        bytes.truncate(length);
        dropped_before = first_byte(file)?;
        let dropped = usize::try_from(dropped_before.saturating_sub(offset)).unwrap_or(usize::MAX);
        tries += 1;
        if dropped > 0 && dropped >= length && tries < TRIES {
            continue;
        }
        bytes.drain(..dropped.min(length));
        offset = offset.max(dropped_before);
        return Ok(LogPiece { bytes, offset, dropped_before, end });
    }
}

fn read(
    file: &File,
    start: u64,
    max_bytes: usize,
    has_ended: bool,
    cut: PageBoundary,
) -> io::Result<LogPage<Vec<u8>>> {
    let LogPiece { mut bytes, mut offset, dropped_before, end } = read_piece(file, start, max_bytes)?;
    let reached_end = offset + wide(bytes.len()) >= end;
    if cut == PageBoundary::BetweenCharacters {
        offset += cut_between_characters(&mut bytes, offset, reached_end && has_ended);
    }
    let next_offset = offset + wide(bytes.len());
    Ok(LogPage { text: bytes, offset, next_offset, eof: has_ended && next_offset >= end, dropped_before })
}

/// Cuts bytes so that they begin and end between two characters. Returns the number of bytes that went from the head. A page may begin in
/// the middle of a character, because of a hole or of the reader's offset.
fn cut_between_characters(bytes: &mut Vec<u8>, offset: u64, is_last: bool) -> u64 {
    let begin = bytes.iter().take(3).take_while(|byte| is_continuation(**byte)).count();
    // Text that begins like that at the very beginning of the file is not UTF-8 anyway.
    let begin = if offset > 0 && begin < bytes.len() { begin } else { 0 };
    bytes.drain(..begin);
    let kept = bytes.len() - if is_last { 0 } else { unfinished(bytes) };
    bytes.truncate(kept);
    wide(begin)
}

/// Returns the offset at which the data begins: behind the hole at the head of the file, if there is one.
fn first_byte(file: &File) -> io::Result<u64> {
    match seek(file, SeekFrom::Data(0)) {
        Ok(offset) => Ok(offset),
        // The file has no data: it is empty, or one hole.
        Err(Errno::NXIO) => Ok(file.metadata()?.len()),
        // A file system that does not know holes has none.
        Err(_) => Ok(0),
    }
}

fn read_full(file: &File, mut bytes: &mut [u8], mut offset: u64) -> io::Result<usize> {
    let wanted = bytes.len();
    while !bytes.is_empty() {
        match file.read_at(bytes, offset) {
            Ok(0) => break,
            Ok(count) => {
                offset += wide(count);
                bytes = &mut bytes[count..];
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(wanted - bytes.len())
}

/// Returns how many bytes at the end begin a character whose rest is missing.
fn unfinished(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let byte = bytes[bytes.len() - back];
        let length = match byte {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ if is_continuation(byte) => continue,
            _ => return 0,
        };
        // At least one byte must be left, so that the reader gets on.
        return if length > back && back < bytes.len() { back } else { 0 };
    }
    0
}

fn is_continuation(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

fn wide(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::Write,
        sync::atomic::{AtomicBool, Ordering},
    };

    use rustix::fs::{FallocateFlags, fallocate};

    use super::*;

    fn log(content: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stdout.log");
        fs::write(&path, content).unwrap();
        (folder, path)
    }

    #[test]
    fn pages_follow_one_another_without_gap_or_repetition() {
        let text = "grüße, 世界 🦀! ".repeat(50);
        let (_folder, path) = log(text.as_bytes());
        for size in 4..40 {
            let (mut offset, mut read) = (0, String::new());
            loop {
                let page = page(&path, offset, size, true).unwrap();
                assert!(page.next_offset > offset || page.eof, "no page is empty before the end");
                read.push_str(&page.text);
                offset = page.next_offset;
                if page.eof {
                    break;
                }
            }
            assert_eq!(read, text, "in pages of {size} bytes");
        }
    }

    #[test]
    fn raw_pages_leave_out_nothing() {
        let bytes: Vec<u8> = (0..=255).cycle().take(2000).collect();
        let (_folder, path) = log(&bytes);
        let (mut offset, mut read) = (0, Vec::new());
        while read.len() < bytes.len() {
            let page = raw_page(&path, offset, 7, true).unwrap();
            read.extend_from_slice(&page.text);
            offset = page.next_offset;
        }
        assert_eq!(read, bytes);
    }

    #[test]
    fn an_unfinished_character_waits_while_the_job_runs() {
        let (_folder, path) = log("a\u{1f980}".split_at_checked(1).unwrap().0.as_bytes());
        fs::write(&path, &"a🦀".as_bytes()[..3]).unwrap();
        let running = page(&path, 0, 100, false).unwrap();
        assert_eq!((running.text.as_str(), running.next_offset, running.eof), ("a", 1, false));
        let ended = page(&path, 0, 100, true).unwrap();
        assert_eq!((ended.text.as_str(), ended.next_offset, ended.eof), ("a\u{fffd}", 3, true));
    }

    #[test]
    fn what_was_dropped_is_skipped_and_said() {
        let (_folder, path) = log(&[b'x'; 64 << 10]);
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 16 << 10).unwrap();
        let page = page(&path, 100, 10, true).unwrap();
        assert_eq!(
            (page.offset, page.dropped_before, page.next_offset),
            (16 << 10, 16 << 10, (16 << 10) + 10)
        );
        assert_eq!(page.text, "xxxxxxxxxx");
    }

    /// The head goes while it is read, as with a job that prints faster than its log may grow.
    #[test]
    fn f_94_what_is_dropped_while_it_is_read_is_skipped_and_said() {
        const BLOCK: usize = 64 << 10;
        let (_folder, path) = log(&[b'x'; BLOCK]);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut writer = fs::OpenOptions::new().append(true).open(&path).unwrap();
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let mut kept_from = 0;
                while !is_over.load(Ordering::Relaxed) {
                    writer.write_all(&[b'x'; BLOCK]).unwrap();
                    fallocate(&writer, hole, kept_from, wide(BLOCK)).unwrap();
                    kept_from += wide(BLOCK);
                }
            });
            let (mut zeros, mut gaps) = (0, 0);
            for _ in 0..5000 {
                let page = raw_page(&path, 0, 16 << 10, false).unwrap();
                zeros += usize::from(page.text.contains(&0));
                gaps += usize::from(page.offset < page.dropped_before);
            }
            is_over.store(true, Ordering::Relaxed);
            assert_eq!((zeros, gaps), (0, 0), "pages with bytes that nobody wrote");
        });
    }

    #[test]
    fn an_offset_behind_the_end_waits_at_the_end() {
        let (_folder, path) = log(b"abc");
        let page = page(&path, 1000, 10, false).unwrap();
        assert_eq!((page.offset, page.next_offset, page.text.as_str(), page.eof), (3, 3, "", false));
    }

    #[test]
    fn a_log_that_is_not_there_is_empty_and_a_pipe_in_its_place_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stdout.log");
        assert!(page(&path, 0, 10, true).unwrap().eof);
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        assert!(page(&path, 0, 10, true).unwrap_err().to_string().contains("not a regular file"));
    }

    #[test]
    fn the_tail_is_the_end() {
        let (_folder, path) = log("first\nlast: ü\n".as_bytes());
        assert_eq!(tail(&path, 5).unwrap(), ": ü\n");
        assert_eq!(tail(&path, 4).unwrap(), " ü\n");
        assert_eq!(tail(&path, 2000).unwrap(), "first\nlast: ü\n");
    }
}
