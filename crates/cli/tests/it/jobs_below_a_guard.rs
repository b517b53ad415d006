//! Promise 7 below a guard: a server that submits jobs ends with its guard, and its jobs go on.

use std::fs;

use rustix::{
    net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType, connect, recv, send, socket},
    process::Signal,
};
use serde_json::{Value, json};

use crate::{
    harness::{Client, PATIENCE, is_alive, signal, wait_until},
    jobs::{Jobs, UNTIL_GO, called},
    processes::{all_with, children, entry, lifelines},
};

/// Starts a server with a tool that waits for [`Jobs::go`], behind so many guards, and calls the tool: the client and the id of the job.
fn behind_guards(jobs: &Jobs, count: usize) -> (Client, String) {
    let command = json!(["sh", "-c", format!("cd \"$START\"; {UNTIL_GO} echo went")]);
    let tool = format!(
        "[tools.slow]\ncommand = {command}\nmode = \"job\"\nenv = {{ START = {:?} }}\n",
        jobs.sandbox.path()
    );
    let file = jobs.sandbox.path().join("unhang.toml");
    fs::write(&file, tool).expect("a file");
    let guard = [env!("CARGO_BIN_EXE_unhang"), "wrap", "--"];
    let file = file.to_str().expect("text");
    let server = [env!("CARGO_BIN_EXE_unhang"), "serve", "--config", file];
    let words: Vec<&str> = std::iter::repeat_n(guard, count).flatten().chain(server).collect();
    let mut client = Client::start(jobs.command(words.get(1..).expect("a guard")));
    client.initialize();
    let started = called(&mut client, "slow", json!({}))["structuredContent"].clone();
    let id = started["job_id"].as_str().unwrap_or_else(|| panic!("{started}")).to_owned();
    (client, id)
}

/// Lets a job go on that has lost its guard, and demands that it runs to its end.
#[track_caller]
fn goes_on(jobs: &Jobs, id: &str, (shim, work): (i32, i32)) {
    assert!(is_alive(shim) && is_alive(work), "the job goes on");
    jobs.go();
    assert_eq!(jobs.end(id)["outcome"], "completed");
    assert_eq!(jobs.log(id, "stdout.log"), "went\n");
    assert_eq!(jobs.file(id, "run.json").unwrap_or_default()["lifeline"], Value::Null);
    jobs.sandbox.assert_nothing_left_within(PATIENCE);
}

#[test]
fn a_job_of_a_server_outlives_its_guard() {
    let ends = [(1, Some(Signal::KILL)), (1, Some(Signal::TERM)), (1, None), (2, Some(Signal::KILL))];
    for (guards, end) in ends {
        let jobs = Jobs::new();
        let (mut client, id) = behind_guards(&jobs, guards);
        let processes = jobs.processes(&id);
        let lifeline = lifelines(client.pid());
        match end {
            Some(which) => client.signal(which),
            None => client.close_stdin(),
        }
        client.exit_code();
        assert!(!client.stderr().contains("behind"), "{}", client.stderr());
        wait_until("the end of the server", PATIENCE, || lifeline.iter().all(|pid| !is_alive(*pid)));
        goes_on(&jobs, &id, processes);
    }
}

#[test]
fn a_job_outlives_a_killed_lifeline_which_leaves_nothing_else() {
    let jobs = Jobs::new();
    let (mut client, id) = behind_guards(&jobs, 1);
    let processes = jobs.processes(&id);
    let [lifeline] = lifelines(client.pid())[..] else { panic!("one server has one lifeline") };
    let [server] = &children(lifeline)[..] else { panic!("a lifeline has one child") };
    let server = server.pid;
    signal(lifeline, Signal::KILL);
    wait_until("the end of the server", PATIENCE, || !is_alive(server));
    client.close_stdin();
    client.exit_code();
    goes_on(&jobs, &id, processes);
}

/// Without an answer of the watcher, the job runs all the same. It then ends with the guard, and says so: the reader would look for whoever
/// had killed the supervisor.
#[test]
fn a_watcher_that_stands_still_keeps_no_job_from_its_start() {
    let jobs = Jobs::new();
    let (mut client, first) = behind_guards(&jobs, 1);
    jobs.processes(&first);
    let [lifeline] = lifelines(client.pid())[..] else { panic!("one server has one lifeline") };
    let watcher = entry(lifeline).expect("it runs").parent;
    signal(watcher, Signal::STOP);
    let started = called(&mut client, "slow", json!({}))["structuredContent"].clone();
    let second = started["job_id"].as_str().expect("an id").to_owned();
    let (shim, _) = jobs.processes(&second);
    assert_eq!(jobs.file(&second, "run.json").unwrap_or_default()["lifeline"]["pid"], json!(lifeline));
    client.close_stdin();
    client.exit_code();
    wait_until("the end of the second job", PATIENCE, || !is_alive(shim));
    signal(watcher, Signal::CONT);
    jobs.go();
    assert_eq!(jobs.end(&first)["outcome"], "completed");
    let told = jobs.demand(1, &["job", "wait", &second]).0;
    assert!(told.contains("\"lost\"") && told.contains("\"shim_killed\""), "{told}");
    assert!(told.contains("the command that had started its server ended everything"), "{told}");
    jobs.sandbox.assert_nothing_left_within(PATIENCE);
}

/// Sends a watcher a request that it refuses, and waits for the answer. The watcher has handled all earlier requests then.
fn heard(watcher: i32) {
    let name = format!("mcp-line-watch-{watcher}-{}", entry(watcher).expect("it runs").start);
    let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a short name");
    connect(&socket, &address).expect("the watcher listens");
    send(&socket, b"no version", SendFlags::NOSIGNAL).expect("it hears");
    let mut answer = [0; 4];
    let (_, length) = recv(&socket, &mut answer, RecvFlags::empty()).expect("it answers");
    assert!(length == 4 && answer != [0; 4], "it refuses: {answer:?}");
}

/// The engine has started the supervisor itself meanwhile. A second one would take the first one's end for the end of the job.
#[test]
fn a_watcher_that_goes_on_starts_nothing_for_an_engine_that_waits_no_more() {
    let jobs = Jobs::new();
    let (mut client, _) = behind_guards(&jobs, 1);
    let [lifeline] = lifelines(client.pid())[..] else { panic!("one server has one lifeline") };
    let watcher = entry(lifeline).expect("it runs").parent;
    signal(watcher, Signal::STOP);
    let started = called(&mut client, "slow", json!({}))["structuredContent"].clone();
    let id = started["job_id"].as_str().expect("an id");
    jobs.processes(id);
    let before = all_with(id);
    signal(watcher, Signal::CONT);
    heard(watcher);
    assert_eq!(all_with(id), before);
    jobs.go();
    assert_eq!(jobs.end(id)["outcome"], "completed");
    client.close_stdin();
    client.exit_code();
    jobs.sandbox.assert_nothing_left_within(PATIENCE);
}
