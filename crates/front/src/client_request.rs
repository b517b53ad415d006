//! A request as its client wrote it, and the readers of its parts.

use std::{borrow::Cow, sync::Arc, time::Duration};

use unhang_bridge::params::LOG_LEVEL;
use unhang_wire::{self as wire, Id, Json};

use super::{effects::ReplyRoute, parked_calls::digest, session_calls::Introduced};
use unhang_core::{
    fault::FaultKind,
    refusal::{Addressee, ErrorReport},
    revision::Revision,
    wording::shortened,
};
use unhang_gateway::{Level, route::names::Owner};
use unhang_upstream::http::param_headers::ReceivedParamHeaders;

/// The member of a request's `_meta` that lists the client's capabilities.
pub(super) const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// The most characters of a client's text that are repeated to it.
pub(super) const MOST_ECHOED: usize = 200;

/// A request as it came.
pub(super) struct ClientRequest<'a> {
    pub id: Id,
    /// The method, cut to [`MOST_ECHOED`]; no existing method has a longer name.
    pub method: Cow<'a, str>,
    pub params: Option<Json<'a>>,
    pub route: ReplyRoute,
    /// The part of its limit that has passed.
    pub waited: Duration,
    /// The server that it has waited for.
    pub server: Option<&'a str>,
    /// Servers were asked for its subject, which they may have added without an announcement.
    pub were_lists_refreshed: bool,
    /// The server that may have its subject although it lists nothing of the kind, and the server's name for that.
    pub owner: Option<Owner>,
    /// The `Mcp-Param-*` headers that came with it. `None` if nothing has to be said in headers.
    pub param_headers: Option<Arc<ReceivedParamHeaders>>,
}

impl<'a> ClientRequest<'a> {
    /// Returns the addressee of an error about this request.
    pub(super) fn addressee(&'a self) -> Addressee<'a> {
        let Self { server, waited, .. } = *self;
        Addressee { server, waited, ..Addressee::request(&self.id, &self.method, self.route.batch) }
    }

    /// Returns a text among its params.
    pub(super) fn text(&self, member: &str) -> Option<String> {
        wire::text_member(self.params?, member)
    }

    /// Returns the cursor of the page of a list that it asks for. Returns `None` for the first page.
    pub(super) fn cursor(&self) -> Option<Json<'a>> {
        let cursor = self.params.and_then(|params| params.member("cursor"));
        cursor.filter(|cursor| cursor.get() != "null")
    }

    /// Returns the client's own name for itself, cut to what is repeated to it.
    pub(super) fn client_name(&self) -> Option<Box<str>> {
        let name = self.params.and_then(wire::client_name);
        name.map(|name| shortened(&name, MOST_ECHOED).into())
    }

    /// Returns the same request with these params.
    pub(super) fn with_params(&self, params: Option<Json<'a>>) -> ClientRequest<'a> {
        let (id, method) = (self.id.clone(), self.method.clone());
        ClientRequest {
            id,
            method,
            params,
            param_headers: self.param_headers.clone(),
            owner: self.owner.clone(),
            ..*self
        }
    }

    /// Returns how a request of a stateless revision introduces its client, for this request to a server. Returns `None` without params or
    /// in the handshake era.
    pub(super) fn introduced(&self, method: &str, revision: Revision) -> Option<Introduced> {
        self.params.filter(|_| revision.is_stateless()).map(|params| Introduced {
            client_capabilities: capabilities(params).map_or("{}", Json::get).into(),
            digest: digest(method, params),
            log_from: text_in_meta(params, LOG_LEVEL).as_deref().and_then(Level::named),
        })
    }
}

/// Returns whether a request declares its client's capabilities, as each request must that names its revision.
pub(super) fn declares_capabilities(params: Json<'_>) -> bool {
    capabilities(params).is_some()
}

fn text_in_meta(params: Json<'_>, member: &str) -> Option<String> {
    wire::text_member(params.member("_meta")?, member)
}

/// Returns the client's capabilities that a request declares, if they are an object.
pub(super) fn capabilities(params: Json<'_>) -> Option<Json<'_>> {
    let capabilities = params.member("_meta")?.member(CLIENT_CAPABILITIES)?;
    capabilities.get().starts_with('{').then_some(capabilities)
}

/// Makes the error for invalid params.
pub(super) fn invalid_params(happened: String, hint: &str) -> ErrorReport<'_> {
    ErrorReport { kind: FaultKind::InvalidParams, summary: happened, hint }
}
