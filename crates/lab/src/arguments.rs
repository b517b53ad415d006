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
    /// Measure the cost of guard, jobs, command line, gateway and slow calls, beside the floor
    Bench(BenchArguments),
    /// End the processes around jobs of slow calls, round by round, and check what became of the jobs
    Rounds(RoundsArguments),
    /// Run jobs on a cluster of machines in namespaces, break it, judge the jobs, and measure the store
    Scale(ScaleArguments),
    /// Run a faulty server, client or job, or score a wrapper on the corpus of hangs
    #[command(disable_help_flag = true)]
    Zoo(ZooArguments),
}

/// Which `unhang` is measured.
#[derive(Debug, Args)]
pub(crate) struct ProductArguments {
    /// The unhang to measure [default: with `cargo run`, the one that cargo builds, for a bench with the profile `dist`; else the one beside this program]
    #[arg(long, env = "UNHANG_LAB_PRODUCT", hide_env_values = true, value_name = "PATH")]
    pub(crate) unhang: Option<PathBuf>,
}

/// `unhang-lab bench`.
#[derive(Debug, Args)]
#[command(after_help = "The bench measures jobs and slow calls in new folders below --home, because their\n\
    cost depends on the disk. It removes the folders at the end.\n\n\
    Exit codes: 0 done; 1 a figure missed its bar (with --check); 2 wrong usage; 3 the\n\
    bench could not measure a way, a peer, the jobs or slow calls; 130 and 143 ended by\n\
    SIGINT and SIGTERM.")]
pub(crate) struct BenchArguments {
    #[command(flatten)]
    pub(crate) product: ProductArguments,
    /// The folder for the data of the run [default: ~/.local/state/unhang]
    #[arg(long, env = "UNHANG_HOME", hide_env_values = true, value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,
    /// Measure only one part: `unhang wrap`, the jobs, the command line, `unhang serve --http`, slow calls, or functions
    #[arg(long, value_name = "PART", value_enum)]
    pub(crate) only: Option<BenchPart>,
    /// Also measure this wrapper: a command before a server's command; split at white space, quotes keep words together
    #[arg(long, value_name = "CMD", value_parser = peer_command)]
    pub(crate) peer: Vec<PeerCommand>,
    /// Also measure this job server: a JSON file that says how to submit and poll its jobs (docs/performance.md)
    #[arg(long, value_name = "FILE", value_parser = job_peer)]
    pub(crate) job_peer: Vec<JobPeer>,
    /// The nginx to compare with `unhang serve --http` [default: the one in PATH, or /usr/sbin/nginx]
    #[arg(long, value_name = "PATH")]
    pub(crate) nginx: Option<PathBuf>,
    /// Also measure functions as jobs of a server in Python: a Python with `mcp` and the package `unhang`
    #[arg(long, value_name = "PATH")]
    pub(crate) python: Option<PathBuf>,
    /// Also measure functions as jobs of a server in TypeScript: a `node_modules` with `@modelcontextprotocol/server`, `@unhang/jobs` and zod
    #[arg(long, value_name = "DIR")]
    pub(crate) node_modules: Option<PathBuf>,
    /// Fail if a figure misses its bar
    #[arg(long)]
    pub(crate) check: bool,
    /// Number of ended jobs in the folder that the bench compares with an empty one [default: 5000; with --check 100000]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) ended: Option<u32>,
    /// Make only a few hundred calls: this shows that the bench works, not how fast unhang is
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print text or JSON
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    pub(crate) output: String,
}

/// `unhang-lab rounds`.
#[derive(Debug, Args)]
#[command(
    after_help = "Each round ends guard, gateway, call holder, lifeline or client in one of seven ways, at a\n\
    random moment between the ids of the jobs and the answers. The folders of rounds with a\n\
    fault are kept. docs/reference/rounds.md says what each round demands.\n\n\
    Exit codes: 0 every round was as it has to be; 1 some were not; 2 wrong usage; 3 there is\n\
    no folder for the rounds; 130 and 143 ended by SIGINT and SIGTERM."
)]
pub(crate) struct RoundsArguments {
    #[command(flatten)]
    pub(crate) product: ProductArguments,
    /// Number of rounds
    #[arg(long, value_name = "COUNT", default_value = "200", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) count: u64,
    /// The seed, which decides everything but the timing [default: a new one, which is printed]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,
    /// The number of the first round; with `--count 1` one round is repeated
    #[arg(long, value_name = "NUMBER", default_value = "0")]
    pub(crate) first: u64,
    /// Number of rounds at the same time
    #[arg(long, value_name = "COUNT", default_value = "4", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) at_once: u16,
}

/// `unhang-lab scale`.
#[derive(Debug, Args)]
#[command(
    after_help = "This needs root for its namespaces, PostgreSQL 15, libfaketime, util-linux and iproute2.\n\
    docs/reference/scale.md says what it demands.\n\n\
    Exit codes: 0 done; 1 a job has a flaw, or a bar was missed (with --check); 2 wrong\n\
    usage; 3 the cluster could not be made or used; 130 and 143 ended by SIGINT and SIGTERM."
)]
pub(crate) struct ScaleArguments {
    #[command(flatten)]
    pub(crate) product: ProductArguments,
    /// A form of less than two minutes: fewer rounds, fewer rows
    #[arg(long)]
    pub(crate) short: bool,
    /// The seed of the kill matrix, which decides everything but the timing [default: a new one, which is printed]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,
    /// The number of the first round of the kill matrix
    #[arg(long, value_name = "NUMBER", default_value = "0")]
    pub(crate) first: u64,
    /// Number of rounds of the kill matrix with short leases [default: 200; with --short as many as there is time for]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) rounds: Option<u64>,
    /// Do only these parts
    #[arg(long, value_name = "PART,...", value_enum, value_delimiter = ',')]
    pub(crate) only: Vec<ScalePart>,
    /// Fail if a bar is missed
    #[arg(long)]
    pub(crate) check: bool,
    /// The folder with the programs of PostgreSQL
    #[arg(long, value_name = "DIR", default_value = "/usr/lib/postgresql/15/bin")]
    pub(crate) postgres: PathBuf,
    /// The library of faketime for programs with threads
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"
    )]
    pub(crate) faketime: PathBuf,
    /// The folder below which the data of the run lie, on the disk that is measured [default: the folder for temporary files]
    #[arg(long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Print text or JSON
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    pub(crate) output: String,
}

/// What `unhang-lab scale` can be confined to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ScalePart {
    // The kill matrix.
    Matrix,
    // The database is away.
    Outage,
    // Submissions.
    Submit,
    // Claims.
    Claims,
    // Logs.
    Logs,
    // Many finished jobs.
    Finished,
    // The rate of many workers.
    Rate,
    // What heartbeats, logs and rows cost. Without texts of their own the help names all on one line.
    Costs,
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
    // Calls that become jobs.
    Slow,
    // Functions of servers in other languages. Without texts of their own the help names all on one line.
    Functions,
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
    /// The faulty program and its arguments, `run` and its arguments, `--list`, or `--page` for the list as a page
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<String>,
}

/// `unhang-lab zoo run`. It has a parser of its own, because the words after `zoo` belong to the faulty servers.
#[derive(Debug, Parser)]
#[command(
    name = "unhang-lab zoo run",
    about = "Score a wrapper on servers that misbehave; without a wrapper: score no wrapper, a naive pump and unhang wrap",
    override_usage = "unhang-lab zoo run [OPTIONS] [-- WRAPPER...]",
    max_term_width = 100,
    after_help = "Exit codes: 0 the run ended; 1 the wrapper broke a case, or a case was not as expected\n\
    (with --check); 2 wrong usage; 3 the wrapper reaches no server at all; 130 and 143\n\
    interrupted."
)]
pub(crate) struct ZooRun {
    #[command(flatten)]
    pub(crate) product: ProductArguments,
    /// Run only these cases
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Run only the cases of these promises
    #[arg(long, value_name = "NUMBER,...", value_delimiter = ',', value_parser = known_promise)]
    pub(crate) promise: Vec<u8>,
    /// Time that the client waits for each answer
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "5s")]
    pub(crate) patience: Duration,
    /// List the cases, and run none
    #[arg(long)]
    pub(crate) list: bool,
    /// Fail unless unhang kept every case, and the other two had their known results
    #[arg(long, conflicts_with = "wrapper")]
    pub(crate) check: bool,
    /// Print text or JSON
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    pub(crate) output: String,
    /// The wrapper after `--`: a command before a server's command
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
