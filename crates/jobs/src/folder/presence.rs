//! Tells whether the data folder is where it was. Somebody may remove it or move it while jobs run.

use std::{fs, io::ErrorKind, time::Duration};

use super::DataFolder;

/// How long a data folder that is not where it was is given to come back, since somebody may be moving it.
pub(crate) const AWAY_LIMIT: Duration = Duration::from_secs(10);

impl DataFolder {
    /// Tells whether no folder lies in its place. An error of the disk does not say so.
    pub(crate) fn is_away(&self) -> bool {
        match fs::metadata(self.path()) {
            Ok(found) => !found.is_dir(),
            Err(error) => matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
        }
    }
}
