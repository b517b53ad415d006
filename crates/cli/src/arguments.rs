//! What was typed. Every limit is a flag, an environment variable and a default, declared once.

pub(crate) mod client;
pub(crate) mod doctor;

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};
use unhang::{
    config::{self, Limits, parse_duration, parse_size},
    tools::ModeOverrides,
};
use unhang_zoo::{corpus::PROMISES, load::JobPeer};

use self::{
    client::{Batch, Call, Listing, Prompt, Read, Servers},
    doctor::Doctor,
};
use crate::{
    job_arguments::{Job, JobLimits, State},
    words,
};

/// Puts itself between MCP clients and servers so that nothing can hang.
#[derive(Debug, Parser)]
#[command(name = "unhang", version, max_term_width = 100, propagate_version = true)]
pub(crate) struct Arguments {
    /// Say on stderr what is being done and waited for
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Guard one stdio server: put `unhang wrap --` in front of any command in an mcp.json
    Wrap(Wrap),
    /// Run commands as durable background jobs: submit, follow, wait, cancel
    Job(Job),
    /// Read and set the named documents that jobs work on
    State(State),
    /// Offer the commands of unhang.toml, background jobs and named state to an MCP client
    Serve(Serve),
    /// List the configured servers, and where each was found
    Servers(Servers),
    /// List the tools of a server, or of all
    Tools(Listing),
    /// List the resources of a server, or of all
    Resources(Listing),
    /// List the prompts of a server, or of all
    Prompts(Listing),
    /// Ask a server, or all, for a sign of life
    Ping(Listing),
    /// Call a tool of a server
    Call(Call),
    /// Read a resource of a server
    Read(Read),
    /// Get a prompt of a server
    Prompt(Prompt),
    /// Make many requests: one JSON object a line in, one a line out
    Batch(Batch),
    /// Find out what could hang: start, use, annoy and end a server, or all
    Doctor(Doctor),
    /// Show the promises live, on bundled servers that misbehave
    Demo(Demo),
    /// Measure what the guard and the jobs cost, beside what nobody can do without
    Bench(Bench),
    /// Run one of the bundled servers and clients that misbehave
    #[command(hide = true, disable_help_flag = true)]
    Zoo(Zoo),
}

/// `unhang wrap`.
#[derive(Debug, Args)]
#[command(
    override_usage = "unhang wrap [OPTIONS] -- <CMD>...",
    after_help = "Times need a unit (500ms, 30s, 5m), sizes too (64KiB, 16MiB). Each flag is also an\n\
    environment variable: --call-timeout is UNHANG_CALL_TIMEOUT.\n\n\
    Exit codes: 0 done; 2 wrong usage; 3 the server could not be started;\n\
    4 the server never answered; 130 and 143 ended by SIGINT and SIGTERM."
)]
pub(crate) struct Wrap {
    /// What to call the server in errors and logs [default: from the command]
    #[arg(long, env = "UNHANG_NAME", hide_env = true, value_name = "NAME")]
    pub(crate) name: Option<String>,
    // Without the `--` it is taken too, from the first word that is no flag: some clients swallow the first `--` that they
    // are given.
    /// The server's command and its arguments, after `--`
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) limits: LimitArguments,
}

/// `unhang serve`.
#[derive(Debug, Args)]
#[command(
    after_help = "Times need a unit (500ms, 30s, 5m), sizes too (64KiB, 16MiB). Each limit is also an\n\
    environment variable: --call-timeout is UNHANG_CALL_TIMEOUT. UNHANG_TOOL_MODE overrides\n\
    the mode of tools: simulate=child,*=job.\n\n\
    Exit codes: 0 the client has ended; 2 wrong usage or configuration; 130 and 143 ended by\n\
    SIGINT and SIGTERM."
)]
pub(crate) struct Serve {
    /// The configuration file [default: unhang.toml here, else in ~/.config/unhang]
    #[arg(long, env = "UNHANG_CONFIG", hide_env = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Speak over stdin and stdout, as MCP clients that start a command do [default]
    #[arg(long)]
    pub(crate) stdio: bool,
    /// Print the JSON schema of the configuration file, for editors, and end
    #[arg(long)]
    pub(crate) print_config_schema: bool,
    /// Which modes tools have, above the file; read from the environment alone
    #[arg(long, env = "UNHANG_TOOL_MODE", hide = true, value_name = "TOOL=MODE,...", default_value = "", value_parser = ModeOverrides::parse)]
    pub(crate) tool_mode: ModeOverrides,
    #[command(flatten)]
    pub(crate) job_limits: JobLimits,
    #[command(flatten)]
    pub(crate) limits: SessionLimitArguments,
}

/// `unhang demo`.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Print the outcome as JSON
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    pub(crate) output: String,
}

/// `unhang bench`.
#[derive(Debug, Args)]
#[command(
    after_help = "Jobs are measured in a folder of their own where jobs would lie: under UNHANG_HOME, else in\n\
    ~/.local/state/unhang. It is removed at the end.\n\n\
    Exit codes: 0 done; 1 a bar was missed (with --check); 2 wrong usage; 3 a way, a peer or the\n\
    jobs could not be measured; 130 and 143 interrupted."
)]
pub(crate) struct Bench {
    /// Measure one part alone: `unhang wrap`, or the jobs
    #[arg(long, value_name = "PART", value_enum)]
    pub(crate) only: Option<BenchPart>,
    /// Measure this too: a command that takes a server's command after it; split at white space, quotes keep words together
    #[arg(long, value_name = "CMD", value_parser = peer_command)]
    pub(crate) peer: Vec<PeerCommand>,
    /// Measure this job server too: a JSON file that says how its jobs are submitted and polled (docs/performance.md)
    #[arg(long, value_name = "FILE", value_parser = job_peer)]
    pub(crate) job_peer: Vec<JobPeer>,
    /// Fail where a bar is missed
    #[arg(long)]
    pub(crate) check: bool,
    /// Ended jobs in the folder that is compared with an empty one [default: 5000; with --check 100000]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) ended: Option<u32>,
    /// A few hundred calls only: shows that it works, not how fast
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print the outcome as JSON
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    pub(crate) output: String,
}

/// What `unhang bench` can be confined to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum BenchPart {
    /// The guard
    Wrap,
    /// The jobs
    Jobs,
}

/// The words of a `--peer`.
#[derive(Clone, Debug)]
pub(crate) struct PeerCommand(pub(crate) Vec<String>);

fn peer_command(text: &str) -> Result<PeerCommand, &'static str> {
    words::split(text).map(PeerCommand)
}

fn job_peer(path: &str) -> Result<JobPeer, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    JobPeer::parse(&text)
}

/// `unhang zoo`.
#[derive(Debug, Args)]
pub(crate) struct Zoo {
    /// The animal and its arguments, `run` and its own, `--list`, or `--page` for the list as a page
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<String>,
}

/// `unhang zoo run`: parsed by itself, since what follows `zoo` belongs to the animals.
#[derive(Debug, Parser)]
#[command(
    name = "unhang zoo run",
    about = "Score a wrapper on servers that misbehave; without one: no wrapper, a naive pump and unhang wrap",
    override_usage = "unhang zoo run [OPTIONS] [-- WRAPPER...]",
    max_term_width = 100,
    after_help = "Exit codes: 0 it ran; 1 the wrapper broke a case, or one was not as it ought to be (with\n\
    --check); 2 wrong usage; 3 the wrapper reaches no server at all; 130 and 143 interrupted."
)]
pub(crate) struct ZooRun {
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
    /// Print the outcome as JSON
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

/// One argument a limit of a session with a client: flag, variable and default (design 3).
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct SessionLimitArguments {
    /// A `tools/call` in all; progress does not extend it [default: 5m, or less for a client that gives up sooner]
    #[arg(long, env = "UNHANG_CALL_TIMEOUT", hide_env = true, value_name = "TIME", value_parser = parse_duration)]
    call_timeout: Option<Duration>,
    /// For calls in flight after the client's stdin ended [default: 5s]
    #[arg(long, env = "UNHANG_EOF_GRACE", hide_env = true, value_name = "TIME", value_parser = parse_duration, default_value = "5s", hide_default_value = true)]
    eof_grace: Duration,
    /// One message in either direction [default: 64MiB]
    #[arg(long, env = "UNHANG_MAX_MESSAGE", hide_env = true, value_name = "SIZE", value_parser = parse_size, default_value = "64MiB", hide_default_value = true)]
    max_message: u64,
    /// Requests at the same time [default: 1000]
    #[arg(long, env = "UNHANG_MAX_IN_FLIGHT", hide_env = true, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..), default_value = "1000", hide_default_value = true)]
    max_in_flight: u32,
    /// Bytes that may wait for a client or a server that does not read [default: 16MiB]
    #[arg(long, env = "UNHANG_QUEUE_BYTES", hide_env = true, value_name = "SIZE", value_parser = parse_size, default_value = "16MiB", hide_default_value = true)]
    queue_bytes: u64,
}

/// The limits of a session, and one argument a limit of its server.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArguments {
    #[command(flatten)]
    session: SessionLimitArguments,
    /// From spawn to the first answer [default: 55s]
    #[arg(long, env = "UNHANG_START_TIMEOUT", hide_env = true, value_name = "TIME", value_parser = parse_duration, default_value = "55s", hide_default_value = true)]
    start_timeout: Duration,
    /// Any request but `tools/call` [default: 30s]
    #[arg(long, env = "UNHANG_REQUEST_TIMEOUT", hide_env = true, value_name = "TIME", value_parser = parse_duration, default_value = "30s", hide_default_value = true)]
    request_timeout: Duration,
    /// Between closing stdin, SIGTERM and SIGKILL [default: 1s]
    #[arg(long, env = "UNHANG_STOP_GRACE", hide_env = true, value_name = "TIME", value_parser = parse_duration, default_value = "1s", hide_default_value = true)]
    stop_grace: Duration,
    /// Pause before the first restart; it doubles up to 30s [default: 250ms]
    #[arg(long, env = "UNHANG_RESTART_DELAY", hide_env = true, value_name = "TIME", value_parser = parse_duration, default_value = "250ms", hide_default_value = true)]
    restart_delay: Duration,
    /// Failures in a row after which the server is left alone [default: 5]
    #[arg(long, env = "UNHANG_BREAKER_FAILURES", hide_env = true, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..), default_value = "5", hide_default_value = true)]
    breaker_failures: u32,
    /// For how long it is left alone [default: 30s]
    #[arg(long, env = "UNHANG_BREAKER_COOLDOWN", hide_env = true, value_name = "TIME", value_parser = parse_duration, default_value = "30s", hide_default_value = true)]
    breaker_cooldown: Duration,
    /// Idle time before the server is asked whether it lives [default: 30s]
    #[arg(long, env = "UNHANG_HEALTH_INTERVAL", hide_env = true, value_name = "TIME", value_parser = parse_duration, default_value = "30s", hide_default_value = true)]
    health_interval: Duration,
    /// Last bytes of stderr kept for error messages [default: 64KiB]
    #[arg(long, env = "UNHANG_STDERR_TAIL", hide_env = true, value_name = "SIZE", value_parser = parse_size, default_value = "64KiB", hide_default_value = true)]
    stderr_tail: u64,
    /// Log of the server on disk [default: 10MiB]
    #[arg(long, env = "UNHANG_STDERR_LOG", hide_env = true, value_name = "SIZE", value_parser = parse_size, default_value = "10MiB", hide_default_value = true)]
    stderr_log: u64,
    /// Keep every notification from the client while a call runs
    #[arg(long, env = "UNHANG_QUIET", hide_env = true, value_parser = clap::builder::BoolishValueParser::new())]
    quiet: bool,
}

impl SessionLimitArguments {
    /// The limits that these arguments mean, with the defaults of all others.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            call_timeout: self.call_timeout.unwrap_or(config::CALL_TIMEOUT),
            eof_grace: self.eof_grace,
            max_message: bytes(self.max_message),
            max_in_flight: usize::try_from(self.max_in_flight).unwrap_or(usize::MAX),
            queue_bytes: bytes(self.queue_bytes),
            ..Limits::default()
        }
    }
}

fn bytes(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

impl LimitArguments {
    /// The limits that these arguments mean.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            start_timeout: self.start_timeout,
            request_timeout: self.request_timeout,
            stop_grace: self.stop_grace,
            restart_delay: self.restart_delay,
            breaker_failures: self.breaker_failures,
            breaker_cooldown: self.breaker_cooldown,
            health_interval: self.health_interval,
            stderr_tail: bytes(self.stderr_tail),
            stderr_log: self.stderr_log,
            quiet: self.quiet,
            ..self.session.limits()
        }
    }
}

/// Parses the command line and the environment.
///
/// # Errors
/// Whatever clap finds wrong, with its suggestion; also the requests for help and version.
pub(crate) fn parse() -> Result<Arguments, clap::Error> {
    Arguments::try_parse()
}

/// Parses what follows `unhang zoo`, where it begins with `run`.
///
/// # Errors
/// As [`parse`].
pub(crate) fn parse_zoo_run(words: &[String]) -> Result<ZooRun, clap::Error> {
    ZooRun::try_parse_from(words)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_declaration_is_sound() {
        Arguments::command().debug_assert();
        ZooRun::command().debug_assert();
    }

    #[test]
    fn a_wrapper_keeps_its_own_double_dash() {
        let words = ["unhang", "zoo", "run", "--promise", "1,8", "--", "wrapper", "--flag", "--"];
        let Command::Zoo(zoo) = Arguments::try_parse_from(words).unwrap().command else {
            panic!("not the zoo")
        };
        let run = parse_zoo_run(&zoo.words).unwrap();
        assert_eq!(
            (run.promise, run.wrapper),
            (vec![1, 8], ["wrapper", "--flag", "--"].map(str::to_owned).to_vec())
        );
        assert_eq!(run.patience, unhang_zoo::corpus::PATIENCE);
        assert!(parse_zoo_run(&["run", "--promise", "7"].map(str::to_owned)).is_err());
    }

    #[test]
    fn x_03_modes_can_be_overridden_and_what_is_no_mode_is_refused() {
        let serve = |modes: &str| Arguments::try_parse_from(["unhang", "serve", "--tool-mode", modes]);
        assert!(serve("simulate=child,*=job").is_ok());
        assert!(serve("simulate=direct").unwrap_err().to_string().contains("`direct` is no mode"));
    }

    #[test]
    fn the_defaults_in_the_texts_are_those_of_the_library() {
        let arguments = Arguments::try_parse_from(["unhang", "wrap", "--", "true"]).unwrap();
        let Command::Wrap(wrap) = arguments.command else { panic!("not a wrap") };
        assert_eq!(wrap.limits.limits(), Limits::default());
        let arguments = Arguments::try_parse_from(["unhang", "serve"]).unwrap();
        let Command::Serve(serve) = arguments.command else { panic!("not a serve") };
        assert_eq!(serve.limits.limits(), Limits::default());
    }
}
