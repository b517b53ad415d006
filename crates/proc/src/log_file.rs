//! A log on disk with a size that it never exceeds.
//!
//! Invariants: at most the cap lies on disk for one process and name, and the newest half of it is always there. A name never leads out of
//! the folder. Only logs of exactly this name are pruned, and none whose process lives.

use std::{
    ffi::OsString,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::SystemTime,
};

use rustix::{
    fs::OFlags,
    io::Errno,
    process::{Pid, getpid, test_kill_process},
};

/// The longest part of a file name that a server's name may make up; file systems allow 255 in all.
const LONGEST_NAME: usize = 100;

/// An open log. Each write goes to disk as it is. A [`LossyWriter`](crate::lossy::LossyWriter) around it protects the caller from a disk
/// that hangs.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    older: PathBuf,
    file: File,
    size: u64,
    half: u64,
}

impl LogFile {
    /// Opens `<folder>/<name>-<pid>.log`, and makes the folder (for the owner alone) if it is missing. The log keeps at most `cap` bytes.
    ///
    /// # Errors
    /// Fails with the system's error, and names the path.
    pub fn open(folder: &Path, name: &str, cap: u64) -> io::Result<Self> {
        make_folder(folder).map_err(|error| explain(&error, "making the log folder", folder))?;
        Self::open_at(folder.join(format!("{}-{}.log", sanitised(name), getpid().as_raw_nonzero())), cap)
    }

    /// Opens this very file, and makes it (for the owner alone) if it is missing. At most `cap` bytes are kept, in it and in a file of the
    /// same name with `.1` behind it.
    ///
    /// # Errors
    /// Fails with the system's error, and names the path. Also fails if something other than a file lies there: it cannot be put aside for
    /// another, and to open it might wait for somebody.
    pub fn open_at(path: PathBuf, cap: u64) -> io::Result<Self> {
        let opened = open(&path).and_then(|file| {
            let metadata = file.metadata()?;
            match metadata.is_file() {
                true => Ok((file, metadata.len())),
                false => Err(io::Error::other("it is not a file")),
            }
        });
        let (file, size) = opened.map_err(|error| explain(&error, "opening the log", &path))?;
        let mut older = OsString::from(&path);
        older.push(".1");
        Ok(Self { older: older.into(), path, file, size, half: (cap / 2).max(1) })
    }

    /// Returns the path of the file with the newest lines.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn rotate(&mut self) -> io::Result<()> {
        fs::rename(&self.path, &self.older)?;
        self.file = open(&self.path)?;
        self.size = 0;
        Ok(())
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if self.size > 0 && self.size.saturating_add(length) > self.half {
            self.rotate().map_err(|error| explain(&error, "rotating the log", &self.path))?;
        }
        // A piece longer than a half is cut; the caller comes again with the rest.
        let half = self.half;
        let room = usize::try_from(half).unwrap_or(usize::MAX).min(bytes.len());
        let count = self.file.write(bytes.get(..room).unwrap_or_default())?;
        self.size += u64::try_from(count).unwrap_or(0);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Removes old logs of this name, the oldest first, until `keep` are left. The logs of living processes stay.
///
/// # Errors
/// Fails if the folder cannot be read. A file that cannot be removed is left.
pub fn prune(folder: &Path, name: &str, keep: usize) -> io::Result<()> {
    let prefix = sanitised(name) + "-";
    let mut logs: Vec<(SystemTime, Pid)> = Vec::new();
    for entry in
        fs::read_dir(folder).map_err(|error| explain(&error, "reading the log folder", folder))?.flatten()
    {
        let file_name = entry.file_name();
        if let Some(pid) = file_name.to_str().and_then(|file_name| writer(file_name, &prefix))
            && let Ok(modified) = entry.metadata().and_then(|metadata| metadata.modified())
        {
            match logs.iter_mut().find(|(_, other)| *other == pid) {
                Some((newest, _)) => *newest = modified.max(*newest),
                None => logs.push((modified, pid)),
            }
        }
    }
    logs.sort_unstable_by_key(|(modified, _)| std::cmp::Reverse(*modified));
    for (_, pid) in logs.into_iter().skip(keep).filter(|(_, pid)| !is_alive(*pid)) {
        let path = folder.join(format!("{prefix}{}.log", pid.as_raw_nonzero()));
        // Another process may prune at the same time.
        let _ = fs::remove_file(path.with_extension("log.1"));
        let _ = fs::remove_file(path);
    }
    Ok(())
}

/// Returns when a log of this name was last written; `None` if there is none.
#[must_use]
pub fn last_written(folder: &Path, name: &str) -> Option<SystemTime> {
    let prefix = sanitised(name) + "-";
    let entries = fs::read_dir(folder).ok()?.flatten();
    let logs = entries.filter(|entry| {
        entry.file_name().to_str().is_some_and(|file_name| writer(file_name, &prefix).is_some())
    });
    logs.filter_map(|entry| entry.metadata().ok()?.modified().ok()).max()
}

/// Parses the number of the process whose log this is. Returns `None` if the log is not of this name: `a-` is not the prefix of
/// `a-b-12.log`, because the rest is not a number.
fn writer(file_name: &str, prefix: &str) -> Option<Pid> {
    let rest = file_name.strip_prefix(prefix)?;
    let digits = rest.strip_suffix(".log").or_else(|| rest.strip_suffix(".log.1"))?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Pid::from_raw(digits.parse().ok()?)
}

fn is_alive(pid: Pid) -> bool {
    test_kill_process(pid) != Err(Errno::SRCH)
}

/// Makes a name that is one part of a path and nothing else.
fn sanitised(name: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || matches!(character, '.' | '_' | '-');
    let name: String = name
        .chars()
        .take(LONGEST_NAME)
        .map(|character| if plain(character) { character } else { '_' })
        .collect();
    if name.is_empty() { "_".to_owned() } else { name }
}

fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn open(path: &Path) -> io::Result<File> {
    // A blocking open would wait for a reader if the path is a pipe.
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or(0);
    OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(path)
}

fn explain(error: &io::Error, action: &str, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("{action} `{}`: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn the_cap_holds_and_the_newest_half_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("new/logs");
        let mut log = LogFile::open(&folder, "time", 1000).unwrap();
        for number in 0..500 {
            log.write_all(format!("line {number:04}\n").as_bytes()).unwrap();
            let total: u64 =
                fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
            assert!(total <= 1000, "{total} bytes");
        }
        let text = fs::read_to_string(log.older.clone()).unwrap() + &fs::read_to_string(log.path()).unwrap();
        assert!(text.len() >= 500 && text.ends_with("line 0499\n") && text.starts_with("line "), "{text}");
        assert_eq!((mode(&folder), mode(log.path())), (0o700, 0o600));
        log.write_all(&[b'x'; 5000]).unwrap();
        let total: u64 =
            fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
        assert!((500..=1000).contains(&total), "{total} bytes");
    }

    #[test]
    fn the_cap_holds_for_a_log_that_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        for _ in 0..10 {
            LogFile::open(folder.path(), "time", 1000).unwrap().write_all(&[b'x'; 400]).unwrap();
        }
        let sizes =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
        assert!(sizes.sum::<u64>() <= 1000);
    }

    #[test]
    fn a_link_in_the_place_of_a_log_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let log = LogFile::open(folder.path(), "time", 1000).unwrap();
        let elsewhere = folder.path().join("elsewhere");
        fs::rename(log.path(), &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, log.path()).unwrap();
        assert!(LogFile::open(folder.path(), "time", 1000).is_err());
    }

    #[test]
    fn what_is_no_file_is_no_log() {
        let folder = tempfile::tempdir().unwrap();
        for path in [Path::new("/dev/null"), folder.path()] {
            let error = LogFile::open_at(path.to_owned(), 1000).unwrap_err().to_string();
            assert!(error.contains(&format!("opening the log `{}`", path.display())), "{error}");
        }
        let mut log = LogFile::open_at(folder.path().join("own.log"), 10).unwrap();
        log.write_all(b"one\ntwo\nthree\n").unwrap();
        assert_eq!(mode(log.path()), 0o600);
        assert!(folder.path().join("own.log.1").exists(), "the older half");
    }

    #[test]
    fn a_name_is_never_a_path() {
        let folder = tempfile::tempdir().unwrap();
        let log = LogFile::open(folder.path(), "../../etc/ü x", 1000).unwrap();
        assert_eq!(log.path().parent(), Some(folder.path()));
        assert!(log.path().to_str().unwrap().contains("/.._.._etc___x-"));
        assert!(LogFile::open(folder.path(), "", 1000).is_ok());
    }

    #[test]
    fn a_name_loses_what_a_path_is_made_of() {
        assert_eq!(sanitised("../../etc/ü x"), ".._.._etc___x");
    }

    #[test]
    fn the_last_run_is_that_of_the_newest_log_of_this_name() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(last_written(folder.path(), "a"), None);
        let newest = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(5_000);
        for (name, seconds) in
            [("a-1.log", 3_000), ("a-2.log.1", 5_000), ("a-b-3.log", 9_000), ("a-x.log", 9_000)]
        {
            let file = File::create(folder.path().join(name)).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds)).unwrap();
        }
        assert_eq!(last_written(folder.path(), "a"), Some(newest));
    }

    #[test]
    fn only_old_logs_of_this_very_name_are_pruned() {
        let folder = tempfile::tempdir().unwrap();
        // Numbers beyond what the kernel gives out.
        let dead = |number: u32| format!("a-{}.log", 2_000_000_000 + number);
        let origin = SystemTime::now() - std::time::Duration::from_secs(1000);
        for number in 0..8 {
            let file = File::create(folder.path().join(dead(number))).unwrap();
            file.set_modified(origin + std::time::Duration::from_secs(number.into())).unwrap();
        }
        File::create(folder.path().join(dead(0) + ".1")).unwrap().set_modified(origin).unwrap();
        let others = ["a-b-2000000001.log", "a-.log", "a-x.log", "a--2000000001.log", "b-2000000001.log"];
        for other in others {
            fs::write(folder.path().join(other), "").unwrap();
        }
        let own = LogFile::open(folder.path(), "a", 100).unwrap();
        own.file.set_modified(origin - std::time::Duration::from_secs(9)).unwrap();
        prune(folder.path(), "a", 5).unwrap();
        let mut left: Vec<String> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        let mut expected: Vec<String> = (3..8).map(dead).chain(others.map(str::to_owned)).collect();
        expected.push(own.path().file_name().unwrap().to_str().unwrap().to_owned());
        expected.sort();
        assert_eq!(left, expected);
    }
}
