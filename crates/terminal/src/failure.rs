//! The failure of a command: one value that a person reads as text and a program as JSON.
//!
//! Invariant: the text and the JSON say the same, and neither is cut.

use std::{io, process::ExitCode};

use clap::ValueEnum;
use serde_json::{Value, json};
use unhang::{client::Error, exit};

use crate::{output, text::escaped};

/// The format in which a command prints its outcome.
#[expect(
    missing_docs,
    reason = "clap would print a text of a value as its help, and not list both on one line"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    // For a person.
    Text,
    // For a program.
    Json,
}

/// A failed command's error, as a person and a program read it.
#[derive(Debug)]
pub struct CommandFailure {
    /// The exit code.
    pub code: u8,
    /// The kind, for programs.
    pub kind: &'static str,
    /// One sentence for a person.
    pub message: String,
    /// The hint about what to do, if the sentence does not say it.
    pub hint: Option<String>,
    /// Further data about the error, for programs.
    pub data: Option<Value>,
}

/// The number of lines of a server's stderr, and of its stdout, that are printed with an error.
const TAIL: usize = 10;

impl CommandFailure {
    /// Makes the failure of a command to which the system refused something.
    pub fn system(what: &str, error: &io::Error) -> CommandFailure {
        CommandFailure {
            code: exit::FAILED,
            kind: "system",
            message: format!("{what}: {error}"),
            hint: None,
            data: None,
        }
    }

    /// Makes the failure of a command whose command line or configuration is wrong.
    pub fn usage(message: String, hint: Option<&str>) -> CommandFailure {
        CommandFailure {
            code: exit::USAGE,
            kind: "usage",
            message,
            hint: hint.map(str::to_owned),
            data: None,
        }
    }

    /// Returns the end of the server's stderr and unusable output, if there is any, because it may explain the error. An unusable line may
    /// not be a message, may answer under another id, or was too long. A server behind a URL has no stdout.
    fn tail(&self) -> String {
        let stderr = self.last_lines("stderrTail", "its stderr ended with");
        stderr + &self.last_lines("junk", "it sent lines that unhang could not use, the last of them")
    }

    fn last_lines(&self, member: &str, heading: &str) -> String {
        let lines = self.data.as_ref().and_then(|data| data[member].as_array());
        let lines = lines.map(Vec::as_slice).unwrap_or_default();
        let last = &lines[lines.len().saturating_sub(TAIL)..];
        let text: String =
            last.iter().filter_map(Value::as_str).map(|line| format!("  | {}\n", escaped(line))).collect();
        if text.is_empty() { text } else { format!("{heading}:\n{text}") }
    }

    /// Returns the failure as JSON, in the form that a program reads.
    pub fn members(&self) -> Value {
        let hint = || self.hint.as_ref().map_or_else(|| json!({}), |hint| json!({ "hint": hint }));
        let data = self.data.clone().unwrap_or_else(hint);
        json!({ "kind": self.kind, "message": self.message, "data": data })
    }

    /// Prints the failure in the requested format, and returns its exit code.
    pub fn print(&self, format: Option<Format>) -> ExitCode {
        if format == Some(Format::Json) {
            let error = json!({ "error": self.members() }).to_string();
            output::say_json(&error);
        } else {
            output::error(&self.message, self.hint.as_deref());
            output::say(&self.tail());
        }
        ExitCode::from(self.code)
    }
}

impl From<Error> for CommandFailure {
    fn from(error: Error) -> CommandFailure {
        CommandFailure {
            code: error.exit_code(),
            kind: error.kind(),
            message: error.to_string(),
            hint: None,
            data: Some(error.data()),
        }
    }
}
