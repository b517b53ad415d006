//! One round: jobs of slow calls begin, somebody is ended, and the jobs are judged.
//!
//! # Invariants
//!
//! - What is demanded follows from the plan alone, and not from what happened.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;

use rustix::process::{Pid, Signal, getpgid, getpgrp, kill_process_group};
use serde_json::{Value, json};
use unhang_demo_servers::{
    bounded_waits,
    processes::{self, WatchedProcess},
};

use super::round_plan::{AnswerMoment, RoundEnding, RoundPlace, RoundVictim};
use super::stage::{PATIENCE, RoundStage, told};
use crate::corpus::client::CorpusClient;
use crate::load::gateway::web::{self, LoadConnection};

/// How the jobs of a round ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RoundEnds {
    /// By status.
    pub(super) statuses: BTreeMap<String, u64>,
    /// By status and reason, of those that did not complete.
    pub(super) reasons: BTreeMap<String, u64>,
}

/// What a round must not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RoundFlaw {
    RanTwice,
    LeftBehind,
    Other,
}

/// Why a round is no good.
pub(super) type RoundFault = (RoundFlaw, String);

fn other(what: String) -> RoundFault {
    (RoundFlaw::Other, what)
}

/// A client, and who stands between it and the server.
struct RoundParties {
    client: CorpusClient,
    /// The guard or the gateway.
    owner: WatchedProcess,
    /// The connections of a client over HTTP, and their session.
    connections: Vec<LoadConnection>,
}

/// Plays a round on its stage, and judges it.
pub(super) fn play(stage: &RoundStage<'_>) -> Result<RoundEnds, RoundFault> {
    let plan = stage.plan;
    let mut parties = meet(stage).map_err(other)?;
    let jobs = begin(stage, &mut parties).map_err(other)?;
    bounded_waits::pause(plan.delay);
    end_victim(stage, &mut parties).map_err(other)?;
    let ended = jobs.iter().map(|job| ended(stage, job)).collect::<Result<Vec<_>, _>>().map_err(other)?;
    leave(stage, parties).map_err(other)?;
    let ends = judge(stage, &jobs, &ended)?;
    next_session(stage, &jobs, &ended).map_err(other)?;
    let mut left = Vec::new();
    let nothing_left = stage.wait_for("end of all processes", || {
        let process = |process: &WatchedProcess| format!("{} {}", process.state(), process.command_line());
        left = stage.processes().iter().map(process).collect();
        left.is_empty().then_some(())
    });
    if let Err(what) = nothing_left {
        return Err((RoundFlaw::LeftBehind, format!("{what}: {}", left.join("; "))));
    }
    let files = stage.files_left();
    if files.is_empty() {
        Ok(ends)
    } else {
        Err((RoundFlaw::LeftBehind, format!("files: {}", files.join(", "))))
    }
}

/// Starts guard or gateway, and shakes hands.
fn meet(stage: &RoundStage<'_>) -> Result<RoundParties, String> {
    let place = stage.plan.place;
    let mut client = stage.client(place, "stderr")?;
    let mut connections = Vec::new();
    if place == RoundPlace::Http {
        let address = stage.wait_for("address of the gateway", || {
            let said = fs::read_to_string(stage.room.join("stderr")).ok()?;
            let (_, rest) = said.split_once("MCP is at http://")?;
            rest.split_once("/mcp")?.0.parse::<SocketAddr>().ok()
        })?;
        for _ in &stage.plan.calls {
            connections.push(LoadConnection::open(address).map_err(|error| error.to_string())?);
        }
    } else {
        client.shake_hands().map_err(told)?;
    }
    let owner = processes::below(client.pid()).into_iter().next().ok_or("the guard or gateway has gone")?;
    Ok(RoundParties { client, owner, connections })
}

/// Makes the calls, and returns the ids of their jobs.
fn begin(stage: &RoundStage<'_>, parties: &mut RoundParties) -> Result<Vec<String>, String> {
    let tool = if stage.plan.place == RoundPlace::Guard { "slow" } else { "srv__slow" };
    let calls = (0..).zip(&stage.plan.calls).map(|(number, call): (usize, _)| {
        let seconds = f64::from(u32::try_from(call.milliseconds).unwrap_or_default()) / 1e3;
        let arguments = json!({"seconds": seconds, "until": "go", "size": call.size, "label": label(number), "progress": true});
        json!({"name": tool, "arguments": arguments})
    });
    let results = if stage.plan.place == RoundPlace::Http {
        over_http(parties, &calls.collect::<Vec<_>>()).map_err(|error| error.to_string())?
    } else {
        let client = &mut parties.client;
        let mut ids = Vec::new();
        for mut call in calls {
            call["_meta"] = json!({"progressToken": call["arguments"]["label"]});
            ids.push(client.request("tools/call", &call).map_err(told)?);
        }
        ids.into_iter().map(|id| client.result(id).map_err(told)).collect::<Result<_, _>>()?
    };
    let id_of = |result: &Value| {
        let id = result["structuredContent"]["job_id"].as_str().map(str::to_owned);
        id.ok_or_else(|| format!("a call became no job: {result:.500}"))
    };
    results.iter().map(id_of).collect()
}

fn label(number: usize) -> String {
    format!("call-{number}")
}

/// Makes each call on a connection of its own.
fn over_http(parties: &mut RoundParties, calls: &[Value]) -> std::io::Result<Vec<Value>> {
    let session = match parties.connections.first_mut() {
        Some(first) => web::begin(first)?,
        None => None,
    };
    for ((number, call), connection) in (1..).zip(calls).zip(&mut parties.connections) {
        let request = json!({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call});
        connection.post(session.as_deref(), &request.to_string())?;
    }
    parties.connections.iter_mut().map(|connection| Ok(result_in(&connection.answer()?.body))).collect()
}

/// The result in an answer, which is whole or an event.
fn result_in(body: &[u8]) -> Value {
    let text = String::from_utf8_lossy(body);
    let lines = text.lines().map(|line| line.strip_prefix("data:").unwrap_or(line));
    let mut messages = lines.filter_map(|line| serde_json::from_str::<Value>(line.trim()).ok());
    messages
        .find_map(|mut message| Some(message["result"].take()).filter(Value::is_object))
        .unwrap_or_default()
}

/// Ends the victim, and lets the calls go on before or after that.
fn end_victim(stage: &RoundStage<'_>, parties: &mut RoundParties) -> Result<(), String> {
    let plan = stage.plan;
    if let AnswerMoment::Before(lead) = plan.answers
        && plan.victim != RoundVictim::CallHolder
    {
        stage.let_answer()?;
        bounded_waits::pause(lead);
    }
    let lifeline = stage.named("mcp-lifeline")?;
    let is_of_owner = matches!(plan.victim, RoundVictim::CallHolder | RoundVictim::Lifeline);
    if is_of_owner && plan.is_owner_killed_first {
        parties.owner.kill();
    }
    match plan.victim {
        RoundVictim::Guard | RoundVictim::Gateway | RoundVictim::HttpGateway => {
            if plan.ending == RoundEnding::Closed {
                parties.client.close();
            } else {
                end(&parties.owner, plan.ending);
            }
        }
        RoundVictim::GuardClient | RoundVictim::GatewayClient => {
            let client = WatchedProcess::open(parties.client.pid(), &[]).ok_or("the client has gone")?;
            end(&client, plan.ending);
        }
        RoundVictim::HttpClient => parties.connections.clear(),
        RoundVictim::CallHolder => {
            let holder = stage.named("mcp-call-holder")?;
            bounded_waits::pause(plan.delay / 4);
            if let AnswerMoment::Before(lead) = plan.answers {
                stage.let_answer()?;
                bounded_waits::pause(lead);
            }
            end(&holder, plan.ending);
        }
        RoundVictim::Lifeline => {
            bounded_waits::pause(plan.delay / 4);
            end(&lifeline, plan.ending);
        }
    }
    if let AnswerMoment::After(pause) = plan.answers {
        bounded_waits::pause(pause);
        stage.let_answer()?;
    }
    Ok(())
}

/// Ends a process in this way.
fn end(victim: &WatchedProcess, ending: RoundEnding) {
    match ending {
        RoundEnding::Killed | RoundEnding::Closed => victim.kill(),
        RoundEnding::Terminated => victim.signal(Signal::TERM),
        RoundEnding::HungUp => victim.signal(Signal::HUP),
        RoundEnding::GroupKilled => {
            let pid = i32::try_from(victim.pid()).ok().and_then(Pid::from_raw);
            // Never that of this process, which a victim that has gone would not have either.
            let group = pid.and_then(|pid| getpgid(Some(pid)).ok()).filter(|group| *group != getpgrp());
            let _gone_already = group.map(|group| kill_process_group(group, Signal::KILL));
        }
        RoundEnding::TreeKilledDownwards => {
            let tree = processes::below(victim.pid());
            victim.kill();
            tree.iter().for_each(WatchedProcess::kill);
        }
        RoundEnding::TreeKilledUpwards => {
            processes::below(victim.pid()).iter().rev().for_each(WatchedProcess::kill);
            victim.kill();
        }
    }
}

/// Waits until a job has ended, and returns what `unhang job show` prints of it.
fn ended(stage: &RoundStage<'_>, job: &str) -> Result<Value, String> {
    let (mut shown, mut trouble) = (Value::Null, None);
    let ended = stage.wait_for(&format!("end of job {job}"), || {
        match stage.unhang_job(&["show", job]) {
            Ok(value) => shown = value,
            Err(error) => trouble = Some(error),
        }
        (trouble.is_some()
            || !matches!(shown["status"].as_str(), Some("running" | "queued" | "input_required")))
        .then_some(())
    });
    match (ended, trouble) {
        (_, Some(trouble)) => Err(trouble),
        (Err(what), None) => Err(format!("{what}: {shown}")),
        (Ok(()), None) => Ok(shown),
    }
}

/// Lets client and gateway end, where they still live.
fn leave(stage: &RoundStage<'_>, parties: RoundParties) -> Result<(), String> {
    let RoundParties { mut client, owner, connections } = parties;
    drop(connections);
    client.close();
    if stage.plan.place == RoundPlace::Http {
        owner.signal(Signal::TERM);
    }
    if !owner.wait(PATIENCE).map_err(|error| error.to_string())? {
        return Err(format!("guard or gateway has not ended within {} s", PATIENCE.as_secs()));
    }
    Ok(())
}

/// Compares the jobs with what they have to be.
fn judge(stage: &RoundStage<'_>, jobs: &[String], ended: &[Value]) -> Result<RoundEnds, RoundFault> {
    let mut ends = RoundEnds::default();
    for ((number, call), (job, shown)) in (0..).zip(&stage.plan.calls).zip(jobs.iter().zip(ended)) {
        let runs = stage.runs(&label(number));
        if runs != 1 {
            let flaw = if runs > 1 { RoundFlaw::RanTwice } else { RoundFlaw::Other };
            return Err((flaw, format!("the tool of job {job} ran {runs} times")));
        }
        let status = shown["status"].as_str().unwrap_or_default().to_owned();
        let reason = shown["reason"].as_str();
        match (&*status, reason) {
            ("completed", _) => {
                let result = stage.unhang_job(&["result", job]).map_err(other)?.to_string();
                if !result.contains(&text(call.size)) {
                    return Err(other(format!("the result of job {job} is not whole: {result:.300}")));
                }
            }
            ("failed" | "lost", Some(reason)) if !stage.plan.has_to_complete() => {
                *ends.reasons.entry(format!("{status}, {reason}")).or_default() += 1;
            }
            _ => return Err(other(format!("job {job} is not completed: {shown}"))),
        }
        *ends.statuses.entry(status).or_default() += 1;
    }
    Ok(ends)
}

/// The text of an answer of this size, as the server makes it.
fn text(size: usize) -> String {
    let mut text: String = (0..size).step_by(16).map(|position| format!("{position:015} ")).collect();
    text.truncate(size);
    text
}

/// Asks a new guard or gateway about the jobs, as the agent does in its next session.
fn next_session(stage: &RoundStage<'_>, jobs: &[String], ended: &[Value]) -> Result<(), String> {
    let (place, tool) = match stage.plan.place {
        RoundPlace::Guard => (RoundPlace::Guard, "unhang_get_job_status"),
        RoundPlace::Gateway | RoundPlace::Http => (RoundPlace::Gateway, "get_job_status"),
    };
    let mut next = stage.client(place, "next-stderr")?;
    next.shake_hands().map_err(told)?;
    for (job, shown) in jobs.iter().zip(ended) {
        let id = next.call(tool, &json!({"job_id": job})).map_err(told)?;
        let result = next.result(id).map_err(told)?;
        // A caller over HTTP is another one than the owner of the process, who sees the jobs of nobody else.
        let is_seen = result["structuredContent"]["status"] == shown["status"];
        if stage.plan.place != RoundPlace::Http && !is_seen {
            return Err(format!("the next session sees another job {job}: {result:.500}"));
        }
    }
    next.close();
    next.exit().map(drop).map_err(told)
}
