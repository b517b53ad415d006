//! Which files of servers and settings a command reads.

use std::path::PathBuf;

use clap::Args;

/// What every command takes that reads them.
#[derive(Clone, Debug, Args)]
pub(crate) struct Files {
    /// Read this file alone: unhang.toml, or any client's file as it is. To name it is to consent to it
    #[arg(long, global = true, env = "UNHANG_CONFIG", hide_env = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Use the files of this project in this run, without the consent that `unhang trust` keeps
    #[arg(long, global = true)]
    trust: bool,
}

impl Files {
    /// The same for whoever reads.
    pub(crate) fn choice(&self) -> FileChoice {
        FileChoice { config: self.config.clone(), trusts_project: self.trust }
    }
}

/// Which files are read, as the command line says.
#[derive(Clone, Debug)]
pub(crate) struct FileChoice {
    /// This one alone. To name it is to consent to it.
    pub(crate) config: Option<PathBuf>,
    /// Files of the project count in this run, whoever has consented to them.
    pub(crate) trusts_project: bool,
}
