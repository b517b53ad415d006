//! Tests that the contract names and no other file has: how commands and clients end, and how servers are begun with (C-62 to C-73,
//! L-46, L-49).
//!
//! Invariants: each test is named by the id of what it holds (`docs/reference/contract.md`).

use std::{fs, time::Duration};

use rustix::process::Signal;
use serde_json::{Value, json};
use unhang::client::{Client as Library, RequestOptions, ServerPool};

use crate::{
    client_library::{arguments, echo, faulty_server, spec},
    harness::{Client, PATIENCE, Sandbox, lab_program, run_to_end, signal, timed, wait_until},
    processes::lifeline,
};

#[tokio::test]
async fn c_62_disposing_of_a_client_ends_its_server_and_may_be_done_again() {
    let sandbox = Sandbox::new();
    let client = Library::start(faulty_server(&sandbox, "srv", &["ignores-stdin-close"]));
    assert_eq!(echo(&client, "x").await.expect("an answer"), "x");
    assert!(!sandbox.survivors().is_empty(), "it runs");
    assert!(client.dispose().await, "its end is known");
    sandbox.assert_nothing_left_within(Duration::from_secs(1));
    assert!(client.dispose().await, "there is nothing left to do");
    assert!(echo(&client, "x").await.is_err(), "nobody is there any more");
}

#[tokio::test]
async fn c_65_what_goes_wrong_with_one_server_keeps_no_other_from_its_end() {
    let sandbox = Sandbox::new();
    let pool = ServerPool::new(["stubborn", "good", "dead"].map(|name| {
        let kind = if name == "stubborn" { "ignores-everything" } else { "well-behaved" };
        faulty_server(&sandbox, name, &[kind])
    }));
    pool.register(spec(&sandbox, "missing", "/nowhere/at/all", &[]));
    for name in ["stubborn", "good"] {
        assert_eq!(echo(&pool.client(name).expect("known"), "x").await.expect("an answer"), "x");
    }
    let dead = pool.client("dead").expect("known");
    let died = dead.call_tool("die", arguments(json!({ "code": 3 })), &RequestOptions::default()).await;
    assert!(died.is_err() && echo(&pool.client("missing").expect("known"), "x").await.is_err());
    let disposed = pool.dispose().await;
    assert!(disposed.left.is_empty(), "{:?}", disposed.left);
    assert!(["stubborn", "good"].iter().all(|name| disposed.gone.iter().any(|gone| gone == name)));
    sandbox.assert_nothing_left_within(Duration::from_secs(1));
}

#[test]
fn c_66_a_run_with_servers_connected_does_all_its_work_and_ends() {
    let sandbox = Sandbox::new();
    let servers = [("good", "well-behaved"), ("stubborn", "ignores-stdin-close"), ("loud", "stderr-flood")];
    let file: String = servers
        .iter()
        .map(|(name, faulty_server)| {
            format!(
                "[servers.{name}]\ncommand = {:?}\nargs = [\"zoo\", \"{faulty_server}\"]\n",
                lab_program()
            )
        })
        .collect();
    fs::write(sandbox.path().join("unhang.toml"), file).expect("a file");
    let line = |number: usize| {
        let (server, _) = servers[number % servers.len()];
        format!(
            "{}\n",
            json!({ "server": server, "tool": "echo", "arguments": { "text": number.to_string() } })
        )
    };
    fs::write(sandbox.path().join("in.jsonl"), (0..12).map(line).collect::<String>()).expect("a file");
    let mut command = sandbox.unhang();
    command.args(["batch", "in.jsonl"]);
    let (code, stdout, stderr) = run_to_end(command);
    assert_eq!((code, stdout.lines().count()), (0, 12), "{stderr}");
    for outcome in stdout.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")) {
        let number = outcome["line"].as_u64().expect("a number") - 1;
        assert_eq!(outcome["result"]["content"][0]["text"], number.to_string(), "{outcome}");
    }
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
}

#[test]
fn c_67_a_command_that_is_done_ends_though_its_own_stdin_stays_open() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.unhang();
    command.args(["call", "echo", "text=done", "--", lab_program(), "zoo", "ignores-stdin-close"]);
    let mut client = Client::start(command);
    let answer: Value =
        serde_json::from_str(&client.next_line(PATIENCE).expect("an answer")).expect("it is JSON");
    assert_eq!(answer["content"][0]["text"], "done");
    assert_eq!(client.exit_code(), 0, "{}", client.stderr());
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
}

/// Resident memory of a process now without the pages of files, in bytes. How much of a program's code is resident depends on the machine.
fn own_memory(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it is alive");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

#[test]
fn c_71_memory_is_released_when_the_work_is_done() {
    // The allocator of the GNU C library would keep blocks of this size once it has seen a block of 16 MiB freed.
    const ANSWER: u64 = 10 << 20;
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["giant-answer", &ANSWER.to_string()]);
    client.initialize();
    let before = own_memory(client.pid());
    for number in 1..=3 {
        assert_eq!(client.tool_text("echo", json!({})).len() as u64, ANSWER);
        wait_until(&format!("the memory of giant answer {number} is given back"), PATIENCE, || {
            own_memory(client.pid()) < before + ANSWER / 4
        });
    }
    client.finish();
    sandbox.assert_nothing_left();
}

#[test]
fn c_73_the_end_is_forced_where_the_cleanup_hangs() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.unhang();
    command.args(["-v", "call", "sleep", "ms=3600000", "--", lab_program(), "zoo", "well-behaved"]);
    let mut client = Client::start(command);
    wait_until("the call is on its way", PATIENCE, || client.stderr().contains("to answer `tools/call`"));
    let lifeline = lifeline(&client);
    // Whoever has to end the server does nothing any more.
    signal(lifeline, Signal::STOP);
    client.signal(Signal::TERM);
    let (code, took) = timed(|| client.exit_code());
    signal(lifeline, Signal::CONT);
    assert_eq!(code, 143, "c_39, x_05: the outcome's code: {}", client.stderr());
    assert!(took < Duration::from_secs(10), "c_38, c_59: {took:?}");
    let told = client.stderr_at_the_end();
    assert!(told.contains("DEBUG the end of `unhang-lab` was forced"), "c_45: {told}");
    sandbox.assert_nothing_left();
}

#[test]
fn c_31_a_cleanup_that_goes_wrong_is_told_and_does_not_change_the_outcome() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.unhang();
    command.args(["-v", "batch", "-", "--", lab_program(), "zoo", "ignores-everything"]);
    let mut client = Client::start(command);
    client.send("{\"tool\": \"echo\", \"arguments\": {\"text\": \"x\"}}");
    assert!(client.next_line(PATIENCE).expect("an outcome").contains("\"ok\":true"));
    // Whoever has to end the server does nothing any more, nor tells how it ended.
    signal(lifeline(&client), Signal::STOP);
    client.close_stdin();
    assert_eq!(client.exit_code(), 0, "all was done: {}", client.stderr());
    let told = client.stderr_at_the_end();
    assert!(told.contains("DEBUG `unhang-lab` ended (unknown exit status)"), "{told}");
    sandbox.assert_nothing_left();
}

#[test]
fn c_35_what_each_server_was_asked_for_is_told_at_the_end() {
    let sandbox = Sandbox::new();
    let input = "{\"tool\": \"echo\", \"arguments\": {\"text\": \"x\"}}\n{\"tool\": \"nothing\"}\n{\"uri\": \"x:y\"}\n";
    fs::write(sandbox.path().join("in.jsonl"), input).expect("a file");
    let mut command = sandbox.unhang();
    command.args(["-v", "batch", "in.jsonl", "--", lab_program(), "zoo", "well-behaved"]);
    let (code, _, told) = run_to_end(command);
    assert_eq!(code, 1, "{told}");
    assert!(
        told.contains("`unhang-lab` had to do: tools called 2, resources read 1, prompts got 0"),
        "{told}"
    );
}

#[test]
fn l_46_request_ids_count_up_from_1_and_none_is_used_twice() {
    let sandbox = Sandbox::new();
    let input: String = (0..5).map(|_| "{\"tool\": \"echo\", \"arguments\": {\"text\": \"x\"}}\n").collect();
    fs::write(sandbox.path().join("in.jsonl"), input).expect("a file");
    let mut command = sandbox.unhang();
    command.args(["batch", "in.jsonl", "--", lab_program(), "zoo", "tee", "said", "/dev/null", "--"]);
    command.args([lab_program(), "zoo", "well-behaved"]);
    let (code, _, stderr) = run_to_end(command);
    assert_eq!(code, 0, "{stderr}");
    let said = fs::read_to_string(sandbox.path().join("said")).expect("what the server was told");
    let ids: Vec<i64> = said
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).expect("one message a line")["id"].as_i64())
        .collect();
    assert!(ids.len() >= 6, "a handshake and five calls: {said}");
    assert_eq!(ids, (1..).take(ids.len()).collect::<Vec<_>>(), "l_28: {said}");
}

#[test]
fn l_49_a_start_that_failed_is_tried_again_for_the_next_request() {
    let sandbox = Sandbox::new();
    let script = format!(
        "[ -e begun ] && exec {} zoo well-behaved; : > begun; echo not yet >&2; exit 1",
        lab_program()
    );
    let request = "{\"tool\": \"echo\", \"arguments\": {\"text\": \"x\"}}\n";
    fs::write(sandbox.path().join("in.jsonl"), request.repeat(2)).expect("a file");
    let mut command = sandbox.unhang();
    command.args(["batch", "-j", "1", "in.jsonl", "--", "sh", "-c", &script]);
    let (code, stdout, stderr) = run_to_end(command);
    assert_eq!(code, 1, "{stderr}");
    let outcomes: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((&outcomes[0]["ok"], &outcomes[1]["ok"]), (&json!(false), &json!(true)), "{stdout}");
    assert_eq!(outcomes[0]["error"]["kind"], "start_failed", "{stdout}");
    sandbox.assert_nothing_left_within(Duration::from_secs(3));
}

#[test]
fn c_50_verbose_tells_when_a_server_is_ready_how_it_ends_and_that_it_was_forced() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.unhang();
    command.args(["-v", "call", "echo", "text=x", "--", lab_program(), "zoo", "ignores-everything"]);
    let (code, _, told) = run_to_end(command);
    assert_eq!(code, 0, "{told}");
    for (words, id) in [
        ("`unhang-lab` is ready after ", "l_76"),
        ("waiting for the servers to end", "c_50"),
        ("`unhang-lab` ended (signal 9 (SIGKILL))", "c_45, c_54, l_16"),
    ] {
        assert!(told.contains(words), "{id}: {told}");
    }
}

#[test]
fn j_130_how_many_jobs_may_run_at_once_is_logged_at_the_start() {
    let sandbox = Sandbox::with_jobs();
    fs::write(sandbox.path().join("unhang.toml"), "[tools.a]\ncommand = [\"true\"]\n").expect("a file");
    let mut command = sandbox.unhang();
    command.args(["-v", "serve"]);
    let (code, _, told) = run_to_end(command);
    let processors = std::thread::available_parallelism().expect("their number").get();
    let expect = format!("INFO {} jobs may run at the same time", (processors / 2).max(2));
    let line =
        told.lines().find(|line| line.ends_with(&expect)).unwrap_or_else(|| panic!("j_129, x_06: {told}"));
    let time = line.split(' ').next().and_then(|time| time.strip_suffix('Z'));
    assert!(code == 0 && time.is_some_and(|time| time.contains('T')), "j_134: {line}");
}

#[test]
fn l_83_a_server_whose_start_failed_is_gone_when_that_is_told() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.unhang();
    command.args(["tools", "--start-timeout", "500ms", "--", lab_program(), "zoo", "silent-at-start"]);
    let (code, stdout, told) = run_to_end(command);
    assert_eq!((code, stdout.as_str()), (4, ""), "{told}");
    assert!(told.contains("`unhang-lab`") && told.contains("500ms"), "l_11: {told}");
    sandbox.assert_nothing_left_within(Duration::from_secs(1));
}

#[test]
fn j_146_a_job_works_in_the_folder_that_it_was_started_from() {
    let sandbox = Sandbox::with_jobs();
    let folder = sandbox.path().join("work");
    fs::create_dir(&folder).expect("a folder");
    let mut command = sandbox.unhang();
    command.args(["job", "run", "--wait", "--", "sh", "-c", "pwd > here"]).current_dir(&folder);
    let (code, _, told) = run_to_end(command);
    assert_eq!(code, 0, "{told}");
    let here = fs::read_to_string(folder.join("here")).expect("it was written there");
    let expect = folder.canonicalize().expect("it is there");
    assert_eq!(here.trim_end(), expect.display().to_string());
}
