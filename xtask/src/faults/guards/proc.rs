//! The guards of `proc`.

use super::Guard;

pub(super) const GUARDS: &[Guard] = &[];
