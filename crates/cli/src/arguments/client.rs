//! The arguments of the commands that ask servers: `servers`, `tools`, `resources`, `prompts`, `ping`, `call`, `read`, `prompt`.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::Args;
use unhang::units::parse_duration;
use unhang_terminal::failure::Format;

use super::{files::Files, limits::AskingLimits, number::whole_number};

/// The end of each command's help, with its examples.
macro_rules! ending {
    ($examples:literal) => {
        concat!(
            "S is the name of a configured server (`unhang servers` lists them), or a URL.\n\
            Leave S out if `-- CMD ARGS...` follows.",
            $examples,
            "\n\nExit codes: 0 done; 1 the tool failed or the server refused; 2 wrong usage\n\
            or configuration; 3 the server could not be started or reached, or died;\n\
            4 a deadline passed; 5 the server broke the protocol; 6 no such server, tool,\n\
            resource or prompt; 130 and 143 ended by SIGINT and SIGTERM."
        )
    };
}

/// What every one of them takes.
#[derive(Debug, Args)]
pub(crate) struct ServerCommon {
    #[command(flatten)]
    pub(crate) files: Files,
    /// Print text or JSON [default: text on a terminal, else JSON]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,
    /// Limits above those of the file.
    #[command(flatten)]
    pub(crate) limits: AskingLimits,
}

/// What a server gets that is in no file.
#[derive(Debug, Default, Args)]
pub(crate) struct AdHoc {
    /// Send this header to a URL; may be given several times. Other users of the machine can see it while unhang runs
    #[arg(long, value_name = "NAME: VALUE", value_parser = header)]
    pub(crate) header: Vec<(String, String)>,
    /// Set this variable for the command after `--`, over the environment that it inherits; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub(crate) env: Vec<(String, String)>,
    /// Run the command after `--` in this folder [default: the current folder]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) cwd: Option<PathBuf>,
}

/// Parses a header, as HTTP writes it or with `=`. Neither sign can stand in a name.
pub(super) fn header(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once([':', '=']).ok_or("write NAME: VALUE")?;
    if name.trim().is_empty() {
        return Err("the name is missing: write NAME: VALUE");
    }
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

fn variable(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE"),
    }
}

/// `unhang servers`.
#[derive(Debug, Args)]
#[command(after_help = "unhang reads these files in this order, and the first server of a name counts:\n\
    unhang.toml here or in ~/.config/unhang; then the files of this project: .mcp.json,\n\
    .cursor/mcp.json, .vscode/mcp.json, .gemini/settings.json, .codex/config.toml,\n\
    opencode.json; then the user's files of Claude Code, Cursor, Gemini, Windsurf,\n\
    Codex, Copilot, Claude Desktop, VS Code, Cline, opencode, Qwen Code, Antigravity,\n\
    Roo Code, LM Studio and Kiro. This command starts no server.\n\n\
    Exit codes: 0 done; 2 wrong usage or configuration.")]
pub(crate) struct ServersArguments {
    #[command(flatten)]
    pub(crate) common: ServerCommon,
}

/// `unhang tools`.
#[derive(Debug, Args)]
#[command(
    override_usage = "unhang tools [OPTIONS] [S] [TOOL]\n       unhang tools [OPTIONS] [TOOL] -- <CMD>...",
    after_help = ending!(
        "\n\nExamples:\
        \n  unhang tools time get_current_time\
        \n  unhang tools -- uvx mcp-server-time"
    )
)]
pub(crate) struct Tools {
    /// The server [default: all configured servers]
    #[arg(value_name = "S")]
    pub(crate) server: Option<String>,
    /// Show only this tool: its arguments with their types, and its own descriptions
    #[arg(value_name = "TOOL")]
    pub(crate) tool: Option<String>,
    /// The command of a server that is in no file, after `--`
    #[arg(last = true, value_name = "CMD", conflicts_with = "tool")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) ad_hoc: AdHoc,
    #[command(flatten)]
    pub(crate) common: ServerCommon,
}

/// `unhang resources`, `prompts` and `ping`.
#[derive(Debug, Args)]
#[command(after_help = ending!(""))]
pub(crate) struct ListArguments {
    /// The server [default: all configured servers]
    #[arg(value_name = "S")]
    pub(crate) server: Option<String>,
    /// The command of a server that is in no file, after `--`
    #[arg(last = true, value_name = "CMD", conflicts_with = "server")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) ad_hoc: AdHoc,
    #[command(flatten)]
    pub(crate) common: ServerCommon,
}

/// One request to one server.
#[derive(Debug, Args)]
pub(crate) struct RequestArguments {
    /// The words of the usage above: the server, the tool, URI or prompt, and the arguments
    #[arg(value_name = "WORD")]
    pub(crate) words: Vec<String>,
    /// Print only the content, byte for byte as the server sent it; a terminal gets text without control sequences
    #[arg(long, conflicts_with_all = ["output", "save"])]
    pub(crate) raw: bool,
    /// Save binary contents in this folder, and print text that names each file, also if stdout is not a terminal; not with `--output json` [default: the current folder, if the output is text]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) save: Option<PathBuf>,
    /// The command of a server that is in no file, after `--`
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) ad_hoc: AdHoc,
    #[command(flatten)]
    pub(crate) common: ServerCommon,
}

/// `unhang call`.
#[derive(Debug, Args)]
#[command(
    override_usage = "unhang call [OPTIONS] <S> <TOOL> [KEY=VALUE]...\n       unhang call [OPTIONS] <TOOL> [KEY=VALUE]... -- <CMD>...",
    after_help = ending!(
        "\n\nExamples:\
        \n  unhang call time get_current_time timezone=Europe/Vienna\
        \n  unhang call get_current_time timezone=UTC -- uvx mcp-server-time\
        \n\nIf the server continues a call in the background, as a job or a task, unhang\
        \nfollows the call to its end within --call-timeout."
    )
)]
pub(crate) struct CallArguments {
    /// The arguments as a JSON object, `@FILE` for an object in a file, or `-` for stdin; KEY=VALUE overrides its members
    #[arg(long, value_name = "TEXT|@FILE|-")]
    pub(crate) json: Option<String>,
    /// Call the tool without comparing the arguments with its schema; unhang sends a value that does not fit its type as JSON or as text
    #[arg(long)]
    pub(crate) no_check: bool,
    #[command(flatten)]
    pub(crate) request: RequestArguments,
}

/// `unhang read`.
#[derive(Debug, Args)]
#[command(
    override_usage = "unhang read [OPTIONS] <S> <URI>\n       unhang read [OPTIONS] <URI> -- <CMD>...",
    after_help = ending!(
        "\n\nIf the URI is job://ID, unhang follows that job to its end. The exit code is 1 if\
        \nthe job did not complete.\
        \n\nExamples:\
        \n  unhang read docs file:///notes.md\
        \n  unhang read docs file:///notes.md --raw > notes.md\
        \n  unhang read file:///notes.md -- ./docs-server --stdio"
    )
)]
pub(crate) struct Read {
    #[command(flatten)]
    pub(crate) request: RequestArguments,
}

/// `unhang prompt`.
#[derive(Debug, Args)]
#[command(
    override_usage = "unhang prompt [OPTIONS] <S> <NAME> [KEY=VALUE]...\n       unhang prompt [OPTIONS] <NAME> [KEY=VALUE]... -- <CMD>...",
    after_help = ending!(
        "\n\nExample:\
        \n  unhang prompt everything args-prompt city=Vienna"
    )
)]
pub(crate) struct Prompt {
    #[command(flatten)]
    pub(crate) request: RequestArguments,
}

/// `unhang batch`.
#[derive(Debug, Args)]
#[command(
    mut_arg("output", |output| output.help(
        "The outcomes are always lines of JSON; print an error of the batch itself as text or JSON [default: text]"
    )),
    after_help = "A request is a line {\"id\"?, \"server\", \"tool\", \"arguments\"?}, or has \"uri\" or\n\
    \"prompt\" in place of \"tool\". A request without \"server\" goes to the command\n\
    after `--`. unhang prints the outcomes in the order in which they come: {\"id\",\n\
    \"line\", \"ok\", \"result\" or \"error\", \"ms\"}. If a server continues a call in the\n\
    background, unhang follows the call to its end within --call-timeout. A call that\n\
    has not ended by then is not ok. The resource of a job that did not complete is\n\
    not ok, and its outcome has both \"result\" and \"error\".\n\n\
    Examples:\n  \
    unhang batch requests.jsonl > outcomes.jsonl\n  \
    unhang batch -j 16 --resume outcomes.jsonl requests.jsonl\n\n\
    Exit codes: 0 all requests are ok; 1 some are not; 2 wrong usage or\n\
    configuration; 4 the batch did not end in time; 130 and 143 ended by SIGINT and\n\
    SIGTERM: unhang has written the outcomes so far, and --resume continues there."
)]
pub(crate) struct Batch {
    /// The file of the requests; `-` for stdin
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Number of requests that run at the same time [default: 8]
    #[arg(short, long, value_name = "COUNT", default_value = "8", hide_default_value = true, value_parser = whole_number::<u16>(1, 1000))]
    jobs: u16,
    /// Stop at the first request that is not ok
    #[arg(long)]
    pub(crate) fail_fast: bool,
    /// Skip the requests that are ok in this file of outcomes, and append to it instead of writing to stdout; the number of a line stands for a missing `id`
    #[arg(long, value_name = "OUT")]
    pub(crate) resume: Option<PathBuf>,
    /// Limit of the whole batch [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) timeout: Option<Duration>,
    /// The command of a server that is in no file, after `--`
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) ad_hoc: AdHoc,
    #[command(flatten)]
    pub(crate) common: ServerCommon,
}

impl Batch {
    /// Returns how many requests run at the same time.
    pub(crate) fn jobs(&self) -> usize {
        usize::from(self.jobs)
    }
}
