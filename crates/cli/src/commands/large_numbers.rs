//! Refuses whole numbers that do not fit into 64 bits, where a user gives JSON.

use unhang::jobs::large_numbers::check;
pub(crate) use unhang::jobs::large_numbers::{in_json, told};
use unhang_terminal::failure::CommandFailure;

/// Refuses JSON that has such a number.
pub(crate) fn refuse(json: &[u8], location: &str) -> Result<(), CommandFailure> {
    check(json, location).map_err(|told| CommandFailure::usage(told, None))
}
