//! Random lives of a guard against promise 1: whatever the client, the server and the clock do, in whatever order, every
//! request is answered once or was withdrawn (R-41).

use std::{collections::HashMap, time::Duration};

use proptest::prelude::*;
use serde_json::Value;
use unhang_proc::server::{Exit, Swept};
use unhang_wire::Lines;

use super::machine::{Action, Machine, Outside};
use crate::{config::Limits, exit, queue::Class};

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The client asks; few ids, so that they repeat.
    Request(u8, &'static str),
    Cancel(u8),
    ClientLine(&'static str),
    /// The server answers one of what it was asked, counted from the newest.
    Answer(u8, Answer),
    ServerLine(&'static str),
    Wait(u16),
    /// The process ends, and is swept at once or later.
    Dies(bool),
    Gone,
    Full(bool),
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Well,
    Error,
    Twice,
    OtherType,
    Nothing,
    NoVersion,
}

fn event() -> impl Strategy<Value = Event> {
    let method =
        prop::sample::select(vec!["tools/call", "tools/list", "resources/read", "initialize", "ping"]);
    let answer = prop::sample::select(vec![
        Answer::Well,
        Answer::Well,
        Answer::Error,
        Answer::Twice,
        Answer::OtherType,
        Answer::Nothing,
        Answer::NoVersion,
    ]);
    let client_line = prop::sample::select(vec![
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":0,"result":{}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"other"}}"#,
    ]);
    let server_line = prop::sample::select(vec![
        "log text",
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#,
        r#"{"jsonrpc":"2.0","id":0,"method":"roots/list"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#,
        r#"{"jsonrpc":"2.0","id":77,"result":{}}"#,
    ]);
    prop_oneof![
        6 => (0..4u8, method).prop_map(|(id, method)| Event::Request(id, method)),
        1 => (0..4u8).prop_map(Event::Cancel),
        1 => client_line.prop_map(Event::ClientLine),
        6 => (prop_oneof![2 => Just(0), 1 => 0..6u8], answer).prop_map(|(which, answer)| Event::Answer(which, answer)),
        2 => server_line.prop_map(Event::ServerLine),
        3 => prop_oneof![1..2_000u16, 1..60_000u16].prop_map(Event::Wait),
        2 => any::<bool>().prop_map(Event::Dies),
        1 => Just(Event::Gone),
        1 => any::<bool>().prop_map(Event::Full),
    ]
}

#[derive(Default)]
struct World {
    answers: HashMap<String, usize>,
    asked: Vec<Value>,
    backlog: usize,
}

impl Outside for World {
    fn to_client(&mut self, _: Class, line: &[u8]) {
        let message: Value = serde_json::from_slice(line).expect("only messages reach the client");
        assert_eq!(message["jsonrpc"], "2.0");
        if message.get("method").is_none() {
            *self.answers.entry(message["id"].to_string()).or_default() += 1;
        }
    }
    fn to_server(&mut self, line: &[u8]) {
        let message: Value = serde_json::from_slice(line).expect("only messages reach the server");
        if message.get("method").is_some() && message.get("id").is_some() {
            self.asked.push(message["id"].clone());
        }
    }
    fn client_backlog(&self) -> usize {
        0
    }
    fn server_backlog(&self) -> usize {
        self.backlog
    }
    fn stderr_tail(&self) -> Vec<String> {
        Vec::new()
    }
    fn processor_time(&self) -> Option<Duration> {
        None
    }
    fn show(&mut self, _: &str) {}
}

/// A machine and what is known about it from outside.
struct Life {
    machine: Machine,
    world: World,
    now: Duration,
    running: bool,
    swept: bool,
    requests: HashMap<String, usize>,
    withdrawn: HashMap<String, usize>,
    over: bool,
}

impl Life {
    fn act(&mut self) {
        while let Some(action) = self.machine.next_action() {
            match action {
                Action::StartServer => {
                    assert!(self.swept, "at most one process at a time");
                    (self.running, self.swept) = (true, false);
                    self.world.asked.clear();
                    self.machine.server_spawned(self.now, &mut self.world);
                }
                Action::StopServer => self.die(),
                Action::Exit(_) => self.over = true,
            }
        }
    }

    fn die(&mut self) {
        if self.running {
            self.running = false;
            self.machine.server_exited(self.now, &Exit::Signal(9), &mut self.world);
        }
    }

    fn gone(&mut self) {
        if !self.running && !self.swept {
            self.swept = true;
            self.machine.server_gone(self.now, Swept { leaked: 0, unkilled: 0 }, &mut self.world);
        }
    }

    fn client(&mut self, line: &str) {
        let mut lines = Lines::new(1 << 20);
        lines.push(format!("{line}\n").as_bytes());
        while let Some(line) = lines.next_line() {
            self.machine.client_line(self.now, line, &mut self.world);
        }
    }

    fn server(&mut self, line: &str) {
        let mut lines = Lines::new(1 << 20);
        lines.push(format!("{line}\n").as_bytes());
        while self.running
            && let Some(line) = lines.next_line()
        {
            self.machine.server_line(self.now, line, &mut self.world);
        }
    }

    fn answer(&mut self, which: u8, answer: Answer) {
        let count = self.world.asked.len();
        let Some(id) = count.checked_sub(1 + usize::from(which)).map(|index| self.world.asked[index].clone())
        else {
            return;
        };
        let other = id.as_i64().map_or(id.clone(), |number| number.to_string().into());
        let well = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#);
        match answer {
            Answer::Well => self.server(&well),
            Answer::Error => {
                self.server(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":1,"message":"m"}}}}"#));
            }
            Answer::Twice => self.server(&format!("{well}{well}")),
            Answer::OtherType => self.server(&format!(r#"{{"jsonrpc":"2.0","id":{other},"result":{{}}}}"#)),
            Answer::Nothing => self.server(&format!(r#"{{"jsonrpc":"2.0","id":{id}}}"#)),
            Answer::NoVersion => self.server(&format!(r#"{{"id":{id},"result":{{}}}}"#)),
        }
    }

    fn cancel(&mut self, id: u8) {
        let before = self.machine.in_flight();
        self.client(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        ));
        if self.machine.in_flight() < before {
            *self.withdrawn.entry(id.to_string()).or_default() += 1;
        }
    }

    fn wait(&mut self, length: Duration) {
        let end = self.now + length;
        for _ in 0..10_000 {
            match self.machine.next_tick().filter(|tick| *tick <= end) {
                Some(tick) => self.now = self.now.max(tick),
                None => break,
            }
            self.machine.tick(self.now, &mut self.world);
            self.act();
        }
        assert!(self.machine.next_tick().is_none_or(|tick| tick > end), "the clock gets on");
        self.now = end;
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Request(id, method) => {
                *self.requests.entry(id.to_string()).or_default() += 1;
                self.client(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{}}}}"#));
            }
            Event::Cancel(id) => self.cancel(id),
            Event::ClientLine(line) => self.client(line),
            Event::Answer(which, answer) => self.answer(which, answer),
            Event::ServerLine(line) => self.server(line),
            Event::Wait(milliseconds) => self.wait(Duration::from_millis(milliseconds.into())),
            Event::Dies(swept_at_once) => {
                self.die();
                if swept_at_once {
                    self.gone();
                }
            }
            Event::Gone => self.gone(),
            Event::Full(full) => self.world.backlog = if full { usize::MAX / 2 } else { 0 },
        }
        self.act();
        for (id, answers) in self.world.answers.iter().filter(|(id, _)| *id != "null") {
            let requests = self.requests.get(id).copied().unwrap_or_default();
            assert!(*answers <= requests, "{id}: {answers} answers to {requests} requests");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn promise_1_every_request_is_answered_once_or_was_withdrawn(events in prop::collection::vec(event(), 1..60), shaken in prop::bool::weighted(0.9), by_signal: bool) {
        let mut life = Life {
            machine: Machine::new("srv", Limits { max_in_flight: 3, ..Limits::default() }, 1),
            world: World::default(),
            now: Duration::ZERO,
            running: false,
            swept: true,
            requests: HashMap::new(),
            withdrawn: HashMap::new(),
            over: false,
        };
        life.act();
        if shaken {
            life.happens(Event::Request(0, "initialize"));
            life.happens(Event::Answer(0, Answer::Well));
        }
        for event in events {
            if life.over {
                break;
            }
            life.happens(event);
        }
        if by_signal {
            life.machine.stop(life.now, exit::TERMINATED, "a signal", &mut life.world);
        } else {
            life.machine.client_end(life.now, &mut life.world);
        }
        life.act();
        life.wait(Duration::from_secs(60));
        prop_assert!(life.over, "it ends");
        for (id, requests) in &life.requests {
            let answers = life.world.answers.get(id).copied().unwrap_or_default();
            let withdrawn = life.withdrawn.get(id).copied().unwrap_or_default();
            prop_assert_eq!(answers + withdrawn, *requests, "id {}", id);
        }
    }
}
