//! The configuration file `unhang.toml` (design 6): what is read from it, and what is wrong with it.
//!
//! [`Settings::read`] is a function of the file's text, its folder and the environment that is handed in; it opens no
//! file. [`file_schema`] describes the same keys to editors.
//!
//! Invariants
//! - An unknown key is a warning with a proposal; a wrong type, a missing key or a name that could leave its folder is an
//!   error with file, line and key. Nothing that was written is ignored in silence.
//! - Lengths of time and sizes have a unit.
//! - Every name from here that becomes part of a path has been checked to be one plain name.

mod expand;
mod keys;
mod section;
mod tool;

use std::{
    cell::RefCell,
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Map, Value};
use toml::de::DeTable;

use crate::{
    config::{JOB_FREE_DISK, JOB_LOG, JOB_MEMORY_PERCENT, JOB_RETENTION, JOBS_AT_LEAST},
    tools::{ArgumentSchema, Template},
};

pub use keys::file_schema;
pub use section::Complaint;

use keys::{CONCURRENT, FILE, JOBS, PERCENT};
use section::{Section, Source};

/// All that the file says, with the defaults in place of what it does not.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `[jobs]`.
    pub jobs: JobSettings,
    /// `[tools.*]`, in the order of the file.
    pub tools: Vec<ToolSettings>,
    /// `[servers.*]`, not looked into.
    pub servers: BTreeMap<String, Map<String, Value>>,
}

/// `[jobs]`: how background jobs are run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSettings {
    /// Jobs that run at the same time; without one, [`JobSettings::default_concurrency`].
    pub max_concurrent: Option<u32>,
    /// How long a finished job is kept.
    pub retention: Duration,
    /// Memory in use, in per cent, above which nothing new starts.
    pub memory_limit: u32,
    /// Free disk space, in bytes, below which nothing new starts.
    pub free_disk: u64,
    /// Bytes that are kept of each output stream.
    pub log_limit: u64,
    /// How long a job may run where its tool says nothing else.
    pub timeout: Option<Duration>,
}

impl Default for JobSettings {
    fn default() -> JobSettings {
        JobSettings {
            max_concurrent: None,
            retention: JOB_RETENTION,
            memory_limit: JOB_MEMORY_PERCENT,
            free_disk: JOB_FREE_DISK,
            log_limit: JOB_LOG,
            timeout: None,
        }
    }
}

impl JobSettings {
    /// Jobs at the same time on a machine with so many processors (J-129).
    pub fn default_concurrency(processors: usize) -> u32 {
        u32::try_from(processors / 2).unwrap_or(u32::MAX).max(JOBS_AT_LEAST)
    }
}

/// How a tool is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// With the id of a job, at once.
    Job,
    /// With the outcome, when the command ends.
    Child,
}

/// Where the results of a completed job go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateTarget {
    /// The state field.
    pub field: String,
    /// The part of the results that is taken, as a JSON pointer; empty for all of them.
    pub pointer: String,
}

/// `[tools.NAME]`: a command as a tool.
#[derive(Clone, Debug)]
pub struct ToolSettings {
    /// Its name, in the alphabet of MCP.
    pub name: String,
    /// What it does.
    pub description: Option<String>,
    /// The program and its arguments, with placeholders.
    pub command: Template,
    /// How it is answered.
    pub mode: Mode,
    /// What it may be called with.
    pub input_schema: ArgumentSchema,
    /// File names in the job's folder, each with the state field that is written into it.
    pub inputs: BTreeMap<String, String>,
    /// The file name of the results in the job's folder.
    pub results: Option<String>,
    /// Where the results go.
    pub state: Option<StateTarget>,
    /// How long it may run.
    pub timeout: Option<Duration>,
    /// Where it runs.
    pub folder: PathBuf,
    /// Its own variables.
    pub environment: BTreeMap<String, String>,
    /// Bytes that are kept of each output stream.
    pub log_limit: u64,
}

/// A file that was read, and what looked wrong in it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What it says.
    pub settings: Settings,
    /// What has no effect, or none yet.
    pub warnings: Vec<Complaint>,
}

impl Settings {
    /// Reads the text of a file. `file` is what complaints call it, `folder` the one it lies in, `lookup` the environment.
    ///
    /// # Errors
    /// The first thing that cannot be right.
    pub fn read(
        text: &str,
        file: &str,
        folder: &Path,
        lookup: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Loaded, Complaint> {
        let source = Source { file, text, lookup, warnings: RefCell::default() };
        let table = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            source.complaint(at, "", format!("is no valid TOML: {}", error.message()))
        })?;
        let settings = read(&source, table.get_ref(), folder)?;
        Ok(Loaded { settings, warnings: source.warnings.take() })
    }
}

fn read<'a>(source: &'a Source<'a>, table: &'a DeTable<'a>, folder: &Path) -> Result<Settings, Complaint> {
    let top = Section::open(source, String::new(), 0, table, FILE);
    let jobs = match top.get("jobs") {
        Some(field) => jobs(&field.section(JOBS)?)?,
        None => JobSettings::default(),
    };
    let tools = match top.get("tools") {
        Some(field) => {
            let tools = field.fields()?.into_iter();
            tools.map(|(name, field)| tool::read(name, &field, folder, &jobs)).collect::<Result<_, _>>()?
        }
        None => Vec::new(),
    };
    let mut servers = BTreeMap::new();
    if let Some(field) = top.get("servers") {
        for (name, server) in field.fields()? {
            servers.insert(name.to_owned(), server.object()?);
        }
        if !servers.is_empty() {
            source.warn(field.complaint("servers are not served by this build yet; tools and jobs are"));
        }
    }
    Ok(Settings { jobs, tools, servers })
}

fn jobs(section: &Section<'_>) -> Result<JobSettings, Complaint> {
    let default = JobSettings::default();
    let (retention, timeout) = (section.get("retention"), section.get("timeout"));
    let (free_disk, log_limit) = (section.get("free-disk"), section.get("log-limit"));
    let (max_concurrent, memory_limit) = (section.get("max-concurrent"), section.get("memory-limit"));
    Ok(JobSettings {
        max_concurrent: max_concurrent.map(|field| field.whole(CONCURRENT)).transpose()?,
        retention: retention.map_or(Ok(default.retention), |field| field.duration())?,
        memory_limit: memory_limit.map_or(Ok(default.memory_limit), |field| field.whole(PERCENT))?,
        free_disk: free_disk.map_or(Ok(default.free_disk), |field| field.size())?,
        log_limit: log_limit.map_or(Ok(default.log_limit), |field| field.size())?,
        timeout: timeout.map(|field| field.duration()).transpose()?,
    })
}

#[cfg(test)]
mod tests;
