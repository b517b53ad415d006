//! One way to a token: discovery, a client id, a person's consent or a refresh token, and the token itself.
//!
//! `rmcp` knows the protocols (RFC 9728, 8414, 7591, 8707, 7636); this module checks the answers, and remembers what two flows share.
//!
//! Invariants
//!
//! - The log of `rmcp` is dropped, because it contains codes. Nothing here logs.
//! - Tokens, client ids and secrets that one authorization server gave are shown to no other.
//! - A person is sent only to an authorization server that says that it checks PKCE, and only over https or to this machine.

use std::{collections::BTreeSet, future::Future, sync::Arc};

use reqwest::{
    Method, Request, Url,
    header::{CONTENT_TYPE, HeaderValue},
};
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, AuthorizationMetadataSource, CredentialStore,
    InMemoryCredentialStore, OAuthClientConfig, OAuthTokenResponse, ProtectedResourceMetadataInvalidReason,
    StoredCredentials,
};
use serde_json::{Value, json};
use tracing::{instrument::WithSubscriber, subscriber::NoSubscriber};
use url::form_urlencoded;

use super::{
    ClientSettings,
    agent::{Agent, Redirect},
    error::{AuthorizationError, told, told_as_url, told_url},
    requests::{PlainHttp, RequestLimits, Requests, require_secure},
    store::{StoredLogin, now},
};

/// The name under which unhang registers itself.
const CLIENT_NAME: &str = "unhang";

/// The scope that brings a refresh token, for authorization servers that want to be asked for it.
const OFFLINE_ACCESS: &str = "offline_access";

/// A server for which a token is wanted.
pub(super) struct AuthorizedServer {
    /// The server's name for people.
    pub(super) name: String,
    pub(super) url: Url,
    pub(super) settings: ClientSettings,
    pub(super) limits: RequestLimits,
}

/// The scopes to ask for.
pub(super) enum WantedScopes {
    /// The scopes of the settings, or those that the server names at the beginning.
    Initial,
    /// These scopes, which include those that were there before.
    More(Vec<String>),
}

/// The outcome of a refresh.
pub(super) enum Refreshed {
    /// Another token.
    Login(Box<StoredLogin>),
    /// The refresh token is of no use any more.
    Rejected,
}

/// A server with its authorization server.
pub(super) struct Discovered<'a> {
    server: &'a AuthorizedServer,
    requests: Arc<Requests>,
    manager: AuthorizationManager,
    metadata: AuthorizationMetadata,
    pub(super) issuer: String,
    /// The secrets that were sent, which must not be shown if they come back in an error.
    sent: Vec<String>,
}

/// Lets `rmcp` work without its log.
async fn quietly<T>(work: impl Future<Output = T>) -> T {
    work.with_subscriber(NoSubscriber::new()).await
}

/// Finds the authorization server of a server.
pub(super) async fn discover<'a>(
    server: &'a AuthorizedServer,
    challenge: Option<&str>,
) -> Result<Discovered<'a>, AuthorizationError> {
    let plain = PlainHttp::of(&server.url);
    require_secure(&server.url, plain)?;
    let requests = Arc::new(Requests::new(server.limits, plain)?);
    let explain = |error| explain(server, &requests, None, error);
    let manager =
        AuthorizationManager::new_with_oauth_http_client(server.url.clone(), requests.clone()).await;
    let mut manager = manager.map_err(explain)?;
    let found = quietly(manager.resolve_metadata_from_challenge(challenge)).await.map_err(explain)?;
    let no_metadata = || AuthorizationError::NoMetadata { server: server.name.clone() };
    if found.source == AuthorizationMetadataSource::LegacyEndpointFallback {
        return Err(no_metadata());
    }
    let metadata = found.metadata;
    let issuer = metadata.issuer.clone().ok_or_else(no_metadata)?;
    for endpoint in [&metadata.authorization_endpoint, &metadata.token_endpoint] {
        let url = Url::parse(endpoint).map_err(|_| AuthorizationError::Metadata {
            server: server.name.clone(),
            why: format!("`{}` is not a URL", told_as_url(endpoint)),
        })?;
        require_secure(&url, plain)?;
    }
    manager.set_metadata(metadata.clone());
    Ok(Discovered { server, requests, manager, metadata, issuer, sent: Vec::new() })
}

impl Discovered<'_> {
    /// Gets a token with the consent of a person.
    pub(super) async fn log_in(
        &mut self,
        agent: &dyn Agent,
        wanted: WantedScopes,
        before: Option<&StoredLogin>,
    ) -> Result<StoredLogin, AuthorizationError> {
        let checks_pkce =
            self.metadata.code_challenge_methods_supported.iter().flatten().any(|method| method == "S256");
        if !checks_pkce {
            return Err(AuthorizationError::NoPkce { issuer: self.told_issuer() });
        }
        let redirect_uri = agent.redirect_uri()?;
        let scopes = self.scopes(wanted).await;
        let (client, is_registered) = self.client(&redirect_uri, &scopes, before).await?;
        self.manager.configure_client(client.clone()).map_err(|error| self.explained(error))?;
        let asked: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let url = quietly(self.manager.get_authorization_url(&asked)).await;
        let url = url.map_err(|error| self.explained(error))?;
        let redirect = agent.authorize(url.clone()).await?;
        let (code, state) = self.judged(&url, &redirect)?;
        self.sent.extend([code.clone()].into_iter().chain(client.client_secret.clone()));
        let token =
            self.manager.exchange_code_for_token_with_issuer(&code, &state, redirect.issuer.as_deref());
        let token = quietly(token).await.map_err(|error| self.explained(error))?;
        let login = StoredLogin {
            server: self.server.url.to_string(),
            issuer: self.issuer.clone(),
            client_id: client.client_id,
            client_secret: client.client_secret,
            redirect_uri,
            is_registered,
            access_token: String::new(),
            refresh_token: None,
            expires_at: None,
            granted: scopes.clone(),
            requested: scopes,
            revocation_endpoint: self.member("revocation_endpoint").as_str().map(str::to_owned),
        };
        self.with_token(login, &token)
    }

    /// Gets a token for the refresh token that the same authorization server gave before.
    pub(super) async fn refresh(&mut self, login: &StoredLogin) -> Result<Refreshed, AuthorizationError> {
        let config = OAuthClientConfig::new(&login.client_id, &login.redirect_uri);
        let config = match &login.client_secret {
            Some(secret) => config.with_client_secret(secret),
            None => config,
        };
        self.sent.extend(login.refresh_token.iter().chain(&login.client_secret).cloned());
        self.manager.configure_client(config).map_err(|error| self.explained(error))?;
        let token = json!({ "access_token": login.access_token, "token_type": "bearer", "refresh_token": login.refresh_token });
        let token = serde_json::from_value(token).map_err(|error| self.unusable(&error.to_string()))?;
        let store = InMemoryCredentialStore::new();
        let granted = login.granted.clone();
        let known = StoredCredentials::new(login.client_id.clone(), Some(token), granted, None);
        store.save(known).await.map_err(|error| self.explained(error))?;
        self.manager.set_credential_store(store);
        match quietly(self.manager.refresh_token()).await {
            Ok(token) => Ok(Refreshed::Login(Box::new(self.with_token(login.clone(), &token)?))),
            Err(AuthError::TokenRefreshRejected(_) | AuthError::AuthorizationRequired) => {
                Ok(Refreshed::Rejected)
            }
            Err(error) => Err(self.explained(error)),
        }
    }

    /// Returns the scopes to ask for: none if neither the settings nor the server name any.
    async fn scopes(&self, wanted: WantedScopes) -> Vec<String> {
        let mut scopes = match wanted {
            WantedScopes::More(scopes) => scopes,
            WantedScopes::Initial if !self.server.settings.scopes.is_empty() => {
                self.server.settings.scopes.clone()
            }
            WantedScopes::Initial => return self.manager.select_initial_scopes(&[]).await,
        };
        let is_offered =
            self.metadata.scopes_supported.iter().flatten().any(|offered| offered == OFFLINE_ACCESS);
        if is_offered && !scopes.is_empty() && !scopes.iter().any(|scope| scope == OFFLINE_ACCESS) {
            scopes.push(OFFLINE_ACCESS.to_owned());
        }
        scopes
    }

    /// Returns the client's id and secret at the authorization server, and whether they come from a registration.
    async fn client(
        &mut self,
        redirect_uri: &str,
        scopes: &[String],
        before: Option<&StoredLogin>,
    ) -> Result<(OAuthClientConfig, bool), AuthorizationError> {
        let settings = &self.server.settings;
        let with_secret = |config: OAuthClientConfig, secret: Option<&String>| match secret {
            Some(secret) => config.with_client_secret(secret),
            None => config,
        };
        if let Some(id) = &settings.client_id {
            if let Some(login) = before.filter(|login| login.issuer != self.issuer) {
                return Err(AuthorizationError::Moved {
                    server: self.server.name.clone(),
                    from: told(&login.issuer),
                    to: self.told_issuer(),
                });
            }
            let config = OAuthClientConfig::new(id, redirect_uri);
            return Ok((with_secret(config, settings.client_secret.as_ref()), false));
        }
        let takes_documents = self.member("client_id_metadata_document_supported") == &Value::Bool(true);
        if let Some(document) = settings.client_metadata_url.as_ref().filter(|_| takes_documents) {
            return Ok((OAuthClientConfig::new(document, redirect_uri), false));
        }
        let registered = before.filter(|login| {
            login.is_registered && login.issuer == self.issuer && login.redirect_uri == redirect_uri
        });
        if let Some(login) = registered {
            let config = OAuthClientConfig::new(&login.client_id, redirect_uri);
            return Ok((with_secret(config, login.client_secret.as_ref()), true));
        }
        let asked: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let registered = quietly(self.manager.register_client(CLIENT_NAME, redirect_uri, &asked)).await;
        registered.map(|config| (config, true)).map_err(|error| self.explained(error))
    }

    /// Returns the code and the state of a redirect, if it answers this login. An error counts only if it comes from the authorization
    /// server that was asked, as a code does.
    fn judged(&self, asked: &str, redirect: &Redirect) -> Result<(String, String), AuthorizationError> {
        let asked = Url::parse(asked).ok();
        let sent = asked.iter().flat_map(Url::query_pairs).find(|(name, _)| name == "state");
        let state =
            redirect.state.as_deref().filter(|state| sent.as_ref().is_some_and(|(_, sent)| sent == state));
        let Some(state) = state else { return Err(AuthorizationError::WrongState) };
        let must_be_named =
            self.member("authorization_response_iss_parameter_supported") == &Value::Bool(true);
        match &redirect.issuer {
            Some(received) if *received != self.issuer => {
                return Err(AuthorizationError::WrongIssuer {
                    expected: self.told_issuer(),
                    received: told(received),
                });
            }
            None if must_be_named => {
                return Err(AuthorizationError::MissingIssuer { expected: self.told_issuer() });
            }
            Some(_) | None => {}
        }
        match (&redirect.error, &redirect.code) {
            (Some(error), _) => {
                let words = redirect.error_description.as_ref();
                Err(self.unusable(&words.map_or_else(|| error.clone(), |words| format!("{error}: {words}"))))
            }
            (None, Some(code)) => Ok((code.clone(), state.to_owned())),
            (None, None) => Err(AuthorizationError::EmptyRedirect { issuer: self.told_issuer() }),
        }
    }

    /// Fills a login with the token endpoint's answer. `rmcp` has no types for all of its members, so they are read from its JSON.
    fn with_token(
        &self,
        mut login: StoredLogin,
        token: &OAuthTokenResponse,
    ) -> Result<StoredLogin, AuthorizationError> {
        let token = serde_json::to_value(token).map_err(|error| self.unusable(&error.to_string()))?;
        if !token["token_type"].as_str().is_some_and(|kind| kind.eq_ignore_ascii_case("bearer")) {
            return Err(self.unusable("its token is not a bearer token"));
        }
        let text = |name: &str| token[name].as_str().map(str::to_owned);
        let access_token = text("access_token").filter(|token| HeaderValue::from_str(token).is_ok());
        login.access_token =
            access_token.ok_or_else(|| self.unusable("its token does not fit into a header"))?;
        login.refresh_token = text("refresh_token");
        login.expires_at = token["expires_in"].as_u64().map(|length| now().saturating_add(length));
        if let Some(granted) = token["scope"].as_str() {
            login.granted = granted.split_whitespace().map(str::to_owned).collect();
        }
        Ok(login)
    }

    fn member(&self, name: &str) -> &Value {
        self.metadata.additional_fields.get(name).unwrap_or(&Value::Null)
    }

    fn told_issuer(&self) -> String {
        told(&self.issuer)
    }

    fn unusable(&self, why: &str) -> AuthorizationError {
        AuthorizationError::Refused { issuer: self.told_issuer(), why: told(why) }
    }

    /// Explains an error without the secrets that were sent: some authorization servers repeat them.
    fn explained(&self, error: AuthError) -> AuthorizationError {
        match explain(self.server, &self.requests, Some(&self.issuer), error) {
            AuthorizationError::Refused { issuer, why } => {
                let why = self.sent.iter().fold(why, |why, secret| why.replace(secret.as_str(), "[...]"));
                AuthorizationError::Refused { issuer, why: told(&why) }
            }
            other => other,
        }
    }
}

/// Translates an error of `rmcp`. If a request failed, [`Requests`] knows the cause better.
fn explain(
    server: &AuthorizedServer,
    requests: &Requests,
    issuer: Option<&str>,
    error: AuthError,
) -> AuthorizationError {
    if let Some(failure) = requests.take_failure() {
        return failure;
    }
    let metadata = |why: &str| AuthorizationError::Metadata { server: server.name.clone(), why: told(why) };
    let Some(issuer) = issuer.map(told) else {
        return match error {
            AuthError::ProtectedResourceMetadataInvalid { url, reason } => match *reason {
                ProtectedResourceMetadataInvalidReason::ResourceMismatch { permitted, .. } => {
                    AuthorizationError::WrongResource {
                        server: told_url(&server.url),
                        claimed: told_url(&permitted),
                    }
                }
                reason => metadata(&format!("{}: {reason}", told_url(&url))),
            },
            AuthError::AuthorizationServerMismatch { expected_issuer, received_issuer } => {
                AuthorizationError::WrongIssuer {
                    expected: told(&expected_issuer),
                    received: told(&received_issuer),
                }
            }
            AuthError::AuthorizationServerMissingIssuer { expected_issuer } => {
                AuthorizationError::MissingIssuer { expected: told(&expected_issuer) }
            }
            AuthError::DiscoveryRequestFailed { url, source } => {
                metadata(&format!("{}: {source}", told_url(&url)))
            }
            other => metadata(&other.to_string()),
        };
    };
    match error {
        AuthError::RegistrationFailed(why) => AuthorizationError::NoClient { issuer, why: told(&why) },
        AuthError::PkceUnsupported => AuthorizationError::NoPkce { issuer },
        AuthError::TokenExchangeFailed(why) | AuthError::TokenRefreshFailed(why) => {
            // An unreadable answer may be a token, and the error repeats it.
            let said = why.strip_prefix("Server returned error response: ");
            let why = said.unwrap_or("its answer has no usable token").to_owned();
            AuthorizationError::Refused { issuer, why }
        }
        other => AuthorizationError::Refused { issuer, why: other.to_string() },
    }
}

/// Asks the authorization server to forget a login (RFC 7009). Returns whether it has an endpoint for that.
pub(super) async fn revoke(
    server: &Url,
    login: &StoredLogin,
    limits: RequestLimits,
) -> Result<bool, AuthorizationError> {
    let Some(endpoint) = &login.revocation_endpoint else { return Ok(false) };
    let url = Url::parse(endpoint).map_err(|_| AuthorizationError::NoUrl { url: told_as_url(endpoint) })?;
    let requests = Requests::new(limits, PlainHttp::of(server))?;
    // With the refresh token go the access tokens that it gave, but not everywhere.
    let tokens =
        [(&login.refresh_token, "refresh_token"), (&Some(login.access_token.clone()), "access_token")];
    for (token, kind) in tokens {
        let Some(token) = token else { continue };
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("token", token).append_pair("token_type_hint", kind);
        let mut request = requests.client().request(Method::POST, url.clone());
        request = match &login.client_secret {
            Some(secret) => request.basic_auth(encoded(&login.client_id), Some(encoded(secret))),
            None => {
                form.append_pair("client_id", &login.client_id);
                request
            }
        };
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(form.finish());
        let request: Request = request.build().map_err(|error| AuthorizationError::System {
            what: "the tokens cannot be revoked",
            why: told(&error.without_url().to_string()),
        })?;
        let status = requests.send(request).await?.status();
        if !status.is_success() {
            return Err(AuthorizationError::Refused {
                issuer: told(&login.issuer),
                why: format!("it answered {status} to the request to revoke the tokens"),
            });
        }
    }
    Ok(true)
}

/// Encodes a text as RFC 6749 wants it in a header (2.3.1).
fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// Returns each scope once, in the order in which they came.
pub(super) fn union<'a>(scopes: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    scopes.filter(|scope| seen.insert(*scope)).map(str::to_owned).collect()
}
