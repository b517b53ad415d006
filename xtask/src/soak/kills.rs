//! The part `kills`: rounds in which a server of jobs, a shim or both are killed at a random moment, and the data folder is
//! opened again.
//!
//! # Invariants
//!
//! - What is demanded of each job is known before it starts ([`super::kill_plan`]); `lost` is right only of a job whose shim
//!   was killed.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::kill_plan::{KillPlan, Victim};
use super::kill_round::{self, KillRound};
use super::progress::PartProgress;
use super::session::SoakStage;
use super::side_by_side::side_by_side;

/// Rounds at the same time. Each has a server, up to four jobs and their shims.
const AT_ONCE: usize = 3;

/// What became of the rounds.
#[derive(Debug, Default)]
pub(crate) struct Kills {
    counts: BTreeMap<Victim, KillCounts>,
    /// A sentence for each that went wrong.
    pub(crate) broken: Vec<String>,
}

#[derive(Debug, Default, Clone, Copy)]
struct KillCounts {
    rounds: u64,
    round: KillRound,
}

/// Does the rounds with these numbers.
pub(crate) fn kills(stage: &SoakStage, seed: u64, numbers: Range<u64>, progress: &PartProgress) -> Kills {
    let counts: Mutex<BTreeMap<Victim, KillCounts>> = Mutex::default();
    let broken = side_by_side(numbers, AT_ONCE, progress, |number| {
        let plan = KillPlan::draw(seed, number);
        let round = kill_round::perform(&plan, stage).map_err(|broken| {
            let kept_path = broken.keep(stage, &format!("kills-{number}"), &plan);
            format!(
                "round {number} ({:?} killed): {}\n  {kept_path}\n  again: cargo xtask soak --only kills --seed {seed} --session {number}",
                plan.victim, broken.what
            )
        })?;
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        let of_victim = counts.entry(plan.victim).or_default();
        of_victim.rounds += 1;
        of_victim.round.add(round);
        Ok(())
    });
    Kills { counts: counts.into_inner().unwrap_or_else(PoisonError::into_inner), broken }
}

impl Kills {
    /// The kill matrix, nothing where there was no round.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        if self.counts.is_empty() {
            return text;
        }
        let _ = writeln!(
            text,
            "\n{:<18}{:>8}{:>9}{:>8}{:>10}{:>7}{:>8}{:>11}",
            "killed", "rounds", "victims", "jobs", "true end", "lost", "twice", "survivors"
        );
        let mut all = KillCounts::default();
        let mut row = |name: &str, KillCounts { rounds, round }: KillCounts| {
            let KillRound { victims, jobs, true_ends, lost } = round;
            // Anything else than 0 would have broken its round.
            let _ = writeln!(
                text,
                "{name:<18}{rounds:>8}{victims:>9}{jobs:>8}{true_ends:>10}{lost:>7}{:>8}{:>11}",
                0, 0
            );
        };
        for (victim, counts) in &self.counts {
            let name = match victim {
                Victim::Server => "the server",
                Victim::Shim => "a shim",
                Victim::Both => "both at once",
            };
            row(name, *counts);
            all.rounds += counts.rounds;
            all.round.add(counts.round);
        }
        row("in all", all);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_longer_than_80_columns() {
        let most = KillRound { victims: 9999, jobs: 9999, true_ends: 9999, lost: 9999 };
        let counts = KillCounts { rounds: 9999, round: most };
        let counts = [Victim::Server, Victim::Shim, Victim::Both].map(|victim| (victim, counts)).into();
        let text = Kills { counts, broken: Vec::new() }.text();
        assert_eq!(text.lines().count(), 6, "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    }
}
