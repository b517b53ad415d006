//! Promise 3: no pipe is ever left unread, the two directions never wait for each other, and memory is bounded.
//!
//! Memory is the peak of the guard and of its lifeline each, as the kernel kept it. The figures are printed.

#![expect(clippy::disallowed_methods, reason = "that an end comes in time is part of the promise")]

use std::{
    collections::HashMap,
    fs,
    io::Read,
    process::ChildStdout,
    sync::mpsc::sync_channel,
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    harness::{Client, PATIENCE, Sandbox, figure, lab_program, memory, peak_memory, server_pid, wait_until},
    processes::{bytes_read, lifeline},
    talk::assert_stays,
    terminal::terminal,
};

/// What unhang may use at its worst, in bytes (design 1, promise 3).
const WORST: u64 = 100 << 20;
/// What it may use with messages up to 1 MiB (design 8). A debug build has several times the code in memory, in both processes,
/// which is not what the bar is about: there code is not counted, see [`Watched::assert_little`].
const ORDINARY: u64 = 12 << 20;
/// Formatting a line for the log takes ten times as long in a debug build, so it is flooded with less there.
const FLOOD_OF_LINES: u64 = if cfg!(debug_assertions) { 32_000_000 } else { 64_000_000 };
/// 1 GB as the promise has it, or what a debug build can drain in a few seconds.
const FLOOD_IN_ONE_LINE: u64 = if cfg!(debug_assertions) { 100_000_000 } else { 1_000_000_000 };
/// One call of the flooded servers may take this long in a debug build.
const FLOODED: Duration = Duration::from_secs(60);

/// The guard and its lifeline of one test.
struct Watched {
    guard: i32,
    lifeline: i32,
}

impl Watched {
    fn new(client: &Client) -> Watched {
        Watched { guard: client.pid(), lifeline: lifeline(client) }
    }

    /// Peak memory of both together in bytes; each has to be alive.
    #[track_caller]
    fn peak(&self, what: &str) -> u64 {
        let [guard, lifeline] = [self.guard, self.lifeline]
            .map(|pid| peak_memory(pid).expect("both are there as long as the server is"));
        figure(&format!(
            "{what}: guard {:.1} MiB, lifeline {:.1} MiB",
            mebibytes(guard),
            mebibytes(lifeline)
        ));
        guard + lifeline
    }

    /// Demands that little is kept. Of a debug build what is mapped from files is left out: that is code, and what is kept of a flood is
    /// none; the limit is the bar itself there, for everything else is as large as in a release.
    #[track_caller]
    fn assert_little(&self, what: &str, limit: u64) {
        let (mut peak, mut limit) = (self.peak(what), limit);
        if cfg!(debug_assertions) {
            let code = |pid| memory(pid, "RssFile:").expect("both are there as long as the server is");
            peak -= code(self.guard) + code(self.lifeline);
            limit = ORDINARY;
        }
        assert!(peak <= limit, "{what}: {:.1} MiB", mebibytes(peak));
    }

    #[track_caller]
    fn assert_bounded(&self, what: &str, limit: u64) {
        let peak = self.peak(what);
        assert!(peak <= limit, "{what}: {:.1} MiB", mebibytes(peak));
    }
}

fn mebibytes(bytes: u64) -> f64 {
    f64::from(u32::try_from(bytes >> 10).expect("less than 4 TiB")) / 1024.0
}

/// Demands the answer to one call of `echo`.
#[track_caller]
fn echoes(client: &mut Client, text: &str) {
    assert_eq!(client.tool_text("echo", json!({"text": text})), text);
}

/// Demands exactly one answer to each request, and returns the error code of each (0 for a result).
#[track_caller]
fn one_answer_each(client: &mut Client, ids: &[i64]) -> HashMap<i64, i64> {
    let mut codes = HashMap::new();
    while codes.len() < ids.len() {
        let message = client.find("further answer", |message| message.get("method").is_none());
        let id = message["id"].as_i64().unwrap_or_else(|| panic!("a strange id: {message:.300}"));
        assert!(ids.contains(&id), "nobody asked {id}");
        let code = message["error"]["code"].as_i64().unwrap_or_default();
        assert_eq!(codes.insert(id, code), None, "{id} was answered twice");
    }
    codes
}

#[test]
fn l_05_a_mebibyte_of_stderr_before_each_answer() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["stderr-flood", "1048576"]);
    client.initialize();
    for round in 0..5 {
        echoes(&mut client, &round.to_string());
    }
    client.finish();
}

#[test]
fn a_flood_of_stderr_lines() {
    drains("stderr-flood", FLOOD_OF_LINES);
}

/// Drained by bytes, never by lines (contract 3.3).
#[test]
fn a_flood_of_stderr_in_one_line() {
    drains("stderr-giant-line", FLOOD_IN_ONE_LINE);
}

/// Demands that a call gets through behind so much stderr, and that memory stays bounded.
#[track_caller]
fn drains(faulty_server: &str, bytes: u64) {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&["--call-timeout", "2m"], &[faulty_server, &bytes.to_string()]);
    client.initialize();
    let watched = Watched::new(&client);
    let start = Instant::now();
    let id = client.call("echo", json!({"text": "through"}));
    let answer = client.answer_within(id, FLOODED);
    figure(&format!("{bytes} bytes of stderr took {:?}", start.elapsed()));
    assert_eq!(answer["result"]["content"][0]["text"], "through");
    // Below what a debug build is flooded with, so that a flood that is kept shows; far below the promise.
    watched.assert_little("a flood of stderr", 28 << 20);
    client.finish();
}

#[test]
fn a_giant_line_on_stderr_stops_nothing() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["stderr-giant-line", "200000"]);
    client.initialize();
    for round in 0..3 {
        echoes(&mut client, &round.to_string());
    }
    client.finish();
}

#[test]
fn r_29_a_dying_server_is_drained_to_its_last_words() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["stderr-flood-while-dying", "1048576"]);
    client.initialize();
    let id = client.call("echo", json!({"text": "never"}));
    let error = client.answer(id)["error"].take();
    assert_eq!(error["code"], -31002, "{error}");
    let tail = error["data"]["stderrTail"].as_array().expect("a tail");
    assert_eq!(tail.last().expect("lines"), "the last words", "{tail:?}");
    client.finish();
}

#[test]
fn our_own_stderr_is_never_waited_for() {
    for (flags, bytes) in [(&[][..], "10000000"), (&["-v"], "2000000")] {
        let sandbox = Sandbox::new();
        let mut command = sandbox.unhang();
        command.arg("wrap").args(flags).args(["--", lab_program(), "zoo", "stderr-flood", bytes]);
        let (mut client, unread) = Client::start_unheard(command);
        client.initialize();
        let watched = Watched::new(&client);
        echoes(&mut client, "one");
        echoes(&mut client, "two");
        // What nobody takes is dropped, not kept: 20 MB would show.
        watched.assert_little("20 MB of stderr, ours unread", ORDINARY.max(24 << 20));
        let start = Instant::now();
        client.finish();
        assert!(start.elapsed() < Duration::from_secs(5), "the end waited for a stderr that nobody reads");
        drop(unread);
    }
}

/// Waits until the guard has read so much, without reading from it ourselves.
#[track_caller]
fn wait_until_read(client: &Client, bytes: u64) {
    let guard = client.pid();
    wait_until(&format!("{bytes} bytes were read by the guard"), FLOODED, || bytes_read(guard) >= bytes);
}

fn start_unread(sandbox: &Sandbox, flags: &[&str], faulty_server: &[&str]) -> (Client, ChildStdout) {
    Client::start_unread(sandbox.wrap_command(flags, faulty_server))
}

/// What `notification-flood` sends, in its shortest form.
const LOG_LINE: &str = concat!(
    r#"{"jsonrpc":"2.0","method":"notifications/message","#,
    r#""params":{"data":"message 1 of 200000","level":"info","logger":"zoo"}}"#,
    "\n"
);

#[test]
fn x_01_two_hundred_thousand_notifications_to_a_client_that_does_not_read() {
    const COUNT: usize = 200_000;
    let sandbox = Sandbox::new();
    let (mut client, stdout) = start_unread(&sandbox, &[], &["notification-flood", &COUNT.to_string()]);
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
    let mut ids = vec![client.request("initialize", params)];
    ids.push(client.call("echo", json!({"text": "behind the flood"})));
    ids.extend((0..10).map(|_| client.request("ping", json!({}))));
    wait_until_read(&client, (LOG_LINE.len() * COUNT) as u64);
    let watched = Watched::new(&client);
    let mut client = client.reading(stdout);
    let codes = one_answer_each(&mut client, &ids);
    assert!(codes.values().all(|code| *code == 0), "{codes:?}");
    watched.assert_bounded("200,000 notifications", WORST);
    let answered: Vec<i64> = client.seen().iter().filter_map(|message| message["id"].as_i64()).collect();
    assert_eq!(answered, ids, "answers came in the order of the server");
    let numbers = log_numbers(client.seen());
    assert!(numbers.is_sorted_by(|one, next| one < next), "order is kept among those that came");
    assert!(numbers.len() < COUNT, "the flood was shed, not stored");
    figure(&format!("{} of {COUNT} notifications came through", numbers.len()));
    client.finish();
}

/// The numbers of `message 7 of 10` in the order of arrival.
fn log_numbers(seen: &[Value]) -> Vec<u64> {
    let texts = seen.iter().filter_map(|message| message["params"]["data"].as_str());
    texts.filter_map(|text| text.split(' ').nth(1)?.parse().ok()).collect()
}

/// Answers are never shed, so the server is held back instead (`wrap` has one client).
#[test]
fn a_client_that_does_not_read_holds_its_server_back() {
    let sandbox = Sandbox::new();
    let (mut client, stdout) =
        start_unread(&sandbox, &["--queue-bytes", "4MiB"], &["giant-answer", "1000000"]);
    let ids: Vec<i64> = (0..60).map(|_| client.call("any", json!({}))).collect();
    wait_until_read(&client, 4 << 20);
    let watched = Watched::new(&client);
    // A guard that reads on has all 60 MB before long.
    assert_stays("the server is held back", Duration::from_secs(1), || bytes_read(watched.guard) < 16 << 20);
    let mut client = client.reading(stdout);
    let codes = one_answer_each(&mut client, &ids);
    assert!(codes.values().all(|code| *code == 0), "{codes:?}");
    watched.assert_bounded("60 MB of answers to a client that does not read", 40 << 20);
    client.finish();
}

/// What a server wrote is in the pipe when it dies, and is read although the client is slow.
#[test]
fn answers_of_a_server_that_was_held_back_when_it_died_arrive() {
    let sandbox = Sandbox::new();
    let (mut client, stdout) = start_unread(&sandbox, &["--queue-bytes", "500KiB"], &["well-behaved"]);
    let handshake = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
    let mut ids = vec![client.request("initialize", handshake)];
    // More than the client's pipe and the queue hold, and less than what stops the guard from reading the client.
    ids.push(client.call("big", json!({"bytes": 800_000})));
    wait_until_read(&client, 800_000);
    // These fit into the pipe that is not read any more.
    ids.push(client.call("big", json!({"bytes": 20_000})));
    ids.push(client.call("big", json!({"bytes": 20_000})));
    ids.push(client.call("echo", json!({"text": "the last one"})));
    ids.push(client.call("die", json!({"code": 9})));
    client.wait_for_notice("ended unexpectedly");
    let mut client = client.reading(stdout);
    let codes = one_answer_each(&mut client, &ids);
    let in_order: Vec<_> = ids.iter().map(|id| codes[id]).collect();
    assert_eq!(in_order, [0, 0, 0, 0, 0, -31002]);
    client.finish();
}

/// Neither answers that nobody takes nor a server that is stuck in a write hold the end up.
#[test]
fn a_client_that_does_not_read_does_not_hold_the_end_up() {
    for (signal, code) in [(None, 0), (Some(Signal::TERM), 143)] {
        let sandbox = Sandbox::new();
        let flags = ["--eof-grace", "300ms", "--stop-grace", "200ms", "--queue-bytes", "4MiB"];
        let (mut client, unread) = start_unread(&sandbox, &flags, &["giant-answer", "1000000"]);
        for _ in 0..20 {
            client.call("any", json!({}));
        }
        wait_until_read(&client, 4 << 20);
        let start = Instant::now();
        match signal {
            Some(signal) => client.signal(signal),
            None => client.close_stdin(),
        }
        assert_eq!(client.exit_code(), code, "{signal:?}: {}", client.stderr());
        figure(&format!("end before a client that does not read, {signal:?}: {:?}", start.elapsed()));
        assert!(start.elapsed() < Duration::from_secs(5), "{signal:?}: {:?}", start.elapsed());
        sandbox.assert_nothing_left_within(Duration::from_secs(5));
        drop(unread);
    }
}

/// A terminal takes 4 KiB and has a thread of ours waiting in its place.
#[test]
fn a_terminal_that_nobody_reads_does_not_hold_the_end_up() {
    let sandbox = Sandbox::new();
    let (master, terminal) = terminal();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut command = sandbox.unhang();
    command.args(["wrap", "--", lab_program(), "zoo", "giant-answer", "3000000"]);
    let mut client = Client::start_on(command, reader.into(), terminal.into(), writer);
    for _ in 0..3 {
        client.call("any", json!({}));
    }
    wait_until_read(&client, 3 << 20);
    let start = Instant::now();
    client.signal(Signal::TERM);
    assert_eq!(client.exit_code(), 143, "{}", client.stderr());
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    drop(master);
}

#[test]
fn a_line_of_two_hundred_megabytes() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&["--call-timeout", "2m"], &["giant-line-no-newline", "200000000"]);
    client.initialize();
    let watched = Watched::new(&client);
    let start = Instant::now();
    let id = client.call("echo", json!({"text": "behind it"}));
    let answer = client.answer_within(id, FLOODED);
    figure(&format!("200 MB took {:?}", start.elapsed()));
    // Text is not taken for an answer, however long it is.
    assert_eq!(answer["result"]["content"][0]["text"], "behind it", "{answer:.500}");
    watched.assert_bounded("a line of 200 MB", WORST);
    // Every call has such a line in front of it, so the next request is another.
    let id = client.request("tools/list", json!({}));
    assert!(client.answer(id)["result"]["tools"].is_array(), "the stream has found its feet again");
    assert_eq!(client.answers_to(id - 1), 1, "the true answer, which came behind, is the only one");
    client.finish();
}

#[test]
fn an_answer_over_the_limit_is_answered_and_the_next_call_works() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&["--max-message", "1MiB"], &["well-behaved"]);
    client.initialize();
    let too_large = client.call("big", json!({"bytes": 3 << 20}));
    let other = client.call("echo", json!({"text": "beside it"}));
    assert_eq!(client.answer(too_large)["error"]["code"], -31006);
    assert_eq!(client.answer(other)["result"]["content"][0]["text"], "beside it");
    assert_eq!(client.tool_text("big", json!({"bytes": 1 << 19})).len(), 1 << 19);
    client.finish();
}

#[test]
fn a_server_that_never_reads_is_bounded_and_ends_in_time() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&["--eof-grace", "500ms", "--stop-grace", "200ms"], &["never-reads-stdin"]);
    let text = "x".repeat(1 << 20);
    let ids: Vec<i64> = (0..32).map(|_| client.call("echo", json!({"text": text}))).collect();
    let watched = Watched::new(&client);
    let refused = client.find("refusal", |message| message["error"]["code"] == -31005);
    assert_eq!(refused["error"]["data"]["kind"], "overloaded");
    // The 32nd is far over the limit, so its refusal says that all were read.
    client.answer(ids[31]);
    watched.assert_bounded("32 MiB for a server that does not read", WORST);
    let start = Instant::now();
    client.close_stdin();
    client.drain();
    // It never answered anything.
    assert_eq!(client.exit_code(), 4, "{:.2000}", client.stderr());
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    for id in ids {
        assert_eq!(client.answers_to(id), 1, "answers to {id}");
    }
}

/// Does what may block for ever in a thread of its own, which the end of the test's processes ends too.
#[track_caller]
fn within<T: Send + 'static>(what: &str, limit: Duration, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, done) = sync_channel(1);
    thread::spawn(move || sender.send(work()));
    done.recv_timeout(limit).unwrap_or_else(|error| panic!("{what}: not within {limit:?} ({error})"))
}

/// The classic deadlock: a server that writes before it reads on, a client that writes before it reads on.
#[test]
fn both_directions_full_at_the_same_time() {
    let sandbox = Sandbox::new();
    let (mut client, stdout) = start_unread(&sandbox, &["--queue-bytes", "4MiB"], &["json-logs", "2000"]);
    let text = "x".repeat(1 << 20);
    // All of it is taken although nobody has read a byte yet.
    let (client, ids) = within("40 MiB of requests are taken", FLOODED, move || {
        let ids: Vec<i64> = (0..40).map(|_| client.call("echo", json!({"text": text}))).collect();
        (client, ids)
    });
    let watched = Watched::new(&client);
    let mut client = client.reading(stdout);
    let codes = one_answer_each(&mut client, &ids);
    figure(&format!("{} of 40 were refused", codes.values().filter(|code| **code == -31005).count()));
    assert!(codes.values().all(|code| [0, -31005].contains(code)), "{codes:?}");
    assert!(codes.values().any(|code| *code == 0), "some got through");
    watched.assert_bounded("both directions full", WORST);
    client.finish();
}

#[test]
fn big_requests_and_results_pass_unchanged() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.initialize();
    for size in [1 << 20, 10 << 20] {
        // Every byte differs from its neighbours, and quotes and umlauts need care.
        let text: String = "abc \"quoted\" äöü \\ ".chars().cycle().take(size).collect();
        assert!(client.tool_text("echo", json!({"text": text})) == text, "{size} bytes came back changed");
    }
    for size in [1_000_000, 10_000_000] {
        let text = client.tool_text("big", json!({"bytes": size}));
        assert!(text.len() == size && text.bytes().all(|byte| byte == b'x'), "{size} bytes were asked for");
    }
    client.finish();
}

/// A read that takes exactly what was there leaves the question open whether there is more.
#[test]
fn a_read_that_fills_the_room_is_not_the_end_of_the_stream() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.initialize();
    for exponent in 12..=18 {
        // The whole line has a power of two of bytes, as buffers have.
        let request = |text: &str| {
            let params = json!({"name": "echo", "arguments": {"text": text}});
            json!({"jsonrpc": "2.0", "id": exponent, "method": "tools/call", "params": params}).to_string()
        };
        let text = "x".repeat((1 << exponent) - request("").len() - 1);
        client.send(&request(&text));
        assert_eq!(client.answer(exponent)["result"]["content"][0]["text"], text);
    }
    client.finish();
}

#[test]
fn notifications_keep_their_order_and_come_before_the_answer() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.initialize();
    let before = client.seen().len();
    client.tool_text("log", json!({"count": 5000}));
    let numbers = log_numbers(&client.seen()[before..]);
    assert!(numbers.iter().copied().eq(1..=5000), "{} came", numbers.len());
    client.finish();
}

#[test]
fn ordinary_work_needs_little_memory() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.initialize();
    let watched = Watched::new(&client);
    let text = "x".repeat(1 << 20);
    for _ in 0..20 {
        assert_eq!(client.tool_text("echo", json!({"text": text})).len(), text.len());
    }
    for _ in 0..200 {
        echoes(&mut client, "small");
    }
    client.tool_text("stderr", json!({"bytes": 200_000}));
    watched.assert_little("messages up to 1 MiB", ORDINARY);
    client.finish();
}

/// A server that has closed its stdout tells nobody anything; one whose stdout is held by a grandchild ends all the same.
#[test]
fn the_end_of_a_pipe_is_never_waited_for() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["leaves-grandchild", "--marker", sandbox.marker()]);
    client.initialize();
    let server = server_pid(&mut client);
    let start = Instant::now();
    crate::harness::signal(server, Signal::KILL);
    wait_until("the guard knows", PATIENCE, || client.stderr().contains("ended unexpectedly"));
    // The grandchild holds the dead server's stdout and stderr for two minutes.
    echoes(&mut client, "a new server");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    client.finish();
}

/// The sweep ends whatever the server left; somebody else may have its pipes all the same.
#[test]
fn a_dead_servers_pipes_in_foreign_hands_hold_nothing_up() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.initialize();
    let server = server_pid(&mut client);
    let held = [1, 2].map(|number| {
        let pipe = format!("/proc/{server}/fd/{number}");
        fs::File::options().write(true).open(pipe).expect("its pipe can be opened again")
    });
    crate::harness::signal(server, Signal::KILL);
    wait_until("the guard knows", Duration::from_secs(10), || client.stderr().contains("ended unexpectedly"));
    echoes(&mut client, "a new server");
    client.finish();
    drop(held);
}

/// What is left in a pipe that nobody has read from the start.
#[test]
fn answers_reach_a_client_that_reads_only_at_the_end() {
    let sandbox = Sandbox::new();
    let (mut client, mut stdout) = start_unread(&sandbox, &[], &["well-behaved"]);
    client.request("ping", json!({}));
    client.close_stdin();
    assert_eq!(client.exit_code(), 0);
    let mut text = String::new();
    stdout.read_to_string(&mut text).expect("text");
    assert_eq!(serde_json::from_str::<Value>(&text).expect("one message")["id"], 1);
}
