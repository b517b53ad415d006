//! The guards of `wire`.

use super::{Guard, unit};

pub(super) const GUARDS: &[Guard] = &[Guard {
    name: "max-message",
    promises: &[3],
    about: "A line over the limit is skimmed as it passes and not kept, so no line can fill the memory.",
    test: unit("wire", "lines::tests::a_line_of_200_megabytes_stays_below_70_mebibytes"),
}];
