//! The official conformance suite against our client and our gateway: every scenario that it requires, and no list of expected failures.
//!
//! # Invariants
//!
//! - A scenario counts as passed only where the suite's own summary names it so; fewer than were ever required is a failure.
//! - The gateway is judged with a server behind it that speaks stdio, and has what the suite calls. In [`compared`] the servers speak HTTP.

pub(crate) mod compared;
pub(crate) mod tasks;

use std::ffi::OsStr;
use std::fs;

use crate::failure::ChoreFailure;
use crate::run::{self, ProgramRun};

use super::bench::{CaseContext, CaseFolder};
use super::gateway::{self, GatewayEntry};

/// The file with the summary of the suite, and the folder with its results.
const FILES: (&str, &str) = ("summary", "results");

/// What the suite is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Requirements {
    side: Side,
    revision: &'static str,
    /// The scenarios of such a set (protocol.md 4.2). It is frozen.
    required: usize,
    /// The scenarios that have to pass although the set does not score them.
    unscored: &'static [&'static str],
}

/// The scenarios of 2026-07-28 about headers that repeat the body (SEP-2243).
const HEADERS: [&str; 2] = ["http-header-validation", "http-custom-header-server-validation"];

/// Whom the suite examines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Client,
    /// The gateway in front of a server that speaks these eras.
    Server {
        eras: &'static str,
    },
}

/// Every set for everybody who is examined.
pub(crate) const ALL: [Requirements; 5] = [
    Requirements { side: Side::Client, revision: "2025-11-25", required: 18, unscored: &[] },
    Requirements { side: Side::Client, revision: "2026-07-28", required: 32, unscored: &[] },
    Requirements { side: Side::Server { eras: "dual" }, revision: "2025-11-25", required: 30, unscored: &[] },
    Requirements {
        side: Side::Server { eras: "legacy" },
        revision: "2025-11-25",
        required: 30,
        unscored: &[],
    },
    Requirements {
        side: Side::Server { eras: "dual" },
        revision: "2026-07-28",
        required: 37,
        unscored: &HEADERS,
    },
];

impl Requirements {
    /// Who is examined, and by which set.
    pub(crate) fn name(&self) -> String {
        match self.side {
            Side::Client => format!("client/{}", self.revision),
            Side::Server { eras: "dual" } => format!("server/{}", self.revision),
            Side::Server { eras } => format!("server/{}/{eras}", self.revision),
        }
    }
}

/// Goes through one set.
pub(crate) fn check(
    bench: &CaseContext,
    case_folder: &CaseFolder,
    requirements: Requirements,
) -> Result<(), ChoreFailure> {
    match requirements.side {
        Side::Client => {
            let client = format!("'{}' conformance-client", bench.binary().display());
            let whom = ["client", "--command", &client];
            case_folder.run(suite(bench, case_folder, requirements.revision, whom, FILES))?;
        }
        Side::Server { eras } => {
            let command = [bench.lab().as_os_str(), "zoo".as_ref(), "conformance-fixture".as_ref()];
            let command = command.into_iter().chain(["--era".as_ref(), eras.as_ref()]);
            let command = command.map(OsStr::to_owned).collect();
            let fixture = GatewayEntry {
                name: "fixture".to_owned(),
                command,
                url: None,
                prefix: Some(""),
                settings: "",
            };
            gateway::serve(bench, case_folder, &[fixture], |gateway| {
                // What is left of it is looked for when the gateway has ended.
                let whom = ["server", "--url", &gateway.url];
                run::start(suite(bench, case_folder, requirements.revision, whom, FILES))?.wait()
            })?;
        }
    }
    judge(case_folder, requirements)
}

/// The suite with one set. Its last words are the summary, and it writes down its results in a folder.
fn suite(
    bench: &CaseContext,
    case_folder: &CaseFolder,
    revision: &str,
    whom: [&str; 3],
    (summary, results): (&str, &str),
) -> ProgramRun {
    case_folder
        .task(&bench.installed.recent_node(), &case_folder.work(), summary)
        .arguments([bench.installed.package("conformance/dist/index.js")])
        .arguments(whom)
        .arguments(["--requirements", revision, "--output-dir", results])
}

/// Compares what passed with what is required.
fn judge(case_folder: &CaseFolder, requirements: Requirements) -> Result<(), ChoreFailure> {
    let summary = case_folder.path(FILES.0);
    let text = fs::read_to_string(&summary).map_err(|error| ChoreFailure::io(summary.display(), &error))?;
    let passed = passed(&text);
    if let Some(failed) = requirements.unscored.iter().find(|name| !has_passed_unscored(&text, name)) {
        let happened = format!("the scenario {failed} for {} did not pass", requirements.revision);
        return Err(ChoreFailure::new(happened).with_output(summary));
    }
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
    Err(ChoreFailure::new(happened).with_output(summary))
}

/// Whether a scenario that does not count has passed, by the summary of the suite.
fn has_passed_unscored(summary: &str, name: &str) -> bool {
    let mut lines = summary.lines().filter_map(|line| line.strip_prefix("  ✓ "));
    lines.any(|line| line.split(' ').next() == Some(name))
}

/// The required scenarios that passed, by the summary of the suite. It names those that do not count once more, indented.
fn passed(summary: &str) -> Vec<&str> {
    let unscored = |name: &str| {
        let mut lines = summary.lines().filter_map(|line| line.strip_prefix("  "));
        lines.any(|line| line.trim_start_matches(['✓', '✗', ' ']).split(' ').next() == Some(name))
    };
    let passed = summary.lines().filter_map(|line| line.strip_prefix('✓')?.split(':').next()).map(str::trim);
    passed.filter(|name| !unscored(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_read() {
        let summary = "=== SUITE SUMMARY ===\n\n✓ initialize: 1 passed, 0 failed\n✗ auth/dpop: 0 passed, 3 failed\n✓ sse-retry: 3 passed, 0 failed\n✓ tasks: 1 passed, 0 failed\n\nTotal: 5 passed\n\nNot scored:\n  ✗ auth/dpop (pending)\n  ✓ tasks (extension)\n";
        assert_eq!(passed(summary), ["initialize", "sse-retry"]);
        assert!(has_passed_unscored(summary, "tasks"));
        assert!(!has_passed_unscored(summary, "auth/dpop") && !has_passed_unscored(summary, "initialize"));
    }
}
