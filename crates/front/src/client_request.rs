//! A request as its client wrote it, and what is read of it.

use std::{borrow::Cow, time::Duration};

use unhang_bridge::params::LOG_LEVEL;
use unhang_wire::{self as wire, Id, Json};

use super::{effects::ReplyRoute, parked_calls::digest, session_calls::Introduced};
use unhang_core::{
    fault::FaultKind,
    refusal::{Addressee, ErrorReport},
    revision::Revision,
    wording::shortened,
};
use unhang_gateway::Level;

/// The member of a request's `_meta` for what its client can do.
pub(super) const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// How much of a name that the client sent is told back to it.
pub(super) const MOST_ECHOED: usize = 200;

/// A request as it came.
pub(super) struct ClientRequest<'a> {
    pub id: Id,
    /// At most [`MOST_ECHOED`] of it; no method that there is has a longer name.
    pub method: Cow<'a, str>,
    pub params: Option<Json<'a>>,
    pub route: ReplyRoute,
    /// What of its limit is over.
    pub waited: Duration,
    /// The server that it has waited for.
    pub server: Option<&'a str>,
}

impl<'a> ClientRequest<'a> {
    /// Whom an error about it is for.
    pub(super) fn addressee(&'a self) -> Addressee<'a> {
        let Self { server, waited, .. } = *self;
        Addressee { server, waited, ..Addressee::request(&self.id, &self.method, self.route.batch) }
    }

    /// A text among its params.
    pub(super) fn text(&self, member: &str) -> Option<String> {
        wire::text_member(self.params?, member)
    }

    /// Where the page of a list begins for which it asks, if not at the beginning.
    pub(super) fn cursor(&self) -> Option<Json<'a>> {
        let cursor = self.params.and_then(|params| params.member("cursor"));
        cursor.filter(|cursor| cursor.get() != "null")
    }

    /// The client's own name for itself, as much of it as is told back.
    pub(super) fn client_name(&self) -> Option<Box<str>> {
        let name = self.params.and_then(wire::client_name);
        name.map(|name| shortened(&name, MOST_ECHOED).into())
    }

    /// The same with these params.
    pub(super) fn with_params(&self, params: Option<Json<'a>>) -> ClientRequest<'a> {
        ClientRequest { id: self.id.clone(), method: self.method.clone(), params, ..*self }
    }

    /// What a request that stands alone says of its client, where it is to be this request of a server.
    pub(super) fn introduced(&self, method: &str, revision: Revision) -> Option<Introduced> {
        self.params.filter(|_| revision.is_stateless()).map(|params| Introduced {
            client_capabilities: capabilities(params).map_or("{}", Json::get).into(),
            digest: digest(method, params),
            log_from: text_in_meta(params, LOG_LEVEL).as_deref().and_then(Level::named),
        })
    }
}

/// Whether a request says what its client can do, as each has to that names its revision.
pub(super) fn declares_capabilities(params: Json<'_>) -> bool {
    capabilities(params).is_some()
}

fn text_in_meta(params: Json<'_>, member: &str) -> Option<String> {
    wire::text_member(params.member("_meta")?, member)
}

/// What a request says that its client can do.
pub(super) fn capabilities(params: Json<'_>) -> Option<Json<'_>> {
    let capabilities = params.member("_meta")?.member(CLIENT_CAPABILITIES)?;
    capabilities.get().starts_with('{').then_some(capabilities)
}

/// The error for params that are not as they have to be.
pub(super) fn invalid_params(happened: String, hint: &str) -> ErrorReport<'_> {
    ErrorReport { kind: FaultKind::InvalidParams, summary: happened, hint }
}
