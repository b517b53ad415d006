//! The arguments of `unhang worker`, and the flag for the store of many machines.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use unhang::{jobs::shared_work::is_label, settings::StoreUrl, units::parse_duration};
use unhang_terminal::failure::Format;

use super::number::whole_number;

/// `unhang worker`.
#[derive(Debug, Args)]
#[command(after_help = "A worker runs jobs of a PostgreSQL database that machines share. It runs only\n\
    tools of its own configuration file, functions of the Python modules that the file\n\
    names and, with --any-command, every command that somebody submits with\n\
    `unhang job run`. Jobs go on when the worker ends; the next worker on the data\n\
    folder goes on with them.\n\n\
    The password of the database comes from the URL, PGPASSWORD or PGPASSFILE.\n\n\
    Examples:\n  \
    unhang worker --store postgres://unhang@db.example.org/jobs --any-command\n  \
    unhang worker --list\n  \
    unhang worker --drain\n\n\
    Exit codes: 0 drained, or the list was printed; 1 another worker has the data\n\
    folder, or it cannot be used; 2 wrong usage or configuration; 3 the database\n\
    refused the worker; 6 no such worker; 130 and 143 ended by SIGINT and SIGTERM,\n\
    which leave jobs running.")]
pub(crate) struct WorkerArguments {
    #[command(flatten)]
    pub(crate) store: SharedStoreFlag,
    /// Jobs that the worker runs at the same time [default: half the processors, at least 2]
    #[arg(long, env = "UNHANG_SLOTS", hide_env = true, value_name = "COUNT", value_parser = whole_number::<u32>(1, 10_000))]
    pub(crate) slots: Option<u32>,
    /// The labels of the worker, with commas between them; tools and jobs may demand them
    #[arg(long, env = "UNHANG_LABELS", hide_env = true, value_name = "LABEL,...", value_delimiter = ',', value_parser = label)]
    pub(crate) labels: Vec<String>,
    /// Run any command that somebody submits, and not only tools of the configuration file
    #[arg(long)]
    pub(crate) any_command: bool,
    /// Time after a heartbeat within which a repeatable job must have the next one [default: 30s]
    #[arg(long, env = "UNHANG_LEASE", hide_env = true, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) lease: Option<Duration>,
    /// Time between two heartbeats [default: a sixth of --lease]
    #[arg(long, env = "UNHANG_HEARTBEAT", hide_env = true, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) heartbeat: Option<Duration>,
    /// Time after a heartbeat after which any other job is lost [default: 10m]
    #[arg(long, env = "UNHANG_LOST_AFTER", hide_env = true, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) lost_after: Option<Duration>,
    /// List all workers of the store, and end
    #[arg(long, conflicts_with = "drain")]
    pub(crate) list: bool,
    /// Let a worker take no more jobs and end after its last one, and end this command at once [default name: the worker of this data folder]
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "")]
    pub(crate) drain: Option<String>,
    /// Print text or JSON [default: text on a terminal, else JSON]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) output: Option<Format>,
    /// The configuration file with the tools of the worker [default: unhang.toml in ~/.config/unhang, else in the home folder; never the one in the working folder]
    #[arg(long, env = "UNHANG_CONFIG", hide_env = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// The store of many machines.
#[derive(Clone, Debug, Args)]
pub(crate) struct SharedStoreFlag {
    /// The database that machines share for their jobs: postgres://USER@HOST/DATABASE
    #[arg(id = "store", long = "store", global = true, env = "UNHANG_JOBS_STORE", hide_env = true, hide_env_values = true, value_name = "URL", value_parser = store_url)]
    pub(crate) url: Option<StoreUrl>,
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "clap wants a parser, and whoever opens the store checks the text"
)]
pub(crate) fn store_url(text: &str) -> Result<StoreUrl, std::convert::Infallible> {
    Ok(StoreUrl::new(text))
}

/// Checks a label.
pub(crate) fn label(text: &str) -> Result<String, String> {
    if is_label(text) {
        return Ok(text.to_owned());
    }
    Err("a label has letters, digits, `_`, `-`, `.` and `/`, at most 64 of them".to_owned())
}
