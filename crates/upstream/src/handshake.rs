//! The handshake, which finds out the revision of a server within one deadline (X-11). Pure.
//!
//! # Theory of operation
//!
//! `server/discover` goes out first, because the first request decides the era of some servers for good (contract 4). A server that knows
//! only handshakes refuses it without harm. Any refusal but a modern one means `initialize`, and so does silence. But a server that is slow
//! to start is silent too, so the clock for silence runs from its first sign of life. The request that is answered first counts, even if
//! the other has gone out by then (protocol.md 1.4).
//!
//! A server that was found to know handshakes alone gets `initialize` at once. That is a guess: if the server refuses it or does not
//! answer, `server/discover` goes out, and all goes on as if nothing had been known.
//!
//! Invariants: each of the two requests goes out at most once, with two exceptions. A server that refuses a revision which it says it
//! speaks is asked once more, and so is a server that refused a guess. A server becomes ready, or fails, once.

use std::time::Duration;

use serde_json::{Map, Value, value::RawValue};
use unhang_bridge::params::{self, Signature};
use unhang_wire::Json;

use unhang_core::{
    config::{PROBE_PATIENCE, PROBE_SILENCE},
    error::{Error, Failure, ServerError},
    fault::FaultKind,
    revision::Revision,
};

/// The errors that come only from servers of the modern era: a header that differs, a missing capability, an unknown revision.
const MODERN_ERRORS: [i64; 3] = [HEADER_MISMATCH, WANTS_CAPABILITY, WRONG_REVISION];
pub(crate) const HEADER_MISMATCH: i64 = -32020;
const WANTS_CAPABILITY: i64 = -32021;
const WRONG_REVISION: i64 = -32022;

/// The answer of a server to the handshake.
#[derive(Clone, Debug)]
pub struct ServerInfo {
    /// The revision that is spoken with it.
    pub revision: Revision,
    /// The server's capabilities.
    pub capabilities: Map<String, Value>,
    /// The server's name and version.
    pub server_info: Option<Value>,
    /// The server's instructions to a model.
    pub instructions: Option<String>,
    /// The server's answer to the handshake, as received.
    pub answer: Box<RawValue>,
}

impl ServerInfo {
    fn read(revision: Revision, answer: &RawValue) -> Self {
        let mut members: Map<String, Value> = serde_json::from_str(answer.get()).unwrap_or_default();
        let mut take = |name: &str| members.remove(name);
        let meta = take("_meta");
        let in_meta = || Some(meta.as_ref()?.get(SERVER_INFO)?.clone());
        ServerInfo {
            revision,
            capabilities: match take("capabilities") {
                Some(Value::Object(capabilities)) => capabilities,
                _ => Map::new(),
            },
            server_info: take("serverInfo").or_else(in_meta),
            instructions: take("instructions").and_then(|text| text.as_str().map(str::to_owned)),
            answer: answer.to_owned(),
        }
    }
}

const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// Unhang's identity, for a server.
#[derive(Clone, Debug)]
pub struct Introduction(Signature);

impl Introduction {
    /// Makes the introduction from name and version, and from the capabilities that are declared.
    pub fn new(info: &Value, capabilities: &Value) -> Self {
        Self(Signature {
            revision: Revision::V2026July.name(),
            client_info: info.to_string(),
            client_capabilities: capabilities.to_string(),
            log_level: None,
        })
    }

    /// Returns whether the capabilities declare anything that a server could ask for.
    pub(crate) fn may_be_asked(&self) -> bool {
        self.0.client_capabilities != "{}"
    }

    /// Returns the params of this request of the handshake.
    pub fn params(&self, ask: HandshakeRequest) -> String {
        let Signature { client_info, client_capabilities, .. } = &self.0;
        match ask {
            HandshakeRequest::Discover => self.signed("{}"),
            HandshakeRequest::Initialize => format!(
                r#"{{"protocolVersion":"{}","capabilities":{client_capabilities},"clientInfo":{client_info}}}"#,
                Revision::V2025November.name()
            ),
        }
    }

    /// Adds to params what every request of a stateless revision says (protocol.md 1.3).
    pub fn signed(&self, params: &str) -> String {
        params::to_modern(Json::new(params.as_bytes()), &self.0)
    }
}

/// A request of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeRequest {
    /// `server/discover` (from 2026-07-28 on).
    Discover,
    /// `initialize` (up to 2025-11-25).
    Initialize,
}

impl HandshakeRequest {
    /// Returns the request's method.
    pub fn method(self) -> &'static str {
        match self {
            HandshakeRequest::Discover => "server/discover",
            HandshakeRequest::Initialize => "initialize",
        }
    }
}

/// The next step of a handshake.
#[derive(Debug)]
pub(crate) enum HandshakeStep {
    Wait,
    Ask(HandshakeRequest),
    Ready(Box<ServerInfo>),
    /// The kind of failure, its description and a hint.
    Failed(FaultKind, String, &'static str),
    /// The failure of a request, which becomes the failure of the handshake.
    FailedWith(Box<Failure>),
}

/// The handshake with one server.
#[derive(Debug)]
pub(crate) struct Handshake {
    server: Box<str>,
    since: Duration,
    alive_since: Option<Duration>,
    /// `server/discover` may still be answered.
    is_discovering: bool,
    is_initializing: bool,
    /// `server/discover` went out once more.
    was_repeated: bool,
    /// Says whether `initialize` went out first, because the server understood it the last time.
    guess: KnownEra,
}

/// The knowledge about a server when the handshake began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KnownEra {
    None,
    /// The server was found to know handshakes alone.
    Made,
    /// The server was found to know handshakes alone, and now does not seem to; `server/discover` has gone out.
    Doubted,
}

impl Handshake {
    /// Begins a handshake with this request, which goes out now.
    pub(crate) fn new(server: &str, now: Duration, first: HandshakeRequest) -> Self {
        Self {
            server: server.into(),
            since: now,
            alive_since: None,
            is_discovering: first == HandshakeRequest::Discover,
            is_initializing: first == HandshakeRequest::Initialize,
            was_repeated: false,
            guess: KnownEra::None,
        }
    }

    /// Begins a handshake with `initialize`, because the server was found to know handshakes alone.
    pub(crate) fn guessing(server: &str, now: Duration) -> Self {
        Self { guess: KnownEra::Made, ..Self::new(server, now, HandshakeRequest::Initialize) }
    }

    /// Returns when the handshake began.
    pub(crate) fn since(&self) -> Duration {
        self.since
    }

    /// Notes a sign of life of the server: it has written something, on any channel.
    pub(crate) fn alive(&mut self, now: Duration) {
        self.alive_since.get_or_insert(now);
    }

    /// Returns when [`Handshake::tick`] is due; `None` if it never is.
    pub(crate) fn next_tick(&self) -> Option<Duration> {
        let probe_deadline = self.alive_since.map(|since| since + PROBE_PATIENCE);
        let silence = self.since + PROBE_SILENCE;
        let is_due = !self.is_initializing;
        let is_due = is_due || self.may_be_wrong();
        is_due.then(|| probe_deadline.map_or(silence, |probe_deadline| probe_deadline.min(silence)))
    }

    /// Takes the step that is due at this time; [`HandshakeStep::Wait`] if none is.
    pub(crate) fn tick(&mut self, now: Duration) -> HandshakeStep {
        match self.next_tick() {
            Some(at) if now >= at && self.may_be_wrong() => self.discover(),
            Some(at) if now >= at => self.initialize(),
            _ => HandshakeStep::Wait,
        }
    }

    /// Returns whether the request that went out rests on earlier knowledge of the server alone.
    fn may_be_wrong(&self) -> bool {
        self.guess == KnownEra::Made
    }

    fn discover(&mut self) -> HandshakeStep {
        self.guess = KnownEra::Doubted;
        self.is_discovering = true;
        HandshakeStep::Ask(HandshakeRequest::Discover)
    }

    fn initialize(&mut self) -> HandshakeStep {
        if std::mem::replace(&mut self.is_initializing, true) {
            return HandshakeStep::Wait;
        }
        HandshakeStep::Ask(HandshakeRequest::Initialize)
    }

    /// Takes the outcome of one of the two requests, and returns the next step.
    pub(crate) fn answered(
        &mut self,
        ask: HandshakeRequest,
        outcome: Result<Box<RawValue>, Error>,
    ) -> HandshakeStep {
        match ask {
            HandshakeRequest::Discover => self.discovered(outcome),
            HandshakeRequest::Initialize => self.initialized(outcome),
        }
    }

    fn discovered(&mut self, outcome: Result<Box<RawValue>, Error>) -> HandshakeStep {
        self.is_discovering = false;
        match outcome {
            Ok(answer) => {
                let members: Value = serde_json::from_str(answer.get()).unwrap_or_default();
                match supported(&members["supportedVersions"]) {
                    // Some servers answer whatever is asked; such a server is not of the modern era.
                    None => self.initialize(),
                    Some(names) => self.choose(&names, || ServerInfo::read(Revision::V2026July, &answer)),
                }
            }
            Err(Error::Server(error)) if error.code == WRONG_REVISION => match supported_by(&error) {
                // The server says that it speaks the revision that it has just refused, so it is asked once more.
                Some(names) if is_ours(&names) && !std::mem::replace(&mut self.was_repeated, true) => {
                    self.is_discovering = true;
                    HandshakeStep::Ask(HandshakeRequest::Discover)
                }
                Some(names) => self.choose_handshake(&names),
                None => self.refused("server/discover", &error),
            },
            Err(Error::Server(error)) if MODERN_ERRORS.contains(&error.code) => {
                self.refused("server/discover", &error)
            }
            Err(Error::Failure(failure))
                if matches!(
                    failure.kind,
                    FaultKind::Deadline | FaultKind::ServerExited | FaultKind::StartFailed
                ) =>
            {
                HandshakeStep::FailedWith(failure)
            }
            Err(_) => self.initialize(),
        }
    }

    fn choose(&mut self, names: &[String], session: impl FnOnce() -> ServerInfo) -> HandshakeStep {
        if is_ours(names) {
            return HandshakeStep::Ready(Box::new(session()));
        }
        self.choose_handshake(names)
    }

    /// Chooses `initialize` if the server, which does not speak the stateless revision, speaks an older one; fails otherwise.
    fn choose_handshake(&mut self, names: &[String]) -> HandshakeStep {
        if names.iter().any(|name| Revision::of_handshake(name).is_some()) {
            return self.initialize();
        }
        HandshakeStep::Failed(
            FaultKind::BadResponse,
            format!(
                "`{}` supports no revision of MCP that unhang supports, only {}",
                self.server,
                names.join(", ")
            ),
            "use a version of it that supports one of 2024-11-05 to 2026-07-28",
        )
    }

    fn initialized(&mut self, outcome: Result<Box<RawValue>, Error>) -> HandshakeStep {
        let is_refusal = match &outcome {
            Err(Error::Server(_)) => true,
            Err(Error::Failure(failure)) => failure.kind == FaultKind::BadResponse,
            _ => false,
        };
        if is_refusal && self.may_be_wrong() {
            self.is_initializing = false;
            return self.discover();
        }
        if is_refusal && self.is_discovering && self.guess == KnownEra::Doubted {
            // The answer to the other request decides.
            self.is_initializing = false;
            return HandshakeStep::Wait;
        }
        let answer = match outcome {
            Ok(answer) => answer,
            // The server has chosen the other era, and its answer to the first request is on its way.
            Err(Error::Server(error)) if error.code == WRONG_REVISION && self.is_discovering => {
                return HandshakeStep::Wait;
            }
            Err(Error::Server(error)) => return self.refused("initialize", &error),
            Err(Error::Failure(failure)) => return HandshakeStep::FailedWith(failure),
            Err(error) => {
                return HandshakeStep::Failed(FaultKind::StartFailed, error.to_string(), START_HINT);
            }
        };
        let members: Value = serde_json::from_str(answer.get()).unwrap_or_default();
        match members["protocolVersion"].as_str() {
            Some(name) => match Revision::of_handshake(name).or(None) {
                Some(revision) => HandshakeStep::Ready(Box::new(ServerInfo::read(revision, &answer))),
                None => HandshakeStep::Failed(
                    FaultKind::BadResponse,
                    format!(
                        "`{}` answered `initialize` with revision `{name}`, which MCP does not have",
                        self.server
                    ),
                    "this is a fault of the server",
                ),
            },
            None => HandshakeStep::Failed(
                FaultKind::BadResponse,
                format!("`{}` answered `initialize` without a protocolVersion", self.server),
                "check whether it is an MCP server",
            ),
        }
    }

    fn refused(&self, method: &str, error: &ServerError) -> HandshakeStep {
        let happened =
            format!("`{}` refused `{method}`: {} (error {})", self.server, error.message, error.code);
        HandshakeStep::Failed(FaultKind::StartFailed, happened, START_HINT)
    }
}

/// The hint for a server process whose handshake fails.
pub(super) const START_HINT: &str = "see its stderr, and check whether it is an MCP server";
/// The hint for a server behind a URL whose handshake fails.
pub(super) const REMOTE_START_HINT: &str = "see its log, and check whether it is an MCP server";

/// Returns whether unhang's stateless revision is among these names.
fn is_ours(names: &[String]) -> bool {
    names.iter().any(|name| name == Revision::V2026July.name())
}

/// Returns whether this is the answer to `server/discover` of a server that speaks unhang's stateless revision.
pub(super) fn is_discovery_of_ours(answer: &RawValue) -> bool {
    let members: Value = serde_json::from_str(answer.get()).unwrap_or_default();
    supported(&members["supportedVersions"]).is_some_and(|names| is_ours(&names))
}

/// Reads a list of revisions; `None` if the value holds no names.
fn supported(value: &Value) -> Option<Vec<String>> {
    let names: Vec<String> =
        value.as_array()?.iter().filter_map(|name| Some(name.as_str()?.to_owned())).collect();
    (!names.is_empty()).then_some(names)
}

fn supported_by(error: &ServerError) -> Option<Vec<String>> {
    let data: Value = serde_json::from_str(error.data.as_ref()?.get()).ok()?;
    supported(&data["supported"])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    fn refusal(code: i64, data: &str) -> Result<Box<RawValue>, Error> {
        let error = format!(r#"{{"code":{code},"message":"no","data":{data}}}"#);
        Err(Error::Server(Box::new(ServerError::read("srv", "server/discover", &error))))
    }

    const MODERN: &str = r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"m"}}}"#;
    const LEGACY: &str = r#"{"protocolVersion":"2025-06-18","capabilities":{},"serverInfo":{"name":"l"},"instructions":"be kind"}"#;

    fn short(step: &HandshakeStep) -> String {
        match step {
            HandshakeStep::Wait => "wait".to_owned(),
            HandshakeStep::Ask(ask) => ask.method().to_owned(),
            HandshakeStep::Ready(session) => {
                format!(
                    "{} {}",
                    session.revision.name(),
                    session.server_info.as_ref().map_or("", |info| info["name"].as_str().unwrap())
                )
            }
            HandshakeStep::Failed(kind, happened, _) => format!("{}: {happened}", kind.word()),
            HandshakeStep::FailedWith(failure) => failure.kind.word().to_owned(),
        }
    }

    #[test]
    fn the_first_answer_decides() {
        let failure = |kind| Err(Failure { kind, ..Failure::ended() }.into());
        for (answer, expect) in [
            (Ok(raw(MODERN)), "2026-07-28 m"),
            (Ok(raw(r#"{"supportedVersions":["2025-11-25","2026-07-28"]}"#)), "2026-07-28 "),
            (Ok(raw(r#"{"supportedVersions":["2025-11-25"]}"#)), "initialize"),
            (
                Ok(raw(r#"{"supportedVersions":["2027-01-01"]}"#)),
                "bad_response: `srv` supports no revision of MCP that unhang supports, only 2027-01-01",
            ),
            (Ok(raw("{}")), "initialize"),
            (Ok(raw("[]")), "initialize"),
            (refusal(-32601, "null"), "initialize"),
            (refusal(-32602, "null"), "initialize"),
            (refusal(-32000, "null"), "initialize"),
            (refusal(-32022, r#"{"supported":["2025-06-18"]}"#), "initialize"),
            (refusal(-32022, r#"{"supported":["2026-07-28"]}"#), "server/discover"),
            (
                refusal(-32022, r#"{"supported":["2027-01-01"]}"#),
                "bad_response: `srv` supports no revision of MCP that unhang supports, only 2027-01-01",
            ),
            (refusal(-32022, "null"), "start_failed: `srv` refused `server/discover`: no (error -32022)"),
            (refusal(-32021, "null"), "start_failed: `srv` refused `server/discover`: no (error -32021)"),
            (failure(FaultKind::BadResponse), "initialize"),
            (failure(FaultKind::Deadline), "deadline"),
            (failure(FaultKind::ServerExited), "server_exited"),
        ] {
            let told = format!("{answer:?}");
            let step = Handshake::new("srv", at(0), HandshakeRequest::Discover)
                .answered(HandshakeRequest::Discover, answer);
            assert_eq!(short(&step), expect, "{told}");
        }
    }

    #[test]
    fn the_handshake_of_old_is_checked() {
        for (answer, expect) in [
            (Ok(raw(LEGACY)), "2025-06-18 l"),
            (
                Ok(raw(r#"{"protocolVersion":"1999-01-01"}"#)),
                "bad_response: `srv` answered `initialize` with revision `1999-01-01`, which MCP does \
                 not have",
            ),
            (
                Ok(raw(r#"{"protocolVersion":"2026-07-28"}"#)),
                "bad_response: `srv` answered `initialize` with revision `2026-07-28`, which MCP does \
                 not have",
            ),
            (Ok(raw("{}")), "bad_response: `srv` answered `initialize` without a protocolVersion"),
            (refusal(-32603, "null"), "start_failed: `srv` refused `initialize`: no (error -32603)"),
        ] {
            let mut handshake = Handshake::new("srv", at(0), HandshakeRequest::Discover);
            assert_eq!(
                short(&handshake.answered(HandshakeRequest::Discover, refusal(-32601, "null"))),
                "initialize"
            );
            assert_eq!(short(&handshake.answered(HandshakeRequest::Initialize, answer)), expect);
        }
        let HandshakeStep::Ready(session) = Handshake::new("srv", at(0), HandshakeRequest::Discover)
            .answered(HandshakeRequest::Initialize, Ok(raw(LEGACY)))
        else {
            panic!()
        };
        assert_eq!((session.instructions.as_deref(), session.answer.get()), (Some("be kind"), LEGACY));
    }

    /// A cold start and a server that keeps silent look alike (protocol.md 1.4).
    #[test]
    fn silence_means_initialize_but_counts_from_the_first_sign_of_life() {
        let mut handshake = Handshake::new("srv", at(0), HandshakeRequest::Discover);
        assert_eq!(handshake.next_tick(), Some(PROBE_SILENCE));
        assert_eq!(short(&handshake.tick(at(5_000))), "wait");
        handshake.alive(at(6_000));
        handshake.alive(at(7_000));
        assert_eq!(handshake.next_tick(), Some(at(9_000)));
        assert_eq!(short(&handshake.tick(at(8_999))), "wait");
        assert_eq!(short(&handshake.tick(at(9_000))), "initialize");
        assert_eq!(
            (handshake.next_tick(), short(&handshake.tick(at(99_000)))),
            (None, "wait".to_owned()),
            "once"
        );
        // The late answer to the first question is as good as any.
        assert_eq!(short(&handshake.answered(HandshakeRequest::Discover, Ok(raw(MODERN)))), "2026-07-28 m");

        let mut silent = Handshake::new("srv", at(0), HandshakeRequest::Discover);
        assert_eq!(short(&silent.tick(PROBE_SILENCE)), "initialize");
        assert_eq!(
            short(&silent.answered(HandshakeRequest::Initialize, refusal(-32022, "null"))),
            "wait",
            "it has taken to the other era"
        );
        assert_eq!(
            short(&silent.answered(HandshakeRequest::Discover, refusal(-32601, "null"))),
            "wait",
            "initialize is out already"
        );
    }

    #[test]
    fn what_was_known_of_a_server_is_a_guess() {
        let failure = |kind| Err(Failure { kind, ..Failure::ended() }.into());
        let begin = || Handshake::guessing("srv", at(0));
        assert_eq!(short(&begin().answered(HandshakeRequest::Initialize, Ok(raw(LEGACY)))), "2025-06-18 l");
        assert_eq!(
            short(&begin().answered(HandshakeRequest::Initialize, failure(FaultKind::ServerExited))),
            "server_exited"
        );
        // It knows the other one alone by now, and says so.
        for refused in [refusal(-32022, "null"), refusal(-32601, "null"), failure(FaultKind::BadResponse)] {
            let mut changed = begin();
            assert_eq!(short(&changed.answered(HandshakeRequest::Initialize, refused)), "server/discover");
            assert_eq!(short(&changed.answered(HandshakeRequest::Discover, Ok(raw(MODERN)))), "2026-07-28 m");
        }
        // It refuses whatever comes first.
        let mut odd = begin();
        assert_eq!(
            short(&odd.answered(HandshakeRequest::Initialize, refusal(-32000, "null"))),
            "server/discover"
        );
        assert_eq!(short(&odd.answered(HandshakeRequest::Discover, refusal(-32601, "null"))), "initialize");
        assert_eq!(
            short(&odd.answered(HandshakeRequest::Initialize, refusal(-32000, "null"))),
            "start_failed: `srv` refused `initialize`: no (error -32000)"
        );
        // It says nothing to the first; both may be answered late.
        let mut mute = begin();
        mute.alive(at(1_000));
        assert_eq!(short(&mute.tick(at(3_999))), "wait");
        assert_eq!(short(&mute.tick(at(4_000))), "server/discover");
        assert_eq!((mute.next_tick(), short(&mute.tick(at(99_000)))), (None, "wait".to_owned()));
        assert_eq!(short(&mute.answered(HandshakeRequest::Initialize, refusal(-32601, "null"))), "wait");
        assert_eq!(short(&mute.answered(HandshakeRequest::Discover, Ok(raw(MODERN)))), "2026-07-28 m");
        let mut slow = begin();
        assert_eq!(short(&slow.tick(PROBE_SILENCE)), "server/discover");
        assert_eq!(short(&slow.answered(HandshakeRequest::Discover, refusal(-32601, "null"))), "wait");
        assert_eq!(short(&slow.answered(HandshakeRequest::Initialize, Ok(raw(LEGACY)))), "2025-06-18 l");
    }

    #[test]
    fn what_every_stateless_request_says_is_added_and_keeps_the_rest() {
        let introduction = Introduction::new(&json!({ "name": "unhang" }), &json!({ "elicitation": {} }));
        let params = introduction.signed(r#"{"_meta":{"progressToken":1},"name":"x"}"#);
        let params: Value = serde_json::from_str(&params).unwrap();
        let meta = &params["_meta"];
        assert_eq!((&meta["progressToken"], &params["name"]), (&json!(1), &json!("x")));
        assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
        assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], json!({ "elicitation": {} }));
        let asked: Value = serde_json::from_str(&introduction.params(HandshakeRequest::Initialize)).unwrap();
        assert_eq!(
            (&asked["protocolVersion"], &asked["clientInfo"]["name"]),
            (&json!("2025-11-25"), &json!("unhang"))
        );
    }
}
