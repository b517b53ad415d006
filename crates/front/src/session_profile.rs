//! The profile of a session's client: its statements about itself, in the handshake and later.
//!
//! Invariant: the data of the handshake is never used for a request that stands alone, which may be another client's.

use std::{sync::Arc, time::Duration};

use unhang_bridge::{
    params::Signature,
    question::{CAPABILITIES, is_offered},
    tasks::declares_extension,
};
use unhang_wire::{self as wire, Json};

use super::{
    client_request::{ClientRequest, MOST_ECHOED, capabilities},
    promotion::PromotionReply,
    questions::AskedParams,
    session_calls::SessionCall,
};
use unhang_background::WhoIsAsked;
use unhang_core::{clients, revision::Revision, wording::shortened};
use unhang_gateway::{KnownServers, Level, route::apps::UI};
use unhang_upstream::http::{headers::CallLimit, param_headers::ReceivedParamHeaders};

/// The profile of a client; see the module's text.
#[derive(Debug, Default)]
pub(super) struct SessionProfile {
    /// The revision of the handshake.
    revision: Option<Revision>,
    /// The client's name in the handshake, and its version.
    name: Option<(Box<str>, Option<Box<str>>)>,
    /// The client's data from the handshake, in the form for a stateless server.
    pub(super) signature: Option<Arc<Signature>>,
    /// A request came that stands alone.
    is_stateless: bool,
    /// The lowest level of log messages that the client wants.
    log_from: Option<Level>,
    /// How long the window that asks waits for the answer to a call, if it has said so.
    pub(super) window_limit: Option<CallLimit>,
    /// The client is a window whose own client gets questions as requests of their own.
    pub(super) is_asked_beside: bool,
    /// The `Mcp-Param-*` headers of the newest message, if they have to be compared with its arguments.
    pub(super) param_headers: Option<Arc<ReceivedParamHeaders>>,
}

impl SessionProfile {
    /// Returns the revision of the handshake. Returns `None` before it.
    pub(super) fn revision(&self) -> Option<Revision> {
        self.revision
    }

    /// Notes a request that stands alone. Returns whether it is the first one, in a session without a handshake.
    pub(super) fn begins_without_handshake(&mut self) -> bool {
        let is_first = self.revision.is_none() && !self.is_stateless;
        self.is_stateless = true;
        is_first
    }

    /// Notes the client's data from a handshake of this revision, and its name.
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

    /// Returns the client's data for a server, for a request of this revision. Returns `None` if the request stands alone.
    pub(super) fn signature_for(&self, revision: Revision) -> Option<Arc<Signature>> {
        self.signature.clone().filter(|_| !revision.is_stateless())
    }

    /// Returns the client's capabilities from the handshake, as JSON.
    pub(super) fn capabilities_of_session(&self) -> Option<&str> {
        self.signature.as_ref().map(|signature| signature.client_capabilities.as_str())
    }

    fn capabilities_json(&self) -> Option<Json<'_>> {
        self.capabilities_of_session().and_then(|said| Json::new(said.as_bytes()))
    }

    /// Returns whether the client has declared an extension in the handshake.
    pub(super) fn declares_extensions(&self) -> bool {
        let extensions = self.capabilities_json().and_then(|said| said.member("extensions"));
        // An object with a colon has a member.
        extensions.is_some_and(|declared| declared.get().starts_with('{') && declared.get().contains(':'))
    }

    /// Returns whether the client has said that it shows views (MCP Apps): with this request, or in the handshake.
    pub(super) fn shows_views(&self, request: &ClientRequest<'_>, revision: Revision) -> bool {
        let said = match revision.is_stateless() {
            true => request.params.and_then(capabilities),
            false => self.capabilities_json(),
        };
        said.is_some_and(|said| declares_extension(said, UI))
    }

    /// Notes the lowest level of log messages that the client wants.
    pub(super) fn log_from(&mut self, level: Level) {
        self.log_from = Some(level);
        if let Some(signature) = &mut self.signature {
            Arc::make_mut(signature).log_level = Some(level.name().to_owned());
        }
    }

    /// Returns whether the client of this call wants log messages of this level.
    pub(super) fn hears(&self, call: &SessionCall, level: Level, is_of_windows: bool) -> bool {
        // A session without a chosen level hears all messages. A request that stands alone names its own level. A window filters for its
        // own client.
        let said = match call.revision.is_stateless() {
            true => call.awaited.introduced().and_then(|introduced| introduced.log_from),
            false => self.log_from,
        };
        let hears_all = !call.revision.is_stateless() || is_of_windows;
        let from = said.or(hears_all.then_some(Level::Debug));
        from.is_some_and(|from| level >= from)
    }

    /// Returns the time after which the client of this request gives a call up, if that is known.
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

    /// Returns the capabilities of this call's client, as JSON.
    pub(super) fn capabilities_for<'a>(&'a self, call: &'a SessionCall) -> Option<&'a str> {
        let session = self.signature.as_ref().filter(|_| !call.revision.is_stateless());
        let session = session.map(|signature| signature.client_capabilities.as_str());
        session.or_else(|| call.awaited.introduced().map(|introduced| &*introduced.client_capabilities))
    }

    /// Checks that the client of this call can be asked this; without a call, the client of the session.
    ///
    /// # Errors
    /// Fails with the reason why it cannot.
    pub(super) fn can_be_asked(
        &self,
        call: Option<&SessionCall>,
        asked: AskedParams<'_>,
    ) -> Result<(), &'static str> {
        if !CAPABILITIES.iter().any(|(method, _)| *method == asked.0) {
            return Err("MCP has no such request to a client");
        }
        let capabilities =
            call.map_or_else(|| self.capabilities_of_session(), |call| self.capabilities_for(call));
        let capabilities = capabilities.and_then(|capabilities| Json::new(capabilities.as_bytes()));
        let is_offered = capabilities.is_some_and(|capabilities| is_offered(capabilities, asked));
        match (is_offered, call) {
            (true, _) => Ok(()),
            (false, Some(_)) => Err("the client that made the call does not offer it"),
            (false, None) => Err("the client does not offer it"),
        }
    }

    /// Returns who can be asked about a call that has become a job.
    pub(super) fn who_is_asked(&self, call: &SessionCall) -> WhoIsAsked {
        match call.promotion.promotion_reply {
            PromotionReply::Words => WhoIsAsked::Nobody,
            PromotionReply::Task(_) => {
                WhoIsAsked::Followers(self.capabilities_for(call).unwrap_or("{}").into())
            }
        }
    }
}
