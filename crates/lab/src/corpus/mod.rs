//! `unhang-lab zoo`: the bundled programs that misbehave, and the corpus that drives wrappers through them. `docs/reference/zoo.md` and
//! `docs/reference/score.md` document them.

mod report;
mod run;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};
use unhang_terminal::{output, usage::usage_error};

use crate::arguments::{ZooArguments, ZooRun};

const HELP: &str = "Run one of the bundled servers and clients that misbehave

Usage: unhang-lab zoo NAME [ARGUMENTS...]
       unhang-lab zoo run [OPTIONS] [-- WRAPPER...]

  NAME      run a program that misbehaves in its own way, on stdin and stdout
  run       score a wrapper on all programs; see `unhang-lab zoo run --help`
  --list    list the programs (also without arguments)
  --page    print the list as a page of Markdown
  --help    print this help

Exit codes: 0 done; 2 wrong usage; a program has its own exit codes.
";

/// Runs the faulty server, runs the corpus, or lists the faulty servers.
pub(crate) fn run(zoo: &ZooArguments) -> ExitCode {
    match zoo.words.first().map(String::as_str) {
        Some("--help" | "-h" | "help") if zoo.words.len() == 1 => output::data(HELP),
        None => unhang_zoo::command(&["--list".to_owned()]),
        Some("run") => match ZooRun::try_parse_from(&zoo.words) {
            Ok(arguments) => run::run(&arguments),
            Err(error) => usage_error(&error, &ZooRun::command(), |_, _, _| None),
        },
        Some(_) => unhang_zoo::command(&zoo.words),
    }
}
