//! The time until which the work of a job may run: `lease.json`, for jobs that a worker has from a store of many machines.
//!
//! Theory of operation. A worker that cannot reach its store kills nothing, because it may be stopped itself. So the supervisor does it: it
//! ends the work when the lease is over. A submission brings the first lease along, and [`Engine::prolong`](crate::engine::Engine::prolong)
//! writes each later one into the folder, where the supervisor looks when the one that it knows is over.
//!
//! Invariants
//!
//! - A lease is a time of a clock that nobody sets and that goes on while the system sleeps ([`since_boot`]). It means nothing in another
//!   boot: then it is over.
//! - A lease that cannot be read is over. Ending the work too soon costs a repetition, and ending it too late runs it in two places.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use unhang_proc::identity::{is_same_boot, since_boot};

use crate::folder::{FileError, JobFolder, LEASE};

/// The longest time between two looks at the clock. A wait for descriptors counts no time in which the system sleeps.
const LEASE_LOOK: Duration = Duration::from_secs(1);

/// A lease, as in the orders and in `lease.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkLease {
    boot_id: String,
    /// The time of [`since_boot`] at which the lease is over, in milliseconds.
    until_ms: u64,
    /// A text that the work has in its environment, as [`MARK`]. Another machine, or another data folder, may run another attempt of the
    /// same job.
    mark: String,
}

/// The variable that names the lease under which work was started.
pub(crate) const MARK: &str = "UNHANG_JOB_LEASE";

impl WorkLease {
    /// Makes the lease with this mark that is over at this time of [`since_boot`].
    pub(crate) fn until(boot_id: &str, until: Duration, mark: &str) -> Self {
        let until_ms = u64::try_from(until.as_millis()).unwrap_or(u64::MAX);
        Self { boot_id: boot_id.to_owned(), until_ms, mark: mark.to_owned() }
    }

    /// Returns the mark of the lease of this job; `None` if the job needs none.
    pub(crate) fn mark(folder: &JobFolder) -> Option<String> {
        folder.read(LEASE).ok().flatten().map(|lease: Self| lease.mark)
    }

    /// Replaces the lease of a job by one that is over at this time. Does nothing for a job that needs none.
    pub(crate) fn replace(folder: &JobFolder, boot_id: &str, until: Duration) -> Result<(), FileError> {
        match Self::mark(folder) {
            Some(mark) => folder.write_lightly(LEASE, &Self::until(boot_id, until, &mark)),
            None => Ok(()),
        }
    }

    /// Returns the time until the lease is over, by this boot and this time of [`since_boot`]; zero if it is over.
    fn left(&self, boot_id: &str, now: Option<Duration>) -> Duration {
        let until = Duration::from_millis(self.until_ms);
        match now {
            Some(now) if is_same_boot(&self.boot_id, boot_id) => until.saturating_sub(now),
            // Without such a clock nobody can keep a lease.
            _ => Duration::ZERO,
        }
    }
}

/// The lease of a job, as its supervisor watches it.
pub(crate) struct WatchedLease<'a> {
    folder: &'a JobFolder,
    boot_id: &'a str,
    /// The newest lease that is known; `None` for a job that needs none.
    known: Option<WorkLease>,
}

impl<'a> WatchedLease<'a> {
    /// Begins with the lease that the orders name, or with the one that has replaced it.
    pub(crate) fn new(folder: &'a JobFolder, boot_id: &'a str, of_orders: Option<WorkLease>) -> Self {
        let mut lease = Self { folder, boot_id, known: of_orders };
        lease.look();
        lease
    }

    /// Takes the lease in the folder for the newest one.
    fn look(&mut self) {
        if self.known.is_some()
            && let Ok(Some(newest)) = self.folder.read(LEASE)
        {
            self.known = Some(newest);
        }
    }

    /// Returns whether the lease is over. Looks for a later one in the folder before it says so.
    pub(crate) fn is_over(&mut self) -> bool {
        if self.left().is_none_or(|left| !left.is_zero()) {
            return false;
        }
        self.look();
        self.left().is_some_and(|left| left.is_zero())
    }

    /// Returns the time until the next look at the lease; `None` for a job that needs none.
    pub(crate) fn next_look(&self) -> Option<Duration> {
        Some(self.left()?.min(LEASE_LOOK))
    }

    fn left(&self) -> Option<Duration> {
        Some(self.known.as_ref()?.left(self.boot_id, since_boot()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_lease_is_over_at_its_time_and_in_another_boot() {
        let lease = WorkLease::until("kernel-here", Duration::from_millis(5000), "mark");
        let left = |boot_id, now| lease.left(boot_id, now).as_millis();
        let at = |millis| Some(Duration::from_millis(millis));
        assert_eq!(left("kernel-here", at(4999)), 1);
        assert_eq!(left("kernel-there", at(4999)), 1, "another container of the same boot");
        assert_eq!(left("kernel-here", at(5000)), 0);
        assert_eq!(left("other-here", at(1)), 0);
        assert_eq!(left("kernel-here", None), 0);
    }

    #[test]
    fn a_later_lease_in_the_folder_counts_and_one_that_cannot_be_read_is_over() {
        let home = tempfile::tempdir().unwrap();
        let folder = JobFolder::at(home.path());
        let now = since_boot().unwrap();
        let (past, future) = (WorkLease::until("a-b", now, "m"), WorkLease::until("a-b", now * 2, "m"));
        let is_over = |known: Option<&WorkLease>| WatchedLease::new(&folder, "a-b", known.cloned()).is_over();
        assert_eq!([is_over(None), is_over(Some(&future)), is_over(Some(&past))], [false, false, true]);
        folder.write_lightly(LEASE, &future).unwrap();
        assert!(!is_over(Some(&past)));
        folder.write_lightly(LEASE, &past).unwrap();
        assert!(is_over(Some(&future)), "it was revoked before the work began");
        assert!(!is_over(None), "a job that needs no lease");
        WorkLease::replace(&folder, "a-b", now * 2).unwrap();
        assert!(!is_over(Some(&past)), "it was prolonged");
        assert_eq!(WorkLease::mark(&folder).as_deref(), Some("m"));
        fs::write(folder.file(LEASE), "{").unwrap();
        assert!(is_over(Some(&past)));
        let watched = |lease| WatchedLease::new(&folder, "a-b", lease).next_look();
        assert_eq!([watched(None), watched(Some(future))], [None, Some(LEASE_LOOK)]);
    }
}
