//! Rounds that end the processes around jobs of slow calls: guard, gateway, call holder, lifeline and client, in every way in which
//! clients and systems end processes, at random moments. docs/reference/rounds.md says what they demand.
//!
//! # Invariants
//!
//! - The seed decides everything but the timing.
//! - Only processes of the round are ended, which its marker tells. Nothing of a round is left when the next one of its thread begins.

mod relay;
mod round;
mod round_plan;
mod stage;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use unhang_demo_servers::bounded_waits::lock;

pub(crate) use relay::relay;
pub use round_plan::{RoundEnding, RoundVictim};

use crate::corpus::Interrupted;
use crate::load::LoadPrograms;
use crate::signals;
use round::{RoundEnds, RoundFault, RoundFlaw};
use round_plan::RoundPlan;
use stage::RoundStage;

/// Which rounds there are.
#[derive(Clone, Copy, Debug)]
pub struct RoundsPlan {
    /// The seed of all of them.
    pub seed: u64,
    /// The number of the first one.
    pub first: u64,
    /// How many there are.
    pub count: u64,
    /// How many there are at the same time.
    pub at_once: usize,
}

/// What became of the rounds with one victim and one way of ending it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoundTally {
    /// All of them.
    pub rounds: u64,
    /// Jobs that ended with their whole answers.
    pub completed: u64,
    /// Jobs that failed, with a reason.
    pub failed: u64,
    /// Jobs that were lost, with a reason.
    pub lost: u64,
    /// Rounds in which a tool ran twice.
    pub ran_twice: u64,
    /// Rounds that left processes or files behind.
    pub left_behind: u64,
    /// Rounds with another fault.
    pub otherwise_wrong: u64,
}

/// What became of all of them.
#[derive(Debug, Default)]
pub struct RoundsOutcome {
    /// By victim and ending.
    pub counts: BTreeMap<(RoundVictim, RoundEnding), RoundTally>,
    /// How often a job that did not complete had this status and reason.
    pub reasons: BTreeMap<String, u64>,
    /// A sentence for each round with a fault.
    pub faults: Vec<String>,
}

impl RoundsOutcome {
    fn add(&mut self, plan: &RoundPlan, played: Result<RoundEnds, RoundFault>, kept: &Path) {
        let counts = self.counts.entry((plan.victim, plan.ending)).or_default();
        counts.rounds += 1;
        match played {
            Ok(ends) => {
                let of = |status: &str| ends.statuses.get(status).copied().unwrap_or_default();
                counts.completed += of("completed");
                counts.failed += of("failed");
                counts.lost += of("lost");
                for (reason, count) in ends.reasons {
                    *self.reasons.entry(reason).or_default() += count;
                }
            }
            Err((flaw, what)) => {
                match flaw {
                    RoundFlaw::RanTwice => counts.ran_twice += 1,
                    RoundFlaw::LeftBehind => counts.left_behind += 1,
                    RoundFlaw::Other => counts.otherwise_wrong += 1,
                }
                self.faults.push(format!("{what}\n  {plan:?}\n  its files are in {}", kept.display()));
            }
        }
    }
}

/// Plays the rounds, with their folders in `parent`, which exists. `on_progress` hears how many are over.
///
/// From here on SIGINT, SIGTERM and SIGHUP do not end this process by themselves: the run is cut short, clears up and says so.
///
/// # Errors
///
/// When one of those signals came.
pub fn play(
    programs: LoadPrograms<'_>,
    parent: &Path,
    plan: &RoundsPlan,
    on_progress: &(dyn Fn(u64) + Sync),
) -> Result<RoundsOutcome, Interrupted> {
    signals::catch_every_end();
    let (next, over) = (AtomicU64::new(plan.first), AtomicU64::new(0));
    let outcome = Mutex::new(RoundsOutcome::default());
    std::thread::scope(|scope| {
        for _ in 0..plan.at_once {
            // Each thread stays to the end, for the kernel kills what a thread has started when that thread ends.
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= plan.first + plan.count || signals::was_interrupted() {
                        break;
                    }
                    let round = RoundPlan::draw(plan.seed, number);
                    let (played, room) = play_one(programs, &round, parent);
                    lock(&outcome).add(&round, played, &room);
                    on_progress(over.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });
    if let Some(signal) = signals::caught() {
        return Err(Interrupted { signal });
    }
    Ok(outcome.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// Plays a round, and removes its folder unless it has a fault.
fn play_one(
    programs: LoadPrograms<'_>,
    plan: &RoundPlan,
    parent: &Path,
) -> (Result<RoundEnds, RoundFault>, std::path::PathBuf) {
    let stage = match RoundStage::set(programs, plan, parent) {
        Ok(stage) => stage,
        Err(error) => {
            let fault = (RoundFlaw::Other, format!("the folder of the round: {error}"));
            return (Err(fault), parent.to_owned());
        }
    };
    let played = round::play(&stage);
    stage.sweep();
    let is_to_go = played.is_ok() || signals::was_interrupted();
    if is_to_go {
        let _kept_if_it_cannot_be_removed = fs::remove_dir_all(&stage.room);
    }
    (played, stage.room)
}
