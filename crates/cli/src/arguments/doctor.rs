//! The arguments of `unhang doctor`.

use std::{ffi::OsString, time::Duration};

use clap::Args;
use unhang::units::parse_duration;

use super::client::{AdHoc, ServerCommon};

/// `unhang doctor`.
#[derive(Debug, Args)]
#[command(after_help = "S is the name of a configured server (`unhang servers` lists them), a URL, or\n\
    nothing where `-- CMD ARGS...` follows. Each server is started three times; one\n\
    behind a URL is used as any client uses it. A tool is called only if it says\n\
    that it only reads, and needs no arguments; a call is waited for a minute at\n\
    most.\n\n\
    Exit codes: 0 nothing was found (notes do not count); 1 findings; 2 wrong usage\n\
    or configuration; 6 no such server; 130 and 143 ended by SIGINT and SIGTERM.")]
pub(crate) struct Doctor {
    /// The servers [default: all that are configured]
    #[arg(value_name = "S")]
    pub(crate) servers: Vec<String>,
    /// Print JSON, an array with one object a server, as `--output json` does
    #[arg(long, conflicts_with = "junit")]
    pub(crate) json: bool,
    /// Print JUnit's XML: a suite a server, a case a check
    #[arg(long, conflicts_with = "output")]
    pub(crate) junit: bool,
    /// How long the examination of one server may take
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "3m")]
    pub(crate) timeout: Duration,
    /// The command of a server that is in no file, after `--`
    #[arg(last = true, value_name = "CMD", conflicts_with = "servers")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) ad_hoc: AdHoc,
    #[command(flatten)]
    pub(crate) common: ServerCommon,
}
