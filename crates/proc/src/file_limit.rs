//! The file limits that a process inherits: the size of a file (`ulimit -f`), and how many files are open (`ulimit -n`).
//!
//! The system ends a process that writes beyond the size limit with SIGXFSZ, without a word. If the process ignores that signal, the write
//! fails instead (`EFBIG`), and the process can report the error and clean up. Each process that we start gets the signal back: see
//! [`crate::spawn`].

use std::{fs::File, io};

use rustix::{
    io::Errno,
    process::{Resource, Signal, getrlimit},
};

use crate::system;

/// Makes a write beyond the limit an error instead of the end of this process. A program calls it as one of the first things in its `main`.
pub fn ignore_signal() {
    system::ignore_signal(Signal::XFSZ);
}

/// Returns the size in bytes of the largest file that this process may write; `None` if there is no limit.
#[must_use]
pub fn file_limit() -> Option<u64> {
    getrlimit(Resource::Fsize).current
}

/// Describes the limit of a file's size to a person; `None` if there is no limit.
#[must_use]
pub fn told() -> Option<String> {
    let limit = file_limit()?;
    let (amount, unit) = if limit >= 1 << 20 { (limit >> 20, "MiB") } else { (limit >> 10, "KiB") };
    Some(format!("`ulimit -f` limits the size of files to {amount} {unit}"))
}

/// Describes the limit that has caused this error to a person; `None` if no limit is the cause.
#[must_use]
pub fn cause_of(error: &io::Error) -> Option<String> {
    match error.kind() {
        io::ErrorKind::FileTooLarge => told(),
        _ if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => open_told(),
        _ => None,
    }
}

/// Describes the limit of open files to a person; `None` if there is no limit.
#[must_use]
pub fn open_told() -> Option<String> {
    let limit = getrlimit(Resource::Nofile).current?;
    Some(format!(
        "`ulimit -n` limits the number of open files to {limit}: raise it, for example with `ulimit -n \
         1024`"
    ))
}

/// Describes the limit of open files if no further file can be opened now, and returns `None` otherwise. SQLite says only that it could not
/// open a file.
#[must_use]
pub fn open_told_if_reached() -> Option<String> {
    let tried = File::open("/dev/null");
    tried
        .err()
        .filter(|error| error.raw_os_error() == Some(Errno::MFILE.raw_os_error()))
        .and_then(|_| open_told())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_other_error_is_put_down_to_the_limit() {
        assert_eq!(cause_of(&io::ErrorKind::NotFound.into()), None);
        assert_eq!(cause_of(&io::ErrorKind::FileTooLarge.into()), told());
        assert_eq!(cause_of(&Errno::MFILE.into()), open_told());
        assert_eq!(open_told_if_reached(), None, "there is room here");
    }
}
