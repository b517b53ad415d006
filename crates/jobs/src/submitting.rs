//! The mark on a folder whose job is being submitted: until it is gone, the folder is its submitter's and no job's.
//!
//! Theory of operation. A submission has its folder before it has its row, and whoever makes the table of jobs anew takes folders for jobs.
//! So the submitter holds a lock in the folder from its beginning on:
//!
//! ```text
//! folder ─ mark, held ─ inputs, launch.json ─ row (commit) ─ mark removed ─ is it still the same database? ─ id goes out
//! ```
//!
//! Where the answer to the question is no, whoever made the other database may have passed by a marked folder: the submitter notes the
//! row once more. After that the folder has no mark, and is in every table that is made from then on.
//!
//! Invariants
//!
//! - As long as the mark is held nobody but the submitter takes the folder for anything, and only then it may remove it.
//! - The mark goes before the id goes out. One that is left, and that nobody holds, is that of a submitter that told nobody.
//! - A power failure may bring a mark back. So one of an earlier boot means nothing.

use std::{fs, io, path::PathBuf};

use unhang_proc::{
    identity::{boot_id, is_same_boot},
    lock::{Lock, is_held},
};

use crate::folder::{EXIT, FileError, JobFolder, LAUNCH, RECORD, RUN, SUBMITTING};

/// Bytes of the longest name of a boot.
const LONGEST_BOOT: usize = 256;

/// A mark that is held. Where it is dropped and not removed, as when its holder is killed, it says that nothing came of the submission.
#[derive(Debug)]
pub(crate) struct Mark {
    path: PathBuf,
    _lock: Lock,
}

impl Mark {
    /// Puts it into a folder that was just made, before anything else.
    pub(crate) fn put(folder: &JobFolder, boot: &str) -> Result<Self, FileError> {
        let path = folder.file(SUBMITTING);
        let failed = |error| FileError::system("cannot make", &path, error);
        // Nobody else looks for it before there are orders beside it.
        let lock = Lock::try_take(&path).map_err(failed)?;
        let lock = lock.ok_or_else(|| failed(io::ErrorKind::WouldBlock.into()))?;
        fs::write(&path, boot).map_err(failed)?;
        Ok(Self { path, _lock: lock })
    }

    /// From now on the folder is a job's.
    pub(crate) fn remove(self) {
        match fs::remove_file(&self.path) {
            // The job may have ended already, and its folder been tidied up.
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("cannot remove {}: {error}", self.path.display());
            }
            _ => {}
        }
    }
}

/// Whether a submitter that lives has this folder.
pub(crate) fn is_being_submitted(folder: &JobFolder) -> bool {
    is_held(&folder.file(SUBMITTING)).unwrap_or(false)
}

/// Whether the orders that were read in this folder a moment ago are no job's: they are being submitted, or were never accepted.
pub(crate) fn was_not_accepted(folder: &JobFolder) -> bool {
    let is_marked = is_being_submitted(folder) || is_left(folder);
    // A submission that is refused loses its orders first, and a job that begins has more files before it loses them.
    let has_orders = folder.has(LAUNCH);
    let has_begun = [RECORD, RUN, EXIT].into_iter().any(|name| folder.has(name));
    !has_begun && (is_marked || !has_orders)
}

/// Whether a submitter of this boot has left its mark.
fn is_left(folder: &JobFolder) -> bool {
    let Some(boot) = folder.text(SUBMITTING, LONGEST_BOOT) else { return false };
    boot_id().is_ok_and(|own| is_same_boot(&boot, &own))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{folder::DataFolder, id::JobId};

    #[test]
    fn a_folder_is_no_job_until_its_submitter_has_removed_the_mark() {
        let root = tempfile::tempdir().unwrap();
        let folder = DataFolder::open(root.path()).unwrap().job(JobId::random().unwrap());
        folder.create().unwrap();
        let mark = Mark::put(&folder, &boot_id().unwrap()).unwrap();
        fs::write(folder.file(LAUNCH), "{}").unwrap();
        assert!(is_being_submitted(&folder) && was_not_accepted(&folder));
        mark.remove();
        assert!(!is_being_submitted(&folder) && !was_not_accepted(&folder));
        // As where its submitter was killed.
        let mark = Mark::put(&folder, &boot_id().unwrap()).unwrap();
        drop(mark);
        assert!(was_not_accepted(&folder));
        fs::write(folder.file(RUN), "{}").unwrap();
        assert!(!was_not_accepted(&folder), "it has begun, so it was accepted");
        fs::remove_file(folder.file(RUN)).unwrap();
        // As after a power failure, which may have brought it back.
        fs::write(folder.file(SUBMITTING), "another boot").unwrap();
        assert!(!was_not_accepted(&folder));
        fs::remove_file(folder.file(LAUNCH)).unwrap();
        assert!(was_not_accepted(&folder), "it is being removed");
    }
}
