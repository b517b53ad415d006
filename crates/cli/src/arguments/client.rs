//! What can be typed after the commands that ask servers: `servers`, `tools`, `resources`, `prompts`, `ping`, `call`, `read`, `prompt`.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::Args;
use unhang::{
    config::{parse_duration, parse_size},
    settings::LimitSettings,
};

use crate::job_arguments::Format;

/// The end of the help of each of them.
pub(crate) const EXIT_CODES: &str = "S is the name of a configured server (`unhang servers` lists them), or\n\
    nothing where `-- CMD ARGS...` follows.\n\n\
    Exit codes: 0 done; 1 the tool failed or the server refused; 2 wrong usage\n\
    or configuration; 3 the server could not be started or reached, or died;\n\
    4 a deadline passed; 5 the server broke the protocol; 6 no such server, tool,\n\
    resource or prompt; 130 and 143 ended by SIGINT and SIGTERM.";

/// What every one of them takes.
#[derive(Debug, Args)]
pub(crate) struct ServerCommon {
    /// Read servers from this file alone: unhang.toml, or any client's file as it is
    #[arg(long, env = "UNHANG_CONFIG", hide_env = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print text or JSON [default: text on a terminal, else JSON]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,
    #[command(flatten)]
    pub(crate) limits: ClientLimits,
}

/// Limits above those of the file.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct ClientLimits {
    /// From the start of a server to its first answer [default: 55s]
    #[arg(long, env = "UNHANG_START_TIMEOUT", hide_env = true, value_name = "TIME", value_parser = parse_duration)]
    start_timeout: Option<Duration>,
    /// Any request but a tool call [default: 30s]
    #[arg(long, env = "UNHANG_REQUEST_TIMEOUT", hide_env = true, value_name = "TIME", value_parser = parse_duration)]
    request_timeout: Option<Duration>,
    /// A tool call in all; progress does not extend it [default: 5m]
    #[arg(long, env = "UNHANG_CALL_TIMEOUT", hide_env = true, value_name = "TIME", value_parser = parse_duration)]
    call_timeout: Option<Duration>,
    /// Between closing a server's stdin, SIGTERM and SIGKILL [default: 1s]
    #[arg(long, env = "UNHANG_STOP_GRACE", hide_env = true, value_name = "TIME", value_parser = parse_duration)]
    stop_grace: Option<Duration>,
    /// One message in either direction [default: 64MiB]
    #[arg(long, env = "UNHANG_MAX_MESSAGE", hide_env = true, value_name = "SIZE", value_parser = parse_size)]
    max_message: Option<u64>,
}

impl ClientLimits {
    /// The same as a file would say it.
    pub(crate) fn settings(&self) -> LimitSettings {
        let &ClientLimits { start_timeout, request_timeout, call_timeout, stop_grace, max_message } = self;
        LimitSettings {
            start_timeout,
            request_timeout,
            call_timeout,
            stop_grace,
            max_message,
            ..LimitSettings::default()
        }
    }
}

/// `unhang servers`.
#[derive(Debug, Args)]
#[command(after_help = "Looked for in this order, the first of a name counts: unhang.toml here or in\n\
    ~/.config/unhang; then the files of this project: .mcp.json, .cursor/mcp.json,\n\
    .vscode/mcp.json, .gemini/settings.json, .codex/config.toml, opencode.json; then\n\
    the user's files of Claude Code, Claude Desktop, Cursor, VS Code, Codex, Gemini,\n\
    Windsurf, Copilot, Cline and opencode. None is started.")]
pub(crate) struct Servers {
    #[command(flatten)]
    pub(crate) common: ServerCommon,
}

/// `unhang tools`, `resources`, `prompts` and `ping`.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Listing {
    /// The server [default: all that are configured]
    #[arg(value_name = "S")]
    pub(crate) server: Option<String>,
    /// The command of a server that is in no file, after `--`
    #[arg(last = true, value_name = "CMD", conflicts_with = "server")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) common: ServerCommon,
}

/// One request to one server.
#[derive(Debug, Args)]
pub(crate) struct Request {
    /// The server, what is asked for, and its arguments
    #[arg(value_name = "WORD", required = true)]
    pub(crate) words: Vec<String>,
    /// Where what is no text is put, as text output [default: here]
    #[arg(long, value_name = "FOLDER", default_value = ".", hide_default_value = true)]
    pub(crate) save: PathBuf,
    /// The command of a server that is in no file, after `--`
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) common: ServerCommon,
}

/// `unhang call`.
#[derive(Debug, Args)]
#[command(
    override_usage = "unhang call [OPTIONS] <S> <TOOL> [KEY=VALUE]...\n       unhang call [OPTIONS] <TOOL> [KEY=VALUE]... -- <CMD>...",
    after_help = EXIT_CODES
)]
pub(crate) struct Call {
    /// The arguments as a JSON object, as a file with one after `@`, or `-` for stdin; KEY=VALUE goes above it
    #[arg(long, value_name = "TEXT|@FILE|-")]
    pub(crate) json: Option<String>,
    #[command(flatten)]
    pub(crate) request: Request,
}

/// `unhang read`.
#[derive(Debug, Args)]
#[command(
    override_usage = "unhang read [OPTIONS] <S> <URI>\n       unhang read [OPTIONS] <URI> -- <CMD>...",
    after_help = EXIT_CODES
)]
pub(crate) struct Read {
    #[command(flatten)]
    pub(crate) request: Request,
}

/// `unhang prompt`.
#[derive(Debug, Args)]
#[command(
    override_usage = "unhang prompt [OPTIONS] <S> <NAME> [KEY=VALUE]...\n       unhang prompt [OPTIONS] <NAME> [KEY=VALUE]... -- <CMD>...",
    after_help = EXIT_CODES
)]
pub(crate) struct Prompt {
    #[command(flatten)]
    pub(crate) request: Request,
}

/// `unhang batch`.
#[derive(Debug, Args)]
#[command(
    after_help = "In: {\"id\"?, \"server\", \"tool\", \"arguments\"?}, or with \"uri\" or \"prompt\" in\n\
    the place of \"tool\"; without \"server\" the command after `--` is asked. Out,\n\
    in the order in which they are done: {\"id\", \"line\", \"ok\", \"result\" or\n\
    \"error\", \"ms\"}.\n\n\
    Exit codes: 0 all are ok; 1 some are not; 2 wrong usage or configuration;\n\
    4 the batch was not done in time; 130 and 143 ended by SIGINT and SIGTERM:\n\
    what is done is written, and --resume goes on from there."
)]
pub(crate) struct Batch {
    /// The requests; `-` for stdin
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// How many requests run at the same time [default: 8]
    #[arg(short, long, value_name = "COUNT", default_value = "8", hide_default_value = true, value_parser = clap::value_parser!(u16).range(1..=1000))]
    jobs: u16,
    /// Stop at the first that is not ok
    #[arg(long)]
    pub(crate) fail_fast: bool,
    /// Skip what this file holds as ok, and add to it instead of writing to stdout
    #[arg(long, value_name = "OUT")]
    pub(crate) resume: Option<PathBuf>,
    /// How long all of it may take [default: as long as it takes]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) timeout: Option<Duration>,
    /// The command of a server that is in no file, after `--`
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) common: ServerCommon,
}

impl Batch {
    /// How many requests run at the same time.
    pub(crate) fn jobs(&self) -> usize {
        usize::from(self.jobs)
    }
}
