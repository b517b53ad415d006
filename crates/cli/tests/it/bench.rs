//! `unhang bench`: the shape of what it prints, its exit codes, and that nothing is left. Never its figures.

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Client, PATIENCE, Sandbox, run_to_end, wait_until};

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

/// Runs `unhang bench`, and returns exit code, stdout and stderr.
#[track_caller]
fn bench(sandbox: &Sandbox, words: &[&str]) -> (i32, String, String) {
    let mut command = sandbox.unhang();
    command.arg("bench").args(words);
    run_to_end(command)
}

fn names(report: &Value) -> Vec<&str> {
    let ways = report["ways"].as_array().expect("ways");
    ways.iter().map(|way| way["name"].as_str().expect("a name")).collect()
}

#[test]
fn the_report_has_every_way_every_measure_and_every_bar() {
    let sandbox = Sandbox::new();
    let (code, text, stderr) = bench(&sandbox, &["--quick", "--output", "json", "--peer", "env 'A=b c'"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    let report: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(names(&report), ["direct", "floor", "wrap", "peer 1"]);
    assert_eq!(report["ways"][3]["command"], serde_json::json!(["env", "A=b c"]));
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
    let bars: Vec<&str> =
        report["bars"].as_array().expect("bars").iter().filter_map(|bar| bar["measure"].as_str()).collect();
    let expected = ["round_trip_p50_us", "calls_per_second", "bytes_per_second", "start_ms", "memory_bytes"];
    assert_eq!(bars, expected);
    sandbox.assert_nothing_left();
}

/// A missed bar is exit 1 and named, a met one is neither; which of them are met is not for a test to say.
#[test]
fn with_check_a_missed_bar_is_exit_1_and_named() {
    let sandbox = Sandbox::new();
    let (code, text, stderr) = bench(&sandbox, &["--quick", "--check", "--output", "json"]);
    let report: Value = serde_json::from_str(&text).expect("JSON");
    let missed = report["bars"]
        .as_array()
        .expect("bars")
        .iter()
        .filter(|bar| bar["met"] == Value::Bool(false))
        .count();
    assert_eq!(code, i32::from(missed > 0), "{stderr}");
    assert_eq!(stderr.matches(", the bar is ").count(), missed, "{stderr}");
}

#[test]
fn a_peer_that_is_none_is_named_after_the_rest() {
    let sandbox = Sandbox::new();
    let (code, text, stderr) = bench(&sandbox, &["--quick", "--peer", "false"]);
    assert_eq!(code, 3, "{stderr}");
    assert!(stderr.contains("peer 1") && stderr.contains("hint: "), "{stderr}");
    for part in ["direct", "floor", "wrap", "round trip, p50", "10 MB results", "≤ 1.30"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_peer_that_is_no_command_is_wrong_usage() {
    let sandbox = Sandbox::new();
    for peer in ["", "proxy 'a"] {
        let (code, text, stderr) = bench(&sandbox, &["--peer", peer]);
        assert_eq!((code, text.as_str()), (2, ""), "{peer}: {stderr}");
        assert!(stderr.contains("--peer"), "{peer}: {stderr}");
    }
}

/// Promise 5 for the measuring itself: the kernel ends what a killed bench had started, the lifeline the rest.
#[test]
fn a_killed_bench_leaves_nothing() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.unhang();
    command.args(["bench", "--output", "json"]);
    let mut client = Client::start(command);
    wait_until("the server is measured through the guard", PATIENCE, || {
        let running = sandbox.survivors();
        let runs = |words: &str| running.iter().any(|(_, line)| line.contains(words));
        runs(" wrap --name bench ")
            && running.iter().any(|(_, line)| line.trim_end().ends_with("unhang zoo echoes"))
    });
    client.signal(Signal::KILL);
    assert_eq!(client.exit_code(), 128 + 9);
    sandbox.assert_nothing_left();
}
