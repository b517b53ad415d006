//! One gateway with all the real servers behind it, and an official client in front of it: over HTTP, and over stdio as a window that
//! shares the servers.
//!
//! # Invariants
//!
//! - What comes back is held against the scenarios of the servers, under the names that the gateway gives.
//! - However many clients there are, each server that speaks one era is started once. Of one that speaks both there are two processes at
//!   most, and the one that nobody used at first may have been stopped and started again.

use std::fs;

use serde_json::{Value, json};

use crate::failure::ChoreFailure;
use crate::run;

use super::super::bench::{CaseContext, CaseFolder};
use super::super::inspector;
use super::super::scenario::{self, Scenario};
use super::super::sdk_client::{ClientTransport, Language, Walk};
use super::super::servers::PublicServer;
use super::{Gateway, GatewayEntry, serve, window};

/// A tool of each server but the first that changes nothing. Of server-everything there is the whole scenario.
const HARMLESS: [(PublicServer, &str); 5] = [
    (PublicServer::Filesystem, "read_text_file"),
    (PublicServer::Memory, "search_nodes"),
    (PublicServer::Time, "convert_time"),
    (PublicServer::Git, "git_log"),
    (PublicServer::Gms, "gm_project_info"),
];

/// The first requests of the Inspector: two that concern one server, the lists, and a call.
const ONE_OF_EACH_KIND: usize = 7;

/// What server-memory knows at its start, so that its tools find what its scenario expects.
const GRAPH: &str = r#"{"type":"entity","name":"Engine","entityType":"machine","observations":["has cogs"]}
"#;

/// Walks through what all servers have, over HTTP and over stdio and in every era.
pub(crate) fn sdk(
    bench: &CaseContext,
    case_folder: &CaseFolder,
    language: Language,
) -> Result<(), ChoreFailure> {
    with_six(bench, case_folder, |gateway| {
        let command = window(bench, case_folder);
        let folder = case_folder.work();
        for (name, way) in
            [("http", ClientTransport::Url(&gateway.url)), ("stdio", ClientTransport::Command(&command))]
        {
            for &era in language.eras() {
                let name = &format!("{name}-{}", era.name());
                let steps = steps(bench, case_folder, name)?;
                let walk = Walk { name, language, era, way, folder: &folder, steps: &steps };
                run::start(walk.task(bench, case_folder)?)?.wait()?;
                let transcript = walk.transcript(case_folder)?;
                Scenario::of(steps).judge(&transcript, era.revision(true), false)?;
            }
        }
        Ok(())
    })
}

/// Lets the Inspector make one request after the other, over HTTP and over stdio and in both eras.
pub(crate) fn inspector(bench: &CaseContext, case_folder: &CaseFolder) -> Result<(), ChoreFailure> {
    with_six(bench, case_folder, |gateway| {
        let command = window(bench, case_folder);
        let requests = requests(bench, case_folder)?;
        for era in ["legacy", "modern"] {
            inspector::send_through_gateway(
                bench,
                case_folder,
                ("http", ClientTransport::Url(&gateway.url), era),
                &requests,
            )?;
            // Each of these is a window of its own, which has to start: one request of each kind will do.
            let way = ClientTransport::Command(&command);
            inspector::send_through_gateway(
                bench,
                case_folder,
                ("stdio", way, era),
                &requests[..ONE_OF_EACH_KIND],
            )?;
        }
        Ok(())
    })
}

/// Does something with all six, and makes sure that there are no more processes of them than eras.
fn with_six(
    bench: &CaseContext,
    case_folder: &CaseFolder,
    work: impl FnOnce(&Gateway) -> Result<(), ChoreFailure>,
) -> Result<(), ChoreFailure> {
    let graph = case_folder.path("memory.json");
    fs::write(&graph, GRAPH).map_err(|error| ChoreFailure::io(graph.display(), &error))?;
    let entries: Result<Vec<_>, _> =
        PublicServer::ALL.into_iter().map(|server| GatewayEntry::real(bench, case_folder, server)).collect();
    serve(bench, case_folder, &entries?, |gateway| {
        gateway.until_ready()?;
        work(gateway)?;
        let servers = gateway.servers()?;
        let is_started_as_often_as_needed = |(server, status): (PublicServer, &Value)| {
            let most = if server.is_stateless_too() { (2, 3) } else { (1, 1) };
            let of = |member: &str| status[member].as_u64().unwrap_or(u64::MAX);
            of("instances") <= most.0 && (1..=most.1).contains(&of("starts"))
        };
        if servers.len() == PublicServer::ALL.len()
            && PublicServer::ALL.into_iter().zip(&servers).all(is_started_as_often_as_needed)
        {
            return Ok(());
        }
        Err(ChoreFailure::new(format!("some of the six servers have more processes than eras: {servers:#?}")))
    })
}

/// Everything that server-everything has, one tool of each other server, and the lists of all of them.
fn steps(bench: &CaseContext, case_folder: &CaseFolder, walk: &str) -> Result<Vec<Value>, ChoreFailure> {
    let everything = Scenario::read(bench, case_folder, PublicServer::Everything)?.through_gateway();
    let mut steps = vec![harmless(bench, case_folder, PublicServer::Everything, "echo")?];
    steps.extend_from_slice(everything.named_by(PublicServer::Everything.name()).steps());
    let subscribed = steps.iter().position(|step| step["do"] == "subscribe");
    let subscribed = subscribed.ok_or_else(|| ChoreFailure::new("the scenario subscribes to nothing"))?;
    let new =
        json!({ "name": format!("{walk}.gz"), "data": "data:text/plain,hello", "outputType": "resource" });
    // A resource that was not there before is told of.
    steps.splice(
        subscribed + 1..=subscribed,
        [
            json!({ "do": "call", "tool": "everything__gzip-file-as-resource", "arguments": new }),
            json!({ "do": "await", "seen": "changed", "least": 1, "expect": ["changed"] }),
        ],
    );
    for (server, tool) in HARMLESS {
        steps.push(harmless(bench, case_folder, server, tool)?);
    }
    steps.push(json!({ "do": "read", "uri": "memory://knowledge-graph", "expect": ["Engine"] }));
    steps.push(json!({
        "do": "call", "tool": "nobody__echo", "arguments": {}, "expect": ["nobody__echo", "-32602"],
    }));
    for what in ["list_tools", "list_resources", "list_templates", "list_prompts"] {
        let mut expected = Vec::new();
        for server in PublicServer::ALL {
            let texts = Scenario::read(bench, case_folder, server)?.expected_of(what);
            let has_a_name_given = matches!(what, "list_tools" | "list_prompts");
            let given = |text| if has_a_name_given { format!("{}__{text}", server.name()) } else { text };
            expected.extend(texts.into_iter().map(given));
        }
        steps.push(json!({ "do": what, "expect": expected }));
    }
    Ok(steps)
}

/// The call of a tool, as the scenario of its server has it.
fn harmless(
    bench: &CaseContext,
    case_folder: &CaseFolder,
    server: PublicServer,
    tool: &str,
) -> Result<Value, ChoreFailure> {
    let scenario = Scenario::read(bench, case_folder, server)?.named_by(server.name());
    let tool = format!("{}__{tool}", server.name());
    let step = scenario.call_of(&tool).and_then(scenario::through_gateway);
    step.ok_or_else(|| ChoreFailure::new(format!("no scenario calls {tool}")))
}

/// What the Inspector asks for, and the texts that it must print.
fn requests(
    bench: &CaseContext,
    case_folder: &CaseFolder,
) -> Result<Vec<(Vec<String>, Value)>, ChoreFailure> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let mut requests = vec![
        (
            words(&["--method", "resources/read", "--uri", "memory://knowledge-graph"]),
            json!({ "expect": ["Engine"] }),
        ),
        (
            words(&[
                "--method",
                "prompts/get",
                "--prompt-name",
                "everything__args-prompt",
                "--prompt-args",
                "city=Oslo",
            ]),
            json!({ "expect": ["Oslo"] }),
        ),
    ];
    let steps = steps(bench, case_folder, "")?;
    for (kind, method) in [
        ("list_tools", "tools/list"),
        ("list_resources", "resources/list"),
        ("list_templates", "resources/templates/list"),
        ("list_prompts", "prompts/list"),
    ] {
        let step = steps.iter().rfind(|step| step["do"] == kind).cloned().unwrap_or_default();
        requests.push((words(&["--method", method]), step));
    }
    for (server, tool) in [(PublicServer::Everything, "echo")].into_iter().chain(HARMLESS) {
        let step = harmless(bench, case_folder, server, tool)?;
        let arguments = step["arguments"].to_string();
        let name = step["tool"].as_str().unwrap_or_default();
        let request = ["--method", "tools/call", "--tool-name", name, "--tool-args-json", &arguments];
        requests.push((words(&request), step));
    }
    Ok(requests)
}
