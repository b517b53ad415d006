//! The jobs of the zoo, each run as a job: null stdin, the whole log kept or capped, the true state and exit code, and nothing
//! left behind (promises 4 and 7).

use std::{fs::File, io::Write, os::unix::fs::MetadataExt};

use rustix::pipe::{PipeFlags, pipe_with};
use serde_json::{Value, json};

use crate::{
    harness::{Client, PATIENCE, figure, wait_until},
    jobs::Jobs,
};

/// How often each way to leave something behind is tried.
const RUNS: usize = 5;

#[test]
fn promise_4_a_job_that_reads_finds_nothing_to_read() {
    let jobs = Jobs::new();
    let (stdin, writer) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
    let mut writer = File::from(writer);
    // What stands there for the job's submitter is not for the job, and it stays open.
    writer.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n").expect("written");
    let (reader, stdout) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
    let command = jobs.command(&Jobs::zoo(&["--wait"], &["reads-stdin"]));
    let mut client =
        Client::start_on(command, stdin.into(), stdout.into(), writer).reading(File::from(reader));
    let id = client.next_line(PATIENCE).expect("an id");
    assert_eq!(client.exit_code(), 0);
    assert_eq!(jobs.log(id.trim_end(), "stdout.log"), "0 bytes of stdin\n", "it got the client's tools/list");
}

#[test]
fn every_exit_code_is_told_as_it_is() {
    let jobs = Jobs::new();
    let codes: Vec<String> = (0..=255).map(|code: i32| code.to_string()).collect();
    let faulty_servers: Vec<_> = codes.iter().map(|code| vec!["exits-with", code]).collect();
    for (code, (own, shown)) in (0..).zip(jobs.see_all_through(&faulty_servers)) {
        let status = if code == 0 { "completed" } else { "failed" };
        assert_eq!(
            (own, &shown["exit_code"], &shown["status"]),
            (code, &json!(code), &json!(status)),
            "{shown}"
        );
        assert!(shown.get("signal").is_none(), "{shown}");
    }
    assert_eq!(codes.len(), 256);
}

/// Signals that end nobody: SIGCHLD, SIGCONT, SIGURG, SIGWINCH.
const HARMLESS: [i32; 4] = [17, 18, 23, 28];
/// Signals that stop: SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU.
const STOPPING: [i32; 4] = [19, 20, 21, 22];
/// The C library keeps them to itself, and lets children that it starts ignore them.
const INTERNAL: [i32; 2] = [32, 33];

#[test]
fn every_signal_that_kills_is_told_by_its_number() {
    let jobs = Jobs::new();
    let numbers: Vec<i32> =
        (1..=64).filter(|number| ![&STOPPING[..], &INTERNAL].concat().contains(number)).collect();
    let words: Vec<String> = numbers.iter().map(i32::to_string).collect();
    let faulty_servers: Vec<_> = words.iter().map(|number| vec!["dies-by", number]).collect();
    for (number, (own, shown)) in numbers.into_iter().zip(jobs.see_all_through(&faulty_servers)) {
        if HARMLESS.contains(&number) {
            assert_eq!((own, &shown["status"]), (0, &json!("completed")), "{number}: {shown}");
        } else {
            let told = (&shown["signal"], &shown["status"]);
            assert_eq!((own, told), (128 + number, (&json!(number), &json!("failed"))), "{shown}");
            assert!(shown.get("exit_code").is_none(), "{shown}");
        }
    }
}

#[test]
fn a_stopped_job_is_running_and_can_be_cancelled() {
    let jobs = Jobs::new();
    let id = jobs.submit_zoo(&[], &["dies-by", "19"]);
    let (_, work) = jobs.processes(&id);
    wait_until("the work is stopped", PATIENCE, || {
        let stat = std::fs::read_to_string(format!("/proc/{work}/stat")).unwrap_or_default();
        stat.contains(") T ")
    });
    assert_eq!(jobs.json(&["job", "show", &id])["status"], "running");
    assert_eq!(jobs.json(&["job", "cancel", &id])[0]["status"], "cancelled");
}

#[test]
fn a_flood_is_kept_whole_below_the_limit() {
    const COUNT: usize = 3_000_000;
    let jobs = Jobs::new();
    let (code, shown) = jobs.see_through(&[], &["floods", &COUNT.to_string()]);
    assert_eq!(code, 0, "{shown}");
    let id = shown["job_id"].as_str().expect("an id");
    let (stdout, _) = jobs.demand(0, &["job", "logs", id]);
    assert_eq!(stdout, format!("{}\nthe last line of stdout\n", "x".repeat(COUNT)));
    let (stderr, _) = jobs.demand(0, &["job", "logs", "--stderr", id]);
    let last = "the last line of stderr\n";
    assert!(stderr.len() == COUNT + last.len() && stderr.ends_with(last), "{}", stderr.len());
}

#[test]
fn a_flood_over_the_limit_keeps_its_end() {
    const COUNT: u64 = 20_000_000;
    const LIMIT: u64 = 1 << 20;
    let jobs = Jobs::new();
    let (code, shown) = jobs.see_through(&["--log-limit", "1MiB"], &["floods", &COUNT.to_string()]);
    assert_eq!(code, 0, "{shown}");
    let id = shown["job_id"].as_str().expect("an id");
    for (flag, name, last, extra) in [
        (None, "stdout.log", "the last line of stdout\n", 25),
        (Some("--stderr"), "stderr.log", "the last line of stderr\n", 24),
    ] {
        let words: Vec<_> = ["job", "logs", id, "--output", "json"].into_iter().chain(flag).collect();
        let page = jobs.json(&words);
        let dropped = page["dropped_before"].as_u64().expect("a number");
        let metadata = jobs.folder(id).join(name).metadata().expect("it is there");
        // Offsets never move, whatever has been dropped.
        assert_eq!(metadata.len(), COUNT + extra, "{name}");
        assert!(dropped > 0 && COUNT + extra - dropped >= LIMIT / 2, "{name}: {dropped}");
        assert!(metadata.blocks() * 512 <= LIMIT + (256 << 10), "{name}: {} blocks", metadata.blocks());
        let offset = (COUNT + extra - 1000).to_string();
        let words: Vec<_> = ["job", "logs", id, "--offset", &offset].into_iter().chain(flag).collect();
        assert!(jobs.demand(0, &words).0.ends_with(last), "{name}");
    }
}

#[test]
fn progress_is_seen_while_the_job_runs() {
    let jobs = Jobs::new();
    let id = jobs.submit_zoo(&[], &["tells-progress", "--gates", "step-"]);
    let mut seen = Vec::new();
    for (number, (fraction, message)) in
        [(0.25, Value::Null), (0.5, json!("half of it")), (0.755, Value::Null)].into_iter().enumerate()
    {
        let mut shown = Value::Null;
        wait_until(&format!("progress {fraction}"), PATIENCE, || {
            shown = jobs.json(&["job", "show", &id]);
            shown["progress"] == json!(fraction)
        });
        assert_eq!((&shown["progress_message"], &shown["status"]), (&message, &json!("running")), "{shown}");
        seen.push(shown["progress"].clone());
        jobs.open(&format!("step-{number}"));
    }
    assert_eq!(seen.len(), 3, "six polls said nothing");
    jobs.demand(0, &["job", "wait", &id]);
}

#[test]
fn junk_is_kept_byte_for_byte_and_told_as_json_all_the_same() {
    let jobs = Jobs::new();
    let (code, shown) = jobs.see_through(&["--name", "junk"], &["junk-output"]);
    assert_eq!(code, 0, "{shown}");
    let id = shown["job_id"].as_str().expect("an id");
    for name in ["stdout.log", "stderr.log"] {
        let kept = std::fs::read(jobs.folder(id).join(name)).expect("a log");
        assert!(kept.starts_with(b"\x1b[31mred\x1b[0m\x07\xff\xfe\0") && kept.ends_with(b"wiped\r\nno end"));
    }
    let page = jobs.json(&["job", "logs", id, "--output", "json"]);
    assert!(page["text"].as_str().is_some_and(|text| text.ends_with("no end")), "{page}");
    assert_eq!(page["eof"], true);
}

#[test]
fn a_result_that_is_none_fails_the_job_and_leaves_the_state_alone() {
    let jobs = Jobs::new();
    jobs.demand(0, &["state", "set", "plant", "{\"volume\": 1}"]);
    for faulty_server in [
        &["not-a-number"][..],
        &["half-a-result"],
        &["odd-result", "fifo"],
        &["odd-result", "link"],
        &["odd-result", "folder"],
        &["odd-result", "huge"],
        &["exits-with", "0"],
    ] {
        let (code, shown) =
            jobs.see_through(&["--result", "results.json", "--state", "plant=/volume"], faulty_server);
        let reason = if faulty_server[0] == "exits-with" { "results_missing" } else { "results_invalid" };
        let told = (&shown["status"], &shown["reason"], &shown["exit_code"]);
        assert_eq!(
            (code, told),
            (1, (&json!("failed"), &json!(reason), &json!(0))),
            "{faulty_server:?}: {shown}"
        );
        let id = shown["job_id"].as_str().expect("an id");
        let (_, stderr) = jobs.demand(1, &["job", "result", id]);
        assert!(stderr.contains("results.json"), "{faulty_server:?}: {stderr}");
        // It can be removed, whatever lies in its folder.
        jobs.demand(0, &["job", "remove", id]);
        assert!(!jobs.folder(id).exists(), "{faulty_server:?}");
    }
    assert_eq!(jobs.json(&["state", "get", "plant"]), json!({"volume": 1}));
}

#[test]
fn a_failure_is_told_in_the_words_of_the_job_and_by_the_end_of_its_stderr() {
    let jobs = Jobs::new();
    let (code, shown) = jobs.see_through(&["--result", "results.json"], &["explains-its-failure"]);
    assert_eq!((code, &shown["exit_code"]), (1, &json!(1)), "{shown}");
    let id = shown["job_id"].as_str().expect("an id");
    let (stdout, stderr) = jobs.demand(1, &["job", "result", "--output", "json", id]);
    assert!(format!("{stdout}{stderr}").contains("the reactor is empty"), "{stdout} {stderr}");
    assert!(format!("{stdout}{stderr}").contains("the last line says why"), "{stdout} {stderr}");
}

#[test]
fn a_job_that_ignores_every_signal_is_ended_all_the_same() {
    let jobs = Jobs::new();
    let id = jobs.submit_zoo(&[], &["ignores-every-signal"]);
    wait_until("it is deaf", PATIENCE, || {
        jobs.processes(&id);
        jobs.log(&id, "stdout.log") == "deaf\n"
    });
    let cancelled = jobs.json(&["job", "cancel", &id]);
    assert_eq!(cancelled[0]["status"], "cancelled", "{cancelled}");
    assert_eq!(jobs.json(&["job", "show", &id])["signal"], 9);
}

/// The seven rows of processes.md 1.4: what a kill of the process group leaves (the zoo's own tests show it), a shim ends.
#[test]
fn of_seven_ways_to_leave_something_behind_none_survives() {
    let jobs = Jobs::new();
    figure("job leaves behind        | shim survivors | exit code 7 kept | ended by the shim | longest run");
    for (row, way) in [
        ("background child", "child"),
        ("setsid child", "session"),
        ("double-fork daemon", "daemon"),
        ("nohup, fds closed", "closed"),
        ("three nested sessions", "nested"),
        ("ignores TERM/HUP/INT", "deaf"),
        ("a new session each 2 ms", "forks"),
    ] {
        let marker = format!("{}-{way}", jobs.sandbox.marker());
        let faulty_server = ["leaves-behind", way, "--marker", &marker];
        let ends = jobs.see_all_through(&vec![faulty_server.to_vec(); RUNS]);
        let survivors: Vec<_> =
            jobs.sandbox.survivors().into_iter().filter(|(_, command)| command.contains(&marker)).collect();
        let exits: Vec<_> = ends
            .iter()
            .map(|(_, shown)| {
                jobs.file(shown["job_id"].as_str().expect("an id"), "exit.json").expect("an end")
            })
            .collect();
        let ended = exits.iter().filter(|exit| exit["leaked"].as_u64() >= Some(1)).count();
        let kept = ends.iter().filter(|(own, shown)| *own == 7 && shown["exit_code"] == 7).count();
        let longest =
            ends.iter().filter_map(|(_, shown)| shown["elapsed_time_seconds"].as_f64()).fold(0.0, f64::max);
        figure(&format!(
            "{row:<24} | {:>11}/{RUNS} | {kept:>14}/{RUNS} | {ended:>15}/{RUNS} | {:>8.0} ms",
            survivors.len(),
            longest * 1000.0
        ));
        assert!(survivors.is_empty(), "{row}: {survivors:?}");
        assert_eq!((kept, ended), (RUNS, RUNS), "{row}: {exits:?}");
        assert!(exits.iter().all(|exit| exit["unkilled"].as_u64().unwrap_or(0) == 0), "{row}: {exits:?}");
    }
}

#[test]
fn children_that_go_on_printing_neither_delay_the_end_nor_survive_it() {
    let jobs = Jobs::new();
    let marker = jobs.sandbox.marker().to_owned();
    let (code, shown) = jobs.see_through(&[], &["children-print", "--marker", &marker, "3"]);
    assert_eq!((code, &shown["exit_code"]), (7, &json!(7)), "{shown}");
    let id = shown["job_id"].as_str().expect("an id");
    let exit = jobs.file(id, "exit.json").expect("an end");
    assert_eq!(exit["leaked"], 3, "{exit}");
    assert!(jobs.log(id, "stdout.log").contains("their parent leaves\n"));
    let left: Vec<_> =
        jobs.sandbox.survivors().into_iter().filter(|(_, command)| command.contains("chatters")).collect();
    assert!(left.is_empty(), "{left:?}");
}
