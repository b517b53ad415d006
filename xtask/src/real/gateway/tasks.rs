//! How the official libraries drive tasks, each against the gateway over HTTP and against the guard over pipes, in front of a server that
//! knows none.
//!
//! # Invariants
//!
//! - Each call takes longer than it may take as a call, and its answer arrives whole.
//! - What is asked in the middle of one is answered by the client, and one that is cancelled is cancelled at its server.

use std::ffi::OsString;
use std::fs;

use serde_json::{Value, json};

use crate::failure::ChoreFailure;
use crate::run::{self, ProgramRun};

use super::super::bench::{CaseContext, CaseFolder};
use super::{GatewayEntry, serve};

/// Who drives them, and in which dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    /// `@modelcontextprotocol/sdk`, which most clients have; VS Code and the Inspector are made with it.
    Sdk,
    /// `@modelcontextprotocol/ext-tasks`, with tasks of 2025-11-25.
    ExtTasksCore,
    /// The same with the extension of 2026-07-28.
    ExtTasks,
}

/// What stands between them and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Between {
    Gateway,
    Guard,
}

/// All of them, with what stands between.
pub(crate) fn all() -> impl Iterator<Item = (Between, Driver)> {
    let drivers = [Driver::Sdk, Driver::ExtTasksCore, Driver::ExtTasks];
    [Between::Gateway, Between::Guard]
        .into_iter()
        .flat_map(move |between| drivers.map(|driver| (between, driver)))
}

impl Between {
    fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Guard => "guard",
        }
    }
}

/// Calls become tasks soon, and what asks the server how they are does not.
const SETTINGS: &str = "limits = { promote-after = \"300ms\" }\ntools.seen.promote-after = \"off\"\n";

/// How the text of an answer begins and ends.
const BEGIN: &str = "000000000000000 ";
const SIZE: usize = 100_000;

impl Driver {
    pub(crate) fn name(self, between: Between) -> String {
        let driver = match self {
            Self::Sdk => "typescript-sdk",
            Self::ExtTasksCore => "ext-tasks/legacy",
            Self::ExtTasks => "ext-tasks/modern",
        };
        format!("{}/tasks/{driver}", between.name())
    }

    /// Whether it is asked what its call asks. With tasks of 2025-11-25 `ext-tasks` waits for a question on the stream of the session, and
    /// behind the gateway is asked beside `tasks/result` alone.
    fn is_asked(self, between: Between) -> bool {
        self != Self::ExtTasksCore || between == Between::Guard
    }

    /// The arguments of its calls: one that is whole, one that fails, and one that asks.
    fn calls(self, between: Between) -> Value {
        let (whole, fails) = (json!({ "seconds": 1.5, "size": SIZE }), json!({ "seconds": 1, "fail": true }));
        match self.is_asked(between) {
            false => json!([whole, fails]),
            true => json!([whole, fails, { "seconds": 1.5, "ask": true }]),
        }
    }

    /// Its library, and how it begins.
    fn library(self) -> (&'static str, &'static str) {
        match self {
            Self::Sdk => ("sdk", "legacy"),
            Self::ExtTasksCore => ("ext-tasks", "legacy"),
            Self::ExtTasks => ("ext-tasks", "auto"),
        }
    }
}

/// Has it call, and compares what it has seen with what there was to see.
pub(crate) fn check(
    bench: &CaseContext,
    case_folder: &CaseFolder,
    between: Between,
    driver: Driver,
) -> Result<(), ChoreFailure> {
    let server = bench.zoo("slow-answers");
    let transcript = case_folder.path("transcript.json");
    let (library, era) = driver.library();
    let mut plan = json!({
        "library": library, "era": era, "tool": "slow", "transcript": transcript,
        "calls": driver.calls(between),
        "cancelled": { "seconds": 600 },
    });
    match between {
        Between::Gateway => {
            let entry = GatewayEntry {
                name: "srv".to_owned(),
                command: server,
                url: None,
                prefix: Some(""),
                settings: SETTINGS,
            };
            serve(bench, case_folder, &[entry], |gateway| {
                gateway.until_ready()?;
                plan["url"] = gateway.url.clone().into();
                // What is left of it is looked for when the gateway has ended.
                run::start(drive(bench, case_folder, &plan)?)?.wait()
            })?;
        }
        Between::Guard => {
            let text = |word: &OsString| word.to_string_lossy().into_owned();
            let guard = bench.unhang(&["wrap", "--promote-after", "300ms", "--"], &server);
            plan["command"] = guard.iter().map(text).collect();
            let environment = case_folder.environment();
            let environment =
                environment.iter().map(|(name, value)| ((*name).to_owned(), text(value).into()));
            plan["environment"] = Value::Object(environment.collect());
            case_folder.run(drive(bench, case_folder, &plan)?)?;
        }
    }
    let text = fs::read(&transcript).map_err(|error| ChoreFailure::io(transcript.display(), &error))?;
    let seen: Vec<Value> = serde_json::from_slice(&text)
        .map_err(|error| ChoreFailure::new(format!("{}: {error}", transcript.display())))?;
    judge((driver, driver.is_asked(between)), &seen)
        .map_err(|why| ChoreFailure::new(format!("{why}: {seen:?}")))
}

/// The client that goes by this plan.
fn drive(bench: &CaseContext, case_folder: &CaseFolder, plan: &Value) -> Result<ProgramRun, ChoreFailure> {
    let path = case_folder.path("plan.json");
    fs::write(&path, plan.to_string()).map_err(|error| ChoreFailure::io(path.display(), &error))?;
    let script = bench.source("clients/tasks_client.mjs");
    // The client finds its packages in the current folder.
    let task = case_folder.task(&bench.installed.recent_node(), bench.installed.node_folder(), "client");
    Ok(task.arguments([script, path]))
}

/// What is not as it has to be.
fn judge((driver, is_asked): (Driver, bool), seen: &[Value]) -> Result<(), String> {
    let [whole, failed, rest @ ..] = seen else { return Err("calls are missing".to_owned()) };
    let text = |call: &Value, block: usize| {
        call["result"]["content"][block]["text"].as_str().unwrap_or_default().to_owned()
    };
    let is_whole = text(whole, 0).len() == SIZE && text(whole, 0).starts_with(BEGIN);
    if !is_whole {
        return Err("an answer is not whole".to_owned());
    }
    let says_so = failed["result"]["isError"] == true || failed["failed"] == true;
    if !says_so {
        return Err("a tool that failed has not".to_owned());
    }
    let was_asked = |asked: &Value| text(asked, 1).contains("Ada");
    match (driver, rest) {
        (Driver::ExtTasksCore, []) if !is_asked => Ok(()),
        (Driver::ExtTasks | Driver::ExtTasksCore, [asked]) if was_asked(asked) => Ok(()),
        (Driver::Sdk, [asked, cancelled]) if was_asked(asked) && cancelled["status"] == "cancelled" => Ok(()),
        _ => Err("a question was not answered by the client, or a task not cancelled".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_that_is_wrong_is_found() {
        let text = format!("{BEGIN}{}", "x".repeat(SIZE - BEGIN.len()));
        let good = [
            json!({ "result": { "content": [{ "text": text }] } }),
            json!({ "result": { "isError": true } }),
            json!({ "result": { "content": [{ "text": "a" }, { "text": "{\"name\":\"Ada\"}" }] } }),
            json!({ "status": "cancelled" }),
        ];
        assert_eq!(judge((Driver::Sdk, true), &good), Ok(()));
        for index in 0..good.len() {
            let mut bad = good.clone();
            bad[index] = json!({});
            assert!(judge((Driver::Sdk, true), &bad).is_err(), "{index}");
        }
        assert!(judge((Driver::ExtTasks, true), &good[..2]).is_err());
        assert_eq!(judge((Driver::ExtTasks, true), &good[..3]), Ok(()));
        assert_eq!(judge((Driver::ExtTasksCore, false), &good[..2]), Ok(()));
    }
}
