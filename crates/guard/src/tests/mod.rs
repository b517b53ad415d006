//! The session driven without a process: every event by hand, time as a number (R-10, R-37).

mod bounds;
mod clients;
mod drained;
mod heartbeats;
mod ids;
mod life;
mod local_jobs;
mod offers;
mod own_ids;
mod promotion;
mod questions;
pub(crate) mod recall;
mod restarts;
mod tables;
mod talk;
mod tool_list;

use std::time::Duration;

use serde_json::Value;
use unhang_jobs::id::JobId;
use unhang_proc::server::{Exit, SweptTree};
use unhang_wire::{Id, Lines};

use super::{
    effects::{JobNews, WrapAction, WrapEffects},
    wrap_session::WrapSession,
};
use unhang_core::{exit, limits::Limits, queue::Class};
use unhang_tools::job_report::ToolNames;

/// Records what the session does.
#[derive(Default)]
struct RecordedEffects {
    client: Vec<(Class, String)>,
    server: Vec<String>,
    shown: Vec<String>,
    jobs: Vec<(Id, String)>,
    local_jobs: Vec<String>,
    same: Option<JobId>,
    job_server_backlog: usize,
    client_backlog: usize,
    server_backlog: usize,
    /// The number of lines for the server that had left when the last line for the client came.
    sent_before_client: usize,
    flushed: usize,
}

impl WrapEffects for RecordedEffects {
    fn to_client(&mut self, class: Class, line: &[u8]) {
        self.client.push((class, String::from_utf8(line.to_vec()).unwrap()));
        self.sent_before_client = self.flushed;
    }
    fn to_server(&mut self, line: &[u8]) {
        self.server.push(String::from_utf8(line.to_vec()).unwrap());
    }
    fn flush_server(&mut self) {
        self.flushed = self.server.len();
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
    fn to_job(&mut self, call: &Id, news: JobNews<'_>) {
        let (JobNews::Answer(_, text) | JobNews::Progress(text) | JobNews::Log(text)) = news;
        self.jobs.push((call.clone(), String::from_utf8(text.to_vec()).unwrap()));
    }
    fn to_job_server(&mut self, line: &[u8], _: ToolNames) {
        self.local_jobs.push(String::from_utf8(line.to_vec()).unwrap());
    }
    fn job_server_backlog(&self) -> usize {
        self.job_server_backlog
    }
    fn same_call(&self, _: Option<&str>, _: &[u8]) -> Option<JobId> {
        self.same
    }
}

/// A session, its world and a clock.
struct Guarded {
    wrap_session: WrapSession,
    effects: RecordedEffects,
    now: Duration,
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

impl Guarded {
    fn new(limits: Limits) -> Guarded {
        let wrap_session = WrapSession::new("srv", limits, 1);
        let mut guarded = Guarded { wrap_session, effects: RecordedEffects::default(), now: Duration::ZERO };
        assert_eq!(guarded.actions(), [WrapAction::StartServer]);
        guarded.wrap_session.server_spawned(guarded.now, &mut guarded.effects);
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
        guarded.received();
        guarded.said();
        guarded
    }

    fn client(&mut self, line: &str) {
        let mut lines = Lines::new(self.wrap_session.limits.max_message);
        lines.push(line.as_bytes());
        lines.push(b"\n");
        while let Some(line) = lines.next_line() {
            self.wrap_session.client_line(self.now, line, &mut self.effects);
        }
    }

    fn server(&mut self, line: &str) {
        let mut lines = Lines::new(self.wrap_session.limits.max_message);
        lines.push(line.as_bytes());
        lines.push(b"\n");
        while let Some(line) = lines.next_line() {
            self.wrap_session.server_line(self.now, line, &mut self.effects);
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
        while let Some(tick) = self.wrap_session.next_tick().filter(|tick| *tick <= end) {
            self.now = self.now.max(tick);
            self.wrap_session.tick(self.now, &mut self.effects);
            self.start_if_asked();
        }
        self.now = end;
    }

    fn start_if_asked(&mut self) {
        let actions = self.actions();
        for action in actions {
            match action {
                WrapAction::StartServer => self.wrap_session.server_spawned(self.now, &mut self.effects),
                other => self.wrap_session.actions.push_back(other),
            }
        }
    }

    fn dies(&mut self) {
        self.wrap_session.server_exited(self.now, &Exit::Code(1), &mut self.effects);
        self.wrap_session.server_gone(self.now, SweptTree { leaked: 0, unkilled: 0 }, &mut self.effects);
    }

    fn ends(&mut self) {
        self.wrap_session.client_end(self.now, &mut self.effects);
    }

    fn actions(&mut self) -> Vec<WrapAction> {
        std::iter::from_fn(|| self.wrap_session.next_action()).collect()
    }

    /// What the client has heard since the last look.
    fn received(&mut self) -> Vec<Value> {
        self.effects.client.drain(..).map(|(_, line)| serde_json::from_str(&line).unwrap()).collect()
    }

    /// What the server was told since the last look.
    fn said(&mut self) -> Vec<Value> {
        self.effects.server.drain(..).map(|line| serde_json::from_str(&line).unwrap()).collect()
    }

    /// The only thing that the client has heard: an error of this code for this id.
    #[track_caller]
    fn heard_fault(&mut self, id: impl Into<Value>, code: i32) -> Value {
        let received = self.received();
        assert_eq!(received.len(), 1, "{received:?}");
        assert_eq!(
            (&received[0]["id"], &received[0]["error"]["code"]),
            (&id.into(), &Value::from(code)),
            "{received:?}"
        );
        received[0]["error"].clone()
    }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn shake_again(guarded: &mut Guarded) {
    guarded.wait(seconds(35));
    let opening =
        guarded.said().into_iter().find(|message| message["method"] == "initialize").expect("a replay");
    guarded.server(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, opening["id"]));
}
