//! The guards of `unhang`, in the order of its files.

use super::{SwitchedGuard, unit};

#[rustfmt::skip]
pub(super) const GUARDS: &[SwitchedGuard] = guards! {
    "lock-is-that-of-the-file" [6]
        "Whoever has the lock of a gateway has that of the file that others find, so that two never lead."
        unit("unhang", "sharing::meeting_point::tests::one_leads_and_the_next_when_it_has_gone");
};
