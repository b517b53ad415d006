//! Works on a call whether anybody listens or not, and gives what came after an event to whoever names it.

use std::collections::HashMap;
use std::io;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use unhang_demo_servers::{
    arguments::ProgramArguments,
    bounded_waits::{lock, now},
    entry::ProgramDescription,
    pipe,
};

use crate::web::sessions::{WAIT, question, serve_with, session};
use crate::web::wire::Wire;
use crate::web::{Then, WebRequest};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "http-replays",
    incident: "Servers with an event store go on with a call when its client has gone, and count on a client that comes back with `Last-Event-ID` (protocol.md 1.2).",
    usage: "[--ids no] [--refuses STATUS] [--busy TIMES] [--asks EVENT]",
    promises: &[7],
    run,
};

/// The time between two events of a call.
const STEP: Duration = Duration::from_millis(100);

/// The calls of the tool, by the session and the id of the request.
type Works = Mutex<HashMap<(String, String), Work>>;

/// A call of the tool. Its events follow from the time alone: one at each step, and the answer as the last.
#[derive(Clone)]
struct Work {
    id: Value,
    token: Value,
    begun: Instant,
    /// The number of the answer among the events.
    last: u32,
    /// The length of the answer.
    bytes: usize,
    /// The number of the question among the events, if it asks its client something.
    asks: Option<u32>,
    /// The client's reply to the question.
    replied: Option<Value>,
    is_cancelled: bool,
}

impl Work {
    fn of(asked: &WebRequest, asks: Option<u32>) -> Self {
        let number = |name: &str| asked.message.argument(name).as_f64().unwrap_or_default();
        Self {
            id: asked.message.id().clone(),
            token: asked.message.progress_token().clone(),
            begun: now(),
            last: (number("seconds") / STEP.as_secs_f64()).max(1.0) as u32,
            bytes: number("bytes") as usize,
            asks,
            replied: None,
            is_cancelled: false,
        }
    }

    /// The id of the question.
    fn question_id(&self) -> String {
        format!("question of {}", self.id)
    }

    /// Returns whether this event is due. Events after a question wait for the reply.
    fn is_due(&self, number: u32) -> bool {
        let is_open = self.replied.is_none() && self.asks.is_some_and(|asks| number > asks);
        !is_open && self.begun.elapsed() >= STEP * number
    }

    fn event(&self, number: u32) -> Value {
        if self.asks == Some(number) {
            return question(&self.question_id(), "elicitation/create");
        }
        if number < self.last {
            return match self.token {
                Value::Null => {
                    json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "working"}})
                }
                _ => pipe::progress(&self.token, number.into(), self.last.into()),
            };
        }
        let replied = self.replied.as_ref().map(|replied| format!("heard {replied}")).unwrap_or_default();
        pipe::result(&self.id, pipe::text(&format!("waited {}{replied}", "x".repeat(self.bytes))))
    }
}

/// Sends the events after this one as they come.
fn follow(
    works: &Works,
    key: &(String, String),
    after: u32,
    has_ids: bool,
    wire: &mut Wire,
) -> io::Result<Then> {
    let Some(work) = lock(works).get(key).cloned() else { return wire.status(404).map(|()| Then::Next) };
    wire.begin_events(&[])?;
    let id = |number: u32| format!("{}/{number}", key.1);
    if has_ids && after == 0 {
        wire.piece(format!("id: {}\nretry: 60\ndata: \n\n", id(0)).as_bytes())?;
    }
    let mut work = work;
    for number in after + 1..=work.last {
        let is_due = wire.wait_until(|| {
            match lock(works).get(key) {
                Some(now) => work = now.clone(),
                None => work.is_cancelled = true,
            }
            work.is_cancelled || work.is_due(number)
        });
        if !is_due {
            return Ok(Then::HangUp);
        }
        if work.is_cancelled {
            break;
        }
        wire.event(has_ids.then(|| id(number)).as_deref(), &work.event(number))?;
    }
    wire.end().map(|()| Then::Next)
}

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let has_ids = arguments.option("ids")?.is_none();
    // What those who come back are told.
    let status = arguments.number_option("refuses", 200)?;
    let status = u16::try_from(status).map_err(|_| io::ErrorKind::InvalidInput)?;
    // How often those who come back are told that the stream is in use.
    let busy = Mutex::new(arguments.number_option("busy", 0)?);
    // Which event of a call is a question.
    let asks = arguments.number_option("asks", 0)?;
    let asks = u32::try_from(asks).ok().filter(|asks| *asks > 0);
    let works = Works::default();
    serve_with(PROGRAM.name, move |sessions, asked, wire| {
        if sessions.refuses(asked, wire)? {
            return Ok(Some(Then::Next));
        }
        let message = &asked.message;
        if message.is_call() && message.tool() == WAIT {
            let key = (session(asked), message.id().to_string());
            lock(&works).insert(key.clone(), Work::of(asked, asks));
            return follow(&works, &key, 0, has_ids, wire).map(Some);
        }
        if message.method() == "notifications/cancelled" {
            let key = (session(asked), message.params()["requestId"].to_string());
            if let Some(work) = lock(&works).get_mut(&key) {
                work.is_cancelled = true;
            }
            return Ok(None);
        }
        if asked.is_post() && message.method().is_empty() {
            let mut works = lock(&works);
            if let Some(work) = works.values_mut().find(|work| *message.id() == work.question_id()) {
                work.replied.get_or_insert_with(|| message.raw().clone());
            }
            return Ok(None);
        }
        let Some(last_event) = asked.header("last-event-id").filter(|_| asked.is_get()) else {
            return Ok(None);
        };
        if status != 200 {
            let told = format!("no stream of {}", session(asked));
            let answered = wire.json(status, &[], &pipe::error(&Value::Null, -32000, &told));
            return answered.map(|()| Some(Then::Next));
        }
        let mut busy = lock(&busy);
        if *busy > 0 {
            *busy -= 1;
            return wire.status(409).map(|()| Some(Then::Next));
        }
        drop(busy);
        let (id, number) = last_event.split_once('/').unwrap_or_default();
        let after = number.parse().unwrap_or_default();
        follow(&works, &(session(asked), id.to_owned()), after, has_ids, wire).map(Some)
    })
}
