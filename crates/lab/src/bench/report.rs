//! The report: the same figures for a person and as JSON.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde_json::{Map, json};

use super::measures::{Measure, MeasuredBar, Value};

/// One column of a table.
pub(super) struct WayReport {
    pub(super) name: String,
    /// The words before the server's command, if the way is one command.
    pub(super) command: Option<Vec<String>>,
    /// The values in the order of the rows.
    pub(super) measures: Vec<Option<Value>>,
}

/// Returns a note about each peer with its command.
pub(super) fn peer_notes(ways: &[WayReport]) -> impl Iterator<Item = String> {
    let peers = ways.iter().filter(|way| way.name.starts_with(PEER));
    peers.filter_map(|way| Some(format!("{} is `{}`.", way.name, way.command.as_ref()?.join(" "))))
}

/// The name of peers, which a number follows.
pub(super) const PEER: &str = "peer";

/// The head of one row.
pub(super) struct BenchRow {
    key: &'static str,
    title: &'static str,
    bar: String,
}

/// Returns the heads of all rows.
pub(super) fn rows<Round>(measures: &[Measure<Round>]) -> Vec<BenchRow> {
    let row = |measure: &Measure<Round>| BenchRow {
        key: measure.key,
        title: measure.title,
        bar: measure.show_bar().unwrap_or_default(),
    };
    measures.iter().map(row).collect()
}

/// One part of the bench, with a table of its own.
pub(super) struct MeasuredPart {
    pub(super) name: &'static str,
    /// The amounts that were measured.
    pub(super) plan: serde_json::Value,
    pub(super) rows: Vec<BenchRow>,
    pub(super) ways: Vec<WayReport>,
    pub(super) bars: Vec<MeasuredBar>,
    /// The notes about the table, in lines.
    pub(super) notes: Vec<String>,
}

impl MeasuredPart {
    fn json(&self) -> serde_json::Value {
        let ways: Vec<_> = self
            .ways
            .iter()
            .map(|way| {
                let rows = self.rows.iter().zip(&way.measures);
                let measures: Map<String, serde_json::Value> =
                    rows.map(|(row, value)| (row.key.to_owned(), json!(value))).collect();
                json!({"name": way.name, "command": way.command, "measures": measures})
            })
            .collect();
        json!({"plan": self.plan, "ways": ways, "bars": self.bars})
    }

    /// Returns the part as a table with its notes and its verdict.
    fn text(&self) -> String {
        let missed: Vec<String> =
            self.bars.iter().filter(|bar| !bar.met).map(|bar| format!("\n  {bar}")).collect();
        let verdict = if self.bars.is_empty() {
            "The run had no bar.".to_owned()
        } else if missed.is_empty() {
            "Every bar is met.".to_owned()
        } else {
            format!("Missed by {}:{}", self.name, missed.concat())
        };
        format!("{}\n\n{}\n{verdict}\n", self.table(), self.notes.join("\n"))
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Disabled);
        let names = self.ways.iter().map(|way| way.name.as_str());
        table.set_header(std::iter::once("").chain(names).chain(["bar"]));
        for (index, row) in self.rows.iter().enumerate() {
            let cell = |way: &WayReport| {
                let Some(value) = &way.measures[index] else { return "–".to_owned() };
                // A comparison of the direct way with itself tells nothing.
                let comparison = value.shown_comparison.as_ref().filter(|_| way.name != "direct");
                comparison.map_or(value.shown.clone(), |comparison| format!("{} ({comparison})", value.shown))
            };
            let title = std::iter::once(row.title.to_owned());
            table.add_row(title.chain(self.ways.iter().map(cell)).chain([row.bar.clone()]));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

/// Returns all parts as JSON, with units in the names of the members.
pub(super) fn json(parts: &[MeasuredPart]) -> String {
    let mut report = Map::new();
    report.insert("debug_build".to_owned(), cfg!(debug_assertions).into());
    report.extend(parts.iter().map(|part| (part.name.to_owned(), part.json())));
    format!("{:#}\n", serde_json::Value::Object(report))
}

/// Returns all parts as text for a person.
pub(super) fn text(parts: &[MeasuredPart]) -> String {
    let mut parts: Vec<String> = parts.iter().map(MeasuredPart::text).collect();
    if cfg!(debug_assertions) {
        parts.push("This is a debug build: its figures have no meaning.\n".to_owned());
    }
    parts.join("\n")
}
