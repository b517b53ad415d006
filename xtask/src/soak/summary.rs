//! The table at the end.
//!
//! # Invariants
//!
//! - No line is longer than 80 columns; the longest faulty server group and the largest numbers fit.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use super::kills::Kills;
use super::lane::LaneResult;
use super::ledger::WireTally;

/// What the parts came to; a part that was not run is not there.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) lanes: Vec<(&'static str, LaneResult)>,
    pub(crate) tallies: Vec<(&'static str, WireTally)>,
    pub(crate) groups: BTreeMap<&'static str, u64>,
    pub(crate) kills: Kills,
    /// Descriptors of the soak itself, before and after.
    pub(crate) own_descriptors: (u64, u64),
}

impl Summary {
    /// Adds the lanes of a part.
    pub(crate) fn add_lanes(&mut self, part: &'static str, lanes: Vec<(&'static str, LaneResult)>) {
        let mut tally = WireTally::default();
        lanes.iter().for_each(|(_, run)| tally.add(&run.tally));
        self.tallies.push((part, tally));
        self.lanes.extend(lanes);
    }

    pub(crate) fn text(&self, seed: u64, took: Duration) -> String {
        let mut text = if self.tallies.is_empty() { String::new() } else { self.requests() };
        text.push_str(&self.flatness());
        if !self.groups.is_empty() {
            text.push_str("\nsessions by programs\n");
            for (group, count) in &self.groups {
                let _ = writeln!(text, "  {group:<26}{count:>12}");
            }
        }
        text.push_str(&self.kills.text());
        let (before, after) = self.own_descriptors;
        let _ = writeln!(text, "\ndescriptors of the soak itself: {before} before, {after} after");
        let _ = writeln!(text, "seed {seed}, {:.1} s", took.as_secs_f64());
        text
    }

    fn requests(&self) -> String {
        let mut text = String::new();
        let mut row = |label: &str, value: &dyn Fn(&WireTally) -> u64| {
            let _ = write!(text, "{label:<28}");
            for (_, tally) in &self.tallies {
                let _ = write!(text, "{:>12}", value(tally));
            }
            text.push('\n');
        };
        row("requests", &|tally| tally.sent);
        row("  answered, once each", &WireTally::answered);
        row("    results", &|tally| tally.results);
        row("    the server's errors", &|tally| tally.server_errors);
        let mut kinds: Vec<_> = self.tallies.iter().flat_map(|(_, tally)| tally.faults.keys()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        for kind in kinds {
            row(&format!("    {kind}"), &|tally| tally.faults.get(kind).copied().unwrap_or_default());
        }
        row("  withdrawn, unanswered", &|tally| tally.withdrawn);
        row("  unread: the guard was gone", &|tally| tally.forsaken);
        row("errors about garbage", &|tally| tally.nameless);
        row("the servers' own requests", &|tally| tally.asks);
        row("notifications", &|tally| tally.notifications);
        let names: String = self.tallies.iter().map(|(name, _)| format!("{name:>12}")).collect();
        format!("{:<28}{names}\n{text}", "")
    }

    fn flatness(&self) -> String {
        let mut text = String::new();
        if !self.lanes.is_empty() {
            let _ = writeln!(
                text,
                "\n{:<18}{:>9}{:>15}{:>12}{:>9}{:>9}",
                "first -> last", "restarts", "memory KiB", "descriptors", "threads", "children"
            );
        }
        for (lane, run) in &self.lanes {
            for (who, series) in [("guard", &run.guard), ("lifeline", &run.lifeline)] {
                let Some((first, last)) = series.ends() else { continue };
                let restarts = if who == "guard" { run.restarts.to_string() } else { String::new() };
                let pair = |first: u64, last: u64| format!("{first} -> {last}");
                let _ = writeln!(
                    text,
                    "{:<18}{restarts:>9}{:>15}{:>12}{:>9}{:>9}",
                    format!("{lane}: {who}"),
                    pair(first.memory, last.memory),
                    pair(first.descriptors, last.descriptors),
                    pair(first.threads, last.threads),
                    pair(first.children, last.children),
                );
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soak::samples::{ProcessSample, Series};

    #[test]
    fn no_line_is_longer_than_80_columns() {
        let most = WireTally {
            sent: 99_999_999,
            faults: BTreeMap::from([("invalid_request".to_owned(), 99_999_999)]),
            ..WireTally::default()
        };
        let mut series = Series::default();
        let held = ProcessSample { memory: 99_999, descriptors: 999, threads: 99, children: 99 };
        (0..100).for_each(|_| series.add(Some(held)));
        let run = || LaneResult {
            tally: most.clone(),
            guard: series.clone(),
            lifeline: series.clone(),
            restarts: 99_999,
        };
        let mut summary = Summary::default();
        summary.add_lanes("calls", vec![("stuck", run())]);
        summary.add_lanes("restarts", vec![("leaving", run())]);
        summary.tallies.push(("sessions", most.clone()));
        summary.groups = unhang_zoo::faulty_servers()
            .map(|faulty_server| (super::super::faulty_servers::group(faulty_server.name), 1))
            .collect();
        let text = summary.text(u64::MAX, Duration::from_secs(9999));
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(text.contains("99999 -> 99999") && text.contains("invalid_request"), "{text}");
    }
}
