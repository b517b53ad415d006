//! The work of a job that any of many machines may do, in words that all of them understand.
//!
//! Invariants
//!
//! - No value of an environment is among these words. Each worker has its own values.
//! - A worker needs a label of unhang's own for each kind of work, besides the labels that people give. It has the label only if its owner
//!   lets it do such work. For a function, one of several labels will do, as several patterns allow it. So the right to write into the store is not enough to run a command on a worker.

use std::ffi::OsString;

use serde::{Deserialize, Serialize, de::Error as _};
use serde_json::{Map, Value};

use crate::{launch::TextOrBytes, shared_function::FunctionName};

/// The mark in unhang's own labels, which no label of a person has.
const OWN: char = ':';

/// The work of a shared job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SharedWork {
    /// A command, the program first. Only workers that allow any command run it.
    Command(Vec<OsString>),
    /// A tool of the worker's own configuration.
    Tool {
        /// The name of the tool.
        name: String,
        /// The arguments of the call.
        arguments: Map<String, Value>,
    },
    /// A function of the Python package, in a module that the worker's configuration allows.
    PythonFunction {
        /// The name of the function.
        name: FunctionName,
        /// The arguments of the call.
        arguments: Map<String, Value>,
    },
}

/// The form in the store.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum SharedWorkForm {
    Command { command: Vec<TextOrBytes> },
    Tool { name: String, arguments: Map<String, Value> },
    PythonFunction { name: String, arguments: Map<String, Value> },
}

/// The label that a worker needs for any command.
pub const COMMAND_LABEL: &str = "unhang:command";

/// Returns the label that a worker needs for this tool.
#[must_use]
pub fn tool_label(tool: &str) -> String {
    format!("unhang{OWN}tool{OWN}{tool}")
}

/// Returns whether a person may give this label: it has letters, digits and `_`, `-`, `.`, `/`, at most 64 of them.
#[must_use]
pub fn is_label(text: &str) -> bool {
    let is_plain = |letter: char| letter.is_alphanumeric() || "_-./".contains(letter);
    (1..=64).contains(&text.chars().count()) && text.chars().all(is_plain)
}

impl SharedWork {
    /// Returns the label that a worker needs for this kind of work; `None` if any of [`Self::any_label`] will do.
    #[must_use]
    pub fn own_label(&self) -> Option<String> {
        match self {
            Self::Command(_) => Some(COMMAND_LABEL.to_owned()),
            Self::Tool { name, .. } => Some(tool_label(name)),
            Self::PythonFunction { .. } => None,
        }
    }

    /// Returns the labels of which a worker needs one for this work; none if [`Self::own_label`] is all that it needs.
    #[must_use]
    pub fn any_label(&self) -> Vec<String> {
        match self {
            Self::Command(_) | Self::Tool { .. } => Vec::new(),
            Self::PythonFunction { name, .. } => name.labels(),
        }
    }

    /// Returns the text for the store.
    #[must_use]
    pub fn to_text(&self) -> String {
        let form = match self {
            Self::Command(command) => SharedWorkForm::Command {
                command: command.iter().map(|word| word.as_os_str().into()).collect(),
            },
            Self::Tool { name, arguments } => {
                SharedWorkForm::Tool { name: name.clone(), arguments: arguments.clone() }
            }
            Self::PythonFunction { name, arguments } => {
                SharedWorkForm::PythonFunction { name: name.to_string(), arguments: arguments.clone() }
            }
        };
        // No key of the form is anything but text.
        serde_json::to_string(&form).unwrap_or_default()
    }

    /// Reads the text of a store.
    ///
    /// # Errors
    /// Fails if the text is of a kind that this unhang does not know, or names a function in a form that no function has.
    pub fn of_text(text: &str) -> Result<Self, serde_json::Error> {
        Ok(match serde_json::from_str(text)? {
            SharedWorkForm::Command { command } => {
                Self::Command(command.into_iter().map(OsString::from).collect())
            }
            SharedWorkForm::Tool { name, arguments } => Self::Tool { name, arguments },
            SharedWorkForm::PythonFunction { name, arguments } => {
                let wrong = |error| serde_json::Error::custom(format!("`{name}` {error}"));
                Self::PythonFunction { name: name.parse().map_err(wrong)?, arguments }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use serde_json::json;

    use super::*;

    #[test]
    fn work_comes_out_of_the_store_as_it_went_in() {
        let arguments = json!({"cod": 1.5, "name": "größe"}).as_object().unwrap().clone();
        let bytes = OsString::from_vec(vec![b'a', 0xff]);
        let function = "models.design:size".parse().unwrap();
        for (work, label) in [
            (SharedWork::Command(vec!["echo".into(), bytes]), Some("unhang:command")),
            (
                SharedWork::Tool { name: "simulate".to_owned(), arguments: arguments.clone() },
                Some("unhang:tool:simulate"),
            ),
            (SharedWork::PythonFunction { name: function, arguments }, None),
        ] {
            assert_eq!(SharedWork::of_text(&work.to_text()).unwrap(), work);
            assert_eq!(work.own_label().as_deref(), label);
            assert_eq!(work.any_label().is_empty(), label.is_some(), "a worker needs a label for all work");
        }
        assert!(SharedWork::of_text(r#"{"kind":"later"}"#).is_err());
        let forged = r#"{"kind":"python_function","name":"models.x:y; import os","arguments":{}}"#;
        let told = SharedWork::of_text(forged).unwrap_err().to_string();
        assert!(told.starts_with("`models.x:y; import os` is not a function"), "{told}");
    }

    #[test]
    fn a_label_of_a_person_is_none_of_unhangs() {
        assert!(["gpu", "a100/80GiB", "größe", "v1.2_x-y"].into_iter().all(is_label));
        let long = "x".repeat(65);
        assert!(!["", "unhang:command", "a b", "a,b", long.as_str()].into_iter().any(is_label));
    }
}
