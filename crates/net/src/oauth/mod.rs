//! OAuth for MCP servers on the network: finding the authorization server, a login with a person, and tokens that stay fresh.
//!
//! An [`Authorization`] does all of that for one server. The HTTP client asks it for a token before each request, and tells it when the
//! server refused one. The [`Agent`] decides whether that leads to a person being asked.
//!
//! Invariants
//!
//! - Tokens, codes and secrets are in files of [`TokenStore`] and in requests to their recipients, and nowhere else: not in errors, not in
//!   logs, not in the output of `Debug`.
//! - A flow is never broken off halfway: if its caller stops waiting, a refresh token that was used up is still replaced in its file.
//! - Any number of requests that are refused at the same time lead to one flow.
//! - A server that refuses every token is not asked for ever: after a few tokens in a row its refusal stands.

mod agent;
mod authorization;
mod browser;
mod error;
mod flow;
mod requests;
mod resource;
mod store;

use std::fmt;

pub use self::{
    agent::{Agent, AgentResult, Follower, NoAgent, Redirect},
    authorization::{Authorization, AuthorizationSpec, LoggedIn, LoggedOut},
    browser::Browser,
    error::AuthorizationError,
    requests::RequestLimits,
    resource::{RESOURCE_METADATA, ResourceLimits, ResourceServer, ResourceSettings, TokenRefusal},
    store::TokenStore,
};

/// The settings of unhang as a client of an authorization server, if there are any.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ClientSettings {
    /// The client's id at the authorization server.
    pub client_id: Option<String>,
    /// The secret between the client and the authorization server.
    pub client_secret: Option<String>,
    /// The URL of a document about the client, for authorization servers that read one.
    pub client_metadata_url: Option<String>,
    /// The scopes to ask for in place of those that the server names.
    pub scopes: Vec<String>,
}

/// Leaves out the secret.
impl fmt::Debug for ClientSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told = formatter.debug_struct("ClientSettings");
        told.field("client_id", &self.client_id).field("client_metadata_url", &self.client_metadata_url);
        told.field("scopes", &self.scopes).finish_non_exhaustive()
    }
}
