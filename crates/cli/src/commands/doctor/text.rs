//! The report for a person: one table, then the findings, then the notes.
//!
//! Invariants: a line is not wider than 80 columns, unless a single word is. Text from a server cannot steer the terminal.

use std::{collections::BTreeMap, time::Duration};

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, presets};
use unhang::{
    doctor::{
        DoctorReport, Finding, Severity, UncheckedReason,
        observations::{DiscoverSeen, HandshakeSeen, Observations, ServerExit},
        size,
    },
    units::in_words,
};
use unhang_terminal::text::escaped;

use super::json::answered;
use crate::commands::engine::{TerminalColour, TerminalMarks, counted, lines, wrapped_in};

/// The width in columns that every terminal has.
const COLUMNS: u16 = 80;
/// The indent of a finding.
const INDENT: &str = "           ";
/// The sign for a fact that was not observed.
const NOTHING: &str = "-";

/// Makes the whole document.
pub(super) fn document(reports: &[DoctorReport], is_one: bool, marks: TerminalMarks) -> String {
    let mut text = table(reports, marks);
    for report in reports.iter().filter(|report| is_one || !report.is_clean()) {
        let told =
            report.findings.iter().filter(|finding| is_one || finding.check.severity != Severity::Note);
        let told: String = told.map(|finding| told_of(finding, marks)).collect();
        if !told.is_empty() {
            text.push('\n');
            if !is_one {
                text.push_str(&format!("{}\n", escaped(&report.server)));
            }
            text.push_str(&told);
        }
    }
    if !is_one {
        text.push_str(&notes(reports));
    }
    text.push_str(&unchecked(reports, is_one));
    text
}

fn table(reports: &[DoctorReport], marks: TerminalMarks) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(COLUMNS)
        .set_header(["SERVER", "START", "AGAIN", "MCP", "TOOLS", "SIZE", "SLOWEST", "ENDS", "VERDICT"]);
    for report in reports {
        let seen = &report.observations;
        let tools = seen.lists.iter().find(|list| list.method == "tools/list");
        table.add_row([
            escaped(&report.server),
            time(answered(seen.cold.as_ref())),
            time(answered(seen.warm.as_ref())),
            speaks(seen).to_owned(),
            tools.map_or_else(|| NOTHING.to_owned(), |list| list.items.to_string()),
            tools.map_or_else(|| NOTHING.to_owned(), |list| size(list.bytes as u64)),
            time(seen.slowest.as_ref().map(|slowest| slowest.took)),
            ends(seen.stdin_end.as_ref()),
            verdict(report, marks),
        ]);
    }
    for (column_index, column) in table.column_iter_mut().enumerate() {
        if (1..8).contains(&column_index) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
        if [1, 2, 4, 5, 6, 7].contains(&column_index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    lines(&table).lines().map(|line| format!("{}\n", marked(line, marks))).collect()
}

/// Colours the mark in a line of the table. Cells cannot have colours, because the table counts their characters.
fn marked(line: &str, marks: TerminalMarks) -> String {
    let found = SIGNS.iter().filter_map(|(sign, colour)| Some((line.rfind(*sign)?, *sign, *colour)));
    match found.max_by_key(|(offset, ..)| *offset).filter(|_| marks != TerminalMarks::NONE) {
        Some((offset, sign, colour)) => {
            let end = offset + sign.len_utf8();
            format!("{}{}{}", &line[..offset], marks.paint(colour, &line[offset..end]), &line[end..])
        }
        None => line.to_owned(),
    }
}

/// The mark of an outcome, and its colour: nothing found, warnings, errors.
const SIGNS: [(char, TerminalColour); 3] =
    [('✓', TerminalColour::Green), ('⚠', TerminalColour::Yellow), ('✗', TerminalColour::Red)];

/// Returns the entry of [`SIGNS`] for a severity.
fn sign(severity: Option<Severity>) -> (char, TerminalColour) {
    match severity {
        Some(Severity::Error) => SIGNS[2],
        Some(Severity::Warning) => SIGNS[1],
        Some(Severity::Note) | None => SIGNS[0],
    }
}

fn time(length: Option<Duration>) -> String {
    length.map_or_else(|| NOTHING.to_owned(), in_words)
}

/// Returns the eras that a server speaks.
fn speaks(seen: &Observations) -> &'static str {
    let is_old = matches!(seen.handshake, Some(HandshakeSeen::Agreed(_)));
    let is_new = matches!(seen.modern, Some(DiscoverSeen::Spoken { .. }));
    match (is_old, is_new) {
        (true, true) => "both",
        (true, false) => "2025",
        (false, true) => "2026",
        (false, false) => NOTHING,
    }
}

fn ends(ending: Option<&ServerExit>) -> String {
    match ending {
        None => NOTHING.to_owned(),
        Some(ending) => ending.after.map_or_else(|| "never".to_owned(), in_words),
    }
}

fn verdict(report: &DoctorReport, marks: TerminalMarks) -> String {
    let count =
        |severity| report.findings.iter().filter(|finding| finding.check.severity == severity).count();
    let parts: Vec<String> = [(count(Severity::Error), "error"), (count(Severity::Warning), "warning")]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| counted(count, what))
        .collect();
    let worst = report.findings.iter().map(|finding| finding.check.severity).max();
    let mark = marks.mark(sign(worst).0);
    if parts.is_empty() { format!("{mark}ok") } else { format!("{mark}{}", parts.join(", ")) }
}

/// Describes one finding: its name, its evidence, its meaning and the remedy.
fn told_of(finding: &Finding, marks: TerminalMarks) -> String {
    let check = finding.check;
    let about = format!("{}. {}.", sentence(check.means), sentence(finding.remedy));
    let word = format!("{:<8}", check.severity.word());
    let word = match check.severity {
        Severity::Note => word,
        severity => marks.paint(sign(Some(severity)).1, &word),
    };
    format!("  {word} {}\n{}{}", check.id, wrapped(&escaped(&finding.evidence)), wrapped(&about))
}

fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

/// Lists the notes, each with the servers that it is about. Notes are not faults.
fn notes(reports: &[DoctorReport]) -> String {
    let mut servers: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for report in reports {
        for finding in report.findings.iter().filter(|finding| finding.check.severity == Severity::Note) {
            servers.entry(finding.check.id).or_default().push(escaped(&report.server));
        }
    }
    if servers.is_empty() {
        return String::new();
    }
    let notes: String =
        servers.iter().map(|(id, names)| wrapped_in("  ", &format!("{id}: {}", names.join(", ")))).collect();
    format!("\nNotes, which do not count (`unhang doctor NAME` says more):\n{notes}")
}

/// Lists the checks that could not be made over HTTP; of several servers only their number.
fn unchecked(reports: &[DoctorReport], is_one: bool) -> String {
    // If there was no session, or the time was up, a finding says so.
    let over_http = |report: &DoctorReport| -> Vec<&str> {
        let unchecked = report.unchecked.iter();
        let over_http = unchecked.filter(|unchecked| unchecked.reason == UncheckedReason::OverHttp);
        over_http.map(|unchecked| unchecked.check.id).collect()
    };
    let concerned =
        reports.iter().map(|report| (report, over_http(report))).filter(|(_, ids)| !ids.is_empty());
    let lines = concerned.map(|(report, ids)| {
        let which = if is_one { ids.join(", ") } else { counted(ids.len(), "check") };
        wrapped_in("  ", &format!("{}: not checked over HTTP: {which}", escaped(&report.server)))
    });
    let lines: String = lines.collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

fn wrapped(text: &str) -> String {
    wrapped_in(INDENT, text)
}

#[cfg(test)]
mod tests {
    use unhang::doctor::{CHECKS, UncheckedCheck};

    use super::*;

    #[test]
    fn it_fits_into_80_columns_and_steers_no_terminal() {
        let why = "no such file \u{1b}[2J".repeat(12);
        let names = ["server-everything", "a-server-with-a-rather-long-name-for-a-table"];
        let reports: Vec<DoctorReport> = names.map(|name| DoctorReport::untried(name, why.clone())).into();
        for is_one in [true, false] {
            let text = document(&reports, is_one, TerminalMarks::NONE);
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
            assert!(!text.contains('\u{1b}') && text.contains("cannot-start"), "{text}");
            assert!(!text.contains("over HTTP"), "{text}");
        }
    }

    #[test]
    fn what_is_not_checked_over_http_is_said() {
        let unchecked = CHECKS.iter().copied().filter(|check| check.needs_process);
        let unchecked =
            unchecked.map(|check| UncheckedCheck { check, reason: UncheckedReason::OverHttp }).collect();
        let report = DoctorReport { unchecked, ..DoctorReport::untried("web", "no route".to_owned()) };
        let one = document(std::slice::from_ref(&report), true, TerminalMarks::NONE);
        assert!(one.contains("web: not checked over HTTP: dies-at-start, "), "{one}");
        assert!(one.lines().all(|line| line.chars().count() <= 80), "{one}");
        let all = document(
            &[report, DoctorReport::untried("gone", "no such file".to_owned())],
            false,
            TerminalMarks::NONE,
        );
        assert!(
            all.lines()
                .any(|line| line.starts_with("  web: not checked over HTTP: ") && line.ends_with(" checks")),
            "{all}"
        );
        assert!(!all.contains("gone: not checked"), "{all}");
    }
}
