//! The guards of `hub`.

use super::Guard;

pub(super) const GUARDS: &[Guard] = &[];
