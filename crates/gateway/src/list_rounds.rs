//! Rounds of work on lists of a server: who waits for which round, and whether a round takes too long.
//!
//! Invariants
//!
//! - Rounds have numbers from 1 on, and one round runs at a time.
//! - A round that begins after somebody wanted it sees every change that was made before.

use tokio::sync::watch;

/// The rounds of one kind of work.
#[derive(Default)]
pub(super) struct ListRounds(watch::Sender<RoundCounts>);

#[derive(Clone, Copy, Debug, Default)]
struct RoundCounts {
    /// The highest number that somebody waits for.
    wanted: u64,
    /// The number of the last round that began.
    begun: u64,
    /// The number of the last round that ended.
    ended: u64,
    /// Somebody has waited in vain for the round that runs, or for the next one.
    is_late: bool,
}

impl ListRounds {
    /// Notes that somebody wants a round that begins from now on. Returns its number, and whether nobody is at work who begins it.
    pub(super) fn want(&self) -> (u64, bool) {
        let (mut number, mut is_first) = (0, false);
        self.0.send_modify(|counts| {
            is_first = counts.wanted == counts.ended;
            counts.wanted = counts.begun + 1;
            number = counts.wanted;
        });
        (number, is_first)
    }

    /// Ends the round that runs, if one does, and begins the next one if somebody wants it. Returns whether it has begun.
    pub(super) fn begin_next(&self) -> bool {
        let mut is_wanted = false;
        self.0.send_modify(|counts| {
            is_wanted = counts.wanted > counts.begun;
            let begun = counts.begun + u64::from(is_wanted);
            *counts = RoundCounts { begun, ended: counts.begun, is_late: false, ..*counts };
        });
        is_wanted
    }

    /// Begins a round, whether or not somebody wants it.
    pub(super) fn begin(&self) {
        self.0.send_modify(|counts| counts.begun += 1);
    }

    /// Ends the round that began last.
    pub(super) fn end(&self) {
        self.0.send_modify(|counts| (counts.ended, counts.is_late) = (counts.begun, false));
    }

    /// Returns the number of the round that begins next.
    pub(super) fn next(&self) -> u64 {
        self.0.borrow().begun + 1
    }

    /// Waits until this round has ended. Cancel-safe.
    pub(super) async fn until_ended(&self, number: u64) {
        let mut counts = self.0.subscribe();
        // The counts stay as long as somebody can wait for them.
        let _ended = counts.wait_for(|counts| counts.ended >= number).await;
    }

    /// Notes that somebody has waited in vain, if a round runs.
    pub(super) fn note_late(&self) {
        self.0.send_modify(|counts| counts.is_late = counts.ended < counts.begun);
    }

    /// Returns whether somebody has waited in vain, and no round has ended since.
    pub(super) fn are_late(&self) -> bool {
        self.0.borrow().is_late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wanted_round_begins_after_the_wish_and_serves_all_who_came_before_it() {
        let rounds = ListRounds::default();
        assert_eq!(rounds.want(), (1, true));
        assert_eq!(rounds.want(), (1, false), "it has not begun");
        assert!(rounds.begin_next());
        assert_eq!(rounds.want(), (2, false), "the first may have missed a change");
        assert_eq!(rounds.want(), (2, false));
        assert!(rounds.begin_next());
        assert!(!rounds.begin_next());
        assert_eq!(rounds.want(), (3, true));
    }

    #[tokio::test]
    async fn a_round_is_waited_for_until_it_ends_and_is_late_until_then() {
        let rounds = ListRounds::default();
        rounds.note_late();
        assert!(!rounds.are_late(), "nothing runs");
        let next = rounds.next();
        rounds.begin();
        rounds.note_late();
        assert!(rounds.are_late());
        rounds.end();
        rounds.until_ended(next).await;
        assert!(!rounds.are_late());
    }
}
