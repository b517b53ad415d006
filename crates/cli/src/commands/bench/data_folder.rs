//! What is measured on the disk that jobs lie on.
//!
//! Invariant: the folder lies where jobs would, for what costs is the disk; whatever goes wrong is told, and where the data lay.

use std::path::Path;

use unhang::{exit, process::identity::ask_for_short_turns};
use unhang_zoo::load::JobLoadError;

use crate::{commands::engine::wanted_data_folder, output, progress};

/// Measures `what` in a folder of its own where jobs would lie.
///
/// # Errors
///
/// The exit code, where it cannot be measured.
pub(super) fn in_data_folder<T>(
    what: &str,
    measure: impl FnOnce(&Path) -> Result<T, JobLoadError>,
) -> Result<T, u8> {
    let folder = wanted_data_folder(what).map_err(|failure| {
        failure.print(None);
        failure.code
    })?;
    // What is measured is how late an answer comes, and not how late this client, between the jobs, gets to see it.
    ask_for_short_turns();
    let outcome = measure(&folder);
    progress::end();
    outcome.map_err(|error| match error {
        JobLoadError::Interrupted(interrupted) => {
            output::error("interrupted; nothing is left running", None);
            u8::try_from(128 + interrupted.signal).unwrap_or(exit::INTERRUPTED)
        }
        JobLoadError::Failed(error) => {
            let hint =
                format!("the data of the run lay in {}; see whether its disk is well", folder.display());
            output::error(&format!("{what} could not be measured: {error}"), Some(&hint));
            exit::UNREACHABLE
        }
    })
}
