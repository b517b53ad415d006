//! The official client libraries, each driven by a small script in `real/clients/`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::failure::ChoreFailure;
use crate::run::ProgramRun;

use super::bench::{CaseContext, CaseFolder};
use super::observed;
use super::scenario::{HANDSHAKE, STATELESS, Scenario};
use super::servers::PublicServer;

/// Which library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    Python,
    /// `@modelcontextprotocol/client`.
    Typescript,
    /// `@modelcontextprotocol/sdk`, which most clients have, and which knows handshakes alone.
    TypescriptSdk,
}

/// How the client begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SdkEra {
    /// With a handshake.
    Legacy,
    /// By asking `server/discover`, and with a handshake only where that is not known.
    Auto,
}

/// How the client comes to its server.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ClientTransport<'a> {
    Command(&'a [OsString]),
    Url(&'a str),
}

/// One client that walks through some steps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Walk<'a> {
    /// What its files in the place are called after.
    pub(crate) name: &'a str,
    pub(crate) language: Language,
    pub(crate) era: SdkEra,
    pub(crate) way: ClientTransport<'a>,
    /// The folder that a command is started in, and the client's only root.
    pub(crate) folder: &'a Path,
    pub(crate) steps: &'a [Value],
}

impl Language {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Typescript => "typescript",
            Self::TypescriptSdk => "typescript-sdk",
        }
    }

    /// The eras that it knows.
    pub(crate) fn eras(self) -> &'static [SdkEra] {
        match self {
            Self::Python | Self::Typescript => &[SdkEra::Legacy, SdkEra::Auto],
            Self::TypescriptSdk => &[SdkEra::Legacy],
        }
    }

    /// The interpreter and the script.
    fn command(self, bench: &CaseContext) -> (PathBuf, PathBuf) {
        match self {
            Self::Python => (bench.installed.python("python"), bench.source("clients/python_client.py")),
            Self::Typescript | Self::TypescriptSdk => {
                (PathBuf::from("node"), bench.source("clients/typescript_client.mjs"))
            }
        }
    }

    /// What the script is told of the library that it is to use.
    fn library(self) -> &'static str {
        match self {
            Self::Python => "mcp",
            Self::Typescript => "client",
            Self::TypescriptSdk => "sdk",
        }
    }
}

impl SdkEra {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Auto => "auto",
        }
    }

    /// The revision that comes of it with a server that speaks 2026-07-28 or does not.
    pub(crate) fn revision(self, is_stateless_too: bool) -> &'static str {
        if self == Self::Auto && is_stateless_too { STATELESS } else { HANDSHAKE }
    }
}

/// Walks through a server's scenario and compares both sides of the guard.
pub(crate) fn check(
    bench: &CaseContext,
    place: &CaseFolder,
    language: Language,
    server: PublicServer,
    era: SdkEra,
) -> Result<(), ChoreFailure> {
    server.furnish(place)?;
    let scenario = Scenario::read(bench, place, server)?;
    let command = bench.observed(place, &server.command(bench, place));
    let folder = place.work();
    let (way, steps) = (ClientTransport::Command(&command), scenario.steps());
    let walk = Walk { name: "client", language, era, way, folder: &folder, steps };
    place.run(walk.task(bench, place)?)?;
    let revision = era.revision(server.is_stateless_too());
    scenario.judge(&walk.transcript(place)?, revision, server.is_called_completely())?;
    let sent = observed::same_on_both_sides(place)?;
    if sent < scenario.steps().len() / 2 {
        return Err(ChoreFailure::new(format!("the client sent only {sent} lines")));
    }
    Ok(())
}

impl Walk<'_> {
    /// Writes down for the script what it is to do, and returns the task that does it.
    pub(crate) fn task(&self, bench: &CaseContext, place: &CaseFolder) -> Result<ProgramRun, ChoreFailure> {
        let path = place.path(&format!("{}-plan.json", self.name));
        fs::write(&path, self.plan(place).to_string())
            .map_err(|error| ChoreFailure::io(path.display(), &error))?;
        let (interpreter, script) = self.language.command(bench);
        // The TypeScript client finds its packages in the current folder.
        let task = place.task(&interpreter, bench.installed.node_folder(), self.name);
        Ok(task.arguments([script, path]))
    }

    fn plan(&self, place: &CaseFolder) -> Value {
        let text = |value: &OsString| value.to_string_lossy().into_owned();
        let environment = place.environment();
        let environment: Map<_, _> =
            environment.iter().map(|(name, value)| ((*name).to_owned(), text(value).into())).collect();
        let mut plan = json!({
            "library": self.language.library(),
            "folder": self.folder,
            "environment": environment,
            "era": self.era.name(),
            "steps": self.steps,
            "meeting": place.meeting(),
            "transcript": self.transcript_file(place),
        });
        match self.way {
            ClientTransport::Command(command) => plan["command"] = command.iter().map(text).collect(),
            ClientTransport::Url(url) => plan["url"] = url.into(),
        }
        plan
    }

    fn transcript_file(&self, place: &CaseFolder) -> PathBuf {
        place.path(&format!("{}-transcript.json", self.name))
    }

    /// What it has written down.
    pub(crate) fn transcript(&self, place: &CaseFolder) -> Result<Value, ChoreFailure> {
        let path = self.transcript_file(place);
        let text = fs::read(&path).map_err(|error| ChoreFailure::io(path.display(), &error))?;
        serde_json::from_slice(&text)
            .map_err(|error| ChoreFailure::new(format!("{}: {error}", path.display())))
    }
}
