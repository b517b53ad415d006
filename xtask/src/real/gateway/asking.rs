//! Servers that ask their client in a call, at default settings: what works directly works the same through the gateway.
//!
//! The servers are written with the official SDKs (`real/servers/`). Their tools ask in each way that their SDK has. The same client calls
//! them directly, and through `unhang serve` over stdio and over HTTP.
//!
//! # Invariants
//!
//! - Each answer is the same, errors included. An SDK refuses a question in the middle of a call of 2026-07-28, through the gateway too.
//! - A client with a handshake is asked by every tool, and a client of 2026-07-28 by the tool that asks in the way of the revision.

use std::ffi::OsString;

use serde_json::{Value, json};

use crate::failure::ChoreFailure;
use crate::run;

use super::super::bench::{CaseContext, CaseFolder};
use super::super::sdk_client::{ClientTransport, Language, SdkEra, Walk};
use super::super::server_script::ServerScript;
use super::{Gateway, GatewayEntry, configure, serve};

/// The tool that asks in the way of the client's revision.
const RESOLVE: &str = "resolve";
/// Each tool, and a text of its answer to a client that was asked.
const TOOLS: [(&str, &str); 3] = [("ask", "hello Ada"), ("sample", "sampled by the"), (RESOLVE, "hello Ada")];

/// A server that asks, and how the gateway reaches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AskingServer {
    PythonStdio,
    PythonHttp,
    TypescriptStdio,
    TypescriptHttp,
}

impl AskingServer {
    pub(crate) const ALL: [Self; 4] =
        [Self::PythonStdio, Self::PythonHttp, Self::TypescriptStdio, Self::TypescriptHttp];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::PythonStdio => "python-stdio",
            Self::PythonHttp => "python-http",
            Self::TypescriptStdio => "typescript-stdio",
            Self::TypescriptHttp => "typescript-http",
        }
    }

    fn script(self) -> ServerScript {
        match self {
            Self::PythonStdio | Self::PythonHttp => ServerScript::Python("python_asks.py"),
            Self::TypescriptStdio | Self::TypescriptHttp => ServerScript::Typescript("typescript_asks.mjs"),
        }
    }
}

/// Calls every tool directly and through a gateway, in each era of the client, and compares.
pub(crate) fn check(
    bench: &CaseContext,
    case_folder: &CaseFolder,
    language: Language,
    server: AskingServer,
) -> Result<(), ChoreFailure> {
    match server {
        AskingServer::PythonStdio | AskingServer::TypescriptStdio => {
            let command = server.script().command(bench, case_folder)?;
            compare(bench, case_folder, language, ClientTransport::Command(&command))
        }
        AskingServer::PythonHttp | AskingServer::TypescriptHttp => {
            let own = format!("asking-{}-server-{}", server.name(), language.name());
            server.script().over_http(bench, &own, |url| {
                compare(bench, case_folder, language, ClientTransport::Url(url))
            })
        }
    }
}

fn compare(
    bench: &CaseContext,
    case_folder: &CaseFolder,
    language: Language,
    server: ClientTransport<'_>,
) -> Result<(), ChoreFailure> {
    let (command, url) = match server {
        ClientTransport::Command(command) => (command.to_vec(), None),
        ClientTransport::Url(url) => (Vec::new(), Some(url.to_owned())),
    };
    let entry = GatewayEntry { name: "asks".to_owned(), command, url, prefix: Some(""), settings: "" };
    let steps: Vec<Value> =
        TOOLS.map(|(tool, _)| json!({ "do": "call", "tool": tool, "arguments": {} })).to_vec();
    let folder = case_folder.work();
    let walk = |name: &str, era: SdkEra, way: ClientTransport<'_>| {
        let name = &format!("{name}-{}", era.name());
        let walk = Walk { name, language, era, way, folder: &folder, steps: &steps };
        run::start(walk.task(bench, case_folder)?)?.wait()?;
        walk.transcript(case_folder)
    };
    let mut direct = Vec::new();
    for &era in language.eras() {
        let transcript = walk("direct", era, server)?;
        judge(&transcript, era)?;
        direct.push((era, answers(&transcript)));
    }
    let same = |name: &str, way: ClientTransport<'_>| {
        for (era, direct) in &direct {
            let through = answers(&walk(name, *era, way)?);
            if through != *direct {
                let era = era.name();
                return Err(ChoreFailure::new(format!(
                    "a {era} client over {name}: directly {direct:#?}, through the gateway {through:#?}"
                )));
            }
        }
        Ok(())
    };
    let file = configure(case_folder, std::slice::from_ref(&entry))?;
    let own = bench.unhang(&["serve", "--own", "--config"], &[OsString::from(file)]);
    same("stdio", ClientTransport::Command(&own))?;
    serve(bench, case_folder, &[entry], |gateway: &Gateway| same("http", ClientTransport::Url(&gateway.url)))
}

/// Makes sure that the client was asked without the gateway: otherwise there is nothing to compare.
fn judge(transcript: &Value, era: SdkEra) -> Result<(), ChoreFailure> {
    for ((tool, expected), outcome) in TOOLS.iter().zip(outcomes(transcript)) {
        let is_asked = era == SdkEra::Legacy || *tool == RESOLVE;
        if outcome.to_string().contains(expected) != is_asked {
            return Err(ChoreFailure::new(format!(
                "`{tool}` of a {} client directly: {outcome}",
                era.name()
            )));
        }
    }
    Ok(())
}

fn outcomes(transcript: &Value) -> impl Iterator<Item = &Value> {
    transcript["outcomes"].as_array().into_iter().flatten()
}

/// Returns what each call brought: its content or its error.
fn answers(transcript: &Value) -> Vec<Value> {
    let answer = |outcome: &Value| match &outcome["result"] {
        Value::Null => outcome["error"].clone(),
        result => json!([result["content"], result["isError"] == true]),
    };
    outcomes(transcript).map(answer).collect()
}
