//! The store of jobs that many machines share, in a PostgreSQL that somebody already runs (version 13 or later).
//!
//! [`PostgresStore`] keeps the promises of [`JobStore`](unhang_jobs::store::JobStore) with transactions of the database. It knows nothing of
//! MCP, and reads no environment: the caller hands in what it found there ([`PasswordSources`]).
//!
//! Invariants
//!
//! - A password is in memory alone: neither errors, logs nor `Debug` show it.
//! - A session of the database keeps nothing from one transaction to the next: no prepared statement, no lock, no setting. So everything
//!   works through a pooler that hands out connections for one transaction.
//! - Each operation has a time limit, and can be repeated: a caller that did not learn the outcome asks again.

mod address;
mod connection;
mod connection_pool;
mod documents;
mod ended_jobs;
mod error;
mod files;
mod hints;
mod leases;
mod machine_calls;
mod outputs;
mod password_file;
mod schema;
mod shared_jobs;
mod store;
mod sweeper;
mod tls;
mod workers;

pub use unhang_artifacts as artifacts;

pub use self::{
    address::{AddressError, PasswordSources, StoreAddress},
    documents::{DocumentChange, StateDocuments},
    error::PostgresError,
    files::{ARTIFACT_INLINE, ARTIFACT_MAX, FilePlace, SharedFiles},
    hints::{ListenerEnd, StoreHint, listen_for_hints},
    leases::{JobHeartbeat, LeaseLengths, LeaseRenewal, LeaseRequest, LeasedJob, SilentLease},
    machine_calls::MachineCalls,
    outputs::LogExtent,
    shared_jobs::PostgresJobs,
    store::{PostgresStore, SharedOrders, WorkerClaim},
    sweeper::LeaseSweeper,
    workers::{KnownWorker, WorkerList, WorkerNote},
};
