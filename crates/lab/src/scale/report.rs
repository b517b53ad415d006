//! The report: the same figures for a person and as JSON. Pure.

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, LineStyle, Table, presets};
use serde::Serialize;
use serde_json::json;

use super::{
    judge::JobFlaw,
    matrix::{FaultTally, MatrixOutcome},
    plan::ScaleFault,
};

/// The limit that a figure has to keep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ScaleBar {
    AtMost(f64),
    AtLeast(f64),
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScaleUnit {
    Count,
    Milliseconds,
    Ratio,
    PerSecond,
    Bytes,
}

/// A figure.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ScaleFigure {
    pub(super) part: &'static str,
    pub(super) measure: String,
    pub(super) unit: ScaleUnit,
    pub(super) bar: Option<ScaleBar>,
    pub(super) measured: f64,
}

/// A figure as JSON has it.
#[derive(Serialize)]
struct FigureForm<'a> {
    part: &'static str,
    measure: &'a str,
    unit: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_most: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_least: Option<f64>,
    measured: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    met: Option<bool>,
}

impl ScaleFigure {
    /// Makes a figure without a bar.
    pub(super) fn new(
        part: &'static str,
        measure: impl Into<String>,
        unit: ScaleUnit,
        measured: f64,
    ) -> Self {
        Self { part, measure: measure.into(), unit, bar: None, measured }
    }

    /// Returns the figure with a bar.
    pub(super) fn with_bar(self, bar: ScaleBar) -> Self {
        Self { bar: Some(bar), ..self }
    }

    /// Returns whether the figure keeps its bar; `None` if it has none. A figure that is no number keeps none.
    pub(super) fn is_met(&self) -> Option<bool> {
        self.bar.map(|bar| match bar {
            ScaleBar::AtMost(most) => self.measured <= most,
            ScaleBar::AtLeast(least) => self.measured >= least,
        })
    }

    fn form(&self) -> FigureForm<'_> {
        let (at_most, at_least) = match self.bar {
            Some(ScaleBar::AtMost(bar)) => (Some(bar), None),
            Some(ScaleBar::AtLeast(bar)) => (None, Some(bar)),
            None => (None, None),
        };
        let (measured, met, unit) = (self.measured, self.is_met(), self.unit.name());
        FigureForm { part: self.part, measure: &self.measure, unit, at_most, at_least, measured, met }
    }
}

impl ScaleUnit {
    fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Milliseconds => "ms",
            Self::Ratio => "ratio",
            Self::PerSecond => "per second",
            Self::Bytes => "bytes",
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            Self::Count => format!("{value:.0}"),
            Self::Milliseconds => format!("{value:.2} ms"),
            Self::Ratio => format!("{value:.2} x"),
            Self::PerSecond => format!("{value:.1} /s"),
            Self::Bytes => format!("{value:.0} B"),
        }
    }
}

/// Everything that a run has found.
#[derive(Debug, Default)]
pub(super) struct ScaleReport {
    pub(super) seed: u64,
    /// The matrix by the length of its leases, if it was played.
    pub(super) matrices: Vec<(&'static str, MatrixOutcome)>,
    pub(super) figures: Vec<ScaleFigure>,
    /// Flaws of jobs outside of the matrix.
    pub(super) flaws: Vec<String>,
    pub(super) notes: Vec<String>,
}

impl ScaleReport {
    /// Returns the sentences about flaws of jobs.
    pub(super) fn all_flaws(&self) -> impl Iterator<Item = &String> {
        self.matrices.iter().flat_map(|(_, outcome)| &outcome.flaws).chain(&self.flaws)
    }

    /// Returns the figures that miss their bars.
    pub(super) fn missed(&self) -> impl Iterator<Item = &ScaleFigure> {
        self.figures.iter().filter(|figure| figure.is_met() == Some(false))
    }

    /// Returns the report as JSON.
    pub(super) fn json(&self) -> String {
        let matrices: Vec<_> =
            self.matrices.iter().map(|(name, outcome)| matrix_json(name, outcome)).collect();
        let figures: Vec<_> = self.figures.iter().map(ScaleFigure::form).collect();
        let flaws: Vec<_> = self.all_flaws().collect();
        let report = json!({
            "debug_build": cfg!(debug_assertions),
            "seed": self.seed,
            "matrix": matrices,
            "figures": figures,
            "flaws": flaws,
            "notes": self.notes,
        });
        format!("{report:#}\n")
    }

    /// Returns the report as text for a person.
    pub(super) fn text(&self) -> String {
        let mut parts: Vec<String> = self
            .matrices
            .iter()
            .map(|(name, outcome)| format!("{name}\n{}\n", matrix_table(outcome)))
            .collect();
        if !self.figures.is_empty() {
            parts.push(format!("{}\n", figures_table(&self.figures)));
        }
        parts.extend(self.notes.iter().map(|note| format!("{note}\n")));
        if cfg!(debug_assertions) {
            parts.push("This is a debug build: its times have no meaning.\n".to_owned());
        }
        parts.push(format!("seed {}\n", self.seed));
        parts.join("\n")
    }
}

const COLUMNS: [(JobFlaw, &str, &str); 6] = [
    (JobFlaw::NoEnd, "no end", "no_end"),
    (JobFlaw::TwoPlaces, "2 places", "two_places"),
    (JobFlaw::BegunTwice, "twice", "begun_twice"),
    (JobFlaw::UntrueEnd, "untrue", "untrue_end"),
    (JobFlaw::KilledUnasked, "unasked", "killed_unasked"),
    (JobFlaw::LateHeartbeat, "late", "late_heartbeat"),
];

fn matrix_json(name: &str, outcome: &MatrixOutcome) -> serde_json::Value {
    let of = |(fault, tally): (&ScaleFault, &FaultTally)| {
        let flaws: BTreeMap<_, _> = COLUMNS
            .iter()
            .map(|(flaw, _, key)| (*key, tally.flaws.get(flaw).copied().unwrap_or_default()))
            .collect();
        json!({
            "fault": fault.name(), "rounds": tally.rounds, "jobs": tally.jobs, "completed": tally.completed,
            "failed": tally.failed, "lost": tally.lost, "began_again": tally.again, "flaws": flaws,
        })
    };
    let faults: Vec<_> = outcome.tallies.iter().map(of).collect();
    json!({"leases": name, "faults": faults})
}

fn matrix_table(outcome: &MatrixOutcome) -> Table {
    let mut table = plain_table();
    let heads = ["fault", "rounds", "jobs", "done", "failed", "lost", "again"];
    table.set_header(heads.into_iter().chain(COLUMNS.iter().map(|(_, head, _)| *head)));
    let row = |tally: &FaultTally| {
        let flaws = COLUMNS.iter().map(|(flaw, ..)| tally.flaws.get(flaw).copied().unwrap_or_default());
        let counts = [tally.rounds, tally.jobs, tally.completed, tally.failed, tally.lost, tally.again];
        counts.into_iter().chain(flaws).map(|count| count.to_string()).collect::<Vec<_>>()
    };
    let mut all = FaultTally::default();
    for (fault, tally) in &outcome.tallies {
        table.add_row([fault.name().to_owned()].into_iter().chain(row(tally)));
        all.rounds += tally.rounds;
        all.jobs += tally.jobs;
        all.completed += tally.completed;
        all.failed += tally.failed;
        all.lost += tally.lost;
        all.again += tally.again;
        for (flaw, count) in &tally.flaws {
            *all.flaws.entry(*flaw).or_default() += count;
        }
    }
    table.add_row(["in all".to_owned()].into_iter().chain(row(&all)));
    align(&mut table, 1);
    table
}

fn figures_table(figures: &[ScaleFigure]) -> Table {
    let mut table = plain_table();
    table.set_header(["part", "measure", "bar", "measured", "met"]);
    let mut last = "";
    for figure in figures {
        let part = if std::mem::replace(&mut last, figure.part) == figure.part { "" } else { figure.part };
        let bar = match figure.bar {
            Some(ScaleBar::AtMost(bar)) => format!("≤ {}", figure.unit.show(bar)),
            Some(ScaleBar::AtLeast(bar)) => format!("≥ {}", figure.unit.show(bar)),
            None => String::new(),
        };
        let met = figure.is_met().map_or("", |is_met| if is_met { "yes" } else { "NO" });
        let measured = figure.unit.show(figure.measured);
        table.add_row([part.to_owned(), figure.measure.clone(), bar, measured, met.to_owned()]);
    }
    align(&mut table, 2);
    table
}

fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none()));
    table
}

fn align(table: &mut Table, first: usize) {
    for column in table.column_iter_mut() {
        column.set_padding((0, 1));
    }
    for column in table.column_iter_mut().skip(first) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(bar: ScaleBar, measured: f64) -> ScaleFigure {
        ScaleFigure::new("submit", "p99", ScaleUnit::Milliseconds, measured).with_bar(bar)
    }

    #[test]
    fn a_bar_is_missed_on_its_wrong_side_and_by_what_is_no_number() {
        let table = [
            (ScaleBar::AtMost(20.0), 20.0, true),
            (ScaleBar::AtMost(20.0), 20.1, false),
            (ScaleBar::AtLeast(500.0), 500.0, true),
            (ScaleBar::AtLeast(500.0), 499.0, false),
            (ScaleBar::AtMost(20.0), f64::NAN, false),
            (ScaleBar::AtLeast(20.0), f64::NAN, false),
        ];
        for (bar, measured, is_met) in table {
            assert_eq!(figure(bar, measured).is_met(), Some(is_met), "{bar:?} {measured}");
        }
        assert_eq!(ScaleFigure::new("costs", "x", ScaleUnit::Bytes, 1.0).is_met(), None);
    }

    #[test]
    fn text_and_json_say_what_is_missed_and_wrong() {
        let tally = FaultTally {
            rounds: 3,
            jobs: 9,
            flaws: [(JobFlaw::TwoPlaces, 1)].into(),
            ..FaultTally::default()
        };
        let outcome = MatrixOutcome {
            tallies: [(ScaleFault::WorkerCutOff, tally)].into(),
            flaws: vec!["two places".to_owned()],
        };
        let report = ScaleReport {
            seed: 7,
            matrices: vec![("leases of 3 s", outcome)],
            figures: vec![figure(ScaleBar::AtMost(20.0), 21.0)],
            ..ScaleReport::default()
        };
        assert_eq!((report.all_flaws().count(), report.missed().count()), (1, 1));
        let text = report.text();
        assert!(text.contains("NO") && text.ends_with("seed 7\n"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(json["figures"][0]["met"], false);
        assert_eq!(json["matrix"][0]["faults"][0]["flaws"]["two_places"], 1);
    }
}
