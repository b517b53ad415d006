//! The arguments of `unhang trust`.

use unhang_terminal::failure::Format;

use std::path::PathBuf;

use clap::Args;

/// `unhang trust`.
#[derive(Debug, Args)]
#[command(after_help = "Files of a project (unhang.toml, .mcp.json, .cursor/mcp.json, .vscode/mcp.json,\n\
    .gemini/settings.json, .codex/config.toml, opencode.json) name commands to run and\n\
    variables to send. They count after consent to their content. A file that has\n\
    changed since, or whose envFile has, needs it again. Files of the user need none.\n\
    Consents are kept in the folder `trust` below UNHANG_HOME, without any values.\n\n\
    Examples:\n  \
    unhang trust\n  \
    unhang trust .mcp.json\n  \
    unhang trust --remove\n\n\
    Exit codes: 0 done; 1 the consent cannot be kept or removed; 2 wrong usage, or a\n\
    file that cannot be read; 6 there is nothing to consent to, or to take back from\n\
    a file that does not exist.")]
pub(crate) struct TrustArguments {
    /// The file, or the folder of the project [default: this folder]
    #[arg(value_name = "PATH", conflicts_with = "list")]
    pub(crate) path: Option<PathBuf>,
    /// List what was consented to, and whether it is still so
    #[arg(long)]
    pub(crate) list: bool,
    /// Take the consent back
    #[arg(long, conflicts_with = "list")]
    pub(crate) remove: bool,
    /// Print text or JSON [default: text on a terminal, else JSON]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,
}
