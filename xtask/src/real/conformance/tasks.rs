//! The scenarios of the conformance suite for tasks (SEP-2663), which no set requires: on a server of the zoo, and through the gateway.
//!
//! # Invariants
//!
//! - Which scenarios have to pass is written down here: the nine that test something. One that was skipped has not passed.
//! - A scenario has passed where its own report counts checks and not one of them failed or was a warning.

use std::ffi::OsStr;
use std::fs;
use std::time::Duration;

use crate::clock;
use crate::failure::ChoreFailure;
use crate::run::{self, ProgramRun};

use super::super::bench::{CaseContext, CaseFolder};
use super::super::gateway::{self, GatewayEntry};

/// The live ones but one, which is for servers that have a task alone; `tasks-status-notifications` skips itself.
const SCENARIOS: [&str; 8] = [
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    "tasks-mrtr-composition",
];

/// The ninth: a tool that is nothing but a task is refused to whoever does not know tasks.
const REQUIRED: &str = "tasks-required-task-error";

/// The revision whose messages they send; they belong to none by themselves.
const REVISION: &str = "2026-07-28";

/// When calls of a server without tasks become tasks, so that they do so before the suite gives up.
const SOON: &str = "limits = { promote-after = \"200ms\" }\n";

/// Until the server of the zoo says where it is.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Names the files with what the server of the zoo says.
const SERVER: &str = "server";

/// Who gives out the tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Giver {
    /// A server of the zoo over HTTP, without a gateway: what passes here has to pass through one.
    Server,
    /// The gateway with default settings, for a server behind it that gives out tasks itself.
    Behind,
    /// The same where no call becomes a job by the time that it takes.
    Off,
    /// The gateway itself, for a server behind it that knows none and speaks these eras.
    Gateway { eras: &'static str },
}

/// All of them.
pub(crate) const ALL: [Giver; 5] = [
    Giver::Server,
    Giver::Behind,
    Giver::Off,
    Giver::Gateway { eras: "dual" },
    Giver::Gateway { eras: "legacy" },
];

impl Giver {
    pub(crate) fn name(self) -> String {
        match self {
            Self::Server => "tasks/direct".to_owned(),
            Self::Behind => "tasks/gateway/tasks".to_owned(),
            Self::Off => "tasks/gateway/off".to_owned(),
            Self::Gateway { eras } => format!("tasks/gateway/plain/{eras}"),
        }
    }

    /// What stands behind the gateway, and what the configuration says of it beside its command.
    fn behind(self) -> Option<(Vec<&'static str>, &'static str)> {
        match self {
            Self::Server => None,
            Self::Behind => Some((vec!["tasks-modern"], "")),
            Self::Off => Some((vec!["tasks-modern"], "limits = { promote-after = \"off\" }\n")),
            Self::Gateway { eras } => {
                let faulty_server = vec!["conformance-fixture", "--works", "yes", "--era", eras];
                Some((faulty_server, SOON))
            }
        }
    }

    /// What has to pass.
    fn scenarios(self) -> Vec<&'static str> {
        match self {
            Self::Server | Self::Behind | Self::Off => SCENARIOS.into_iter().chain([REQUIRED]).collect(),
            Self::Gateway { .. } => SCENARIOS.to_vec(),
        }
    }
}

/// Goes through every scenario, even when some fail.
pub(crate) fn check(bench: &CaseContext, case_folder: &CaseFolder, giver: Giver) -> Result<(), ChoreFailure> {
    let failed = match giver.behind() {
        None => at_server(bench, case_folder, |url| go_through(bench, case_folder, giver, url))?,
        Some((faulty_server, settings)) => {
            let command = [bench.lab().as_os_str(), "zoo".as_ref()].into_iter();
            let command = command.chain(faulty_server.iter().map(OsStr::new)).map(OsStr::to_owned).collect();
            let entry =
                GatewayEntry { name: "tasks".to_owned(), command, url: None, prefix: Some(""), settings };
            gateway::serve(bench, case_folder, &[entry], |gateway| {
                go_through(bench, case_folder, giver, &gateway.url)
            })?
        }
    };
    let Some(first) = failed.first() else { return Ok(()) };
    let happened = format!(
        "{} of {} scenarios for tasks passed; not so: {}",
        giver.scenarios().len() - failed.len(),
        giver.scenarios().len(),
        failed.join(", ")
    );
    Err(ChoreFailure::new(happened).with_output(case_folder.path(first)))
}

/// Does something with the server of the zoo, and makes sure that it ends with its stdin.
fn at_server<T>(
    bench: &CaseContext,
    case_folder: &CaseFolder,
    work: impl FnOnce(&str) -> Result<T, ChoreFailure>,
) -> Result<T, ChoreFailure> {
    let task =
        case_folder.task(bench.lab(), &case_folder.work(), SERVER).arguments(["zoo", "http-tasks-modern"]);
    let mut server = run::start(task.open_stdin())?;
    let outcome = address(case_folder).and_then(|url| work(&url));
    server.close_stdin();
    let ended = case_folder.finish(&server);
    let outcome = outcome?;
    ended.map(|()| outcome)
}

/// Waits until the server says where it is.
fn address(case_folder: &CaseFolder) -> Result<String, ChoreFailure> {
    let output = case_folder.path(SERVER);
    let mut found = None;
    clock::wait_until(START_LIMIT, || {
        let text = fs::read_to_string(&output).unwrap_or_default();
        found = text.split_once('\n').map(|(first, _)| first.to_owned());
        found.is_some()
    });
    found.ok_or_else(|| {
        ChoreFailure::new("the server did not say where it is")
            .with_output(case_folder.path(&format!("{SERVER}.log")))
    })
}

/// Returns those scenarios that did not pass.
fn go_through(
    bench: &CaseContext,
    case_folder: &CaseFolder,
    giver: Giver,
    url: &str,
) -> Result<Vec<&'static str>, ChoreFailure> {
    let mut failed = Vec::new();
    for scenario in giver.scenarios() {
        // How it ends says less than what it reports: a scenario that was skipped ends well. What is left of it is looked for at the end.
        run::start(suite(bench, case_folder, url, scenario))?.status()?;
        let report = case_folder.path(scenario);
        let text = fs::read_to_string(&report).map_err(|error| ChoreFailure::io(report.display(), &error))?;
        if !has_passed(&text) {
            failed.push(scenario);
        }
    }
    Ok(failed)
}

/// The suite with one scenario; its last line is the summary.
fn suite(bench: &CaseContext, case_folder: &CaseFolder, url: &str, scenario: &str) -> ProgramRun {
    case_folder
        .task(&bench.installed.recent_node(), &case_folder.work(), scenario)
        .arguments([bench.installed.package("conformance/dist/index.js")])
        .arguments(["server", "--url", url, "--scenario", scenario])
        // It is an extension, so it is of no revision, and would be skipped.
        .arguments(["--spec-version", REVISION, "--force", "--output-dir", "results"])
}

/// Whether a report says that there were checks, and that all passed.
fn has_passed(report: &str) -> bool {
    let summary = report.lines().find_map(|line| line.trim().strip_prefix("Passed: "));
    let Some((passed, rest)) = summary.and_then(|summary| summary.split_once('/')) else { return false };
    passed != "0" && rest == format!("{passed}, 0 failed, 0 warnings")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read() {
        for (report, expected) in [
            ("Checks:\n...\nTest Results:\nPassed: 9/9, 0 failed, 0 warnings\n", true),
            ("Test Results:\nPassed: 8/9, 1 failed, 0 warnings\n", false),
            ("Test Results:\nPassed: 9/9, 0 failed, 1 warnings\n", false),
            ("Test Results:\nPassed: 0/0, 0 failed, 0 warnings\n", false),
            ("SKIPPED: scenario 'tasks-lifecycle' is not applicable\n", false),
        ] {
            assert_eq!(has_passed(report), expected, "{report}");
        }
    }

    #[test]
    fn no_scenario_is_counted_twice() {
        let mut names = Giver::Server.scenarios();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 9);
    }
}
