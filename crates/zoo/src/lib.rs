//! Misbehaving MCP servers, clients and background jobs, each standing for a real incident, to test the rest of the product against.
//!
//! A faulty program is a small program behind `unhang-lab zoo NAME [ARGS...]`. Nearly all of them are a plain server with one vice, so
//! a test that fails points at one thing; the combinations have several. `well-behaved` is the complete, correct server to
//! compare with. The remotes are servers over HTTP. The clients start a command, misbehave towards it, and say what came of it; the jobs talk to nobody.
//!
//! [`load`] is the load generator of `unhang-lab bench`, [`corpus`] drives any wrapper through cases of broken promises, and [`rounds`]
//! ends the processes around jobs of slow calls. `scale` makes a cluster of machines on this one. They live here because they share no code with what they measure either.
//!
//! # Invariants
//!
//! - The zoo uses no crate of ours but the servers of the demonstration, which use none: a bug shared between the test server and the
//!   code under test would cancel out.
//! - Unless its vice says otherwise, a server ends by itself when its stdin ends, and a client when its command has. No
//!   faulty program and no process that one starts outlives [`BOUND`], so a failed test leaves nothing for long.
//! - Every process that a faulty program leaves behind runs `zoo lingers --marker TEXT`, with the text that the test gave, so that
//!   a test can find survivors in `/proc`.
//! - Unless its entry in the table says otherwise, a vice shows at `tools/call`; handshake, lists and pings stay honest, so
//!   that a client gets as far as the vice.

mod child_processes;
mod clients;
mod combinations;
pub mod corpus;
mod faulty_servers;
mod job_work;
mod jobs;
mod listing;
pub mod load;
mod plain_client;
pub mod private_moto;
pub mod private_pgbouncer;
pub mod private_postgres;
mod remotes;
pub mod rounds;
#[cfg(target_os = "linux")]
pub mod scale;
mod signals;
mod tasks;
pub mod test_programs;
mod web;

use std::process::ExitCode;

use unhang_demo_servers::command_line;
use unhang_demo_servers::entry::ProgramMain;

pub use unhang_demo_servers::bounded_waits::BOUND;
pub use unhang_demo_servers::entry::{FaultyProgram, ProgramKind};

/// Returns all faulty programs, those of the demonstration included: kind by kind, each sorted by name.
pub fn faulty_servers() -> impl Iterator<Item = &'static FaultyProgram> {
    let mut servers: Vec<_> =
        [unhang_demo_servers::faulty_servers::ALL, faulty_servers::ALL].into_iter().flatten().collect();
    servers.sort_unstable_by_key(|server| server.name);
    servers
        .into_iter()
        .chain([combinations::ALL, remotes::ALL, clients::ALL, jobs::ALL].into_iter().flatten())
}

const HELP: &str = "Run one of the bundled servers, clients and jobs that misbehave

Usage: unhang-zoo NAME [ARGUMENTS...]

  NAME      run a program that misbehaves in its own way, on stdin and stdout
  --list    list the programs
  --page    print the list as a page of Markdown
  --help    print this help

Exit codes: 0 done; 2 wrong usage; a program has its own exit codes.
";

/// What the children run that no server of the demonstration has; reachable by name like a faulty program, but not in the list.
const HELPERS: &[(&str, ProgramMain)] = &[
    ("hops", child_processes::hop),
    ("ends-parent", child_processes::end_parent),
    ("prints", child_processes::print_on),
    ("chatters", child_processes::chatter),
    ("echoes", load::echo),
    ("echoes-http", load::echo_over_http),
    ("naive-pump", corpus::naive_pump),
    ("relays", rounds::relay),
];

/// Runs the named faulty program until it ends; `None` when there is no such faulty program.
///
/// The faulty program takes over stdin, stdout and stderr of this process, as [`command_line::run_program`] says.
#[must_use]
pub fn run(name: &str, args: &[String]) -> Option<ExitCode> {
    let run = faulty_servers()
        .map(|faulty_server| (faulty_server.name, faulty_server.run))
        .chain(unhang_demo_servers::HELPERS.iter().chain(HELPERS).copied())
        .find_map(|(candidate, run)| (candidate == name).then_some(run))?;
    Some(command_line::run_program(name, run, args))
}

/// Runs what follows the word `zoo` on a command line: `--help`, `--list`, `--page`, or a name and its arguments.
#[must_use]
pub fn command(args: &[String]) -> ExitCode {
    match args {
        [flag] if flag == "--page" => command_line::show(|out| listing::page(out)),
        _ => command_line::dispatch(args, HELP, |out| listing::list(out), run),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_sorted_and_named_once() {
        for kind in ProgramKind::ALL {
            let names: Vec<_> =
                faulty_servers().filter(|entry| entry.kind == kind).map(|entry| entry.name).collect();
            assert!(names.is_sorted() && !names.is_empty(), "{kind:?}: {names:?}");
        }
        let mut names: Vec<_> = faulty_servers().map(|entry| entry.name).collect();
        names.sort_unstable();
        assert!(names.is_sorted_by(|one, next| one < next), "{names:?}");
        // What the zoo was asked to have at least.
        assert!(names.len() >= 60, "{}", names.len());
    }

    #[test]
    fn what_is_said_about_each_are_sentences() {
        for FaultyProgram { name, does, incident, .. } in faulty_servers() {
            for sentence in [does, incident] {
                assert!(sentence.starts_with(|first: char| first.is_uppercase()), "{name}: {sentence}");
                assert!(sentence.ends_with('.') && sentence.len() > 20, "{name}: {sentence}");
                assert!(!sentence.contains('\n'), "{name}: {sentence}");
            }
        }
    }

    #[test]
    fn promises_are_those_that_there_are() {
        for FaultyProgram { name, promises, incident, .. } in faulty_servers() {
            assert!(
                promises.is_sorted() && promises.iter().all(|promise| (1..=8).contains(promise)),
                "{name}"
            );
            // Only what is there for comparison concerns none.
            assert_eq!(promises.is_empty(), incident.starts_with("Stands for no incident"), "{name}");
        }
    }

    #[test]
    fn each_program_has_its_own_file() {
        for (table, folder) in [
            (faulty_servers::ALL, "faulty_servers"),
            (combinations::ALL, "combinations"),
            (remotes::ALL, "remotes"),
            (clients::ALL, "clients"),
            (jobs::ALL, "jobs"),
        ] {
            let folder = format!("{}/src/{folder}", env!("CARGO_MANIFEST_DIR"));
            let mut files: Vec<_> = std::fs::read_dir(folder)
                .expect("the folder of the programs is readable")
                .filter_map(|entry| entry.expect("an entry is readable").file_name().into_string().ok())
                .filter_map(|file| file.strip_suffix(".rs").map(|stem| stem.replace('_', "-")))
                .collect();
            files.sort_unstable();
            let names: Vec<_> = table.iter().map(|entry| entry.name).collect();
            assert_eq!(files, names);
        }
    }

    #[test]
    fn an_unknown_name_is_no_program() {
        assert!(run("unicorn", &[]).is_none());
    }
}
