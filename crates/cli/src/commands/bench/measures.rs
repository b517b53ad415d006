//! What is compared with what, and the bars (design 8). Pure.
//!
//! Invariant: a comparison is made within each round, and the median of these is what counts; noise that comes and goes
//! between rounds cancels out.

use std::fmt;

use serde::Serialize;
use unhang_zoo::load::{Round, median};

/// What a value is compared with, in the same round.
#[derive(Clone, Copy, PartialEq)]
enum Beside {
    /// How many times the floor's.
    Floor,
    /// How much more than the direct way's.
    Direct,
    Nothing,
}

/// What `unhang wrap` must reach.
#[derive(Clone, Copy)]
enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

/// One row of the table.
pub(super) struct Measure {
    /// Its name in JSON, with the unit.
    pub(super) key: &'static str,
    /// Its name for a person.
    pub(super) title: &'static str,
    /// Shows a value to a person.
    pub(super) show: fn(f64) -> String,
    of: fn(&Round) -> Option<f64>,
    /// Makes one of the values of all rounds.
    over_rounds: fn(&[f64]) -> Option<f64>,
    beside: Beside,
    bar: Option<Limit>,
}

#[expect(clippy::cast_precision_loss, reason = "sizes stay far below the 52 bits of a mantissa")]
fn bytes(count: u64) -> f64 {
    count as f64
}

fn microseconds(time: std::time::Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn show_microseconds(value: f64) -> String {
    format!("{value:.1} µs")
}

fn show_milliseconds(value: f64) -> String {
    format!("{value:.1} ms")
}

fn highest(values: &[f64]) -> Option<f64> {
    values.iter().copied().reduce(f64::max)
}

/// All rows, in the order of the table.
pub(super) const MEASURES: [Measure; 8] = [
    Measure {
        key: "round_trip_p50_us",
        title: "round trip, p50",
        show: show_microseconds,
        of: |round| Some(microseconds(round.round_trip_p50)),
        over_rounds: median,
        beside: Beside::Floor,
        bar: Some(Limit::AtMost(1.3)),
    },
    Measure {
        key: "round_trip_p99_us",
        title: "round trip, p99",
        show: show_microseconds,
        of: |round| Some(microseconds(round.round_trip_p99)),
        over_rounds: median,
        beside: Beside::Floor,
        bar: None,
    },
    Measure {
        key: "calls_per_second",
        title: "64 in flight",
        show: |value| format!("{:.1} k/s", value / 1e3),
        of: |round| Some(round.calls_per_second),
        over_rounds: median,
        beside: Beside::Floor,
        bar: Some(Limit::AtLeast(0.85)),
    },
    Measure {
        key: "bytes_per_second",
        title: "10 MB results",
        show: |value| format!("{:.0} MB/s", value / 1e6),
        of: |round| Some(round.bytes_per_second),
        over_rounds: median,
        beside: Beside::Floor,
        bar: Some(Limit::AtLeast(0.7)),
    },
    Measure {
        key: "start_ms",
        title: "start",
        show: show_milliseconds,
        of: |round| Some(round.start.as_secs_f64() * 1e3),
        over_rounds: median,
        beside: Beside::Direct,
        bar: Some(Limit::AtMost(15.0)),
    },
    Measure {
        key: "stop_ms",
        title: "stop",
        show: show_milliseconds,
        of: |round| Some(round.stop.as_secs_f64() * 1e3),
        over_rounds: median,
        beside: Beside::Direct,
        bar: None,
    },
    Measure {
        key: "memory_bytes",
        title: "memory added",
        show: |value| format!("{:.1} MiB", value / 1_048_576.0),
        of: |round| Some(bytes(round.memory)),
        over_rounds: highest,
        beside: Beside::Nothing,
        bar: Some(Limit::AtMost(12.0 * 1_048_576.0)),
    },
    Measure {
        key: "processor_us_per_call",
        title: "processor a call",
        show: show_microseconds,
        of: |round| round.processor.map(microseconds),
        over_rounds: median,
        beside: Beside::Floor,
        bar: None,
    },
];

/// One cell of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Value {
    /// Of all rounds the median, of memory the highest.
    pub(super) value: f64,
    /// How many times the floor's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratio_to_floor: Option<f64>,
    /// How much more than the direct way's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) added_to_direct: Option<f64>,
}

/// Compares the rounds of one way with those of the two that it is measured beside; one value for each of [`MEASURES`],
/// none where the system does not tell.
pub(super) fn compare(rounds: &[Round], direct: &[Round], floor: &[Round]) -> Vec<Option<Value>> {
    let value = |measure: &Measure| {
        let values: Vec<f64> = rounds.iter().filter_map(measure.of).collect();
        let against = |others: &[Round], compare: fn(f64, f64) -> f64| {
            let pairs = rounds.iter().zip(others);
            let compared: Vec<f64> = pairs
                .filter_map(|(own, other)| Some(compare((measure.of)(own)?, (measure.of)(other)?)))
                .filter(|compared| compared.is_finite())
                .collect();
            median(&compared)
        };
        Some(Value {
            value: (measure.over_rounds)(&values)?,
            ratio_to_floor: (measure.beside == Beside::Floor)
                .then(|| against(floor, |own, other| own / other))
                .flatten(),
            added_to_direct: (measure.beside == Beside::Direct)
                .then(|| against(direct, |own, other| own - other))
                .flatten(),
        })
    };
    MEASURES.iter().map(value).collect()
}

/// A bar and what became of it.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Bar {
    /// Which measure.
    pub(super) measure: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_most: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_least: Option<f64>,
    /// What was measured: the comparison where there is one, else the value; none if it could not be.
    measured: Option<f64>,
    pub(super) met: bool,
    /// In words.
    #[serde(skip)]
    words: String,
}

impl fmt::Display for Bar {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.words)
    }
}

/// Holds the values of one way against the bars. What could not be measured is missed.
pub(super) fn judge(values: &[Option<Value>]) -> Vec<Bar> {
    let judged = MEASURES.iter().zip(values).filter_map(|(measure, value)| {
        let limit = measure.bar?;
        let measured = value.as_ref().and_then(|value| match measure.beside {
            Beside::Floor => value.ratio_to_floor,
            Beside::Direct => value.added_to_direct,
            Beside::Nothing => Some(value.value),
        });
        let (at_most, at_least) = match limit {
            Limit::AtMost(bar) => (Some(bar), None),
            Limit::AtLeast(bar) => (None, Some(bar)),
        };
        let met = measured.is_some_and(|measured| {
            at_most.is_none_or(|bar| measured <= bar) && at_least.is_none_or(|bar| measured >= bar)
        });
        let found = measured.map_or("nothing".to_owned(), |measured| measure.show_compared(measured));
        let words =
            format!("{}: {found}, the bar is {}", measure.title, measure.show_bar().unwrap_or_default());
        Some(Bar { measure: measure.key, at_most, at_least, measured, met, words })
    });
    judged.collect()
}

impl Measure {
    /// Shows what counts for the bar.
    fn show_compared(&self, value: f64) -> String {
        match self.beside {
            Beside::Floor => format!("{value:.2} x floor"),
            Beside::Direct => format!("{value:+.1} ms"),
            Beside::Nothing => (self.show)(value),
        }
    }

    /// The same in the table, whose notes say what it is compared with.
    fn show_short(&self, value: f64) -> String {
        match self.beside {
            Beside::Floor => format!("{value:.2}"),
            Beside::Direct => format!("{value:+.1}"),
            Beside::Nothing => (self.show)(value),
        }
    }

    /// Shows the bar in the table, where there is one.
    pub(super) fn show_short_bar(&self) -> Option<String> {
        Some(match self.bar? {
            Limit::AtMost(bar) => format!("≤ {}", self.show_short(bar)),
            Limit::AtLeast(bar) => format!("≥ {}", self.show_short(bar)),
        })
    }

    /// Shows the bar, where there is one.
    fn show_bar(&self) -> Option<String> {
        Some(match self.bar? {
            Limit::AtMost(bar) => format!("≤ {}", self.show_compared(bar)),
            Limit::AtLeast(bar) => format!("≥ {}", self.show_compared(bar)),
        })
    }
}

impl Value {
    /// Shows the comparison in the table, where there is one.
    pub(super) fn show_comparison(&self, measure: &Measure) -> Option<String> {
        self.ratio_to_floor.or(self.added_to_direct).map(|compared| measure.show_short(compared))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A round whose times are multiples of a unit and whose rates are fractions of one.
    fn round(slow: u64) -> Round {
        let rate = 1e6 / bytes(slow);
        Round {
            round_trip_p50: Duration::from_micros(10 * slow),
            round_trip_p99: Duration::from_micros(100 * slow),
            calls_per_second: rate,
            bytes_per_second: rate,
            start: Duration::from_millis(5 * slow),
            stop: Duration::from_millis(slow),
            memory: slow << 20,
            processor: Some(Duration::from_micros(slow)),
        }
    }

    fn value<'a>(values: &'a [Option<Value>], key: &str) -> &'a Value {
        let place = MEASURES.iter().position(|measure| measure.key == key).expect("a measure");
        values[place].as_ref().expect("a value")
    }

    fn close(left: Option<f64>, right: f64) -> bool {
        left.is_some_and(|left| (left - right).abs() < 1e-6)
    }

    #[test]
    fn a_ratio_is_taken_within_its_round() {
        // The second round was ten times as slow for everybody; the ratio does not notice.
        let own = [round(4), round(40), round(4)];
        let floor = [round(2), round(20), round(2)];
        let direct = [round(1), round(10), round(1)];
        let values = compare(&own, &direct, &floor);
        assert!(close(value(&values, "round_trip_p50_us").ratio_to_floor, 2.0));
        assert!(close(value(&values, "calls_per_second").ratio_to_floor, 0.5));
        assert!(close(Some(value(&values, "round_trip_p50_us").value), 40.0));
        assert!(close(value(&values, "start_ms").added_to_direct, 15.0));
        assert!(
            close(Some(value(&values, "memory_bytes").value), bytes(40 << 20)),
            "the peak is the highest"
        );
    }

    #[test]
    fn what_cannot_be_measured_or_divided_is_left_out() {
        let untold = Round { processor: None, ..round(1) };
        assert_eq!(compare(&[untold], &[untold], &[untold]).last(), Some(&None));
        let zero = Round { processor: Some(Duration::ZERO), ..round(1) };
        let values = compare(&[round(1)], &[round(1)], &[zero]);
        assert_eq!(value(&values, "processor_us_per_call").ratio_to_floor, None);
    }

    #[test]
    fn bars_are_met_up_to_their_edge_and_missed_beyond() {
        let floor = [round(10)];
        let judge_against = |own: Round| judge(&compare(&[own], &[round(7)], &floor));
        let missed = |own: Round| -> Vec<&str> {
            judge_against(own).iter().filter(|bar| !bar.met).map(|bar| bar.measure).collect()
        };
        assert_eq!(judge_against(round(10)).len(), 5);
        assert_eq!(missed(round(10)), [] as [&str; 0]);
        assert_eq!(missed(round(11)), ["start_ms"], "20 ms added");
        assert_eq!(missed(round(12)), ["calls_per_second", "start_ms"], "0.83");
        let slow = ["round_trip_p50_us", "calls_per_second", "bytes_per_second", "start_ms", "memory_bytes"];
        assert_eq!(missed(round(20)), slow);
    }

    #[test]
    fn what_was_not_measured_is_missed() {
        let nothing: Vec<_> = MEASURES.iter().map(|_| None).collect();
        let bars = judge(&nothing);
        assert!(bars.iter().all(|bar| !bar.met && bar.measured.is_none()), "{bars:?}");
    }

    #[test]
    fn a_bar_says_what_it_is_about() {
        let bars = judge(&compare(&[round(20)], &[round(1)], &[round(10)]));
        assert_eq!(bars[0].to_string(), "round trip, p50: 2.00 x floor, the bar is ≤ 1.30 x floor");
        assert_eq!(bars[3].to_string(), "start: +95.0 ms, the bar is ≤ +15.0 ms");
        assert_eq!(bars[4].to_string(), "memory added: 20.0 MiB, the bar is ≤ 12.0 MiB");
    }
}
