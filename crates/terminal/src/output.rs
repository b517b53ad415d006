//! The one printer. Data goes to stdout, everything else to stderr; a broken pipe is a quiet success.
//!
//! Invariant: what is printed steers no terminal, whatever a server, a job or a file put into it. Each stream is looked at by itself:
//! one that is no terminal is given every byte as it is.

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

/// Columns of a terminal that everybody has.
pub const COLUMNS: usize = 80;

/// The columns of the terminal that this stream leads to: [`COLUMNS`] where it leads to none, or to one that does not say it.
pub fn columns(stream: impl AsFd) -> usize {
    let told = tcgetwinsize(stream).map_or(0, |size| usize::from(size.ws_col));
    if told == 0 { COLUMNS } else { told }
}

/// Prints text.
pub fn data(text: &str) -> ExitCode {
    ExitCode::from(bytes(text.as_bytes()))
}

/// The same for data that may be no text, with the bare exit code.
pub fn bytes(bytes: &[u8]) -> u8 {
    write(bytes).err().unwrap_or(exit::DONE)
}

/// Prints a part of the data.
///
/// # Errors
/// The exit code, where there is nobody who reads it or it cannot be written.
pub fn write(bytes: &[u8]) -> Result<(), u8> {
    if io::stdout().is_terminal() {
        write_as_it_is(PlainBytes::default().take(bytes).as_bytes())
    } else {
        write_as_it_is(bytes)
    }
}

/// Prints JSON, which a terminal is given in another spelling of the same meaning.
///
/// # Errors
/// As [`write()`].
pub fn write_json(json: &str) -> Result<(), u8> {
    if io::stdout().is_terminal() {
        write_as_it_is(escaped_json(json).as_bytes())
    } else {
        write_as_it_is(json.as_bytes())
    }
}

/// Prints text in which everything from outside is escaped already, so that the colours of unhang reach a terminal.
///
/// # Errors
/// As [`write()`].
pub fn write_escaped(text: &str) -> Result<(), u8> {
    write_as_it_is(text.as_bytes())
}

fn write_as_it_is(bytes: &[u8]) -> Result<(), u8> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(|error| unwritten(&error))
}

/// The exit code of what cannot be printed, which is told. Nobody reading it is a quiet end.
pub(crate) fn unwritten(why: &io::Error) -> u8 {
    if why.kind() == io::ErrorKind::BrokenPipe {
        return exit::DONE;
    }
    error(&format!("stdout cannot be written: {why}"), None);
    exit::FAILED
}

/// Whether somebody may still read what is printed. A pipe that nobody reads tells so before anything is written.
pub fn is_read() -> bool {
    let stdout = io::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    let _what_cannot_be_asked_is_read = poll(&mut polled, Some(&Timespec::default()));
    !polled[0].revents().contains(PollFlags::ERR)
}

/// Tells a person something that is no error.
pub fn note(text: &str) {
    error(text, None);
}

/// Prints an error and a hint, where there is one. Nobody reading it is no reason to fail.
pub fn error(message: &str, hint: Option<&str>) {
    let hint = hint.map_or_else(String::new, |hint| format!("hint: {hint}\n"));
    say(&format!("unhang: {message}\n{hint}"));
}

/// Writes this to stderr as it is, but for what would steer a terminal there.
pub fn say(text: &str) {
    let _nobody_reads = io::stderr().lock().write_all(for_stderr(text, escaped_lines).as_bytes());
}

/// Writes one line of JSON to stderr, which a terminal is given in another spelling of the same meaning.
pub(crate) fn say_json(json: &str) {
    let _nobody_reads = writeln!(io::stderr().lock(), "{}", for_stderr(json, escaped_json));
}

/// A text of several lines without its control sequences, if stderr is a terminal: what is left of them would only be in the way there.
pub fn plain_on_stderr(text: &str) -> Cow<'_, str> {
    for_stderr(text, |text| PlainText::default().take(text))
}

fn for_stderr(text: &str, escape: impl FnOnce(&str) -> String) -> Cow<'_, str> {
    if io::stderr().is_terminal() { Cow::Owned(escape(text)) } else { Cow::Borrowed(text) }
}

/// A sink of JSON lines on stdout, as [`write_json`]. What is written at a time has to be whole lines.
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

/// Our stderr for whoever writes to it on a thread of its own, in pieces cut anywhere: what servers and jobs write there as well.
#[derive(Debug)]
pub struct StderrSink {
    /// What makes plain text of it, where stderr is a terminal; `None` for JSON, which comes in whole lines.
    plain: Option<PlainBytes>,
}

impl StderrSink {
    /// For text, or for lines of JSON.
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
