//! SIGKILL for each of five real servers behind one gateway, in the middle of a call: that call gets an error, and nobody else notices.
//!
//! # Theory of operation
//!
//! One client comes over HTTP, the other is a window over stdio, and both go through as many rounds as there are servers. Before a round
//! they meet, and the server is stopped (SIGSTOP), so that the call that the first client makes of it is in flight until it is killed.
//! server-everything has a tool that takes long by itself. Meanwhile both have a long call in flight at a server of which nobody is
//! killed, and the second asks all the others.
//!
//! # Invariants
//!
//! - What is killed was found below a lifeline of our own gateway, and nowhere else.
//! - It is killed when the gateway says that the call is in flight.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::clock;
use crate::failure::ChoreFailure;
use crate::leftovers::{self, MarkedProcess};
use crate::run;

use super::super::bench::{CaseContext, CaseFolder, commands};
use super::super::scenario::Scenario;
use super::super::sdk_client::{ClientTransport, Language, SdkEra, Walk};
use super::super::servers::PublicServer;
use super::{Gateway, GatewayEntry, serve, window};

/// The servers that are killed, and a tool of each that changes nothing.
const VICTIMS: [(PublicServer, &str); 5] = [
    (PublicServer::Filesystem, "list_allowed_directories"),
    (PublicServer::Git, "git_log"),
    (PublicServer::Memory, "read_graph"),
    (PublicServer::Time, "convert_time"),
    (PublicServer::Everything, "echo"),
];

/// Where the long calls are. It is one more server-everything.
const BYSTANDER: &str = "bystander";

/// With this a server that speaks both eras has one process, which can be killed.
const ONE_PROCESS: &str = "era = \"legacy\"\n";

/// How long these take: for longer than it takes to kill a server, in seconds.
const CALL_SECONDS: u32 = 3;

/// A call that would take as long as this is only ended by the end of its server.
const ENDLESS_SECONDS: u32 = 300;

/// Until clients have met, a call is in flight, a process has been stopped.
const LIMIT: Duration = Duration::from_secs(20);

/// What the one call gets.
const SERVER_EXITED: &str = "-31002";

/// Kills one server after the other.
pub(crate) fn check(bench: &CaseContext, case_folder: &CaseFolder) -> Result<(), ChoreFailure> {
    let mut entries = Vec::new();
    for (server, _) in VICTIMS {
        entries
            .push(GatewayEntry { settings: ONE_PROCESS, ..GatewayEntry::real(bench, case_folder, server)? });
    }
    let mut bystander = GatewayEntry::real(bench, case_folder, PublicServer::Everything)?;
    BYSTANDER.clone_into(&mut bystander.name);
    // It is what that server does anyway, and tells the two apart.
    bystander.command.push("stdio".into());
    entries.push(bystander);
    serve(bench, case_folder, &entries, |gateway| {
        gateway.until_ready()?;
        let (folder, command) = (case_folder.work(), window(bench, case_folder));
        let (first, second) = (first(bench, case_folder)?, second(bench, case_folder)?);
        let over_http = Walk {
            name: "first",
            language: Language::Python,
            era: SdkEra::Legacy,
            way: ClientTransport::Url(&gateway.url),
            folder: &folder,
            steps: &first,
        };
        let over_stdio = Walk {
            name: "second",
            language: Language::Typescript,
            era: SdkEra::Auto,
            way: ClientTransport::Command(&command),
            folder: &folder,
            steps: &second,
        };
        let clients = [
            run::start(over_http.task(bench, case_folder)?)?,
            run::start(over_stdio.task(bench, case_folder)?)?,
        ];
        for (entry, (server, _)) in entries.iter().zip(VICTIMS) {
            kill(case_folder, gateway, entry, server)?;
        }
        clients.iter().try_for_each(run::RunningProgram::wait)?;
        for walk in [over_http, over_stdio] {
            let revision = walk.era.revision(true);
            Scenario::of(walk.steps.to_vec()).judge(&walk.transcript(case_folder)?, revision, false)?;
        }
        each_was_started_again_and_the_bystander_not(&gateway.servers()?)
    })
}

/// What the first client does: in each round it calls the one that is killed, and calls it again.
fn first(bench: &CaseContext, case_folder: &CaseFolder) -> Result<Vec<Value>, ChoreFailure> {
    let mut steps = vec![json!({ "do": "list_tools", "expect": ["everything__echo"] })];
    for (server, tool) in VICTIMS {
        let again = call(bench, case_folder, server, tool)?;
        let mut lost = again.clone();
        if server == PublicServer::Everything {
            lost = long_call("everything", ENDLESS_SECONDS);
        }
        lost["expect"] = json!([SERVER_EXITED, "server_exited", server.name()]);
        steps.push(json!({ "do": "meet", "name": meeting("first", server), "expect": [] }));
        let together = json!([lost, long_call(BYSTANDER, CALL_SECONDS)]);
        steps.push(json!({ "do": "together", "steps": together, "expect": [] }));
        steps.push(again);
    }
    Ok(steps)
}

/// What the second client does: in each round it calls all the others.
fn second(bench: &CaseContext, case_folder: &CaseFolder) -> Result<Vec<Value>, ChoreFailure> {
    let mut steps = vec![json!({ "do": "list_tools", "expect": ["everything__echo"] })];
    for (victim, _) in VICTIMS {
        let mut together = vec![long_call(BYSTANDER, CALL_SECONDS)];
        for (server, tool) in VICTIMS.into_iter().filter(|(server, _)| *server != victim) {
            together.push(call(bench, case_folder, server, tool)?);
        }
        steps.push(json!({ "do": "meet", "name": meeting("second", victim), "expect": [] }));
        steps.push(json!({ "do": "together", "steps": together, "expect": [] }));
    }
    Ok(steps)
}

fn meeting(client: &str, victim: PublicServer) -> String {
    format!("{client}-{}", victim.name())
}

/// A call as the scenario of its server has it.
fn call(
    bench: &CaseContext,
    case_folder: &CaseFolder,
    server: PublicServer,
    tool: &str,
) -> Result<Value, ChoreFailure> {
    let scenario = Scenario::read(bench, case_folder, server)?.named_by(server.name());
    let tool = format!("{}__{tool}", server.name());
    let mut step = scenario.call_of(&tool).cloned();
    if server == PublicServer::Memory
        && let Some(step) = &mut step
    {
        // Nobody has told it anything.
        step["expect"] = json!(["entities"]);
    }
    step.ok_or_else(|| ChoreFailure::new(format!("no scenario calls {tool}")))
}

fn long_call(server: &str, seconds: u32) -> Value {
    json!({
        "do": "call",
        "tool": format!("{server}__trigger-long-running-operation"),
        "arguments": { "duration": seconds, "steps": seconds * 5 },
        "progress": true,
        "expect": ["Long running operation completed"],
    })
}

/// One round: stops a server, lets both clients call, and kills it.
fn kill(
    case_folder: &CaseFolder,
    gateway: &Gateway,
    entry: &GatewayEntry,
    server: PublicServer,
) -> Result<(), ChoreFailure> {
    let at =
        |client: &str, sign: &str| case_folder.meeting().join(format!("{}.{sign}", meeting(client, server)));
    let have_met = || ["first", "second"].iter().all(|client| at(client, "here").exists());
    if !clock::wait_until(LIMIT, have_met) {
        return Err(ChoreFailure::new(format!("not both clients came to the round of {}", server.name())));
    }
    let victim = process(gateway, entry)?;
    if server != PublicServer::Everything {
        run::pause(victim.pid, &case_folder.work());
        if !clock::wait_until(LIMIT, || leftovers::is_stopped(victim.pid)) {
            return Err(ChoreFailure::new(format!("{} does not stop", commands(&[victim]))));
        }
    }
    for client in ["first", "second"] {
        let sign = at(client, "go");
        fs::write(&sign, "").map_err(|error| ChoreFailure::io(sign.display(), &error))?;
    }
    let in_flight = |name: &str, least: u64| {
        gateway.servers().is_ok_and(|servers| {
            let found = servers.iter().find(|server| server["name"] == name);
            found.is_some_and(|server| server["inFlight"].as_u64() >= Some(least))
        })
    };
    if !clock::wait_until(LIMIT, || in_flight(&entry.name, 1) && in_flight(BYSTANDER, 2)) {
        return Err(ChoreFailure::new(format!(
            "no call of {} was in flight: {:#?}",
            entry.name,
            gateway.servers()?
        )));
    }
    run::kill([victim.pid.to_string()], &case_folder.work());
    Ok(())
}

/// The process of a server, below a lifeline of our own gateway.
fn process(gateway: &Gateway, entry: &GatewayEntry) -> Result<MarkedProcess, ChoreFailure> {
    let words: Vec<_> = entry.command.iter().map(|word| word.to_string_lossy()).collect();
    let command = words.join(" ");
    let lifelines = leftovers::lifelines(gateway.pid());
    let below: Vec<_> = lifelines.iter().flat_map(|lifeline| leftovers::descendants(lifeline.pid)).collect();
    let found: Vec<_> = below.iter().filter(|process| process.command.ends_with(&command)).cloned().collect();
    // What holds a server together may be called after it; the server itself has no such process below it.
    let is_above = |process: &MarkedProcess| {
        leftovers::descendants(process.pid)
            .iter()
            .any(|other| found.iter().any(|found| found.pid == other.pid))
    };
    let lowest: Vec<_> = found.iter().filter(|process| !is_above(process)).collect();
    match lowest.as_slice() {
        [one] => Ok((*one).clone()),
        _ => Err(ChoreFailure::new(format!(
            "one process of {} was expected below the gateway's lifelines: {}",
            entry.name,
            commands(&below)
        ))),
    }
}

fn each_was_started_again_and_the_bystander_not(servers: &[Value]) -> Result<(), ChoreFailure> {
    let as_expected = |server: &&Value| {
        let restarts = u64::from(server["name"] != BYSTANDER);
        server["restarts"] == restarts && server["starts"] == restarts + 1
    };
    if servers.len() == VICTIMS.len() + 1 && servers.iter().filter(as_expected).count() == servers.len() {
        return Ok(());
    }
    Err(ChoreFailure::new(format!("each server but the bystander was to be started twice: {servers:#?}")))
}
