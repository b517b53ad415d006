//! The complete and correct server that every other server of the zoo is compared with, and that a guard must not change.
//!
//! # Invariants
//!
//! - Each request gets one answer, unless it was cancelled or asked the process to die.
//! - A handshake is insisted on, so that a session that was not replayed after a restart is noticed.
//! - What it offers is an [`ServerOffer`], so that another server can be as complete with other tools.

pub mod eras;
pub mod listings;
pub mod tools;

pub use tools::question_params;

use std::collections::{BTreeSet, HashMap};
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex};

use serde_json::{Value, json};

use crate::arguments::ProgramArguments;
use crate::bounded_waits::{BOUND, lock};
use crate::entry::ProgramDescription;
use crate::pipe::{self, ClientMessage};
use crate::plain_server::{INVALID_PARAMS, METHOD_NOT_FOUND};

use eras::RequestRules;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "well-behaved",
    incident: "Stands for no incident: it is the honest server that shows what a guard may not change (protocol.md 1.1).",
    usage: "[--page N]",
    promises: &[],
    run: serve,
};

/// The parts in which such servers differ.
pub struct ServerOffer {
    /// The name in its `serverInfo`.
    pub name: &'static str,
    /// Answers a `tools/call`.
    pub call: fn(&Arc<WellBehavedServer>, &ClientMessage, &RequestRules) -> HandlerOutcome,
    /// Answers a request about something listed; `None` when it is about something else.
    pub list: fn(&Arc<WellBehavedServer>, &ClientMessage, &RequestRules) -> Option<HandlerOutcome>,
}

const OFFER: ServerOffer = ServerOffer { name: PROGRAM.name, call: tools::call, list: listings::answer };

/// The session as the process knows it. The tool `state` shows it, so that a test sees whether a session was replayed.
#[derive(Default)]
pub struct ServerSession {
    initialized: bool,
    protocol_version: Option<String>,
    client_name: Option<String>,
    /// The capabilities that the client declared in the handshake.
    pub client_capabilities: Value,
    level: Option<String>,
    /// The resources whose changes the client asked for under a handshake.
    pub subscriptions: BTreeSet<String>,
    calls: u64,
    /// Open `subscriptions/listen` requests: id and filter.
    listens: Vec<(Value, Value)>,
}

/// A question to the client that waits for its answer.
struct PendingQuestion {
    /// The call that it belongs to.
    call: String,
    answer: SyncSender<Value>,
}

/// A server in its process, with all that it knows.
pub struct WellBehavedServer {
    offer: &'static ServerOffer,
    /// Whether requests without a handshake are served too.
    modern: bool,
    /// How many items a page of a list has.
    page: usize,
    /// Its session.
    pub session: Mutex<ServerSession>,
    /// Calls that run in threads of their own, by id, and whether they were cancelled.
    pub(super) running: Mutex<HashMap<String, bool>>,
    /// Signalled at every change of `running`.
    pub(super) changed: Condvar,
    questions: Mutex<HashMap<String, PendingQuestion>>,
}

/// The outcome of a request.
pub enum HandlerOutcome {
    /// A result.
    Result(Value),
    /// An error.
    Error {
        /// Its number.
        code: i64,
        /// The text of the error.
        message: String,
        /// More about it, or null.
        data: Value,
    },
    /// The answer comes from a thread, or never.
    Later,
    /// The process ends with this code, and there is no answer.
    Leave(ExitCode),
}

impl HandlerOutcome {
    /// Builds an error without data.
    #[must_use]
    pub fn error(code: i64, message: &str) -> Self {
        Self::Error { code, message: message.to_owned(), data: Value::Null }
    }
}

/// Serves until stdin ends and the calls in flight have been answered, as the measured servers do (contract.md part 4).
pub fn serve(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    serve_offer(arguments, &OFFER, true)
}

/// Serves what is offered, in the eras that `--era` names: `dual` or `legacy`, the first where none is named.
pub fn serve_in_eras(arguments: &ProgramArguments, offer: &'static ServerOffer) -> io::Result<ExitCode> {
    let modern = match arguments.option("era")? {
        None | Some("dual") => true,
        Some("legacy") => false,
        Some(other) => {
            let text = format!("`--era {other}`: there are `dual` and `legacy`");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
    };
    serve_offer(arguments, offer, modern)
}

/// Serves what is offered, under a handshake, and without one where that is allowed.
fn serve_offer(
    arguments: &ProgramArguments,
    offer: &'static ServerOffer,
    modern: bool,
) -> io::Result<ExitCode> {
    let page = usize::try_from(arguments.number_option("page", u64::MAX)?).unwrap_or(usize::MAX).max(1);
    let server = Arc::new(WellBehavedServer {
        offer,
        modern,
        page,
        session: Mutex::default(),
        running: Mutex::default(),
        changed: Condvar::new(),
        questions: Mutex::default(),
    });
    while let Some(message) = pipe::receive()? {
        if let Some(code) = server.take(&message)? {
            return Ok(code);
        }
    }
    server.finish();
    Ok(ExitCode::SUCCESS)
}

/// Serves at the first starts, as many as the first positional number says or one, and leaves every later one to `later`,
/// with its number. Starts are counted in the file of `--count-file`.
pub fn serve_at_first(
    arguments: &ProgramArguments,
    later: impl FnOnce(u64) -> io::Result<ExitCode>,
) -> io::Result<ExitCode> {
    let file = arguments.required("count-file")?;
    let first = arguments.number(0, 1)?;
    writeln!(std::fs::File::options().append(true).create(true).open(file)?, "{}", std::process::id())?;
    let starts = std::fs::read_to_string(file)?.lines().count() as u64;
    if starts > first { later(starts) } else { serve(arguments) }
}

impl WellBehavedServer {
    /// Deals with one message; a code when the process shall end.
    fn take(self: &Arc<Self>, message: &ClientMessage) -> io::Result<Option<ExitCode>> {
        if !message.is_request() {
            if message.method().is_empty() {
                self.settle_question(message);
            } else {
                self.note(message);
            }
            return Ok(None);
        }
        let era = self.era(message);
        let response = match self.request(message, &era) {
            HandlerOutcome::Result(result) => {
                pipe::result(message.id(), era.dress(self.offer.name, message.method(), result))
            }
            HandlerOutcome::Error { code, message: text, data } => {
                let mut response = pipe::error(message.id(), code, &text);
                if !data.is_null() {
                    response["error"]["data"] = data;
                }
                response
            }
            HandlerOutcome::Later => return Ok(None),
            HandlerOutcome::Leave(code) => return Ok(Some(code)),
        };
        pipe::send(&response).map(|()| None)
    }

    /// Returns under which rules a request was sent, as far as this server knows both.
    fn era(&self, message: &ClientMessage) -> RequestRules {
        if self.modern { RequestRules::of(message) } else { RequestRules::Handshake }
    }

    fn introduce(&self, message: &ClientMessage) -> Value {
        eras::introduce(self.offer.name, &mut lock(&self.session), message)
    }

    fn note(&self, message: &ClientMessage) {
        match message.method() {
            "notifications/initialized" => lock(&self.session).initialized = true,
            "notifications/cancelled" => self.cancel(&message.params()["requestId"]),
            _ => {}
        }
    }

    fn request(self: &Arc<Self>, message: &ClientMessage, era: &RequestRules) -> HandlerOutcome {
        if let Some(refusal) = self.refusal(message, era) {
            return refusal;
        }
        match message.method() {
            "initialize" => HandlerOutcome::Result(self.introduce(message)),
            "server/discover" => HandlerOutcome::Result(eras::discovery()),
            "ping" => HandlerOutcome::Result(json!({})),
            "logging/setLevel" => self.set_level(message),
            "subscriptions/listen" => self.listen(message),
            "tools/call" => (self.offer.call)(self, message, era),
            _ => (self.offer.list)(self, message, era).unwrap_or_else(|| {
                HandlerOutcome::error(METHOD_NOT_FOUND, &format!("Method not found: {}", message.method()))
            }),
        }
    }

    /// Says no to requests that do not belong into their era, or come before a handshake.
    fn refusal(&self, message: &ClientMessage, era: &RequestRules) -> Option<HandlerOutcome> {
        let method = message.method();
        if let Some(refusal) = era.refusal(message) {
            return Some(refusal);
        }
        let strange = match era {
            RequestRules::Modern => matches!(
                method,
                "initialize" | "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe"
            ),
            RequestRules::Handshake => matches!(method, "server/discover" | "subscriptions/listen"),
        };
        if strange {
            return Some(HandlerOutcome::error(METHOD_NOT_FOUND, &format!("Method not found: {method}")));
        }
        let free = matches!(method, "initialize" | "ping") || matches!(era, RequestRules::Modern);
        let early = !free && lock(&self.session).protocol_version.is_none();
        early.then(|| {
            HandlerOutcome::error(INVALID_PARAMS, "Received request before initialization was complete")
        })
    }

    fn set_level(&self, message: &ClientMessage) -> HandlerOutcome {
        let Some(level) = message.params()["level"].as_str() else {
            return HandlerOutcome::error(INVALID_PARAMS, "`level` is missing");
        };
        lock(&self.session).level = Some(level.to_owned());
        HandlerOutcome::Result(json!({}))
    }

    /// Opens a subscription: the acknowledgement goes out first, the response only when it ends.
    fn listen(&self, message: &ClientMessage) -> HandlerOutcome {
        let filter = &message.params()["notifications"];
        let mut session = lock(&self.session);
        session.listens.push((message.id().clone(), filter.clone()));
        let params = json!({"_meta": {eras::SUBSCRIPTION_ID: message.id()}, "notifications": filter});
        // A client that has gone is noticed at the next read.
        let _ = pipe::send(&pipe::notification("notifications/subscriptions/acknowledged", &params));
        HandlerOutcome::Later
    }

    /// Sends a change notification to whoever asked for it, in the way of either era.
    pub fn announce(&self, method: &str, filter_key: &str, params: &Value) -> io::Result<()> {
        let session = lock(&self.session);
        if session.protocol_version.is_some() {
            pipe::send(&pipe::notification(method, params))?;
        }
        for (id, filter) in &session.listens {
            let is_subscribed = match &filter[filter_key] {
                Value::Array(uris) => uris.contains(&params["uri"]),
                flag => flag == &json!(true),
            };
            if is_subscribed {
                let mut tagged = params.clone();
                tagged["_meta"] = json!({eras::SUBSCRIPTION_ID: id});
                pipe::send(&pipe::notification(method, &tagged))?;
            }
        }
        Ok(())
    }

    fn settle_question(&self, message: &ClientMessage) {
        if let Some(question) = lock(&self.questions).remove(&message.id().to_string()) {
            // The call may have been cancelled meanwhile.
            let _ = question.answer.try_send(message.raw().clone());
        }
    }

    fn cancel(&self, id: &Value) {
        let call = id.to_string();
        lock(&self.session).listens.retain(|(listen, _)| listen != id);
        if let Some(cancelled) = lock(&self.running).get_mut(&call) {
            *cancelled = true;
        }
        self.changed.notify_all();
        // Only now: a call whose question goes ends at once, and must find that it was cancelled.
        lock(&self.questions).retain(|_, question| question.call != call);
    }

    /// Lets the calls in flight end; questions can get no answer any more.
    fn finish(&self) {
        lock(&self.questions).clear();
        let idle = self.changed.wait_timeout_while(lock(&self.running), BOUND, |running| !running.is_empty());
        drop(idle);
    }
}
