//! The report: the same figures for a person and as JSON.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde_json::{Map, json};
use unhang_zoo::load::Plan;

use super::measures::{Bar, MEASURES, Value};

/// One column of the table.
pub(super) struct WayReport {
    pub(super) name: String,
    /// What stands before the server's command, where it is one command.
    pub(super) command: Option<Vec<String>>,
    /// In the order of [`MEASURES`].
    pub(super) measures: Vec<Option<Value>>,
}

/// All that a run found out.
pub(super) struct Report {
    plan: Plan,
    ways: Vec<WayReport>,
    pub(super) bars: Vec<Bar>,
}

impl Report {
    pub(super) fn new(plan: Plan, ways: Vec<WayReport>, bars: Vec<Bar>) -> Self {
        Self { plan, ways, bars }
    }

    /// As JSON, with units in the names of the members.
    pub(super) fn json(&self) -> String {
        let ways: Vec<_> = self
            .ways
            .iter()
            .map(|way| {
                let measures: Map<String, serde_json::Value> = MEASURES
                    .iter()
                    .zip(&way.measures)
                    .map(|(measure, value)| (measure.key.to_owned(), json!(value)))
                    .collect();
                json!({"name": way.name, "command": way.command, "measures": measures})
            })
            .collect();
        let plan = json!({"rounds": self.plan.rounds, "round_trips": self.plan.round_trips, "calls": self.plan.calls,
            "in_flight": self.plan.in_flight, "large_results": self.plan.large_results,
            "large_bytes": self.plan.large_bytes, "starts": self.plan.starts});
        let report =
            json!({"debug_build": cfg!(debug_assertions), "plan": plan, "ways": ways, "bars": self.bars});
        format!("{report:#}\n")
    }

    /// As a table, and what to know about it.
    pub(super) fn text(&self) -> String {
        let mut notes = vec![
            "floor: through `cat` on both sides. In brackets: times the floor; for start and stop, ms more than direct."
                .to_owned(),
            format!(
                "Medians of {} rounds, of memory the highest. Memory and processor: what the way adds; one call at a time.",
                self.plan.rounds
            ),
        ];
        let peers = self.ways.iter().filter(|way| way.name.starts_with("peer"));
        notes.extend(
            peers.filter_map(|way| Some(format!("{} is `{}`.", way.name, way.command.as_ref()?.join(" ")))),
        );
        if cfg!(debug_assertions) {
            notes.push("This is a debug build: its figures mean nothing.".to_owned());
        }
        let missed: Vec<String> =
            self.bars.iter().filter(|bar| !bar.met).map(|bar| format!("  {bar}")).collect();
        if missed.is_empty() {
            notes.push("Every bar is met.".to_owned());
        } else {
            notes.push("Missed by wrap:".to_owned());
            notes.extend(missed);
        }
        format!("{}\n\n{}\n", self.table(), notes.join("\n"))
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Disabled);
        let names = self.ways.iter().map(|way| way.name.as_str());
        table.set_header(std::iter::once("").chain(names).chain(["bar"]));
        for (row, measure) in MEASURES.iter().enumerate() {
            let cell = |way: &WayReport| {
                let Some(value) = &way.measures[row] else { return "?".to_owned() };
                let shown = (measure.show)(value.value);
                // A comparison with itself tells nothing.
                let comparison = value.show_comparison(measure).filter(|_| way.name != "direct");
                comparison.map_or(shown.clone(), |comparison| format!("{shown} ({comparison})"))
            };
            let cells = self.ways.iter().map(cell);
            let title = std::iter::once(measure.title.to_owned());
            table.add_row(title.chain(cells).chain([measure.show_short_bar().unwrap_or_default()]));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}
