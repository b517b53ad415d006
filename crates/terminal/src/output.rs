//! The one printer. Data goes to stdout, everything else to stderr; a broken pipe is a quiet success.
//!
//! Invariant: printed text cannot steer a terminal, whatever a server, a job or a file put into it. The printer checks each stream on its
//! own: a stream that does not lead to a terminal gets every byte unchanged.

use std::{
    borrow::Cow,
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
    process::ExitCode,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    termios::tcgetwinsize,
};
use unhang::exit;

use crate::text::{PlainBytes, PlainText, escaped_json, escaped_lines};

/// The width in columns that every terminal has.
pub const COLUMNS: usize = 80;

/// Returns the number of columns of the terminal that this stream leads to. Returns [`COLUMNS`] if it leads to none, or if the terminal
/// does not tell its size.
pub fn columns(stream: impl AsFd) -> usize {
    let told = tcgetwinsize(stream).map_or(0, |size| usize::from(size.ws_col));
    if told == 0 { COLUMNS } else { told }
}

/// Prints text, and returns the exit code.
pub fn data(text: &str) -> ExitCode {
    ExitCode::from(bytes(text.as_bytes()))
}

/// Prints data that may not be text, and returns the bare exit code.
pub fn bytes(bytes: &[u8]) -> u8 {
    write(bytes).err().unwrap_or(exit::DONE)
}

/// Prints a part of the data.
///
/// # Errors
/// Fails with the exit code if nobody reads stdout, or if it cannot be written.
pub fn write(bytes: &[u8]) -> Result<(), u8> {
    if io::stdout().is_terminal() {
        write_as_it_is(PlainBytes::default().take(bytes).as_bytes())
    } else {
        write_as_it_is(bytes)
    }
}

/// Prints JSON. A terminal gets it in another spelling of the same meaning.
///
/// # Errors
/// Fails as [`write()`] does.
pub fn write_json(json: &str) -> Result<(), u8> {
    if io::stdout().is_terminal() {
        write_as_it_is(escaped_json(json).as_bytes())
    } else {
        write_as_it_is(json.as_bytes())
    }
}

/// Prints text in which everything from outside is escaped already, so that unhang's own colours reach a terminal.
///
/// # Errors
/// Fails as [`write()`] does.
pub fn write_escaped(text: &str) -> Result<(), u8> {
    write_as_it_is(text.as_bytes())
}

fn write_as_it_is(bytes: &[u8]) -> Result<(), u8> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(|error| unwritten(&error))
}

/// Returns the exit code for output that cannot be printed, and prints the reason. If nobody reads the output, the command ends quietly.
pub(crate) fn unwritten(why: &io::Error) -> u8 {
    if why.kind() == io::ErrorKind::BrokenPipe {
        return exit::DONE;
    }
    error(&format!("stdout cannot be written: {why}"), None);
    exit::FAILED
}

/// Returns whether somebody may still read stdout. A pipe without a reader says so before anything is written.
pub fn is_read() -> bool {
    let stdout = io::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    let _what_cannot_be_asked_is_read = poll(&mut polled, Some(&Timespec::default()));
    !polled[0].revents().contains(PollFlags::ERR)
}

/// Tells a person something that is not an error.
pub fn note(text: &str) {
    error(text, None);
}

/// Prints an error and its hint, if it has one. The function does not fail if nobody reads stderr.
pub fn error(message: &str, hint: Option<&str>) {
    let hint = hint.map_or_else(String::new, |hint| format!("hint: {hint}\n"));
    say(&format!("unhang: {message}\n{hint}"));
}

/// Writes this text to stderr. On a terminal, it escapes the characters that would steer it.
pub fn say(text: &str) {
    let _nobody_reads = io::stderr().lock().write_all(for_stderr(text, escaped_lines).as_bytes());
}

/// Writes one line of JSON to stderr. A terminal gets it in another spelling of the same meaning.
pub(crate) fn say_json(json: &str) {
    let _nobody_reads = writeln!(io::stderr().lock(), "{}", for_stderr(json, escaped_json));
}

/// Returns a text of several lines, without its control sequences if stderr is a terminal. Their escaped remains would only disturb a
/// reader there.
pub fn plain_on_stderr(text: &str) -> Cow<'_, str> {
    for_stderr(text, |text| PlainText::default().take(text))
}

fn for_stderr(text: &str, escape: impl FnOnce(&str) -> String) -> Cow<'_, str> {
    if io::stderr().is_terminal() { Cow::Owned(escape(text)) } else { Cow::Borrowed(text) }
}

/// A sink of JSON lines on stdout, like [`write_json`]. Each write has to consist of whole lines.
#[derive(Debug)]
pub struct JsonLines;

impl Write for JsonLines {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let mut stdout = io::stdout().lock();
        if stdout.is_terminal() {
            stdout.write_all(escaped_json(&String::from_utf8_lossy(lines)).as_bytes())?;
        } else {
            stdout.write_all(lines)?;
        }
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().lock().flush()
    }
}

/// The stderr of this process, for a thread that writes pieces cut anywhere. The pieces also contain text from servers and jobs.
#[derive(Debug)]
pub struct StderrSink {
    /// The filter that makes plain text of the pieces, if stderr is a terminal; `None` for JSON, which comes in whole lines.
    plain: Option<PlainBytes>,
}

impl StderrSink {
    /// Makes a sink for lines of JSON, or else for text.
    pub fn new(is_json: bool) -> Self {
        Self { plain: (!is_json).then(PlainBytes::default) }
    }
}

impl Write for StderrSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut stderr = io::stderr().lock();
        match &mut self.plain {
            _ if !stderr.is_terminal() => stderr.write_all(bytes)?,
            Some(plain) => stderr.write_all(plain.take(bytes).as_bytes())?,
            None => stderr.write_all(escaped_json(&String::from_utf8_lossy(bytes)).as_bytes())?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().lock().flush()
    }
}
