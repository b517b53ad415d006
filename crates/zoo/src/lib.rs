//! Misbehaving MCP servers, each standing for a real incident, to test the rest of the product against.
//!
//! An animal is a small program behind `unhang zoo NAME [ARGS...]`. Nearly all of them are a plain server with one vice, so
//! a test that fails points at one thing. `well-behaved` is the complete, correct server to compare with.
//!
//! [`load`] is the load generator of `unhang bench`; it lives here because it shares no code with what it measures either.
//!
//! # Invariants
//!
//! - The zoo uses no crate of ours: a bug shared between the test server and the code under test would cancel out.
//! - Unless its vice says otherwise, an animal ends by itself when its stdin ends. No animal and no process that one
//!   starts outlives [`BOUND`], so a failed test leaves nothing for long.
//! - Every process that an animal leaves behind runs `zoo lingers --marker TEXT`, with the text that the test gave, so that
//!   a test can find survivors in `/proc`.
//! - Unless its entry in the table says otherwise, a vice shows at `tools/call`; handshake, lists and pings stay honest, so
//!   that a client gets as far as the vice.

mod animals;
mod arguments;
mod keeper;
pub mod load;
mod offspring;
mod pipe;
mod plain;
mod signals;

use std::io::{self, Write};
use std::process::ExitCode;

use arguments::Arguments;

pub use keeper::BOUND;

/// The exit code for a wrong or missing argument, or an unknown name.
const USAGE: u8 = 2;

/// One misbehaving program.
pub struct Animal {
    /// What it is called on the command line.
    pub name: &'static str,
    /// One sentence: which real incident it stands for.
    pub incident: &'static str,
    /// Its arguments, in the notation of a usage line; may be empty.
    pub usage: &'static str,
    run: fn(&Arguments) -> io::Result<ExitCode>,
}

/// Returns all animals, sorted by name.
#[must_use]
pub fn animals() -> &'static [Animal] {
    animals::ALL
}

/// Runs the named animal until it ends; `None` when there is no such animal.
///
/// The animal takes over stdin, stdout and stderr of this process. Wrong arguments end it with code 2 and a line on
/// stderr; a reader that has gone ends it quietly with code 0.
#[must_use]
pub fn run(name: &str, args: &[String]) -> Option<ExitCode> {
    let run = animals()
        .iter()
        .map(|animal| (animal.name, animal.run))
        .chain(offspring::HELPERS.iter().copied())
        .find_map(|(candidate, run)| (candidate == name).then_some(run))?;
    Some(run(&Arguments::new(args)).unwrap_or_else(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        io::ErrorKind::InvalidInput => complain(&format!("{name}: {error}"), USAGE),
        _ => complain(&format!("{name}: {error}"), 1),
    }))
}

/// Writes the table that `unhang zoo --list` shows: name, arguments and incident, one animal a line.
///
/// # Errors
///
/// Those of `out`.
pub fn list(out: &mut impl Write) -> io::Result<()> {
    let synopsis = |animal: &Animal| format!("{} {}", animal.name, animal.usage).trim_end().to_owned();
    let width = animals().iter().map(|animal| synopsis(animal).len()).max().unwrap_or_default();
    for animal in animals() {
        writeln!(out, "{:width$}  {}", synopsis(animal), animal.incident)?;
    }
    Ok(())
}

/// Runs what follows the word `zoo` on a command line: `--list`, or a name and its arguments.
#[must_use]
pub fn command(args: &[String]) -> ExitCode {
    match args {
        [flag] if flag == "--list" => match list(&mut io::stdout().lock()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Err(error) => complain(&format!("writing the list: {error}"), 1),
        },
        [name, rest @ ..] => run(name, rest)
            .unwrap_or_else(|| complain(&format!("no animal is called `{name}`; see `zoo --list`"), USAGE)),
        [] => complain("name an animal; see `zoo --list`", USAGE),
    }
}

fn complain(text: &str, code: u8) -> ExitCode {
    // Nobody is left to tell when stderr is gone too.
    let _ = writeln!(io::stderr(), "{text}");
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn animals_are_sorted_and_named_once() {
        let names: Vec<_> = animals().iter().map(|animal| animal.name).collect();
        let mut sorted = names.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(names, sorted);
    }

    #[test]
    fn every_incident_is_one_sentence() {
        for Animal { name, incident, .. } in animals() {
            assert!(incident.starts_with(|first: char| first.is_uppercase()), "{name}: {incident}");
            assert!(incident.ends_with('.') && incident.len() > 40, "{name}: {incident}");
            assert!(!incident.contains('\n'), "{name}: {incident}");
        }
    }

    #[test]
    fn each_animal_has_its_own_file() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/animals");
        let mut files: Vec<_> = std::fs::read_dir(folder)
            .expect("the folder of the animals is readable")
            .filter_map(|entry| entry.expect("an entry is readable").file_name().into_string().ok())
            .filter_map(|file| file.strip_suffix(".rs").map(|stem| stem.replace('_', "-")))
            .collect();
        files.sort_unstable();
        let names: Vec<_> = animals().iter().map(|animal| animal.name).collect();
        assert_eq!(files, names);
    }

    #[test]
    fn the_list_has_one_line_for_each_animal() {
        let mut out = Vec::new();
        list(&mut out).expect("a vector takes everything");
        let text = String::from_utf8(out).expect("the list is text");
        assert_eq!(text.lines().count(), animals().len());
        for (line, animal) in text.lines().zip(animals()) {
            assert!(line.starts_with(animal.name) && line.ends_with(animal.incident), "{line}");
        }
    }

    #[test]
    fn an_unknown_name_is_no_animal() {
        assert!(run("unicorn", &[]).is_none());
    }
}
