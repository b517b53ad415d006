//! The end of a command's help, split into its parts.
//!
//! Invariants: no word is lost. The parts are told apart by their beginnings, as a reader does.

use clap::Command;

/// The end of a help.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Notes {
    /// The notes, each a paragraph.
    pub(super) paragraphs: Vec<String>,
    /// The commands to try, each on a line.
    pub(super) examples: Vec<String>,
    /// The meanings of the exit codes, each with its code in front.
    pub(super) exit_codes: Vec<String>,
}

impl Notes {
    /// Reads the notes of a command.
    pub(super) fn of(command: &Command) -> Notes {
        let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let mut notes = Notes::default();
        for part in text.split("\n\n") {
            let line = part.split_whitespace().collect::<Vec<_>>().join(" ");
            if let Some(codes) = line.strip_prefix("Exit codes: ") {
                notes.exit_codes = codes.trim_end_matches('.').split("; ").map(str::to_owned).collect();
            } else if line.starts_with("Example") {
                notes.examples = part.lines().skip(1).map(|line| line.trim().to_owned()).collect();
            } else if !line.is_empty() {
                notes.paragraphs.push(line);
            }
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_help_ends_with_notes_examples_and_exit_codes() {
        let text = "It is\nso.\n\nExamples:\n  one --two\n  three\n\nExit codes: 0 done; 130 and\n143 ended.";
        let notes = Notes::of(&Command::new("one").after_help(text));
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert_eq!(notes.paragraphs, owned(&["It is so."]));
        assert_eq!(notes.examples, owned(&["one --two", "three"]));
        assert_eq!(notes.exit_codes, owned(&["0 done", "130 and 143 ended"]));
        assert_eq!(Notes::of(&Command::new("none")), Notes::default());
    }
}
