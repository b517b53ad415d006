//! The comparisons and the bars (design 8). Pure.
//!
//! Invariant: a comparison is made within each round, and the median of the comparisons counts. So noise that comes and goes between rounds
//! cancels out.

use std::fmt;

use serde::Serialize;
use unhang_zoo::load::median;

/// The way that a value is compared with, in the same round.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Baseline {
    /// The ratio to the floor's value.
    Floor,
    /// The difference from the direct way's value.
    Direct,
    Nothing,
}

/// The figure that is held against the bar.
#[derive(Clone, Copy)]
pub(super) enum MeasuredSubject {
    /// The value itself.
    Value,
    /// The result of the comparison.
    Comparison,
}

/// The limit that has to be kept.
#[derive(Clone, Copy)]
pub(super) enum BarLimit {
    AtMost(f64),
    AtLeast(f64),
    Exactly(f64),
}

/// One row of a table, about rounds of one kind.
pub(super) struct Measure<Round> {
    /// Its name in JSON, with the unit.
    pub(super) key: &'static str,
    /// Its name for a person.
    pub(super) title: &'static str,
    /// The function that shows a value to a person.
    pub(super) show: fn(f64) -> String,
    pub(super) of: fn(&Round) -> Option<f64>,
    /// The function that makes one value of those of all rounds.
    pub(super) over_rounds: fn(&[f64]) -> Option<f64>,
    pub(super) beside: Baseline,
    pub(super) bar: Option<(MeasuredSubject, BarLimit)>,
}

#[expect(clippy::cast_precision_loss, reason = "sizes stay far below the 52 bits of a mantissa")]
pub(super) fn bytes(count: u64) -> f64 {
    count as f64
}

pub(super) fn milliseconds(time: std::time::Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

pub(super) fn microseconds(time: std::time::Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

pub(super) fn show_microseconds(value: f64) -> String {
    format!("{value:.1} µs")
}

pub(super) fn show_milliseconds(value: f64) -> String {
    format!("{value:.1} ms")
}

pub(super) fn show_mebibytes(value: f64) -> String {
    format!("{:.1} MiB", value / 1_048_576.0)
}

pub(super) fn highest(values: &[f64]) -> Option<f64> {
    values.iter().copied().reduce(f64::max)
}

pub(super) fn lowest(values: &[f64]) -> Option<f64> {
    values.iter().copied().reduce(f64::min)
}

/// One cell of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Value {
    /// The value over all rounds: the median, unless the measure says otherwise.
    pub(super) value: f64,
    /// The ratio to the floor's value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratio_to_floor: Option<f64>,
    /// The difference from the direct way's value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) added_to_direct: Option<f64>,
    /// The value for a person.
    #[serde(skip)]
    pub(super) shown: String,
    /// The comparison for a person, if there is one. The notes of the table say what it compares with.
    #[serde(skip)]
    pub(super) shown_comparison: Option<String>,
}

/// Compares the rounds of one way with those of the two ways that it is measured beside. The result has a value for each of `measures`, or
/// `None` if there is nothing to tell.
pub(super) fn compare<Round>(
    measures: &[Measure<Round>],
    rounds: &[Round],
    direct: &[Round],
    floor: &[Round],
) -> Vec<Option<Value>> {
    let value = |measure: &Measure<Round>| {
        let values: Vec<f64> = rounds.iter().filter_map(measure.of).collect();
        let against = |others: &[Round], compare: fn(f64, f64) -> f64| {
            let pairs = rounds.iter().zip(others);
            let compared: Vec<f64> = pairs
                .filter_map(|(own, other)| Some(compare((measure.of)(own)?, (measure.of)(other)?)))
                .filter(|compared| compared.is_finite())
                .collect();
            median(&compared)
        };
        let value = (measure.over_rounds)(&values)?;
        let ratio_to_floor =
            (measure.beside == Baseline::Floor).then(|| against(floor, |own, other| own / other)).flatten();
        let added_to_direct =
            (measure.beside == Baseline::Direct).then(|| against(direct, |own, other| own - other)).flatten();
        let compared = ratio_to_floor.or(added_to_direct);
        Some(Value {
            value,
            ratio_to_floor,
            added_to_direct,
            shown: (measure.show)(value),
            shown_comparison: compared.map(|compared| measure.show_comparison(compared)),
        })
    };
    measures.iter().map(value).collect()
}

/// A bar and the result that was held against it.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct MeasuredBar {
    /// The key of the measure.
    pub(super) measure: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_most: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_least: Option<f64>,
    /// The figure that was measured, the value or the comparison; `None` if it could not be measured.
    pub(super) measured: Option<f64>,
    pub(super) met: bool,
    /// The bar in words.
    #[serde(skip)]
    words: String,
}

impl MeasuredBar {
    /// Returns the bar with the name of this way in front of its words.
    pub(super) fn of(self, way: &str) -> Self {
        Self { words: format!("{way}, {}", self.words), ..self }
    }
}

impl fmt::Display for MeasuredBar {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.words)
    }
}

/// Holds the values of one way against the bars. A bar whose value could not be measured is missed.
pub(super) fn judge<Round>(measures: &[Measure<Round>], values: &[Option<Value>]) -> Vec<MeasuredBar> {
    let judged = measures.iter().zip(values).filter_map(|(measure, value)| {
        let (subject, limit) = measure.bar?;
        let measured = value.as_ref().and_then(|value| match subject {
            MeasuredSubject::Comparison => value.ratio_to_floor.or(value.added_to_direct),
            MeasuredSubject::Value => Some(value.value),
        });
        let (at_most, at_least) = match limit {
            BarLimit::AtMost(bar) => (Some(bar), None),
            BarLimit::AtLeast(bar) => (None, Some(bar)),
            BarLimit::Exactly(bar) => (Some(bar), Some(bar)),
        };
        let met = measured.is_some_and(|measured| {
            at_most.is_none_or(|bar| measured <= bar) && at_least.is_none_or(|bar| measured >= bar)
        });
        let found = measured.map_or("nothing".to_owned(), |measured| measure.show_subject(subject, measured));
        let unit = if measure.is_ratio(subject) { " x floor" } else { "" };
        let bar = measure.show_bar().unwrap_or_default();
        let words = format!("{}: {found}{unit}, the bar is {bar}{unit}", measure.title);
        Some(MeasuredBar { measure: measure.key, at_most, at_least, measured, met, words })
    });
    judged.collect()
}

impl<Round> Measure<Round> {
    fn show_comparison(&self, value: f64) -> String {
        match self.beside {
            Baseline::Floor => format!("{value:.2}"),
            Baseline::Direct => format!("{value:+.1}"),
            Baseline::Nothing => (self.show)(value),
        }
    }

    /// Shows the figure that is held against the bar, without the unit of a ratio.
    fn show_subject(&self, subject: MeasuredSubject, value: f64) -> String {
        match (subject, self.beside) {
            (MeasuredSubject::Value, _) => (self.show)(value),
            (MeasuredSubject::Comparison, Baseline::Direct) => format!("{value:+.1} ms"),
            (MeasuredSubject::Comparison, _) => self.show_comparison(value),
        }
    }

    fn is_ratio(&self, subject: MeasuredSubject) -> bool {
        matches!((subject, self.beside), (MeasuredSubject::Comparison, Baseline::Floor))
    }

    /// Shows the bar, or returns `None` if there is none.
    pub(super) fn show_bar(&self) -> Option<String> {
        let (subject, limit) = self.bar?;
        Some(match limit {
            BarLimit::AtMost(bar) => format!("≤ {}", self.show_subject(subject, bar)),
            BarLimit::AtLeast(bar) => format!("≥ {}", self.show_subject(subject, bar)),
            BarLimit::Exactly(bar) => self.show_subject(subject, bar),
        })
    }
}
