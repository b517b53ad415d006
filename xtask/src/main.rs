//! The project's chores, as `cargo xtask VERB`: what continuous integration runs is what anybody can run.
//!
//! # Invariants
//!
//! - Everything that is installed, built or written lies below `target/`.
//! - A missing tool is a failure with a sentence on what to install, never a skipped check.
//! - Every process is started by [`run`], with a deadline. [`custody`] sees to it that none is left when a verb ends, however
//!   it ends; that something would have been left is a failure.

mod ci;
mod clock;
mod custody;
mod debian_tool;
mod dist;
mod failure;
mod files;
mod fuzz;
mod gateway_address;
mod leftovers;
mod mutants;
mod options;
mod other_systems;
mod picture;
mod project;
mod real;
mod report;
mod rooms;
mod run;
mod scale;
mod sdk;
mod soak;
mod standard_library;
mod tools;
mod units;

use std::process::ExitCode;

use failure::ChoreFailure;
use options::Options;
use project::Project;

const USAGE: &str = "\
Usage: cargo xtask VERB

  ci   [--only STEP[,STEP]] [--list]     run every check, the cheap ones first
  dist [--binary PATH] [--with TARGET=PATH]...
                                         build the program as packages ship it, or take the one at PATH, and make
                                         every package below target/packages/; --with adds a program that was built
                                         for another system
  real [--only PART[,PART]] [--list] [--binary PATH]
                                         run real clients and servers on both sides of the guard; PART is a part of
                                         a case's name, such as git or python/everything
  soak [--only PART[,PART]] [--list] [--quick] [--seed N] [--session K]
       [--binary PATH]                   make 100,000 calls, 1,000 restarts and 1,000
                                         sessions on random programs, and 200 kills of
                                         servers and shims of jobs; PART is calls,
                                         restarts, sessions or kills
  scale [--only PART[,PART]] [--short] [--seed N] [--binary PATH]
                                         break a cluster of machines that share jobs and check what became of the
                                         jobs, and measure the shared store; PART is matrix, outage, submit, claims,
                                         logs, finished, rate or costs; needs root and takes an hour at most, with
                                         --short two minutes
  fuzz [--only TARGET[,TARGET]] [--list] [--minutes N | --seconds N | --merge]
                                         run each fuzz target for 5 minutes, or for N; --merge adds the findings
                                         to the corpus
  mutants [--only PART[,PART]] [--list] [--seed N] [--shard K/N] [--in-diff FILE]
       [--write]                         change the code in one place after the other and demand that a
                                         test fails; PART is wire, bridge or sample; --in-diff takes the
                                         places in a diff alone; --write writes docs/reference/mutants.md
                                         from the results that there are
  rooms [--only CRATE[,CRATE]] [--list]  count import cycles, lines of crates and files, names of types that
                                         are not unique; --list names each of them
  picture                                run the demo and draw docs/demo.svg
";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    let is_inner = arguments.next_if(|argument| argument == custody::INNER).is_some();
    let outcome =
        if is_inner { work(arguments).map(|()| ExitCode::SUCCESS) } else { custody::keep(arguments) };
    outcome.unwrap_or_else(|failure| {
        report::failure(&failure);
        if failure.is_usage() {
            report::text(USAGE);
            return ExitCode::from(2);
        }
        ExitCode::FAILURE
    })
}

/// Does what the command line says.
fn work(mut arguments: impl Iterator<Item = String>) -> Result<(), ChoreFailure> {
    let verb = arguments.next();
    let options = Options::parse(arguments)?;
    let work = match verb.as_deref() {
        Some("ci") => ci::ci,
        Some("dist") => dist::dist,
        Some("real") => real::real,
        Some("soak") => soak::soak,
        Some("scale") => scale::scale,
        Some("mutants") => mutants::mutants,
        Some("fuzz") => fuzz::fuzz,
        Some("rooms") => rooms::rooms,
        Some("picture") => picture::picture,
        Some("help" | "--help" | "-h") => {
            report::text(USAGE);
            return Ok(());
        }
        Some(unknown) => return Err(ChoreFailure::usage(format!("no verb {unknown}"))),
        None => return Err(ChoreFailure::usage("a verb is needed")),
    };
    work(&Project::find()?, &options)?;
    custody::demand_nothing_left()
}
