//! Measurements on the disk on which jobs lie.
//!
//! Invariant: the folder lies where jobs would, because the disk decides the cost. Every failure is reported, with the place of the data.

use std::{env, path::Path};

use unhang::{exit, process::identity::ask_for_short_turns};
use unhang_terminal::{output, progress};
use unhang_zoo::load::JobLoadError;

/// Measures `what` in a new folder, in the place where jobs would lie.
///
/// # Errors
///
/// Fails with the exit code if it cannot be measured.
pub(super) fn in_data_folder<T>(
    what: &str,
    home: Option<&Path>,
    measure: impl FnOnce(&Path) -> Result<T, JobLoadError>,
) -> Result<T, u8> {
    let usual = || env::home_dir().map(|home| home.join(".local/state/unhang"));
    let Some(folder) = home.map(Path::to_owned).or_else(usual) else {
        output::error(&format!("{what} need a data folder"), Some("name one with --home"));
        return Err(exit::USAGE);
    };
    // The measure is the delay of an answer, and not the delay until this client, between the jobs, gets to see it.
    ask_for_short_turns();
    let outcome = measure(&folder);
    progress::end();
    outcome.map_err(|error| match error {
        JobLoadError::Interrupted(interrupted) => {
            output::error("interrupted; nothing is left running", None);
            u8::try_from(128 + interrupted.signal).unwrap_or(exit::INTERRUPTED)
        }
        JobLoadError::Failed(error) => {
            let hint = format!("the data of the run was in {}; check its disk", folder.display());
            output::error(&format!("{what} could not be measured: {error}"), Some(&hint));
            exit::UNREACHABLE
        }
    })
}
