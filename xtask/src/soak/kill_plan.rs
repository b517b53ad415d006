//! What one round of the kill matrix will do: drawn from a seed before it begins.
//!
//! # Invariants
//!
//! - Pure: the same seed and number give the same plan.
//! - The truth about each job is known before it is started.

use std::time::Duration;

use super::random::Random;

/// The most jobs of a round.
const MOST_JOBS: usize = 6;
/// Within so many milliseconds from the first submission the kill comes.
const LATEST_KILL: u64 = 400;
/// Signals that a job dies of: SIGKILL, SIGSEGV, SIGTERM, SIGPIPE and a real-time one.
const SIGNALS: [i32; 5] = [9, 11, 15, 13, 40];

/// Who is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Victim {
    Server,
    Shim,
    Both,
}

/// When the jobs may end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndGate {
    AtOnce,
    AtTheKill,
    Afterwards,
}

/// One job, and how it truly ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlannedJob {
    pub(crate) lines: u64,
    pub(crate) code: u64,
    pub(crate) signal: Option<i32>,
    /// Whether it has descendants in sessions of their own.
    pub(crate) leaves: bool,
}

impl PlannedJob {
    /// What it prints to its stdout.
    pub(crate) fn log(&self) -> String {
        let lines = (1..=self.lines).map(|number| format!("line {number}\n"));
        lines.chain(["the last line\n".to_owned()]).collect()
    }

    /// Where it ends.
    pub(crate) fn status(&self) -> &'static str {
        if self.code == 0 && self.signal.is_none() { "completed" } else { "failed" }
    }
}

/// One round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KillPlan {
    pub(crate) seed: u64,
    pub(crate) number: u64,
    pub(crate) victim: Victim,
    /// Which of the shims that run at that moment.
    pub(crate) choice: usize,
    pub(crate) kill_after: Duration,
    pub(crate) gate: EndGate,
    pub(crate) max_concurrent: u64,
    pub(crate) jobs: Vec<PlannedJob>,
}

impl KillPlan {
    /// Draws the round with this number.
    pub(crate) fn draw(seed: u64, number: u64) -> Self {
        let mut random = Random::of(seed, number);
        Self {
            seed,
            number,
            victim: random.pick(&[Victim::Server, Victim::Shim, Victim::Both]),
            choice: random.size(0, 1000),
            kill_after: Duration::from_millis(random.between(0, LATEST_KILL)),
            gate: random.pick(&[
                EndGate::AtOnce,
                EndGate::AtTheKill,
                EndGate::Afterwards,
                EndGate::Afterwards,
            ]),
            max_concurrent: random.between(1, 4),
            jobs: (0..random.size(1, MOST_JOBS)).map(|_| job(&mut random)).collect(),
        }
    }
}

fn job(random: &mut Random) -> PlannedJob {
    PlannedJob {
        lines: random.pick(&[0, 1, 10, 1000]),
        code: random.pick(&[0, 0, 0, 1, 42, 255]),
        signal: random.chance(20).then(|| random.pick(&SIGNALS)),
        leaves: random.chance(30),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_round_is_drawn_again_and_all_of_them_occur() {
        assert_eq!(KillPlan::draw(7, 3), KillPlan::draw(7, 3));
        let plans: Vec<_> = (0..200).map(|number| KillPlan::draw(7, number)).collect();
        for victim in [Victim::Server, Victim::Shim, Victim::Both] {
            for gate in [EndGate::AtOnce, EndGate::AtTheKill, EndGate::Afterwards] {
                let count = plans.iter().filter(|plan| plan.victim == victim && plan.gate == gate).count();
                assert!(count >= 5, "{victim:?} {gate:?}: {count}");
            }
        }
    }

    #[test]
    fn the_truth_of_a_job() {
        let of = |code, signal| PlannedJob { lines: 2, code, signal, leaves: false };
        assert_eq!(of(0, None).log(), "line 1\nline 2\nthe last line\n");
        let all = [of(0, None), of(0, Some(9)), of(3, None)].map(|job| job.status());
        assert_eq!(all, ["completed", "failed", "failed"]);
    }
}
