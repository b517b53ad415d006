//! Whatever a client says and whenever calls end: every request gets exactly one response or was withdrawn (promise 1).

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use unhang_bridge::Era;

use super::{
    promotion::job_report,
    servers::{TOOL, answered, known, raw},
    *,
};
use crate::tasks::JobCapabilities;
use unhang_core::exit;

#[derive(Clone, Debug)]
enum Event {
    Call(u8),
    Ask(u8),
    List(u8),
    Settle(bool),
    Ping(u8),
    Unknown(u8),
    Batch(Vec<u8>),
    Cancel(u8),
    EndOfCall(u8),
    /// A server tells how far it is.
    Progress(u8, u8),
    /// A server asks something about one of its calls.
    Question(u8),
    /// The client answers what it was asked.
    Reply(u8),
    Garbage(String),
    Wait(u16),
    EndOfInput,
    Signal,
}

fn event() -> impl Strategy<Value = Event> {
    let id = || 0..6_u8;
    prop_oneof![
        8 => id().prop_map(Event::Call),
        6 => id().prop_map(Event::Ask),
        2 => id().prop_map(Event::List),
        1 => any::<bool>().prop_map(Event::Settle),
        2 => id().prop_map(Event::Ping),
        2 => id().prop_map(Event::Unknown),
        2 => prop::collection::vec(id(), 1..4).prop_map(Event::Batch),
        4 => id().prop_map(Event::Cancel),
        8 => any::<u8>().prop_map(Event::EndOfCall),
        6 => (any::<u8>(), 0..4_u8).prop_map(|(which, value)| Event::Progress(which, value)),
        4 => any::<u8>().prop_map(Event::Question),
        3 => any::<u8>().prop_map(Event::Reply),
        1 => "[a-z{}\\[\\]\":,0-9]{0,30}".prop_map(Event::Garbage),
        2 => (0..200_u16).prop_map(Event::Wait),
        3 => (0..20_u16).prop_map(Event::Wait),
        1 => Just(Event::EndOfInput),
        1 => Just(Event::Signal),
    ]
}

/// What the client may still expect for each id: requests that were sent, less those that were answered or withdrawn.
#[derive(Default)]
struct Ledger(HashMap<u8, i32>, Progress);

/// What the client has heard of its calls, by their tokens.
#[derive(Default)]
struct Progress {
    /// Whose they are, until they are answered or withdrawn.
    open: HashMap<u64, u8>,
    highest: HashMap<u64, f64>,
    /// Those with a heartbeat.
    beaten: HashSet<u64>,
}

impl Progress {
    fn close(&mut self, id: u8) {
        self.open.retain(|_, other| *other != id);
    }

    fn hear(&mut self, params: &Value) {
        let token = params["progressToken"].as_u64().expect("a token that was sent");
        let value = params["progress"].as_f64().expect("a number");
        assert!(self.open.contains_key(&token), "progress of what is over: {params}");
        let highest = self.highest.entry(token).or_insert(value - 1.0);
        if !params["message"].is_null() {
            self.beaten.insert(token);
        }
        assert!(value > *highest || !self.beaten.contains(&token), "{params} after {highest}");
        *highest = highest.max(value);
    }
}

impl Ledger {
    fn hear(&mut self, message: &Value) {
        if message["method"] == "notifications/progress" {
            self.1.hear(&message["params"]);
        }
        // Refusals of what came later under the same id are none.
        if !message["result"].is_null() || message["error"]["data"]["kind"] == "deadline" {
            self.1.close(u8::try_from(message["id"].as_u64().expect("an id")).expect("one that was sent"));
        }
        let all = message.as_array().cloned().unwrap_or_else(|| vec![message.clone()]);
        for response in all.iter().filter(|message| message["method"].is_null()) {
            let outcomes = [&response["result"], &response["error"]].map(Value::is_null);
            assert!(outcomes[0] != outcomes[1], "one outcome: {response}");
            if let Some(id) = response["id"].as_u64() {
                let id = u8::try_from(id).expect("an id that was sent");
                let owed = self.0.entry(id).or_default();
                *owed -= 1;
                assert!(*owed >= 0, "{id} is answered once too often");
            }
        }
    }
}

/// A call comes to its end; one of a server now with an answer, and now without, when nobody waits for it any more.
fn end(front: &mut TestSession, key: CallKey, is_server: bool) {
    let is_awaited = front.mcp_session.calls.id_of(key).is_some();
    match (is_server, is_awaited) {
        (false, _) => front.ends(key, "x"),
        (true, true) => {
            let answer = answered(Era::Legacy, Ok(raw("{}")));
            front.mcp_session.answered(front.now, key, &answer, &mut front.effects);
        }
        (true, false) => front.mcp_session.abandoned(front.now, key, &mut front.effects),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn promise_1_every_request_is_answered_once_or_was_withdrawn(events in prop::collection::vec(event(), 0..80)) {
        let mut front = TestSession::shaken(Limits { max_in_flight: 4, ..Limits::default() }, "2025-03-26");
        front.declare_capabilities(r#"{"roots":{}}"#);
        let (mut ledger, mut running, mut has_ended) = (Ledger::default(), Vec::new(), false);
        let (mut questions, mut asked) = (HashMap::<u64, u32>::new(), Vec::new());
        let (mut promoted, mut token) = (Vec::new(), 0_u64);
        front.mcp_session = front.mcp_session.with_servers(known(&[TOOL], false));
        front.mcp_session.jobs = JobCapabilities { are_there: true, promotes: true, ..JobCapabilities::default() };
        let request = |id, method: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"name":"echo"}}}}"#);
        for event in events.into_iter().chain([Event::Signal]) {
            match event {
                Event::Call(id) => { *ledger.0.entry(id).or_default() += 1; front.says(&request(id, "tools/call")); }
                Event::Ask(id) => {
                    *ledger.0.entry(id).or_default() += 1;
                    token += 1;
                    if !front.mcp_session.calls.contains(&i64::from(id).into()) { ledger.1.open.insert(token, id); }
                    let meta = format!(r#"srv__now","_meta":{{"progressToken":{token}}}"#);
                    front.says(&request(id, "tools/call").replace("echo\"", &meta));
                }
                Event::List(id) => { *ledger.0.entry(id).or_default() += 1; front.says(&request(id, "prompts/list")); }
                Event::Settle(is_settled) => {
                    front.mcp_session.servers_changed(front.now, &known(&[], is_settled), &mut front.effects);
                    front.mcp_session.servers_changed(front.now, &known(&[TOOL], is_settled), &mut front.effects);
                }
                Event::Ping(id) => { *ledger.0.entry(id).or_default() += 1; front.says(&request(id, "ping")); }
                Event::Unknown(id) => { *ledger.0.entry(id).or_default() += 1; front.says(&request(id, "x")); }
                Event::Batch(ids) => {
                    for id in &ids { *ledger.0.entry(*id).or_default() += 1; }
                    let calls: Vec<_> = ids.iter().map(|id| request(*id, "tools/call")).collect();
                    front.says(&format!("[{}]", calls.join(",")));
                }
                Event::Cancel(id) => {
                    if front.mcp_session.calls.contains(&i64::from(id).into()) {
                        *ledger.0.entry(id).or_default() -= 1;
                        ledger.1.close(id);
                    }
                    front.says(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#));
                }
                Event::EndOfCall(which) if !running.is_empty() => {
                    let (key, is_server) = running.remove(usize::from(which) % running.len());
                    end(&mut front, key, is_server);
                }
                Event::EndOfCall(_) => {}
                Event::Progress(which, value) if !running.is_empty() => {
                    let (key, _) = running[usize::from(which) % running.len()];
                    let params = raw(&format!(r#"{{"progressToken":"its own","progress":{value}}}"#));
                    front.mcp_session.progressed(front.now, key, &params, &mut front.effects);
                }
                Event::Progress(..) => {}
                Event::Question(which) if !running.is_empty() && !has_ended => {
                    let question = questions.len() as u64;
                    questions.insert(question, 0);
                    let (key, _) = running[usize::from(which) % running.len()];
                    front.mcp_session.asked(front.now, QuestionSubject::Call(key), question, ("roots/list", None), &mut front.effects);
                }
                Event::Reply(which) if !asked.is_empty() => {
                    let id: Value = asked.remove(usize::from(which) % asked.len());
                    front.says(&json!({ "jsonrpc": "2.0", "id": id, "result": {} }).to_string());
                }
                Event::Question(_) | Event::Reply(_) => {}
                Event::Garbage(text) => front.says(&text),
                Event::Wait(length) => front.wait(seconds(u64::from(length))),
                Event::EndOfInput => front.mcp_session.client_end(front.now, &mut front.effects),
                Event::Signal => front.mcp_session.stop(front.now, exit::TERMINATED, "of a signal", &mut front.effects),
            }
            for action in front.actions() {
                prop_assert!(!has_ended, "nothing is wanted after the end: {action:?}");
                match action {
                    SessionAction::Call { key, .. } => running.push((key, false)),
                    SessionAction::Ask { key, .. } => running.push((key, true)),
                    SessionAction::Cancel(key) => {
                        let is_known = running.iter().any(|(running, _)| *running == key);
                        prop_assert!(is_known || promoted.contains(&key));
                    }
                    SessionAction::ClientSpeaks { .. } | SessionAction::HandshakeOver | SessionAction::RootsChanged => unreachable!("it is left out"),
                    SessionAction::Watch { .. } | SessionAction::Refresh { .. } | SessionAction::Unwatch(_) | SessionAction::Log(_) => {}
                    SessionAction::Task { .. } | SessionAction::FollowTask { .. } => unreachable!("nobody asks for one"),
                    SessionAction::Leave(_) => unreachable!("only a question to a window is left"),
                    // Of some a job is made in time, of some it is not.
                    SessionAction::Promote { key, .. } if key % 2 == 0 => {
                        let report = job_report();
                        front.mcp_session.promoted(front.now, key, &report, &mut front.effects);
                        running.retain(|(running, _)| *running != key);
                        promoted.push(key);
                    }
                    SessionAction::Promote { .. } => {}
                    SessionAction::Reply { question, .. } => *questions.entry(question).or_default() += 1,
                    SessionAction::Exit(_) => has_ended = true,
                }
            }
            prop_assert!(running.len() <= 4);
            for message in front.received() {
                if message["method"] == "roots/list" { asked.push(message["id"].clone()); }
                ledger.hear(&message);
            }
        }
        for (key, is_server) in running { end(&mut front, key, is_server); }
        front.wait(seconds(10));
        for action in front.actions() {
            match action {
                SessionAction::Reply { question, .. } => *questions.entry(question).or_default() += 1,
                SessionAction::Exit(_) => has_ended = true,
                _ => {}
            }
        }
        prop_assert!(has_ended, "it ends");
        for message in front.received() { ledger.hear(&message); }
        prop_assert!(questions.values().all(|replies| *replies == 1), "each is replied to once: {questions:?}");
        prop_assert!(ledger.0.values().all(|owed| *owed == 0), "unanswered: {:?}", ledger.0);
    }
}
