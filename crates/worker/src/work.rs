//! What a worker does for a job: it turns the words of the store into a command of its own machine.
//!
//! Invariant: the store names a tool, a function or a command, and never the environment. The worker has all values.

use std::{collections::BTreeMap, ffi::OsString, fmt::Debug, path::PathBuf};

use unhang_jobs::{
    folder::FileName,
    record::JobRecord,
    shared_work::{COMMAND_LABEL, SharedWork},
    submission::Submission,
};

/// Why a worker does not do the work of a job, as the end of a sentence about the job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WorkRefusal(pub String);

/// Turns shared work into commands.
pub trait WorkResolver: Debug + Send + Sync {
    /// Returns unhang's own labels that this worker has: the kinds of work that it does.
    fn own_labels(&self) -> Vec<String>;

    /// Returns the submission for a job. Its id, name, limits and owner are those of the record.
    ///
    /// # Errors
    /// Fails if this worker does not do such work, or cannot.
    fn submission(&self, record: &JobRecord, work: &SharedWork) -> Result<Submission, WorkRefusal>;
}

/// The variables that commands get on this machine.
#[derive(Clone, Debug, Default)]
pub struct CommandEnvironment {
    /// The variables that every command gets.
    pub usual: BTreeMap<OsString, OsString>,
    /// All variables of the worker. A command gets those that its submitter had, by their names.
    pub all: BTreeMap<OsString, OsString>,
}

/// Runs any command that somebody has submitted.
pub struct AnyCommand(pub CommandEnvironment);

/// Leaves out the environment.
impl Debug for AnyCommand {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("AnyCommand").finish_non_exhaustive()
    }
}

impl WorkResolver for AnyCommand {
    fn own_labels(&self) -> Vec<String> {
        vec![COMMAND_LABEL.to_owned()]
    }

    fn submission(&self, record: &JobRecord, work: &SharedWork) -> Result<Submission, WorkRefusal> {
        let SharedWork::Command(command) = work else {
            return Err(WorkRefusal("this worker runs commands and no tools".to_owned()));
        };
        let folder = existing_folder(record)?;
        let mut submission = submission_of(record, command.clone(), folder)?;
        submission.environment = self.0.usual.clone().into_iter().collect();
        let named =
            record.variables.iter().filter_map(|name| self.0.all.get_key_value(&OsString::from(name)));
        submission.private_environment = named.map(|(name, value)| (name.clone(), value.clone())).collect();
        Ok(submission)
    }
}

/// Returns the working folder that the record names, which has to exist on this machine.
fn existing_folder(record: &JobRecord) -> Result<PathBuf, WorkRefusal> {
    if record.folder.is_dir() {
        return Ok(record.folder.clone());
    }
    Err(WorkRefusal(format!(
        "its working folder {} does not exist on this worker: make it there, or submit the job from a folder \
         that all machines have",
        record.folder.display()
    )))
}

/// Makes a submission of this command with everything that the record says.
pub(crate) fn submission_of(
    record: &JobRecord,
    command: Vec<OsString>,
    folder: PathBuf,
) -> Result<Submission, WorkRefusal> {
    let results = record.results.as_deref().map(FileName::new).transpose();
    let results =
        results.map_err(|error| WorkRefusal(format!("its result file has no usable name: {error}")))?;
    Submission::new(command, folder)
        .map(|submission| Submission {
            id: record.job_id,
            name: record.name.clone(),
            tool: record.tool.clone(),
            owner: record.owner.clone(),
            results,
            timeout: record.timeout(),
            stop_grace: record.stop_grace(),
            log_limit: record.log_limit,
            ..submission
        })
        .map_err(|error| WorkRefusal(format!("its worker has no random source: {error}")))
}
