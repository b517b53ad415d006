//! The MCP servers that `unhang demo` shows: a correct one and those with one vice, each standing for a real incident.
//!
//! A server is a small program behind `unhang zoo NAME [ARGS...]`. Nearly all of them are a plain server with one vice.
//! `well-behaved` is the complete, correct server to compare with.
//!
//! The product binary contains these programs and no other test material. The crate `unhang-zoo` adds many more to them, and uses the
//! modules of this crate for its own.
//!
//! # Invariants
//!
//! - This crate uses no crate of ours: a bug shared between the test server and the code under test would cancel out.
//! - Unless its vice says otherwise, a server ends by itself when its stdin ends. No server and no process that one starts outlives
//!   [`BOUND`], so a failed test leaves nothing for long.
//! - Every process that a server leaves behind runs `zoo lingers --marker TEXT`, with the text that the test gave, so that
//!   a test can find survivors in `/proc`.
//! - Unless its entry in the table says otherwise, a vice shows at `tools/call`; handshake, lists and pings stay honest, so
//!   that a client gets as far as the vice.

pub mod arguments;
pub mod bounded_waits;
pub mod child_processes;
pub mod command_line;
pub mod entry;
pub mod faulty_servers;
pub mod listing;
mod pinned_process;
pub mod pipe;
pub mod plain_server;
pub mod processes;
pub mod signals;

use std::process::ExitCode;

use entry::ProgramMain;

pub use bounded_waits::BOUND;

const HELP: &str = "Run one of the servers that `unhang demo` shows

Usage: unhang zoo NAME [ARGUMENTS...]

  NAME      run a server that misbehaves in its own way, on stdin and stdout
  --list    list the servers
  --help    print this help

Exit codes: 0 done; 2 wrong usage; a server has its own exit codes.
";

/// The programs of child processes, and the host of a server. Each runs by its name like a server, but the list leaves it out.
pub const HELPERS: &[(&str, ProgramMain)] = &[
    ("lingers", child_processes::linger),
    ("detaches", child_processes::detach),
    ("reads-one-line", child_processes::read_one_line),
    ("hosts", child_processes::host),
];

/// Runs the named server or helper until it ends; `None` when there is none of this name.
///
/// The program takes over stdin, stdout and stderr of this process, as [`command_line::run_program`] says.
#[must_use]
pub fn run(name: &str, args: &[String]) -> Option<ExitCode> {
    let servers = faulty_servers::ALL.iter().map(|server| (server.name, server.run));
    let run = servers
        .chain(HELPERS.iter().copied())
        .find_map(|(candidate, run)| (candidate == name).then_some(run))?;
    Some(command_line::run_program(name, run, args))
}

/// Runs what follows the words `unhang zoo` on a command line: `--help`, `--list`, or a name and its arguments.
#[must_use]
pub fn command(args: &[String]) -> ExitCode {
    command_line::dispatch(args, HELP, |out| listing::list(out), run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_sorted_and_have_one_file_each() {
        let names: Vec<_> = faulty_servers::ALL.iter().map(|server| server.name).collect();
        assert!(names.is_sorted_by(|one, next| one < next), "{names:?}");
        let mut files: Vec<_> = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/faulty_servers"))
            .expect("the folder of the servers is readable")
            .filter_map(|entry| entry.expect("an entry is readable").file_name().into_string().ok())
            .filter_map(|file| file.strip_suffix(".rs").map(|stem| stem.replace('_', "-")))
            .collect();
        files.sort_unstable();
        assert_eq!(files, names);
    }

    #[test]
    fn an_unknown_name_is_no_server() {
        assert!(run("unicorn", &[]).is_none());
    }
}
