//! The session driven without tasks, every event by hand and time as a number; and the shell with real pipes.

mod answers;
mod extensions;
mod heartbeats;
mod life;
mod offers;
mod outside_calls;
mod owners;
mod param_headers;
mod parked_calls;
mod promotion;
mod properties;
mod question_replies;
mod questions;
mod revisions;
mod servers;
mod shell;
mod subscriptions;
mod tasks;

use std::time::Duration;

use serde_json::{Map, Value, json};
use unhang_bridge::params::Signature;
use unhang_wire::Lines;

use super::effects::{
    CallKey, LineTarget, ONLY_STREAM, QuestionSubject, SessionAction, SessionEffects, StreamKey,
};
use super::mcp_session::McpSession;
use unhang_core::{limits::Limits, queue::Class};
use unhang_tools::{Definition, Hints, ToolAnswer, ToolListing};

/// Records what the client hears.
#[derive(Default)]
struct RecordedClient {
    received: Vec<String>,
    backlog: usize,
    /// The place of each line.
    targets: Vec<LineTarget>,
    /// How many of its requests it has withdrawn, so that it gets no answer.
    unanswered: usize,
    /// Whether it accepts nothing beside an answer.
    takes_only_answers: bool,
}

/// The notifications that may not be lost.
const KEPT: [&str; 4] = [
    "notifications/cancelled",
    "notifications/subscriptions/acknowledged",
    unhang_upstream::question::TASK_BEGUN,
    unhang_upstream::question::ELICITATION_COMPLETE,
];

impl SessionEffects for RecordedClient {
    fn to_client(&mut self, to: LineTarget, class: Class, line: &[u8]) {
        let message: Value = serde_json::from_slice(line).expect("JSON");
        let may_be_lost = message["method"].is_string() && message["id"].is_null();
        let is_lost = may_be_lost && !KEPT.iter().any(|kept| message["method"] == *kept);
        assert_eq!(class == Class::Kept, !is_lost, "nothing but notifications may be lost: {message}");
        assert_eq!(matches!(to, LineTarget::Answer { .. }), message["method"].is_null(), "{to:?}: {message}");
        self.targets.push(to);
        self.received.push(String::from_utf8(line.to_vec()).expect("text"));
    }

    fn nothing_to_client(&mut self, _only_one: StreamKey) {
        self.unanswered += 1;
    }

    fn takes_more(&self, _only_one: StreamKey) -> bool {
        !self.takes_only_answers
    }

    fn client_backlog(&self) -> usize {
        self.backlog
    }
}

/// A session, its effects and a clock.
struct TestSession {
    mcp_session: McpSession,
    effects: RecordedClient,
    now: Duration,
    /// Servers that are asked for a list answer at once, and have changed nothing.
    are_servers_quick: bool,
    /// Actions that nobody has looked at.
    unseen: Vec<SessionAction>,
}

fn echo() -> Definition {
    Definition {
        name: "echo".to_owned(),
        description: Some("Echoes".to_owned()),
        input_schema: json!({ "type": "object" }),
        output_schema: Some(json!({ "type": "object" })),
        hints: Hints { read_only: true, ..Hints::default() },
        is_job: false,
        listing: ToolListing::First,
    }
}

fn answer(text: &str) -> ToolAnswer {
    let structured = Map::from_iter([("said".to_owned(), text.into())]);
    ToolAnswer { text: text.to_owned(), structured: Some(structured), ..ToolAnswer::default() }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

impl TestSession {
    fn new(limits: Limits) -> TestSession {
        let mcp_session = McpSession::new(limits, [echo()].into(), Some("Call echo.".into()));
        let effects = RecordedClient::default();
        let (now, unseen) = (Duration::ZERO, Vec::new());
        TestSession { mcp_session, effects, now, are_servers_quick: true, unseen }
    }

    /// A session that has shaken hands.
    fn shaken(limits: Limits, version: &str) -> TestSession {
        let mut front = TestSession::new(limits);
        front.says(&format!(
            r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{{}},"clientInfo":{{"name":"test","version":"1"}}}}}}"#
        ));
        front.says(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        assert_eq!(front.received().len(), 1);
        front
    }

    fn says(&mut self, line: &str) {
        let mut lines = Lines::new(self.mcp_session.limits.max_message);
        lines.push(line.as_bytes());
        lines.push(b"\n");
        while let Some(line) = lines.next_line() {
            self.mcp_session.client_line(self.now, ONLY_STREAM, line, &mut self.effects);
        }
        self.collect_actions();
    }

    fn collect_actions(&mut self) {
        while let Some(action) = self.mcp_session.next_action() {
            match action {
                SessionAction::Refresh { key, .. } if self.are_servers_quick => {
                    self.mcp_session.refreshed(self.now, key, None, &mut self.effects);
                }
                // Each session tells the era of its client once.
                SessionAction::ClientSpeaks { .. } | SessionAction::HandshakeOver => {}
                action => self.unseen.push(action),
            }
        }
    }

    /// The client has said that it can do this.
    fn declare_capabilities(&mut self, capabilities: &str) {
        let signature = self.mcp_session.client.signature.as_deref().cloned().expect("it has shaken hands");
        let signature = Signature { client_capabilities: capabilities.to_owned(), ..signature };
        self.mcp_session.client.signature = Some(signature.into());
    }

    fn calls(&mut self, id: impl Into<Value>) {
        let id = id.into();
        self.says(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{{"a":1}}}}}}"#
        ));
    }

    fn ends(&mut self, key: CallKey, text: &str) {
        self.mcp_session.ended(self.now, key, &answer(text), &mut self.effects);
    }

    /// Time passes, with every tick that is due on the way.
    fn wait(&mut self, length: Duration) {
        let end = self.now + length;
        while let Some(tick) = self.mcp_session.next_tick().filter(|tick| *tick <= end) {
            self.now = self.now.max(tick);
            self.mcp_session.tick(self.now, &mut self.effects);
        }
        self.now = end;
    }

    /// The actions since the last look, but for the era of the client, and for questions to servers that are quick.
    fn actions(&mut self) -> Vec<SessionAction> {
        self.collect_actions();
        std::mem::take(&mut self.unseen)
    }

    /// The keys of the calls that were asked for since the last look.
    fn called(&mut self) -> Vec<CallKey> {
        let key = |action| match action {
            SessionAction::Call { key, .. } => Some(key),
            _ => None,
        };
        self.actions().into_iter().filter_map(key).collect()
    }

    /// What the client has heard since the last look.
    fn received(&mut self) -> Vec<Value> {
        self.effects.received.drain(..).map(|line| serde_json::from_str(&line).expect("JSON")).collect()
    }

    /// The only thing that the client has heard: an error of this code for this id.
    #[track_caller]
    fn heard_fault(&mut self, id: impl Into<Value>, code: i32) -> Value {
        let received = self.received();
        assert_eq!(received.len(), 1, "{received:?}");
        assert_eq!(
            (&received[0]["id"], &received[0]["error"]["code"]),
            (&id.into(), &code.into()),
            "{received:?}"
        );
        received[0]["error"].clone()
    }
}
