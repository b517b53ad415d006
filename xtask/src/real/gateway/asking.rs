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
use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::time::Duration;

use serde_json::{Value, json};

use crate::clock;
use crate::failure::ChoreFailure;
use crate::run;

use super::super::bench::{CaseContext, CaseFolder};
use super::super::sdk_client::{ClientTransport, Language, SdkEra, Walk};
use super::{Gateway, GatewayEntry, configure, serve};

/// The tool that asks in the way of the client's revision.
const RESOLVE: &str = "resolve";
/// Each tool, and a text of its answer to a client that was asked.
const TOOLS: [(&str, &str); 3] = [("ask", "hello Ada"), ("sample", "sampled by the"), (RESOLVE, "hello Ada")];
/// The server in TypeScript, and the folder in which Node.js finds its packages.
const TYPESCRIPT: &str = "typescript_asks.mjs";
const PACKAGES: &str = "node_modules";
/// Until a server over HTTP takes connections.
const START_LIMIT: Duration = Duration::from_secs(20);

/// A server that asks, and how the gateway reaches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AskingServer {
    PythonStdio,
    PythonHttp,
    TypescriptStdio,
}

impl AskingServer {
    pub(crate) const ALL: [Self; 3] = [Self::PythonStdio, Self::PythonHttp, Self::TypescriptStdio];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::PythonStdio => "python-stdio",
            Self::PythonHttp => "python-http",
            Self::TypescriptStdio => "typescript-stdio",
        }
    }

    /// Returns the command that starts it.
    fn command(self, bench: &CaseContext, case_folder: &CaseFolder) -> Result<Vec<OsString>, ChoreFailure> {
        match self {
            Self::PythonStdio | Self::PythonHttp => {
                let script = bench.source("servers/python_asks.py");
                Ok(vec![bench.installed.python("python").into(), script.into()])
            }
            Self::TypescriptStdio => {
                // Node.js looks for packages beside the script.
                let (script, packages) = (case_folder.path(TYPESCRIPT), case_folder.path(PACKAGES));
                let installed = bench.installed.node_folder().join(PACKAGES);
                fs::copy(bench.source("servers").join(TYPESCRIPT), &script)
                    .and_then(|_| symlink(installed, packages))
                    .map_err(|error| ChoreFailure::io(script.display(), &error))?;
                Ok(vec!["node".into(), script.into()])
            }
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
    let command = server.command(bench, case_folder)?;
    if server != AskingServer::PythonHttp {
        return compare(bench, case_folder, language, ClientTransport::Command(&command));
    }
    // The server is a case of its own: it outlives each gateway.
    let own = bench.case_folder(&format!("asking-{}-server-{}", server.name(), language.name()))?;
    let port = free_port()?;
    let [program, arguments @ ..] = &command[..] else { return Ok(()) };
    let task = own.task(program.as_ref(), &own.work(), "server");
    let running = run::start(task.arguments(arguments).arguments([port.to_string()]))?;
    let has_come_up = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
    let outcome = match clock::wait_until(START_LIMIT, has_come_up) {
        true => {
            let url = format!("http://127.0.0.1:{port}/mcp");
            compare(bench, case_folder, language, ClientTransport::Url(&url))
        }
        false => Err(ChoreFailure::new("the server did not come up").with_output(own.path("server.log"))),
    };
    running.ask_to_end();
    let ended = own.finish_in_any_way(&running);
    outcome.and(ended.map(drop))
}

/// Returns a port that was free a moment ago.
fn free_port() -> Result<u16, ChoreFailure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let address = listener.and_then(|listener| listener.local_addr());
    address.map(|address| address.port()).map_err(|error| ChoreFailure::io("a free port", &error))
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
