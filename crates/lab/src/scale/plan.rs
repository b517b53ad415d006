//! What a round of the kill matrix does: its jobs, its fault, and when. Pure.
//!
//! Invariant: the seed decides everything but the timing of the machine.

use std::time::Duration;

/// Something that breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ScaleFault {
    WorkerKilled,
    SupervisorKilled,
    MachineKilled,
    DatabaseKilled,
    WorkerCutOff,
    DatabaseCutOff,
    WorkerClockForward,
    WorkerClockBack,
    DatabaseClockForward,
    DatabaseClockBack,
    WorkerStopped,
}

impl ScaleFault {
    pub(super) const ALL: [Self; 11] = [
        Self::WorkerKilled,
        Self::SupervisorKilled,
        Self::MachineKilled,
        Self::DatabaseKilled,
        Self::WorkerCutOff,
        Self::DatabaseCutOff,
        Self::WorkerClockForward,
        Self::WorkerClockBack,
        Self::DatabaseClockForward,
        Self::DatabaseClockBack,
        Self::WorkerStopped,
    ];

    /// Returns the name for a person.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::WorkerKilled => "worker killed",
            Self::SupervisorKilled => "supervisor killed",
            Self::MachineKilled => "machine killed",
            Self::DatabaseKilled => "database killed",
            Self::WorkerCutOff => "worker cut off",
            Self::DatabaseCutOff => "database cut off",
            Self::WorkerClockForward => "worker +1 h",
            Self::WorkerClockBack => "worker -1 h",
            Self::DatabaseClockForward => "database +1 h",
            Self::DatabaseClockBack => "database -1 h",
            Self::WorkerStopped => "worker stopped",
        }
    }

    /// Returns whether nobody reaches the database while this lasts.
    pub(super) fn is_of_database(self) -> bool {
        matches!(self, Self::DatabaseKilled | Self::DatabaseCutOff)
    }

    /// Returns whether this kills work at once, without any lease.
    pub(super) fn kills_work(self) -> bool {
        matches!(self, Self::SupervisorKilled | Self::MachineKilled)
    }

    /// Returns whether this keeps heartbeats from the database while it lasts.
    pub(super) fn silences(self) -> bool {
        self.is_of_database() || matches!(self, Self::WorkerCutOff | Self::WorkerStopped | Self::WorkerKilled)
    }
}

/// The lengths of leases, and what goes with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MatrixPace {
    /// The lease of a repeatable job.
    pub(super) lease: Duration,
    pub(super) heartbeat: Duration,
    /// The lease of any other job.
    pub(super) lost_after: Duration,
    /// The longest work.
    pub(super) longest_work: Duration,
    /// The longest time for which somebody is cut off.
    pub(super) longest_cut: Duration,
    /// The longest time between the submission of a round and the next one.
    pub(super) longest_round: Duration,
    /// The time after the last fault within which every job has to end.
    pub(super) deadline: Duration,
}

impl MatrixPace {
    /// Short leases, for many rounds.
    pub(super) fn quick(longest_cut: Duration) -> Self {
        let second = Duration::from_secs;
        Self {
            lease: second(3),
            heartbeat: Duration::from_millis(500),
            lost_after: second(9),
            longest_work: second(6),
            longest_cut,
            longest_round: second(4),
            deadline: second(120),
        }
    }

    /// The usual leases, but for jobs that do not repeat: nobody waits ten minutes for them.
    pub(super) fn usual() -> Self {
        let second = Duration::from_secs;
        Self {
            lease: second(30),
            heartbeat: second(5),
            lost_after: second(60),
            longest_work: second(40),
            longest_cut: second(60),
            longest_round: second(15),
            deadline: second(400),
        }
    }
}

/// A job of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MatrixJob {
    pub(super) is_repeatable: bool,
    /// The time that the work takes.
    pub(super) work: Duration,
    /// The code with which the work exits.
    pub(super) code: i32,
}

/// One round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MatrixRound {
    pub(super) number: u64,
    pub(super) fault: ScaleFault,
    /// The worker that it hits.
    pub(super) worker: usize,
    /// From the submission to the fault.
    pub(super) delay: Duration,
    /// From the fault to its end: the restart, the mended cable, SIGCONT.
    pub(super) length: Duration,
    pub(super) jobs: Vec<MatrixJob>,
}

impl MatrixRound {
    /// Draws the round with this number.
    pub(super) fn draw(seed: u64, number: u64, pace: &MatrixPace, workers: usize) -> Self {
        let count = ScaleFault::ALL.len() as u64;
        // A step that has no divisor in common with the count, so that a short run sees every kind.
        let turn = number.wrapping_mul(7).wrapping_add(seed) % count;
        let fault = ScaleFault::ALL[usize::try_from(turn).unwrap_or_default()];
        let mut draw = ScaleDraw::of(seed, number);
        let worker = usize::try_from(draw.below(workers as u64)).unwrap_or_default();
        let delay = draw.between(Duration::ZERO, pace.longest_work / 3);
        let length = match fault {
            ScaleFault::WorkerCutOff | ScaleFault::DatabaseCutOff => {
                // Short cuts are the tricky ones.
                let all = draw.between(Duration::from_secs(1), pace.longest_cut);
                if draw.below(4) == 0 {
                    all
                } else {
                    all.min(draw.between(Duration::from_secs(1), 2 * pace.lease))
                }
            }
            ScaleFault::WorkerStopped => draw.between(pace.lease + pace.lease / 6, 2 * pace.lease),
            ScaleFault::WorkerKilled if draw.below(3) == 0 => draw.between(pace.lease, 2 * pace.lease),
            _ => draw.between(Duration::from_millis(100), Duration::from_secs(2)),
        };
        let jobs = (0..3)
            .map(|index| MatrixJob {
                is_repeatable: index != 0,
                work: draw.between(Duration::from_millis(300), pace.longest_work),
                code: if draw.below(5) == 0 { 3 } else { 0 },
            })
            .collect();
        Self { number, fault, worker, delay, length, jobs }
    }
}

/// Numbers that look random and are the same for the same seed (SplitMix64).
pub(super) struct ScaleDraw(u64);

impl ScaleDraw {
    pub(super) fn of(seed: u64, number: u64) -> Self {
        let mut first = Self(seed.wrapping_mul(0x2545_F491_4F6C_DD1D) ^ number);
        Self(first.next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below this one, which is not zero.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Returns a time between these, in whole milliseconds.
    fn between(&mut self, least: Duration, most: Duration) -> Duration {
        let room = u64::try_from(most.saturating_sub(least).as_millis()).unwrap_or(u64::MAX);
        least + Duration::from_millis(self.below(room.saturating_add(1)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_fault_comes_within_as_many_rounds_as_there_are_faults() {
        let pace = MatrixPace::quick(Duration::from_secs(8));
        for seed in 0..30 {
            let rounds: Vec<_> = (0..11).map(|number| MatrixRound::draw(seed, number, &pace, 3)).collect();
            assert_eq!(
                rounds,
                (0..11).map(|number| MatrixRound::draw(seed, number, &pace, 3)).collect::<Vec<_>>()
            );
            let faults: BTreeSet<_> = rounds.iter().map(|round| round.fault).collect();
            assert_eq!(faults.len(), ScaleFault::ALL.len());
            assert!(rounds.iter().all(|round| round.worker < 3 && round.length <= pace.longest_cut));
        }
    }
}
