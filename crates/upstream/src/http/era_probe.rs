//! Finds out whether an established server has become one of another era, as a server does that is deployed anew.
//!
//! # Theory of operation
//!
//! Nothing tells a client that a server was deployed anew. The next request is refused, and ordinary mistakes of callers are refused in the
//! same way. So a refusal is a reason to ask: a server of 2026-07-28 for `server/discover`, and one of a handshake for `ping`. A server of
//! 2026-07-28 knows no `ping`, and neither do some careless servers of a handshake. A server in trouble, or a proxy before it, refuses both.
//! So the greeting of the other era has to confirm that: `server/discover`, or `initialize` without a session.
//!
//! A status of a server in trouble is a reason only if it comes twice with no answer between.
//!
//! Invariants
//!
//! - At most one probe is with the server. Refusals that are usual lead to one probe in [`ERA_PROBE_PAUSE`] at most, and those that look
//!   like another era to one in [`SUSPICION_PAUSE`]. Usual ones do not delay the others.
//! - The caller has its own error at once. No request is sent again, since the server may have carried it out.

use std::time::Duration;

use tokio::time::Instant;
use unhang_bridge::error::MISSING_CAPABILITY;
use unhang_wire::Id;

use super::{HttpActor, HttpTransport, verdict::error_member};
use crate::{
    RequestOutcome,
    handshake::{HEADER_MISMATCH, HandshakeRequest, is_discovery_of_ours, is_initialization},
};
use unhang_core::{
    error::{Error, ServerError},
    fault::FaultKind,
};

/// The pause after which refusals of a usual kind lead to a probe again. Callers of a server that was deployed anew wait for as long at most,
/// and a server whose callers make many mistakes has two more requests a minute.
const ERA_PROBE_PAUSE: Duration = Duration::from_secs(30);

/// The pause after which refusals that look like another era lead to a probe again.
const SUSPICION_PAUSE: Duration = Duration::from_secs(3);

/// The words of refusals that concern the way of speaking, and not what was asked.
const WORDS_OF_ERAS: [&str; 5] = ["session", "initializ", "initialis", "protocol", "_meta"];

/// The methods whose refusal is a reason for a probe. Many servers know not all of the others.
const ORDINARY: [&str; 6] =
    ["prompts/get", "prompts/list", "resources/list", "resources/read", "tools/call", "tools/list"];

/// Besides the standard codes, the codes with which servers say that they have no session: that of most SDKs, and that of LSP.
const NO_SESSION: [i64; 2] = [-32000, -32002];

/// The standard code of a server that is in trouble, whatever it was asked.
const INTERNAL_ERROR: i64 = -32603;

/// The advice to callers whose server has become another one.
const GREETED_HINT: &str =
    "unhang connects to it anew when it is needed; send the request again if it is safe to repeat";

/// The probes of a server.
#[derive(Default)]
pub(super) struct EraProbe {
    /// The probe that is with the server.
    id: Option<Id>,
    /// The probe is the greeting of the other era, to confirm what the first probe has shown.
    is_confirming: bool,
    /// A request met with a status of a server in trouble, and no answer has come since.
    is_in_trouble: bool,
    /// The time of the last probe.
    sent: Option<Instant>,
    /// The time of the last probe for a refusal that looked like another era.
    suspected: Option<Instant>,
}

/// How much a refusal looks like that of a server of another era.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suspicion {
    /// It may be the answer to a mistake of the caller.
    Usual,
    /// It is not the usual answer to a mistake.
    OtherEra,
}

/// Returns whether an error in answer to an ordinary request is a reason for a probe, and how good a reason.
fn suspicion(refusal: &ServerError) -> Option<Suspicion> {
    let ServerError { method, code, message, .. } = refusal;
    if !ORDINARY.contains(&&**method) || !(is_standard(*code) || NO_SESSION.contains(code)) {
        return None;
    }
    let message = message.to_ascii_lowercase();
    let is_of_era = *code == i64::from(FaultKind::MethodNotFound.code())
        || *code == i64::from(FaultKind::InvalidRequest.code())
        || WORDS_OF_ERAS.iter().any(|word| message.contains(word));
    Some(if is_of_era { Suspicion::OtherEra } else { Suspicion::Usual })
}

impl EraProbe {
    /// Returns whether enough time has passed for another probe, and notes it if so.
    fn may_follow(&mut self, suspicion: Suspicion, now: Instant) -> bool {
        let has_rested = |since: Option<Instant>, pause| since.is_none_or(|since| now - since >= pause);
        let may = match suspicion {
            Suspicion::Usual => has_rested(self.sent, ERA_PROBE_PAUSE),
            Suspicion::OtherEra => has_rested(self.suspected, SUSPICION_PAUSE),
        };
        if may && suspicion == Suspicion::OtherEra {
            self.suspected = Some(now);
        }
        may
    }

    fn is(&self, id: &Id) -> bool {
        self.id.as_ref() == Some(id)
    }

    /// Returns whether this request confirms a probe. It is not of the session.
    pub(super) fn is_confirmed_by(&self, id: &Id) -> bool {
        self.is(id) && self.is_confirming
    }

    /// Returns whether this request is the probe, and this status says that the server has become another one.
    pub(super) fn is_refused(&self, id: &Id, status: u16) -> bool {
        let is_otherwise = matches!(status, 401 | 403 | 408 | 429 | 500..);
        self.is(id) && !self.is_confirming && !is_otherwise
    }
}

/// Returns whether this is one of the standard codes for a request that cannot be served as it stands.
fn is_standard(code: i64) -> bool {
    let kinds = [FaultKind::InvalidRequest, FaultKind::MethodNotFound, FaultKind::InvalidParams];
    kinds.iter().any(|kind| i64::from(kind.code()) == code)
}

impl HttpActor {
    /// Handles what the session has heard since: refusals of requests, and the outcome of a probe.
    pub(super) fn heed_refusals(&mut self) {
        if std::mem::take(&mut self.upstream_session.has_answered) {
            self.era_probe.is_in_trouble = false;
        }
        if let Some((id, outcome)) = self.upstream_session.probed.take()
            && self.era_probe.is(&id)
        {
            self.era_probe.id = None;
            self.judge(outcome);
        }
        let Some(refused) = self.upstream_session.refused.take() else { return };
        self.era_probe.is_in_trouble = false;
        if let Some(suspicion) = suspicion(&refused) {
            self.probe_era(suspicion);
        }
    }

    /// Returns whether a refusal with a status may say that the server speaks another era. A server of 2026-07-28 refuses ordinary mistakes
    /// of clients with a status as well, and says so by the error.
    pub(super) fn may_speak_otherwise(&mut self, id: &Id, status: u16, told: &[u8]) -> bool {
        let code = error_member(told).map(|error| ServerError::read("", "", &error).code).unwrap_or_default();
        let is_usual = [
            FaultKind::MethodNotFound.code().into(),
            FaultKind::InvalidParams.code().into(),
            HEADER_MISMATCH,
            MISSING_CAPABILITY,
        ]
        .contains(&code);
        if !self.is_of_session(id) || (self.upstream_session.is_stateless() && is_usual) {
            return false;
        }
        match status {
            400 | 404 | 405 | 406 | 410 | 415 | 422 | 426 | 501 => true,
            403 | 500 | 502 | 503 => std::mem::replace(&mut self.era_probe.is_in_trouble, true),
            _ => false,
        }
    }

    /// Returns whether this request is neither a probe nor part of a handshake.
    pub(super) fn is_of_session(&self, id: &Id) -> bool {
        !self.era_probe.is(id) && self.upstream_session.of_handshake(id).is_none()
    }

    /// Sends a probe, unless one is with the server or was a moment ago, or the server has no session that could be of another era.
    pub(super) fn probe_era(&mut self, suspicion: Suspicion) {
        let is_probing = self.era_probe.id.as_ref().is_some_and(|probe| self.exchanges.contains_key(probe));
        let is_established = self.upstream_session.session.is_some() && !self.upstream_session.is_ending;
        let may = !is_probing && is_established && matches!(self.way, HttpTransport::Streamable);
        if may && self.era_probe.may_follow(suspicion, Instant::now()) {
            self.send_probe(false);
        }
    }

    fn send_probe(&mut self, is_confirming: bool) {
        let ask = match (self.upstream_session.is_stateless(), is_confirming) {
            (true, true) => Some(HandshakeRequest::Initialize),
            (true, false) | (false, true) => Some(HandshakeRequest::Discover),
            (false, false) => None,
        };
        let id = Some(self.upstream_session.probe_by(ask));
        let sent = Some(Instant::now());
        self.era_probe = EraProbe { id, is_confirming, sent, ..self.era_probe };
    }

    fn judge(&mut self, outcome: RequestOutcome) {
        let is_stateless = self.upstream_session.is_stateless();
        if self.era_probe.is_confirming {
            return match outcome {
                Ok(answer) if is_stateless && is_initialization(&answer) => {
                    self.has_changed("it refuses `server/discover`, and answers `initialize`");
                }
                Ok(answer) if !is_stateless && is_discovery_of_ours(&answer) => {
                    self.has_changed("it refuses `ping`, and answers `server/discover`");
                }
                _ => {}
            };
        }
        let is_unknown = |code: i64| code == i64::from(FaultKind::MethodNotFound.code());
        match outcome {
            Ok(answer) if is_stateless && !is_discovery_of_ours(&answer) => {
                self.has_changed("its answer to `server/discover` is of another era");
            }
            Ok(_) => {}
            Err(Error::Server(refusal))
                if refusal.code != INTERNAL_ERROR && (is_stateless || !is_unknown(refusal.code)) =>
            {
                self.has_changed(&format!("it refused `{}`: {}", refusal.method, refusal.message));
            }
            // A server that does not answer may be the same as ever.
            Err(Error::Failure(failure))
                if matches!(failure.kind, FaultKind::Deadline | FaultKind::Overloaded) => {}
            Err(_) => self.send_probe(true),
        }
    }

    /// Ends the session with a server that has become another one. The next request begins a session with that.
    pub(super) fn has_changed(&mut self, why: &str) {
        let happened = format!("`{}` no longer speaks as it did: {why}", self.upstream_session.name);
        let failure = self.upstream_session.failure(FaultKind::ServerExited, happened, GREETED_HINT);
        self.upstream_session.end(failure);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_that_looks_like_another_era_is_told_from_a_usual_one() {
        for (method, code, message, expect) in [
            ("tools/call", -32602, "the argument `a` is missing", Some(Suspicion::Usual)),
            ("tools/call", -32602, "missing _meta", Some(Suspicion::OtherEra)),
            ("tools/call", -32601, "no", Some(Suspicion::OtherEra)),
            ("tools/call", -32600, "no", Some(Suspicion::OtherEra)),
            ("resources/read", -32002, "not found", Some(Suspicion::Usual)),
            ("resources/read", -32002, "Server not initialized", Some(Suspicion::OtherEra)),
            ("tools/call", -32000, "Bad Request: no valid Session", Some(Suspicion::OtherEra)),
            ("completion/complete", -32601, "no", None),
            ("tools/call", -32603, "session", None),
        ] {
            let error = format!(r#"{{"code":{code},"message":"{message}"}}"#);
            assert_eq!(suspicion(&ServerError::read("srv", method, &error)), expect, "{method} {error}");
        }
    }

    #[test]
    fn usual_refusals_delay_no_probe_for_one_that_looks_like_another_era() {
        let begin = Instant::now();
        let mut probe = EraProbe::default();
        let mut at = |milliseconds, suspicion| {
            let now = begin + Duration::from_millis(milliseconds);
            let may = probe.may_follow(suspicion, now);
            if may {
                probe.sent = Some(now);
            }
            may
        };
        assert!(at(0, Suspicion::Usual) && !at(100, Suspicion::Usual));
        assert!(
            at(200, Suspicion::OtherEra) && !at(300, Suspicion::OtherEra) && !at(3_199, Suspicion::OtherEra)
        );
        assert!(
            at(3_200, Suspicion::OtherEra) && !at(33_000, Suspicion::Usual) && at(33_200, Suspicion::Usual)
        );
    }
}
