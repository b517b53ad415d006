//! The guards of `doctor`, in the order of its files.

use super::{SwitchedGuard, end_to_end};

#[rustfmt::skip]
pub(super) const GUARDS: &[SwitchedGuard] = guards! {
    "doctor-comes-home" [1]
        "An examination ends when its time is up, whatever the server does, and says so."
        end_to_end("doctor::it_comes_home_when_its_time_is_up");
};
