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
mod failure;
mod faults;
mod fuzz;
mod leftovers;
mod project;
mod real;
mod report;
mod rooms;
mod run;
mod soak;
mod tools;
mod units;

use std::process::ExitCode;

use failure::Failure;
use project::Project;

const USAGE: &str = "\
Usage: cargo xtask VERB

  ci   [--only STEP[,STEP]] [--list]     every check, cheap ones first
  faults [--only GUARD[,GUARD]] [--list] [--write]
                                         switches each guard off and demands that its test fails; --write writes
                                         docs/reference/guards.md instead
  real [--only PART[,PART]] [--list] [--binary PATH]
                                         real clients and servers on both sides of the guard; PART is a piece of a
                                         case's name, such as git or python/everything
  soak [--only PART[,PART]] [--list] [--quick] [--seed N] [--session K]
       [--binary PATH]                   100,000 calls, 1,000 restarts and 1,000
                                         sessions on random animals, and 200 kills of
                                         servers and shims of jobs; PART is calls,
                                         restarts, sessions or kills
  fuzz [--only TARGET[,TARGET]] [--list] [--minutes N | --seconds N | --merge]
                                         each fuzz target for 5 minutes, or for N; --merge takes what was
                                         found into the corpus
  rooms [--only CRATE[,CRATE]] [--list]  import cycles, lines of crates and files, names of types that
                                         are not unique; --list names each of them
";

/// What a verb may be told, whichever verb it is.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Names of the only things to do; all when empty.
    pub(crate) only: Vec<String>,
    /// Names what there is instead of doing it.
    pub(crate) list: bool,
    /// Writes the page that is generated from the list instead.
    pub(crate) write: bool,
    /// The `unhang` to check instead of the release build.
    pub(crate) binary: Option<String>,
    /// A small part of everything, for every change.
    pub(crate) quick: bool,
    /// Where random choices begin.
    pub(crate) seed: Option<u64>,
    /// The one session to repeat.
    pub(crate) session: Option<u64>,
    /// How long to fuzz each target instead of the usual time.
    pub(crate) seconds: Option<u64>,
    /// Renews the fuzzers' corpus instead of fuzzing.
    pub(crate) merge: bool,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut options = Self::default();
        while let Some(argument) = arguments.next() {
            let mut value =
                || arguments.next().ok_or_else(|| Failure::usage(format!("{argument} needs a value")));
            match argument.as_str() {
                "--list" => options.list = true,
                "--write" => options.write = true,
                "--only" => options.only.extend(value()?.split(',').map(str::to_owned)),
                "--binary" => options.binary = Some(value()?),
                "--quick" => options.quick = true,
                "--seed" => options.seed = Some(number(&argument, &value()?)?),
                "--session" => options.session = Some(number(&argument, &value()?)?),
                "--seconds" => options.seconds = Some(number(&argument, &value()?)?),
                "--minutes" => options.seconds = Some(number(&argument, &value()?)?.saturating_mul(60)),
                "--merge" => options.merge = true,
                _ => return Err(Failure::usage(format!("unknown argument {argument}"))),
            }
        }
        Ok(options)
    }
}

fn number(flag: &str, text: &str) -> Result<u64, Failure> {
    text.parse().map_err(|_| Failure::usage(format!("{flag} needs a number, not {text}")))
}

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
fn work(mut arguments: impl Iterator<Item = String>) -> Result<(), Failure> {
    let verb = arguments.next();
    let options = Options::parse(arguments)?;
    let work = match verb.as_deref() {
        Some("ci") => ci::ci,
        Some("faults") => faults::faults,
        Some("real") => real::real,
        Some("soak") => soak::soak,
        Some("fuzz") => fuzz::fuzz,
        Some("rooms") => rooms::rooms,
        Some("help" | "--help" | "-h") => {
            report::text(USAGE);
            return Ok(());
        }
        Some(unknown) => return Err(Failure::usage(format!("no verb {unknown}"))),
        None => return Err(Failure::usage("a verb is needed")),
    };
    work(&Project::find()?, &options)?;
    custody::demand_nothing_left()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options, Failure> {
        Options::parse(words.iter().map(|word| (*word).to_owned()))
    }

    #[test]
    fn several_names_may_follow_only() {
        let options = parse(&["--only", "fmt,deny", "--only", "docs", "--list"]).expect("these are known");
        assert_eq!(options.only, ["fmt", "deny", "docs"]);
        assert!(options.list);
    }

    #[test]
    fn minutes_are_seconds() {
        assert_eq!(parse(&["--minutes", "2"]).expect("this is a number").seconds, Some(120));
        assert!(parse(&["--seconds", "5m"]).expect_err("that is no number").is_usage());
    }

    #[test]
    fn an_unknown_argument_or_a_missing_value_is_a_usage_failure() {
        assert!(parse(&["--onyl", "fmt"]).expect_err("there is no such flag").is_usage());
        assert!(parse(&["--only"]).expect_err("the value is missing").is_usage());
        assert!(parse(&["--seed", "x"]).expect_err("that is no number").is_usage());
    }
}
