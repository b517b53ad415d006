//! The presence of the data folder. Somebody may remove it or move it while jobs run.

use std::{fs, io::ErrorKind, time::Duration};

use super::DataFolder;

/// The time that a missing data folder has to come back, since somebody may be moving it.
pub(crate) const AWAY_LIMIT: Duration = Duration::from_secs(10);

impl DataFolder {
    /// Returns whether no data folder lies in its place: nothing, or a folder without jobs, as a mount point is. An error of the disk does not
    /// count as that.
    pub(crate) fn is_away(&self) -> bool {
        match fs::metadata(self.jobs()) {
            Ok(found) => !found.is_dir(),
            Err(error) => matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
        }
    }
}
