//! The table of the zoo: what each faulty program says about itself in its own file, and what follows from where that file is.
//!
//! # Invariants
//!
//! - What a faulty program does is said once, in the first line of its file; the table, the list and the page show that line.
//! - A faulty program's kind is the folder in which its file lies.

use std::io;
use std::process::ExitCode;

use crate::arguments::ProgramArguments;

/// Which side of a guard a faulty program stands on, if it stands on any, and how many vices it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramKind {
    /// A server with one vice.
    Server,
    /// A server with several vices at once.
    Combination,
    /// A client: it starts the command after `--` and reports what came of it.
    Client,
    /// A server over HTTP: it says where it is, and what reached it.
    Remote,
    /// A command that is run as a background job, and talks to nobody.
    Job,
}

impl ProgramKind {
    /// Every kind, in the order of the list.
    pub const ALL: [Self; 5] = [Self::Server, Self::Combination, Self::Remote, Self::Client, Self::Job];

    /// Whether it speaks MCP on its stdin and stdout.
    #[must_use]
    pub fn is_server(self) -> bool {
        matches!(self, Self::Server | Self::Combination)
    }
}

/// The description in a faulty program's own file.
pub struct ProgramDescription {
    /// Its name on the command line.
    pub name: &'static str,
    /// One sentence: which real incident it stands for.
    pub incident: &'static str,
    /// Its arguments, in the notation of a usage line; may be empty.
    pub usage: &'static str,
    /// Numbers of the promises that it puts to the test.
    pub promises: &'static [u8],
    /// One sentence about its behaviour.
    pub run: ProgramMain,
}

/// The main function of a faulty program.
pub type ProgramMain = fn(&ProgramArguments) -> io::Result<ExitCode>;

/// One misbehaving program.
pub struct FaultyProgram {
    /// Which side it stands on.
    pub kind: ProgramKind,
    /// Its name on the command line.
    pub name: &'static str,
    /// Its arguments, in the notation of a usage line; may be empty.
    pub usage: &'static str,
    /// One sentence: what it does.
    pub does: &'static str,
    /// One sentence: which real incident it stands for.
    pub incident: &'static str,
    /// Numbers of the promises that it puts to the test; empty for those that put none.
    pub promises: &'static [u8],
    /// Runs it.
    pub run: ProgramMain,
}

impl FaultyProgram {
    /// Builds the entry of a program; `does` is the first line of its file.
    ///
    /// # Panics
    /// Panics if the line is no text; the tables are built when the program is compiled.
    #[must_use]
    pub const fn new(kind: ProgramKind, does: &'static [u8], faulty_server: &ProgramDescription) -> Self {
        let Ok(does) = str::from_utf8(does) else { panic!("a source file is text") };
        let ProgramDescription { name, incident, usage, promises, run } = *faulty_server;
        Self { kind, name, usage, does, incident, promises, run }
    }
}

/// Builds the entries of one kind from the modules in one folder.
#[macro_export]
macro_rules! table {
    ($kind:ident in $folder:literal: $($module:ident),* $(,)?) => {
        &[$({
            const SOURCE: &[u8] = include_bytes!(concat!($folder, "/", stringify!($module), ".rs"));
            const DOES: [u8; $crate::entry::length_of_purpose(SOURCE)] = $crate::entry::purpose(SOURCE);
            $crate::entry::FaultyProgram::new($crate::entry::ProgramKind::$kind, &DOES, &$module::PROGRAM)
        }),*]
    };
}

pub use table;

/// The mark in front of the purpose of a module.
const MARK: &[u8] = b"//! ";

/// Returns how long the first line of a module's text is.
pub const fn length_of_purpose(source: &[u8]) -> usize {
    let mut end = 0;
    while source[end] != b'\n' {
        end += 1;
    }
    end - MARK.len()
}

/// Returns the first line of a module's text, copied, so that the rest of the source does not get into the program.
pub const fn purpose<const LENGTH: usize>(source: &[u8]) -> [u8; LENGTH] {
    let mut line = [0; LENGTH];
    let mut at = 0;
    while at < LENGTH {
        line[at] = source[MARK.len() + at];
        at += 1;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_purpose_is_the_first_line() {
        const SOURCE: &[u8] = "//! Stands \u{fc}ber it.\n//!\n//! More.\n".as_bytes();
        let line: [u8; length_of_purpose(SOURCE)] = purpose(SOURCE);
        assert_eq!(str::from_utf8(&line), Ok("Stands \u{fc}ber it."));
    }
}
