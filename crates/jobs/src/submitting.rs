//! The mark on a job that is being submitted: until it is gone, the folder belongs to its submitter and is not a job's.
//!
//! Theory of operation. A submission has its folder before it has its row, and a rebuild of the table of jobs takes folders for jobs. So
//! `launch.json` is read-only (0400) from its first moment on, and the submitter holds a lock on it:
//! ```text
//! folder, inputs ─ launch.json, 0400, locked ─ row (commit) ─ 0600 ─ is it still the same database? ─ id goes out
//! ```
//!
//! If the database is another one, the process that made it may have passed by a marked folder: the submitter notes the row once more.
//! After that the orders have no mark, and the folder is in every table that is made from then on.
//!
//! The mark is a mode and not a file of its own. A file that is made and removed again would cost each submission a tenth of its time.
//!
//! Invariants
//!
//! - As long as the mark is held, only the submitter uses the folder, and only then it may remove it.
//! - The mark goes before the id goes out. A mark that is left, and that nobody holds, is that of a submitter that told nobody.
//! - A power failure may bring a mark back. So a mark of an earlier boot means nothing: the orders say in which boot they were submitted.

use std::{
    fs::{OpenOptions, symlink_metadata},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::PathBuf,
};

use rustix::fs::{Mode, fchmod};
use unhang_proc::{
    identity::{boot_id, is_same_boot},
    lock::{Lock, is_held},
};

use crate::{
    folder::{EXIT, FileError, JobFolder, LAUNCH, RECORD, RUN},
    launch::LaunchOrders,
};

/// The file mode of orders that are being submitted.
const SUBMITTING: u32 = 0o400;

/// A mark that is held. If it is dropped and not removed, as when its holder is killed, it says that the submission came to nothing.
#[derive(Debug)]
pub(crate) struct SubmissionMark {
    path: PathBuf,
    lock: Lock,
}

impl SubmissionMark {
    /// Writes the orders into a folder that has none, marked as its submitter's.
    pub(crate) fn put(folder: &JobFolder, orders: &str) -> Result<Self, FileError> {
        let path = folder.file(LAUNCH);
        let put = || -> io::Result<Lock> {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(SUBMITTING).open(&path)?;
            let lock = Lock::try_take_open(file.try_clone()?.into())?;
            file.write_all(orders.as_bytes())?;
            lock.ok_or_else(|| io::ErrorKind::WouldBlock.into())
        };
        match put() {
            Ok(lock) => Ok(Self { path, lock }),
            Err(error) => Err(FileError::system("cannot write", &path, error)),
        }
    }

    /// Removes the mark. From now on the folder is a job's.
    pub(crate) fn remove(self) {
        // The job may have ended already, and its orders may be gone: the mode is changed through the descriptor.
        if let Err(error) = fchmod(&self.lock, Mode::RUSR | Mode::WUSR) {
            tracing::warn!("cannot change the mode of {}: {error}", self.path.display());
        }
    }
}

/// Returns whether a living submitter has this folder.
pub(crate) fn is_being_submitted(folder: &JobFolder) -> bool {
    // The order matters: a submitter takes its mark away before it lets go of the lock.
    is_held(&folder.file(LAUNCH)).unwrap_or(false) && has_mark(folder)
}

/// Returns whether the orders that were just read in this folder belong to no job: they are being submitted, or were never accepted.
pub(crate) fn was_not_accepted(folder: &JobFolder) -> bool {
    // The contents are read first, then the lock, then the mode: a submitter changes them in the same order.
    let is_left = is_left(folder);
    let is_submitters = is_being_submitted(folder) || (is_left && has_mark(folder));
    // A submission that is refused loses its orders first, and a job that begins has more files before it loses them.
    let has_orders = folder.has(LAUNCH);
    let has_begun = [RECORD, RUN, EXIT].into_iter().any(|name| folder.has(name));
    !has_begun && (is_submitters || !has_orders)
}

fn has_mark(folder: &JobFolder) -> bool {
    let found = symlink_metadata(folder.file(LAUNCH));
    found.is_ok_and(|found| found.permissions().mode() & 0o777 == SUBMITTING)
}

/// Returns whether marked orders are of this boot, or have nothing in them yet.
fn is_left(folder: &JobFolder) -> bool {
    if symlink_metadata(folder.file(LAUNCH)).is_ok_and(|found| found.is_file() && found.len() == 0) {
        return true;
    }
    let Ok(Some(LaunchOrders { boot: Some(boot), .. })) = folder.read::<LaunchOrders>(LAUNCH) else {
        return false;
    };
    boot_id().is_ok_and(|own| is_same_boot(&boot, &own))
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, remove_file, set_permissions, write};

    use super::*;
    use crate::{folder::DataFolder, id::JobId};

    fn orders(boot: &str) -> String {
        let record = include_str!("../tests/format-1/runningaaaaa/job.json");
        let launch = serde_json::json!({
            "format": 1,
            "record": serde_json::from_str::<serde_json::Value>(record).unwrap(),
            "command": ["true"],
            "folder": "/",
            "environment": [],
            "boot": boot,
        });
        launch.to_string()
    }

    #[test]
    fn a_folder_is_no_job_until_its_submitter_has_removed_the_mark() {
        let root = tempfile::tempdir().unwrap();
        let folder = DataFolder::open(root.path()).unwrap().job(JobId::random().unwrap());
        folder.create().unwrap();
        let ours = orders(&boot_id().unwrap());
        let mark = SubmissionMark::put(&folder, &ours).unwrap();
        assert!(is_being_submitted(&folder) && was_not_accepted(&folder));
        assert!(SubmissionMark::put(&folder, &ours).is_err(), "they are there");
        mark.remove();
        let mode = symlink_metadata(folder.file(LAUNCH)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(!is_being_submitted(&folder) && !was_not_accepted(&folder));
        remove_file(folder.file(LAUNCH)).unwrap();
        assert!(was_not_accepted(&folder), "it is being removed");
        // As where its submitter was killed.
        drop(SubmissionMark::put(&folder, &ours).unwrap());
        assert!(!is_being_submitted(&folder) && was_not_accepted(&folder));
        write(folder.file(RUN), "{}").unwrap();
        assert!(!was_not_accepted(&folder), "it has begun, so it was accepted");
        remove_file(folder.file(RUN)).unwrap();
        // As after a power failure, which may have brought the mark back.
        remove_file(folder.file(LAUNCH)).unwrap();
        drop(SubmissionMark::put(&folder, &orders("another boot")).unwrap());
        assert!(!was_not_accepted(&folder));
    }

    /// Between the making of the file and its lock another process may look.
    #[test]
    fn orders_with_nothing_in_them_are_a_submitters_while_they_are_marked() {
        let root = tempfile::tempdir().unwrap();
        let folder = DataFolder::open(root.path()).unwrap().job(JobId::random().unwrap());
        folder.create().unwrap();
        write(folder.file(LAUNCH), "").unwrap();
        assert!(!was_not_accepted(&folder));
        set_permissions(folder.file(LAUNCH), Permissions::from_mode(SUBMITTING)).unwrap();
        assert!(was_not_accepted(&folder));
    }
}
