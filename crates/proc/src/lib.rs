//! Processes that cannot be left behind: one spawn, one drain, one stop ladder, deadlines, containment.
//!
//! This crate knows nothing of JSON or of MCP. It starts a server under a small *lifeline* process and hands the server's pipes to an async
//! owner. It drains the server's stderr, and ends the server's whole tree, however the owner itself ends. An owner may name a successor
//! that goes on with the server instead (see [`server`]).
//!
//! Invariants
//! - One function starts processes: [`spawn::spawn`]. Each process has a session or group of its own. All three standard streams are
//!   the null device, unless the caller says otherwise (G-11).
//! - Two other functions fork, and execute nothing: [`watch::divide`], and the start of a lifeline, which leaves its owner's chain of parents.
//! - Nothing here waits without a limit, except a [watcher](watch) for its own copy. Nothing waits on a pipe for the end of a process
//!   (processes.md 1.3).
//! - A process is signalled only in two cases. Either it is our own child and has not been reaped, so that its number cannot be given out
//!   again. Or its start time was compared through a pidfd immediately before.
//! - The descriptors that we inherited keep their flags: other processes share them.
//!
//! The code that depends on the system sits in the leaves `linux.rs` and `unix.rs`. The invariants are proven on Linux. Other Unix systems
//! have no subreaper and no cgroups, so a process that leaves its group between two looks can get away there.

#[cfg(windows)]
compile_error!(
    "unhang supervises Unix processes; a Windows port needs job objects in place of crates/proc/src/unix.rs"
);

mod awaited_change;
pub mod deadline;
pub mod descriptors;
pub mod drain;
pub mod file_events;
pub mod file_limit;
pub mod identity;
pub mod inherited;
pub mod ladder;
pub mod lifeline;
mod lifeline_process;
#[cfg(target_os = "linux")]
mod linux;
pub mod lock;
pub mod log_file;
pub mod lookup;
pub mod lossy;
pub mod outside;
pub mod pipe;
pub mod pressure;
mod rescue;
pub mod server;
pub mod shared_fate;
pub mod spawn;
pub mod surroundings;
pub mod survivors;
mod sweep;
mod table;
#[cfg(test)]
mod testing;
pub mod tree;
#[cfg(not(target_os = "linux"))]
mod unix;
pub mod unnamed_file;
pub mod watch;
#[cfg(target_os = "linux")]
use linux as system;
#[cfg(not(target_os = "linux"))]
use unix as system;

pub use pipe::take_standard_streams;
pub use rescue::SUPERVISOR_NAME;
pub use rescue::{adopt_orphans, reap_orphans};
pub use system::{give_back_code, give_back_large_blocks, make_private_file, punch_hole};
