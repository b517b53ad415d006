//! The zoo for readers: the list of `unhang zoo --list` and the page in `docs/reference/`.
//!
//! # Invariants
//!
//! - Both say the same about each faulty program; nothing is written by hand but the few words about the kinds.
//! - No line of the list is wider than [`WIDTH`].

use std::io::{self, Write};

use crate::entry::{FaultyProgram, ProgramKind};

/// The usual terminal.
const WIDTH: usize = 80;
/// In front of what is said about a faulty program.
const INDENT: &str = "    ";

/// Returns the heading of a kind and what its faulty programs have in common.
fn words_about(kind: ProgramKind) -> (&'static str, &'static str) {
    match kind {
        ProgramKind::Server => (
            "Servers",
            "Each speaks MCP on stdin and stdout and has one vice, which shows at `tools/call` unless it says otherwise. \
             `well-behaved` and `tee` have none.",
        ),
        ProgramKind::Combination => (
            "Servers with several vices at once",
            "What one guard can stand is not what it can stand while it deals with another.",
        ),
        ProgramKind::Remote => (
            "Servers over HTTP",
            "Each listens on loopback, says its URL on the first line of stdout, and ends when its stdin ends. Those called \
             `http-` say on each further line what reached them, as JSON; `http-well-behaved` has no vice.",
        ),
        ProgramKind::Client => (
            "Clients",
            "Each starts the command after `--`, misbehaves towards it, and ends with a line of JSON that says what it \
             saw. Exit code 0: every request got the one answer that it was owed, every line was a message, and the \
             command ended by itself. Exit code 1: not so.",
        ),
        ProgramKind::Job => (
            "Jobs",
            "Each is a command that talks to nobody and misbehaves as a background job: `unhang job run -- unhang zoo NAME`. \
             What it leaves, it leaves in `UNHANG_JOB_DIR`, or where it is started if there is none.",
        ),
    }
}

fn synopsis(entry: &FaultyProgram) -> String {
    format!("{} {}", entry.name, entry.usage).trim_end().to_owned()
}

/// Writes the list: for each faulty program its name and arguments, and below it what it does and stands for.
pub(crate) fn list(out: &mut impl Write) -> io::Result<()> {
    for kind in ProgramKind::ALL {
        let (heading, words) = words_about(kind);
        writeln!(out, "{}", heading.to_uppercase())?;
        wrap(out, words, "")?;
        for entry in entries(kind) {
            writeln!(out, "\n{}", synopsis(entry))?;
            wrap(out, &format!("{} {}", entry.does, entry.incident), INDENT)?;
        }
        if kind != ProgramKind::ALL[ProgramKind::ALL.len() - 1] {
            writeln!(out)?;
        }
    }
    Ok(())
}

fn entries(kind: ProgramKind) -> impl Iterator<Item = &'static FaultyProgram> {
    crate::faulty_servers().filter(move |entry| entry.kind == kind)
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

/// The page up to its tables.
const INTRODUCTION: &str = "\
<!-- Written by `cargo run -- zoo --page`; change the programs, not this file. -->

# The zoo

Bundled programs that misbehave, each standing for a real incident. The end-to-end tests put them behind and in front of
`unhang wrap` and run them as jobs; you can do the same, and try any other guard, client or job server on them:

```sh
unhang zoo --list
```

```text
unhang zoo SERVER [ARGUMENTS...]
unhang wrap -- unhang zoo SERVER [ARGUMENTS...]
unhang zoo REMOTE [ARGUMENTS...]
unhang zoo CLIENT -- unhang wrap -- unhang zoo SERVER [ARGUMENTS...]
unhang job run --wait -- unhang zoo JOB [ARGUMENTS...]
```

The last column has the numbers of the promises that a program puts to the test: 1 answered, 2 clean wire, 3 drained,
4 isolated, 5 nothing left behind, 6 restarted, 7 durable, 8 fair. `owner/repository#number` is a thread in which users
tell of the incident; names that end in `.md` are the surveys that the project began with. No program outlives two minutes.
";

/// Writes the page.
pub(crate) fn page(out: &mut impl Write) -> io::Result<()> {
    write!(out, "{INTRODUCTION}")?;
    for kind in ProgramKind::ALL {
        let (heading, words) = words_about(kind);
        writeln!(out, "\n## {heading}\n\n{words}\n")?;
        writeln!(
            out,
            "| program | what it does | which incident it stands for | promises |\n|---|---|---|---|"
        )?;
        for entry in entries(kind) {
            let promises: Vec<_> = entry.promises.iter().map(u8::to_string).collect();
            let cells = [&format!("`{}`", synopsis(entry)), entry.does, entry.incident, &promises.join(", ")];
            writeln!(out, "| {} |", cells.map(|cell| cell.replace('|', "\\|")).join(" | "))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl Fn(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).expect("a vector takes everything");
        String::from_utf8(out).expect("it is text")
    }

    #[test]
    fn the_list_says_everything_within_the_width() {
        let text = written(list);
        let long: Vec<_> = text.lines().filter(|line| line.chars().count() > WIDTH).collect();
        assert!(long.is_empty(), "{long:#?}");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for entry in crate::faulty_servers() {
            assert!(text.contains(&format!("\n\n{}\n", synopsis(entry))), "{}", entry.name);
            assert!(words.contains(&format!("{} {}", entry.does, entry.incident)), "{}", entry.name);
        }
    }

    #[test]
    fn the_page_in_the_documentation_is_the_generated_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/zoo.md");
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            kept == written(page),
            "docs/reference/zoo.md is out of date; write it anew: cargo run -- zoo --page > docs/reference/zoo.md"
        );
    }
}
