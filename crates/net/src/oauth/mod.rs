//! OAuth for MCP servers on the network: who gives tokens for a server, a login with a person, and tokens that stay fresh.
//!
//! An [`Authorization`] is all of that for one server. Whoever sends requests asks it for a token before each, and tells it when the
//! server refused one; whether that leads to a person being asked is up to the [`Agent`].
//!
//! Invariants
//!
//! - Tokens, codes and secrets are in files of [`TokenStore`] and in requests to whom they are for, and nowhere else: not in errors, not
//!   in logs, not in what `Debug` shows.
//! - A flow is never broken off halfway: whoever stops waiting for it leaves a refresh token that was used up and replaced in its place.
//! - Any number of requests that are refused at the same time lead to one flow.
//! - A server that refuses whatever it is given is not asked for ever: after a few tokens in a row it has the last word.

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

/// What is known of us as a client, where something is.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ClientSettings {
    /// As the authorization server knows us.
    pub client_id: Option<String>,
    /// What only we and it know.
    pub client_secret: Option<String>,
    /// Where a document about us is, for authorization servers that read one.
    pub client_metadata_url: Option<String>,
    /// What to ask for in place of what the server says.
    pub scopes: Vec<String>,
}

/// Without the secret.
impl fmt::Debug for ClientSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told = formatter.debug_struct("ClientSettings");
        told.field("client_id", &self.client_id).field("client_metadata_url", &self.client_metadata_url);
        told.field("scopes", &self.scopes).finish_non_exhaustive()
    }
}
