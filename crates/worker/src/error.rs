//! The reasons why a worker cannot begin.

use std::{io, path::PathBuf};

use unhang_jobs::error::JobError;
use unhang_postgres::PostgresError;

/// The reason why a worker did not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// Another worker has the data folder.
    #[error(
        "another worker runs on the data folder {}; stop it, or set UNHANG_HOME to another folder", .0.display()
    )]
    FolderTaken(PathBuf),
    /// A file of the worker cannot be used.
    #[error("the worker cannot use {}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// The store refuses this worker, and would refuse it again.
    #[error(transparent)]
    Store(#[from] PostgresError),
    /// The jobs of this machine cannot be used.
    #[error(transparent)]
    Jobs(#[from] JobError),
}
