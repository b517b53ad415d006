//! Unhang as a resource server: it checks tokens that an authorization server has given for it (RFC 6750, RFC 9068, RFC 9728).
//!
//! Theory of operation. The authorization server's metadata (RFC 8414, or OpenID Connect Discovery) says where its keys are. They are
//! fetched when the first token comes, and again from time to time, which nobody waits for. They are also fetched when a token names a key
//! that is not among them. So an authorization server that changes its keys is followed, and a client that makes names up causes one
//! request a minute at most. One task fetches at a time, and every other caller that needs the keys waits for its outcome.
//!
//! Invariants
//!
//! - A caller that stops waiting breaks no fetch off.
//! - The authorization server is asked within limits of time and bytes, and over https alone, or on this machine.
//! - If it cannot be asked, no token with an unknown key is let in; known keys stay good.
//! - No token is in an error, in a log or in the output of `Debug`.

mod keys;
mod token;

#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use reqwest::{Method, Request, Url};
use serde_json::{Value, json};
use tokio::{sync::Mutex as Turn, task::JoinHandle, time::Instant};

use self::{
    keys::{Algorithm, Keys},
    token::ParsedToken,
};
use super::{
    AuthorizationError, RequestLimits,
    requests::{PlainHttp, Requests, require_secure},
};

/// The path, below its origin, at which a resource says who gives tokens for it (RFC 9728).
pub const RESOURCE_METADATA: &str = "/.well-known/oauth-protected-resource";

/// The authorization server whose tokens are taken, and the demands on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceSettings {
    /// The authorization server, exactly as it calls itself.
    pub issuer: String,
    /// The audience of tokens: unhang's URL, as clients know it.
    pub resource: String,
    /// The scopes that tokens need, each of them.
    pub scopes: Vec<String>,
}

impl ResourceSettings {
    /// Returns whether the authorization server is on https or on this machine; anywhere else it could be somebody else.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        url(&self.issuer).is_ok_and(|url| require_secure(&url, PlainHttp::Here).is_ok())
    }
}

/// The limits of requests for keys, and the time for which keys are kept.
#[derive(Clone, Copy, Debug)]
pub struct ResourceLimits {
    /// The limits of each answer of the authorization server.
    pub requests: RequestLimits,
    /// The time for which keys are kept before they are fetched again.
    pub kept: Duration,
    /// The least pause between two fetches, whatever tokens come.
    pub pause: Duration,
    /// The least pause while there are no keys at all.
    pub first_pause: Duration,
    /// The difference that clocks may have.
    pub leeway: Duration,
}

/// The reason why a token does not let its bearer in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenRefusal {
    /// The token is not good here.
    #[error("the token is not valid here: {0}")]
    Invalid(&'static str),
    /// The token lacks a scope.
    #[error("the token does not have the scope `{0}`")]
    Scope(String),
    /// Nobody can say whether the token is good.
    #[error("unhang does not have the keys of the authorization server: {0}")]
    NoKeys(AuthorizationError),
}

/// Unhang as a resource server. Clones are the same.
#[derive(Clone)]
pub struct ResourceServer(Arc<ResourceServerState>);

struct ResourceServerState {
    settings: ResourceSettings,
    limits: ResourceLimits,
    requests: Requests,
    known: Mutex<KnownKeys>,
    /// Held by the task that fetches.
    turn: Turn<()>,
}

/// The keys, and the last attempt to fetch them.
#[derive(Default)]
struct KnownKeys {
    keys: Option<Arc<Keys>>,
    /// The time at which they were fetched.
    fetched: Option<Instant>,
    /// The time of the last attempt, and its failure.
    tried: Option<(Instant, Option<AuthorizationError>)>,
}

/// Leaves out the keys.
impl fmt::Debug for ResourceServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Resource").field(&self.0.settings).finish()
    }
}

impl ResourceServer {
    /// Makes a resource server for which this authorization server gives tokens. It asks nothing yet.
    ///
    /// # Errors
    /// Fails if a URL cannot be parsed, or if there is no HTTP client. Also fails if the authorization server could be somebody else, for
    /// want of https.
    pub fn new(
        settings: ResourceSettings,
        limits: ResourceLimits,
    ) -> Result<ResourceServer, AuthorizationError> {
        let issuer = url(&settings.issuer)?;
        require_secure(&issuer, PlainHttp::Here)?;
        url(&settings.resource)?;
        let requests = Requests::new(limits.requests, PlainHttp::of(&issuer))?;
        let inner = ResourceServerState {
            settings,
            limits,
            requests,
            known: Mutex::default(),
            turn: Turn::default(),
        };
        Ok(ResourceServer(Arc::new(inner)))
    }

    /// Returns whether the two take the same tokens.
    #[must_use]
    pub fn is_same(&self, other: &ResourceServer) -> bool {
        self.0.settings == other.0.settings
    }

    /// Returns the metadata of this resource, which names its authorization server.
    #[must_use]
    pub fn metadata(&self) -> Value {
        let ResourceSettings { issuer, resource, scopes } = &self.0.settings;
        let mut metadata = json!({
            "resource": resource,
            "authorization_servers": [issuer],
            "bearer_methods_supported": ["header"],
        });
        if !scopes.is_empty() {
            metadata["scopes_supported"] = json!(scopes);
        }
        metadata
    }

    /// Returns the URL of that metadata, as clients know it.
    #[must_use]
    pub fn metadata_url(&self) -> String {
        let Ok(mut url) = Url::parse(&self.0.settings.resource) else { return String::new() };
        url.set_path(&format!("{RESOURCE_METADATA}{}", url.path().trim_end_matches('/')));
        url.into()
    }

    /// Returns the scopes that tokens need.
    #[must_use]
    pub fn scopes(&self) -> &[String] {
        &self.0.settings.scopes
    }

    /// Returns the subject of a token.
    ///
    /// # Errors
    /// Fails with [`TokenRefusal`] if the token is not good here, or if nobody can say so.
    pub async fn subject(&self, token: &str) -> Result<String, TokenRefusal> {
        let signed = ParsedToken::read(token).map_err(TokenRefusal::Invalid)?;
        let known = self.0.keys();
        let mut claims = known.and_then(|keys| signed.claims(&keys));
        if claims.is_none() {
            let failure = self.fetch(&signed).await;
            claims = self.0.keys().and_then(|keys| signed.claims(&keys));
            if let (None, Some(failure)) = (&claims, failure) {
                return Err(TokenRefusal::NoKeys(failure));
            }
        } else if self.0.is_stale() {
            // Nobody has to wait for the answer.
            drop(self.begin_fetch(None));
        }
        let claims =
            claims.unwrap_or(Err("it is signed with a key that the authorization server does not have"));
        let claims = claims.map_err(TokenRefusal::Invalid)?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let ResourceServerState { settings, limits, .. } = &*self.0;
        let subject = claims.subject(settings, now, limits.leeway).map_err(TokenRefusal::Invalid)?;
        match claims.lacks(&settings.scopes) {
            Some(scope) => Err(TokenRefusal::Scope(scope.to_owned())),
            None => Ok(subject.to_owned()),
        }
    }

    /// Fetches the keys, unless the key of the token has come or they were asked for meanwhile. Returns the last failure, if the last
    /// attempt failed.
    async fn fetch(&self, signed: &ParsedToken<'_>) -> Option<AuthorizationError> {
        let awaited_key = (signed.key.clone(), signed.algorithm);
        // The task does not panic; if it did, nothing would be known of the key.
        let _panicked = self.begin_fetch(Some(awaited_key)).await;
        self.0.known().tried.as_ref().and_then(|(_, failure)| failure.clone())
    }

    fn begin_fetch(&self, awaited_key: Option<(Option<String>, Algorithm)>) -> JoinHandle<()> {
        let inner = Arc::clone(&self.0);
        tokio::spawn(async move {
            let _turn = inner.turn.lock().await;
            let has_come = awaited_key.is_some_and(|(id, algorithm)| {
                inner.keys().is_some_and(|keys| keys.key(id.as_deref(), algorithm).is_some())
            });
            if !has_come && inner.may_ask() {
                inner.fetch().await;
            }
        })
    }
}

impl ResourceServerState {
    fn known(&self) -> MutexGuard<'_, KnownKeys> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keys(&self) -> Option<Arc<Keys>> {
        self.known().keys.clone()
    }

    /// Returns whether the keys were kept for as long as they may be, and may be asked for now.
    fn is_stale(&self) -> bool {
        let is_old =
            |known: &KnownKeys| known.fetched.is_some_and(|fetched| fetched.elapsed() >= self.limits.kept);
        is_old(&self.known()) && self.may_ask()
    }

    /// Returns whether the last attempt is long enough ago.
    fn may_ask(&self) -> bool {
        let known = self.known();
        let pause = if known.keys.is_some() { self.limits.pause } else { self.limits.first_pause };
        let was_just_asked = known.tried.as_ref().is_some_and(|(tried, _)| tried.elapsed() < pause);
        !was_just_asked
    }

    async fn fetch(&self) {
        let issuer = &self.settings.issuer;
        let outcome = self.fetched().await;
        let mut known = self.known();
        let now = Instant::now();
        match outcome {
            Ok(keys) => {
                tracing::info!("{issuer} has {} keys for the check of tokens", keys.len());
                *known =
                    KnownKeys { keys: Some(Arc::new(keys)), fetched: Some(now), tried: Some((now, None)) };
            }
            Err(error) => {
                tracing::warn!("unhang cannot fetch the keys of {issuer}: {error}");
                known.tried = Some((now, Some(error)));
            }
        }
    }

    async fn fetched(&self) -> Result<Keys, AuthorizationError> {
        let issuer = &self.settings.issuer;
        let wrong = |why: &str| AuthorizationError::Metadata { server: issuer.clone(), why: why.to_owned() };
        let mut metadata = None;
        for metadata_url in metadata_urls(&url(issuer)?) {
            if let Some(body) = self.get(metadata_url).await? {
                metadata = Some(serde_json::from_slice::<Value>(&body).map_err(|_| wrong("it is not JSON"))?);
                break;
            }
        }
        let metadata = metadata.ok_or_else(|| wrong("it does not exist"))?;
        let text = |name: &str| metadata.get(name).and_then(Value::as_str);
        let named = text("issuer").unwrap_or_default();
        if named != issuer {
            return Err(AuthorizationError::WrongIssuer {
                expected: issuer.clone(),
                received: named.chars().filter(|letter| !letter.is_control()).take(300).collect(),
            });
        }
        let keys = text("jwks_uri").ok_or_else(|| wrong("it has no `jwks_uri`"))?;
        let keys = self.get(url(keys)?).await?.ok_or_else(|| wrong("its `jwks_uri` does not exist"))?;
        Keys::read(&keys).ok_or_else(|| wrong("its keys are not a key set"))
    }

    /// Fetches a document; `None` if the status says that there is none.
    async fn get(&self, url: Url) -> Result<Option<Vec<u8>>, AuthorizationError> {
        let answer = self.requests.send(Request::new(Method::GET, url)).await?;
        Ok(answer.status().is_success().then(|| answer.into_body()))
    }
}

fn url(text: &str) -> Result<Url, AuthorizationError> {
    Url::parse(text)
        .map_err(|error| AuthorizationError::Metadata { server: text.to_owned(), why: error.to_string() })
}

/// Returns the URLs of an authorization server's metadata: those of RFC 8414, and those of OpenID Connect.
fn metadata_urls(issuer: &Url) -> [Url; 3] {
    let path = issuer.path().trim_end_matches('/');
    [
        format!("/.well-known/oauth-authorization-server{path}"),
        format!("/.well-known/openid-configuration{path}"),
        format!("{path}/.well-known/openid-configuration"),
    ]
    .map(|path| {
        let mut url = issuer.clone();
        url.set_path(&path);
        url
    })
}
