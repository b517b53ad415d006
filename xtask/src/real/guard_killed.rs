//! SIGKILL for the guard in the middle of a long call: nothing may be left (promise 5).
//!
//! The server is started through `npx`, so that there are several generations, and works for far longer than the
//! check waits: it does not end by itself when its stdin does (contract.md part 4).

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::failure::ChoreFailure;
use crate::leftovers::MarkedProcess;
use crate::run::{self, RunningProgram};
use crate::{clock, leftovers};

use super::bench::{CaseContext, CaseFolder, commands};
use super::sdk_client::{ClientTransport, Language, SdkEra, Walk};

/// Until the first progress of the call is seen.
const START_LIMIT: Duration = Duration::from_secs(30);
/// Everything is gone well before this; the call itself would take [`CALL_SECONDS`].
const GONE_LIMIT: Duration = Duration::from_secs(5);
const CALL_SECONDS: u32 = 300;

/// Kills the guard in the middle of a call and looks for what is left.
pub(crate) fn check(bench: &CaseContext, case_folder: &CaseFolder) -> Result<(), ChoreFailure> {
    let server = ["npx", "-y", "@modelcontextprotocol/server-everything"].map(OsString::from);
    let command = bench.teed(case_folder, "outside", &bench.wrapped(&server));
    let step = json!({
        "do": "call",
        "tool": "trigger-long-running-operation",
        "arguments": {"duration": CALL_SECONDS, "steps": CALL_SECONDS * 5},
        "progress": true,
    });
    // npx finds the installed package in the current folder.
    let folder = bench.installed.node_folder();
    let (way, steps) = (ClientTransport::Command(&command), [step]);
    let walk =
        Walk { name: "client", language: Language::Python, era: SdkEra::Legacy, way, folder, steps: &steps };
    let client = run::start(walk.task(bench, case_folder)?)?;
    let outcome = kill_and_look(bench, case_folder);
    // The client has lost its server and may say so as it likes, but it must end by itself too.
    let ended = if outcome.is_ok() { ended(case_folder, &client) } else { Ok(()) };
    client.end();
    outcome.and(ended)
}

fn kill_and_look(bench: &CaseContext, case_folder: &CaseFolder) -> Result<(), ChoreFailure> {
    let seen = case_folder.path("outside-from-server");
    if !clock::wait_until(START_LIMIT, || contains(&seen, "notifications/progress")) {
        return Err(
            ChoreFailure::new("no progress of the call was seen").with_output(case_folder.path("client.log"))
        );
    }
    let guard = the_guard(bench, case_folder)?;
    let servers = case_folder.marker.processes();
    if !servers
        .iter()
        .any(|process| process.command.contains("server-everything") && process.pid != guard.pid)
    {
        return Err(ChoreFailure::new(format!("the server is not to be seen among {}", commands(&servers))));
    }
    run::kill([guard.pid.to_string()], &case_folder.work());
    let left = case_folder.left_after(GONE_LIMIT, |process| !is_outside(bench, process));
    if left.is_empty() {
        Ok(())
    } else {
        Err(ChoreFailure::new(format!("outlived the guard: {}", commands(&left))))
    }
}

fn contains(path: &Path, text: &str) -> bool {
    let bytes = fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).contains(text)
}

/// The process that was started as `unhang wrap`, and not what it has forked.
fn the_guard(bench: &CaseContext, case_folder: &CaseFolder) -> Result<MarkedProcess, ChoreFailure> {
    let start = format!("{} wrap -- ", bench.binary().display());
    let mut guards = case_folder.marker.processes();
    guards.retain(|process| process.command.starts_with(&start));
    let pids: Vec<_> = guards.iter().map(|process| process.pid).collect();
    guards.retain(|process| leftovers::parent(process.pid).is_none_or(|parent| !pids.contains(&parent)));
    match guards.as_slice() {
        [guard] => Ok(guard.clone()),
        _ => Err(ChoreFailure::new(format!(
            "one guard was expected, found {}: {}",
            guards.len(),
            commands(&guards)
        ))),
    }
}

/// Whether a process stands on the client's side of the guard.
fn is_outside(bench: &CaseContext, process: &MarkedProcess) -> bool {
    let tee = format!("{} zoo tee ", bench.lab().display());
    process.command.contains("python_client.py") || process.command.starts_with(&tee)
}

fn ended(case_folder: &CaseFolder, client: &RunningProgram) -> Result<(), ChoreFailure> {
    // A failing client is no failure here; a client that hangs is one, and is among what is left.
    let _ = client.wait();
    let left = case_folder.left_after(GONE_LIMIT, |_| true);
    if left.is_empty() { Ok(()) } else { Err(ChoreFailure::new(format!("left behind: {}", commands(&left)))) }
}
