//! The two eras of the protocol: a handshake at the start, or everything in each request.
//!
//! # Invariants
//!
//! - The era is a property of the request, never of the process: both are served side by side (protocol.md 1.4).

use serde_json::{Value, json};

use crate::pipe::ClientMessage;
use crate::plain_server::{INVALID_PARAMS, MODERN_REVISION, UNSUPPORTED_VERSION, settle_revision};

use super::{HandlerOutcome, ServerSession};

pub(super) const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// Where a request without a handshake says what its client can do.
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// Results that a client may keep for a while, so they must say for how long (SEP-2549).
const CACHEABLE: [&str; 6] = [
    "server/discover",
    "tools/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "prompts/list",
];

/// Under which rules a request was sent.
pub enum RequestRules {
    /// Up to 2025-11-25: one `initialize` for the whole process.
    Handshake,
    /// From 2026-07-28: each request says all.
    Modern,
}

impl RequestRules {
    pub(super) fn of(message: &ClientMessage) -> Self {
        let modern = !message.params()["_meta"][VERSION].is_null() || message.method() == "server/discover";
        if modern { Self::Modern } else { Self::Handshake }
    }

    /// Says no to a stateless request that lacks what it must carry.
    pub(super) fn refusal(&self, message: &ClientMessage) -> Option<HandlerOutcome> {
        let meta = &message.params()["_meta"];
        match self {
            Self::Handshake => None,
            Self::Modern if meta[VERSION].is_null() || meta[CLIENT_CAPABILITIES].is_null() => {
                Some(HandlerOutcome::error(
                    INVALID_PARAMS,
                    "`_meta` lacks the protocol version or the client capabilities",
                ))
            }
            Self::Modern if meta[VERSION] != MODERN_REVISION => Some(HandlerOutcome::Error {
                code: UNSUPPORTED_VERSION,
                message: "Unsupported protocol version".to_owned(),
                data: json!({"supported": [MODERN_REVISION], "requested": meta[VERSION]}),
            }),
            Self::Modern => None,
        }
    }

    /// Adds what every result of the era carries.
    pub(super) fn dress(&self, server: &str, method: &str, mut result: Value) -> Value {
        if matches!(self, Self::Modern) {
            if result["resultType"].is_null() {
                result["resultType"] = json!("complete");
            }
            result["_meta"][SERVER_INFO] = server_info(server);
            if CACHEABLE.contains(&method) {
                result["ttlMs"] = json!(0);
                result["cacheScope"] = json!("private");
            }
        }
        result
    }

    /// Whether log messages may be sent while this request runs.
    pub fn wants_log(&self, message: &ClientMessage) -> bool {
        matches!(self, Self::Handshake) || !message.params()["_meta"][LOG_LEVEL].is_null()
    }
}

/// Answers `initialize` and remembers who asked.
pub(super) fn introduce(server: &str, session: &mut ServerSession, message: &ClientMessage) -> Value {
    let version = settle_revision(message);
    session.protocol_version = Some(version.to_owned());
    session.client_capabilities = message.params()["capabilities"].clone();
    session.client_name = message.params()["clientInfo"]["name"].as_str().map(str::to_owned);
    json!({
        "protocolVersion": version,
        "capabilities": capabilities(),
        "serverInfo": server_info(server),
        "instructions": "A server to test with.",
    })
}

/// Answers `server/discover`.
pub(super) fn discovery() -> Value {
    json!({
        "supportedVersions": [MODERN_REVISION],
        "capabilities": capabilities(),
        "instructions": "A server to test with.",
    })
}

fn capabilities() -> Value {
    json!({
        "tools": {"listChanged": true},
        "resources": {"listChanged": true, "subscribe": true},
        "prompts": {"listChanged": true},
        "logging": {},
        "completions": {},
    })
}

fn server_info(server: &str) -> Value {
    json!({"name": server, "version": env!("CARGO_PKG_VERSION")})
}

/// The error for a resource that does not exist, which has a different code in each era.
pub fn no_such_resource(era: &RequestRules, uri: &str) -> HandlerOutcome {
    const HANDSHAKE_CODE: i64 = -32002;
    HandlerOutcome::Error {
        code: if matches!(era, RequestRules::Modern) { INVALID_PARAMS } else { HANDSHAKE_CODE },
        message: "Resource not found".to_owned(),
        data: json!({"uri": uri}),
    }
}
