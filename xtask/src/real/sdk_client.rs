//! The two official client libraries, each driven by a small script in `real/clients/`.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::failure::Failure;

use super::bench::{Bench, Place};
use super::observed;
use super::scenario::{HANDSHAKE, STATELESS, Scenario};
use super::servers::Server;

/// Which library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    Python,
    Typescript,
}

/// How the client begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    /// With a handshake.
    Legacy,
    /// By asking `server/discover`, and with a handshake only where that is not known.
    Auto,
}

impl Language {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Typescript => "typescript",
        }
    }

    /// The interpreter and the script.
    fn command(self, bench: &Bench) -> (PathBuf, PathBuf) {
        match self {
            Self::Python => (bench.installed.python("python"), bench.source("clients/python_client.py")),
            Self::Typescript => (PathBuf::from("node"), bench.source("clients/typescript_client.mjs")),
        }
    }
}

impl Era {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Auto => "auto",
        }
    }
}

/// Walks through a server's scenario and compares both sides of the guard.
pub(crate) fn check(
    bench: &Bench,
    place: &Place,
    language: Language,
    server: Server,
    era: Era,
) -> Result<(), Failure> {
    server.furnish(place)?;
    let scenario = Scenario::read(bench, place, server)?;
    let command = bench.observed(place, &server.command(bench, place));
    perform(bench, place, language, &plan(place, &command, era, scenario.steps()))?;
    let transcript = read_transcript(place)?;
    let stateless = era == Era::Auto && server.is_stateless_too();
    let version = if stateless { STATELESS } else { HANDSHAKE };
    scenario.judge(&transcript, version, server.is_called_completely())?;
    let sent = observed::same_on_both_sides(place)?;
    if sent < scenario.steps().len() / 2 {
        return Err(Failure::new(format!("the client sent only {sent} lines")));
    }
    Ok(())
}

/// What the script is told.
pub(crate) fn plan(place: &Place, command: &[OsString], era: Era, steps: &[Value]) -> Value {
    let text = |value: &OsString| value.to_string_lossy().into_owned();
    let environment: serde_json::Map<_, _> =
        place.environment().iter().map(|(name, value)| ((*name).to_owned(), json!(text(value)))).collect();
    json!({
        "command": command.iter().map(text).collect::<Vec<_>>(),
        "folder": place.work(),
        "environment": environment,
        "era": era.name(),
        "steps": steps,
        "transcript": place.path("transcript.json"),
    })
}

/// Writes the plan and returns the task that follows it.
pub(crate) fn follow(
    bench: &Bench,
    place: &Place,
    language: Language,
    plan: &Value,
) -> Result<crate::run::Task, Failure> {
    let path = place.path("plan.json");
    fs::write(&path, plan.to_string()).map_err(|error| Failure::io(path.display(), &error))?;
    let (interpreter, script) = language.command(bench);
    // The TypeScript client finds its packages in the current folder.
    Ok(place.task(&interpreter, bench.installed.node_folder(), "client").arguments([script, path]))
}

fn perform(bench: &Bench, place: &Place, language: Language, plan: &Value) -> Result<(), Failure> {
    place.run(follow(bench, place, language, plan)?)
}

fn read_transcript(place: &Place) -> Result<Value, Failure> {
    let path = place.path("transcript.json");
    let text = fs::read(&path).map_err(|error| Failure::io(path.display(), &error))?;
    serde_json::from_slice(&text).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}
