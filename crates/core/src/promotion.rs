//! When an unanswered `tools/call` becomes a job, so that its client has an answer before it gives the call up.
//!
//! Invariants
//!
//! - Pure: nothing here knows a client, a server or a job.
//! - The moment comes before the client's clock runs out, and before a call is cut because of it (`clients::call_limit`), whatever was
//!   configured (G-06).
//! - A displayed value can be read again.

use std::{fmt, str::FromStr, time::Duration};

use crate::{
    config::{CALL_TIMEOUT, PROMOTE_AFTER, PROMOTE_PERCENT},
    units::{in_words, parse_duration},
};

/// When a `tools/call` becomes a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Promotion {
    /// When [`PROMOTE_PERCENT`] of the client's clock have passed, or [`PROMOTE_AFTER`] if the clock is not known.
    #[default]
    ByClock,
    /// After so long, or at the moment by the clock, if that is sooner.
    After(Duration),
    /// Never.
    Off,
}

/// The reason why a text is not a [`Promotion`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}; or write {words}", words = in_quotes())]
pub struct NoPromotion {
    /// The fault of the text as a length of time.
    pub reason: String,
}

impl Promotion {
    /// The words that may stand in the place of a length of time.
    pub const WORDS: [&str; 2] = ["off", "by-clock"];

    /// Returns whether clients get heartbeats for calls. If nothing becomes a job, a server's traffic is left as it is.
    #[must_use]
    pub fn has_heartbeats(self) -> bool {
        self != Promotion::Off
    }

    /// Explains why the configured value has no effect, if calls end before; `None` if it has one.
    #[must_use]
    pub fn in_vain(self, call_timeout: Duration) -> Option<String> {
        let is_late = matches!(self, Promotion::After(after) if after >= call_timeout);
        is_late.then(|| {
            format!(
                "`promote-after` is {self}, but calls end at `call-timeout` ({}), so no call becomes a \
                 job; raise `call-timeout` or lower `promote-after`",
                in_words(call_timeout)
            )
        })
    }

    /// Returns after how long a call of a client with this clock becomes a job; `None` if it never does.
    #[must_use]
    pub fn moment(self, clock: Option<Duration>) -> Option<Duration> {
        let in_time = clock.map(share);
        match self {
            Promotion::Off => None,
            Promotion::After(after) => Some(in_time.map_or(after, |in_time| in_time.min(after))),
            // A client that waits longer than a call may take by default has the job before that time is over.
            Promotion::ByClock => {
                Some(in_time.map_or(PROMOTE_AFTER, |in_time| in_time.min(share(CALL_TIMEOUT))))
            }
        }
    }
}

/// The time until a call is looked at again while its client is asked something about it.
const WHILE_ASKED: Duration = Duration::from_secs(1);

/// Returns whether a call becomes a job now, because its moment has come, and clears the moment.
///
/// While the client is asked something about the call, the call stays a call: somebody is at it. Its moment is then put off, as long as
/// another one comes before the end of the call.
pub fn is_due(
    moment: &mut Option<Duration>,
    now: Duration,
    is_asked: impl FnOnce() -> bool,
    end: Option<Duration>,
) -> bool {
    if moment.is_none_or(|at| at > now) {
        return false;
    }
    let again = now + WHILE_ASKED;
    *moment = Some(again).filter(|again| end.is_none_or(|end| *again < end) && is_asked());
    moment.is_none()
}

/// Returns the part of this time that a call may use before it becomes a job.
fn share(clock: Duration) -> Duration {
    // The clock is divided first, because a configured clock may be as long as one can write.
    clock / 100 * PROMOTE_PERCENT
}

fn in_quotes() -> String {
    Promotion::WORDS.map(|word| format!("`{word}`")).join(" or ")
}

impl FromStr for Promotion {
    type Err = NoPromotion;

    fn from_str(text: &str) -> Result<Self, NoPromotion> {
        match text {
            "off" => Ok(Promotion::Off),
            "by-clock" => Ok(Promotion::ByClock),
            _ => parse_duration(text).map(Promotion::After).map_err(|reason| NoPromotion { reason }),
        }
    }
}

impl fmt::Display for Promotion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Promotion::Off => formatter.write_str("off"),
            Promotion::ByClock => formatter.write_str("by-clock"),
            // The length is displayed to the last digit, so that it stays the same when it is read again.
            Promotion::After(after) => displayed(*after).fmt(formatter),
        }
    }
}

/// Formats a length of time in the units that are read.
fn displayed(length: Duration) -> String {
    const DAY: u64 = 24 * 60 * 60;
    let (days, seconds) = (length.as_secs() / DAY, length.as_secs() % DAY);
    let rest = humantime::format_duration(Duration::new(seconds, length.subsec_nanos()));
    if days > 0 { format!("{days}d {rest}") } else { rest.to_string() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::clients::call_limit;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_moment_is_by_what_is_said_and_by_the_clock() {
        let after = |length| Promotion::After(seconds(length));
        for (promotion, clock, expect) in [
            (Promotion::ByClock, None, Some(45)),
            (Promotion::ByClock, Some(60), Some(48)),
            (Promotion::ByClock, Some(30), Some(24)),
            (Promotion::ByClock, Some(300), Some(240)),
            // A call of such a client may not take longer than the default anyway.
            (Promotion::ByClock, Some(3600), Some(240)),
            (Promotion::ByClock, Some(u64::MAX), Some(240)),
            (after(10), None, Some(10)),
            (after(10), Some(60), Some(10)),
            (after(59), Some(60), Some(48)),
            (after(3600), Some(60), Some(48)),
            (after(3600), Some(36_000), Some(3600)),
            (after(3600), None, Some(3600)),
            (Promotion::Off, None, None),
            (Promotion::Off, Some(60), None),
        ] {
            let moment = promotion.moment(clock.map(seconds));
            assert_eq!(moment, expect.map(seconds), "{promotion} for {clock:?}");
        }
    }

    #[test]
    fn a_call_becomes_a_job_once_and_not_while_its_client_is_asked() {
        let mut moment = Some(seconds(10));
        assert!(!is_due(&mut moment, seconds(9), || false, None));
        assert!(!is_due(&mut moment, seconds(10), || true, None), "its client is asked");
        assert_eq!(moment, Some(seconds(11)));
        assert!(is_due(&mut moment, seconds(11), || false, None));
        assert!(!is_due(&mut moment, seconds(12), || false, None), "it is one already");
        let mut last = Some(seconds(10));
        assert!(
            is_due(&mut last, seconds(10), || true, Some(seconds(11))),
            "it would end before the next look"
        );
    }

    #[test]
    fn a_moment_after_the_end_is_told() {
        let told = Promotion::After(seconds(600)).in_vain(seconds(300)).expect("it comes too late");
        assert!(told.starts_with("`promote-after` is 10m, but calls end at `call-timeout` (5m)"), "{told}");
        assert!(Promotion::After(seconds(300)).in_vain(seconds(300)).is_some());
        for promotion in [Promotion::After(seconds(299)), Promotion::Off, Promotion::ByClock] {
            assert_eq!(promotion.in_vain(seconds(300)), None, "{promotion}");
        }
        assert_eq!(Promotion::ByClock.in_vain(seconds(30)), None, "nobody has said anything in vain");
    }

    #[test]
    fn what_is_typed_is_read() {
        for (text, expect) in [
            ("off", Promotion::Off),
            ("by-clock", Promotion::ByClock),
            ("30s", Promotion::After(seconds(30))),
            ("1m 30s", Promotion::After(seconds(90))),
        ] {
            assert_eq!(text.parse(), Ok(expect), "{text}");
        }
        for (text, expect) in [
            ("30", "needs a unit: 30ms, 30s or 30m?; or write `off` or `by-clock`"),
            ("0s", "must be longer than zero; or write `off` or"),
            ("never", "`never` is not a length of time; write a number with a unit"),
            ("Off", "`Off` is not a length of time"),
            ("", "`` is not a length of time"),
        ] {
            let told = text.parse::<Promotion>().expect_err(text).to_string();
            assert!(told.starts_with(expect), "{text}: {told}");
        }
    }

    /// From what no clock has to what no clock can have.
    fn length() -> impl Strategy<Value = Duration> {
        let plausible = (1..=100_000_000_u64).prop_map(Duration::from_millis);
        let any =
            (0..=u64::MAX, 0..1_000_000_000_u32).prop_map(|(seconds, more)| Duration::new(seconds, more));
        prop_oneof![4 => plausible, 1 => any]
    }

    fn promotion() -> impl Strategy<Value = Promotion> {
        prop_oneof![Just(Promotion::ByClock), Just(Promotion::Off), length().prop_map(Promotion::After)]
    }

    proptest! {
        #[test]
        fn the_moment_comes_before_the_call_is_cut_by_the_clients_clock(
            promotion in promotion(),
            clock in length().prop_filter("it runs", |clock| *clock >= Duration::from_millis(1)),
        ) {
            let moment = promotion.moment(Some(clock));
            prop_assert_eq!(moment.is_none(), promotion == Promotion::Off);
            let cut = call_limit(Some(clock), Duration::MAX);
            prop_assert!(moment.is_none_or(|moment| moment < cut), "{:?} and {:?}", moment, cut);
        }

        #[test]
        fn what_is_displayed_can_be_read(promotion in promotion()) {
            prop_assume!(promotion != Promotion::After(Duration::ZERO));
            prop_assert_eq!(promotion.to_string().parse(), Ok(promotion));
        }
    }

    #[test]
    fn clients_get_heartbeats_unless_calls_never_become_jobs() {
        for (promotion, expect) in
            [(Promotion::ByClock, true), (Promotion::After(seconds(1)), true), (Promotion::Off, false)]
        {
            assert_eq!(promotion.has_heartbeats(), expect, "{promotion}");
        }
    }

    #[test]
    fn a_moment_is_put_off_only_while_the_client_is_asked() {
        for (moment, is_asked, end, is_job, next) in [
            (None, true, None, false, None),
            (Some(11), true, None, false, Some(11)),
            (Some(10), false, None, true, None),
            (Some(9), false, Some(100), true, None),
            (Some(9), true, Some(100), false, Some(11)),
            (Some(9), true, Some(12), false, Some(11)),
            (Some(9), true, Some(11), true, None),
        ] {
            let mut at = moment.map(seconds);
            assert_eq!(
                is_due(&mut at, seconds(10), || is_asked, end.map(seconds)),
                is_job,
                "{moment:?} {end:?}"
            );
            assert_eq!(at, next.map(seconds), "{moment:?} {is_asked} {end:?}");
        }
    }

    #[test]
    fn lengths_are_displayed_in_the_largest_units_up_to_days() {
        for (length, expect) in [
            (seconds(90), "1m 30s"),
            (seconds(86_399), "23h 59m 59s"),
            (seconds(86_400), "1d 0s"),
            (seconds(40 * 86_400 + 3600), "40d 1h"),
            (Duration::from_millis(1_500), "1s 500ms"),
        ] {
            assert_eq!(Promotion::After(length).to_string(), expect);
        }
        assert_eq!(
            [Promotion::Off, Promotion::ByClock].map(|promotion| promotion.to_string()),
            Promotion::WORDS
        );
    }
}
