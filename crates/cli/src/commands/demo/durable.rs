//! The act of promise 7: the server is killed in the middle of the work.
//!
//! Invariant: the end of the job was seen at a moment without a server, and then a new server was asked about it.

use std::{fs, io, time::Duration};

use serde_json::{Value, json};
use unhang::process::deadline::Deadline;

use super::{
    HalfResult,
    home::Home,
    peer::{DemoPeer, PeerOutcome},
    promises::{DemoRoute, step_deadline},
};

/// A tool that works for a while, reports its progress, and leaves a result.
const CONFIGURATION: &str = r#"
[jobs]
memory-limit = 100

[tools.work]
command = ["sh", "-c", """
for part in 25 50 75 100; do sleep 0.4; echo "progress: $part%"; done
echo '{"answer": 42}' > "$UNHANG_JOB_DIR/results.json"
"""]
mode = "job"
results = "results.json"
state = { field = "work" }
"#;

pub(super) async fn durable(way: DemoRoute) -> io::Result<HalfResult> {
    let home = Home::new(if way == DemoRoute::Bare { "bare" } else { "serve" })?;
    match way {
        DemoRoute::Bare => in_the_call(&home).await,
        DemoRoute::Unhang => as_a_job(&home).await,
    }
}

/// Does the work in the call, as a server without jobs does.
async fn in_the_call(home: &Home) -> io::Result<HalfResult> {
    let mut peer = DemoPeer::start_in(home.path(), &["zoo", "well-behaved"])?;
    peer.shake_hands(step_deadline()).await?;
    let arguments = json!({"name": "sleep", "arguments": {"ms": 1600}});
    let call = peer.request("tools/call", arguments, step_deadline()).await?;
    Deadline::after(Duration::from_millis(400)).sleep().await;
    home.kill(&["zoo", "well-behaved"]);
    let seen = match peer.answer(call, step_deadline()).await {
        PeerOutcome::Answer(..) => HalfResult::held("answered all the same"),
        PeerOutcome::Silence => HalfResult::broken("the call hangs, and its work is lost"),
        PeerOutcome::Ended => HalfResult::broken("the connection ends, and the work with it"),
    };
    peer.end().await;
    Ok(seen)
}

async fn as_a_job(home: &Home) -> io::Result<HalfResult> {
    fs::write(home.path().join("unhang.toml"), CONFIGURATION)?;
    // A process below the demonstration's lifeline ends with the lifeline's server. So the server has a host, as it would have a client,
    // and the host outlives it.
    let log = home.path().join("wire").to_str().unwrap_or_default().to_owned();
    let mut first = DemoPeer::start_in(
        home.path(),
        &[&["zoo", "hosts", "--", "tee", &log, &log, "--"][..], &served()].concat(),
    )?;
    first.shake_hands(step_deadline()).await?;
    let started = asked(&mut first, "work", json!({})).await?;
    let id = started["job_id"].as_str().ok_or_else(|| io::Error::other("no job was accepted"))?.to_owned();
    let limit = step_deadline();
    let progress = loop {
        let status = asked(&mut first, "get_job_status", json!({"job_id": id})).await?;
        match status["progress"].as_f64() {
            Some(progress) => break progress,
            None if limit.is_past() => return Err(io::Error::other(format!("job {id} makes no progress"))),
            None => Deadline::after(Duration::from_millis(20)).sleep().await,
        }
    };
    home.kill(&["serve"]);
    let has_ended = home.path().join("jobs").join(&id).join("exit.json");
    let limit = step_deadline();
    while !has_ended.exists() && !limit.is_past() {
        Deadline::after(Duration::from_millis(20)).sleep().await;
    }
    let alone = has_ended.exists();

    let mut second = DemoPeer::start_in(home.path(), &served()[1..])?;
    second.shake_hands(step_deadline()).await?;
    let status = asked(&mut second, "get_job_status", json!({"job_id": id, "wait_seconds": 1})).await?;
    let state = asked(&mut second, "get_state", json!({"field": "work"})).await?;
    second.end().await;
    first.end().await;
    let word = status["status"].as_str().unwrap_or("?");
    let is_there = state["value"] == json!({"answer": 42});
    let held = alone && word == "completed" && is_there;
    Ok(HalfResult {
        text: format!(
            "killed at {:.0} %; the job {} without it; asked again, it is {word}, its result {} the state",
            progress * 100.0,
            if alone { "ends" } else { "does not end" },
            if is_there { "in" } else { "not in" },
        ),
        held,
    })
}

/// Returns the command line of unhang's own binary with the configuration in the home, which is the current folder of both servers.
fn served() -> [&'static str; 4] {
    ["/proc/self/exe", "serve", "--config", "unhang.toml"]
}

/// Calls a tool and returns the fields of its answer.
pub(super) async fn asked(peer: &mut DemoPeer, tool: &str, arguments: Value) -> io::Result<Value> {
    let call = json!({"name": tool, "arguments": arguments});
    let id = peer.request("tools/call", call, step_deadline()).await?;
    match peer.answer(id, step_deadline()).await {
        PeerOutcome::Answer(mut answer, _) => Ok(answer["result"]["structuredContent"].take()),
        PeerOutcome::Silence => Err(io::Error::other(format!("{tool} was not answered"))),
        PeerOutcome::Ended => Err(io::Error::other(format!("the server ended in {tool}"))),
    }
}
