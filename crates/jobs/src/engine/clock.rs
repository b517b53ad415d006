//! Trust in the wall clock when it says that a job's retention is over.
//!
//! Theory of operation. The clock that runs since the boot is never set. So the distance between the two clocks changes only when somebody
//! sets the wall clock. The database keeps that distance. If it has changed, nobody knows which of the two times is true: the ends of jobs
//! may have been noted by a wrong clock, or the clock is wrong now. So nothing is removed until the retention has passed once more, by the
//! clock that is never set. A clock that was set forward and then back removes the reason to wait.
//!
//! Invariant: pure; times are handed in. A jump that happened while the machine was off cannot be told from a long time.

use std::time::Duration;

use crate::store::{ClockJump, StoreFigures};

/// The largest difference, in milliseconds, that is not a jump: the two clocks are read one after the other.
const TOLERANCE: i64 = 60_000;

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClockReading {
    /// The number of the boot.
    pub(super) boot: i64,
    /// Milliseconds since 1970, by the wall clock.
    pub(super) wall: i64,
    /// Milliseconds since the boot.
    pub(super) since_boot: i64,
}

/// Whether the clock can be trusted when ended jobs are to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClockTrust {
    /// Ended jobs can be removed.
    Given,
    /// This reading found that the clock was set forward by this much.
    Lost(Duration),
    /// An earlier reading found a jump, and it is too early to remove jobs.
    Waiting,
}

/// Judges a reading by the figures of the one before, and returns the figures to keep now.
pub(super) fn judge(
    before: Option<StoreFigures>,
    now: ClockReading,
    retention: Duration,
) -> (StoreFigures, ClockTrust) {
    let offset = now.wall.saturating_sub(now.since_boot);
    let kept = |jump| StoreFigures { boot: now.boot, offset, jump };
    let Some(before) = before else { return (kept(None), ClockTrust::Given) };
    if before.boot != now.boot {
        // The wait begins anew, since the clock of the new boot measures it.
        let jump = before.jump.map(|jump| ClockJump { seen: 0, ..jump });
        return (kept(jump), still(jump, now, retention));
    }
    let by = offset.saturating_sub(before.offset);
    if by.saturating_abs() <= TOLERANCE {
        // Small steps add up to a jump.
        return match still(before.jump, now, retention) {
            ClockTrust::Given => (StoreFigures { jump: None, ..before }, ClockTrust::Given),
            waiting => (before, waiting),
        };
    }
    let all = by.saturating_add(before.jump.map_or(0, |jump| jump.by));
    if all <= TOLERANCE {
        return (kept(None), ClockTrust::Given);
    }
    let length = Duration::from_millis(all.unsigned_abs());
    (kept(Some(ClockJump { seen: now.since_boot, by: all })), ClockTrust::Lost(length))
}

fn still(jump: Option<ClockJump>, now: ClockReading, retention: Duration) -> ClockTrust {
    let retention = i64::try_from(retention.as_millis()).unwrap_or(i64::MAX);
    match jump {
        Some(jump) if now.since_boot.saturating_sub(jump.seen) < retention => ClockTrust::Waiting,
        _ => ClockTrust::Given,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;
    const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

    fn at(boot: i64, hours: i64, set_by: i64) -> ClockReading {
        ClockReading { boot, wall: 1_000 * HOUR + hours * HOUR + set_by, since_boot: hours * HOUR }
    }

    #[test]
    fn f_07_a_clock_that_goes_is_believed_and_one_that_jumped_is_not() {
        let (kept, trust) = judge(None, at(1, 0, 0), WEEK);
        assert_eq!(trust, ClockTrust::Given);
        // Also after a long sleep of the machine: the clock since the boot goes on in it.
        let (kept, trust) = judge(Some(kept), at(1, 500, 1_000), WEEK);
        assert_eq!(trust, ClockTrust::Given);
        let (kept, trust) = judge(Some(kept), at(1, 501, 30 * 24 * HOUR), WEEK);
        assert_eq!(trust, ClockTrust::Lost(Duration::from_secs(30 * 24 * 3600)));
        for hours in [502, 600, 668] {
            let (again, trust) = judge(Some(kept), at(1, hours, 30 * 24 * HOUR), WEEK);
            assert_eq!((again, trust), (kept, ClockTrust::Waiting), "{hours}");
        }
        let (kept, trust) = judge(Some(kept), at(1, 501 + 168, 30 * 24 * HOUR), WEEK);
        assert_eq!((kept.jump, trust), (None, ClockTrust::Given), "by now each job has had its time");
    }

    #[test]
    fn f_07_what_is_set_forward_and_back_was_nothing() {
        let (kept, _) = judge(None, at(1, 0, 0), WEEK);
        let (kept, trust) = judge(Some(kept), at(1, 1, 10 * HOUR), WEEK);
        assert_eq!(trust, ClockTrust::Lost(Duration::from_secs(36_000)));
        let (less, trust) = judge(Some(kept), at(1, 2, 2 * HOUR), WEEK);
        assert_eq!(trust, ClockTrust::Lost(Duration::from_secs(7_200)), "not all of it was taken back");
        assert_eq!(judge(Some(less), at(1, 3, 0), WEEK).1, ClockTrust::Given);
        // One that is set back makes nothing older.
        let (kept, _) = judge(None, at(1, 0, 0), WEEK);
        assert_eq!(judge(Some(kept), at(1, 1, -5 * HOUR), WEEK).1, ClockTrust::Given);
    }

    #[test]
    fn f_07_a_boot_makes_no_jump_and_forgets_none() {
        let (kept, _) = judge(None, at(1, 100, 0), WEEK);
        assert_eq!(judge(Some(kept), at(2, 0, 900 * HOUR), WEEK).1, ClockTrust::Given);
        let (kept, _) = judge(Some(kept), at(1, 101, 900 * HOUR), WEEK);
        let (kept, trust) = judge(Some(kept), at(2, 0, 900 * HOUR), WEEK);
        assert_eq!(trust, ClockTrust::Waiting);
        assert_eq!(judge(Some(kept), at(2, 168, 900 * HOUR), WEEK).1, ClockTrust::Given);
    }

    #[test]
    fn f_07_many_small_steps_are_a_jump() {
        let (mut kept, _) = judge(None, at(1, 0, 0), WEEK);
        let mut seen = Vec::new();
        for step in 1..=3 {
            let (next, trust) = judge(Some(kept), at(1, step, step * 40_000), WEEK);
            kept = next;
            seen.push(trust);
        }
        assert!(matches!(seen[1], ClockTrust::Lost(_)), "{seen:?}");
    }

    #[test]
    fn f_07_a_minute_is_no_jump_and_a_moment_more_is_one() {
        const MINUTE: i64 = 60_000;
        let (first, _) = judge(None, at(1, 0, 0), WEEK);
        for (set_by, jump) in [(MINUTE, None), (-MINUTE, None), (MINUTE + 1, Some(MINUTE + 1))] {
            let (kept, trust) = judge(Some(first), at(1, 1, set_by), WEEK);
            assert_eq!(kept.jump.map(|jump| jump.by), jump, "{set_by}");
            assert_eq!(trust == ClockTrust::Given, jump.is_none(), "{set_by}");
            // Small steps are measured from the same moment, and a jump is the new measure.
            assert_eq!(kept.offset, first.offset + jump.unwrap_or_default(), "{set_by}");
        }
        // Of a jump that is taken back a minute may be left.
        let (kept, _) = judge(Some(first), at(1, 1, 10 * HOUR), WEEK);
        assert_eq!(judge(Some(kept), at(1, 2, MINUTE), WEEK).1, ClockTrust::Given);
        let left = Duration::from_millis(60_001);
        assert_eq!(judge(Some(kept), at(1, 2, MINUTE + 1), WEEK).1, ClockTrust::Lost(left));
    }
}
