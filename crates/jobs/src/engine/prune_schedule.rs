//! The pruning that a process does by itself: of expired jobs when it opens the data folder, and then every hour (J-131).
//!
//! Invariants
//!
//! - A task that waits for the maintenance thread waits no longer for pruning than [`SLICE`]; the rest is left for the next round.
//! - A clock that was set removes nothing (F-07).
//! - A process without a told retention removes no job that another process was told to keep.

use std::{sync::OnceLock, time::Duration};

use unhang_proc::{
    identity::{boot_id, kernel_boot, since_boot},
    tree::now,
};

use super::{
    EngineState,
    clock::{ClockReading, ClockTrust, judge},
    migration,
    retention::{expire, with_folders},
};
use crate::{
    error::JobError,
    store::{KeptAsAccepted, Store, figures},
    timestamp::JobTimestamp,
    wait::WaitLimit,
};

/// The share of one round that pruning may take.
const SLICE: Duration = Duration::from_millis(100);

/// The time between two prunings.
const EVERY: Duration = Duration::from_secs(60 * 60);

/// The time of the next pruning.
#[derive(Debug, Default)]
pub(super) struct PruneSchedule {
    /// The end of the last pruning.
    finished_at: Option<Duration>,
    /// The number of jobs that the current pruning has removed.
    removed: usize,
    /// Whether this process has pruned before. Only then it looks for folders that belong to no job: programs that come and go leave those
    /// to others.
    is_later: bool,
}

impl PruneSchedule {
    /// Removes expired jobs for a slice of time, if pruning is due.
    pub(super) fn round(&mut self, inner: &EngineState, store: &mut Store) -> Result<(), JobError> {
        if !is_due(self.finished_at, now()) {
            return Ok(());
        }
        let retention = retention_of(inner, store)?.max(inner.retention_of_others());
        if is_trusted(store, retention)? {
            let expired =
                expire(inner, retention, KeptAsAccepted::AsAccepted, Some(WaitLimit::after(SLICE)))?;
            self.removed += expired.jobs.len();
            if !expired.is_over {
                return Ok(());
            }
            let left = match self.is_later {
                true => with_folders(inner, expired, retention)?.left,
                false => expired.left,
            };
            for (folder, reason) in left {
                tracing::warn!("unhang leaves {} as it is: {reason}", folder.display());
            }
        }
        if !migration::round(inner, store, WaitLimit::after(SLICE))? {
            return Ok(());
        }
        if self.removed > 0 {
            tracing::info!("removed {} jobs whose retention is over", self.removed);
        }
        *self = Self { finished_at: Some(now()), removed: 0, is_later: true };
        Ok(())
    }
}

/// Returns whether pruning is due, given the end of the last one.
fn is_due(last: Option<Duration>, now: Duration) -> bool {
    last.is_none_or(|last| now.saturating_sub(last) >= EVERY)
}

/// Returns the retention of this process if it was told one. Otherwise returns the one that was told last, if that is longer than the
/// default.
fn retention_of(inner: &EngineState, store: &mut Store) -> Result<Duration, JobError> {
    let own = inner.options.retention;
    let known = store.read(figures::retention)?;
    if !inner.options.retention_was_said {
        let known = known.and_then(|known| u64::try_from(known).ok()).map(Duration::from_millis);
        return Ok(own.max(known.unwrap_or(own)));
    }
    let millis = i64::try_from(own.as_millis()).unwrap_or(i64::MAX);
    if known != Some(millis) {
        store.write(|transaction| figures::keep_retention(transaction, millis))?;
    }
    Ok(own)
}

/// Returns whether the wall clock can be believed when jobs are to be removed.
fn is_trusted(store: &mut Store, retention: Duration) -> Result<bool, JobError> {
    let Some(reading) = reading() else { return Ok(true) };
    let before = store.read(figures::clock)?;
    let (kept, trust) = judge(before, reading, retention);
    if before != Some(kept) {
        store.write(|transaction| figures::keep_clock(transaction, kept))?;
    }
    if let ClockTrust::Lost(by) = trust {
        tracing::warn!(
            "the clock was set forward by {} s: unhang keeps ended jobs for {} s from now on, so that it \
             removes no job too early; `unhang job prune` still removes them",
            by.as_secs(),
            retention.as_secs()
        );
    }
    Ok(trust == ClockTrust::Given)
}

/// Reads both clocks; `None` if the system has no clock that is never set, or no name for this boot.
fn reading() -> Option<ClockReading> {
    static BOOT: OnceLock<Option<i64>> = OnceLock::new();
    let boot = *BOOT.get_or_init(|| {
        let name = boot_id().ok()?;
        let digits: String = kernel_boot(&name).chars().filter(char::is_ascii_hexdigit).take(16).collect();
        u64::from_str_radix(&digits, 16).ok().map(u64::cast_signed)
    });
    let millis = |since: Duration| i64::try_from(since.as_millis()).ok();
    let wall = i64::try_from(JobTimestamp::now().millis()).ok()?;
    Some(ClockReading { boot: boot?, wall, since_boot: millis(since_boot()?)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn j_131_a_sweep_is_due_at_the_opening_and_every_hour() {
        const MINUTE: Duration = Duration::from_secs(60);
        let opened = 5 * MINUTE;
        assert!(is_due(None, opened));
        assert!(!is_due(Some(opened), opened + 59 * MINUTE));
        assert!(is_due(Some(opened), opened + 60 * MINUTE));
    }
}
