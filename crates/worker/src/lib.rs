//! A worker: claims jobs of a store that many machines share, runs them under the supervisors of its own machine, and tells the store how
//! they go.
//!
//! Theory of operation. A worker is an [`Engine`](unhang_jobs::engine::Engine) with a link to the store. It claims a job, notes the token of
//! the lease in its data folder, and gives the job to its engine under the same id. From there on the engine and its supervisors do
//! everything that they do for a job of one machine. Four loops keep the store up to date, each with a connection of its own, so that none
//! waits for another:
//!
//! ```text
//! claims      store ─ lease ─► note on the disk ─► engine
//! heartbeats  engine ─ progress ─► store ─ lease prolonged ─► supervisor       a wish to cancel ─► engine
//! deliveries  engine ─ log, files, end ─► store ─► note and local copy removed
//! sweeps      store ─ leases of silent workers ─► queued again, or lost
//! ```
//!
//! Calls of servers that became jobs cannot move. A [`CallMirror`] shows those of a data folder in the store.
//!
//! Invariants
//!
//! - A job is given to the engine only while its lease holds. The supervisor has the end of the lease from the beginning, and kills the
//!   work if no heartbeat prolongs it. The time is counted from before the request was sent.
//! - A job whose work may have begun is not begun again here, unless it may be repeated.
//! - What happened is on this machine's disk until the store has it. A store that is away delays the news and loses none.
//! - A worker that ends leaves its jobs to their supervisors. The next worker on the data folder goes on with them.

mod calls;
mod claims;
mod deliveries;
mod error;
mod functions;
mod heartbeats;
mod held;
mod hints;
mod identity;
mod link;
mod notes;
mod sweeps;
mod uploads;
mod work;
mod worker;

pub use self::{
    calls::CallMirror,
    error::WorkerError,
    functions::PythonFunctions,
    identity::{WorkerIdentity, known_name},
    work::{AnyCommand, CommandEnvironment, WorkRefusal, WorkResolver},
    worker::{Worker, WorkerEnd, WorkerSettings},
};
