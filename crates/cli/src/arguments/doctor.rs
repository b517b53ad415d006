//! The arguments of `unhang doctor`.

use std::{ffi::OsString, time::Duration};

use clap::Args;
use unhang::units::parse_duration;

use super::client::{AdHoc, ServerCommon};

/// `unhang doctor`.
#[derive(Debug, Args)]
#[command(after_help = "S is the name of a configured server (`unhang servers` lists them), or a URL.\n\
    Leave S out if `-- CMD ARGS...` follows. unhang starts each server three times. It\n\
    uses a server behind a URL as any client does. It calls a tool only if the tool\n\
    declares that it only reads, and needs no arguments. It waits for a call for one\n\
    minute at most.\n\n\
    Exit codes: 0 no findings (notes do not count); 1 findings; 2 wrong usage\n\
    or configuration; 6 no such server; 130 and 143 ended by SIGINT and SIGTERM.")]
pub(crate) struct Doctor {
    /// The servers [default: all configured servers]
    #[arg(value_name = "S")]
    pub(crate) servers: Vec<String>,
    /// Print JSON, an array with one object per server, as `--output json` does
    #[arg(long, conflicts_with = "junit")]
    pub(crate) json: bool,
    /// Print JUnit's XML: one suite per server, one case per check
    #[arg(long, conflicts_with = "output")]
    pub(crate) junit: bool,
    /// Limit of the examination of one server
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
