//! A hold on one process, which keeps it from being taken for a later one with the same number.
//!
//! Only Linux has such a hold (`pidfd`). On other systems no process can be held, and nothing is measured.

use std::io;
use std::time::Duration;

use rustix::process::Signal;

#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::PinnedProcess;
#[cfg(target_os = "linux")]
pub(crate) use linux::PinnedProcess;

#[cfg(target_os = "linux")]
mod linux {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
    use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};

    use super::{Duration, Signal, io};

    /// A process that is held on to.
    pub(crate) struct PinnedProcess(OwnedFd);

    impl PinnedProcess {
        pub(crate) fn open(pid: u32) -> Option<Self> {
            let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
            Some(Self(pidfd_open(pid, PidfdFlags::empty()).ok()?))
        }

        /// Waits until it has ended; false if it has not within the limit.
        pub(crate) fn wait(&self, limit: Duration) -> io::Result<bool> {
            let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
            let mut descriptors = [PollFd::new(&self.0, PollFlags::IN)];
            Ok(rustix::io::retry_on_intr(|| poll(&mut descriptors, Some(&limit)))? > 0)
        }

        /// Sends it a signal, if it is still there.
        pub(crate) fn signal(&self, signal: Signal) {
            let _gone_already = pidfd_send_signal(&self.0, signal);
        }

        /// Returns a descriptor that polls as readable once the process has ended.
        pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use rustix::fd::BorrowedFd;

    use super::{Duration, Signal, io};

    /// No process is held on to.
    pub(crate) enum PinnedProcess {}

    impl PinnedProcess {
        pub(crate) fn open(_pid: u32) -> Option<Self> {
            None
        }

        pub(crate) fn wait(&self, _limit: Duration) -> io::Result<bool> {
            match *self {}
        }

        pub(crate) fn signal(&self, _signal: Signal) {
            match *self {}
        }

        pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
            match *self {}
        }
    }
}
