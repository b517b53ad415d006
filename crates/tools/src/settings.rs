//! What the owner says of a tool of ours: `[tools.NAME]` of the configuration file.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use unhang_jobs::{document::Field, folder::FileName, record::Patch};

use super::{ArgumentSchema, CommandTemplate};

/// How a tool is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// With the id of a job, at once.
    Job,
    /// With the outcome, when the command ends.
    Child,
}

/// `[tools.NAME]`: a command as a tool.
#[derive(Clone, Debug)]
pub struct ToolSettings {
    /// Its name, in the alphabet of MCP.
    pub name: String,
    /// What it does.
    pub description: Option<String>,
    /// The program and its arguments, with placeholders.
    pub command: CommandTemplate,
    /// How it is answered.
    pub mode: Mode,
    /// What it may be called with.
    pub input_schema: ArgumentSchema,
    /// Files in the folder of its work, each with the state field that is written into it.
    pub inputs: Vec<(FileName, Field)>,
    /// The file of the results in the folder of its work.
    pub results: Option<FileName>,
    /// Where the results go.
    pub state: Option<Patch>,
    /// How long it may run.
    pub timeout: Option<Duration>,
    /// Where it runs.
    pub folder: PathBuf,
    /// Its own variables.
    pub environment: BTreeMap<String, String>,
    /// Whether it gets all of our environment, and not a small part of it.
    pub inherits_environment: bool,
    /// Bytes that are kept of each output stream.
    pub log_limit: u64,
}
