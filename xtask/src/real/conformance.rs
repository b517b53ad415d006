//! The official conformance suite against our client: every scenario that it requires of a revision, and no list of expected failures.
//!
//! # Invariants
//!
//! - A scenario counts as passed only where the suite's own summary names it so; fewer than were ever required is a failure.

use std::fs;

use crate::failure::Failure;

use super::bench::{Bench, Place};

/// What the suite is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Requirements {
    pub(crate) revision: &'static str,
    /// How many scenarios for clients it has (protocol.md 4.2). The set is frozen.
    required: usize,
}

/// Both sets.
pub(crate) const ALL: [Requirements; 2] = [
    Requirements { revision: "2025-11-25", required: 18 },
    Requirements { revision: "2026-07-28", required: 32 },
];

/// Goes through one set.
pub(crate) fn check(bench: &Bench, place: &Place, requirements: Requirements) -> Result<(), Failure> {
    let suite = bench.installed.package("conformance/dist/index.js");
    let client = format!("'{}' conformance-client", bench.binary().display());
    let work = place.work();
    let task = place.task(&bench.installed.recent_node(), &work, "summary").arguments([suite]).arguments([
        "client",
        "--command",
        &client,
        "--requirements",
        requirements.revision,
        "--output-dir",
        "results",
    ]);
    place.run(task)?;
    let summary = place.path("summary");
    let text = fs::read_to_string(&summary).map_err(|error| Failure::io(summary.display(), &error))?;
    let passed = passed(&text);
    if passed.len() >= requirements.required {
        return Ok(());
    }
    let happened = format!(
        "{} of {} scenarios for {} passed: {}",
        passed.len(),
        requirements.required,
        requirements.revision,
        passed.join(", ")
    );
    Err(Failure::new(happened).with_output(summary))
}

/// The scenarios that passed, by the summary of the suite.
fn passed(summary: &str) -> Vec<&str> {
    summary.lines().filter_map(|line| line.strip_prefix('✓')?.split(':').next()).map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_read() {
        let summary = "=== SUITE SUMMARY ===\n\n✓ initialize: 1 passed, 0 failed\n✗ auth/dpop: 0 passed, 3 failed\n✓ sse-retry: 3 passed, 0 failed\n\nTotal: 4 passed\n";
        assert_eq!(passed(summary), ["initialize", "sse-retry"]);
    }
}
