//! The store of many machines, as an engine asks it.
//!
//! Theory of operation. An engine that has such a store submits its jobs there, and a worker of some machine runs them. The engine asks the
//! store for all jobs that it does not have itself. Its own are the calls of its servers, which cannot move.
//!
//! Invariants
//!
//! - The methods block. The engine calls them on threads that may.
//! - Everything that a method has returned is durable.

use std::fmt::Debug;

use serde::Serialize;

use crate::{
    document::{DocumentEntry, Field},
    error::JobError,
    id::JobId,
    log::{LogPage, LogStream},
    record::{JobRecord, JobState},
    shared_function::FunctionName,
    shared_work::SharedWork,
    status::JobStatus,
    store::{JobOwnerFilter, KeptAsAccepted},
    timestamp::JobTimestamp,
};

/// The demands of a job on the worker that runs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The labels that the worker must have.
    pub labels: Vec<String>,
    /// The name under which workers know the work, if it is a function of the Python package.
    pub function: Option<FunctionName>,
    /// Whether the job may run again if its worker is lost.
    pub is_repeatable: bool,
    /// The most times that a repeatable job may be claimed.
    pub max_attempts: u32,
}

impl Default for Placement {
    fn default() -> Self {
        Self { labels: Vec::new(), function: None, is_repeatable: false, max_attempts: 3 }
    }
}

/// A job for the store.
#[derive(Clone, Debug)]
pub struct SharedJob {
    /// Everything about the job that may be shown.
    pub record: JobRecord,
    /// The work.
    pub work: SharedWork,
    /// The demands on its worker.
    pub placement: Placement,
    /// The files that are in the work's folder before it starts, by name.
    pub inputs: Vec<(String, Vec<u8>)>,
}

/// A job of a data folder that has ended, for the store.
#[derive(Clone, Debug)]
pub struct EndedJob {
    /// Everything about the job that may be shown.
    pub record: JobRecord,
    /// The files that its readers want, by name.
    pub files: Vec<(String, Vec<u8>)>,
    /// The logs in pages, each log in the order of its offsets.
    pub logs: Vec<(LogStream, LogPage<Vec<u8>>)>,
}

/// The name of a document of the named state in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentName {
    /// The owner of the document; `None` for those who are not told from one another, and for shared documents.
    pub owner: Option<String>,
    /// The field.
    pub field: Field,
}

/// A document of the named state, as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedDocument {
    /// The value as JSON.
    pub text: String,
    /// The number of times that the document was set.
    pub version: u64,
    /// The time when it was last set, by the clock of the store.
    pub updated_at: JobTimestamp,
}

/// A worker, as people see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorkerSummary {
    /// Its name, which no other worker has.
    pub name: String,
    /// The name of its machine.
    pub host: String,
    /// The version of its unhang.
    pub version: String,
    /// Its labels, those of unhang's own among them.
    pub labels: Vec<String>,
    /// The most jobs that it runs at the same time.
    pub slots: u32,
    /// The number of its jobs.
    pub running: u64,
    /// The seconds since its last heartbeat.
    pub heard_seconds_ago: u64,
    /// Whether it has missed its heartbeats.
    pub is_silent: bool,
    /// Whether it takes no more jobs.
    pub is_draining: bool,
}

/// The store of many machines; see the module.
pub trait SharedJobs: Debug + Send + Sync {
    /// Accepts a job. A repeated call for the same job changes nothing. Returns false if another job has the id.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write. Nothing was accepted then, or the same job may be submitted again.
    fn submit(&self, job: &SharedJob) -> Result<bool, JobError>;

    /// Returns the status of a job; `None` if the store does not know it.
    ///
    /// # Errors
    /// Fails if the store cannot be asked.
    fn status(&self, id: JobId) -> Result<Option<JobStatus>, JobError>;

    /// Returns the newest of these jobs, newest first, at most `limit`. Jobs that are starting or running count as one state.
    ///
    /// # Errors
    /// Fails if the store cannot be asked.
    fn newest(
        &self,
        state: Option<JobState>,
        whose: &JobOwnerFilter,
        limit: u32,
    ) -> Result<Vec<JobStatus>, JobError>;

    /// Ends a job that waits, or tells its worker to cancel it. Does nothing about a job that has ended.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write.
    fn cancel(&self, id: JobId) -> Result<(), JobError>;

    /// Reads bytes of a log, from `offset` on or from where the log begins, at most `max_bytes`.
    ///
    /// # Errors
    /// Fails if the store cannot be asked.
    fn log_page(
        &self,
        id: JobId,
        stream: LogStream,
        offset: u64,
        max_bytes: usize,
        has_ended: bool,
    ) -> Result<LogPage<Vec<u8>>, JobError>;

    /// Returns the offset of the next byte of a log.
    ///
    /// # Errors
    /// Fails if the store cannot be asked.
    fn log_end(&self, id: JobId, stream: LogStream) -> Result<u64, JobError>;

    /// Reads a file that the work has left; `None` if there is none.
    ///
    /// # Errors
    /// Fails if the store cannot be asked.
    fn file(&self, id: JobId, name: &str) -> Result<Option<Vec<u8>>, JobError>;

    /// Returns the jobs that ended before `moment`, oldest end first, at most `limit`.
    ///
    /// # Errors
    /// Fails if the store cannot be asked.
    fn ended_before(
        &self,
        moment: JobTimestamp,
        kept: KeptAsAccepted,
        limit: u32,
    ) -> Result<Vec<JobId>, JobError>;

    /// Removes a job that has ended. Returns false if it has not ended, or does not exist.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write.
    fn remove(&self, id: JobId) -> Result<bool, JobError>;

    /// Returns how many jobs there are of each state that has any. Jobs that are starting or running count as running.
    ///
    /// # Errors
    /// Fails if the store cannot be asked.
    fn counts(&self) -> Result<Vec<(JobState, u64)>, JobError>;

    /// Takes a job of a data folder that has ended, with its logs and files. A repeated call for the same job changes nothing. Returns false
    /// if another job has the id, or the same job with another end.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write. Nothing was taken then, or the same job may be given again.
    fn take(&self, job: &EndedJob) -> Result<bool, JobError>;

    /// Reads documents of the named state as they are at one moment, in the order of their names. A field that was never set has `None`.
    ///
    /// # Errors
    /// Fails if the store cannot be asked.
    fn documents(&self, names: &[DocumentName]) -> Result<Vec<Option<SharedDocument>>, JobError>;

    /// Replaces a document of the named state by this JSON. Returns the document's new time.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write.
    fn set_document(&self, name: &DocumentName, text: &str) -> Result<JobTimestamp, JobError>;

    /// Lists the documents of this owner by name.
    ///
    /// # Errors
    /// Fails if the store cannot be asked.
    fn list_documents(&self, owner: Option<&str>) -> Result<Vec<DocumentEntry>, JobError>;

    /// Returns all workers by name.
    ///
    /// # Errors
    /// Fails if the store cannot be asked.
    fn workers(&self) -> Result<Vec<WorkerSummary>, JobError>;
}
