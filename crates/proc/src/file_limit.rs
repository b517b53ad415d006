//! The limits of files that a process inherits: of their size (`ulimit -f`), and of how many are open (`ulimit -n`).
//!
//! The system ends a process that writes beyond it with SIGXFSZ, without a word. Where that signal is ignored, the write fails instead
//! (`EFBIG`), and can be told of and cleaned up after. What is started from here gets the signal back: see [`crate::spawn`].

use std::{fs::File, io};

use rustix::{
    io::Errno,
    process::{Resource, Signal, getrlimit},
};

use crate::system;

/// Makes a write beyond the limit an error instead of the end of this process. For a program, as one of the first things in its `main`.
pub fn ignore_signal() {
    system::ignore_signal(Signal::XFSZ);
}

/// Bytes of the largest file that this process may write; none where there is no limit.
#[must_use]
pub fn file_limit() -> Option<u64> {
    getrlimit(Resource::Fsize).current
}

/// The limit as a person is told of it; none where there is none.
#[must_use]
pub fn told() -> Option<String> {
    let limit = file_limit()?;
    let (amount, unit) = if limit >= 1 << 20 { (limit >> 20, "MiB") } else { (limit >> 10, "KiB") };
    Some(format!("`ulimit -f` lets no file here grow beyond {amount} {unit}"))
}

/// What a person is told beside this error, where the limit is its cause.
#[must_use]
pub fn cause_of(error: &io::Error) -> Option<String> {
    match error.kind() {
        io::ErrorKind::FileTooLarge => told(),
        _ if error.raw_os_error() == Some(Errno::MFILE.raw_os_error()) => open_told(),
        _ => None,
    }
}

/// The limit of open files as a person is told of it; none where there is none.
#[must_use]
pub fn open_told() -> Option<String> {
    let limit = getrlimit(Resource::Nofile).current?;
    Some(format!(
        "`ulimit -n` lets no more than {limit} files be open here: raise it, as with `ulimit -n 1024`"
    ))
}

/// The same where no further file can be opened now: SQLite says only that it could not open one.
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
