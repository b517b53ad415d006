//! The commands that misbehave as jobs, one file each, and their table.

mod children_print;
mod dies_by;
mod exits_with;
mod explains_its_failure;
mod floods;
mod half_a_result;
mod ignores_every_signal;
mod junk_output;
mod leaves_behind;
mod not_a_number;
mod odd_result;
mod outlives_its_starter;
mod reads_stdin;
mod slow;
mod tells_progress;

use unhang_demo_servers::entry::{FaultyProgram, table};

/// Every one of them, sorted by name.
pub(crate) const ALL: &[FaultyProgram] = table!(
    Job in "jobs":
    children_print,
    dies_by,
    exits_with,
    explains_its_failure,
    floods,
    half_a_result,
    ignores_every_signal,
    junk_output,
    leaves_behind,
    not_a_number,
    odd_result,
    outlives_its_starter,
    reads_stdin,
    slow,
    tells_progress,
);
