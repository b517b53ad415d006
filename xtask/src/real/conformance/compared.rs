//! The conformance suite on servers that are written with the official SDKs, check by check: what passes directly passes through the
//! gateway at default settings.
//!
//! # Invariants
//!
//! - A difference fails the case, unless `real/conformance_differences.json` lists it with a reason. The case fails as well when a listed
//!   difference does not occur, so the list can only shrink.
//! - How many checks have to pass directly is written down here. Otherwise a server that does nothing would have no difference.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::failure::ChoreFailure;
use crate::run;

use super::super::bench::{CaseContext, CaseFolder};
use super::super::gateway::{self, GatewayEntry};
use super::super::scenario::{HANDSHAKE, STATELESS};
use super::super::server_script::ServerScript;

/// The list of differences that have a reason.
const LIST: &str = "conformance_differences.json";

/// The status of a check that passes.
const SUCCESS: &str = "SUCCESS";

/// The statuses that a check has when it was not passed, beside others that judge nothing.
const FAILED: [&str; 2] = ["FAILURE", "WARNING"];

/// How much of the details of a check is shown.
const SHOWN: usize = 300;

/// One server and one set of requirements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ComparedServer {
    sdk: &'static str,
    revision: &'static str,
    /// How many checks pass directly. Those that do not are for tasks, which the SDKs do not know.
    passing: usize,
}

/// Every server with every set.
pub(crate) const ALL: [ComparedServer; 4] = [
    ComparedServer { sdk: "python", revision: HANDSHAKE, passing: 84 },
    ComparedServer { sdk: "python", revision: STATELESS, passing: 170 },
    ComparedServer { sdk: "typescript", revision: HANDSHAKE, passing: 84 },
    ComparedServer { sdk: "typescript", revision: STATELESS, passing: 170 },
];

/// Which check it is: a scenario may have several with one id, which are told apart by their order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CheckName {
    scenario: String,
    id: String,
    occurrence: usize,
}

/// What became of each check.
type SuiteChecks = BTreeMap<CheckName, Value>;

/// A difference that is known, and why it is none that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ListedDifference {
    check: CheckName,
    reason: String,
}

impl ComparedServer {
    pub(crate) fn name(&self) -> String {
        format!("compared/{}/{}", self.sdk, self.revision)
    }

    fn script(&self) -> ServerScript {
        match self.sdk {
            "python" => ServerScript::Python("python_conformance.py"),
            _ => ServerScript::Typescript("typescript_conformance.mjs"),
        }
    }
}

/// Lets the suite examine the server directly and through the gateway, and compares.
pub(crate) fn check(
    bench: &CaseContext,
    case_folder: &CaseFolder,
    compared: ComparedServer,
) -> Result<(), ChoreFailure> {
    let list = bench.source(LIST);
    let text = fs::read_to_string(&list).map_err(|error| ChoreFailure::io(list.display(), &error))?;
    let listed =
        listed(&text, compared).map_err(|why| ChoreFailure::new(format!("{}: {why}", list.display())))?;
    let own = format!("conformance-{}-server", compared.name().replace('/', "-"));
    let (direct, through) = compared.script().over_http(bench, &own, |url| {
        let direct = examine(bench, case_folder, compared, "direct", url)?;
        let entry = GatewayEntry {
            name: "fixture".to_owned(),
            command: Vec::new(),
            url: Some(url.to_owned()),
            prefix: Some(""),
            settings: "",
        };
        let through = gateway::serve(bench, case_folder, &[entry], |gateway| {
            examine(bench, case_folder, compared, "through", &gateway.url)
        })?;
        Ok((direct, through))
    })?;
    judge(compared.passing, &direct, &through, &listed).map_err(ChoreFailure::new)
}

/// Runs the suite, whose files begin with `name`, and reads what it has found.
fn examine(
    bench: &CaseContext,
    case_folder: &CaseFolder,
    compared: ComparedServer,
    name: &str,
    url: &str,
) -> Result<SuiteChecks, ChoreFailure> {
    let results = format!("{name}-results");
    let task =
        super::suite(bench, case_folder, compared.revision, ["server", "--url", url], (name, &results));
    // How it ends says less than what it writes down. What is left of it is looked for when the gateway has ended.
    run::start(task)?.status()?;
    read(&case_folder.work().join(results))
}

/// Reads what the suite has written down: `server-SCENARIO-TIME/checks.json`.
fn read(results: &Path) -> Result<SuiteChecks, ChoreFailure> {
    let failed = |error: std::io::Error| ChoreFailure::io(results.display(), &error);
    let mut checks = SuiteChecks::new();
    for folder in fs::read_dir(results).map_err(failed)? {
        let folder = folder.map_err(failed)?.path();
        let name = folder.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let scenario = scenario(name)
            .ok_or_else(|| ChoreFailure::new(format!("{} is of no scenario", folder.display())))?;
        let text = fs::read(folder.join("checks.json")).map_err(failed)?;
        let list: Vec<Value> = serde_json::from_slice(&text)
            .map_err(|error| ChoreFailure::new(format!("{}: {error}", folder.display())))?;
        checks.extend(numbered(scenario, list));
    }
    Ok(checks)
}

/// Returns the scenario of a folder of results, whose name ends with a time such as `2026-11-26T11-14-11-614Z`.
fn scenario(folder: &str) -> Option<&str> {
    folder.strip_prefix("server-")?.rsplitn(7, '-').nth(6)
}

/// Gives each check of a scenario its name.
fn numbered(scenario: &str, list: Vec<Value>) -> SuiteChecks {
    let mut checks = SuiteChecks::new();
    for check in list {
        let id = check["id"].as_str().unwrap_or_default().to_owned();
        let mut name = CheckName { scenario: scenario.to_owned(), id, occurrence: 1 };
        while checks.contains_key(&name) {
            name.occurrence += 1;
        }
        checks.insert(name, check);
    }
    checks
}

/// Reads what the list has of a server.
fn listed(text: &str, compared: ComparedServer) -> Result<Vec<ListedDifference>, String> {
    let entries: Vec<Value> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    for entry in entries {
        let text = |member: &str| entry[member].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let is_of = |server: &Value| server == compared.sdk;
        if !entry["servers"].as_array().is_some_and(|servers| servers.iter().any(is_of))
            || entry["revision"] != compared.revision
        {
            continue;
        }
        let occurrence = entry["occurrence"].as_u64().and_then(|number| usize::try_from(number).ok());
        let (Some(scenario), Some(id), Some(reason)) = (text("scenario"), text("check"), text("reason"))
        else {
            return Err(format!("a difference has no scenario, check or reason: {entry}"));
        };
        let check = CheckName { scenario, id, occurrence: occurrence.unwrap_or(1) };
        found.push(ListedDifference { check, reason });
    }
    Ok(found)
}

/// Returns what does not hold: enough checks pass directly, and the differences are those that are listed.
fn judge(
    passing: usize,
    direct: &SuiteChecks,
    through: &SuiteChecks,
    listed: &[ListedDifference],
) -> Result<(), String> {
    let differences = differences(direct, through);
    let is_listed = |name: &CheckName| listed.iter().any(|difference| difference.check == *name);
    let mut wrong = String::new();
    let passed = direct.values().filter(|check| has_passed(check)).count();
    if passed < passing {
        wrong += &format!("\n  only {passed} of {passing} checks pass directly; not so: {}", failed(direct));
    }
    for name in differences.iter().filter(|name| !is_listed(name)) {
        wrong += &format!("\n  {name} passes directly; through the gateway: {}", told(through.get(name)));
    }
    for ListedDifference { check, reason } in
        listed.iter().filter(|listed| !differences.contains(&listed.check))
    {
        wrong += &format!("\n  {check} is listed in {LIST}, and is no difference any more: {reason}");
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!("directly {} checks pass, through the gateway {}{wrong}", tally(direct), tally(through)))
}

/// Returns the checks that pass directly and not through the gateway.
fn differences(direct: &SuiteChecks, through: &SuiteChecks) -> Vec<CheckName> {
    let passing = direct.iter().filter(|(_, check)| has_passed(check)).map(|(name, _)| name);
    passing.filter(|name| !through.get(name).is_some_and(has_passed)).cloned().collect()
}

fn has_passed(check: &Value) -> bool {
    check["status"] == SUCCESS
}

fn has_failed(check: &Value) -> bool {
    FAILED.iter().any(|status| check["status"] == *status)
}

/// How many checks pass of those that judge.
fn tally(checks: &SuiteChecks) -> String {
    let count = |holds: fn(&Value) -> bool| checks.values().filter(|check| holds(check)).count();
    let passed = count(has_passed);
    format!("{passed} of {}", passed + count(has_failed))
}

/// The names of those that fail.
fn failed(checks: &SuiteChecks) -> String {
    let names = checks.iter().filter(|(_, check)| has_failed(check)).map(|(name, _)| name.to_string());
    names.collect::<Vec<_>>().join(", ")
}

/// What a check says, shortened.
fn told(check: Option<&Value>) -> String {
    let Some(check) = check else { return "missing".to_owned() };
    let mut text = check["status"].as_str().unwrap_or_default().to_owned();
    if let Some(message) = check["errorMessage"].as_str() {
        let _ = write!(text, ": {message}");
    }
    if !check["details"].is_null() {
        let details = check["details"].to_string();
        let _ = write!(text, " {}", details.chars().take(SHOWN).collect::<String>());
    }
    text
}

impl std::fmt::Display for CheckName {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}: {}", self.scenario, self.id)?;
        if self.occurrence > 1 {
            write!(formatter, " ({})", self.occurrence)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
