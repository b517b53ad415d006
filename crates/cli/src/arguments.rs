//! What was typed. Every limit is a flag, an environment variable and a default, declared once.

pub(crate) mod client;
pub(crate) mod doctor;
pub(crate) mod files;
pub(crate) mod jobs;
pub(crate) mod limits;
pub(crate) mod logging;
pub(crate) mod login;
pub(crate) mod number;
pub(crate) mod trust;

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{
    Args, CommandFactory, Parser, Subcommand,
    error::{ContextKind, ContextValue},
};
use unhang::{tools::ModeOverrides, units::parse_duration};
use unhang_zoo::{corpus::PROMISES, load::JobPeer};

use self::{
    client::{Batch, CallArguments, ListArguments, Prompt, Read, ServersArguments, Tools},
    doctor::Doctor,
    limits::{GuardLimits, SessionLimits},
    logging::Logging,
    login::{LoginArguments, Logout},
    number::whole_number,
    trust::TrustArguments,
};
use crate::{
    arguments::jobs::{JobArguments, JobLimits, StateArguments},
    command_words,
};

/// Puts itself between MCP clients and servers so that nothing can hang.
#[derive(Debug, Parser)]
#[command(
    name = "unhang",
    version,
    max_term_width = 100,
    propagate_version = true,
    after_help = "Examples:\n  \
    unhang wrap -- npx -y @modelcontextprotocol/server-everything\n  \
    unhang call time get_current_time timezone=Europe/Vienna\n  \
    unhang job run -- python simulate.py\n\n\
    `unhang COMMAND --help` has the flags, their defaults and the exit codes."
)]
pub(crate) struct Arguments {
    /// Say on stderr what is being done and waited for
    #[arg(short, long, global = true, display_order = 900)]
    pub(crate) verbose: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Guard one stdio server: put `unhang wrap --` in front of any command in an mcp.json
    Wrap(WrapArguments),
    /// Offer many servers, commands of unhang.toml, background jobs and named state as one MCP server
    Serve(Serve),
    /// List the configured servers, and where each was found
    Servers(ServersArguments),
    /// List the tools of a server, or of all, or show one
    Tools(Tools),
    /// List the resources of a server, or of all
    Resources(ListArguments),
    /// List the prompts of a server, or of all
    Prompts(ListArguments),
    /// Ask a server, or all, for a sign of life
    Ping(ListArguments),
    /// Call a tool of a server
    Call(CallArguments),
    /// Read a resource of a server
    Read(Read),
    /// Get a prompt of a server
    Prompt(Prompt),
    /// Make many requests: one JSON object a line in, one a line out
    Batch(Batch),
    /// Find out what could hang: start, use, annoy and end a server, or all
    Doctor(Doctor),
    /// Log in to a server on the network
    Login(LoginArguments),
    /// Forget the login to a server
    Logout(Logout),
    /// Consent to a project's files, so that the servers and settings in them count
    Trust(TrustArguments),
    /// Run commands as durable background jobs: submit, follow, wait, cancel
    Job(JobArguments),
    /// Read and set the named documents that jobs work on
    State(StateArguments),
    /// Show the promises live, on bundled servers that misbehave
    Demo(Demo),
    /// Measure what guard, jobs, command line, gateway and slow calls cost, beside what nobody can do without
    Bench(BenchArguments),
    /// Print the completions of a shell
    Completions(Completions),
    /// Write the manual pages, one a command
    Man(Man),
    /// Go through one scenario of the official conformance suite
    #[command(hide = true)]
    ConformanceClient(ConformanceClient),
    /// Run one of the bundled servers and clients that misbehave
    #[command(hide = true, disable_help_flag = true)]
    Zoo(Zoo),
}

/// `unhang wrap`.
#[derive(Debug, Args)]
#[command(
    override_usage = "unhang wrap [OPTIONS] -- <CMD>...",
    after_help = "Times need a unit (500ms, 30s, 5m), sizes too (64KiB, 16MiB). Each limit is\n\
    also an environment variable: --call-timeout is UNHANG_CALL_TIMEOUT. For a\n\
    client that is known to give up sooner, call-timeout is less by itself.\n\n\
    Example:\n  \
    unhang wrap --call-timeout 90s -- uvx mcp-server-time\n\n\
    Exit codes: 0 done; 2 wrong usage; 3 the server could not be started;\n\
    4 the server never answered; 130 and 143 ended by SIGINT and SIGTERM."
)]
pub(crate) struct WrapArguments {
    /// What to call the server in errors and logs [default: from the command]
    #[arg(long, env = "UNHANG_NAME", hide_env = true, value_name = "NAME")]
    pub(crate) name: Option<String>,
    // Without the `--` it is taken too, from the first word that is no flag: some clients swallow the first `--` that they
    // are given.
    /// The server's command and its arguments, after `--`
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) logging: Logging,
    #[command(flatten)]
    pub(crate) limits: GuardLimits,
}

/// `unhang serve`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Times need a unit (500ms, 30s, 5m), sizes too (64KiB, 16MiB). Each limit is\n\
    also an environment variable: --call-timeout is UNHANG_CALL_TIMEOUT. For a\n\
    client that is known to give up sooner, call-timeout is less by itself.\n\n\
    Exit codes: 0 the client has ended; 2 wrong usage or configuration; 130 and\n\
    143 ended by SIGINT and SIGTERM.")]
pub(crate) struct Serve {
    /// The configuration file, ours or any client's as it is [default: unhang.toml in ~/.config/unhang, else in the home folder; never that of the working folder]
    #[arg(long, env = "UNHANG_CONFIG", hide_env = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Speak over stdin and stdout, as MCP clients that start a command do [default]
    #[arg(long)]
    pub(crate) stdio: bool,
    /// Serve many clients over HTTP, at http://ADDRESS/mcp, as in 127.0.0.1:8808 (port 0: any that is free; systemd: at the sockets that
    /// systemd hands over)
    #[arg(long, env = "UNHANG_HTTP", hide_env = true, value_name = "ADDRESS", conflicts_with = "stdio")]
    pub(crate) http: Option<String>,
    /// With --http: serve clients of 2024-11-05 too, by the HTTP+SSE of that revision at /sse and /messages
    #[arg(long, requires = "http")]
    pub(crate) sse: bool,
    /// Share servers with no other window: have processes of our own
    #[arg(long)]
    pub(crate) own: bool,
    /// A file with tokens, one a line, beside those of the configuration: over HTTP each lets in whoever sends it. Nobody else may
    /// be able to read it
    #[arg(long, env = "UNHANG_TOKEN_FILE", hide_env = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Print the JSON schema of the configuration file, for editors, and end
    #[arg(long)]
    pub(crate) print_config_schema: bool,
    /// Modes of tools, above the file, as in `simulate=child,*=job`
    #[arg(long, env = "UNHANG_TOOL_MODE", hide_env = true, hide_default_value = true, value_name = "TOOL=MODE,...", default_value = "", value_parser = ModeOverrides::parse)]
    pub(crate) tool_mode: ModeOverrides,
    #[command(flatten)]
    pub(crate) logging: Logging,
    #[command(flatten)]
    pub(crate) job_limits: JobLimits,
    #[command(flatten)]
    pub(crate) limits: SessionLimits,
}

/// `unhang conformance-client`.
#[derive(Debug, Args)]
pub(crate) struct ConformanceClient {
    /// Where the suite listens
    pub(crate) url: String,
}

/// `unhang demo`.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 every promise was kept; 1 one was not; 2 wrong usage.")]
pub(crate) struct Demo {
    /// Print text or JSON
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    pub(crate) output: String,
}

/// `unhang bench`.
#[derive(Debug, Args)]
#[command(after_help = "Jobs and slow calls are measured in folders of their own where jobs would lie:\n\
    under UNHANG_HOME, else in ~/.local/state/unhang. They are removed at the end.\n\n\
    Exit codes: 0 done; 1 a bar was missed (with --check); 2 wrong usage; 3 a way,\n\
    a peer, the jobs or slow calls could not be measured; 130 and 143 ended by\n\
    SIGINT and SIGTERM.")]
pub(crate) struct BenchArguments {
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
    #[arg(long, value_name = "COUNT", value_parser = whole_number::<u32>(1, 1_000_000))]
    pub(crate) ended: Option<u32>,
    /// A few hundred calls only: shows that it works, not how fast
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print text or JSON
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    pub(crate) output: String,
}

/// `unhang completions`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    unhang completions bash > ~/.local/share/bash-completion/completions/unhang\n  \
    unhang completions zsh > \"${fpath[1]}/_unhang\"\n  \
    unhang completions fish > ~/.config/fish/completions/unhang.fish\n\n\
    Exit codes: 0 done; 2 wrong usage.")]
pub(crate) struct Completions {
    /// Which shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: clap_complete::Shell,
}

/// `unhang man`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    unhang man ~/.local/share/man/man1\n  \
    man unhang-call\n\n\
    Exit codes: 0 done; 2 wrong usage, or the pages cannot be written.")]
pub(crate) struct Man {
    /// The folder, which is made if it is missing
    #[arg(value_name = "DIR", required_unless_present = "page", conflicts_with = "page")]
    pub(crate) folder: Option<PathBuf>,
    /// Print all of it as one page of Markdown instead
    #[arg(long)]
    pub(crate) page: bool,
}

/// What `unhang bench` can be confined to.
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

/// `unhang zoo`.
#[derive(Debug, Args)]
pub(crate) struct Zoo {
    /// The faulty server and its arguments, `run` and its own, `--list`, or `--page` for the list as a page
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<String>,
}

/// `unhang zoo run`: parsed by itself, since what follows `zoo` belongs to the faulty servers.
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

/// Parses the command line and the environment.
///
/// # Errors
/// Whatever clap finds wrong, with its suggestion; also the requests for help and version.
pub(crate) fn parse() -> Result<Arguments, clap::Error> {
    Arguments::try_parse()
}

/// The command that the words of a wrong command line name, as far as they name one: `unhang job show`.
pub(crate) fn meant(words: impl Iterator<Item = OsString>) -> String {
    let mut command = &Arguments::command();
    let mut path = command.get_name().to_owned();
    for word in words.filter(|word| !word.as_encoded_bytes().starts_with(b"-")) {
        let Some(below) = command.find_subcommand(&word) else { break };
        path = format!("{path} {}", below.get_name());
        command = below;
    }
    path
}

/// The flag that a value is wrong of, and the variable that has said the value in its place.
pub(crate) fn blamed(error: &clap::Error, words: &[OsString]) -> Option<(String, String)> {
    let ContextValue::String(argument) = error.get(ContextKind::InvalidArg)? else { return None };
    let ContextValue::String(value) = error.get(ContextKind::InvalidValue)? else { return None };
    let flag = argument.split_whitespace().next()?.strip_prefix("--")?;
    let is_typed = |word: &OsString| {
        let rest = word.to_str().and_then(|word| word.strip_prefix("--")?.strip_prefix(flag));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    };
    // What stands behind `--` is for others.
    if words.iter().take_while(|word| *word != "--").any(is_typed) {
        return None;
    }
    fn all(command: &clap::Command) -> Vec<&clap::Arg> {
        command.get_arguments().chain(command.get_subcommands().flat_map(all)).collect()
    }
    let whole = Arguments::command();
    let variables = all(&whole).into_iter().filter(|argument| argument.get_long() == Some(flag));
    let mut names = variables.filter_map(|argument| argument.get_env()?.to_str());
    let name = names.find(|name| std::env::var(name).is_ok_and(|said| said == *value))?;
    Some((argument.clone(), name.to_owned()))
}

/// What a user may see of the declaration: all but hidden commands, which completions would tell of otherwise.
pub(crate) fn shown() -> clap::Command {
    let whole = Arguments::command();
    let commands = whole.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let about = whole.get_about().cloned().unwrap_or_default();
    let after = whole.get_after_help().cloned().unwrap_or_default();
    clap::Command::new("unhang")
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .subcommand_required(true)
        .about(about)
        .after_help(after)
        .args(whole.get_arguments().cloned())
        .subcommands(commands)
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
    fn the_command_that_was_meant_is_told_from_the_words() {
        for (words, path) in [
            ("-v job show --nosuch", "unhang job show"),
            ("call --cal-timeout 5s job", "unhang call"),
            ("cal time", "unhang"),
            ("", "unhang"),
        ] {
            assert_eq!(meant(words.split_whitespace().map(OsString::from)), path);
        }
    }

    #[test]
    fn x_03_modes_can_be_overridden_and_what_is_no_mode_is_refused() {
        let serve = |modes: &str| Arguments::try_parse_from(["unhang", "serve", "--tool-mode", modes]);
        assert!(serve("simulate=child,*=job").is_ok());
        assert!(serve("simulate=direct").unwrap_err().to_string().contains("`direct` is no mode"));
    }
}
