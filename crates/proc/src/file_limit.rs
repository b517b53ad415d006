//! The limit of file sizes that a process inherits (`ulimit -f`).
//!
//! The system ends a process that writes beyond it with SIGXFSZ, without a word. Where that signal is ignored, the write fails instead
//! (`EFBIG`), and can be told of and cleaned up after. What is started from here gets the signal back: see [`crate::spawn`].

use std::io;

use rustix::process::{Resource, Signal, getrlimit};

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
    if error.kind() == io::ErrorKind::FileTooLarge { told() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_other_error_is_put_down_to_the_limit() {
        assert_eq!(cause_of(&io::ErrorKind::NotFound.into()), None);
        assert_eq!(cause_of(&io::ErrorKind::FileTooLarge.into()), told());
    }
}
