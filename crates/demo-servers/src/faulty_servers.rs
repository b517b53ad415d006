//! The servers of the demonstration, one file each, and their table.

mod dies_every_call;
mod leaves_daemon;
mod never_answers;
mod slow_answers;
mod stderr_flood;
mod stdin_thief;
mod stdout_noise;
mod tee;
pub mod well_behaved;

use crate::entry::{FaultyProgram, table};

/// Every one of them, sorted by name.
pub const ALL: &[FaultyProgram] = table!(
    Server in "faulty_servers":
    dies_every_call,
    leaves_daemon,
    never_answers,
    slow_answers,
    stderr_flood,
    stdin_thief,
    stdout_noise,
    tee,
    well_behaved,
);
