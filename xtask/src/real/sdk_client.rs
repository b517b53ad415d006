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
    /// What its files in the case's folder are called after.
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
    case_folder: &CaseFolder,
    language: Language,
    server: PublicServer,
    era: SdkEra,
) -> Result<(), ChoreFailure> {
    server.furnish(case_folder)?;
    let scenario = Scenario::read(bench, case_folder, server)?;
    let command = bench.observed(case_folder, &server.command(bench, case_folder));
    let folder = case_folder.work();
    let (way, steps) = (ClientTransport::Command(&command), scenario.steps());
    let walk = Walk { name: "client", language, era, way, folder: &folder, steps };
    case_folder.run(walk.task(bench, case_folder)?)?;
    let revision = era.revision(server.is_stateless_too());
    scenario.judge(&walk.transcript(case_folder)?, revision, server.is_called_completely())?;
    let sent = observed::same_on_both_sides(case_folder)?;
    if sent < scenario.steps().len() / 2 {
        return Err(ChoreFailure::new(format!("the client sent only {sent} lines")));
    }
    Ok(())
}

impl Walk<'_> {
    /// Writes down for the script what it is to do, and returns the task that does it.
    pub(crate) fn task(
        &self,
        bench: &CaseContext,
        case_folder: &CaseFolder,
    ) -> Result<ProgramRun, ChoreFailure> {
        let path = case_folder.path(&format!("{}-plan.json", self.name));
        fs::write(&path, self.plan(case_folder).to_string())
            .map_err(|error| ChoreFailure::io(path.display(), &error))?;
        let (interpreter, script) = self.language.command(bench);
        // The TypeScript client finds its packages in the current folder.
        let task = case_folder.task(&interpreter, bench.installed.node_folder(), self.name);
        Ok(task.arguments([script, path]))
    }

    fn plan(&self, case_folder: &CaseFolder) -> Value {
        let text = |value: &OsString| value.to_string_lossy().into_owned();
        let environment = case_folder.environment();
        let environment: Map<_, _> =
            environment.iter().map(|(name, value)| ((*name).to_owned(), text(value).into())).collect();
        let mut plan = json!({
            "library": self.language.library(),
            "folder": self.folder,
            "environment": environment,
            "era": self.era.name(),
            "steps": self.steps,
            "meeting": case_folder.meeting(),
            "transcript": self.transcript_file(case_folder),
        });
        match self.way {
            ClientTransport::Command(command) => plan["command"] = command.iter().map(text).collect(),
            ClientTransport::Url(url) => plan["url"] = url.into(),
        }
        plan
    }

    fn transcript_file(&self, case_folder: &CaseFolder) -> PathBuf {
        case_folder.path(&format!("{}-transcript.json", self.name))
    }

    /// What it has written down.
    pub(crate) fn transcript(&self, case_folder: &CaseFolder) -> Result<Value, ChoreFailure> {
        let path = self.transcript_file(case_folder);
        let text = fs::read(&path).map_err(|error| ChoreFailure::io(path.display(), &error))?;
        serde_json::from_slice(&text)
            .map_err(|error| ChoreFailure::new(format!("{}: {error}", path.display())))
    }
}
