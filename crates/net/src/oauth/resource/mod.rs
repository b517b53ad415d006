//! We as a resource server: tokens that an authorization server has given for us (RFC 6750, RFC 9068, RFC 9728).
//!
//! Theory of operation. The authorization server says in its metadata (RFC 8414, or OpenID Connect Discovery) where its keys are. They are
//! fetched when the first token comes, from time to time again, which nobody waits for, and when a token names one that is not among them: an
//! authorization server that changes its keys is followed, and whoever makes names up has it asked once a minute at most. One fetches, by a
//! task of its own, and whoever else needs the keys waits for what comes of it.
//!
//! Invariants
//!
//! - Whoever stops waiting breaks no fetch off.
//! - The authorization server is asked within limits of time and bytes, and over https alone, or on this machine.
//! - Where it cannot be asked, nobody is let in whose key is not known; keys that are known stay good.
//! - No token is in an error, in a log or in what `Debug` shows.

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
use unhang_switches::stands;

use self::{
    keys::{Algorithm, Keys},
    token::ParsedToken,
};
use super::{
    AuthorizationError, RequestLimits,
    requests::{PlainHttp, Requests, require_secure},
};

/// Below which path of its origin a resource says who gives tokens for it (RFC 9728).
pub const RESOURCE_METADATA: &str = "/.well-known/oauth-protected-resource";

/// Who gives tokens for us, and for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceSettings {
    /// The authorization server, exactly as it calls itself.
    pub issuer: String,
    /// What tokens have to be for: our URL, as clients know it.
    pub resource: String,
    /// What tokens have to be good for, each of them.
    pub scopes: Vec<String>,
}

impl ResourceSettings {
    /// Whether the authorization server is on https or on this machine; anywhere else it could be somebody else.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        url(&self.issuer).is_ok_and(|url| require_secure(&url, PlainHttp::Here).is_ok())
    }
}

/// What is allowed on the way to keys, and how long they are kept.
#[derive(Clone, Copy, Debug)]
pub struct ResourceLimits {
    /// Each answer of the authorization server.
    pub requests: RequestLimits,
    /// For how long keys are kept before they are fetched again.
    pub kept: Duration,
    /// How long after a fetch the next one is, whatever tokens come.
    pub pause: Duration,
    /// The same while there are no keys at all.
    pub first_pause: Duration,
    /// By how much clocks may differ.
    pub leeway: Duration,
}

/// Why a token does not let in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenRefusal {
    /// It is none that is good for us.
    #[error("the token is not good here: {0}")]
    Invalid(&'static str),
    /// It is not good for all that it has to be good for.
    #[error("the token has not the scope `{0}`")]
    Scope(String),
    /// Nobody can say whether it is good.
    #[error("the keys of the authorization server are not known: {0}")]
    NoKeys(AuthorizationError),
}

/// We as a resource server. Clones are the same.
#[derive(Clone)]
pub struct ResourceServer(Arc<ResourceServerState>);

struct ResourceServerState {
    settings: ResourceSettings,
    limits: ResourceLimits,
    requests: Requests,
    known: Mutex<KnownKeys>,
    /// Whose turn it is to fetch.
    turn: Turn<()>,
}

/// What is known of the keys.
#[derive(Default)]
struct KnownKeys {
    keys: Option<Arc<Keys>>,
    /// When they were fetched.
    fetched: Option<Instant>,
    /// When it was last tried, and what went wrong.
    tried: Option<(Instant, Option<AuthorizationError>)>,
}

/// Without what was fetched.
impl fmt::Debug for ResourceServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Resource").field(&self.0.settings).finish()
    }
}

impl ResourceServer {
    /// One for which this authorization server gives tokens. It is not asked yet.
    ///
    /// # Errors
    /// Where a URL is none, where the authorization server could be somebody else for want of https, or where there is no HTTP client.
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

    /// Whether the two take the same tokens.
    #[must_use]
    pub fn is_same(&self, other: &ResourceServer) -> bool {
        self.0.settings == other.0.settings
    }

    /// What we say of ourselves: who gives tokens for us.
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

    /// Where we say it, as clients know us.
    #[must_use]
    pub fn metadata_url(&self) -> String {
        let Ok(mut url) = Url::parse(&self.0.settings.resource) else { return String::new() };
        url.set_path(&format!("{RESOURCE_METADATA}{}", url.path().trim_end_matches('/')));
        url.into()
    }

    /// What tokens have to be good for.
    #[must_use]
    pub fn scopes(&self) -> &[String] {
        &self.0.settings.scopes
    }

    /// Whose token this is.
    ///
    /// # Errors
    /// Where it is not good for us, or nobody can say so.
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

    /// Fetches the keys, unless that of the token came or they were asked for meanwhile. What went wrong last.
    async fn fetch(&self, signed: &ParsedToken<'_>) -> Option<AuthorizationError> {
        let awaited_key = (signed.key.clone(), signed.algorithm);
        // It does not panic; if it did, nothing would be known of the key.
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

    /// Whether there are keys that were kept for as long as they may be, and it is time to ask for them.
    fn is_stale(&self) -> bool {
        let is_old =
            |known: &KnownKeys| known.fetched.is_some_and(|fetched| fetched.elapsed() >= self.limits.kept);
        is_old(&self.known()) && self.may_ask()
    }

    /// Whether it is long enough since the last time.
    fn may_ask(&self) -> bool {
        let known = self.known();
        let pause = if known.keys.is_some() { self.limits.pause } else { self.limits.first_pause };
        let was_just_asked = known.tried.as_ref().is_some_and(|(tried, _)| tried.elapsed() < pause);
        !was_just_asked || !stands("keys-are-asked-for-seldom")
    }

    async fn fetch(&self) {
        let issuer = &self.settings.issuer;
        let outcome = self.fetched().await;
        let mut known = self.known();
        let now = Instant::now();
        match outcome {
            Ok(keys) => {
                tracing::info!("{issuer} has {} keys that tokens can be proven with", keys.len());
                *known =
                    KnownKeys { keys: Some(Arc::new(keys)), fetched: Some(now), tried: Some((now, None)) };
            }
            Err(error) => {
                tracing::warn!("the keys of {issuer} cannot be fetched: {error}");
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
                metadata = Some(serde_json::from_slice::<Value>(&body).map_err(|_| wrong("it is no JSON"))?);
                break;
            }
        }
        let metadata = metadata.ok_or_else(|| wrong("there is none"))?;
        let text = |name: &str| metadata.get(name).and_then(Value::as_str);
        let named = text("issuer").unwrap_or_default();
        if named != issuer {
            return Err(AuthorizationError::WrongIssuer {
                expected: issuer.clone(),
                received: named.chars().filter(|letter| !letter.is_control()).take(300).collect(),
            });
        }
        let keys = text("jwks_uri").ok_or_else(|| wrong("it has no `jwks_uri`"))?;
        let keys = self.get(url(keys)?).await?.ok_or_else(|| wrong("there are no keys where it says"))?;
        Keys::read(&keys).ok_or_else(|| wrong("its keys are no key set"))
    }

    /// A document; none where there is none.
    async fn get(&self, url: Url) -> Result<Option<Vec<u8>>, AuthorizationError> {
        let answer = self.requests.send(Request::new(Method::GET, url)).await?;
        Ok(answer.status().is_success().then(|| answer.into_body()))
    }
}

fn url(text: &str) -> Result<Url, AuthorizationError> {
    Url::parse(text)
        .map_err(|error| AuthorizationError::Metadata { server: text.to_owned(), why: error.to_string() })
}

/// Where an authorization server says what it is: as RFC 8414 has it, and as OpenID Connect does.
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
