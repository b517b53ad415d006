//! The list of `unhang zoo --list`, and the parts of which the zoo makes its own.
//!
//! # Invariants
//!
//! - Nothing is written by hand but the few words about a kind of programs.
//! - No line of the list is wider than [`WIDTH`].

use std::io::{self, Write};

use crate::entry::FaultyProgram;
use crate::faulty_servers;

/// The usual terminal.
pub const WIDTH: usize = 80;
/// In front of what is said about a faulty program.
const INDENT: &str = "    ";

/// The heading of the servers and what they have in common.
pub const WORDS_ABOUT_SERVERS: (&str, &str) = (
    "Servers",
    "Each speaks MCP on stdin and stdout and has one vice, which shows at `tools/call` unless it says otherwise. \
     `well-behaved` and `tee` have none.",
);

/// Returns the name and the arguments of a program, as a usage line shows them.
#[must_use]
pub fn synopsis(entry: &FaultyProgram) -> String {
    format!("{} {}", entry.name, entry.usage).trim_end().to_owned()
}

/// Writes the list of the servers.
///
/// # Errors
/// Fails if `out` does.
pub fn list(out: &mut impl Write) -> io::Result<()> {
    list_kind(out, WORDS_ABOUT_SERVERS, faulty_servers::ALL)
}

/// Writes a part of a list: for each faulty program its name and arguments, and below it what it does and stands for.
///
/// # Errors
/// Fails if `out` does.
pub fn list_kind<'a>(
    out: &mut impl Write,
    (heading, words): (&str, &str),
    entries: impl IntoIterator<Item = &'a FaultyProgram>,
) -> io::Result<()> {
    writeln!(out, "{}", heading.to_uppercase())?;
    wrap(out, words, "")?;
    for entry in entries {
        writeln!(out, "\n{}", synopsis(entry))?;
        wrap(out, &format!("{} {}", entry.does, entry.incident), INDENT)?;
    }
    Ok(())
}

/// Writes text in lines of at most [`WIDTH`], broken between words.
fn wrap(out: &mut impl Write, text: &str, indent: &str) -> io::Result<()> {
    let mut line = indent.to_owned();
    for word in text.split_whitespace() {
        let is_first = line.len() == indent.len();
        if !is_first && line.chars().count() + 1 + word.chars().count() > WIDTH {
            writeln!(out, "{line}")?;
            line = format!("{indent}{word}");
        } else {
            line.push_str(if is_first { "" } else { " " });
            line.push_str(word);
        }
    }
    writeln!(out, "{line}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_says_everything_within_the_width() {
        let mut out = Vec::new();
        list(&mut out).expect("a vector takes everything");
        let text = String::from_utf8(out).expect("it is text");
        let long: Vec<_> = text.lines().filter(|line| line.chars().count() > WIDTH).collect();
        assert!(long.is_empty(), "{long:#?}");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for entry in faulty_servers::ALL {
            assert!(text.contains(&format!("\n\n{}\n", synopsis(entry))), "{}", entry.name);
            assert!(words.contains(&format!("{} {}", entry.does, entry.incident)), "{}", entry.name);
        }
    }
}
