//! The errors of the shared store.
//!
//! Invariant: each error names the store, without its password, and says what to do if something can be done.

use std::{error::Error as _, time::Duration};

use tokio_postgres::error::SqlState;
use unhang_artifacts::ArtifactError;
use unhang_jobs::id::JobId;

/// The operation of a connection that is made.
pub(crate) const CONNECTED: &str = "connected";

/// The reason why the shared store did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostgresError {
    /// No connection to the database, or the connection broke.
    #[error(
        "the job store {store} cannot be reached ({detail}); check that the database runs and that this \
         machine may connect to it"
    )]
    Unreachable {
        /// The store.
        store: String,
        /// The words of the system.
        detail: String,
        /// Whether the database may have done the operation all the same, because the connection broke in the middle of it.
        may_be_done: bool,
    },
    /// The database did not answer in time.
    #[error(
        "the job store {store} did not answer within {} s when unhang {doing}; check the load of the database, \
         and locks that others hold there", waited.as_secs()
    )]
    TimedOut {
        /// The store.
        store: String,
        /// The operation, as the end of a sentence.
        doing: &'static str,
        /// The limit of the operation.
        waited: Duration,
    },
    /// The database refused user or password, or does not exist.
    #[error(
        "the job store {store} refused the login ({detail}); check user, password and database of the address: \
         a password that the address lacks comes from PGPASSWORD or the file PGPASSFILE"
    )]
    LoginRefused {
        /// The store.
        store: String,
        /// The words of the database.
        detail: String,
    },
    /// The two sides cannot agree on an encrypted connection.
    #[error(
        "the job store {store} cannot be reached over TLS ({detail}); `sslrootcert=FILE` in the address names the \
         authority of its certificate, and `sslmode=disable` connects without TLS"
    )]
    Tls {
        /// The store.
        store: String,
        /// The words of the TLS library.
        detail: String,
    },
    /// The user may not do what unhang needs.
    #[error(
        "the user of the job store {store} lacks a right ({detail}); the owner of the database can grant it: \
         unhang needs CREATE on the database at its first start. A user who did not make the tables needs USAGE on \
         the schema `unhang`, and SELECT, INSERT, UPDATE and DELETE on all tables in it"
    )]
    NoRight {
        /// The store.
        store: String,
        /// The words of the database.
        detail: String,
    },
    /// The tables were made by a newer unhang, which does not allow this one to use them.
    #[error(
        "the tables of the job store {store} have version {found} and serve versions from {serves_from} on, and \
         this unhang knows version {known}: use the newer unhang"
    )]
    NewerTables {
        /// The store.
        store: String,
        /// The version of the tables.
        found: i32,
        /// The oldest version that may use the tables.
        serves_from: i32,
        /// The version that this unhang knows.
        known: i32,
    },
    /// The store has a record of a kind that this unhang does not know.
    #[error(
        "a record in the job store {store} cannot be read ({detail}); if a newer unhang wrote it, use the newer \
         unhang"
    )]
    UnknownRecord {
        /// The store.
        store: String,
        /// The fault of the record.
        detail: String,
    },
    /// The record of a job cannot be written as JSON, as if a path in it is not text.
    #[error("the job store {store} cannot keep job {id}: {detail}")]
    Unstorable {
        /// The store.
        store: String,
        /// The job.
        id: JobId,
        /// The fault of the record.
        detail: String,
    },
    /// The disk of the database has no room.
    #[error("the job store {store} has no room ({detail}); make room on the disk of the database")]
    Full {
        /// The store.
        store: String,
        /// The words of the database.
        detail: String,
    },
    /// Others changed the same rows again and again.
    #[error(
        "the job store {store} broke off {tries} tries in a row when unhang {doing} ({detail}); try again when \
         the database is less busy"
    )]
    Conflict {
        /// The store.
        store: String,
        /// The operation, as the end of a sentence.
        doing: &'static str,
        /// The number of tries.
        tries: u32,
        /// The words of the database.
        detail: String,
    },
    /// A file is too large for the database.
    #[error(
        "the file {name} has {bytes} bytes, and the job store {store} takes {limit} (`artifact-max` in [jobs]); \
         an object store takes larger files (`artifacts` there)"
    )]
    FileTooLarge {
        /// The store.
        store: String,
        /// The file.
        name: String,
        /// Its size, in bytes.
        bytes: u64,
        /// The size of the largest file, in bytes.
        limit: u64,
    },
    /// A file is in an object store that this unhang was not told of.
    #[error(
        "the file {name} of job {id} is in the object store {location}, and this unhang has {}: write `artifacts = \
         \"{location}\"` into [jobs] of its unhang.toml", own.as_deref().unwrap_or("none")
    )]
    OtherArtifacts {
        /// The job.
        id: JobId,
        /// The file.
        name: String,
        /// The object store of the file.
        location: String,
        /// The object store of this unhang.
        own: Option<String>,
    },
    /// The object store did not do what it was asked for.
    #[error(transparent)]
    Artifacts(ArtifactError),
    /// The database returned another error.
    #[error("the job store {store} returned an error when unhang {doing}: {detail}")]
    Failed {
        /// The store.
        store: String,
        /// The operation, as the end of a sentence.
        doing: &'static str,
        /// The words of the database.
        detail: String,
    },
}

impl PostgresError {
    /// Returns whether the database may have done the operation all the same.
    #[must_use]
    pub fn may_be_done(&self) -> bool {
        match self {
            Self::Unreachable { may_be_done, .. } => *may_be_done,
            // A connection that never came up has done nothing.
            Self::TimedOut { doing, .. } => *doing != CONNECTED,
            _ => false,
        }
    }

    /// Returns whether the object store is at fault and not the database.
    #[must_use]
    pub fn is_of_artifacts(&self) -> bool {
        matches!(self, Self::Artifacts(_) | Self::OtherArtifacts { .. })
    }

    /// Returns the error of an operation that the connection had begun before it broke.
    pub(crate) fn begun(self) -> Self {
        match self {
            Self::Unreachable { store, detail, .. } => Self::Unreachable { store, detail, may_be_done: true },
            error => error,
        }
    }
}

/// The way in which a connection handles an error of the client library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorRemedy {
    /// The connection is of no use any more. Another one may be.
    Reconnect,
    /// The database broke the transaction off because of others, and asks for another try.
    Repeat,
    /// A table or a column is missing, so nothing was done. A new connection looks at the versions of the tables.
    LookAtTables,
    /// Another try would end the same way.
    Report,
}

/// Returns what to do about this error.
pub(crate) fn remedy(error: &tokio_postgres::Error) -> ErrorRemedy {
    match error.code() {
        None => ErrorRemedy::Reconnect,
        Some(code)
            if *code == SqlState::T_R_SERIALIZATION_FAILURE || *code == SqlState::T_R_DEADLOCK_DETECTED =>
        {
            ErrorRemedy::Repeat
        }
        // An administrator ended the session, or the database stops or starts.
        Some(code) if code.code().starts_with("57P") => ErrorRemedy::Reconnect,
        Some(code) if matches!(code.code(), "42P01" | "42703") => ErrorRemedy::LookAtTables,
        Some(_) => ErrorRemedy::Report,
    }
}

/// Turns an error of the client library into the error for the caller that did this.
pub(crate) fn explain(store: &str, doing: &'static str, error: &tokio_postgres::Error) -> PostgresError {
    let (store, detail) = (store.to_owned(), words(error));
    let Some(code) = error.code() else {
        // The library has no other way to tell one from the other.
        let is_tls = error.to_string().contains("TLS");
        if detail.contains("password") {
            return PostgresError::LoginRefused { store, detail };
        }
        return if is_tls {
            PostgresError::Tls { store, detail }
        } else {
            PostgresError::Unreachable { store, detail, may_be_done: false }
        };
    };
    match code.code() {
        // Invalid authorization, and a database that does not exist.
        "3D000" => PostgresError::LoginRefused { store, detail },
        class if class.starts_with("28") => PostgresError::LoginRefused { store, detail },
        "42501" => PostgresError::NoRight { store, detail },
        "53100" => PostgresError::Full { store, detail },
        // Too many connections, or a database that starts or stops.
        class if class.starts_with("53") || class.starts_with("57P") => {
            PostgresError::Unreachable { store, detail, may_be_done: false }
        }
        _ => PostgresError::Failed { store, doing, detail },
    }
}

/// Returns the message of the database, or else the innermost cause. A message has no values of rows.
pub(crate) fn words(error: &tokio_postgres::Error) -> String {
    if let Some(error) = error.as_db_error() {
        return error.message().to_owned();
    }
    let mut cause = error.source();
    while let Some(inner) = cause.and_then(std::error::Error::source) {
        cause = Some(inner);
    }
    cause.map_or_else(|| error.to_string(), ToString::to_string)
}
