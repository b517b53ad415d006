//! The folder of a run, with everything that is written: data of databases, logs, control files of clocks.
//!
//! # Invariants
//!
//! - The folder's name has the number of the process that made it. It is removed with this value.
//! - A folder whose process has gone, as after SIGKILL, is removed by the next run.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

/// The beginning of the name, before the number of the process.
const NAME: &str = "unhang-scale-";

/// The folder of a run.
#[derive(Debug)]
pub struct ScalePlace {
    folder: PathBuf,
}

impl ScalePlace {
    /// Makes the folder below this one, and removes those of runs that were killed.
    ///
    /// # Errors
    /// Fails if the folder cannot be made.
    pub fn make(parent: &Path) -> io::Result<Self> {
        let parent = parent.canonicalize()?;
        for entry in fs::read_dir(&parent)?.flatten() {
            let is_own = entry.metadata().is_ok_and(|made| made.uid() == geteuid().as_raw() && made.is_dir());
            if is_own && is_abandoned(&entry.file_name().to_string_lossy()) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        let folder = parent.join(format!("{NAME}{}", std::process::id()));
        // The database runs as another user, who passes through.
        DirBuilder::new().mode(0o711).create(&folder)?;
        Ok(Self { folder })
    }

    /// Returns a path in the folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl Drop for ScalePlace {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.folder).ok();
    }
}

/// Returns whether this is the name of a folder whose process has gone.
fn is_abandoned(name: &str) -> bool {
    let pid = name.strip_prefix(NAME).and_then(|pid| pid.parse::<u32>().ok());
    pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_dead_processes_are_abandoned() {
        assert!(is_abandoned("unhang-scale-4194999"), "no process has a number above the highest one");
        assert!(!is_abandoned(&format!("unhang-scale-{}", std::process::id())));
        for other in ["unhang-scale-", "unhang-scale-x", "unhang-scale-1x", "unhang-rounds-4194999"] {
            assert!(!is_abandoned(other), "{other}");
        }
    }

    #[test]
    fn a_folder_goes_with_its_value_and_one_that_was_left_goes_with_the_next_run() {
        let parent = std::env::temp_dir().join(format!("unhang-place-{}", std::process::id()));
        fs::create_dir_all(parent.join("unhang-scale-4194999/data")).expect("a folder is made");
        let place = ScalePlace::make(&parent).expect("a place");
        assert!(place.path("").exists() && !parent.join("unhang-scale-4194999").exists());
        drop(place);
        fs::remove_dir(&parent).expect("it is empty");
    }
}
