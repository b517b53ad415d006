//! Where the log goes and how it is written, for the commands that keep one.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Where the log goes and how it is written.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Log")]
pub(crate) struct Logging {
    /// Write the log as text, or as JSON with one object per line
    #[arg(long, env = "UNHANG_LOG_FORMAT", hide_env = true, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
    /// Write the log to this file; with `serve`, `-` is stderr [default: a file of its own in UNHANG_HOME]
    #[arg(long, env = "UNHANG_LOG_FILE", hide_env = true, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,
}

/// How a log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    // Lines for people.
    Text,
    // Lines for programs.
    Json,
}
