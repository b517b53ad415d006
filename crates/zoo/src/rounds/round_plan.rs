//! What one round does: drawn from a seed before the round begins.
//!
//! # Invariants
//!
//! - Pure: the same seed and number give the same plan.
//! - Every victim is ended in every way that there is for it, as often as the others, one more or less.

use std::time::Duration;

/// Who is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RoundVictim {
    /// `unhang wrap`.
    Guard,
    /// `unhang serve` over pipes.
    Gateway,
    /// `unhang serve --http`.
    HttpGateway,
    /// The client of a guard.
    GuardClient,
    /// The client of a gateway over pipes.
    GatewayClient,
    /// The connections of a client over HTTP.
    HttpClient,
    /// The call holder, after its guard or gateway was killed.
    CallHolder,
    /// The lifeline, beside a living guard or gateway, or after it was killed.
    Lifeline,
}

/// In which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RoundEnding {
    /// SIGKILL.
    Killed,
    /// SIGTERM.
    Terminated,
    /// SIGHUP.
    HungUp,
    /// Its stdin is closed; of a client over HTTP, its connections.
    Closed,
    /// SIGKILL to its process group.
    GroupKilled,
    /// SIGKILL to it and to all below it by parent pid, each parent before its children.
    TreeKilledDownwards,
    /// The same, each child before its parent.
    TreeKilledUpwards,
}

/// What stands between client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RoundPlace {
    Guard,
    Gateway,
    Http,
}

/// When the calls may go on to their answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerMoment {
    /// So long before the victim is ended.
    Before(Duration),
    /// So long afterwards.
    After(Duration),
}

/// One slow call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RoundCall {
    /// How long the server works on it, without its wait.
    pub(super) milliseconds: u64,
    /// The bytes of its answer.
    pub(super) size: usize,
}

/// One round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RoundPlan {
    pub(super) number: u64,
    pub(super) victim: RoundVictim,
    pub(super) ending: RoundEnding,
    pub(super) place: RoundPlace,
    pub(super) calls: Vec<RoundCall>,
    /// From the id of the last job to the end of the victim.
    pub(super) delay: Duration,
    pub(super) answers: AnswerMoment,
    /// Whether guard or gateway is killed first, where the victim is another process.
    pub(super) is_owner_killed_first: bool,
}

const SIGNALS: [RoundEnding; 3] = [RoundEnding::Killed, RoundEnding::Terminated, RoundEnding::HungUp];
const SWEEPS: [RoundEnding; 3] =
    [RoundEnding::GroupKilled, RoundEnding::TreeKilledDownwards, RoundEnding::TreeKilledUpwards];

/// Every victim in every way that there is for it.
fn combinations() -> Vec<(RoundVictim, RoundEnding)> {
    use RoundVictim::{
        CallHolder, Gateway, GatewayClient, Guard, GuardClient, HttpClient, HttpGateway, Lifeline,
    };
    let anyhow = [Guard, Gateway, HttpGateway, GuardClient, GatewayClient, CallHolder, Lifeline];
    let by_force = anyhow
        .into_iter()
        .flat_map(|victim| SIGNALS.into_iter().chain(SWEEPS).map(move |ending| (victim, ending)));
    // The stdin of the others is not their client's.
    let closed = [Guard, Gateway, HttpClient].map(|victim| (victim, RoundEnding::Closed));
    by_force.chain(closed).collect()
}

impl RoundPlan {
    /// Draws the round with this number.
    pub(super) fn draw(seed: u64, number: u64) -> Self {
        let combinations = combinations();
        let count = combinations.len() as u64;
        // A step that has no divisor in common with the count, so that a short run sees many of them.
        let turn = number.wrapping_mul(17).wrapping_add(seed) % count;
        let (victim, ending) = combinations[usize::try_from(turn).unwrap_or_default()];
        let mut draw = RoundDraw::of(seed, number);
        let place = match victim {
            RoundVictim::Guard | RoundVictim::GuardClient => RoundPlace::Guard,
            RoundVictim::Gateway | RoundVictim::GatewayClient => RoundPlace::Gateway,
            RoundVictim::HttpGateway | RoundVictim::HttpClient => RoundPlace::Http,
            RoundVictim::CallHolder | RoundVictim::Lifeline => {
                draw.pick(&[RoundPlace::Guard, RoundPlace::Gateway, RoundPlace::Http])
            }
        };
        let millis = Duration::from_millis;
        let answers = match draw.below(5) {
            0 => AnswerMoment::Before(millis(draw.below(40))),
            1 => AnswerMoment::Before(Duration::ZERO),
            _ => AnswerMoment::After(millis(draw.below(300))),
        };
        let calls = (0..=draw.below(3)).map(|_| RoundCall {
            milliseconds: draw.pick(&[10, 20, 100]),
            size: draw.pick(&[64, 5_000, 200_000, 2_000_000]),
        });
        let calls = calls.collect();
        let delay = millis(draw.below(250));
        let is_owner_killed_first = victim == RoundVictim::CallHolder || draw.below(2) == 0;
        Self { number, victim, ending, place, calls, delay, answers, is_owner_killed_first }
    }

    /// Whether every job of this round has to end with its whole answer.
    pub(super) fn has_to_complete(&self) -> bool {
        !matches!(self.victim, RoundVictim::CallHolder | RoundVictim::Lifeline)
    }
}

/// Numbers that look random and are the same for the same seed (SplitMix64).
struct RoundDraw(u64);

impl RoundDraw {
    fn of(seed: u64, number: u64) -> Self {
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

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// One of several, which must not be none.
    fn pick<T: Copy>(&mut self, several: &[T]) -> T {
        several[usize::try_from(self.below(several.len() as u64)).unwrap_or_default()]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn two_hundred_rounds_end_everybody_in_every_way() {
        let mut counts: BTreeMap<_, u64> = BTreeMap::new();
        for number in 0..200 {
            let plan = RoundPlan::draw(7, number);
            assert_eq!(plan, RoundPlan::draw(7, number));
            *counts.entry((plan.victim, plan.ending)).or_default() += 1;
        }
        assert_eq!(counts.len(), combinations().len());
        assert!(counts.values().all(|count| (4..=5).contains(count)), "{counts:?}");
    }

    #[test]
    fn twelve_rounds_end_nearly_everybody() {
        let victims = (0..12).map(|number| RoundPlan::draw(1, number).victim);
        assert!(victims.collect::<std::collections::BTreeSet<_>>().len() >= 6);
    }
}
