//! Why the engine did not do what it was asked for, as a sentence for a person.

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

/// Why the engine did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// There is no such job.
    #[error("there is no job {0}")]
    NoSuchJob(JobId),
    /// It was there a moment ago, and only what has ended is removed.
    #[error(
        "there is no job {0} any more: it has ended, and it was removed before anybody here had seen how it ended"
    )]
    Removed(JobId),
    /// Another job has this id.
    #[error("the id {0} is taken by another job")]
    IdTaken(JobId),
    /// It has ended already.
    #[error("job {id} has ended already: {status}")]
    HasEnded {
        /// Which job.
        id: JobId,
        /// How.
        status: JobState,
    },
    /// It has not ended yet.
    #[error("job {id} has not ended yet, it is {status}; cancel it or wait for it first")]
    HasNotEnded {
        /// Which job.
        id: JobId,
        /// Where it is.
        status: JobState,
    },
    /// The machine has no room for another job.
    #[error("{reason}; {}", reason.remedy(running))]
    NoRoom {
        /// What there is too little of.
        reason: RoomShortage,
        /// The jobs that run.
        running: Vec<JobId>,
    },
    /// A state field that the job needs was never set.
    #[error(
        "the state field `{0}` is missing, and the job needs it: run the tool that produces it, or set it"
    )]
    MissingState(Field),
    /// An input is larger than one may be.
    #[error(
        "the input {} has {bytes} bytes, and an input of a job has {} MiB at most; give the job its path instead",
        path.display(), limit >> 20
    )]
    InputTooLarge {
        /// Which file.
        path: PathBuf,
        /// How large it is.
        bytes: u64,
        /// How large it may be.
        limit: u64,
    },
    /// The files of the job could not be made, or what they are made of could not be read.
    #[error("{0}")]
    Serialization(#[source] FileError),
    /// There is nothing to run.
    #[error("the command is empty")]
    NoCommand,
    /// An input or the result has the name of the file that its arguments are written to.
    #[error("`{ARGUMENTS}` can be no input and no result of a job with arguments: they are written there")]
    ArgumentsTaken,
    /// The command cannot be started.
    #[error(transparent)]
    Command(SpawnError),
    /// Files here may not grow large enough for the database.
    #[error(
        "{limit}, and the database {} needs {} MiB: raise it, as with `ulimit -f unlimited`",
        database.display(), needed >> 20
    )]
    FileLimit {
        /// The limit, as a person is told of it.
        limit: String,
        /// Which database.
        database: PathBuf,
        /// Bytes that it may have to grow to.
        needed: u64,
    },
    /// The log of a job is gone.
    #[error(
        "the log {} of job {id} is gone: something other than unhang removed it. `unhang job show {id}` has the job's record",
        path.display()
    )]
    LogGone {
        /// Which job.
        id: JobId,
        /// Which file.
        path: PathBuf,
    },
    /// The folder of a job is gone, with its logs and results.
    #[error(
        "the folder {} of job {id} is gone, with its logs and results: something other than unhang removed it. `unhang job show {id}` \
         has the job's record",
        path.display()
    )]
    FolderGone {
        /// Which job.
        id: JobId,
        /// Which folder.
        path: PathBuf,
    },
    /// The whole data folder is not where it was, so that nobody can see how the job ends.
    #[error(
        "job {id} cannot be followed any more, and its end is not known: the data folder {} has been gone for {} s, so something has removed \
         it or moved it away; move it back, or set UNHANG_HOME to the folder where it lies now, and ask again",
        path.display(), away.as_secs()
    )]
    DataFolderGone {
        /// Which job.
        id: JobId,
        /// Where the folder was.
        path: PathBuf,
        /// For how long it has not been there.
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
        "nobody knows yet whether job {id} was accepted: the disk has not answered for {} s; ask for its status later",
        .waited.as_secs()
    )]
    Uncertain {
        /// Which job.
        id: JobId,
        /// How long the answer was waited for.
        waited: Duration,
    },
    /// Others have put one database after another in the place of the one that the job was noted in.
    #[error("nobody knows yet whether job {id} was accepted: {cause}; ask for its status later")]
    Unconfirmed {
        /// Which job.
        id: JobId,
        /// What happened to the database.
        cause: Arc<StoreError>,
    },
    /// The disk took too long with what was asked for.
    #[error(
        "the data folder {} has not answered for {} s: its disk hangs, or another process holds a lock in it; see whether it can be \
         read, and ask again",
        folder.display(), waited.as_secs()
    )]
    Late {
        /// Which folder.
        folder: PathBuf,
        /// How long the answer was waited for.
        waited: Duration,
    },
    /// The job did not end in time although it was told to.
    #[error("job {id} has not ended within {} s; it was told to, ask for its status later", .waited.as_secs())]
    StillEnding {
        /// Which job.
        id: JobId,
        /// How long.
        waited: Duration,
    },
    /// The job was told to end, and nobody can write down that it has.
    #[error(
        "job {id} was told to end, and its end cannot be noted: {cause}; make room on the disk, and it is noted by itself or with the next \
         `unhang job cancel {id}`"
    )]
    EndUnwritten {
        /// Which job.
        id: JobId,
        /// What stands in the way.
        cause: String,
    },
    /// The engine is being closed.
    #[error("the job engine is shutting down")]
    Closed,
}

impl JobError {
    /// The same for whoever has seen the job before: that it is not there any more says that it has ended.
    #[must_use]
    pub fn of_known(self) -> Self {
        match self {
            Self::NoSuchJob(id) => Self::Removed(id),
            error => error,
        }
    }

    /// Whether files said no, and not the database: then it concerns the job alone whose files they are.
    pub(crate) fn is_of_files(&self) -> bool {
        match self {
            Self::File(_) => true,
            Self::Store(error) => matches!(**error, StoreError::File(_)),
            _ => false,
        }
    }
}

impl From<StoreError> for JobError {
    fn from(error: StoreError) -> Self {
        Self::Store(Arc::new(error))
    }
}
