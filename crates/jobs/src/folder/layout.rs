//! Folders of the first format, in which the work's files lay beside unhang's: they get a folder of their own for the work (F-02).
//!
//! Theory of operation. Every file that is not unhang's is moved into a folder under another name, which is then put in its place. A file
//! says how far that is. A process that finds the move broken off goes on with it.
//!
//! Invariant: only the holder of the job's lock does this, while the work does not run.

use std::{
    fs,
    io::{self, ErrorKind},
    path::Path,
    time::Duration,
};

use super::{
    CANCEL, Durability, EXIT, FileError, IN_STORE, JobFolder, LAUNCH, LEASE, LOCK, OWN_WORK_FOLDER, RECORD,
    RUN, STDERR, STDOUT, UNHELD, WORK, WorkFolder, is_there, make_folder, replace,
};
use crate::wait::{WaitLimit, look_until};

/// The file that says how far a folder of the first format is on its way to the second.
const LAYOUT: &str = "layout";
/// Its content while files are moved, and when the work has its own folder.
const MOVING: &str = "moving\n";
const MOVED: &str = "moved\n";
/// The folder of the work's files until all are there.
const GATHERING: &str = ".work";

/// The time that a reader waits for files that are being moved, which takes moments, and the pause between two looks.
const MOVE_LIMIT: Duration = Duration::from_secs(1);
const MOVE_LOOK: Duration = Duration::from_millis(1);

/// The files that stay where they are. So do names that begin with one of these and a dot.
const OURS: [&str; 12] =
    [RECORD, LAUNCH, LEASE, IN_STORE, LOCK, RUN, EXIT, CANCEL, UNHELD, STDOUT, STDERR, LAYOUT];

fn is_ours(name: &str) -> bool {
    let name = name.strip_prefix('.').unwrap_or(name);
    OURS.iter().any(|own| name.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
}

impl JobFolder {
    /// Returns whether the work of a job of the first format has got a folder of its own.
    pub(crate) fn is_moved(&self) -> bool {
        self.text(LAYOUT, MOVED.len()).as_deref() == Some(MOVED)
    }

    /// Returns the folder of the work, once nobody moves its files. If that takes long, returns it as it is, since the mover may have been
    /// killed.
    pub(crate) fn settled_work(&self, format: u32) -> WorkFolder {
        let is_moving = || self.text(LAYOUT, MOVING.len()).as_deref() == Some(MOVING);
        if format < OWN_WORK_FOLDER {
            let _settled =
                look_until(WaitLimit::after(MOVE_LIMIT), MOVE_LOOK, || -> io::Result<Option<()>> {
                    Ok((!is_moving()).then_some(()))
                });
        }
        self.work(format)
    }

    /// Moves all files of the work of a job of the first format into a folder of its own. The caller holds the job's lock, and the work
    /// does not run.
    pub(crate) fn move_work(&self) -> Result<(), FileError> {
        self.check_not_replaced()?;
        let (gathering, work) = (self.file(GATHERING), self.file(WORK));
        let mark = |far: &str| replace(self.path(), LAYOUT, far.as_bytes(), Durability::Memory);
        let is_gathered = match self.text(LAYOUT, MOVING.len()).as_deref() {
            Some(MOVED) => return Ok(()),
            // Only the last of the steps may be missing.
            Some(MOVING) => !is_there(&gathering) && is_there(&work),
            _ => {
                make_folder(&gathering, true)?;
                mark(MOVING)?;
                false
            }
        };
        if !is_gathered {
            self.gather(&gathering)
                .and_then(|()| fs::rename(&gathering, &work))
                .map_err(|error| FileError::system("cannot move the work's files into", &work, error))?;
        }
        mark(MOVED)
    }

    fn gather(&self, into: &Path) -> io::Result<()> {
        for entry in fs::read_dir(self.path())? {
            let entry = entry?;
            let name = entry.file_name();
            let stays = name.to_str().is_some_and(|name| is_ours(name) || name == GATHERING);
            match if stays { Ok(()) } else { fs::rename(entry.path(), into.join(&name)) } {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f_02_files_are_moved_once_whatever_was_broken_off_and_whatever_they_are_called() {
        let home = tempfile::tempdir().unwrap();
        for broken_off in 0..4 {
            let path = home.path().join(format!("job{broken_off}"));
            fs::create_dir_all(path.join("work/deep")).unwrap();
            for name in
                ["input.json", "results.json", "work/deep/own", "lock", "stdout.log", "exit.json", ".x"]
            {
                fs::write(path.join(name), name).unwrap();
            }
            let folder = JobFolder::at(&path);
            if broken_off > 0 {
                fs::create_dir(path.join(GATHERING)).unwrap();
            }
            if broken_off > 1 {
                fs::write(path.join(LAYOUT), MOVING).unwrap();
                fs::rename(path.join("input.json"), path.join(GATHERING).join("input.json")).unwrap();
            }
            if broken_off > 2 {
                folder.gather(&path.join(GATHERING)).unwrap();
                fs::rename(path.join(GATHERING), path.join(WORK)).unwrap();
            }
            assert!(!folder.is_moved());
            assert_eq!(folder.settled_work(1).path(), path, "who looks meanwhile does not wait for ever");
            folder.move_work().unwrap();
            assert_eq!(folder.settled_work(1).path(), path.join(WORK));
            folder.move_work().unwrap();
            assert!(folder.is_moved());
            for name in ["work/input.json", "work/results.json", "work/work/deep/own", "lock", "work/.x"] {
                assert!(path.join(name).exists(), "{broken_off}: {name}");
            }
            assert!(!path.join(GATHERING).exists() && !path.join("results.json").exists());
        }
    }
}
