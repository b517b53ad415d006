//! `unhang-lab bench`: the shape of what it prints, its exit codes, and that nothing is left. Never its figures (R-37).

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Client, PATIENCE, Sandbox, run_to_end, wait_until};

const JOB_MEASURES: [&str; 11] = [
    "submit_p50_ms",
    "submit_p99_ms",
    "crowd_submit_p99_ms",
    "status_p50_ms",
    "status_p99_ms",
    "jobs_per_second",
    "ended_submit_p50_ms",
    "ended_status_p50_ms",
    "ended_start_ms",
    "log_peak_bytes",
    "log_last_line",
];

const MEASURES: [&str; 8] = [
    "round_trip_p50_us",
    "round_trip_p99_us",
    "calls_per_second",
    "bytes_per_second",
    "start_ms",
    "stop_ms",
    "memory_bytes",
    "processor_us_per_call",
];

/// Runs `unhang-lab bench`, confined to the guard, and returns exit code, stdout and stderr.
#[track_caller]
fn bench_wrap(sandbox: &Sandbox, words: &[&str]) -> (i32, String, String) {
    bench(sandbox, &[&["--only", "wrap"], words].concat())
}

/// Runs `unhang-lab bench`, and returns exit code, stdout and stderr.
#[track_caller]
fn bench(sandbox: &Sandbox, words: &[&str]) -> (i32, String, String) {
    let mut command = sandbox.lab();
    command.arg("bench").args(words);
    run_to_end(command)
}

fn texts<'a>(part: &'a Value, list: &str, member: &str) -> Vec<&'a str> {
    let list = part[list].as_array().expect("a list");
    list.iter().map(|one| one[member].as_str().expect("a text")).collect()
}

fn missed(part: &Value) -> usize {
    part["bars"].as_array().expect("bars").iter().filter(|bar| bar["met"] == Value::Bool(false)).count()
}

#[test]
fn the_report_has_every_way_every_measure_and_every_bar() {
    let sandbox = Sandbox::new();
    let (code, text, stderr) =
        bench_wrap(&sandbox, &["--quick", "--output", "json", "--peer", "env 'A=b c'"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let whole: Value = serde_json::from_str(&text).expect("JSON");
    assert!(whole.get("jobs").is_none(), "it was confined");
    let report = &whole["wrap"];
    assert_eq!(texts(report, "ways", "name"), ["direct", "floor", "wrap", "peer 1"]);
    assert_eq!(report["ways"][3]["command"], json!(["env", "A=b c"]));
    for way in report["ways"].as_array().expect("ways") {
        for measure in MEASURES {
            let told = &way["measures"][measure];
            // Not every system counts processor time so finely.
            assert!(told["value"].is_number() || measure == "processor_us_per_call", "{measure}: {way}");
        }
        assert!(way["measures"]["round_trip_p50_us"]["ratio_to_floor"].is_number(), "{way}");
        assert!(way["measures"]["start_ms"]["added_to_direct"].is_number(), "{way}");
    }
    let memory =
        |way: usize| report["ways"][way]["measures"]["memory_bytes"]["value"].as_f64().expect("bytes");
    assert!(memory(0) == 0.0 && memory(1) > 0.0 && memory(2) > memory(1), "guard and lifeline are counted");
    let expected = ["round_trip_p50_us", "calls_per_second", "bytes_per_second", "start_ms", "memory_bytes"];
    assert_eq!(texts(report, "bars", "measure"), expected);
    sandbox.assert_nothing_left();
}

/// A missed bar is exit 1 and named, a met one is neither; which of them are met is not for a test to say.
#[test]
fn with_check_a_missed_bar_is_exit_1_and_named() {
    let sandbox = Sandbox::with_jobs();
    let (code, text, stderr) = bench(&sandbox, &["--quick", "--check", "--output", "json"]);
    let report: Value = serde_json::from_str(&text).expect("JSON");
    let missed: usize = ["wrap", "jobs", "commands", "gateway", "sessions", "slow"]
        .map(|part| missed(&report[part]))
        .iter()
        .sum();
    // Not every machine has an nginx to compare with.
    let is_whole = report["gateway"]["ways"].as_array().is_some_and(|ways| ways.len() == 3);
    let expect = if missed > 0 { 1 } else { i32::from(!is_whole) * 3 };
    assert_eq!(code, expect, "{stderr}");
    assert_eq!(stderr.matches(", the bar is ").count(), missed, "{stderr}");
    sandbox.assert_nothing_left();
}

#[test]
fn the_command_line_is_measured_as_whole_processes() {
    let sandbox = Sandbox::new();
    let (code, text, stderr) = bench(&sandbox, &["--only", "commands", "--quick", "--output", "json"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let whole: Value = serde_json::from_str(&text).expect("JSON");
    assert!(whole.get("wrap").is_none() && whole.get("jobs").is_none(), "it was confined");
    let report = &whole["commands"];
    assert_eq!(texts(report, "ways", "name"), ["direct", "unhang"]);
    let measures =
        ["call_ms", "batch_lines_per_second", "end_ms", "end_ignoring_ms", "end_three_ignoring_ms"];
    assert_eq!(texts(report, "bars", "measure"), measures);
    for measure in measures {
        let value = &report["ways"][1]["measures"][measure]["value"];
        assert!(value.as_f64().is_some_and(|value| value > 0.0), "{measure}: {report}");
    }
    sandbox.assert_nothing_left();
}

#[test]
fn the_gateway_is_measured_with_and_without_a_proxy_and_with_many_sessions() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.lab();
    command.env("PATH", "/nowhere").args(["bench", "--only", "gateway", "--quick", "--output", "json"]);
    let (code, text, stderr) = run_to_end(command);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let whole: Value = serde_json::from_str(&text).expect("JSON");
    assert!(whole.get("wrap").is_none() && whole.get("jobs").is_none(), "it was confined");
    let ways = texts(&whole["gateway"], "ways", "name");
    assert!(ways == ["direct", "unhang"] || ways == ["direct", "nginx", "unhang"], "{ways:?}");
    let bars = texts(&whole["gateway"], "bars", "measure");
    let expect: &[&str] = if ways.len() == 2 { &[] } else { &["added_p50_us", "calls_per_second"] };
    assert_eq!(bars, expect, "without a proxy nothing is judged by one");
    let way = whole["gateway"]["ways"].as_array().and_then(|ways| ways.last()).expect("a way");
    for measure in ["round_trip_p50_us", "round_trip_p99_us", "added_p50_us", "calls_per_second"] {
        assert!(way["measures"][measure]["value"].is_number(), "{measure}: {way}");
    }
    assert_eq!(
        texts(&whole["sessions"], "bars", "measure"),
        ["session_bytes", "probe_p99_ms", "left_bytes", "left_descriptors"]
    );
    let left = &whole["sessions"]["ways"][0]["measures"]["left_descriptors"]["value"];
    assert_eq!(left.as_f64(), Some(0.0), "sessions that have ended have no descriptors");
    sandbox.assert_nothing_left();
}

#[test]
fn slow_calls_are_measured_beside_those_that_are_answered_in_time() {
    let sandbox = Sandbox::new();
    let (code, text, stderr) = bench(&sandbox, &["--only", "slow", "--quick", "--output", "json"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let whole: Value = serde_json::from_str(&text).expect("JSON");
    assert!(whole.get("wrap").is_none() && whole.get("jobs").is_none(), "it was confined");
    let report = &whole["slow"];
    assert_eq!(texts(report, "ways", "name"), ["serve", "wrap"]);
    let bars = ["added_p50_ms", "call_bytes", "holder_bytes", "round_trip_p50_us"];
    assert_eq!(texts(report, "bars", "measure"), [bars, bars].concat());
    let measures =
        ["added_p50_ms", "added_p99_ms", "crowd_p99_ms", "call_bytes", "holder_bytes", "round_trip_p50_us"];
    for measure in measures {
        for way in [0, 1] {
            let measured = &report["ways"][way]["measures"][measure];
            assert!(measured["value"].is_number(), "{measure}: {report}");
            let has_floor = measure == "round_trip_p50_us";
            assert_eq!(measured["ratio_to_floor"].is_number(), has_floor);
        }
    }
    assert_eq!(kept(&sandbox), [] as [&str; 0]);
    sandbox.assert_nothing_left();
}

/// What is in the data folder of the sandbox but for logs.
fn kept(sandbox: &Sandbox) -> Vec<String> {
    let entries = fs::read_dir(sandbox.path().join("state")).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name != "logs").collect()
}

#[test]
fn jobs_are_measured_beside_their_floor_in_a_folder_that_is_removed() {
    let sandbox = Sandbox::new();
    let (code, text, stderr) =
        bench(&sandbox, &["--only", "jobs", "--quick", "--ended", "30", "--output", "json"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let whole: Value = serde_json::from_str(&text).expect("JSON");
    assert!(whole.get("wrap").is_none(), "it was confined");
    let report = &whole["jobs"];
    assert_eq!(texts(report, "ways", "name"), ["floor", "jobs"]);
    assert_eq!(report["plan"]["ended"], 30);
    assert!(report["plan"]["file_system"].is_string(), "{report}");
    for measure in JOB_MEASURES {
        let [floor, jobs] = [0, 1].map(|way| &report["ways"][way]["measures"][measure]);
        assert!(jobs["value"].as_f64().is_some_and(|value| value > 0.0), "{measure}: {report}");
        // A log stands for itself.
        let has_floor = !measure.starts_with("log_");
        assert_eq!((floor["value"].is_number(), jobs["ratio_to_floor"].is_number()), (has_floor, has_floor));
    }
    let expected: Vec<_> = JOB_MEASURES.into_iter().filter(|measure| *measure != "status_p50_ms").collect();
    assert_eq!(texts(report, "bars", "measure"), expected);
    // What was written is more than the log may keep, and what is compared with a limit is what the disk had to hold.
    let peak = report["ways"][1]["measures"]["log_peak_bytes"]["value"].as_f64().expect("bytes");
    assert!(peak >= 4.0 * 1_048_576.0, "{peak}");
    assert_eq!(report["ways"][1]["measures"]["log_last_line"]["value"], 1.0);
    assert_eq!(kept(&sandbox), [] as [&str; 0]);
    sandbox.assert_nothing_left();
}

/// A job server of the sandbox: our own, with a tool that runs any command.
fn job_peer(sandbox: &Sandbox) -> String {
    let path = |name: &str| sandbox.path().join(name);
    let tool = r#"
        [tools.start]
        command = ["sh", "-c", "{args.command}"]
        mode = "job"
        input-schema = { properties = { command = { type = "string" } }, required = ["command"] }
    "#;
    fs::write(path("peer.toml"), tool).expect("the sandbox can be written");
    let peer = json!({
        "command": [env!("CARGO_BIN_EXE_unhang"), "serve", "--stdio", "--config", path("peer.toml")],
        "submit": {"tool": "start", "arguments": {"command": "$COMMAND"}},
        "status": {"tool": "get_job_status", "arguments": {"job_id": "$JOB"}},
        "id": "/job_id",
        "ended": "\"status\":\"completed\"",
    });
    fs::write(path("peer.json"), peer.to_string()).expect("the sandbox can be written");
    path("peer.json").display().to_string()
}

#[test]
fn a_job_peer_stands_beside_the_jobs_in_what_can_be_told_of_it() {
    let sandbox = Sandbox::new();
    let peer = job_peer(&sandbox);
    let words = ["--only", "jobs", "--quick", "--output", "json", "--job-peer", &peer];
    let (code, text, stderr) = bench(&sandbox, &words);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let report: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(texts(&report["jobs"], "ways", "name"), ["floor", "jobs", "peer 1"]);
    let peer = &report["jobs"]["ways"][2];
    assert_eq!(peer["command"][1], "serve");
    for measure in JOB_MEASURES {
        let is_ours =
            measure.starts_with("crowd_") || measure.starts_with("ended_") || measure.starts_with("log_");
        assert_eq!(peer["measures"][measure]["value"].is_number(), !is_ours, "{measure}: {peer}");
    }
    sandbox.assert_nothing_left();
}

#[test]
fn a_job_peer_that_does_not_do_what_its_description_says_is_named_after_the_rest() {
    let sandbox = Sandbox::new();
    let peer = job_peer(&sandbox);
    let description = fs::read_to_string(&peer).expect("it was written");
    fs::write(&peer, description.replace("\"/job_id\"", "\"/ticket\"")).expect("it can be written");
    let words = ["--only", "jobs", "--quick", "--ended", "1", "--job-peer", &peer];
    let (code, text, stderr) = bench(&sandbox, &words);
    assert_eq!(code, 3, "{stderr}");
    assert!(
        stderr.contains("peer 1 could not be measured: polls: no id at `/ticket` in the answer to start"),
        "{stderr}"
    );
    assert!(text.contains("jobs that do nothing") && !text.contains("peer 1"), "{text}");
    sandbox.assert_nothing_left();
}

#[test]
fn a_job_server_that_cannot_work_is_told_of_and_leaves_the_guards_figures() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.lab();
    // Without a PATH no job finds its program.
    command.env("PATH", "/nowhere").args(["bench", "--only", "jobs", "--quick"]);
    let (code, text, stderr) = run_to_end(command);
    assert_eq!((code, text.as_str()), (3, ""), "{stderr}");
    assert!(stderr.contains("jobs could not be measured: making ended jobs: trivial: "), "{stderr}");
    assert!(stderr.contains("hint: ") && kept(&sandbox).is_empty(), "{stderr}");
    sandbox.assert_nothing_left();
}

#[test]
fn an_interrupted_bench_ends_its_jobs_and_removes_their_folder() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.lab();
    command.args(["bench", "--only", "jobs", "--ended", "1", "--output", "json"]);
    let mut client = Client::start(command);
    wait_until("a job floods while others wait", PATIENCE * 4, || {
        let running = sandbox.survivors();
        let runs = |words: &str| running.iter().any(|(_, line)| line.contains(words));
        runs(" zoo floods 1000000000000") && runs(" zoo slow --gate ")
    });
    client.signal(Signal::INT);
    assert_eq!(client.exit_code(), 130);
    assert_eq!(kept(&sandbox), [] as [&str; 0]);
    sandbox.assert_nothing_left();
}

#[test]
fn a_peer_that_is_none_is_named_after_the_rest() {
    let sandbox = Sandbox::new();
    let (code, text, stderr) = bench_wrap(&sandbox, &["--quick", "--peer", "false"]);
    assert_eq!(code, 3, "{stderr}");
    assert!(stderr.contains("peer 1") && stderr.contains("hint: "), "{stderr}");
    for part in ["direct", "floor", "wrap", "round trip, p50", "10 MB results", "≤ 1.30"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_peer_that_is_no_command_is_wrong_usage() {
    let sandbox = Sandbox::new();
    let job_peer = job_peer(&sandbox);
    for words in [
        &["--peer", ""][..],
        &["--peer", "proxy 'a"],
        &["--only", "jobs", "--peer", "proxy"],
        &["--job-peer", "/missing"],
        &["--job-peer", "/dev/null"],
        &["--only", "wrap", "--job-peer", &job_peer],
        &["--only", "commands", "--peer", "proxy"],
    ] {
        let (code, text, stderr) = bench(&sandbox, words);
        assert_eq!((code, text.as_str()), (2, ""), "{words:?}: {stderr}");
        assert!(stderr.contains("peer"), "{words:?}: {stderr}");
    }
}

/// Promise 5 for the measuring itself: the kernel ends what a killed bench had started, the lifeline the rest.
#[test]
fn a_killed_bench_leaves_nothing() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.lab();
    command.args(["bench", "--only", "wrap", "--output", "json"]);
    let mut client = Client::start(command);
    wait_until("the server is measured through the guard", PATIENCE, || {
        let running = sandbox.survivors();
        let runs = |words: &str| running.iter().any(|(_, line)| line.contains(words));
        runs(" wrap --name bench ")
            && running.iter().any(|(_, line)| line.trim_end().ends_with("unhang-lab zoo echoes"))
    });
    client.signal(Signal::KILL);
    assert_eq!(client.exit_code(), 128 + 9);
    sandbox.assert_nothing_left();
}
