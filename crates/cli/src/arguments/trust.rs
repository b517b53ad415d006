//! The arguments of `unhang trust`.

use unhang_terminal::failure::Format;

use std::path::PathBuf;

use clap::Args;

/// `unhang trust`.
#[derive(Debug, Args)]
#[command(after_help = "Files of a project (unhang.toml, .mcp.json, .cursor/mcp.json, .vscode/mcp.json,\n\
    .gemini/settings.json, .codex/config.toml, opencode.json) name commands to run and\n\
    variables to send. unhang uses them only after your consent to their content. If a\n\
    file or its envFile has changed since, it needs your consent again. Files of the user\n\
    need no consent. unhang keeps consents in the folder `trust` below UNHANG_HOME,\n\
    without any values.\n\n\
    Examples:\n  \
    unhang trust\n  \
    unhang trust .mcp.json\n  \
    unhang trust --remove\n\n\
    Exit codes: 0 done; 1 the consent cannot be stored or removed; 2 wrong usage, or a\n\
    file that cannot be read; 6 there is no file to consent to, or no consent to remove\n\
    from a file that does not exist.")]
pub(crate) struct TrustArguments {
    /// The file, or the folder of the project [default: the current folder]
    #[arg(value_name = "PATH", conflicts_with = "list")]
    pub(crate) path: Option<PathBuf>,
    /// List the trusted files, and whether each consent still holds
    #[arg(long)]
    pub(crate) list: bool,
    /// Remove the consent
    #[arg(long, conflicts_with = "list")]
    pub(crate) remove: bool,
    /// Print text or JSON [default: text on a terminal, else JSON]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,
}
