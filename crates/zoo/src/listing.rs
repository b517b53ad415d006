//! The zoo for readers: the list of `unhang-lab zoo --list` and the page in `docs/reference/`.
//!
//! # Invariants
//!
//! - Both say the same about each faulty program; nothing is written by hand but the few words about the kinds.
//! - No line of the list is wider than the `WIDTH` of the demonstration's list.

use std::io::{self, Write};

use unhang_demo_servers::entry::{FaultyProgram, ProgramKind};
use unhang_demo_servers::listing::{WORDS_ABOUT_SERVERS, list_kind, synopsis};

/// Returns the heading of a kind and what its faulty programs have in common.
fn words_about(kind: ProgramKind) -> (&'static str, &'static str) {
    match kind {
        ProgramKind::Server => WORDS_ABOUT_SERVERS,
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
            "Each is a command that talks to nobody and misbehaves as a background job: `unhang job run -- unhang-lab zoo NAME`. \
             What it leaves, it leaves in `UNHANG_JOB_DIR`, or where it is started if there is none.",
        ),
    }
}

/// Writes the list: for each faulty program its name and arguments, and below it what it does and stands for.
pub(crate) fn list(out: &mut impl Write) -> io::Result<()> {
    for kind in ProgramKind::ALL {
        list_kind(out, words_about(kind), entries(kind))?;
        if kind != ProgramKind::ALL[ProgramKind::ALL.len() - 1] {
            writeln!(out)?;
        }
    }
    Ok(())
}

fn entries(kind: ProgramKind) -> impl Iterator<Item = &'static FaultyProgram> {
    crate::faulty_servers().filter(move |entry| entry.kind == kind)
}

/// The page up to its tables.
const INTRODUCTION: &str = "\
<!-- Written by `cargo run -p unhang-lab -- zoo --page`; change the programs, not this file. -->

# The zoo

Bundled programs that misbehave, each standing for a real incident. The end-to-end tests put them behind and in front of
`unhang wrap` and run them as jobs; you can do the same, and try any other guard, client or job server on them.

The binary `unhang-lab` contains the programs. It is not shipped, so build it first. `unhang zoo --list` shows the servers that
`unhang demo` uses; `unhang` contains only these.

<!-- not run: builds a release binary -->
```sh
cargo build --release -p unhang-lab
target/release/unhang-lab zoo --list
```

```text
unhang-lab zoo SERVER [ARGUMENTS...]
unhang wrap -- unhang-lab zoo SERVER [ARGUMENTS...]
unhang-lab zoo REMOTE [ARGUMENTS...]
unhang-lab zoo CLIENT -- unhang wrap -- unhang-lab zoo SERVER [ARGUMENTS...]
unhang job run --wait -- unhang-lab zoo JOB [ARGUMENTS...]
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
    use unhang_demo_servers::listing::WIDTH;

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
            "docs/reference/zoo.md is out of date; write it anew: cargo run -p unhang-lab -- zoo --page > docs/reference/zoo.md"
        );
    }
}
