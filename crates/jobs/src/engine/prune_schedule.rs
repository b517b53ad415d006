//! The pruning that a process does by itself: what is due when it opens the data folder, and then every hour (J-131).
//!
//! Invariants
//!
//! - Whoever waits for the maintenance thread waits no longer for pruning than [`SLICE`]; what is left is for the next round.
//! - A clock that was set removes nothing (F-07).
//! - A process that was not told how long jobs are kept removes nothing that another one was told to keep.

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

/// What pruning may take of one round.
const SLICE: Duration = Duration::from_millis(100);

/// How often jobs whose time is over are looked for.
const EVERY: Duration = Duration::from_secs(60 * 60);

/// When the next one is due.
#[derive(Debug, Default)]
pub(super) struct PruneSchedule {
    /// When the last one ended.
    finished_at: Option<Duration>,
    /// Jobs that the one that goes on has removed.
    removed: usize,
    /// Something was due here before, so that folders of no job are looked for too. Whoever comes and goes leaves those to others.
    is_later: bool,
}

impl PruneSchedule {
    /// Removes what is due, for a slice of time, where pruning is due.
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
                tracing::warn!("{} was left as it is: {reason}", folder.display());
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

/// Returns whether pruning is due, the last of which ended at this time.
fn is_due(last: Option<Duration>, now: Duration) -> bool {
    last.is_none_or(|last| now.saturating_sub(last) >= EVERY)
}

/// How long jobs are kept: as we were told, or else as the last one was told, where that is longer than usual.
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

/// Whether the wall clock can be believed, for what is to be removed.
fn is_trusted(store: &mut Store, retention: Duration) -> Result<bool, JobError> {
    let Some(reading) = reading() else { return Ok(true) };
    let before = store.read(figures::clock)?;
    let (kept, trust) = judge(before, reading, retention);
    if before != Some(kept) {
        store.write(|transaction| figures::keep_clock(transaction, kept))?;
    }
    if let ClockTrust::Lost(by) = trust {
        tracing::warn!(
            "the clock was set forward by {} s: ended jobs are kept for {} s from now on, so that none is removed too early; \
             `unhang job prune` removes them all the same",
            by.as_secs(),
            retention.as_secs()
        );
    }
    Ok(trust == ClockTrust::Given)
}

/// Both clocks; none where the system has no clock that is never set, or no name for this boot.
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
