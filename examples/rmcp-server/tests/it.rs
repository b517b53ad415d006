//! The example as a client sees it, over real pipes and with real processes. The client is that of the official SDK.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, path::Path, time::Duration};

use rmcp::{RoleClient, ServiceExt, model::CallToolRequestParams, service::RunningService};
use rustix::{
    pipe::{PipeFlags, pipe_with},
    process::{Pid, Signal, kill_process},
};
use serde_json::{Value, from_slice, json};
use tokio::{
    net::unix::pipe,
    time::{Instant, sleep},
};
use unhang::process::{
    lock::is_held,
    spawn::{Exit, Launch, Process, Stream, spawn},
};

/// For everything that is waited for; the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// What takes about two seconds to count in a debug build, and how many there are.
const BELOW: u64 = 1_000_000;
const PRIMES: u64 = 78_498;

/// A server and the client that talks to it.
struct Session {
    server: Process,
    client: RunningService<RoleClient, ()>,
}

impl Session {
    async fn start(folder: &Path) -> Session {
        let (input, to_server) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let (from_server, output) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let arguments = [folder.into()];
        let launch = Launch {
            input: Stream::Descriptor(input),
            output: Stream::Descriptor(output),
            ..Launch::new(env!("CARGO_BIN_EXE_rmcp-server-example").as_ref(), &arguments)
        };
        let server = spawn(launch).unwrap();
        let reader = pipe::Receiver::from_owned_fd(from_server).unwrap();
        let writer = pipe::Sender::from_owned_fd(to_server).unwrap();
        Session { server, client: ().serve((reader, writer)).await.unwrap() }
    }

    /// Calls a tool, and returns the structured answer and whether it is an error.
    async fn call(&self, tool: &'static str, arguments: Value) -> (Value, bool) {
        let request = CallToolRequestParams::new(tool).with_arguments(arguments.as_object().unwrap().clone());
        let result = self.client.call_tool(request).await.unwrap();
        let is_error = result.is_error == Some(true);
        (result.structured_content.unwrap_or_else(|| json!(result.content)), is_error)
    }

    /// The same where no error is expected.
    async fn told(&self, tool: &'static str, arguments: Value) -> Value {
        let (answer, is_error) = self.call(tool, arguments).await;
        assert!(!is_error, "{tool}: {answer}");
        answer
    }

    /// How the server ended.
    async fn ended(&mut self) -> Exit {
        until("the server ends", || self.server.try_reap()).await
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.server.signal(Signal::KILL);
    }
}

/// A process that stands still for as long as this is there.
struct Stopped(Pid);

impl Stopped {
    fn new(pid: Pid) -> Stopped {
        kill_process(pid, Signal::STOP).unwrap();
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // It has not gone: it stands still.
        let _ = kill_process(self.0, Signal::CONT);
    }
}

async fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(begin.elapsed() < PATIENCE, "in vain: {what}");
        // Between two looks: files and other processes cannot be waited on.
        sleep(Duration::from_millis(5)).await;
    }
}

/// The process of a job's work, once it runs.
fn work(job: &Path) -> Option<Pid> {
    let run: Value = from_slice(&fs::read(job.join("run.json")).ok()?).ok()?;
    Pid::from_raw(i32::try_from(run["work"]["pid"].as_i64()?).ok()?)
}

#[tokio::test]
async fn promise_7_the_result_is_there_although_the_server_was_killed_while_the_job_ran() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = Session::start(folder.path()).await;
    let started = session.told("count_primes", json!({ "below": BELOW })).await;
    let id = started["job_id"].as_str().unwrap();
    let job = folder.path().join("jobs").join(id);
    let standing = Stopped::new(until("the work runs", || work(&job)).await);
    // That it runs may be known a quarter of a second later.
    let running = session.told("get_job_status", json!({ "job_id": id })).await;
    assert!(["starting", "running"].contains(&running["status"].as_str().unwrap()), "{running}");
    session.server.signal(Signal::KILL);
    assert_eq!(session.ended().await, Exit::Signal(9));
    assert!(!job.join("exit.json").exists(), "the job outlives the server");
    drop(standing);

    let mut session = Session::start(folder.path()).await;
    let begin = Instant::now();
    loop {
        let status = session.told("get_job_status", json!({ "job_id": id, "wait_seconds": 25 })).await;
        if status["status"] == "completed" {
            break;
        }
        assert!(status["status"] == "running" && begin.elapsed() < PATIENCE, "{status}");
    }
    let results = session.told("get_job_results", json!({ "job_id": id })).await;
    assert_eq!(results["results"], json!({ "below": BELOW, "primes": PRIMES }), "{results}");
    let log = session.told("get_job_logs", json!({ "job_id": id, "stream": "stdout" })).await;
    assert!(log["text"].as_str().unwrap().ends_with("progress: 99%\n"), "{log}");
    session.client.close().await.unwrap();
    assert_eq!(session.ended().await, Exit::Code(0), "it ends with its client");
    until("the job's supervisor ends", || (!is_held(&job.join("lock")).unwrap()).then_some(())).await;
}

#[tokio::test]
async fn the_tools_for_jobs_stand_beside_the_servers_own_and_say_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = Session::start(folder.path()).await;
    let tools = session.client.list_all_tools().await.unwrap();
    let names: Vec<_> = tools.iter().map(|tool| tool.name.as_ref()).collect();
    assert_eq!(names.len(), 10, "{names:?}");
    for name in ["count_primes", "get_job_status", "terminate_job", "list_state"] {
        assert!(names.contains(&name), "{names:?}");
    }
    for (tool, arguments, words) in [
        ("get_job_status", json!({ "job_id": "aaaaaaaaaaaa" }), "there is no job aaaaaaaaaaaa"),
        ("get_job_status", json!({ "id": 1 }), "do not fit"),
    ] {
        let (answer, is_error) = session.call(tool, arguments).await;
        assert!(is_error && answer.to_string().contains(words), "{answer}");
    }
    session.client.close().await.unwrap();
    assert_eq!(session.ended().await, Exit::Code(0));
}

#[test]
fn the_guide_shows_what_the_example_does() {
    let guide = include_str!("../../../docs/guide/jobs-for-servers.md");
    let example: Vec<_> = include_str!("../src/main.rs").lines().map(str::trim_start).collect();
    let blocks: Vec<Vec<_>> = guide
        .split("```rust\n")
        .skip(1)
        .filter_map(|text| Some(text.split_once("```")?.0.lines().map(str::trim_start).collect()))
        .collect();
    assert_eq!(blocks.len(), 3);
    for block in blocks {
        assert!(example.windows(block.len()).any(|lines| lines == block), "{block:#?}");
    }
}
