//! The client's description of itself and of its session: its name, its era, and the messages that a fresh process is told again.
//!
//! Invariant: the revision is the one that the server has answered to the handshake, or the one that a client without a handshake names.

use std::time::Duration;

use serde_json::Value;
use unhang_bridge::Era;
use unhang_core::{clients, revision::Revision, session::RecordedSession};
use unhang_wire::{self as wire, Id, Json, ResponseOutcome, compose};

use super::wrap_request::WrapRequest;
use unhang_upstream::keeping::LONGEST_ROOTS;

/// The era of the client (protocol.md 1.4). The guard mirrors it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ClientEra {
    #[default]
    Unknown,
    Legacy,
    Modern,
}

/// The known facts about the client. See the module's text.
#[derive(Debug, Default)]
pub(super) struct ClientProfile {
    era: ClientEra,
    name: Option<String>,
    call_clock: Option<Duration>,
    negotiated: Option<String>,
    /// The version in the requests of a client without a handshake.
    modern_version: Option<String>,
    /// The revision of whichever of these two counts, once it is known. It is asked for at every call.
    revision: Option<Revision>,
    session: RecordedSession,
    /// The capabilities in the client's handshake, as JSON.
    capabilities: Option<Box<str>>,
    /// The client's last answer to `roots/list`, as JSON.
    roots: Option<Box<str>>,
    /// Whether nobody has looked at the roots since.
    has_new_roots: bool,
}

/// The outcome of a request that has introduced the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClientIntroduction {
    /// Whether an earlier session is over.
    pub(super) is_new_session: bool,
    /// Whether the client asks for lists again when it hears that they have changed.
    pub(super) follows_lists: bool,
}

impl ClientProfile {
    /// Notes an answer to `roots/list`, unless it is too long to be kept.
    pub(super) fn note_roots(&mut self, result: Json<'_>) {
        let known = Some(result.get()).filter(|roots| roots.len() <= LONGEST_ROOTS);
        if known != self.roots.as_deref() {
            (self.roots, self.has_new_roots) = (known.map(Into::into), true);
        }
    }

    /// Returns the last answer to `roots/list`, as JSON; `None` if there is none, or it is too long.
    pub(super) fn roots(&self) -> Option<&str> {
        self.roots.as_deref()
    }

    /// Returns whether the roots have changed since the last look.
    pub(super) fn take_new_roots(&mut self) -> bool {
        std::mem::take(&mut self.has_new_roots)
    }

    /// Learns from a request about the client and its session. Returns `None` if the request does not introduce the client.
    pub(super) fn learn(&mut self, request: &WrapRequest<'_>) -> Option<ClientIntroduction> {
        let (raw, id_span) = (request.raw, || request.id_span.clone());
        match (&*request.method, request.params) {
            ("initialize", params) => {
                self.era = ClientEra::Legacy;
                // A client of both eras may have asked without a handshake before.
                (self.negotiated, self.modern_version, self.revision) = (None, None, None);
                self.session.initialize(raw, id_span());
                let capabilities = params.and_then(|params| params.member("capabilities"));
                self.capabilities = capabilities.map(|capabilities| capabilities.get().into());
                return Some(self.learn_client(params, true));
            }
            ("logging/setLevel", _) => self.session.level(raw, id_span()),
            ("resources/subscribe", Some(params)) => {
                if let Some(uri) = wire::text_member(params, "uri") {
                    self.session.subscribe(uri, raw, id_span());
                }
            }
            ("resources/unsubscribe", Some(params)) => {
                if let Some(uri) = wire::text_member(params, "uri") {
                    self.session.unsubscribe(&uri);
                }
            }
            (_, Some(params)) if self.era == ClientEra::Unknown => {
                if let Some(version) = wire::request_version(params) {
                    self.era = ClientEra::Modern;
                    self.revision = Revision::of_request(&version).or(self.revision);
                    self.modern_version = Some(version);
                    return Some(self.learn_client(Some(params), false));
                }
            }
            _ => {}
        }
        None
    }

    fn learn_client(&mut self, params: Option<Json<'_>>, is_new_session: bool) -> ClientIntroduction {
        let info = params.and_then(wire::client_info);
        let name = info.and_then(|info| wire::text_member(info, "name"));
        let version = info.and_then(|info| wire::text_member(info, "version"));
        self.call_clock = name.as_deref().and_then(|name| clients::call_clock(name, version.as_deref()));
        // A client without a handshake hears of changes only if it listens. A list is then not its own.
        let follows = name.as_deref().is_some_and(|name| clients::follows_lists(name, version.as_deref()));
        self.name = name;
        ClientIntroduction { is_new_session, follows_lists: follows && self.era == ClientEra::Legacy }
    }

    /// Learns the revision from the server's answer to the handshake.
    pub(super) fn learn_negotiated(&mut self, outcome: &ResponseOutcome<'_>) {
        if let ResponseOutcome::Result(result) = outcome {
            self.negotiated = wire::text_member(*result, "protocolVersion");
            let modern = self.modern_version.as_deref().and_then(Revision::of_request);
            self.revision = modern.or_else(|| self.negotiated_revision());
        }
    }

    /// Notes that the client has ended its handshake.
    pub(super) fn initialized(&mut self, raw: &[u8]) {
        self.session.initialized(raw);
    }

    /// Returns the client's name.
    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns how long the client itself waits for a call, if that is known.
    pub(super) fn call_clock(&self) -> Option<Duration> {
        self.call_clock
    }

    /// Returns the version in the server's answer to the handshake.
    pub(super) fn negotiated(&self) -> Option<&str> {
        self.negotiated.as_deref()
    }

    /// Returns the capabilities in the client's handshake, as JSON; `None` if it has declared none.
    pub(super) fn capabilities(&self) -> Option<&str> {
        self.capabilities.as_deref()
    }

    /// Returns whether the client talks without a handshake.
    pub(super) fn is_modern(&self) -> bool {
        self.era == ClientEra::Modern
    }

    /// Returns the era of the server's answers.
    pub(super) fn bridge_era(&self) -> Era {
        if self.is_modern() { Era::Modern } else { Era::Legacy }
    }

    /// Returns the revision that the client speaks, or the first one as long as it is unknown.
    pub(super) fn revision(&self) -> Revision {
        self.revision.unwrap_or(Revision::V2024November)
    }

    fn negotiated_revision(&self) -> Option<Revision> {
        self.negotiated.as_deref().and_then(Revision::of_handshake)
    }

    /// Returns whether notifications about progress have a message in this client's revision.
    pub(super) fn has_progress_messages(&self) -> bool {
        self.is_modern() || self.negotiated_revision().is_some_and(Revision::has_progress_messages)
    }

    /// Returns whether the server may get a health check. Nothing may come before the end of a handshake.
    pub(super) fn allows_probes(&self) -> bool {
        match self.era {
            ClientEra::Unknown => false,
            ClientEra::Legacy => self.session.is_initialized(),
            ClientEra::Modern => true,
        }
    }

    /// Returns the cheapest request of the client's era (protocol.md 3.1).
    pub(super) fn probe(&self, id: &Id) -> Vec<u8> {
        match self.meta() {
            Some(meta) => {
                compose::request(id, "server/discover", &serde_json::json!({ "_meta": meta }).to_string())
            }
            None => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#).into_bytes(),
        }
    }

    /// Returns the request for a page of the server's tools, in the client's era.
    pub(super) fn list_tools(&self, id: &Id, cursor: Option<&str>) -> Vec<u8> {
        let members = [("cursor", cursor.map(Value::from)), ("_meta", self.meta())];
        let members = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        compose::request(id, "tools/list", &Value::from_iter(members).to_string())
    }

    /// Returns what the guard says of itself in a request of its own, if the client's era has that.
    fn meta(&self) -> Option<Value> {
        let version = self.modern_version.as_ref()?;
        Some(serde_json::json!({
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientInfo": { "name": "unhang", "version": env!("CARGO_PKG_VERSION") },
            "io.modelcontextprotocol/clientCapabilities": {},
        }))
    }

    /// Returns the messages that a fresh process is told again.
    pub(super) fn session(&self) -> &RecordedSession {
        &self.session
    }

    #[cfg(test)]
    pub(super) fn set_call_clock(&mut self, call_clock: Duration) {
        self.call_clock = Some(call_clock);
    }

    #[cfg(test)]
    pub(super) fn forget_session(&mut self) {
        self.session = RecordedSession::default();
    }
}
