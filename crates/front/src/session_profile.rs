//! What is known of the client of a session: what it has said of itself, in the handshake and since.
//!
//! Invariant: what the handshake has said is told of no request that stands alone, for that may be another client's.

use std::{sync::Arc, time::Duration};

use unhang_bridge::{
    params::Signature,
    question::{CAPABILITIES, is_offered},
};
use unhang_switches::stands;
use unhang_wire::{self as wire, Json};

use super::{
    client_request::{ClientRequest, MOST_ECHOED},
    promotion::PromotionReply,
    questions::AskedParams,
    session_calls::SessionCall,
};
use unhang_background::WhoIsAsked;
use unhang_core::{clients, revision::Revision, wording::shortened};
use unhang_gateway::{KnownServers, Level};
use unhang_upstream::http::headers::CallLimit;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct SessionProfile {
    /// The revision that the handshake came to.
    revision: Option<Revision>,
    /// What the client calls itself in the handshake, and its version.
    name: Option<(Box<str>, Option<Box<str>>)>,
    /// What the client has said of itself in the handshake, as a stateless server is told it.
    pub(super) signature: Option<Arc<Signature>>,
    /// From which level on the client wants to hear what is logged.
    log_from: Option<Level>,
    /// For how long the window that asks waits for the answer to a call, where it has said so.
    pub(super) window_limit: Option<CallLimit>,
}

impl SessionProfile {
    /// The revision that the handshake came to.
    pub(super) fn revision(&self) -> Option<Revision> {
        self.revision
    }

    /// Notes what the client says in the handshake that comes to this revision, and what it calls itself there.
    pub(super) fn shake_hands(
        &mut self,
        revision: Revision,
        request: &ClientRequest<'_>,
        name: Option<Box<str>>,
    ) {
        self.revision = Some(revision);
        let said = |member, nothing: &str| {
            let said = request.params.and_then(|params| params.member(member));
            said.filter(|said| said.get().starts_with('{')).map_or(nothing, Json::get).to_owned()
        };
        self.signature = Some(Arc::new(Signature {
            revision: Revision::V2026July.name(),
            client_info: said("clientInfo", r#"{"name":"unknown","version":"0"}"#),
            client_capabilities: said("capabilities", "{}"),
            log_level: None,
        }));
        let version =
            request.params.and_then(wire::client_info).and_then(|info| wire::text_member(info, "version"));
        let version = version.map(|version| shortened(&version, MOST_ECHOED).into());
        self.name = name.map(|name| (name, version));
    }

    /// What a server is told of whoever makes a request of this revision.
    pub(super) fn signature_for(&self, revision: Revision) -> Option<Arc<Signature>> {
        self.signature.clone().filter(|_| !revision.is_stateless())
    }

    /// The client wants to hear what is logged from this level on.
    pub(super) fn log_from(&mut self, level: Level) {
        self.log_from = Some(level);
        if let Some(signature) = &mut self.signature {
            Arc::make_mut(signature).log_level = Some(level.name().to_owned());
        }
    }

    /// Whether the client of this call wants to hear what is logged at this level.
    pub(super) fn hears(&self, call: &SessionCall, level: Level, is_of_windows: bool) -> bool {
        // A session that has not said what it wants to hear hears all; a request that stands alone says it for itself. A window does it
        // for its own client.
        let said = match call.revision.is_stateless() {
            true => call.awaited.introduced().and_then(|introduced| introduced.log_from),
            false => self.log_from,
        };
        let hears_all = !call.revision.is_stateless() || is_of_windows;
        let from = said.or(hears_all.then_some(Level::Debug));
        from.is_some_and(|from| level >= from) || !stands("logs-as-asked")
    }

    /// After how long the client of this request gives a call up, where that is known.
    pub(super) fn clock(
        &self,
        request: &ClientRequest<'_>,
        revision: Revision,
        servers: Option<&KnownServers>,
    ) -> Option<Duration> {
        let call = |name: &str, version: Option<&str>| match servers {
            Some(known) => known.clocks.call(name, version),
            None => clients::call_clock(name, version),
        };
        if revision.is_stateless() {
            let info = wire::client_info(request.params?)?;
            return call(&wire::text_member(info, "name")?, wire::text_member(info, "version").as_deref());
        }
        let (name, version) = self.name.as_ref()?;
        call(name, version.as_deref())
    }

    /// What the client of this call can do, as JSON.
    fn capabilities_for<'a>(&'a self, call: &'a SessionCall) -> Option<&'a str> {
        let session = self.signature.as_ref().filter(|_| !call.revision.is_stateless());
        let session = session.map(|signature| signature.client_capabilities.as_str());
        session.or_else(|| call.awaited.introduced().map(|introduced| &*introduced.client_capabilities))
    }

    /// Checks that the client of this call can be asked this.
    ///
    /// # Errors
    /// Why it cannot.
    pub(super) fn can_be_asked(
        &self,
        call: &SessionCall,
        asked: AskedParams<'_>,
    ) -> Result<(), &'static str> {
        if !CAPABILITIES.iter().any(|(method, _)| *method == asked.0) {
            return Err("no client knows it");
        }
        let capabilities =
            self.capabilities_for(call).and_then(|capabilities| Json::new(capabilities.as_bytes()));
        let is_offered = capabilities.is_some_and(|capabilities| is_offered(capabilities, asked));
        match !is_offered && stands("client-asked-what-it-offers") {
            true => Err("the client that made the call does not offer it"),
            false => Ok(()),
        }
    }

    /// Who can be asked about a call that has become a job.
    pub(super) fn who_is_asked(&self, call: &SessionCall) -> WhoIsAsked {
        match call.promotion.promotion_reply {
            PromotionReply::Words => WhoIsAsked::Nobody,
            PromotionReply::Task(_) => {
                WhoIsAsked::Followers(self.capabilities_for(call).unwrap_or("{}").into())
            }
        }
    }
}
