//! Answers each call of `slow` after as many seconds as it is told, many at once, and says with `seen` what became of them.
//!
//! # Invariants
//!
//! - It is the well-behaved server with three tools more, of which `slow_read` is `slow` and says that it may be called again, in both eras unless it is told to know only the handshake.
//! - Each call of `slow` is counted once when it begins, and once when it is answered or cancelled: never as both.
//! - A text that is an answer says of each of its bytes where in it that is, so that nothing can get lost or come twice unseen.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::arguments::ProgramArguments;
use crate::bounded_waits::{BOUND, lock, now};
use crate::entry::ProgramDescription;
use crate::pipe::{self, ClientMessage};
use crate::plain_server::INVALID_PARAMS;

use super::well_behaved::eras::{CLIENT_CAPABILITIES, RequestRules};
use super::well_behaved::tools::{self, CallEnding, QuestionSlot, beside_and_settle, failure, rest};
use super::well_behaved::{
    HandlerOutcome, ServerOffer, WellBehavedServer, listings, question_params, serve_in_eras,
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "slow-answers",
    incident: "A call that goes well and takes longer than the clock of its client is cut off, and its work is lost or done twice (peers.md 3.1 A, K and L).",
    usage: "[--era dual|legacy] [--page N]",
    promises: &[1, 8],
    run,
};

const OFFER: ServerOffer = ServerOffer { name: PROGRAM.name, call, list };

/// In so many equal parts a call goes through its time; after each it reports, where that is wanted.
const PARTS: u32 = 10;

/// The part before which it asks.
const HALF: u32 = PARTS / 2;

/// The pause between two looks for the file that a call waits for.
const LOOK: Duration = Duration::from_millis(10);

/// The key of its question, in rounds.
const QUESTION: &str = "question";

/// How often calls with the same arguments began, and how they ended.
#[derive(Default)]
struct CallCount {
    begun: u64,
    answered: u64,
    cancelled: u64,
}

#[derive(Default)]
struct CallLog {
    /// By the text of the arguments, whose fields are sorted.
    counts: BTreeMap<String, CallCount>,
    /// The arguments of the calls that have not ended, by id.
    running: HashMap<String, String>,
}

static SEEN: LazyLock<Mutex<CallLog>> = LazyLock::new(Mutex::default);

impl CallLog {
    fn begin(&mut self, call: String, arguments: String, is_new: bool) {
        self.counts.entry(arguments.clone()).or_default().begun += u64::from(is_new);
        self.running.insert(call, arguments);
    }

    /// Notes how a call has ended; that of one which is known to have ended is no news.
    fn end(&mut self, call: &str, ending: CallEnding) {
        let Some(arguments) = self.running.remove(call) else { return };
        let count = self.counts.entry(arguments).or_default();
        match ending {
            CallEnding::Answered => count.answered += 1,
            CallEnding::Cancelled => count.cancelled += 1,
            CallEnding::Lost => {}
        }
    }

    fn tell(&self) -> Value {
        let of_all = |number: fn(&CallCount) -> u64| self.counts.values().map(number).sum::<u64>();
        let calls: Vec<_> = self
            .counts
            .iter()
            .map(|(arguments, CallCount { begun, answered, cancelled })| {
                let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
                json!({"arguments": arguments, "begun": begun, "answered": answered, "cancelled": cancelled})
            })
            .collect();
        json!({
            "pid": std::process::id(),
            "begun": of_all(|count| count.begun),
            "answered": of_all(|count| count.answered),
            "cancelled": of_all(|count| count.cancelled),
            "calls": calls,
        })
    }
}

/// The arguments of a call of `slow`.
#[derive(Clone)]
struct SlowCall {
    length: Duration,
    size: usize,
    reports: bool,
    logs: bool,
    fails: bool,
    asks: bool,
    /// The method of its question.
    question: String,
    /// The file without which its second half does not begin.
    until: Option<PathBuf>,
}

impl SlowCall {
    /// Reads the arguments; what is wrong with them where they are.
    fn of(message: &ClientMessage) -> Result<Self, String> {
        let wrong = |name: &str, kind: &str| format!("`{name}` of `slow` must be: {kind}");
        let flag = |name| match message.argument(name) {
            Value::Null => Ok(false),
            value => value.as_bool().ok_or_else(|| wrong(name, "boolean")),
        };
        let length = message.argument("seconds").as_f64();
        let length = length.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let size = match message.argument("size") {
            Value::Null => Some(64),
            value => value.as_u64().and_then(|size| usize::try_from(size).ok()),
        };
        Ok(Self {
            length: length.ok_or_else(|| wrong("seconds", "number, not below 0"))?.min(BOUND),
            size: size.ok_or_else(|| wrong("size", "integer, not below 0"))?,
            reports: flag("progress")?,
            logs: flag("log")?,
            fails: flag("fail")?,
            asks: flag("ask")?,
            question: message.argument("question").as_str().unwrap_or("elicitation/create").to_owned(),
            until: message.argument("until").as_str().map(PathBuf::from),
        })
    }

    /// Waits for the file that the call needs; `None` as soon as the call is cancelled.
    fn wait_for_file(&self, server: &WellBehavedServer, call: &str) -> Option<()> {
        let (Some(file), end) = (&self.until, now() + BOUND) else { return Some(()) };
        while now() < end && !fs::exists(file).unwrap_or(true) {
            rest(server, call, LOOK)?;
        }
        Some(())
    }

    fn answer(&self) -> Value {
        let text = text(self.size);
        if self.fails { failure(&text) } else { pipe::text(&text) }
    }
}

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    serve_in_eras(arguments, &OFFER)
}

fn list(
    server: &Arc<WellBehavedServer>,
    message: &ClientMessage,
    era: &RequestRules,
) -> Option<HandlerOutcome> {
    if message.method() != "tools/list" {
        return listings::answer(server, message, era);
    }
    let mut tools = tools::descriptions();
    tools.extend(descriptions());
    tools.sort_unstable_by_key(|tool| tool["name"].to_string());
    Some(listings::page(server, message, "tools", &tools))
}

fn descriptions() -> [Value; 3] {
    let optional = |kind, does| json!({"type": kind, "description": does});
    let slow = json!({
        "name": "slow",
        "description": "Answers after so many seconds, with a text of numbers that say where in it they are",
        "inputSchema": {
            "type": "object",
            "properties": {
                "seconds": optional("number", "How long it takes"),
                "size": optional("integer", "How many bytes its text has; 64 if not given"),
                "progress": optional("boolean", "Whether it reports progress after each tenth of its time"),
                "log": optional("boolean", "Whether it logs a line after each tenth of its time"),
                "fail": optional("boolean", "Whether its result is an error"),
                "ask": optional("boolean", "Whether it asks the user something half way"),
                "question": optional("string", "The method of what it asks; `elicitation/create` if not given"),
                "until": optional("string", "A file that it waits for half way"),
                "label": optional("string", "Tells calls apart that are otherwise the same"),
            },
            "required": ["seconds"],
        },
        "annotations": {"readOnlyHint": false, "idempotentHint": false},
    });
    let mut safe = slow.clone();
    safe["name"] = json!("slow_read");
    safe["annotations"] = json!({"readOnlyHint": true});
    [
        slow,
        safe,
        json!({
            "name": "seen",
            "description": "Returns how many calls of `slow` were begun, answered and cancelled, by their arguments",
            "inputSchema": {"type": "object"},
            "annotations": {"readOnlyHint": true, "idempotentHint": true},
        }),
    ]
}

fn call(server: &Arc<WellBehavedServer>, message: &ClientMessage, era: &RequestRules) -> HandlerOutcome {
    match message.tool() {
        "slow" | "slow_read" => match SlowCall::of(message) {
            Ok(wish) => slow(server, message, era, wish),
            Err(wrong) => HandlerOutcome::error(INVALID_PARAMS, &wrong),
        },
        "seen" => HandlerOutcome::Result(pipe::text(&seen(server).to_string())),
        _ => tools::call(server, message, era),
    }
}

fn seen(server: &WellBehavedServer) -> Value {
    let flags = lock(&server.running);
    let mut seen = lock(&SEEN);
    // A call may not have noticed yet that it is cancelled, and whoever cancelled it wants to see that.
    let cancelled = seen.running.keys().filter(|call| flags.get(*call) == Some(&true)).cloned();
    for call in cancelled.collect::<Vec<_>>() {
        seen.end(&call, CallEnding::Cancelled);
    }
    seen.tell()
}

fn slow(
    server: &Arc<WellBehavedServer>,
    message: &ClientMessage,
    era: &RequestRules,
    wish: SlowCall,
) -> HandlerOutcome {
    let is_modern = matches!(era, RequestRules::Modern);
    if wish.asks && !can_be_asked(server, message, is_modern) {
        return HandlerOutcome::Result(failure(
            "The client has no capability `elicitation`, so it cannot be asked",
        ));
    }
    // Without a handshake a question is an answer, and the call comes again with what it asked for.
    let came_back = message.params()["inputResponses"][QUESTION].clone();
    let answer = Some(came_back).filter(|answer| is_modern && wish.asks && !answer.is_null());
    let (first, last) = match (wish.asks && is_modern, &answer) {
        (true, None) => (0, HALF),
        (true, Some(_)) => (HALF, PARTS),
        (false, _) => (0, PARTS),
    };
    let (id, arguments) = (message.id().to_string(), message.params()["arguments"].to_string());
    lock(&SEEN).begin(id.clone(), arguments, first == 0);
    // Entered before the thread runs, so that the end of stdin and a cancellation find it.
    let mut question = (wish.asks && !is_modern).then(|| QuestionSlot::enter(server, &id));
    let token = Some(message.progress_token().clone()).filter(|token| wish.reports && !token.is_null());
    let logs = wish.logs && era.wants_log(message);
    let is_whole = last == PARTS;
    let work = move |server: &WellBehavedServer, call: &str| {
        let (start, mut answer) = (now(), answer);
        for part in first + 1..=last {
            let end = start + wish.length * (part - first) / PARTS;
            rest(server, call, end.saturating_duration_since(now()))?;
            report(part, token.as_ref(), logs).ok()?;
            if part == HALF {
                wish.wait_for_file(server, call)?;
            }
            if let Some(question) = question.take_if(|_| part == HALF) {
                answer = Some(question.put(&wish.question, &question_params(&wish.question))?);
            }
        }
        Some(if is_whole { with_heard(wish.answer(), answer.as_ref()) } else { ask_by_result() })
    };
    let settle = move |ending| {
        // Half of a call is not one that was answered.
        let ending = if is_whole || ending == CallEnding::Cancelled { ending } else { CallEnding::Lost };
        lock(&SEEN).end(&id, ending);
    };
    beside_and_settle(server, message, work, settle)
}

fn can_be_asked(server: &WellBehavedServer, message: &ClientMessage, is_modern: bool) -> bool {
    if is_modern {
        !message.params()["_meta"][CLIENT_CAPABILITIES]["elicitation"].is_null()
    } else {
        !lock(&server.session).client_capabilities["elicitation"].is_null()
    }
}

fn report(part: u32, token: Option<&Value>, logs: bool) -> io::Result<()> {
    let text = format!("part {part} of {PARTS}");
    if let Some(token) = token {
        let mut progress = pipe::progress(token, part.into(), PARTS.into());
        progress["params"]["message"] = json!(text);
        pipe::send(&progress)?;
    }
    if logs { pipe::send(&pipe::log(&text)) } else { Ok(()) }
}

fn ask_by_result() -> Value {
    let method = "elicitation/create";
    let question = json!({"method": method, "params": question_params(method)});
    json!({"resultType": "input_required", "inputRequests": {QUESTION: question}})
}

/// Adds to a result what the client said when it was asked.
fn with_heard(mut result: Value, answer: Option<&Value>) -> Value {
    if let (Some(answer), Some(content)) = (answer, result["content"].as_array_mut()) {
        let outcome = [&answer["result"], &answer["error"]].into_iter().find(|outcome| !outcome.is_null());
        content.push(json!({"type": "text", "text": outcome.unwrap_or(answer).to_string()}));
    }
    result
}

/// Returns a text of so many bytes: numbers of fifteen digits with a space behind each, which say at which byte they begin.
fn text(size: usize) -> String {
    let mut text: String = (0..size).step_by(16).map(|position| format!("{position:015} ")).collect();
    text.truncate(size);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_says_where_each_of_its_parts_is() {
        assert_eq!(text(0), "");
        assert_eq!(text(20), "000000000000000 0000");
        let long = text(16 * 1000);
        assert!((0..1000).all(|number| long[16 * number..][..15] == format!("{:015}", 16 * number)));
    }

    #[test]
    fn a_call_ends_once() {
        let mut seen = CallLog::default();
        seen.begin("1".to_owned(), r#"{"seconds":1}"#.to_owned(), true);
        seen.end("1", CallEnding::Cancelled);
        seen.end("1", CallEnding::Answered);
        let told = seen.tell();
        assert_eq!(
            (&told["begun"], &told["answered"], &told["cancelled"]),
            (&json!(1), &json!(0), &json!(1))
        );
        assert_eq!(told["calls"][0]["arguments"]["seconds"], 1);
    }
}
