//! The flags that choose which files of servers and settings a command reads.

use std::path::PathBuf;

use clap::Args;

/// What every command takes that reads them.
#[derive(Clone, Debug, Args)]
pub(crate) struct Files {
    /// Read only this file: unhang.toml, or the unchanged file of any MCP client. The flag is also the consent to the file
    #[arg(long, global = true, env = "UNHANG_CONFIG", hide_env = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Use the files of this project in this run, without a consent by `unhang trust`
    #[arg(long, global = true)]
    trust: bool,
}

impl Files {
    /// Returns the choice for the code that reads the files.
    pub(crate) fn choice(&self) -> FileChoice {
        FileChoice { config: self.config.clone(), trusts_project: self.trust }
    }
}

/// The choice of files that the command line makes.
#[derive(Clone, Debug)]
pub(crate) struct FileChoice {
    /// The only file to read. To name it is to consent to it.
    pub(crate) config: Option<PathBuf>,
    /// Whether the files of the project count in this run without a kept consent.
    pub(crate) trusts_project: bool,
}
