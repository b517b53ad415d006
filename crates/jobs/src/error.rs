//! The errors of the engine, each as a sentence for a person.

use std::{path::PathBuf, sync::Arc, time::Duration};

use unhang_proc::spawn::SpawnError;

use crate::{
    document::Field,
    folder::{ARGUMENTS, FileError},
    id::JobId,
    record::JobState,
    room::RoomShortage,
    store::StoreError,
};

/// The reason why the engine did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// There is no such job.
    #[error("there is no job {0}")]
    NoSuchJob(JobId),
    /// The job existed a moment ago. Only ended jobs are removed, so it has ended.
    #[error("there is no job {0} any more: it has ended, and it was removed before unhang saw how it ended")]
    Removed(JobId),
    /// Another job has this id.
    #[error("the id {0} is taken by another job")]
    IdTaken(JobId),
    /// The job has ended already.
    #[error("job {id} has ended already: {status}")]
    HasEnded {
        /// The job.
        id: JobId,
        /// The job's final state.
        status: JobState,
    },
    /// The job has not ended yet.
    #[error("job {id} has not ended yet, it is {status}; cancel it or wait for it first")]
    HasNotEnded {
        /// The job.
        id: JobId,
        /// The job's state.
        status: JobState,
    },
    /// The machine has no room for another job.
    #[error("{reason}; {}", reason.remedy(running))]
    NoRoom {
        /// The resource that is too scarce.
        reason: RoomShortage,
        /// The jobs that run.
        running: Vec<JobId>,
    },
    /// A state field that the job needs was never set.
    #[error(
        "the state field `{0}` is missing, and the job needs it: run the tool that produces it, or set it"
    )]
    MissingState(Field),
    /// An input is larger than the limit.
    #[error(
        "the input {} has {bytes} bytes, and an input of a job has {} MiB at most; give the job its path instead",
        path.display(), limit >> 20
    )]
    InputTooLarge {
        /// The input file.
        path: PathBuf,
        /// The size of the file.
        bytes: u64,
        /// The largest size of an input.
        limit: u64,
    },
    /// The files of the job could not be made, or their sources could not be read.
    #[error("{0}")]
    Serialization(#[source] FileError),
    /// The command is empty.
    #[error("the command is empty")]
    NoCommand,
    /// An input or the result has the name of the file to which the arguments are written.
    #[error(
        "`{ARGUMENTS}` cannot be an input or a result of a job with arguments: unhang writes the \
        arguments to that file"
    )]
    ArgumentsTaken,
    /// The command cannot be started.
    #[error(transparent)]
    Command(SpawnError),
    /// The limit of file sizes is too low for the database.
    #[error(
        "{limit}, and the database {} needs {} MiB: raise the limit, for example with `ulimit -f unlimited`",
        database.display(), needed >> 20
    )]
    FileLimit {
        /// The limit, in words for a person.
        limit: String,
        /// The path of the database.
        database: PathBuf,
        /// The number of bytes to which the database may have to grow.
        needed: u64,
    },
    /// The log of a job is gone.
    #[error(
        "the log {} of job {id} is gone: something other than unhang removed it. `unhang job show {id}` has the job's record",
        path.display()
    )]
    LogGone {
        /// The job.
        id: JobId,
        /// The path of the log.
        path: PathBuf,
    },
    /// The folder of a job is gone, with its logs and results.
    #[error(
        "the folder {} of job {id} is gone, with its logs and results: something other than unhang removed it. `unhang job show {id}` \
         has the job's record",
        path.display()
    )]
    FolderGone {
        /// The job.
        id: JobId,
        /// The path of the folder.
        path: PathBuf,
    },
    /// The whole data folder is not where it was, so that nobody can see how the job ends.
    #[error(
        "job {id} cannot be followed any more, and its end is unknown: the data folder {} has been gone \
         for {} s, so something removed or moved it; move it back, or set UNHANG_HOME to its new path, \
         and ask again",
        path.display(), away.as_secs()
    )]
    DataFolderGone {
        /// The job.
        id: JobId,
        /// The path where the folder was.
        path: PathBuf,
        /// The time for which the folder has not been there.
        away: Duration,
    },
    /// A file could not be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The database could not be used.
    #[error(transparent)]
    Store(Arc<StoreError>),
    /// The disk took too long, so that nobody knows yet whether the job was accepted.
    #[error(
        "it is not certain yet that job {id} was accepted: the disk has not answered for {} s; ask for \
         the status of the job later",
        .waited.as_secs()
    )]
    Uncertain {
        /// The job.
        id: JobId,
        /// The time for which the caller waited for the answer.
        waited: Duration,
    },
    /// Other processes have put one database after another in the place of the one in which the job was noted.
    #[error("it is not certain yet that job {id} was accepted: {cause}; ask for the status of the job later")]
    Unconfirmed {
        /// The job.
        id: JobId,
        /// The trouble with the database.
        cause: Arc<StoreError>,
    },
    /// The disk took too long with a request.
    #[error(
        "the data folder {} has not answered for {} s: its disk hangs, or another process holds a lock \
         in it; check whether you can read it, and ask again",
        folder.display(), waited.as_secs()
    )]
    Late {
        /// The data folder.
        folder: PathBuf,
        /// The time for which the caller waited for the answer.
        waited: Duration,
    },
    /// The job did not end in time although it was told to.
    #[error("job {id} has not ended within {} s after unhang told it to; ask for its status later", .waited.as_secs())]
    StillEnding {
        /// The job.
        id: JobId,
        /// The time for which the caller waited for the end.
        waited: Duration,
    },
    /// The job was told to end, and its end cannot be written down.
    #[error(
        "job {id} was told to end, but its end cannot be recorded: {cause}; make room on the disk, and \
         unhang records the end by itself or with the next `unhang job cancel {id}`"
    )]
    EndUnwritten {
        /// The job.
        id: JobId,
        /// The cause in words.
        cause: String,
    },
    /// A call has ended, and its end cannot be written down for lack of room. The call is still held.
    #[error(
        "job {id} has ended, and its end cannot be recorded: {cause}; make room on the disk, and unhang \
         records the end"
    )]
    NoRoomForEnd {
        /// The job.
        id: JobId,
        /// The cause in words.
        cause: String,
    },
    /// This process holds the call no longer.
    #[error("this process does not hold job {0} any more")]
    NotHeld(JobId),
    /// The call cannot have a keeper, because nothing would end it if the keeper stood still.
    #[error(
        "job {0} has no time limit, so it cannot be kept for another process: give the call a time limit"
    )]
    NoTimeLimit(JobId),
    /// The process that was to stand by for a call has gone, or cannot be seen from here.
    #[error("job {id} cannot be kept by process {keeper}: there is no such process here; start another one")]
    KeeperGone {
        /// The job.
        id: JobId,
        /// The number of the process.
        keeper: u32,
    },
    /// Another process stands by for the call, or none.
    #[error("job {id} {}", not_kept(*keeper, *other))]
    NotKept {
        /// The job.
        id: JobId,
        /// The number of the process that was taken for the keeper, if one was named.
        keeper: Option<u32>,
        /// The number of the process that stands by.
        other: Option<u32>,
    },
    /// The holder of a call did not go in time.
    #[error(
        "job {id} cannot be resumed: process {holder} still held it after {} s; end that process, or try \
         again once it has ended",
        .waited.as_secs()
    )]
    StillHeld {
        /// The job.
        id: JobId,
        /// The number of the process that holds the call.
        holder: u32,
        /// The time for which the caller waited.
        waited: Duration,
    },
    /// The store of many machines could not be asked, or refused.
    #[error("{message}")]
    Shared {
        /// The error of the store, which names it.
        message: String,
    },
    /// The store of many machines broke off during a submission.
    #[error(
        "it is not certain that job {id} was accepted: {message}; ask for the status of the job when the store is back"
    )]
    SharedUncertain {
        /// The job.
        id: JobId,
        /// The error of the store, which names it.
        message: String,
    },
    /// The job is a worker's copy of a job of a store of many machines.
    #[error(
        "job {0} belongs to the worker on this data folder, which removes it as soon as the store has its end; \
         start `unhang worker` here"
    )]
    OfWorker(JobId),
    /// A call has ended on this machine, and the store of many machines does not have its end yet.
    #[error(
        "job {0} has ended here, and the job store does not have its end yet: `unhang serve` or `unhang worker` on \
         this data folder brings it there; remove the job after that"
    )]
    NotInStore(JobId),
    /// The process that has the job in a store of many machines is silent.
    #[error(
        "job {id} goes on for now: {worker}, which has it, has been silent for {} s; the wish to cancel it stays in \
         the job store, and {worker} carries it out when it is back", .silent_for.as_secs()
    )]
    CancelWaits {
        /// The job.
        id: JobId,
        /// The worker, or the machine of a call.
        worker: String,
        /// The time since its last heartbeat.
        silent_for: Duration,
    },
    /// A job of a store of many machines cannot have this.
    #[error("a job of a store that many machines share {0}")]
    NotShared(&'static str),
    /// The engine is being closed.
    #[error("the job engine is shutting down")]
    Closed,
}

impl JobError {
    /// Returns the error for a caller that has seen the job before: a missing job means that it has ended and was removed.
    #[must_use]
    pub fn of_known(self) -> Self {
        match self {
            Self::NoSuchJob(id) => Self::Removed(id),
            error => error,
        }
    }

    /// Returns whether the action may succeed later, once somebody has made room on the disk.
    #[must_use]
    pub fn is_for_lack_of_room(&self) -> bool {
        match self {
            Self::File(error) => error.is_for_lack_of_room(),
            Self::Store(error) => error.is_for_lack_of_room(),
            Self::NoRoomForEnd { .. } => true,
            _ => false,
        }
    }

    /// Returns whether the disk or the database caused the error, so that the action may succeed later.
    #[must_use]
    pub fn is_of_the_disk(&self) -> bool {
        matches!(
            self,
            Self::File(_)
                | Self::Store(_)
                | Self::NoRoomForEnd { .. }
                | Self::Late { .. }
                | Self::DataFolderGone { .. }
        )
    }

    /// Returns whether files caused the error, and not the database. Then it concerns only the job that the files belong to.
    pub(crate) fn is_of_files(&self) -> bool {
        match self {
            Self::File(_) => true,
            Self::Store(error) => matches!(**error, StoreError::File(_)),
            _ => false,
        }
    }
}

/// Says which process does not stand by for a job, and which one does.
fn not_kept(keeper: Option<u32>, other: Option<u32>) -> String {
    match (keeper, other) {
        (Some(keeper), Some(other)) => {
            format!(
                "is kept by process {other} and not by process {keeper}, so it cannot be resumed for that one"
            )
        }
        (Some(keeper), None) => {
            format!("is not kept by process {keeper}, nor by any other, so it cannot be resumed")
        }
        (None, _) => "has no process that stands by for it, so nobody can go on with it".to_owned(),
    }
}

impl From<StoreError> for JobError {
    fn from(error: StoreError) -> Self {
        Self::Store(Arc::new(error))
    }
}
