//! The heartbeats to the caller of a tool while its server says nothing: they tell that unhang still waits, and for how long. A client
//! whose clock begins anew with each progress keeps waiting.
//!
//! Theory of operation. A call whose client sent a progress token has a [`Heartbeat`]. The holder of the call asks it when a heartbeat is
//! due, and gets the line from it. The holder also shows it the progress that the server itself reports, which begins the wait anew.
//!
//! # Invariants
//!
//! - Pure: nothing here knows a clock, a client or a server.
//! - The values that go out for one token increase each time (protocol.md 3.1). A heartbeat is a tiny step above all earlier values. After
//!   the first heartbeat, the server's own value is also raised by such a step, if it would not be above the earlier ones.
//! - Until the first heartbeat the server's progress is left as it is, whatever it says.
//! - Members that a revision does not know are not sent to a client of that revision.

use std::time::Duration;

use serde_json::Value;
use unhang_wire::{Id, Json};

use crate::{config::HEARTBEAT, units::in_words, wording::shortened};

/// The number of steps in one. A heartbeat is one step above the earlier values, less than any server's own step, if numbers of that size
/// can differ by so little.
const STEPS_IN_ONE: f64 = 1e6;

/// The longest part of a tool's name that a heartbeat shows, in characters.
const MOST_SHOWN: usize = 100;

/// The longest total of a server that is repeated: no meaningful number is longer.
const LONGEST_TOTAL: usize = 32;

/// The heartbeats of one call; see the module's text.
#[derive(Debug)]
pub struct Heartbeat {
    token: Id,
    tool: Box<str>,
    since: Duration,
    next: Duration,
    /// The highest value that went out.
    highest: Option<f64>,
    /// The last total from the server, as it wrote it.
    total: Option<Box<str>>,
    has_messages: bool,
    has_beaten: bool,
}

impl Heartbeat {
    /// Makes the heartbeats of a call of this tool that begins now. `has_messages` states whether progress may carry a message in the
    /// client's revision.
    pub fn new(now: Duration, token: Id, tool: &str, has_messages: bool) -> Heartbeat {
        Heartbeat {
            token,
            tool: shortened(tool, MOST_SHOWN).into(),
            since: now,
            next: now + HEARTBEAT,
            highest: None,
            total: None,
            has_messages,
            has_beaten: false,
        }
    }

    /// Makes the heartbeats of the same call under another token, for which nothing went out yet.
    pub fn renamed(self, now: Duration, token: Id) -> Heartbeat {
        Heartbeat { since: self.since, ..Heartbeat::new(now, token, &self.tool, self.has_messages) }
    }

    /// Returns the token that the client has given the call.
    pub fn token(&self) -> &Id {
        &self.token
    }

    /// Returns when [`Heartbeat::beat`] is due.
    pub fn next(&self) -> Duration {
        self.next
    }

    /// Makes the line for the client; `None` if none is due, or if there is no higher number.
    pub fn beat(&mut self, now: Duration) -> Option<String> {
        if now < self.next {
            return None;
        }
        self.next = now + HEARTBEAT;
        let value = self.above_all()?;
        self.highest = Some(value);
        self.has_beaten = true;
        let mut params = format!(r#""progressToken":{},"progress":{value}"#, self.token.to_json());
        // A total below the value means nothing any more, and is left out.
        if let Some(total) = self.total.as_ref().filter(|total| number(total).is_some_and(|all| all >= value))
        {
            params += &format!(r#","total":{total}"#);
        }
        if self.has_messages {
            let waited = in_words(Duration::from_secs(now.saturating_sub(self.since).as_secs()));
            let message = Value::from(format!("still waiting for `{}`: {waited}", self.tool));
            params += &format!(r#","message":{message}"#);
        }
        Some(format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{{params}}}}}"#))
    }

    /// Notes that the server itself has reported progress, in these `params`. Returns the number that has to replace the server's own, if
    /// that would be no step forward from a heartbeat.
    pub fn server_said(&mut self, now: Duration, params: Json<'_>) -> Option<String> {
        self.next = now + HEARTBEAT;
        let total = params.member("total").map(Json::get).filter(|total| total.len() <= LONGEST_TOTAL);
        self.total = total.filter(|total| number(total).is_some()).map(Into::into);
        let said = number(params.member("progress")?.get())?;
        if self.highest.is_none_or(|highest| said > highest) {
            self.highest = Some(said);
            return None;
        }
        if !self.has_beaten {
            return None;
        }
        let raised = self.above_all()?;
        self.highest = Some(raised);
        Some(raised.to_string())
    }

    /// Returns a value a tiny step above all that went out; `None` if there is no such number.
    fn above_all(&self) -> Option<f64> {
        let Some(highest) = self.highest else { return Some(STEPS_IN_ONE.recip()) };
        let step = ((highest * STEPS_IN_ONE).round() + 1.0) / STEPS_IN_ONE;
        // Numbers may be so large that a step is lost in them; then the next larger number is taken.
        let above =
            Some(step).filter(|step| *step > highest && step.is_finite()).unwrap_or(highest.next_up());
        Some(above).filter(|above| above.is_finite())
    }
}

/// Parses a number of JSON. A number that is too large to be told apart from others is infinite.
fn number(json: &str) -> Option<f64> {
    let is_number = json.starts_with(|first: char| first == '-' || first.is_ascii_digit());
    json.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn heartbeat() -> Heartbeat {
        Heartbeat::new(seconds(100), Id::from("p"), "slow", true)
    }

    fn json(text: &str) -> Json<'_> {
        Json::new(text.as_bytes()).expect("JSON")
    }

    #[test]
    fn it_beats_every_ten_seconds_that_the_server_is_silent_and_says_for_how_long_it_has_been_waited() {
        let mut heart = heartbeat();
        assert_eq!((heart.next(), heart.beat(seconds(109))), (seconds(110), None));
        assert_eq!(
            heart.beat(seconds(110)).expect("a beat"),
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":0.000001,"message":"still waiting for `slow`: 10s"}}"#
        );
        assert_eq!(heart.beat(seconds(119)), None);
        let second = heart.beat(seconds(120)).expect("a beat");
        assert!(second.contains(r#""progress":0.000002,"#) && second.contains(": 20s"), "{second}");
        // What the server says begins the wait anew, and counts from then on, total and all.
        assert_eq!(heart.server_said(seconds(125), json(r#"{"progress":3,"total":4.0}"#)), None);
        assert_eq!((heart.next(), heart.beat(seconds(134))), (seconds(135), None));
        let third = heart.beat(seconds(172)).expect("a beat");
        assert!(third.contains(r#""progress":3.000001,"total":4.0,"message""#), "{third}");
        assert!(third.contains(": 1m 12s"), "{third}");
    }

    #[test]
    fn a_client_of_the_first_revision_is_sent_no_message() {
        let mut heart = Heartbeat::new(seconds(0), 7.into(), "slow", false);
        assert_eq!(
            heart.beat(seconds(10)).expect("a beat"),
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":0.000001}}"#
        );
    }

    #[test]
    fn what_the_server_says_is_left_as_it_is_until_there_was_a_heartbeat() {
        let mut heart = heartbeat();
        for said in ["5", "5", "3", "4"] {
            assert_eq!(heart.server_said(seconds(101), json(&format!(r#"{{"progress":{said}}}"#))), None);
        }
        let beat = heart.beat(seconds(111)).expect("a beat");
        assert!(beat.contains(r#""progress":5.000001,"#), "above all that went out: {beat}");
    }

    #[test]
    fn after_a_heartbeat_what_the_server_says_is_raised_where_it_is_not_above() {
        let mut heart = heartbeat();
        heart.beat(seconds(110)).expect("a beat");
        let mut said =
            |value: &str| heart.server_said(seconds(111), json(&format!(r#"{{"progress":{value}}}"#)));
        assert_eq!(said("0").as_deref(), Some("0.000002"));
        assert_eq!(said("0.000002").as_deref(), Some("0.000003"));
        assert_eq!(said("1.0e0"), None);
        assert_eq!(said("1").as_deref(), Some("1.000001"));
        assert_eq!(said("9007199254740992"), None);
        assert_eq!(said("9007199254740992").as_deref(), Some("9007199254740994"));
        assert_eq!(said("\"high\""), None, "there is no number to raise");
        assert_eq!(said("1e308"), None);
        assert!(said("1e308").is_some_and(|raised| raised.parse::<f64>().expect("a number") > 1e308));
    }

    #[test]
    fn above_what_has_nothing_above_it_there_is_silence() {
        for said in ["1e999", "1.7976931348623157e308"] {
            let mut heart = heartbeat();
            let said = format!(r#"{{"progress":{said}}}"#);
            assert_eq!(heart.server_said(seconds(100), json(&said)), None);
            assert_eq!(heart.beat(seconds(110)), None);
            assert_eq!(heart.next(), seconds(120), "the clock gets on");
        }
    }

    #[test]
    fn a_total_that_was_passed_or_is_none_is_left_out() {
        for total in [r#","total":3"#, r#","total":"4""#, r#","total":null"#, ""] {
            let mut heart = heartbeat();
            heart.server_said(seconds(101), json(&format!(r#"{{"progress":3{total}}}"#)));
            let beat = heart.beat(seconds(111)).expect("a beat");
            assert!(!beat.contains("total"), "{total}: {beat}");
        }
    }

    #[test]
    fn whatever_the_tool_is_called_the_line_is_one_message() {
        let mut heart = Heartbeat::new(seconds(0), Id::from("p\n"), &"\"\n".repeat(1000), true);
        let beat = heart.beat(seconds(10)).expect("a beat");
        assert!(beat.len() < 600 && !beat.contains('\n'), "{beat}");
        serde_json::from_str::<Value>(&beat).expect("JSON");
    }

    proptest! {
        #[test]
        fn what_goes_out_increases_once_there_was_a_heartbeat(events in prop::collection::vec(prop::option::of(any::<f64>()), 0..40)) {
            let (mut heart, mut now, mut out, mut beaten) = (heartbeat(), seconds(100), Vec::<f64>::new(), None);
            for event in events {
                now += seconds(10);
                let value = match event {
                    None => match heart.beat(now) {
                        None => continue,
                        Some(line) => {
                            beaten.get_or_insert(out.len());
                            let line: Value = serde_json::from_str(&line).expect("JSON");
                            line["params"]["progress"].as_f64().expect("a number")
                        }
                    },
                    Some(said) if said.is_finite() => {
                        let raised = heart.server_said(now, json(&format!(r#"{{"progress":{said}}}"#)));
                        raised.map_or(said, |raised| raised.parse().expect("a number"))
                    }
                    Some(_) => continue,
                };
                out.push(value);
            }
            let beaten = beaten.unwrap_or(out.len());
            let before = out.iter().take(beaten).copied().fold(f64::NEG_INFINITY, f64::max);
            let after = || out.iter().skip(beaten);
            prop_assert!(after().all(|value| *value > before || before == f64::MAX));
            prop_assert!(after().zip(after().skip(1)).all(|(one, next)| one < next || *one == f64::MAX), "{:?}", out);
        }
    }

    #[test]
    fn under_another_token_the_wait_goes_on_and_the_numbers_begin_anew() {
        for has_messages in [true, false] {
            let mut heart = Heartbeat::new(seconds(100), Id::from("p"), "slow", has_messages);
            heart.server_said(seconds(101), json(r#"{"progress":3,"total":4}"#));
            heart.beat(seconds(111)).expect("a beat");
            let mut heart = heart.renamed(seconds(115), 8.into());
            assert_eq!((heart.token(), heart.next()), (&Id::Integer(8), seconds(125)));
            assert_eq!(
                heart.server_said(seconds(120), json(r#"{"progress":1}"#)),
                None,
                "no heartbeat went out"
            );
            assert_eq!(heart.beat(seconds(129)), None);
            let message = if has_messages { r#","message":"still waiting for `slow`: 30s""# } else { "" };
            let expect = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":8,"progress":1.000001{message}}}}}"#
            );
            assert_eq!(heart.beat(seconds(130)), Some(expect));
        }
    }

    #[test]
    fn a_total_is_repeated_as_it_is_while_it_is_not_passed_and_not_longer_than_any_number() {
        let (longest, longer) = (format!("5.{}", "0".repeat(30)), format!("5.{}", "0".repeat(31)));
        for (progress, total, expect) in [
            ("3", "4.50", Some("4.50")),
            ("3", "3.000001", Some("3.000001")),
            ("3", "3", None),
            ("-3", "-1", Some("-1")),
            ("-3", "-3", None),
            ("3", &longest, Some(longest.as_str())),
            ("3", &longer, None),
            ("3", "true", None),
        ] {
            let mut heart = heartbeat();
            heart.server_said(seconds(101), json(&format!(r#"{{"progress":{progress},"total":{total}}}"#)));
            let beat = heart.beat(seconds(111)).expect("a beat");
            let told = beat.split_once(r#","total":"#).and_then(|(_, rest)| rest.split(',').next());
            assert_eq!(told, expect, "{total}: {beat}");
        }
        // The latest word of the server counts: without a total there is none any more.
        let mut heart = heartbeat();
        heart.server_said(seconds(101), json(r#"{"progress":3,"total":9}"#));
        heart.server_said(seconds(102), json(r#"{"progress":4}"#));
        assert!(heart.beat(seconds(112)).is_some_and(|beat| !beat.contains("total")));
    }

    #[test]
    fn any_word_of_the_server_begins_the_wait_anew_and_negative_numbers_count() {
        let mut heart = heartbeat();
        for (second, said) in [(105, r#"{}"#), (107, r#"{"progress":null}"#), (108, r#"{"progress":-5}"#)] {
            assert_eq!(heart.server_said(seconds(second), json(said)), None);
            assert_eq!(heart.next(), seconds(second + 10), "{said}");
        }
        assert!(heart.beat(seconds(118)).is_some_and(|beat| beat.contains(r#""progress":-4.999999,"#)));
        for (text, expect) in [
            ("-1.5e1", Some(-15.0)),
            ("0", Some(0.0)),
            ("9", Some(9.0)),
            ("1e999", Some(f64::INFINITY)),
            ("inf", None),
            ("nan", None),
            ("+1", None),
            (".5", None),
            ("", None),
        ] {
            assert_eq!(number(text), expect, "{text}");
        }
    }
}
