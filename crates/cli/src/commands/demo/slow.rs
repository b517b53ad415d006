//! The act of slow calls: a tool that works for longer than its client waits. A client that is killed in the middle of it, and two that know
//! tasks, have the result all the same.
//!
//! A second stands for thirty. Invariant: a client that has to ask again does so as in real use, and not before the time that the server
//! told it.

use std::{fs, io, time::Duration};

use serde_json::{Value, json};
use unhang::{process::deadline::Deadline, units::in_words};

use super::{
    HalfResult,
    durable::asked,
    home::Home,
    peer::{DemoPeer, PeerOutcome},
    promises::{DemoRoute, step_deadline},
};

/// The time that a client waits for an answer; stands for 60 s.
const CLOCK: Duration = Duration::from_secs(2);
/// The seconds that the tool works; they stand for 90 s.
const SECONDS: u64 = 3;

/// The client gives its name, so that its clock is known.
const CONFIGURATION: &str = r#"
[servers.srv]
command = "/proc/self/exe"
args = ["zoo", "slow-answers"]
prefix = ""

[clients.unhang-demo]
call-clock = "2s"
"#;

/// The revision of clients that begin without a handshake.
const MODERN: &str = "2026-07-28";

pub(super) async fn slow(way: DemoRoute) -> io::Result<HalfResult> {
    match way {
        DemoRoute::Bare => given_up().await,
        DemoRoute::Unhang => delivered().await,
    }
}

fn arguments() -> Value {
    json!({ "seconds": SECONDS })
}

/// Shows the call without unhang: the client gives up, and nobody gets the tool's result.
async fn given_up() -> io::Result<HalfResult> {
    let mut peer = DemoPeer::start(&["zoo", "slow-answers"])?;
    peer.shake_hands(step_deadline()).await?;
    let call = json!({ "name": "slow", "arguments": arguments() });
    let id = peer.request("tools/call", call, step_deadline()).await?;
    let seen = match peer.answer(id, Deadline::after(CLOCK)).await {
        PeerOutcome::Answer(..) => HalfResult::held("answered in time"),
        PeerOutcome::Silence => {
            HalfResult::broken(format!("given up after {}: its work is lost", in_words(CLOCK)))
        }
        PeerOutcome::Ended => HalfResult::broken("the connection ended"),
    };
    peer.end().await;
    Ok(seen)
}

async fn delivered() -> io::Result<HalfResult> {
    let start = tokio::time::Instant::now();
    let homes = ["words", "core", "extension"].map(|which| Home::new(&format!("slow-{which}")));
    let [words, core, extension] = homes;
    let (words, core, extension) = (words?, core?, extension?);
    let (plain, asked_for, declared) =
        tokio::join!(in_a_new_session(&words), as_asked(&core), as_declared(&extension));
    let all = [
        ("the next session", plain?),
        ("one with tasks of 2025-11-25", asked_for?),
        ("one of 2026-07-28", declared?),
    ];
    let without: Vec<&str> = all.iter().filter(|(_, has)| !has).map(|(who, _)| *who).collect();
    Ok(match without.as_slice() {
        [] => HalfResult::held(format!(
            "{}a new session has the result after {}, and so do two clients that know tasks",
            if OUTLIVES { "kill -9 of client and unhang; " } else { "the client leaves; " },
            in_words(start.elapsed())
        )),
        without => HalfResult::broken(format!("no result for {}", without.join(" and "))),
    })
}

/// Whether the job of a call outlives unhang. Elsewhere the first session stays until the job has ended.
const OUTLIVES: bool = cfg!(target_os = "linux");

/// Calls the tool with these further members, and returns the answer. Fails if none comes before the client's clock is over.
async fn in_time(peer: &mut DemoPeer, mut call: Value, more: &Value) -> io::Result<Value> {
    call["name"] = "slow".into();
    call["arguments"] = arguments();
    for (name, value) in more.as_object().into_iter().flatten() {
        call[name] = value.clone();
    }
    let id = peer.request("tools/call", call, step_deadline()).await?;
    match peer.answer(id, Deadline::after(CLOCK)).await {
        PeerOutcome::Answer(mut answer, _) => Ok(answer["result"].take()),
        PeerOutcome::Silence => Err(io::Error::other("the client has given up")),
        PeerOutcome::Ended => Err(io::Error::other("the connection ended")),
    }
}

fn connect(home: &Home) -> io::Result<DemoPeer> {
    fs::write(home.path().join("unhang.toml"), CONFIGURATION)?;
    DemoPeer::start_in(home.path(), &["serve", "--own", "--config", "unhang.toml"])
}

/// Returns whether this is the tool's answer.
fn is_whole(content: &Value) -> bool {
    content.as_array().is_some_and(|blocks| {
        blocks
            .iter()
            .any(|block| block["text"].as_str().is_some_and(|text| text.starts_with("000000000000000 ")))
    })
}

/// The command of a gateway whose client, `tee`, can be killed. A host of the zoo starts both, because the demonstration's own lifeline would
/// end them together with the job.
const WITH_CLIENT: [&str; 11] = [
    "zoo",
    "hosts",
    "--",
    "tee",
    "wire",
    "wire",
    "--",
    "/proc/self/exe",
    "serve",
    "--own",
    "--config=unhang.toml",
];

/// Plays a client without tasks: the answer tells its model what to do. Client and gateway are killed once it has the id of the job, and
/// the next session asks for the result.
async fn in_a_new_session(home: &Home) -> io::Result<bool> {
    fs::write(home.path().join("unhang.toml"), CONFIGURATION)?;
    let mut first = DemoPeer::start_in(home.path(), &WITH_CLIENT)?;
    first.shake_hands(step_deadline()).await?;
    let told = in_time(&mut first, json!({}), &json!({})).await?;
    if OUTLIVES {
        if !home.kill(&["serve"]) {
            return Err(io::Error::other("unhang ended by itself"));
        }
        // It may have ended with unhang.
        home.kill(&["zoo", "tee"]);
    }
    let mut next = connect(home)?;
    next.shake_hands(step_deadline()).await?;
    let has = has_result(&mut next, &told["structuredContent"]["job_id"]).await?;
    next.end().await;
    first.end().await;
    Ok(has)
}

/// Asks about the job until it has ended, and returns whether its result is the tool's answer.
async fn has_result(peer: &mut DemoPeer, job: &Value) -> io::Result<bool> {
    let job = json!({ "job_id": job, "wait_seconds": 2 });
    // The tool answers before its own call is over, so an agent asks again while the job runs.
    let limit = Deadline::after(Duration::from_secs(3 * SECONDS));
    let mut status = asked(peer, "get_job_status", job.clone()).await?;
    while status["status"] == "running" && !limit.is_past() {
        status = asked(peer, "get_job_status", job.clone()).await?;
    }
    let results = json!({ "name": "get_job_results", "arguments": { "job_id": status["job_id"] } });
    let id = peer.request("tools/call", results, step_deadline()).await?;
    Ok(match peer.answer(id, step_deadline()).await {
        PeerOutcome::Answer(answer, _) => {
            status["status"] == "completed" && is_whole(&answer["result"]["content"])
        }
        _ => false,
    })
}

/// Plays a client of 2025-11-25 that asks for a task.
async fn as_asked(home: &Home) -> io::Result<bool> {
    let mut peer = connect(home)?;
    peer.shake_hands(step_deadline()).await?;
    let told = in_time(&mut peer, json!({}), &json!({ "task": {} })).await?;
    let (task, pause) = (&told["task"]["taskId"], &told["task"]["pollInterval"]);
    let ended = once_it_has_ended(&mut peer, &json!({}), task, pause).await?;
    let id = peer.request("tasks/result", json!({ "taskId": ended["taskId"] }), step_deadline()).await?;
    let has = match peer.answer(id, step_deadline()).await {
        PeerOutcome::Answer(answer, _) => is_whole(&answer["result"]["content"]),
        _ => false,
    };
    peer.end().await;
    Ok(has)
}

/// Plays a client of 2026-07-28 that has declared that it copes with tasks.
async fn as_declared(home: &Home) -> io::Result<bool> {
    let meta = json!({ "_meta": {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": { "name": "unhang-demo", "version": env!("CARGO_PKG_VERSION") },
        "io.modelcontextprotocol/clientCapabilities": { "extensions": { "io.modelcontextprotocol/tasks": {} } },
    } });
    let mut peer = connect(home)?;
    let told = in_time(&mut peer, meta.clone(), &json!({})).await?;
    let ended = once_it_has_ended(&mut peer, &meta, &told["taskId"], &told["pollIntervalMs"]).await?;
    peer.end().await;
    Ok(is_whole(&ended["result"]["content"]))
}

/// Polls a task as often as its server wants, and returns the answer once the task has ended. Returns `null` if there is none in time.
async fn once_it_has_ended(
    peer: &mut DemoPeer,
    meta: &Value,
    task: &Value,
    pause: &Value,
) -> io::Result<Value> {
    let limit = Deadline::after(Duration::from_secs(3 * SECONDS));
    while !limit.is_past() {
        Deadline::after(Duration::from_millis(pause.as_u64().unwrap_or(1000))).sleep().await;
        let mut about = meta.clone();
        about["taskId"] = task.clone();
        let id = peer.request("tasks/get", about, step_deadline()).await?;
        match peer.answer(id, step_deadline()).await {
            PeerOutcome::Answer(answer, _) if answer["result"]["status"] == "working" => {}
            PeerOutcome::Answer(mut answer, _) => return Ok(answer["result"].take()),
            _ => break,
        }
    }
    Ok(Value::Null)
}
