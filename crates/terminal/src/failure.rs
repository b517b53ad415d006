//! How a command fails: one value that a person reads as text and a program as JSON.
//!
//! Invariant: the text and the JSON say the same, and neither is cut.

use std::{io, process::ExitCode};

use clap::ValueEnum;
use serde_json::{Value, json};
use unhang::{client::Error, exit};

use crate::{output, text::escaped};

/// How the outcome is printed.
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

/// What went wrong, as it is told.
#[derive(Debug)]
pub struct CommandFailure {
    /// The exit code.
    pub code: u8,
    /// The kind, for programs.
    pub kind: &'static str,
    /// One sentence for a person.
    pub message: String,
    /// What to do, where the sentence does not say it.
    pub hint: Option<String>,
    /// What else is known, for programs.
    pub data: Option<Value>,
}

/// Lines of a server's stderr, and of its stdout, that are told with an error.
const TAIL: usize = 10;

impl CommandFailure {
    /// What the system refused.
    pub fn system(what: &str, error: &io::Error) -> CommandFailure {
        CommandFailure {
            code: exit::FAILED,
            kind: "system",
            message: format!("{what}: {error}"),
            hint: None,
            data: None,
        }
    }

    /// What is wrong with the command line or the configuration.
    pub fn usage(message: String, hint: Option<&str>) -> CommandFailure {
        CommandFailure {
            code: exit::USAGE,
            kind: "usage",
            message,
            hint: hint.map(str::to_owned),
            data: None,
        }
    }

    /// The end of what a server wrote besides its answers, where that may explain it. What was of no use may be no message, an answer
    /// under another id, or one that was too long; and a server behind a URL has no stdout.
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

    /// It as a program is told of it.
    pub fn members(&self) -> Value {
        let hint = || self.hint.as_ref().map_or_else(|| json!({}), |hint| json!({ "hint": hint }));
        let data = self.data.clone().unwrap_or_else(hint);
        json!({ "kind": self.kind, "message": self.message, "data": data })
    }

    /// Prints it as was asked for, and gives its exit code.
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
