//! The one printer. Data goes to stdout, everything else to stderr; a broken pipe is a quiet success.
//!
//! Invariant: what is printed steers no terminal, whatever a server, a job or a file put into it. Each stream is looked at by itself:
//! one that is no terminal is given every byte as it is.

use std::{
    borrow::Cow,
    ffi::OsString,
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
    process::ExitCode,
};

use clap::error::ErrorKind;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    termios::tcgetwinsize,
};
use serde_json::{Value, json};
use unhang::exit;

use crate::{
    arguments,
    arguments::jobs::Format,
    terminal_text::{PlainBytes, PlainText, escaped, escaped_json, escaped_lines},
};

/// What went wrong, as it is told.
#[derive(Debug)]
pub(crate) struct CommandFailure {
    /// The exit code.
    pub(crate) code: u8,
    /// The kind, for programs.
    pub(crate) kind: &'static str,
    /// One sentence for a person.
    pub(crate) message: String,
    /// What to do, where the sentence does not say it.
    pub(crate) hint: Option<String>,
    /// What else is known, for programs.
    pub(crate) data: Option<Value>,
}

/// Lines of a server's stderr, and of its stdout, that are told with an error.
const TAIL: usize = 10;

impl CommandFailure {
    /// What the system refused.
    pub(crate) fn system(what: &str, error: &io::Error) -> CommandFailure {
        CommandFailure {
            code: exit::FAILED,
            kind: "system",
            message: format!("{what}: {error}"),
            hint: None,
            data: None,
        }
    }

    /// What is wrong with the command line or the configuration.
    pub(crate) fn usage(message: String, hint: Option<&str>) -> CommandFailure {
        CommandFailure {
            code: exit::USAGE,
            kind: "usage",
            message,
            hint: hint.map(str::to_owned),
            data: None,
        }
    }

    /// The end of what a server wrote besides its answers, where that may explain it.
    fn tail(&self) -> String {
        let stderr = self.last_lines("stderrTail", "its stderr ended with");
        stderr + &self.last_lines("junk", "its stdout had lines that are no messages, the last of them")
    }

    fn last_lines(&self, member: &str, heading: &str) -> String {
        let lines = self.data.as_ref().and_then(|data| data[member].as_array());
        let lines = lines.map(Vec::as_slice).unwrap_or_default();
        let last = &lines[lines.len().saturating_sub(TAIL)..];
        let text: String =
            last.iter().filter_map(Value::as_str).map(|line| format!("  | {}\n", escaped(line))).collect();
        if text.is_empty() { text } else { format!("{heading}:\n{text}") }
    }

    /// It as a program is told of it.
    pub(crate) fn members(&self) -> Value {
        let hint = || self.hint.as_ref().map_or_else(|| json!({}), |hint| json!({ "hint": hint }));
        let data = self.data.clone().unwrap_or_else(hint);
        json!({ "kind": self.kind, "message": self.message, "data": data })
    }

    /// Prints it as was asked for, and gives its exit code.
    pub(crate) fn print(&self, format: Option<Format>) -> ExitCode {
        if format == Some(Format::Json) {
            let error = json!({ "error": self.members() }).to_string();
            let _nobody_reads = writeln!(io::stderr().lock(), "{}", for_stderr(&error, escaped_json));
        } else {
            error(&self.message, self.hint.as_deref());
            say(&self.tail());
        }
        ExitCode::from(self.code)
    }
}

/// Columns of a terminal that everybody has.
pub(crate) const COLUMNS: usize = 80;

/// The columns of the terminal that this stream leads to: [`COLUMNS`] where it leads to none, or to one that does not say it.
pub(crate) fn columns(stream: impl AsFd) -> usize {
    let told = tcgetwinsize(stream).map_or(0, |size| usize::from(size.ws_col));
    if told == 0 { COLUMNS } else { told }
}

/// Prints text.
pub(crate) fn data(text: &str) -> ExitCode {
    ExitCode::from(bytes(text.as_bytes()))
}

/// The same for data that may be no text, with the bare exit code.
pub(crate) fn bytes(bytes: &[u8]) -> u8 {
    write(bytes).err().unwrap_or(exit::DONE)
}

/// Prints a part of the data.
///
/// # Errors
/// The exit code, where there is nobody who reads it or it cannot be written.
pub(crate) fn write(bytes: &[u8]) -> Result<(), u8> {
    if io::stdout().is_terminal() {
        write_as_it_is(PlainBytes::default().take(bytes).as_bytes())
    } else {
        write_as_it_is(bytes)
    }
}

/// Prints JSON, which a terminal is given in another spelling of the same meaning.
///
/// # Errors
/// As [`write`].
pub(crate) fn write_json(json: &str) -> Result<(), u8> {
    if io::stdout().is_terminal() {
        write_as_it_is(escaped_json(json).as_bytes())
    } else {
        write_as_it_is(json.as_bytes())
    }
}

/// Prints text in which everything from outside is escaped already, so that the colours of unhang reach a terminal.
///
/// # Errors
/// As [`write`].
pub(crate) fn write_escaped(text: &str) -> Result<(), u8> {
    write_as_it_is(text.as_bytes())
}

fn write_as_it_is(bytes: &[u8]) -> Result<(), u8> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(|error| unwritten(&error))
}

/// The exit code of what cannot be printed, which is told. Nobody reading it is a quiet end.
fn unwritten(why: &io::Error) -> u8 {
    if why.kind() == io::ErrorKind::BrokenPipe {
        return exit::DONE;
    }
    error(&format!("stdout cannot be written: {why}"), None);
    exit::FAILED
}

/// Whether somebody may still read what is printed. A pipe that nobody reads tells so before anything is written.
pub(crate) fn is_read() -> bool {
    let stdout = io::stdout();
    let mut polled = [PollFd::new(&stdout, PollFlags::empty())];
    let _what_cannot_be_asked_is_read = poll(&mut polled, Some(&Timespec::default()));
    !polled[0].revents().contains(PollFlags::ERR)
}

/// Tells a person something that is no error.
pub(crate) fn note(text: &str) {
    error(text, None);
}

/// Prints an error and a hint, where there is one. Nobody reading it is no reason to fail.
pub(crate) fn error(message: &str, hint: Option<&str>) {
    let hint = hint.map_or_else(String::new, |hint| format!("hint: {hint}\n"));
    say(&format!("unhang: {message}\n{hint}"));
}

/// Writes this to stderr as it is, but for what would steer a terminal there.
pub(crate) fn say(text: &str) {
    let _nobody_reads = io::stderr().lock().write_all(for_stderr(text, escaped_lines).as_bytes());
}

/// A text of several lines without its control sequences, if stderr is a terminal: what is left of them would only be in the way there.
pub(crate) fn plain_on_stderr(text: &str) -> Cow<'_, str> {
    for_stderr(text, |text| PlainText::default().take(text))
}

fn for_stderr(text: &str, escape: impl FnOnce(&str) -> String) -> Cow<'_, str> {
    if io::stderr().is_terminal() { Cow::Owned(escape(text)) } else { Cow::Borrowed(text) }
}

/// A sink of JSON lines on stdout, as [`write_json`]. What is written at a time has to be whole lines.
#[derive(Debug)]
pub(crate) struct JsonLines;

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
pub(crate) struct StderrSink {
    /// What makes plain text of it, where stderr is a terminal; `None` for JSON, which comes in whole lines.
    plain: Option<PlainBytes>,
}

impl StderrSink {
    /// For text, or for lines of JSON.
    pub(crate) fn new(is_json: bool) -> Self {
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

/// Prints what is wrong with the command line (exit 2), or help and version (exit 0). `command` is the one that was meant.
pub(crate) fn usage_error(error: &clap::Error, command: &str) -> ExitCode {
    if !error.use_stderr() {
        let printed = error.print().and_then(|()| io::stdout().lock().flush());
        return ExitCode::from(printed.map_or_else(|error| unwritten(&error), |()| exit::DONE));
    }
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if wants_json(&words) {
        let (message, hint) = usage_parts(&usage_rendered(error, &words), command);
        return CommandFailure::usage(message, Some(&hint)).print(Some(Format::Json));
    }
    let told = match error.kind() {
        // A help, which says all there is to say.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => error.render().to_string(),
        _ => usage_told(&usage_rendered(error, &words), command),
    };
    say(&told);
    ExitCode::from(exit::USAGE)
}

/// Whether the words of a wrong command line ask for JSON. What stands behind `--` is for others.
fn wants_json(words: &[OsString]) -> bool {
    let own: Vec<&OsString> = words.iter().take_while(|word| *word != "--").collect();
    let pair = |pair: &[&OsString]| pair[0] == "--output" && pair[1] == "json";
    own.iter().any(|word| *word == "--output=json") || own.windows(2).any(pair)
}

/// What the parser says, with the variable that has said a wrong value in the place of a flag.
fn usage_rendered(error: &clap::Error, words: &[OsString]) -> String {
    let told = error.render().to_string();
    match arguments::blamed(error, words) {
        Some((flag, variable)) => told.replacen(&format!("'{flag}'"), &format!("the variable {variable}"), 1),
        None => told,
    }
}

/// The same as a message and a hint, for a program.
fn usage_parts(parser: &str, command: &str) -> (String, String) {
    let told = usage_told(parser, command);
    let mut lines =
        told.lines().map(|line| line.trim_start_matches("unhang: ").trim_start_matches("hint: ").trim());
    let message = lines.next().unwrap_or_default().to_owned();
    (message, lines.collect::<Vec<_>>().join("; "))
}

/// What the parser says of a wrong command line, in the form of all other errors, with two hints at most.
fn usage_told(parser: &str, command: &str) -> String {
    let mut parts = parser.split("\n\n");
    let joined = |part: &str| part.split_whitespace().collect::<Vec<_>>().join(" ");
    let message = joined(parts.next().unwrap_or_default());
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    let mut told = format!("unhang: {message}\n");
    let rest: Vec<&str> = parts.collect();
    // Behind `--` stands a server's command, or an ID: a flag that is not ours is of no use there.
    let tips =
        rest.iter().flat_map(|part| part.lines()).filter_map(|line| line.trim_start().strip_prefix("tip: "));
    let tip = tips.into_iter().find(|tip| !tip.starts_with("to pass "));
    let usage = rest.iter().find(|part| part.starts_with("Usage: "));
    match (tip, usage) {
        (Some(tip), _) => told.push_str(&format!("hint: {tip}\n")),
        (None, Some(usage)) => told.push_str(&format!("{}\n", usage.trim_end())),
        (None, None) => {}
    }
    told.push_str(&format!("hint: `{command} --help` says more\n"));
    told
}

#[cfg(test)]
mod tests {
    use super::{usage_parts, usage_told, wants_json};

    #[test]
    fn a_wrong_command_line_is_told_in_our_own_form_with_two_hints_at_most() {
        let help = "hint: `unhang call --help` says more\n";
        for (parser, told) in [
            (
                "error: unexpected argument '--cal' found\n\n  tip: a similar argument exists: '--call-timeout'\n  tip: to pass \
                 '--cal' as a value, use '-- --cal'\n\nUsage: unhang call\n\nFor more information, try '--help'.\n",
                "unhang: unexpected argument '--cal' found\nhint: a similar argument exists: '--call-timeout'\n",
            ),
            (
                "error: the following required arguments were not provided:\n  <ID>\n\nUsage: unhang job show <ID>\n\nFor more \
                 information, try '--help'.\n",
                "unhang: the following required arguments were not provided: <ID>\nUsage: unhang job show <ID>\n",
            ),
            (
                "error: invalid value 'x' for '<SHELL>'\n  [possible values: bash, zsh]\n\nFor more information, try '--help'.\n",
                "unhang: invalid value 'x' for '<SHELL>' [possible values: bash, zsh]\n",
            ),
        ] {
            assert_eq!(usage_told(parser, "unhang call"), format!("{told}{help}"));
        }
        let parts = usage_parts("error: a\n\n  tip: b\n\nUsage: unhang call\n", "unhang call");
        assert_eq!(parts, ("a".to_owned(), "b; `unhang call --help` says more".to_owned()));
    }

    #[test]
    fn json_is_asked_for_before_the_words_that_are_for_others() {
        for (words, wants) in [
            ("call x --output json", true),
            ("call --output=json x", true),
            ("call --output text json", false),
            ("job run -- x --output json", false),
            ("", false),
        ] {
            let words: Vec<_> = words.split_whitespace().map(Into::into).collect();
            assert_eq!(wants_json(&words), wants, "{words:?}");
        }
    }
}
