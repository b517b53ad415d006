//! The servers with several vices at once: each of the vices shows.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::zoo_client::{self, ZooClient, clear, introduction, marked, marker, signal, wait_until};

#[test]
fn both_pipes_are_flooded_by_the_dying() {
    let mut client = ZooClient::meet("flood-while-dying 3000");
    client.shake_hands();
    client.call(1, "echo", &json!({}));
    for number in 1..=3000 {
        assert_eq!(client.json()["params"]["data"], format!("message {number} of 3000"));
    }
    assert_eq!(client.line().as_deref(), Some(&b"{\"jsonrpc\":\"2.0\",\"id\":"[..]));
    assert_eq!(client.end().code(), Some(1));
    assert_eq!(client.last_words().len(), 300_000);
}

#[test]
fn an_answer_that_nobody_takes_is_deadly() {
    let mut client = ZooClient::meet("dies-held-back 300000");
    client.shake_hands();
    assert_eq!(client.call_text(1, "echo", &json!({})).len(), 300_000);

    let mut child = zoo_client::start(&["dies-held-back", "3000000"]);
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo"}});
    child.stdin.as_mut().expect("piped").write_all(format!("{call}\n").as_bytes()).expect("it reads");
    let status = wait_until("its death", || child.try_wait().expect("the child can be asked"));
    assert_eq!(status.signal(), Some(Signal::KILL.as_raw()));
    let mut begun = Vec::new();
    child.stdout.take().expect("piped").read_to_end(&mut begun).expect("what is in the pipe can be read");
    assert!(begun.len() < 3_000_000, "{} bytes", begun.len());
}

#[test]
fn a_flood_from_the_deaf() {
    let mut client = ZooClient::meet("deaf-flood 100");
    client.request(0, "initialize", &introduction());
    for _ in 0..100 {
        assert_eq!(client.json()["method"], "notifications/message");
    }
    assert!(!client.has_line() && !client.has_ended());
}

#[test]
fn one_and_a_half_answers() {
    let mut client = ZooClient::meet("answers-then-dies-in-the-next");
    client.shake_hands();
    client.call(1, "echo", &json!({"text": "one"}));
    client.call(2, "echo", &json!({"text": "two"}));
    assert_eq!(client.answer(1)["result"]["content"][0]["text"], "one");
    assert!(client.line().is_some_and(|line| !line.ends_with(b"\n")));
    assert_eq!(client.end().code(), Some(1));
}

#[test]
fn a_cancellation_opens_the_flood() {
    let mut client = ZooClient::meet("floods-after-cancel 50");
    client.shake_hands();
    client.call(1, "echo", &json!({"text": "late"}));
    client.request(2, "ping", &json!({}));
    assert_eq!(client.json()["id"], 2, "nothing comes before");
    client.notify("notifications/cancelled", &json!({"requestId": 1}));
    for number in 1..=50 {
        let progress = client.json();
        assert_eq!(
            (&progress["params"]["progressToken"], &progress["params"]["progress"]),
            (&json!(1), &json!(number))
        );
    }
    assert_eq!(client.answer(1)["result"]["content"][0]["text"], "late");
}

#[test]
fn a_family_ignores_everything() {
    let marker = marker("family");
    let mut client = ZooClient::meet_with(&["family-ignores-everything", "--marker", &marker]);
    client.shake_hands();
    let family =
        wait_until("both descendants", || Some(marked("lingers", &marker)).filter(|found| found.len() == 2));
    client.close_stdin();
    for pid in family.iter().chain([&client.pid()]) {
        [Signal::TERM, Signal::HUP, Signal::INT].iter().for_each(|kind| signal(*pid, *kind));
    }
    assert!(!client.has_ended());
    assert_eq!(marked("lingers", &marker), family);
    signal(client.pid(), Signal::KILL);
    client.end();
    clear(&marker);
}

#[test]
fn the_dead_are_printed_for() {
    let marker = marker("prints");
    let mut client = ZooClient::meet_with(&["prints-after-death", "--marker", &marker]);
    client.shake_hands();
    client.call(7, "echo", &json!({}));
    assert_eq!(client.end().code(), Some(1));
    for _ in 0..3 {
        assert_eq!(client.answer(8)["result"]["content"][0]["text"], "from beyond");
    }
    clear(&marker);
}

/// Files of one test, removed at its end.
struct Files(Vec<PathBuf>);

impl Drop for Files {
    fn drop(&mut self) {
        for file in &self.0 {
            let _ = std::fs::remove_file(file);
        }
    }
}

/// Starts a faulty server that counts its starts once, which goes well, and once more.
fn restart(faulty_server: &str, more: &[&str]) -> (ZooClient, Files) {
    let file = std::env::temp_dir().join(marker(faulty_server));
    let path = file.to_str().expect("a plain path").to_owned();
    let words = [&[faulty_server, "--count-file", &path], more].concat();
    let mut first = ZooClient::meet_with(&words);
    first.shake_hands();
    assert_eq!(first.call_text(1, "pid", &json!({})), first.pid().to_string());
    (ZooClient::meet_with(&words), Files(vec![file]))
}

#[test]
fn second_starts_disappoint() {
    let (mut silent, _files) = restart("restarts-silent", &[]);
    silent.request(0, "initialize", &introduction());
    silent.close_stdin();
    assert!(silent.end().success());
    assert!(silent.line().is_none());

    let (mut refusing, _files) = restart("restarts-refusing", &[]);
    refusing.request(0, "initialize", &introduction());
    assert_eq!(refusing.answer(0)["error"]["message"], "the database is locked");

    let (mut dying, _files) = restart("restarts-dying", &[]);
    assert!(dying.shake_hands()["result"].is_object());
    assert_eq!(dying.end().code(), Some(1));
}

#[test]
fn a_second_start_waits_to_be_let_go() {
    let go = std::env::temp_dir().join(marker("go"));
    let until = go.to_str().expect("a plain path").to_owned();
    std::fs::write(&go, "").expect("the file can be written");
    let (mut second, mut files) = restart("restarts-slowly", &["--until", &until]);
    files.0.push(go.clone());
    assert!(second.shake_hands()["result"].is_object());

    std::fs::remove_file(&go).expect("the file can be removed");
    let path = files.0[0].to_str().expect("a plain path").to_owned();
    let mut third = ZooClient::meet_with(&["restarts-slowly", "--count-file", &path, "--until", &until]);
    third.request(0, "initialize", &introduction());
    let starts = || std::fs::read_to_string(&path).map_or(0, |text| text.lines().count());
    wait_until("the third start", || (starts() == 3).then_some(()));
    assert!(!third.has_line());
    std::fs::write(&go, "").expect("the file can be written");
    let answer: Value = third.answer(0);
    assert!(answer["result"].is_object());
}
