//! The vices that show in how a faulty server begins, ends, listens, and what it leaves behind.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::zoo_client::{ZooClient, clear, introduction, marked, marker, signal, stat, wait_until};

/// Does the handshake, calls a tool, and returns how the faulty server ended unanswered.
fn end_of_a_call(faulty_server: &str) -> (Option<i32>, String) {
    let mut client = ZooClient::meet(faulty_server);
    client.shake_hands();
    client.call(1, "echo", &json!({"text": "x"}));
    let code = client.end().code();
    let line = client.line().map(|line| String::from_utf8_lossy(&line).into_owned());
    assert!(line.is_none_or(|line| !line.ends_with('\n')), "{faulty_server} does not answer");
    (code, client.last_words())
}

#[test]
fn deaths_in_a_call() {
    for (faulty_server, code, word) in [
        ("exits-on-first-request", 1, "fatal"),
        ("dies-every-call", 101, "panic"),
        ("half-line-then-dies", 1, ""),
        ("stderr-flood-while-dying 300000", 1, "the last words"),
    ] {
        let (ended, words) = end_of_a_call(faulty_server);
        assert_eq!(ended, Some(code), "{faulty_server}");
        assert!(words.contains(word), "{faulty_server}");
    }
}

#[test]
fn deaths_without_a_call() {
    let mut early = ZooClient::meet("dies-at-start 3");
    assert_eq!(early.end().code(), Some(3));
    assert_eq!(early.last_words().lines().count(), 1);

    let mut idle = ZooClient::meet("dies-idle 50");
    idle.shake_hands();
    assert_eq!(idle.end().code(), Some(1));
    let mut left_alone = ZooClient::meet("dies-idle 60000");
    left_alone.shake_hands();
    left_alone.close_stdin();
    assert!(left_alone.end().success());

    let mut polite = ZooClient::meet("exits-zero-after-each-answer");
    polite.shake_hands();
    assert_eq!(polite.call_text(1, "echo", &json!({"text": "x"})), "x");
    assert!(polite.end().success());
}

#[test]
fn starts_that_disappoint() {
    let mut silent = ZooClient::meet("silent-at-start");
    silent.shake_silently();
    silent.close_stdin();
    assert!(silent.end().success());
    assert!(silent.line().is_none());

    let start = crate::zoo_client::now();
    let mut slow = ZooClient::meet("slow-start 300");
    slow.shake_hands();
    assert!(start.elapsed().as_millis() >= 300);
    assert_eq!(slow.call_text(1, "echo", &json!({"text": "x"})), "x");
}

#[test]
fn starts_are_counted_and_fail_after_the_first() {
    let file = std::env::temp_dir().join(marker("starts"));
    let path = file.to_str().expect("a plain path");
    let faulty_server = format!("restarts-broken --count-file {path} 1");
    let mut first = ZooClient::meet(&faulty_server);
    first.shake_hands();
    assert_eq!(first.call_text(1, "pid", &json!({})), first.pid().to_string());
    let mut second = ZooClient::meet(&faulty_server);
    assert_eq!(second.end().code(), Some(1));
    let counted = std::fs::read_to_string(&file).expect("the file is there");
    std::fs::remove_file(&file).expect("the file can be removed");
    assert_eq!(counted, format!("{}\n{}\n", first.pid(), second.pid()));
}

#[test]
fn the_end_of_stdin_is_ignored() {
    for faulty_server in ["ignores-stdin-close", "ignores-everything"] {
        let mut client = ZooClient::meet(faulty_server);
        client.shake_hands();
        client.close_stdin();
        // Asleep in its own wait, so it has seen the end.
        wait_until("the program has seen the end of stdin", || {
            in_call(client.pid(), "nanosleep").then_some(())
        });
        assert!(!client.has_ended(), "{faulty_server}");
        signal(client.pid(), Signal::TERM);
        if faulty_server == "ignores-stdin-close" {
            assert_eq!(client.end().signal(), Some(Signal::TERM.as_raw()));
        } else {
            [Signal::HUP, Signal::INT, Signal::QUIT].iter().for_each(|kind| signal(client.pid(), *kind));
            assert!(!client.has_ended(), "{faulty_server}");
            signal(client.pid(), Signal::KILL);
            assert_eq!(client.end().signal(), Some(Signal::KILL.as_raw()));
        }
    }
}

#[test]
fn an_interrupt_kills_at_the_next_line() {
    let mut client = ZooClient::meet("sigint-deaf");
    client.shake_hands();
    signal(client.pid(), Signal::INT);
    wait_until("the signal is taken", || (!pending(client.pid(), Signal::INT)).then_some(()));
    assert!(!client.has_ended());
    client.request(1, "ping", &json!({}));
    assert_eq!(client.end().code(), Some(1));
    assert!(client.line().is_none(), "the line is lost");
    assert!(client.last_words().contains("KeyboardInterrupt"));
}

#[test]
fn a_stopped_server_is_silent() {
    let mut client = ZooClient::meet("stopped");
    client.shake_hands();
    wait_until("the program is stopped", || (stat(client.pid(), 0) == "T").then_some(()));
    signal(client.pid(), Signal::CONT);
    assert_eq!(client.call_text(1, "echo", &json!({"text": "on"})), "on");
}

#[test]
fn hanging_after_an_idle_while() {
    let file = std::env::temp_dir().join(marker("once"));
    let faulty_server = format!("hangs-idle 100 --once {}", file.to_str().expect("a plain path"));
    let mut client = ZooClient::meet(&faulty_server);
    client.shake_hands();
    wait_until("the program hangs", || file.exists().then_some(()));
    client.request(1, "ping", &json!({}));
    client.close_stdin();
    assert!(!client.has_line() && !client.has_ended());
    let mut second = ZooClient::meet(&faulty_server);
    second.shake_hands();
    assert_eq!(second.call_text(1, "echo", &json!({"text": "well"})), "well");
    std::fs::remove_file(&file).expect("the file can be removed");
}

#[test]
fn pipes_are_closed_or_left_alone() {
    let mut mute = ZooClient::meet("closes-stdout");
    mute.shake_hands();
    mute.call(1, "echo", &json!({}));
    assert!(mute.line().is_none() && !mute.has_ended());
    mute.close_stdin();
    assert!(mute.end().success());

    let mut deaf = ZooClient::meet("closes-stdin");
    deaf.shake_hands();
    assert_eq!(deaf.call_text(1, "echo", &json!({"text": "x"})), "x");
    assert!(deaf.writing_fails() && !deaf.has_ended());

    for (faulty_server, answers) in [("never-reads-stdin", 0), ("stops-reading-after 2", 2)] {
        let mut client = ZooClient::meet(faulty_server);
        for id in 0..4 {
            client.request(id, "ping", &json!({}));
        }
        for id in 0..answers {
            assert_eq!(client.json()["id"], id, "{faulty_server}");
        }
        wait_until("the program does not read any more", || in_call(client.pid(), "nanosleep").then_some(()));
        assert!(!client.has_line() && !client.has_ended(), "{faulty_server}");
    }
}

#[test]
fn a_child_steals_a_line() {
    let mut client = ZooClient::meet("stdin-thief");
    client.shake_hands();
    client.call(1, "echo", &json!({"text": "x"}));
    wait_until("the child runs", || children(client.pid()).first().copied());
    client.request(2, "ping", &json!({}));
    assert_eq!(client.json()["id"], 1);
    client.request(3, "ping", &json!({}));
    assert_eq!(client.json()["id"], 3, "the ping before was stolen");
}

#[test]
fn something_is_left_behind() {
    // Name, how many stay, whether in another session, whether the pipes are held, whether the environment is empty.
    for (faulty_server, count, apart, holding, bare) in [
        ("leaves-grandchild", 1, false, true, false),
        ("leaves-setsid-child", 1, true, true, false),
        ("leaves-three-sessions", 3, true, true, false),
        ("leaves-daemon", 1, true, false, false),
        ("leaves-daemon-empty-env", 1, true, false, true),
    ] {
        let marker = marker(faulty_server);
        let mut client = ZooClient::meet_with(&[faulty_server, "--marker", &marker]);
        client.shake_hands();
        let session = stat(client.pid(), SESSION);
        client.close_stdin();
        assert!(client.end().success(), "{faulty_server}");
        // Between fork and exec a child still has its parent's words and session.
        let left = wait_until("those left behind are all there, each in a session of its own", || {
            let left = marked("lingers", &marker);
            let sessions: BTreeSet<_> = left.iter().map(|pid| stat(*pid, SESSION)).collect();
            (left.len() == count && sessions.len() == count).then_some(left)
        });
        for pid in &left {
            assert_eq!(stat(*pid, SESSION) != session, apart, "{faulty_server}: session");
            let output = std::fs::read_link(format!("/proc/{pid}/fd/1")).expect("the child lives");
            assert_eq!(output.to_string_lossy().starts_with("pipe:"), holding, "{faulty_server}: stdout");
            let environment = std::fs::read(format!("/proc/{pid}/environ")).expect("the child lives");
            assert_eq!(environment.is_empty(), bare, "{faulty_server}: environment");
        }
        clear(&marker);
    }
}

#[test]
fn new_sessions_are_forked_again_and_again() {
    let marker = marker("forks");
    let mut client = ZooClient::meet_with(&["forks-forever", "--marker", &marker]);
    client.shake_hands();
    client.close_stdin();
    assert!(client.end().success());
    let mut seen = BTreeSet::new();
    wait_until("generation after generation is seen", || {
        seen.extend(marked("hops", &marker));
        (seen.len() >= 2).then_some(())
    });
    wait_until("the last one stays", || marked("lingers", &marker).first().copied());
    clear(&marker);
}

/// The session in `/proc/PID/stat`, counted from the state.
const SESSION: usize = 3;

/// Whether the main thread of a process waits in a system call whose kernel function has `word` in its name, or, where the
/// kernel does not tell, whether it sleeps.
fn in_call(pid: u32, word: &str) -> bool {
    let wait_channel = std::fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
    if wait_channel.is_empty() || wait_channel == "0" {
        stat(pid, 0) == "S"
    } else {
        wait_channel.contains(word)
    }
}

/// Whether a signal waits to be taken by a process.
fn pending(pid: u32, kind: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().filter_map(|line| line.strip_prefix("ShdPnd:").or(line.strip_prefix("SigPnd:"))).any(
        |mask| u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask >> (kind.as_raw() - 1) & 1 == 1),
    )
}

fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

impl ZooClient {
    fn shake_silently(&mut self) {
        self.request(0, "initialize", &introduction());
        self.notify("notifications/initialized", &Value::Null);
    }
}

#[test]
fn a_line_that_is_no_message_is_the_end() {
    let mut client = ZooClient::meet("dies-on-garbage");
    client.shake_hands();
    assert_eq!(client.call_text(1, "echo", &json!({"text": "hello"})), "hello");
    client.say(&json!("no message"));
    assert_eq!(client.end().code(), Some(1));
    assert!(client.last_words().contains("JSONDecodeError"));
}

#[test]
fn tools_that_are_none_are_listed() {
    let mut client = ZooClient::meet("faulty-tools");
    client.shake_hands();
    client.request(1, "tools/list", &json!({}));
    let tools = client.answer(1)["result"]["tools"].take();
    assert_eq!((&tools[0]["name"], &tools[1]["name"]), (&json!("twice"), &json!("twice")));
    assert!(tools[2].get("inputSchema").is_none(), "{tools}");
    client.close_stdin();
    assert!(client.end().success());
}
