//! Processes that cannot be left behind: one spawn, one drain, one stop ladder, deadlines, containment.
//!
//! This room knows nothing of JSON or of MCP. It starts a server under a small *lifeline* process, hands its pipes to an
//! async owner, drains its stderr, and ends its whole tree, by whatever cause the owner itself ends.
//!
//! Invariants
//! - One function starts processes: [`spawn::spawn`]. What it starts has a session or group of its own and, unless
//!   told otherwise, the null device for all three standard streams (G-11).
//! - One other function forks, and executes nothing: [`watch::divide`].
//! - Nothing here waits without a limit, but a [watcher](watch) for its own copy, and nothing waits on a pipe for the end of
//!   a process (processes.md 1.3).
//! - No process is signalled unless it is our own child that has not been reaped (its number cannot be given out again) or
//!   its start time was compared through a pidfd immediately before.
//! - The descriptors that we inherited keep their flags: other processes share them.
//!
//! What depends on the system sits in the leaves `linux.rs` and `unix.rs`. Linux is where it is proven; other Unix systems
//! have no subreaper and no cgroups, so that a process which leaves its group between two looks can get away there.

#[cfg(windows)]
compile_error!(
    "unhang supervises Unix processes; a Windows port needs job objects in place of crates/proc/src/unix.rs"
);

pub mod deadline;
pub mod descriptors;
pub mod drain;
pub mod file_limit;
pub mod identity;
pub mod inherited;
pub mod ladder;
pub mod lifeline;
#[cfg(target_os = "linux")]
mod linux;
pub mod lock;
pub mod log_file;
pub mod lookup;
pub mod lossy;
pub mod pipe;
pub mod pressure;
mod rescue;
pub mod server;
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
pub mod watch;
#[cfg(target_os = "linux")]
use linux as system;
#[cfg(not(target_os = "linux"))]
use unix as system;

pub use pipe::take_standard_streams;
pub use rescue::{adopt_orphans, reap_orphans};
pub use system::give_back_code;
