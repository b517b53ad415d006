//! The presence of the data folder. Somebody may remove it or move it while jobs run.

use std::{fs, io::ErrorKind, path::Path, time::Duration};

use super::{DataFolder, JOBS};

/// The time that a missing data folder has to come back, since somebody may be moving it.
pub const AWAY_LIMIT: Duration = Duration::from_secs(10);

impl DataFolder {
    /// Returns whether no data folder lies in its place. See [`is_away`].
    pub(crate) fn is_away(&self) -> bool {
        is_away(self.path())
    }
}

/// Returns whether no data folder lies at this path: nothing, or a folder without jobs, as a mount point is. An error of the disk does not
/// count as that. Touches nothing.
#[must_use]
pub fn is_away(root: &Path) -> bool {
    match fs::metadata(root.join(JOBS)) {
        Ok(found) => !found.is_dir(),
        Err(error) => matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
    }
}
