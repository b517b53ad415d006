//! The tools of the well-behaved server: one for each thing that a test wants to make it do.
//!
//! # Invariants
//!
//! - Only `sleep` and `ask` wait, and both in threads of their own; everything else is answered at once and in order.

use std::collections::HashMap;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use serde_json::{Value, json};

use crate::bounded_waits::{BOUND, lock};
use crate::pipe::{self, ClientMessage};
use crate::plain_server::INVALID_PARAMS;
use crate::signals;

use super::eras::RequestRules;
use super::{HandlerOutcome, PendingQuestion, WellBehavedServer};

/// How often a sleeping call reports progress.
const PROGRESS_STEP: Duration = Duration::from_millis(100);

/// A tool as it is listed.
pub struct ListedTool {
    /// Its name.
    pub name: &'static str,
    description: &'static str,
    /// Name and JSON type of each argument; all are required.
    arguments: &'static [(&'static str, &'static str)],
    /// Whether the tool declares that calling it again does no harm, so that a lost call may be repeated.
    safe: bool,
}

/// Builds a tool for a list.
#[must_use]
pub const fn tool(
    name: &'static str,
    description: &'static str,
    arguments: &'static [(&'static str, &'static str)],
    safe: bool,
) -> ListedTool {
    ListedTool { name, description, arguments, safe }
}

const TOOLS: &[ListedTool] = &[
    tool("ask", "Sends a request to the client and returns its answer", &[("method", "string")], false),
    tool("big", "Returns a text of so many bytes", &[("bytes", "integer")], true),
    tool("die", "Ends the process with an exit code, unanswered", &[("code", "integer")], false),
    tool("die-by-signal", "Sends the process a signal, unanswered", &[("signal", "integer")], false),
    tool(
        "die-once",
        "Ends the process if FILE is missing, and creates it first",
        &[("file", "string")],
        true,
    ),
    tool("echo", "Returns the text", &[("text", "string")], true),
    tool("environment", "Returns a variable of the environment", &[("name", "string")], true),
    tool("fail", "Returns a result that is an error", &[("text", "string")], true),
    tool("log", "Sends so many log notifications, then answers", &[("count", "integer")], false),
    tool("notify-list-changed", "Announces changes of the three lists", &[], false),
    tool("notify-resource-updated", "Announces a change of a resource", &[("uri", "string")], false),
    tool("pid", "Returns the process id", &[], true),
    tool("sleep", "Answers after so many milliseconds", &[("ms", "integer")], true),
    tool("state", "Returns what the process knows about its session", &[], true),
    tool("stderr", "Writes so many bytes of lines to stderr, then answers", &[("bytes", "integer")], false),
];

/// Returns the tools as `tools/list` shows them.
pub fn descriptions() -> Vec<Value> {
    TOOLS.iter().map(describe).collect()
}

/// Returns a tool as `tools/list` shows it.
pub fn describe(tool: &ListedTool) -> Value {
    let properties: serde_json::Map<_, _> =
        tool.arguments.iter().map(|(name, kind)| ((*name).to_owned(), json!({"type": kind}))).collect();
    let required: Vec<_> = tool.arguments.iter().map(|(name, _)| *name).collect();
    json!({
        "name": tool.name,
        "description": tool.description,
        "inputSchema": {"type": "object", "properties": properties, "required": required},
        "annotations": {"readOnlyHint": tool.safe, "idempotentHint": tool.safe},
    })
}

/// Runs one `tools/call`.
pub fn call(server: &Arc<WellBehavedServer>, message: &ClientMessage, era: &RequestRules) -> HandlerOutcome {
    if let Some(refusal) = refusal(TOOLS, message) {
        return refusal;
    }
    lock(&server.session).calls += 1;
    perform(server, message, era)
        .unwrap_or_else(|error| HandlerOutcome::Result(failure(&format!("{}: {error}", message.tool()))))
}

/// Says no to a call of a tool that there is not, or without the arguments that it requires.
pub fn refusal(tools: &[ListedTool], message: &ClientMessage) -> Option<HandlerOutcome> {
    let Some(tool) = tools.iter().find(|tool| tool.name == message.tool()) else {
        return Some(HandlerOutcome::error(INVALID_PARAMS, &format!("Unknown tool: {}", message.tool())));
    };
    let wrong = tool.arguments.iter().find(|(name, kind)| {
        let value = message.argument(name);
        !(if *kind == "integer" { value.is_u64() } else { value.is_string() })
    });
    wrong.map(|(name, kind)| {
        HandlerOutcome::error(INVALID_PARAMS, &format!("`{name}` of `{}` must be: {kind}", tool.name))
    })
}

fn perform(
    server: &Arc<WellBehavedServer>,
    message: &ClientMessage,
    era: &RequestRules,
) -> io::Result<HandlerOutcome> {
    let number = |name| message.argument(name).as_u64().unwrap_or_default();
    let text = |name| message.argument(name).as_str().unwrap_or_default();
    let size = |name| usize::try_from(number(name)).unwrap_or(usize::MAX);
    let answer = match message.tool() {
        "ask" => return Ok(ask(server, message, era)),
        "sleep" => return Ok(sleep(server, message, number("ms"))),
        "die" => {
            return Ok(HandlerOutcome::Leave(ExitCode::from(
                u8::try_from(number("code")).unwrap_or(u8::MAX),
            )));
        }
        "die-by-signal" => {
            let signal = i32::try_from(number("signal")).ok().and_then(Signal::from_named_raw);
            let signal = signal.ok_or(io::ErrorKind::InvalidInput)?;
            signals::restore(signal.as_raw());
            kill_process(getpid(), signal)?;
            return Ok(HandlerOutcome::Later);
        }
        "die-once" if std::fs::exists(text("file"))? => "still alive".to_owned(),
        "die-once" => {
            std::fs::write(text("file"), std::process::id().to_string())?;
            return Ok(HandlerOutcome::Leave(ExitCode::FAILURE));
        }
        "fail" => return Ok(HandlerOutcome::Result(failure(text("text")))),
        "big" => "x".repeat(size("bytes")),
        "echo" => text("text").to_owned(),
        "environment" => std::env::var(text("name")).unwrap_or_default(),
        "pid" => std::process::id().to_string(),
        "state" => state(server),
        "log" => log(message, era, number("count"))?,
        "notify-list-changed" => announce_lists(server)?,
        "notify-resource-updated" => announce_resource(server, text("uri"))?,
        _ => pipe::complain_lines(size("bytes")).map(|()| format!("wrote {} bytes", number("bytes")))?,
    };
    Ok(HandlerOutcome::Result(pipe::text(&answer)))
}

/// Builds the result of a tool that failed.
pub fn failure(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}], "isError": true})
}

fn state(server: &WellBehavedServer) -> String {
    let session = lock(&server.session);
    json!({
        "pid": std::process::id(),
        "calls": session.calls,
        "initialized": session.initialized,
        "level": session.level,
        "subscriptions": session.subscriptions,
        "listens": session.listens.len(),
        "protocolVersion": session.protocol_version,
        "clientName": session.client_name,
    })
    .to_string()
}

fn log(message: &ClientMessage, era: &RequestRules, count: u64) -> io::Result<String> {
    if !era.wants_log(message) {
        return Ok("no log messages were asked for".to_owned());
    }
    for number in 1..=count {
        pipe::send(&pipe::log(&format!("message {number} of {count}")))?;
    }
    Ok(format!("sent {count} log messages"))
}

fn announce_lists(server: &WellBehavedServer) -> io::Result<String> {
    for kind in ["tools", "resources", "prompts"] {
        server.announce(
            &format!("notifications/{kind}/list_changed"),
            &format!("{kind}ListChanged"),
            &json!({}),
        )?;
    }
    Ok("announced".to_owned())
}

fn announce_resource(server: &WellBehavedServer, uri: &str) -> io::Result<String> {
    let (subscribed, listened) = {
        let session = lock(&server.session);
        (session.subscriptions.contains(uri), !session.listens.is_empty())
    };
    if subscribed || listened {
        server.announce("notifications/resources/updated", "resourceSubscriptions", &json!({"uri": uri}))?;
    }
    Ok(format!("subscribed: {subscribed}"))
}

/// Runs `work` beside all other requests; its value is the answer unless it is `None` or the call was cancelled.
pub fn beside(
    server: &Arc<WellBehavedServer>,
    message: &ClientMessage,
    work: impl FnOnce(&WellBehavedServer, &str) -> Option<Value> + Send + 'static,
) -> HandlerOutcome {
    beside_and_settle(server, message, work, |_| {})
}

/// How a call ends that runs beside others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEnding {
    /// With an answer.
    Answered,
    /// With a cancellation, and without an answer.
    Cancelled,
    /// There is nobody to answer, or nobody who does.
    Lost,
}

/// Does the same, and says how the call ends: at once where that is decided, before a later cancellation can be seen.
pub fn beside_and_settle(
    server: &Arc<WellBehavedServer>,
    message: &ClientMessage,
    work: impl FnOnce(&WellBehavedServer, &str) -> Option<Value> + Send + 'static,
    settle: impl FnOnce(CallEnding) + Send + 'static,
) -> HandlerOutcome {
    let (owned, id) = (Arc::clone(server), message.id().clone());
    let (call, era, method) = (id.to_string(), server.era(message), message.method().to_owned());
    // Entered before the thread runs, so that a cancellation right behind the call finds it.
    lock(&server.running).insert(call.clone(), false);
    let thread = std::thread::Builder::new().stack_size(256 * 1024).spawn(move || {
        let result = work(&owned, &call);
        let running = lock(&owned.running);
        let ending = match (running.get(&call), &result) {
            (Some(true), _) => CallEnding::Cancelled,
            (_, Some(_)) => CallEnding::Answered,
            (_, None) => CallEnding::Lost,
        };
        settle(ending);
        drop(running);
        if let Some(result) = result.filter(|_| ending == CallEnding::Answered) {
            // A client that has gone is noticed at the next read.
            let _ = pipe::send(&pipe::result(&id, era.dress(owned.offer.name, &method, result)));
        }
        lock(&owned.running).remove(&call);
        owned.changed.notify_all();
    });
    match thread {
        Ok(_) => HandlerOutcome::Later,
        Err(error) => {
            lock(&server.running).remove(&message.id().to_string());
            HandlerOutcome::Result(failure(&format!("starting a thread: {error}")))
        }
    }
}

/// Lets a call do nothing for a while; `None` as soon as it is cancelled.
pub fn rest(server: &WellBehavedServer, call: &str, length: Duration) -> Option<()> {
    let waits = |running: &mut HashMap<String, bool>| running.get(call) == Some(&false);
    let (running, timeout) = server.changed.wait_timeout_while(lock(&server.running), length, waits).ok()?;
    drop(running);
    timeout.timed_out().then_some(())
}

fn sleep(server: &Arc<WellBehavedServer>, message: &ClientMessage, milliseconds: u64) -> HandlerOutcome {
    let token = message.progress_token().clone();
    beside(server, message, move |server, call| {
        let mut left = Duration::from_millis(milliseconds).min(BOUND);
        while !left.is_zero() {
            let step = left.min(PROGRESS_STEP);
            rest(server, call, step)?;
            left -= step;
            if !token.is_null() {
                let done = milliseconds - u64::try_from(left.as_millis()).unwrap_or_default();
                pipe::send(&pipe::progress(&token, done, milliseconds)).ok()?;
            }
        }
        Some(pipe::text(&format!("slept {milliseconds} ms")))
    })
}

/// Asks the client something: by a request of its own under a handshake, by an `input_required` result without.
fn ask(server: &Arc<WellBehavedServer>, message: &ClientMessage, era: &RequestRules) -> HandlerOutcome {
    let method = message.argument("method").as_str().unwrap_or_default().to_owned();
    if matches!(era, RequestRules::Modern) {
        return ask_by_result(message, &method);
    }
    // Entered before the thread runs, so that the end of stdin and a cancellation find it.
    let question = QuestionSlot::enter(server, &message.id().to_string());
    beside(server, message, move |_, _| {
        let answer = question.put(&method, &question_params(&method))?;
        let outcome = if answer["error"].is_null() { &answer["result"] } else { &answer["error"] };
        Some(pipe::text(&outcome.to_string()))
    })
}

/// A question to the client that has its id, and may have been put.
pub struct QuestionSlot {
    id: Value,
    answer: Receiver<Value>,
}

impl QuestionSlot {
    /// Prepares a question for a call.
    pub fn enter(server: &WellBehavedServer, call: &str) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let id = json!(format!("question-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
        let (sender, answer) = sync_channel(1);
        lock(&server.questions)
            .insert(id.to_string(), PendingQuestion { call: call.to_owned(), answer: sender });
        Self { id, answer }
    }

    /// Puts the question and waits for the response; `None` when there will be none.
    pub fn put(self, method: &str, params: &Value) -> Option<Value> {
        self.say(method, params).ok()?;
        self.hear()
    }

    /// Puts the question.
    pub fn say(&self, method: &str, params: &Value) -> io::Result<()> {
        pipe::send(&json!({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params}))
    }

    /// Waits for the response to a question that was put; `None` when there will be none.
    pub fn hear(self) -> Option<Value> {
        self.answer.recv_timeout(BOUND).ok()
    }
}

fn ask_by_result(message: &ClientMessage, method: &str) -> HandlerOutcome {
    let answer = &message.params()["inputResponses"]["question"];
    if !answer.is_null() {
        return HandlerOutcome::Result(pipe::text(&answer.to_string()));
    }
    let question = json!({"method": method, "params": question_params(method)});
    HandlerOutcome::Result(json!({"resultType": "input_required", "inputRequests": {"question": question}}))
}

/// Returns valid parameters for a request to the client.
pub fn question_params(method: &str) -> Value {
    match method {
        "sampling/createMessage" => json!({
            "messages": [{"role": "user", "content": {"type": "text", "text": "What is the answer?"}}],
            "maxTokens": 10,
        }),
        "elicitation/create" => json!({
            "mode": "form",
            "message": "What is your name?",
            "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        }),
        _ => json!({}),
    }
}
