//! The official Inspector in its command-line mode: one process, one session, one request.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::failure::ChoreFailure;
use crate::run::{self, ProgramRun};

use super::bench::{CaseContext, CaseFolder};
use super::observed;
use super::scenario::{self, Scenario};
use super::sdk_client::ClientTransport;
use super::servers::PublicServer;

/// One request that is observed on both sides of the guard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ObservedRequest {
    /// Server, request and era.
    pub(crate) name: &'static str,
    server: PublicServer,
    era: &'static str,
    request: &'static [&'static str],
    /// A text that the printed result must contain.
    expect: &'static str,
}

/// server-everything asks for the client's roots 350 ms after the handshake. The request takes a second, so
/// that this exchange ends before the client disconnects. Messages after that could not be compared.
pub(crate) const OBSERVED_REQUESTS: [ObservedRequest; 5] = [
    ObservedRequest {
        name: "everything/call",
        server: PublicServer::Everything,
        era: "legacy",
        request: &[
            "--method",
            "tools/call",
            "--tool-name",
            "trigger-long-running-operation",
            "--tool-args-json",
            r#"{"duration": 1, "steps": 4}"#,
        ],
        expect: "Long running operation completed",
    },
    ObservedRequest {
        name: "memory/read",
        server: PublicServer::Memory,
        era: "legacy",
        request: &["--method", "resources/read", "--uri", "memory://knowledge-graph"],
        expect: "entities",
    },
    ObservedRequest {
        name: "time/list",
        server: PublicServer::Time,
        era: "legacy",
        request: &["--method", "tools/list"],
        expect: "convert_time",
    },
    ObservedRequest {
        name: "time/list-stateless",
        server: PublicServer::Time,
        era: "modern",
        request: &["--method", "tools/list"],
        expect: "convert_time",
    },
    ObservedRequest {
        name: "gms/prompts",
        server: PublicServer::Gms,
        era: "auto",
        request: &["--method", "prompts/list"],
        expect: "create-feature",
    },
];

/// One run of the Inspector.
struct Inspection<'a> {
    /// Names the file with the printed result.
    name: &'a str,
    request: &'a [&'a str],
    way: ClientTransport<'a>,
    /// The server's folder.
    folder: &'a Path,
}

/// Makes one request and compares both sides of the guard.
pub(crate) fn send_observed(
    bench: &CaseContext,
    case_folder: &CaseFolder,
    observed: &ObservedRequest,
) -> Result<(), ChoreFailure> {
    observed.server.furnish(case_folder)?;
    let command = bench.observed(case_folder, &observed.server.command(bench, case_folder));
    let request = [&["--protocol-era", observed.era], observed.request].concat();
    let inspection = Inspection {
        name: "inspector",
        request: &request,
        way: ClientTransport::Command(&command),
        folder: &case_folder.work(),
    };
    let printed = inspection.run(bench, case_folder)?;
    if !printed.to_string().contains(observed.expect) {
        return Err(ChoreFailure::new(format!(
            "the Inspector did not print {:?} but {printed}",
            observed.expect
        )));
    }
    observed::same_on_both_sides(case_folder)?;
    Ok(())
}

/// Starts the Inspector on `unhang wrap -- npx -y @modelcontextprotocol/server-everything`, lists the tools and calls
/// each of them.
pub(crate) fn every_tool(bench: &CaseContext, case_folder: &CaseFolder) -> Result<(), ChoreFailure> {
    let server = ["npx", "-y", "@modelcontextprotocol/server-everything"].map(OsString::from);
    let command = bench.wrapped(&server);
    let scenario = Scenario::read(bench, case_folder, PublicServer::Everything)?;
    // npx finds the installed package in the current folder.
    let folder = bench.installed.node_folder();
    let way = ClientTransport::Command(&command);
    let list = Inspection { name: "list", request: &["--method", "tools/list"], way, folder };
    let names = scenario::tool_names(&list.run(bench, case_folder)?["result"]);
    let (ours, names): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| name.starts_with(OURS));
    if ours != OURS_ALL {
        return Err(ChoreFailure::new(format!(
            "of the three tools about jobs there are: {}",
            ours.join(", ")
        )));
    }
    if names.len() < FEWEST_TOOLS {
        return Err(ChoreFailure::new(format!(
            "only {} tools were listed: {}",
            names.len(),
            names.join(", ")
        )));
    }
    for tool in names {
        let unknown = || ChoreFailure::new(format!("the scenario does not call {tool}"));
        let step = scenario.call_of(&tool).ok_or_else(unknown)?;
        let arguments = step["arguments"].to_string();
        let request = ["--method", "tools/call", "--tool-name", &tool, "--tool-args-json", &arguments];
        let call = Inspection { name: &format!("call-{tool}"), request: &request, way, folder };
        scenario::expected_in(&without_roots(step), &call.run(bench, case_folder)?)?;
    }
    Ok(())
}

/// How the names of those begin that the guard adds.
const OURS: &str = "unhang_";

/// The tools that the guard adds, in their order.
const OURS_ALL: [&str; 3] = ["unhang_get_job_status", "unhang_get_job_results", "unhang_terminate_job"];

/// server-everything has twelve tools whatever the client can do (contract.md part 4).
const FEWEST_TOOLS: usize = 12;

/// The Inspector declares roots and has none, unlike the SDK clients.
fn without_roots(step: &Value) -> Value {
    let mut step = step.clone();
    if !step["expect_without_roots"].is_null() {
        step["expect"] = step["expect_without_roots"].take();
    }
    step
}

/// How many Inspectors run at once: each is a process of Node.js that starts.
const AT_ONCE: usize = 3;

/// Makes requests of a gateway, some at once, and looks for the texts that they are to bring.
pub(crate) fn send_through_gateway(
    bench: &CaseContext,
    case_folder: &CaseFolder,
    (name, way, era): (&str, ClientTransport<'_>, &str),
    requests: &[(Vec<String>, Value)],
) -> Result<(), ChoreFailure> {
    let folder = case_folder.work();
    for (round, requests) in requests.chunks(AT_ONCE).enumerate() {
        let mut running = Vec::new();
        for (number, (words, step)) in requests.iter().enumerate() {
            let name = format!("{name}-{era}-{round}-{number}");
            let request: Vec<_> =
                ["--protocol-era", era].into_iter().chain(words.iter().map(String::as_str)).collect();
            let inspection = Inspection { name: &name, request: &request, way, folder: &folder };
            running.push((run::start(inspection.task(bench, case_folder))?, name, step));
        }
        for (running, name, step) in running {
            running.wait()?;
            scenario::expected_in(step, &printed(case_folder, &name)?)?;
        }
    }
    Ok(())
}

impl Inspection<'_> {
    /// Returns what the Inspector printed.
    fn run(&self, bench: &CaseContext, case_folder: &CaseFolder) -> Result<Value, ChoreFailure> {
        case_folder.run(self.task(bench, case_folder))?;
        printed(case_folder, self.name)
    }

    fn task(&self, bench: &CaseContext, case_folder: &CaseFolder) -> ProgramRun {
        let launcher = bench.installed.package("inspector/clients/launcher/build/index.js");
        let mut task = case_folder
            .task(&bench.installed.recent_node(), &case_folder.work(), self.name)
            .arguments([launcher.as_os_str(), "--cli".as_ref()])
            .arguments(["--format".as_ref(), "json".as_ref(), "--cwd".as_ref(), self.folder.as_os_str()]);
        for (variable, value) in case_folder.environment() {
            task = task.arguments(["-e".into(), [variable.into(), value].join("=".as_ref())]);
        }
        match self.way {
            // The first separator ends the Inspector's own arguments, and it takes that one away.
            ClientTransport::Command(command) => {
                task.arguments(self.request).arguments(["--"]).arguments(command)
            }
            ClientTransport::Url(url) => {
                task.arguments(["--transport", "http", "--server-url", url]).arguments(self.request)
            }
        }
    }
}

/// What an Inspector has printed.
fn printed(case_folder: &CaseFolder, name: &str) -> Result<Value, ChoreFailure> {
    let path = case_folder.path(name);
    let text = fs::read(&path).map_err(|error| ChoreFailure::io(path.display(), &error))?;
    serde_json::from_slice(&text).map_err(|error| {
        ChoreFailure::new(format!("the Inspector's output is not JSON: {error}")).with_output(path)
    })
}
