//! The command line of the lab.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};
use unhang::units::parse_duration;
use unhang_zoo::{corpus::PROMISES, load::JobPeer};

use crate::command_words;

/// Measures unhang, and runs faulty servers and the corpus of hangs; not shipped.
#[derive(Debug, Parser)]
#[command(name = "unhang-lab", version, max_term_width = 100, propagate_version = true)]
pub(crate) struct LabArguments {
    #[command(subcommand)]
    pub(crate) command: LabCommand,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Measure what guard, jobs, command line, gateway and slow calls cost, beside the floor
    Bench(BenchArguments),
    /// Run a faulty server, client or job, or score a wrapper on the corpus of hangs
    #[command(disable_help_flag = true)]
    Zoo(ZooArguments),
}

/// Which `unhang` is measured.
#[derive(Debug, Args)]
pub(crate) struct ProductArguments {
    /// The unhang that is measured [default: under `cargo run` the one that cargo builds, with the profile `dist` for a bench, else the one beside this program]
    #[arg(long, env = "UNHANG_LAB_PRODUCT", hide_env_values = true, value_name = "PATH")]
    pub(crate) unhang: Option<PathBuf>,
}

/// `unhang-lab bench`.
#[derive(Debug, Args)]
#[command(after_help = "Jobs and slow calls are measured in new folders below --home, because the disk\n\
    decides what they cost. The bench removes them at the end.\n\n\
    Exit codes: 0 done; 1 a bar was missed (with --check); 2 wrong usage; 3 a way,\n\
    a peer, the jobs or slow calls could not be measured; 130 and 143 ended by\n\
    SIGINT and SIGTERM.")]
pub(crate) struct BenchArguments {
    #[command(flatten)]
    pub(crate) product: ProductArguments,
    /// Where the data of the run lies [default: ~/.local/state/unhang]
    #[arg(long, env = "UNHANG_HOME", hide_env_values = true, value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,
    /// Measure one part alone: `unhang wrap`, the jobs, the command line, `unhang serve --http`, or slow calls
    #[arg(long, value_name = "PART", value_enum)]
    pub(crate) only: Option<BenchPart>,
    /// Measure this too: a command that takes a server's command after it; split at white space, quotes keep words together
    #[arg(long, value_name = "CMD", value_parser = peer_command)]
    pub(crate) peer: Vec<PeerCommand>,
    /// Measure this job server too: a JSON file that says how its jobs are submitted and polled (docs/performance.md)
    #[arg(long, value_name = "FILE", value_parser = job_peer)]
    pub(crate) job_peer: Vec<JobPeer>,
    /// The nginx with which `unhang serve --http` is compared [default: one of PATH, or /usr/sbin/nginx]
    #[arg(long, value_name = "PATH")]
    pub(crate) nginx: Option<PathBuf>,
    /// Fail where a bar is missed
    #[arg(long)]
    pub(crate) check: bool,
    /// Ended jobs in the folder that is compared with an empty one [default: 5000; with --check 100000]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) ended: Option<u32>,
    /// A few hundred calls only: shows that it works, not how fast
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print text or JSON
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    pub(crate) output: String,
}

/// What `unhang-lab bench` can be confined to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum BenchPart {
    // The guard.
    Wrap,
    // The jobs.
    Jobs,
    // The command line.
    Commands,
    // The gateway.
    Gateway,
    // Calls that become jobs. Without texts of their own the help names all on one line.
    Slow,
}

/// The words of a `--peer`.
#[derive(Clone, Debug)]
pub(crate) struct PeerCommand(pub(crate) Vec<String>);

fn peer_command(text: &str) -> Result<PeerCommand, &'static str> {
    command_words::split(text).map(PeerCommand)
}

fn job_peer(path: &str) -> Result<JobPeer, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    JobPeer::parse(&text)
}

/// `unhang-lab zoo`.
#[derive(Debug, Args)]
pub(crate) struct ZooArguments {
    /// The faulty program and its arguments, `run` and its own, `--list`, or `--page` for the list as a page
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<String>,
}

/// `unhang-lab zoo run`. It has a parser of its own, because the words after `zoo` belong to the faulty servers.
#[derive(Debug, Parser)]
#[command(
    name = "unhang-lab zoo run",
    about = "Score a wrapper on servers that misbehave; without one: no wrapper, a naive pump and unhang wrap",
    override_usage = "unhang-lab zoo run [OPTIONS] [-- WRAPPER...]",
    max_term_width = 100,
    after_help = "Exit codes: 0 it ran; 1 the wrapper broke a case, or one was not as it ought to be (with\n\
    --check); 2 wrong usage; 3 the wrapper reaches no server at all; 130 and 143 interrupted."
)]
pub(crate) struct ZooRun {
    #[command(flatten)]
    pub(crate) product: ProductArguments,
    /// Run these cases alone
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Run the cases of these promises alone
    #[arg(long, value_name = "NUMBER,...", value_delimiter = ',', value_parser = known_promise)]
    pub(crate) promise: Vec<u8>,
    /// How long the client waits for anything
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "5s")]
    pub(crate) patience: Duration,
    /// List the cases, run none
    #[arg(long)]
    pub(crate) list: bool,
    /// Fail unless unhang kept every case and the other two did what they are known to do
    #[arg(long, conflicts_with = "wrapper")]
    pub(crate) check: bool,
    /// Print text or JSON
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    pub(crate) output: String,
    /// A command that takes a server's command after it, after `--`
    #[arg(last = true, value_name = "WRAPPER")]
    pub(crate) wrapper: Vec<String>,
}

fn known_promise(text: &str) -> Result<u8, String> {
    let known = text.parse().ok().filter(|number| PROMISES.iter().any(|(known, _)| known == number));
    let numbers = || PROMISES.map(|(number, _)| number.to_string()).join(", ");
    known.ok_or_else(|| format!("there are cases for {}", numbers()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_declaration_is_sound() {
        LabArguments::command().debug_assert();
        ZooRun::command().debug_assert();
    }

    #[test]
    fn a_wrapper_keeps_its_own_double_dash() {
        let words = ["unhang-lab", "zoo", "run", "--promise", "1,8", "--", "wrapper", "--flag", "--"];
        let LabCommand::Zoo(zoo) = LabArguments::try_parse_from(words).unwrap().command else {
            panic!("not the zoo")
        };
        let run = ZooRun::try_parse_from(&zoo.words).unwrap();
        assert_eq!(
            (run.promise, run.wrapper),
            (vec![1, 8], ["wrapper", "--flag", "--"].map(str::to_owned).to_vec())
        );
        assert_eq!(run.patience, unhang_zoo::corpus::PATIENCE);
        assert!(ZooRun::try_parse_from(["run", "--promise", "7"]).is_err());
    }
}
