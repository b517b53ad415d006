//! Where jobs are noted: a trait, and its implementation on the disk of one machine (`sqlite`).
//!
//! A store accepts jobs, gives each to one claimant at a time, and keeps how it ended. An implementation for many machines is a crate of its
//! own, so that this crate needs no network. All implementations pass the tests in `suite`.
//!
//! Invariants
//!
//! - Everything that a method has returned is durable. A caller may pass it on at once.
//! - Jobs are claimed in the order of their acceptance, and each by one claimant.
//! - A final state stays as it is, but for `lost` if the true end is found after all.
//! - The methods block. A caller that must not wait runs them on a thread of their own.

pub(crate) mod sqlite;
#[cfg(any(test, feature = "store-suite"))]
pub mod suite;
mod unreadable;

pub(crate) use self::sqlite::{
    AcceptedRows, ClockJump, JobAdmission, JobRow, ShimStarter, SqliteStore, StoreFigures, look_into,
    restore_files,
};
pub use self::{
    sqlite::{Rebuilt, StoreError},
    unreadable::report_unreadable,
};
use crate::{
    id::JobId,
    record::{JobRecord, JobState},
    timestamp::JobTimestamp,
};

/// A store of jobs; see the module for what every implementation promises.
pub trait JobStore {
    /// The identity of the process or worker that runs a job.
    type Claimant;
    /// The facts that a claimant needs to run a job, besides its record.
    type Orders;
    /// The reason why the store did not do what it was asked for.
    type Error: std::error::Error;

    /// Adds these jobs to the end of the queue, all or none. Returns for each whether the id is its own: false if another job has it. A job
    /// that was accepted before keeps its id, so a caller repeats a call whose outcome it does not know.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write.
    fn accept(&mut self, jobs: &[JobEntry<'_, Self::Orders>]) -> Result<Vec<bool>, Self::Error>;

    /// Gives the first job of the queue that this claimant may run to it. Returns `None` if there is none, or if `limit` jobs run already
    /// where the claimant runs its jobs.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write.
    fn claim(&mut self, claimant: &Self::Claimant, limit: Option<u32>) -> Result<Option<JobId>, Self::Error>;

    /// Brings a job to its final state. Returns false if it has one already, does not exist, or is another claimant's. A job that nobody has
    /// claimed has no claimant.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write.
    fn finish(&mut self, record: &JobRecord, claimant: Option<&Self::Claimant>) -> Result<bool, Self::Error>;

    /// Returns a job; `None` if it does not exist.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or if the record cannot be read.
    fn get(&mut self, id: JobId) -> Result<Option<StoredJob<Self::Claimant>>, Self::Error>;

    /// Returns the newest of these jobs, newest first, at most `limit`. Jobs that are starting or running count as one state here.
    ///
    /// # Errors
    /// Fails if the store cannot be asked.
    fn newest(
        &mut self,
        state: Option<JobState>,
        whose: &JobOwnerFilter,
        limit: u32,
    ) -> Result<Vec<StoredJob<Self::Claimant>>, Self::Error>;

    /// Returns the jobs that ended before `moment`, oldest end first, at most `limit`.
    ///
    /// # Errors
    /// Fails if the store cannot be asked.
    fn ended_before(
        &mut self,
        moment: JobTimestamp,
        kept: KeptAsAccepted,
        limit: u32,
    ) -> Result<Vec<StoredJob<Self::Claimant>>, Self::Error>;

    /// Returns how many jobs there are of each state that has any. Jobs that are starting or running count as running.
    ///
    /// # Errors
    /// Fails if the store cannot be asked.
    fn counts(&mut self) -> Result<Vec<(JobState, u64)>, Self::Error>;

    /// Removes a job that has ended. Returns false if it has not ended, or does not exist.
    ///
    /// # Errors
    /// Fails if the store cannot be asked, or cannot write.
    fn remove(&mut self, id: JobId) -> Result<bool, Self::Error>;
}

/// A job that a store is to accept.
#[derive(Debug)]
pub struct JobEntry<'a, Orders> {
    /// Everything about the job that may be shown.
    pub record: &'a JobRecord,
    /// The facts that a claimant needs, if they are not elsewhere.
    pub orders: Option<&'a Orders>,
}

/// A job as a store has it.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredJob<Claimant> {
    /// The job's place in the order of acceptance.
    pub sequence: i64,
    /// A number that grows with every change of the job.
    pub revision: i64,
    /// Whether somebody has claimed the job and it has not ended.
    pub is_active: bool,
    /// The claimant of an active job; a call has none.
    pub claimant: Option<Claimant>,
    /// The number of times that the job was claimed.
    pub claims: u32,
    /// Everything about the job that may be shown.
    pub record: JobRecord,
}

/// The owner whose jobs are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum JobOwnerFilter {
    /// All jobs.
    #[default]
    Anybodys,
    /// The jobs of this owner; `None` is the owner of the store.
    Of(Option<String>),
}

/// Whether jobs that were accepted with a retention are kept for as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptAsAccepted {
    /// The retention with which a job was accepted does not count.
    No,
    /// A job is kept at least as long as it was accepted for.
    AsAccepted,
}

/// Returns the name of a state in the tables of a store. They have one name for starting and running jobs.
#[must_use]
pub fn state_column(state: JobState) -> &'static str {
    match state {
        JobState::Starting | JobState::Running => "active",
        other => other.as_str(),
    }
}

/// Returns the state with this name in the tables of a store. A job that is starting or running counts as running.
#[must_use]
pub fn state_of_column(column: &str) -> JobState {
    // The tables have only states that have names, and `active`.
    column.parse().unwrap_or(JobState::Running)
}
