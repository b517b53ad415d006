//! The handshake, which finds out the revision of a server within one deadline (X-11). Pure.
//!
//! # Theory of operation
//!
//! `server/discover` goes out first, because the first request decides the era of some servers for good (contract 4). Most servers that
//! know only handshakes refuse it without harm. Some name revisions that nobody knows, and some processes exit: another process of those is
//! greeted by `initialize`. Any refusal but a modern one means `initialize`, and so does silence. But a server that is slow
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

/// The errors that come only from servers of the modern era: a header that differs, a missing capability. An unknown revision is not one of
/// them: a server of handshakes may know the code too.
const MODERN_ERRORS: [i64; 2] = [HEADER_MISMATCH, WANTS_CAPABILITY];
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
    /// Reads what a server has said of itself in its answer to a handshake of this revision. Members that the answer lacks are empty.
    pub fn read(revision: Revision, answer: &RawValue) -> Self {
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
    /// What the server did when it was asked for `server/discover`, if that was no answer.
    discovery_refusal: Option<String>,
    /// The refusal was the exit of another process.
    is_second_process: bool,
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
            discovery_refusal: None,
            is_second_process: false,
        }
    }

    /// Begins the handshake anew with `initialize`, for another process of a server that ended at `server/discover`. The time goes on.
    pub(crate) fn with_another_process(&self, how_it_ended: &str) -> Self {
        Self {
            discovery_refusal: Some(format!("{how_it_ended} at `server/discover`")),
            is_second_process: true,
            ..Self::new(&self.server, self.since, HandshakeRequest::Initialize)
        }
    }

    /// Returns whether the server has been sent `server/discover` and nothing else.
    pub(crate) fn has_only_discovered(&self) -> bool {
        self.is_discovering && !self.is_initializing && !self.was_repeated && self.guess == KnownEra::None
    }

    /// Adds to the failure of a start what the server did before at `server/discover`.
    pub(crate) fn tell_refusal(&self, failure: &mut Failure) {
        let Some(refusal) = &self.discovery_refusal else { return };
        failure.happened = format!("{}; before that, {refusal}", failure.happened);
        // Whoever may not come in does not come in by `initialize`.
        let may_help = matches!(failure.kind, FaultKind::Deadline | FaultKind::BadResponse);
        if may_help && !self.is_second_process {
            failure.hint = format!("{}; {LEGACY_HINT}", failure.hint);
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
    pub(crate) fn may_be_wrong(&self) -> bool {
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
                    Some(names) if is_ours(&names) => {
                        HandshakeStep::Ready(Box::new(ServerInfo::read(Revision::V2026July, &answer)))
                    }
                    Some(names) => self.initialize_after(format!(
                        "`{}` answered `server/discover` with no revision that unhang supports, only {}",
                        self.server,
                        names.join(", ")
                    )),
                    // Some servers answer whatever is asked; such a server is not of the modern era.
                    None => self.initialize_after(format!(
                        "`{}` answered `server/discover` without supportedVersions",
                        self.server
                    )),
                }
            }
            // The server says that it speaks the revision that it has just refused, so it is asked once more.
            Err(Error::Server(error))
                if error.code == WRONG_REVISION
                    && supported_by(&error).is_some_and(|names| is_ours(&names))
                    && !std::mem::replace(&mut self.was_repeated, true) =>
            {
                self.is_discovering = true;
                HandshakeStep::Ask(HandshakeRequest::Discover)
            }
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
            Err(Error::Server(error)) => {
                let supports =
                    supported_by(&error).map(|names| format!("; it supports only {}", names.join(", ")));
                let told = self.told("server/discover", &error);
                self.initialize_after(told + &supports.unwrap_or_default())
            }
            Err(Error::Failure(failure)) => self.initialize_after(failure.happened),
            Err(error) => self.initialize_after(error.to_string()),
        }
    }

    /// Goes on with `initialize`, because the server did this at `server/discover`.
    fn initialize_after(&mut self, refusal: String) -> HandshakeStep {
        self.discovery_refusal = Some(refusal);
        self.initialize()
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
            Err(Error::Failure(mut failure)) => {
                self.tell_refusal(&mut failure);
                return HandshakeStep::FailedWith(failure);
            }
            Err(error) => {
                return self.failed(FaultKind::StartFailed, error.to_string(), START_HINT);
            }
        };
        let members: Value = serde_json::from_str(answer.get()).unwrap_or_default();
        match members["protocolVersion"].as_str() {
            Some(name) => match Revision::of_handshake(name).or(None) {
                Some(revision) => HandshakeStep::Ready(Box::new(ServerInfo::read(revision, &answer))),
                None => self.failed(
                    FaultKind::BadResponse,
                    format!(
                        "`{}` answered `initialize` with revision `{name}`, which MCP does not have",
                        self.server
                    ),
                    "this is a fault of the server",
                ),
            },
            None => self.failed(
                FaultKind::BadResponse,
                format!("`{}` answered `initialize` without a protocolVersion", self.server),
                "check whether it is an MCP server",
            ),
        }
    }

    fn refused(&self, method: &str, error: &ServerError) -> HandshakeStep {
        self.failed(FaultKind::StartFailed, self.told(method, error), START_HINT)
    }

    fn told(&self, method: &str, error: &ServerError) -> String {
        format!("`{}` refused `{method}`: {} (error {})", self.server, error.message, error.code)
    }

    fn failed(&self, kind: FaultKind, happened: String, hint: &'static str) -> HandshakeStep {
        match &self.discovery_refusal {
            Some(refusal) if self.is_second_process => {
                HandshakeStep::Failed(kind, format!("{happened}; before that, {refusal}"), hint)
            }
            Some(refusal) => {
                HandshakeStep::Failed(kind, format!("{happened}; before that, {refusal}"), LEGACY_HINT)
            }
            None => HandshakeStep::Failed(kind, happened, hint),
        }
    }
}

/// The hint for a server that has refused both requests: some take `initialize` only as the first.
const LEGACY_HINT: &str =
    "see its log; `era = \"legacy\"` in its configuration greets it by `initialize` alone";

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

/// Returns whether this is the answer to `initialize` of a server that speaks a revision of the handshake.
pub(super) fn is_initialization(answer: &RawValue) -> bool {
    let members: Value = serde_json::from_str(answer.get()).unwrap_or_default();
    members["protocolVersion"].as_str().is_some_and(|name| Revision::of_handshake(name).is_some())
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
mod tests;
