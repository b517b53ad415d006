//! The command line. Every limit is a flag, an environment variable and a default, declared once.

pub(crate) mod adopt;
pub(crate) mod bridge;
pub(crate) mod client;
pub(crate) mod doctor;
pub(crate) mod files;
pub(crate) mod jobs;
pub(crate) mod limits;
pub(crate) mod logging;
pub(crate) mod login;
pub(crate) mod number;
pub(crate) mod trust;
pub(crate) mod worker;

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, CommandFactory, Parser, Subcommand, error::ErrorKind};
use unhang::{config::MAX_SHARED_INSTANCES, tools::ModeOverrides};

use self::{
    adopt::AdoptArguments,
    bridge::{BridgeArguments, BridgedServer},
    client::{Batch, CallArguments, ListArguments, Prompt, Read, ServersArguments, Tools},
    doctor::Doctor,
    limits::{GuardLimits, SessionLimits},
    logging::Logging,
    login::{LoginArguments, Logout},
    number::whole_number,
    trust::TrustArguments,
    worker::{SharedStoreFlag, WorkerArguments},
};
use crate::arguments::jobs::{JobArguments, JobLimits, StateArguments};

/// Runs between MCP clients and servers so that nothing can hang.
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
    `unhang COMMAND --help` lists the flags, their defaults and the exit codes."
)]
pub(crate) struct Arguments {
    /// Print the current action and its waits to stderr
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
    /// Guard the servers of all clients on this machine: put `unhang wrap` into their files, or take it out again
    Adopt(AdoptArguments),
    /// Offer many servers, commands of unhang.toml, background jobs and named state as one MCP server
    Serve(Serve),
    /// Offer one server on the network as a stdio server: put `unhang bridge URL` as the command into an mcp.json
    Bridge(BridgeArguments),
    /// List the configured servers, and the file of each
    Servers(ServersArguments),
    /// List the tools of one server or of all servers, or show one tool
    Tools(Tools),
    /// List the resources of one server or of all servers
    Resources(ListArguments),
    /// List the prompts of one server or of all servers
    Prompts(ListArguments),
    /// Check that one server, or every server, answers
    Ping(ListArguments),
    /// Call a tool of a server
    Call(CallArguments),
    /// Read a resource of a server
    Read(Read),
    /// Get a prompt of a server
    Prompt(Prompt),
    /// Make many requests: read one JSON object per line, and print one per line
    Batch(Batch),
    /// Test servers for faults that could hang a client: start, use, disturb and end them
    Doctor(Doctor),
    /// Log in to a server on the network
    Login(LoginArguments),
    /// Log out of a server on the network
    Logout(Logout),
    /// Consent to a project's files, so that unhang uses the servers and settings in them
    Trust(TrustArguments),
    /// Run commands as durable background jobs: submit, follow, wait, cancel
    Job(JobArguments),
    /// Run jobs of a database that machines share
    Worker(WorkerArguments),
    /// Read and set the named documents that jobs work on
    State(StateArguments),
    /// Show the promises live, on bundled servers that misbehave
    Demo(Demo),
    /// Print the completions for a shell
    Completions(Completions),
    /// Write the manual pages, one per command
    Man(Man),
    /// Go through one scenario of the official conformance suite
    #[command(hide = true)]
    ConformanceClient(ConformanceClient),
    /// Run one of the servers that `unhang demo` shows
    #[command(hide = true, disable_help_flag = true)]
    Zoo(Zoo),
}

/// `unhang wrap`.
#[derive(Debug, Args)]
#[command(
    override_usage = "unhang wrap [OPTIONS] -- <CMD>...",
    after_help = "Times and sizes need a unit (500ms, 30s, 5m; 64KiB, 16MiB). Each limit is also an\n\
    environment variable: --call-timeout is UNHANG_CALL_TIMEOUT. If unhang knows that\n\
    the client has a shorter timeout, call-timeout is 95 % of the client's timeout.\n\n\
    Example:\n  \
    unhang wrap --call-timeout 90s -- uvx mcp-server-time\n\n\
    Exit codes: 0 done; 2 wrong usage; 3 the server could not be started;\n\
    4 the server never answered; 130 and 143 ended by SIGINT and SIGTERM."
)]
pub(crate) struct WrapArguments {
    /// The name of the server in errors and logs [default: from the command]
    #[arg(long, env = "UNHANG_NAME", hide_env = true, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The most processes of the server, for one that works on one call at a time and keeps no state between calls. With more than 1,
    /// messages pass through the gateway, as with `unhang serve`, and not unchanged: the job tools are named as there [default: 1]
    #[arg(long, env = "UNHANG_INSTANCES", hide_env = true, value_name = "COUNT", value_parser = whole_number::<u32>(1, MAX_SHARED_INSTANCES))]
    pub(crate) instances: Option<u32>,
    // clap also takes the command without the `--`, from the first word that is not a flag. Some clients swallow the first `--` that they
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
#[command(after_help = "Times and sizes need a unit (500ms, 30s, 5m; 64KiB, 16MiB). Each limit is also an\n\
    environment variable: --call-timeout is UNHANG_CALL_TIMEOUT. If unhang knows that\n\
    the client has a shorter timeout, call-timeout is 95 % of the client's timeout.\n\n\
    Exit codes: 0 the client ended the session; 2 wrong usage or configuration;\n\
    130 and 143 ended by SIGINT and SIGTERM.")]
pub(crate) struct Serve {
    /// The configuration file: unhang.toml, or the unchanged file of any MCP client [default: unhang.toml in ~/.config/unhang, else in the home folder; never the one in the working folder]
    #[arg(long, env = "UNHANG_CONFIG", hide_env = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Serve the client that starts unhang, over stdin and stdout [default]
    #[arg(long)]
    pub(crate) stdio: bool,
    /// Serve many clients over HTTP at http://ADDRESS/mcp; an ADDRESS is 127.0.0.1:8808, for example (port 0: any free port; `systemd`: the
    /// sockets that systemd hands over)
    #[arg(long, env = "UNHANG_HTTP", hide_env = true, value_name = "ADDRESS", conflicts_with = "stdio")]
    pub(crate) http: Option<String>,
    /// With --http: also serve clients of 2024-11-05, by the HTTP+SSE of that revision at /sse and /messages
    #[arg(long, requires = "http")]
    pub(crate) sse: bool,
    /// Start server processes of its own, and share no servers with other windows
    #[arg(long)]
    pub(crate) own: bool,
    /// A file with one token per line, in addition to the tokens of the configuration; over HTTP, each of them admits a client. Only the
    /// owner may be able to read the file
    #[arg(long, env = "UNHANG_TOKEN_FILE", hide_env = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// With --http: serve this one command and no file. Its tools keep their names
    #[arg(last = true, value_name = "CMD", requires = "http", conflicts_with_all = ["config", "print_config_schema"])]
    pub(crate) command: Vec<OsString>,
    /// The server of `unhang bridge`.
    #[arg(skip)]
    pub(crate) bridged: Option<BridgedServer>,
    /// Print the JSON schema of the configuration file, for editors, and end
    #[arg(long)]
    pub(crate) print_config_schema: bool,
    /// The modes of tools, for example `simulate=child,*=job`; they override the file
    #[arg(long, env = "UNHANG_TOOL_MODE", hide_env = true, hide_default_value = true, value_name = "TOOL=MODE,...", default_value = "", value_parser = ModeOverrides::parse)]
    pub(crate) tool_mode: ModeOverrides,
    #[command(flatten)]
    pub(crate) gateway: GatewayFlags,
}

/// What `serve` and `bridge` both take.
#[derive(Clone, Debug, Args)]
pub(crate) struct GatewayFlags {
    // First: clap puts everything behind the others under their headings.
    #[command(flatten)]
    pub(crate) store: SharedStoreFlag,
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
    /// The URL of the suite
    pub(crate) url: String,
}

/// `unhang demo`.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 unhang kept every promise; 1 unhang broke a promise; 2 wrong usage.")]
pub(crate) struct Demo {
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
    /// The name of the shell
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
    /// The folder for the pages; unhang creates it if it is missing
    #[arg(value_name = "DIR", required_unless_present = "page", conflicts_with = "page")]
    pub(crate) folder: Option<PathBuf>,
    /// Print the whole manual as one page of Markdown instead
    #[arg(long)]
    pub(crate) page: bool,
}

/// `unhang zoo`.
#[derive(Debug, Args)]
pub(crate) struct Zoo {
    /// The server and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<String>,
}

/// Parses the command line and the environment.
///
/// # Errors
/// Fails with the error of clap and its suggestion; also for requests for help and version.
pub(crate) fn parse() -> Result<Arguments, clap::Error> {
    parse_from(&std::env::args_os().collect::<Vec<_>>())
}

fn parse_from(words: &[OsString]) -> Result<Arguments, clap::Error> {
    Arguments::try_parse_from(words).map_err(|error| match error.kind() {
        // A suggestion is for people, who do not know the hidden commands.
        ErrorKind::InvalidSubcommand => shown().try_get_matches_from(words).err().unwrap_or(error),
        _ => error,
    })
}

/// Returns the parser without its hidden commands, because completions and manual pages do not name these.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_declaration_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn no_hidden_command_is_suggested() {
        for (typed, suggested) in [("tool", "'tools'"), ("zo", ""), ("cal", "'call'")] {
            let told = parse_from(&["unhang", typed].map(OsString::from)).unwrap_err().to_string();
            assert!(told.contains(suggested) && !told.contains("'zoo'"), "{told}");
        }
    }

    #[test]
    fn x_03_modes_can_be_overridden_and_what_is_no_mode_is_refused() {
        let serve = |modes: &str| Arguments::try_parse_from(["unhang", "serve", "--tool-mode", modes]);
        assert!(serve("simulate=child,*=job").is_ok());
        assert!(serve("simulate=direct").unwrap_err().to_string().contains("`direct` is not a mode"));
    }
}
