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
    store::{KeptAsAccepted, SqliteStore},
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
    pub(super) fn round(&mut self, inner: &EngineState, store: &mut SqliteStore) -> Result<(), JobError> {
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
fn retention_of(inner: &EngineState, store: &mut SqliteStore) -> Result<Duration, JobError> {
    let own = inner.options.retention;
    let known = store.retention()?;
    if !inner.options.retention_was_said {
        let known = known.and_then(|known| u64::try_from(known).ok()).map(Duration::from_millis);
        return Ok(own.max(known.unwrap_or(own)));
    }
    let millis = i64::try_from(own.as_millis()).unwrap_or(i64::MAX);
    if known != Some(millis) {
        store.keep_retention(millis)?;
    }
    Ok(own)
}

/// Returns whether the wall clock can be believed when jobs are to be removed.
fn is_trusted(store: &mut SqliteStore, retention: Duration) -> Result<bool, JobError> {
    let Some(reading) = reading() else { return Ok(true) };
    let before = store.clock()?;
    let (kept, trust) = judge(before, reading, retention);
    if before != Some(kept) {
        store.keep_clock(kept)?;
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
    use crate::{
        engine::{EngineOptions, tests::TestEngine},
        limits::{ToldLimits, announce},
        testing::{ended, logged},
    };

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    /// Does a round, and returns what it logged.
    fn round(schedule: &mut PruneSchedule, test: &mut TestEngine) -> Vec<String> {
        let (done, messages) = logged(|| schedule.round(&test.inner, &mut test.store));
        done.unwrap();
        messages
    }

    #[test]
    fn j_131_expired_jobs_go_at_the_opening_and_folders_of_no_job_an_hour_later() {
        let mut test = TestEngine::new(|options| options.retention = DAY);
        let mut schedule = PruneSchedule::default();
        let old = [2, 3].map(|days| test.accept(&ended(days * DAY)));
        let (young, orphan) = (test.accept(&ended(Duration::ZERO)), test.orphan());
        let longer = ToldLimits { max_concurrent: None, retention_ms: Some(u64::MAX) };
        let announced = announce(&test.inner.data, longer).unwrap();
        assert!(round(&mut schedule, &mut test).is_empty(), "another process keeps the jobs");
        drop(announced);
        // Some of the jobs went in an earlier round.
        schedule = PruneSchedule { removed: 3, ..PruneSchedule::default() };
        assert_eq!(round(&mut schedule, &mut test), ["removed 5 jobs whose retention is over"]);
        assert_eq!([old[0], old[1], young].map(|id| test.has(id)), [false, false, true]);
        assert!(test.inner.data.job(orphan).is_there());
        let finished = schedule.finished_at.expect("the pruning is over");
        assert_eq!((schedule.removed, schedule.is_later), (0, true));
        let next = test.accept(&ended(2 * DAY));
        assert!(round(&mut schedule, &mut test).is_empty());
        assert!(test.has(next) && schedule.finished_at == Some(finished), "it is too early");
        schedule.finished_at = None;
        assert_eq!(round(&mut schedule, &mut test), ["removed 1 jobs whose retention is over"]);
        assert!(!test.has(next) && !test.inner.data.job(orphan).is_there());
        schedule.finished_at = None;
        assert!(round(&mut schedule, &mut test).is_empty(), "there was nothing to remove");
    }

    #[test]
    fn f_07_a_clock_that_was_set_forward_removes_nothing_until_the_retention_has_passed() {
        let mut test = TestEngine::new(|options| options.retention = DAY);
        let old = test.accept(&ended(2 * DAY));
        assert!(is_trusted(&mut test.store, DAY).unwrap());
        let kept = test.store.clock().unwrap().expect("both clocks are noted");
        assert_eq!(kept.jump, None);
        // The clock shows five days more than it did.
        let day = i64::try_from(DAY.as_millis()).unwrap();
        let before = crate::store::StoreFigures { offset: kept.offset - 5 * day, ..kept };
        test.store.keep_clock(before).unwrap();
        let messages = round(&mut PruneSchedule::default(), &mut test);
        assert!(messages.len() == 1 && messages[0].contains("was set forward by 43"), "{messages:?}");
        assert!(messages[0].contains("for 86400 s from now on"), "{messages:?}");
        let jump = test.store.clock().unwrap().unwrap().jump.unwrap();
        assert!((jump.by - 5 * day).abs() < 60_000, "{jump:?}");
        let mut schedule = PruneSchedule::default();
        assert!(round(&mut schedule, &mut test).is_empty(), "it was told");
        assert!(test.has(old) && schedule.finished_at.is_some());
        assert!(is_trusted(&mut test.store, Duration::ZERO).unwrap(), "the retention has passed");
        assert_eq!(test.store.clock().unwrap().unwrap().jump, None);
    }

    #[test]
    fn a_process_without_a_told_retention_goes_by_the_last_one_that_was_told() {
        let retention = |test: &mut TestEngine, length, was_said| {
            let options = EngineOptions {
                retention: length,
                retention_was_said: was_said,
                ..test.inner.options.clone()
            };
            test.inner.options = options;
            retention_of(&test.inner, &mut test.store).unwrap()
        };
        let mut test = TestEngine::new(|_| {});
        assert_eq!(retention(&mut test, 7 * DAY, false), 7 * DAY);
        assert_eq!(test.store.retention().unwrap(), None, "nobody was told one");
        for (length, was_said, expected) in [
            (DAY, true, DAY),
            (7 * DAY, false, 7 * DAY),
            (30 * DAY, true, 30 * DAY),
            (7 * DAY, false, 30 * DAY),
            (2 * DAY, true, 2 * DAY),
            (7 * DAY, false, 7 * DAY),
            (Duration::MAX, true, Duration::MAX),
        ] {
            assert_eq!(retention(&mut test, length, was_said), expected, "{length:?}, {was_said}");
        }
        assert_eq!(test.store.retention().unwrap(), Some(i64::MAX));
    }

    #[test]
    fn j_131_a_sweep_is_due_at_the_opening_and_every_hour() {
        const MINUTE: Duration = Duration::from_secs(60);
        let opened = 5 * MINUTE;
        assert!(is_due(None, opened));
        assert!(!is_due(Some(opened), opened + 59 * MINUTE));
        assert!(is_due(Some(opened), opened + 60 * MINUTE));
    }
}
