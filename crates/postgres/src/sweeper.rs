//! Decides when a worker is lost. Two clocks have to agree.
//!
//! The lease of a job is over when the database's clock says so. That clock can be set forward, and a database that was away accepted no
//! heartbeat. So a sweeper acts only if it has also seen the same heartbeat for a whole lease of its own time, while the database answered.
//!
//! Invariants
//!
//! - A sweeper's time is a clock that nobody sets, and that goes on while the machine sleeps (`CLOCK_BOOTTIME`).
//! - A sweeper forgets a heartbeat after a look that failed or came late.

use std::{collections::HashMap, time::Duration};

use unhang_jobs::id::JobId;

use crate::leases::SilentLease;

/// The longest pause between two looks of a sweeper, as a share of the lease. After a longer one the database may have been away.
const LOOKS_PER_LEASE: u32 = 2;

/// A sweeper, with the heartbeats of silent workers that it has seen.
#[derive(Debug, Default)]
pub struct LeaseSweeper {
    looked_at: Option<Duration>,
    seen: HashMap<JobId, SeenHeartbeat>,
}

/// A heartbeat, and when it was seen first.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SeenHeartbeat {
    token: String,
    heartbeat: i64,
    since: Duration,
}

impl LeaseSweeper {
    /// Takes in the leases of silent workers, at a time of the sweeper's own clock. Returns those that are over by the database's clock, and
    /// whose heartbeat has not changed for a whole lease of the sweeper's clock.
    pub fn look(&mut self, silent: Vec<SilentLease>, now: Duration) -> Vec<SilentLease> {
        let pause = self.looked_at.replace(now).map_or(Duration::ZERO, |earlier| now.saturating_sub(earlier));
        let earlier = std::mem::take(&mut self.seen);
        let mut lost = Vec::new();
        for lease in silent {
            let is_same =
                |seen: &&SeenHeartbeat| seen.heartbeat == lease.heartbeat && seen.token == lease.token;
            let is_late = pause > lease.length / LOOKS_PER_LEASE;
            let since = earlier.get(&lease.id).filter(is_same).filter(|_| !is_late);
            let since = since.map_or(now, |seen| seen.since);
            let seen = SeenHeartbeat { token: lease.token.clone(), heartbeat: lease.heartbeat, since };
            self.seen.insert(lease.id, seen);
            if lease.is_over && now.saturating_sub(since) >= lease.length {
                lost.push(lease);
            }
        }
        lost
    }

    /// Forgets everything: the database could not be asked.
    pub fn begin_anew(&mut self) {
        self.seen.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(id: JobId, token: &str, heartbeat: i64) -> SilentLease {
        SilentLease {
            id,
            worker: "worker".to_owned(),
            token: token.to_owned(),
            heartbeat,
            length: Duration::from_secs(30),
            is_over: true,
            silent_for: Duration::ZERO,
            may_run_again: true,
            is_cancelled: false,
            started_at: None,
            claims: 1,
        }
    }

    /// Looks at these seconds, and returns those at which the lease counts as lost.
    fn lost_at(looks: &[(u64, Option<(&str, i64)>)]) -> Vec<u64> {
        let (mut sweeper, id) = (LeaseSweeper::default(), JobId::random().unwrap());
        let mut lost = Vec::new();
        for (second, found) in looks {
            let silent = found.map(|(token, heartbeat)| lease(id, token, heartbeat)).into_iter().collect();
            if !sweeper.look(silent, Duration::from_secs(*second)).is_empty() {
                lost.push(*second);
            }
        }
        lost
    }

    #[test]
    fn a_worker_is_lost_when_its_heartbeat_was_the_same_for_a_whole_lease_of_the_sweepers_clock() {
        let same = Some(("a", 7));
        assert_eq!(
            lost_at(&[(0, same), (10, same), (20, same), (29, same), (30, same), (40, same)]),
            [30, 40]
        );
        // A heartbeat came, and then another worker had the job.
        assert!(lost_at(&[(0, same), (15, same), (29, Some(("a", 8))), (40, Some(("a", 8)))]).is_empty());
        assert!(lost_at(&[(0, same), (15, same), (29, Some(("b", 7))), (40, Some(("b", 7)))]).is_empty());
        // The lease was prolonged and is over again.
        assert!(lost_at(&[(0, same), (15, None), (30, same), (45, same)]).is_empty());
    }

    /// The clock of the database was set back, or the sweeper's runs fast.
    #[test]
    fn a_lease_that_is_not_over_by_the_clock_of_the_database_keeps_its_job() {
        let (mut sweeper, id) = (LeaseSweeper::default(), JobId::random().unwrap());
        let mut look = |second, is_over| {
            let lease = SilentLease { is_over, ..lease(id, "a", 7) };
            sweeper.look(vec![lease], Duration::from_secs(second)).len()
        };
        let looks = [(0, false), (15, false), (30, false), (40, true)];
        assert_eq!(looks.map(|(second, is_over)| look(second, is_over)), [0, 0, 0, 1]);
    }

    /// A database that was away accepted no heartbeat, and a sweeper that slept saw none.
    #[test]
    fn a_sweeper_that_did_not_look_begins_anew() {
        let same = Some(("a", 7));
        assert_eq!(lost_at(&[(0, same), (16, same), (31, same), (46, same)]), [46]);
        let (mut sweeper, id) = (LeaseSweeper::default(), JobId::random().unwrap());
        let mut look = |second| sweeper.look(vec![lease(id, "a", 7)], Duration::from_secs(second)).len();
        assert_eq!([look(0), look(15)], [0, 0]);
        sweeper.begin_anew();
        let mut look = |second| sweeper.look(vec![lease(id, "a", 7)], Duration::from_secs(second)).len();
        assert_eq!([look(30), look(45), look(60)], [0, 0, 1]);
    }
}
