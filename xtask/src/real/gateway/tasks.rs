//! How the official libraries drive tasks, each against the gateway in front of a server that knows none.
//!
//! # Invariants
//!
//! - Each call takes longer than it may take as a call, and its answer arrives whole.
//! - What is asked in the middle of one is answered by the client, and one that is cancelled is cancelled at its server.

use std::ffi::OsStr;
use std::fs;

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::run;

use super::super::bench::{Bench, Place};
use super::{Entry, serve};

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

/// All of them.
pub(crate) const ALL: [Driver; 3] = [Driver::Sdk, Driver::ExtTasksCore, Driver::ExtTasks];

/// Calls become tasks soon, and what asks the server how they are does not.
const SETTINGS: &str = "limits = { promote-after = \"300ms\" }\ntools.seen.promote-after = \"off\"\n";

/// How the text of an answer begins and ends.
const BEGIN: &str = "000000000000000 ";
const SIZE: usize = 100_000;

impl Driver {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sdk => "gateway/tasks/typescript-sdk",
            Self::ExtTasksCore => "gateway/tasks/ext-tasks/legacy",
            Self::ExtTasks => "gateway/tasks/ext-tasks/modern",
        }
    }

    /// The arguments of its calls: one that is whole, one that fails, and one that asks. With tasks of 2025-11-25 `ext-tasks` waits for a
    /// question on the stream of the session, and is asked beside `tasks/result` alone.
    fn calls(self) -> Value {
        let (whole, fails) = (json!({ "seconds": 1.5, "size": SIZE }), json!({ "seconds": 1, "fail": true }));
        match self {
            Self::ExtTasksCore => json!([whole, fails]),
            Self::Sdk | Self::ExtTasks => json!([whole, fails, { "seconds": 1.5, "ask": true }]),
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
pub(crate) fn check(bench: &Bench, place: &Place, driver: Driver) -> Result<(), Failure> {
    let command = [bench.binary().as_os_str(), "zoo".as_ref(), "slow-answers".as_ref()];
    let command = command.map(OsStr::to_owned).into();
    let entry = Entry { name: "srv".to_owned(), command, prefix: Some(""), settings: SETTINGS };
    let transcript = place.path("transcript.json");
    let (library, era) = driver.library();
    serve(bench, place, &[entry], |gateway| {
        gateway.until_ready()?;
        let plan = json!({
            "library": library, "era": era, "url": gateway.url, "tool": "slow", "transcript": transcript,
            "calls": driver.calls(),
            "cancelled": { "seconds": 600 },
        });
        let path = place.path("plan.json");
        fs::write(&path, plan.to_string()).map_err(|error| Failure::io(path.display(), &error))?;
        let script = bench.source("clients/tasks_client.mjs");
        // The client finds its packages in the current folder.
        let task = place.task(&bench.installed.recent_node(), bench.installed.node_folder(), "client");
        // What is left of it is looked for when the gateway has ended.
        run::start(task.arguments([script, path]))?.wait()
    })?;
    let text = fs::read(&transcript).map_err(|error| Failure::io(transcript.display(), &error))?;
    let seen: Vec<Value> = serde_json::from_slice(&text)
        .map_err(|error| Failure::new(format!("{}: {error}", transcript.display())))?;
    judge(driver, &seen).map_err(|why| Failure::new(format!("{why}: {seen:?}")))
}

/// What is not as it has to be.
fn judge(driver: Driver, seen: &[Value]) -> Result<(), String> {
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
    let is_asked = |asked: &Value| text(asked, 1).contains("Ada");
    match (driver, rest) {
        (Driver::ExtTasksCore, []) => Ok(()),
        (Driver::ExtTasks, [asked]) if is_asked(asked) => Ok(()),
        (Driver::Sdk, [asked, cancelled]) if is_asked(asked) && cancelled["status"] == "cancelled" => Ok(()),
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
        assert_eq!(judge(Driver::Sdk, &good), Ok(()));
        for index in 0..good.len() {
            let mut bad = good.clone();
            bad[index] = json!({});
            assert!(judge(Driver::Sdk, &bad).is_err(), "{index}");
        }
        assert!(judge(Driver::ExtTasks, &good[..2]).is_err());
        assert_eq!(judge(Driver::ExtTasks, &good[..3]), Ok(()));
        assert_eq!(judge(Driver::ExtTasksCore, &good[..2]), Ok(()));
    }
}
