//! Settings of a tool of ours: `[tools.NAME]` of the configuration file.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use serde_json::{Map, Value};
use unhang_jobs::{document::Field, folder::FileName, record::Patch, shared_jobs::Placement};

use super::{ArgumentSchema, CommandTemplate, service::SubmitRequest};

/// The way a tool is answered.
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
    /// The tool's name, in the alphabet of MCP.
    pub name: String,
    /// The description for clients.
    pub description: Option<String>,
    /// The program and its arguments, with placeholders.
    pub command: CommandTemplate,
    /// The way the tool is answered.
    pub mode: Mode,
    /// The schema of its arguments.
    pub input_schema: ArgumentSchema,
    /// Files in the folder of its work, each with the state field that is written into it.
    pub inputs: Vec<(FileName, Field)>,
    /// The file of the results in the folder of its work.
    pub results: Option<FileName>,
    /// The field of the named state that takes the results.
    pub state: Option<Patch>,
    /// The time that the command may run.
    pub timeout: Option<Duration>,
    /// The folder that the command runs in.
    pub folder: PathBuf,
    /// The command's own variables.
    pub environment: BTreeMap<String, String>,
    /// Whether the command gets all of our environment, and not a small part of it.
    pub inherits_environment: bool,
    /// The most bytes that are kept of each output stream.
    pub log_limit: u64,
    /// The demands of the tool on the worker that runs it, if machines share their jobs.
    pub placement: Placement,
}

impl ToolSettings {
    /// Makes the request for a job of this tool, with the arguments of a call that fit its schema.
    ///
    /// # Errors
    /// Fails if the command cannot be filled with the arguments.
    pub fn request(&self, arguments: Map<String, Value>) -> Result<SubmitRequest, String> {
        Ok(SubmitRequest {
            tool: self.name.clone(),
            command: self.command.fill(&arguments)?,
            folder: self.folder.clone(),
            environment: self.environment.clone(),
            inherits_environment: self.inherits_environment,
            arguments,
            inputs: self.inputs.clone(),
            results: self.results.clone(),
            state: self.state.clone(),
            timeout: self.timeout,
            log_limit: self.log_limit,
            placement: self.placement.clone(),
        })
    }
}
