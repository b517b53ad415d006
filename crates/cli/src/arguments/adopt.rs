//! The arguments of `unhang adopt`.

use std::path::PathBuf;

use clap::Args;
use unhang_terminal::failure::Format;

/// `unhang adopt`.
#[derive(Debug, Args)]
#[command(after_help = "unhang puts `unhang wrap` in front of each server with a command in the files of\n\
    this user's clients: Claude Desktop, Claude Code, Cursor, VS Code, Windsurf, Codex,\n\
    Gemini CLI, Qwen Code, Antigravity, Copilot CLI, Zed, Cline, Roo Code, opencode,\n\
    LM Studio and Kiro. For Continue and Goose it shows what to write. It shows the\n\
    changes and asks once. Files of a project (.mcp.json, .cursor/mcp.json,\n\
    .vscode/mcp.json) change only if you name them. unhang keeps each file as it was\n\
    in the folder `adopted` below UNHANG_HOME.\n\n\
    Examples:\n  \
    unhang adopt --dry-run\n  \
    unhang adopt cursor claude-code\n  \
    unhang adopt .mcp.json --only search,time\n  \
    unhang adopt --undo\n\n\
    Exit codes: 0 done; 1 a file could not be read or written, or you said no; 2 wrong\n\
    usage, or nobody can be asked; 6 no such client, file or server.")]
pub(crate) struct AdoptArguments {
    /// The clients, for example cursor, or files [default: all clients of this user]
    #[arg(value_name = "CLIENT|FILE")]
    pub(crate) targets: Vec<PathBuf>,
    /// Only these servers; names with commas between
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// All servers but these; names with commas between
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) except: Vec<String>,
    /// Show the changes and write nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Write the changes without a question
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Take the guard away again: if nobody has edited a file since, it gets the same bytes back
    #[arg(long, conflicts_with_all = ["only", "except"])]
    pub(crate) undo: bool,
    /// List the servers of all clients: whether each has a guard, which version, and when it last ran
    #[arg(long, conflicts_with_all = ["undo", "only", "except", "dry_run", "yes"])]
    pub(crate) status: bool,
    /// Print text or JSON [default: text on a terminal, else JSON]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,
}
