//! The machine driven without a process: every event by hand, time as a number (R-10, R-37).

use std::time::Duration;

use serde_json::Value;
use unhang_proc::server::{Exit, Swept};
use unhang_wire::Lines;

use super::machine::{Action, Machine, Outside};
use crate::{config::Limits, exit, queue::Class};

/// Records what the machine does.
#[derive(Default)]
struct Fake {
    client: Vec<(Class, String)>,
    server: Vec<String>,
    shown: Vec<String>,
    client_backlog: usize,
    server_backlog: usize,
}

impl Outside for Fake {
    fn to_client(&mut self, class: Class, line: &[u8]) {
        self.client.push((class, String::from_utf8(line.to_vec()).unwrap()));
    }
    fn to_server(&mut self, line: &[u8]) {
        self.server.push(String::from_utf8(line.to_vec()).unwrap());
    }
    fn client_backlog(&self) -> usize {
        self.client_backlog
    }
    fn server_backlog(&self) -> usize {
        self.server_backlog
    }
    fn stderr_tail(&self) -> Vec<String> {
        vec!["last words".to_owned()]
    }
    fn processor_time(&self) -> Option<Duration> {
        None
    }
    fn show(&mut self, text: &str) {
        self.shown.push(text.to_owned());
    }
}

/// A machine, its world and a clock.
struct Guarded {
    machine: Machine,
    world: Fake,
    now: Duration,
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

impl Guarded {
    fn new(limits: Limits) -> Guarded {
        let machine = Machine::new("srv", limits, 1);
        let mut guarded = Guarded { machine, world: Fake::default(), now: Duration::ZERO };
        assert_eq!(guarded.actions(), [Action::StartServer]);
        guarded.machine.server_spawned(guarded.now, &mut guarded.world);
        guarded
    }

    /// A session that has shaken hands, with everything said so far taken away.
    fn shaken(limits: Limits) -> Guarded {
        Guarded::shaken_as(limits, INITIALIZE, "2025-11-25")
    }

    fn shaken_as(limits: Limits, initialize: &str, version: &str) -> Guarded {
        let mut guarded = Guarded::new(limits);
        guarded.client(initialize);
        guarded.server(&format!(r#"{{"jsonrpc":"2.0","id":0,"result":{{"protocolVersion":"{version}"}}}}"#));
        guarded.client(INITIALIZED);
        guarded.heard();
        guarded.said();
        guarded
    }

    fn client(&mut self, line: &str) {
        let mut lines = Lines::new(self.machine.limits.max_message);
        lines.push(line.as_bytes());
        lines.push(b"\n");
        while let Some(line) = lines.next_line() {
            self.machine.client_line(self.now, line, &mut self.world);
        }
    }

    fn server(&mut self, line: &str) {
        let mut lines = Lines::new(self.machine.limits.max_message);
        lines.push(line.as_bytes());
        lines.push(b"\n");
        while let Some(line) = lines.next_line() {
            self.machine.server_line(self.now, line, &mut self.world);
        }
    }

    fn call(&mut self, id: u64) {
        self.request(id, "tools/call");
    }

    fn request(&mut self, id: u64, method: &str) {
        self.client(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"name":"t"}}}}"#));
    }

    fn answer(&mut self, id: u64) {
        self.server(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
    }

    /// Time passes, with every tick that is due on the way.
    fn wait(&mut self, length: Duration) {
        let end = self.now + length;
        while let Some(tick) = self.machine.next_tick().filter(|tick| *tick <= end) {
            self.now = self.now.max(tick);
            self.machine.tick(self.now, &mut self.world);
            self.start_if_asked();
        }
        self.now = end;
    }

    fn start_if_asked(&mut self) {
        let actions = self.actions();
        for action in actions {
            match action {
                Action::StartServer => self.machine.server_spawned(self.now, &mut self.world),
                other => self.machine.actions.push_back(other),
            }
        }
    }

    fn dies(&mut self) {
        self.machine.server_exited(self.now, &Exit::Code(1), &mut self.world);
        self.machine.server_gone(self.now, Swept { leaked: 0, unkilled: 0 }, &mut self.world);
    }

    fn ends(&mut self) {
        self.machine.client_end(self.now, &mut self.world);
    }

    fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.machine.next_action()).collect()
    }

    /// What the client has heard since the last look.
    fn heard(&mut self) -> Vec<Value> {
        self.world.client.drain(..).map(|(_, line)| serde_json::from_str(&line).unwrap()).collect()
    }

    /// What the server was told since the last look.
    fn said(&mut self) -> Vec<Value> {
        self.world.server.drain(..).map(|line| serde_json::from_str(&line).unwrap()).collect()
    }

    /// The only thing that the client has heard: an error of this code for this id.
    #[track_caller]
    fn heard_fault(&mut self, id: impl Into<Value>, code: i32) -> Value {
        let heard = self.heard();
        assert_eq!(heard.len(), 1, "{heard:?}");
        assert_eq!(
            (&heard[0]["id"], &heard[0]["error"]["code"]),
            (&id.into(), &Value::from(code)),
            "{heard:?}"
        );
        heard[0]["error"].clone()
    }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn messages_pass_unchanged_both_ways() {
    let mut guarded = Guarded::new(Limits::default());
    let strange =
        r#"{"id":"a\u0062","method":"x/y","params":{"z":1.50,"a":[1e3]},"jsonrpc":"2.0","extra":true}"#;
    guarded.client(strange);
    assert_eq!(guarded.world.server, [strange]);
    let answer = r#"{ "result" : {"big":12345678901234567890,"dup":1,"dup":2}, "id":"ab","jsonrpc":"2.0"}"#;
    guarded.server(answer);
    assert_eq!(guarded.world.client, [(Class::Kept, answer.to_owned())]);
    assert_eq!(guarded.machine.in_flight(), 0);
}

#[test]
fn promise_1_garbage_is_answered_here_and_never_forwarded() {
    let mut guarded = Guarded::shaken(Limits::default());
    let cases: &[(&str, Value, i32)] = &[
        ("garbage", Value::Null, -32700),
        (r#"{"jsonrpc":"2.0","id":5,"method":"#, 5.into(), -32700),
        ("42", Value::Null, -32600),
        (r#"{"some":"object"}"#, Value::Null, -32600),
        (r#"{"jsonrpc":"1.0","id":3,"method":"ping"}"#, 3.into(), -32600),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, Value::Null, -32600),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, 1.5.into(), -32600),
        (r#"{"jsonrpc":"2.0","id":7,"method":7}"#, 7.into(), -32600),
        (r#"[{"jsonrpc":"2.0","id":8,"method":"ping"}]"#, Value::Null, -32600),
    ];
    for (line, id, code) in cases {
        guarded.client(line);
        guarded.heard_fault(id.clone(), *code);
        assert!(guarded.said().is_empty(), "{line}");
    }
}

#[test]
fn a_repeated_id_is_refused_while_it_is_in_flight() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.call(1);
    guarded.call(1);
    assert_eq!(guarded.said().len(), 1);
    guarded.heard_fault(1, -32600);
    guarded.answer(1);
    assert_eq!(guarded.heard().len(), 1);
    guarded.call(1);
    guarded.answer(1);
    assert_eq!(guarded.heard().len(), 1, "after the answer the id may be used again");
}

#[test]
fn promise_1_a_call_ends_at_its_deadline_and_a_late_answer_goes_nowhere() {
    let mut guarded = Guarded::shaken(Limits { call_timeout: seconds(5), ..Limits::default() });
    guarded.call(1);
    guarded.wait(seconds(4));
    assert!(guarded.heard().is_empty());
    guarded.wait(seconds(1));
    let error = guarded.heard_fault(1, -31001);
    assert_eq!(error["data"]["limitMs"], 5000);
    assert_eq!(guarded.said().last().unwrap()["method"], "notifications/cancelled");
    guarded.answer(1);
    assert!(guarded.heard().is_empty());
    assert_eq!(guarded.machine.counters().late_answers, 1);
}

#[test]
fn a_reused_id_whose_late_answer_may_still_come_is_renamed() {
    let mut guarded = Guarded::shaken(Limits { call_timeout: seconds(5), ..Limits::default() });
    guarded.call(1);
    guarded.wait(seconds(5));
    guarded.heard();
    guarded.said();
    guarded.call(1);
    let wire_id = guarded.said()[0]["id"].clone();
    assert_ne!(wire_id, 1);
    guarded.answer(1);
    assert!(guarded.heard().is_empty(), "that was the late answer to the first");
    guarded.server(&format!(r#"{{"jsonrpc":"2.0","id":{wire_id},"result":{{"second":true}}}}"#));
    let heard = guarded.heard();
    assert_eq!((&heard[0]["id"], &heard[0]["result"]["second"]), (&1.into(), &true.into()));
    assert!(guarded.machine.renamed.is_empty());
}

#[test]
fn g_06_a_client_with_a_known_clock_hears_from_us_first() {
    let initialize = INITIALIZE.replace(r#""name":"test""#, r#""name":"cline""#);
    let mut guarded = Guarded::shaken_as(Limits::default(), &initialize, "2025-11-25");
    guarded.call(1);
    guarded.wait(seconds(57));
    let error = guarded.heard_fault(1, -31001);
    assert!(error["message"].as_str().unwrap().contains("cline"), "{error}");
}

#[test]
fn the_start_deadline_covers_whatever_is_asked_first() {
    let mut guarded = Guarded::new(Limits::default());
    guarded.request(1, "server/discover");
    guarded.wait(seconds(54));
    assert!(guarded.heard().is_empty(), "30 s is for servers that have started");
    guarded.wait(seconds(1));
    guarded.heard_fault(1, -31001);
}

#[test]
fn an_initialize_that_expires_is_neither_cancelled_nor_is_its_server_killed() {
    let mut guarded = Guarded::new(Limits::default());
    guarded.client(INITIALIZE);
    guarded.said();
    guarded.wait(seconds(55));
    guarded.heard_fault(0, -31001);
    assert!(guarded.said().is_empty() && guarded.actions().is_empty());
    guarded.ends();
    guarded.dies();
    assert_eq!(guarded.actions(), [Action::StopServer, Action::Exit(exit::DEADLINE)]);
}

#[test]
fn after_a_cancel_the_caller_gets_nothing_more() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded
        .client(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":"p"}}}"#);
    guarded.client(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    assert_eq!(guarded.said().len(), 2);
    guarded.server(
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}"#,
    );
    guarded.answer(1);
    assert!(guarded.heard().is_empty());
    guarded.wait(seconds(3600));
    assert!(guarded.heard().iter().all(|message| message.get("id").is_none()));
}

#[test]
fn promise_2_only_messages_reach_the_client() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.call(1);
    for line in [
        "Listening on stdio",
        r#"{"level":"info","msg":"json log"}"#,
        "[]",
        r#"{"jsonrpc":"2.0","id":99,"result":{}}"#,
    ] {
        guarded.server(line);
    }
    assert!(guarded.heard().is_empty());
    assert_eq!(guarded.machine.counters().junk, 4);
    assert_eq!(guarded.world.shown.len(), 4, "what was filtered is shown");
    guarded.server(r#"loading... {"jsonrpc":"2.0","id":1,"result":{}}"#);
    assert_eq!(guarded.heard()[0]["id"], 1, "a message behind text is recovered");
}

#[test]
fn x_13_an_answer_goes_to_the_request_with_its_id_and_to_no_other() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.call(1);
    guarded.call(2);
    guarded.server(r#"{"jsonrpc":"2.0","id":"2","result":{}}"#);
    assert!(guarded.heard().is_empty(), "two wait, so a changed type is not guessed");
    guarded.answer(2);
    guarded.server(r#"{"jsonrpc":"2.0","id":"1","result":{}}"#);
    let heard = guarded.heard();
    assert_eq!(
        (&heard[0]["id"], &heard[1]["id"]),
        (&2.into(), &1.into()),
        "the only one that waits is repaired"
    );
    assert_eq!(guarded.machine.counters().repaired_ids, 1);
}

#[test]
fn an_invalid_answer_is_an_error_for_whoever_waits() {
    for line in [
        r#"{"jsonrpc":"2.0","id":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"m"}}"#,
        r#"{"jsonrpc":"1.0","id":1,"result":{}}"#,
        r#"{"id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":"text"}"#,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#,
    ] {
        let mut guarded = Guarded::shaken(Limits::default());
        guarded.call(1);
        guarded.server(line);
        let error = guarded.heard_fault(1, -31007);
        assert!(error["data"]["junk"][0].is_string(), "{line}");
        guarded.answer(1);
        assert!(guarded.heard().is_empty(), "answered once: {line}");
    }
}

#[test]
fn a_message_over_the_limit_is_an_error_for_whoever_waits() {
    let mut guarded = Guarded::shaken(Limits { max_message: 1000, ..Limits::default() });
    guarded.call(1);
    let huge = "x".repeat(2000);
    guarded.server(&format!(r#"{{"jsonrpc":"2.0","result":{{"text":"{huge}"}},"id":1}}"#));
    guarded.heard_fault(1, -31006);
    guarded
        .client(&format!(r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"text":"{huge}"}}}}"#));
    guarded.heard_fault(2, -31006);
    guarded.call(3);
    guarded.answer(3);
    assert_eq!(guarded.heard()[0]["id"], 3, "the stream goes on");
}

#[test]
fn bounds_are_answered() {
    let mut guarded = Guarded::shaken(Limits { max_in_flight: 2, ..Limits::default() });
    (1..=3).for_each(|id| guarded.call(id));
    guarded.heard_fault(3, -31005);
    guarded.answer(1);
    guarded.heard();
    guarded.world.server_backlog = 17 << 20;
    guarded.call(4);
    let error = guarded.heard_fault(4, -31005);
    assert!(error["message"].as_str().unwrap().contains("does not read"), "{error}");
}

#[test]
fn promise_3_a_client_that_does_not_read_holds_the_server_back() {
    let mut guarded = Guarded::shaken(Limits::default());
    assert!(guarded.machine.reads_server(&guarded.world) && guarded.machine.reads_client(&guarded.world));
    guarded.world.client_backlog = 17 << 20;
    assert!(!guarded.machine.reads_server(&guarded.world) && guarded.machine.reads_client(&guarded.world));
    guarded.world.client_backlog = 33 << 20;
    assert!(!guarded.machine.reads_client(&guarded.world));
}

#[test]
fn promise_6_what_was_in_flight_is_answered_at_once_and_the_session_is_replayed() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.client(r#"{"jsonrpc":"2.0","id":10,"method":"logging/setLevel","params":{"level":"debug"}}"#);
    guarded
        .client(r#"{"jsonrpc":"2.0","id":11,"method":"resources/subscribe","params":{"uri":"file:///a"}}"#);
    guarded.answer(10);
    guarded.answer(11);
    guarded.heard();
    guarded.said();
    guarded.call(1);
    guarded.request(2, "tools/list");
    guarded.said();
    guarded.dies();
    let error = guarded.heard_fault(1, -31002);
    assert_eq!(error["data"]["exit"], "exit code 1");
    assert_eq!(error["data"]["stderrTail"][0], "last words");
    guarded.wait(seconds(1));
    let opening = guarded.said();
    assert_eq!((opening.len(), &opening[0]["method"]), (1, &"initialize".into()));
    guarded.call(3);
    assert!(guarded.said().is_empty(), "held until the session is told");
    guarded.server(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, opening[0]["id"]));
    let methods: Vec<_> =
        guarded.said().iter().map(|message| message["method"].as_str().unwrap().to_owned()).collect();
    assert_eq!(
        methods,
        ["notifications/initialized", "logging/setLevel", "resources/subscribe", "tools/list", "tools/call"]
    );
    assert!(guarded.heard().is_empty(), "the replay is not the client's business");
    guarded.answer(2);
    guarded.answer(3);
    assert_eq!(guarded.heard().len(), 2);
}

#[test]
fn a_list_is_sent_again_once_only() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.request(1, "tools/list");
    for _ in 0..2 {
        guarded.dies();
        guarded.wait(seconds(1));
        let opening = guarded.said();
        if let Some(opening) = opening.iter().find(|message| message["method"] == "initialize") {
            guarded.server(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, opening["id"]));
        }
    }
    guarded.heard_fault(1, -31002);
    assert_eq!(guarded.machine.counters().retried, 1);
}

#[test]
fn nothing_is_restarted_over_and_over_while_nobody_asks() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.call(1);
    guarded.answer(1);
    guarded.dies();
    guarded.wait(seconds(60));
    assert_eq!(guarded.machine.counters().restarts, 1, "once, so that the server is ready");
    guarded.dies();
    guarded.wait(seconds(600));
    assert_eq!(guarded.machine.counters().restarts, 1);
    guarded.said();
    guarded.call(2);
    guarded.wait(seconds(1));
    assert_eq!(guarded.machine.counters().restarts, 2, "again when somebody asks");
    assert_eq!(guarded.said()[0]["method"], "initialize");
}

fn shake_again(guarded: &mut Guarded) {
    guarded.wait(seconds(35));
    let opening =
        guarded.said().into_iter().find(|message| message["method"] == "initialize").expect("a replay");
    guarded.server(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, opening["id"]));
}

#[test]
fn promise_6_a_server_that_dies_on_every_call_is_fenced_off() {
    let mut guarded = Guarded::shaken(Limits { call_timeout: seconds(100), ..Limits::default() });
    for id in 1..=5 {
        guarded.call(id);
        if id > 1 {
            shake_again(&mut guarded);
        }
        guarded.dies();
        guarded.heard_fault(id, -31002);
    }
    guarded.call(6);
    guarded.heard_fault(6, -31004);
    guarded.wait(seconds(30));
    guarded.call(7);
    guarded.call(8);
    guarded.heard_fault(8, -31004);
    shake_again(&mut guarded);
    guarded.answer(7);
    assert_eq!(guarded.heard()[0]["id"], 7, "one trial after the cool-down");
    guarded.call(9);
    guarded.answer(9);
    assert_eq!(guarded.heard()[0]["id"], 9, "and it is closed again");
}

#[test]
fn l_58_three_unanswered_health_checks_restart_an_idle_server() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.wait(seconds(30));
    assert_eq!(guarded.said()[0]["method"], "ping");
    guarded.wait(seconds(60));
    assert!(guarded.actions().is_empty());
    guarded.wait(seconds(30));
    assert_eq!(guarded.actions(), [Action::StopServer]);
    assert!(guarded.heard().is_empty());
}

#[test]
fn promise_8_a_busy_server_is_not_asked_and_a_deadline_does_not_stop_it() {
    let mut guarded = Guarded::shaken(Limits { call_timeout: seconds(1000), ..Limits::default() });
    guarded.call(1);
    guarded.said();
    guarded.wait(seconds(999));
    assert!(guarded.said().is_empty(), "no health check while a call runs");
    guarded.wait(seconds(1));
    guarded.heard_fault(1, -31001);
    assert!(guarded.actions().is_empty(), "one caller's deadline takes the server from nobody");
}

#[test]
fn requests_of_the_server_reach_the_client_and_its_answers_come_back() {
    let mut guarded = Guarded::shaken(Limits::default());
    let ask = r#"{"jsonrpc":"2.0","id":0,"method":"elicitation/create","params":{}}"#;
    guarded.server(ask);
    assert_eq!(guarded.world.client[0].1, ask);
    let answer = r#"{"jsonrpc":"2.0","id":0,"result":{"action":"decline"}}"#;
    guarded.client(answer);
    assert_eq!(guarded.world.server, [answer]);
    guarded.client(answer);
    assert_eq!(guarded.world.server.len(), 1, "an answer that nobody waits for is dropped");
}

#[test]
fn a_question_of_a_dead_server_is_withdrawn_and_its_answer_goes_nowhere() {
    let mut guarded = Guarded::shaken(Limits::default());
    let ask = r#"{"jsonrpc":"2.0","id":0,"method":"roots/list"}"#;
    guarded.server(ask);
    guarded.dies();
    let heard = guarded.heard();
    assert_eq!(heard[1]["method"], "notifications/cancelled");
    shake_again(&mut guarded);
    guarded.said();
    guarded.server(ask);
    let renamed = guarded.heard()[0]["id"].clone();
    assert_ne!(renamed, 0, "the client still owes an answer to the first");
    guarded.client(r#"{"jsonrpc":"2.0","id":0,"result":{"roots":["old"]}}"#);
    assert!(guarded.said().is_empty());
    guarded.client(&format!(r#"{{"jsonrpc":"2.0","id":{renamed},"result":{{"roots":["new"]}}}}"#));
    let said = guarded.said();
    assert_eq!((&said[0]["id"], &said[0]["result"]["roots"][0]), (&0.into(), &"new".into()));
}

#[test]
fn an_invalid_answer_of_the_client_is_an_error_for_the_server() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.server(r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#);
    guarded.client(r#"{"jsonrpc":"2.0","id":"q"}"#);
    let said = guarded.said();
    assert_eq!((&said[0]["id"], &said[0]["error"]["code"]), (&"q".into(), &(-31007).into()));
}

#[test]
fn batches_of_2025_03_26_are_split_and_answered_as_one_array() {
    let initialize = INITIALIZE.replace("2025-11-25", "2025-03-26");
    let mut guarded = Guarded::shaken_as(Limits::default(), &initialize, "2025-03-26");
    guarded.client(
        r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/x"},{"bad":1},{"jsonrpc":"2.0","id":2,"method":"ping"}]"#,
    );
    assert_eq!(guarded.said().len(), 3);
    guarded.answer(2);
    assert!(guarded.heard().is_empty());
    guarded.server(r#"[{"jsonrpc":"2.0","id":1,"result":{}}]"#);
    let heard = guarded.heard();
    let mut ids: Vec<_> =
        heard[0].as_array().unwrap().iter().map(|answer| answer["id"].to_string()).collect();
    ids.sort();
    assert_eq!((heard.len(), ids), (1, vec!["1".to_owned(), "2".to_owned(), "null".to_owned()]));
}

#[test]
fn stdin_ends_and_calls_in_flight_are_still_answered() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.call(1);
    guarded.ends();
    assert!(guarded.actions().is_empty(), "the server keeps its stdin while a call runs");
    guarded.answer(1);
    assert_eq!(guarded.heard().len(), 1);
    assert_eq!(guarded.actions(), [Action::StopServer]);
    guarded.dies();
    assert_eq!(guarded.actions(), [Action::Exit(exit::DONE)]);
}

#[test]
fn a_subscription_is_answered_by_the_server_when_it_hears_of_the_end() {
    for server_answers in [true, false] {
        let mut guarded = Guarded::shaken(Limits::default());
        guarded.request(1, "subscriptions/listen");
        guarded.ends();
        assert_eq!(guarded.actions(), [Action::StopServer], "it holds nothing up");
        assert!(guarded.heard().is_empty());
        if server_answers {
            guarded.answer(1);
        }
        guarded.dies();
        let heard = guarded.heard();
        assert_eq!((heard.len(), heard[0].get("error").is_some()), (1, !server_answers));
        assert_eq!(guarded.actions(), [Action::Exit(exit::DONE)]);
    }
}

#[test]
fn the_grace_after_the_end_of_stdin_is_bounded() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.call(1);
    guarded.ends();
    guarded.wait(seconds(5));
    guarded.heard_fault(1, -31008);
    assert_eq!(guarded.actions(), [Action::StopServer]);
    guarded.wait(seconds(5));
    assert_eq!(guarded.actions(), [Action::Exit(exit::DONE)], "even if the server's end is never reported");
}

#[test]
fn a_signal_answers_what_is_in_flight_and_ends() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.call(1);
    guarded.machine.stop(guarded.now, exit::TERMINATED, "it was told to end", &mut guarded.world);
    guarded.heard_fault(1, -31008);
    guarded.dies();
    assert_eq!(guarded.actions(), [Action::StopServer, Action::Exit(exit::TERMINATED)]);
}

#[test]
fn a_server_that_cannot_be_started_is_told_to_whoever_asks() {
    for asks_first in [true, false] {
        let mut guarded = Guarded::new(Limits::default());
        if asks_first {
            guarded.client(INITIALIZE);
        }
        guarded.machine.start_failed(guarded.now, "no program `x` in /bin", &mut guarded.world);
        if !asks_first {
            assert!(guarded.actions().is_empty(), "the client is given the time to ask");
            guarded.client(INITIALIZE);
        }
        let error = guarded.heard_fault(0, -31003);
        assert!(error["message"].as_str().unwrap().contains("`x` in /bin"), "{error}");
        assert_eq!(guarded.actions(), [Action::Exit(exit::UNREACHABLE)]);
    }
}

#[test]
fn a_server_that_dies_before_it_answered_anything_is_a_failed_start() {
    let mut guarded = Guarded::new(Limits::default());
    guarded.client(INITIALIZE);
    guarded.dies();
    let error = guarded.heard_fault(0, -31003);
    assert!(error["message"].as_str().unwrap().contains("last words"), "{error}");
    assert_eq!(guarded.actions(), [Action::Exit(exit::UNREACHABLE)]);
}

#[test]
fn stateless_traffic_passes_and_is_mirrored() {
    let mut guarded = Guarded::new(Limits::default());
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;
    guarded.client(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{{{meta}}}}}"#));
    guarded.answer(1);
    guarded.client(&format!(
        r#"{{"jsonrpc":"2.0","id":2,"method":"subscriptions/listen","params":{{{meta}}}}}"#
    ));
    guarded.heard();
    guarded.said();
    guarded.wait(seconds(31));
    assert_eq!(guarded.said()[0]["method"], "server/discover", "the health check speaks the client's era");
    guarded.wait(seconds(3));
    guarded.dies();
    guarded.wait(seconds(1));
    let said = guarded.said();
    assert_eq!(
        (said.len(), &said[0]["method"]),
        (1, &"subscriptions/listen".into()),
        "listens are sent again"
    );
    assert!(guarded.heard().is_empty());
    guarded.server(r#"{"jsonrpc":"2.0","id":9,"method":"roots/list"}"#);
    assert_eq!(guarded.said()[0]["error"]["code"], -32600, "a stateless server may not ask");
}

#[test]
fn g_13_quiet_keeps_notifications_back_while_a_call_runs() {
    let mut guarded = Guarded::shaken(Limits { quiet: true, ..Limits::default() });
    guarded.call(1);
    for method in ["message", "tools/list_changed", "tools/list_changed", "resources/updated"] {
        guarded.server(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/{method}","params":{{}}}}"#));
    }
    assert!(guarded.heard().is_empty());
    guarded.answer(1);
    let methods: Vec<_> = guarded.heard().iter().map(|message| message["method"].clone()).collect();
    assert_eq!(
        methods,
        [Value::Null, "notifications/tools/list_changed".into(), "notifications/resources/updated".into()]
    );
}
