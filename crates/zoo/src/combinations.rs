//! The servers with several vices at once, one file each, and their table.

mod answers_then_dies_in_the_next;
mod deaf_flood;
mod dies_held_back;
mod family_ignores_everything;
mod flood_while_dying;
mod floods_after_cancel;
mod half_line_then_dies;
mod prints_after_death;
mod restarts_dying;
mod restarts_refusing;
mod restarts_silent;
mod restarts_slowly;
mod stderr_flood_while_dying;

use unhang_demo_servers::entry::{FaultyProgram, table};

/// Every one of them, sorted by name.
pub(crate) const ALL: &[FaultyProgram] = table!(
    Combination in "combinations":
    answers_then_dies_in_the_next,
    deaf_flood,
    dies_held_back,
    family_ignores_everything,
    flood_while_dying,
    floods_after_cancel,
    half_line_then_dies,
    prints_after_death,
    restarts_dying,
    restarts_refusing,
    restarts_silent,
    restarts_slowly,
    stderr_flood_while_dying,
);
