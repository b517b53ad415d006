//! The authorization server: metadata, registration, consent without asking, tokens, revocation.
//!
//! # Invariants
//!
//! - A code is good once, for the client, redirect and verifier that it was asked with; so is a refresh token,
//!   unless it stays good by habit.

use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;
use std::time::SystemTime;

use serde_json::{Value, json};
use unhang_demo_servers::bounded_waits::lock;

use super::Habits;
use super::digest::challenge;
use super::http::{AuthAnswer, AuthRequest, FormParameters, escaped, plain};
use super::signer::Signer;

/// A client that it knows.
struct RegisteredClient {
    secret: Option<String>,
    /// Where it may be sent; anywhere where it has not said so.
    redirects: Vec<String>,
}

/// What a person consented to.
#[derive(Clone)]
struct Grant {
    client: String,
    redirect: String,
    challenge: String,
    scope: String,
}

#[derive(Default)]
struct AuthorityState {
    clients: BTreeMap<String, RegisteredClient>,
    codes: BTreeMap<String, Grant>,
    refresh_tokens: BTreeMap<String, Grant>,
    tokens: BTreeMap<String, String>,
    log: Vec<String>,
    count: u64,
    has_moved: bool,
}

pub(super) struct Authority {
    habits: Habits,
    base: String,
    state: Mutex<AuthorityState>,
    signer: Mutex<Signer>,
}

/// For how long a signed token is good, in seconds.
const LIFE: u64 = 3600;

/// An OAuth error and why.
type Refused = (&'static str, &'static str);

impl Authority {
    pub(super) fn new(habits: Habits, base: String) -> io::Result<Self> {
        let mut state = AuthorityState::default();
        if let Some((id, secret)) = &habits.client {
            state
                .clients
                .insert(id.clone(), RegisteredClient { secret: Some(secret.clone()), redirects: Vec::new() });
        }
        Ok(Self { habits, base, state: Mutex::new(state), signer: Mutex::new(Signer::new()?) })
    }

    /// Signs with other keys from now on.
    pub(super) fn change_keys(&self) -> io::Result<()> {
        lock(&self.signer).change()
    }

    /// Signs what it is told to: `head`, `claims` and `by`.
    pub(super) fn sign(&self, request: &AuthRequest) -> AuthAnswer {
        let asked: Value = serde_json::from_slice(request.body).unwrap_or_default();
        let by = asked["by"].as_str().unwrap_or_default();
        match lock(&self.signer).token(&asked["head"], &asked["claims"], by) {
            Ok(token) => AuthAnswer::json(200, &token.into()),
            Err(_) => AuthAnswer::new(500),
        }
    }

    /// Whom tokens are for.
    fn resource(&self) -> String {
        self.habits.resource.clone().unwrap_or_else(|| format!("{}/mcp", self.base))
    }

    pub(super) fn habits(&self) -> &Habits {
        &self.habits
    }

    pub(super) fn issuer(&self) -> String {
        format!("{}{}", self.base, self.issuer_path())
    }

    /// Below which path it is.
    fn issuer_path(&self) -> &'static str {
        lock(&self.state).issuer_path()
    }

    /// Becomes another one, which knows nobody.
    pub(super) fn move_away(&self) {
        let mut state = lock(&self.state);
        let (log, count) = (std::mem::take(&mut state.log), state.count);
        *state = AuthorityState { log, count, has_moved: true, ..AuthorityState::default() };
    }

    /// What came so far, a line each.
    pub(super) fn log(&self) -> Value {
        lock(&self.state).log.clone().into()
    }

    /// Access tokens are of no use any more.
    pub(super) fn forget(&self) {
        lock(&self.state).tokens.clear();
    }

    /// Returns what a token is good for.
    pub(super) fn granted(&self, token: &str) -> Option<String> {
        let granted = lock(&self.state).tokens.get(token).cloned();
        granted.filter(|_| !self.habits.has("refuses-every-token"))
    }

    pub(super) fn answer(&self, request: &AuthRequest) -> Option<AuthAnswer> {
        let issuer_path = self.issuer_path();
        let metadata = request.path.strip_prefix("/.well-known/oauth-authorization-server");
        Some(match (request.method, request.path.strip_prefix(issuer_path)) {
            ("GET", None) if metadata == Some(issuer_path) => AuthAnswer::json(200, &self.metadata()),
            ("GET", Some("/keys")) => {
                lock(&self.state).log.push("keys".to_owned());
                AuthAnswer::json(200, &lock(&self.signer).keys())
            }
            ("POST", Some("/register")) => self.register(request),
            ("GET", Some("/authorize")) => self.authorize(&request.query),
            ("POST", Some("/token")) => self.token(request),
            ("POST", Some("/revoke")) => self.revoke(request),
            _ => return None,
        })
    }

    fn metadata(&self) -> Value {
        let issuer = self.issuer();
        let at = if self.habits.has("insecure") { "http://as.invalid" } else { &issuer };
        let named = if self.habits.has("wrong-issuer") { "http://127.0.0.1:1/as" } else { &issuer };
        let mut metadata = json!({
            "issuer": named,
            "authorization_endpoint": format!("{at}/authorize"),
            "token_endpoint": format!("{at}/token"),
            "registration_endpoint": format!("{issuer}/register"),
            "revocation_endpoint": format!("{issuer}/revoke"),
            "jwks_uri": format!("{at}/keys"),
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": self.habits.methods.split(' ').collect::<Vec<_>>(),
            "authorization_response_iss_parameter_supported": true,
            "client_id_metadata_document_supported": self.habits.reads_documents,
        });
        if self.habits.has("no-pkce") {
            metadata["code_challenge_methods_supported"] = Value::Null;
        }
        if self.habits.offers_offline {
            metadata["scopes_supported"] = json!(["read", "write", "offline_access"]);
        }
        metadata
    }

    fn register(&self, request: &AuthRequest) -> AuthAnswer {
        let asked: Value = serde_json::from_slice(request.body).unwrap_or_default();
        let mut state = lock(&self.state);
        state.log.push(format!("register {asked}"));
        if self.habits.has("refuses-registration") {
            return AuthAnswer::json(403, &json!({ "error": "access_denied" }));
        }
        let id = state.named("client");
        let needs_secret = !self.habits.methods.split(' ').any(|method| method == "none");
        let secret = needs_secret.then(|| state.named("secret-client"));
        let redirects = asked["redirect_uris"].as_array().into_iter().flatten();
        let redirects: Vec<String> = redirects.filter_map(|uri| uri.as_str().map(str::to_owned)).collect();
        let mut answer = asked.clone();
        answer["client_id"] = id.clone().into();
        if let Some(secret) = &secret {
            answer["client_secret"] = secret.clone().into();
        }
        state.clients.insert(id, RegisteredClient { secret, redirects });
        AuthAnswer::json(201, &answer)
    }

    /// Consents to everything that is asked for in the right way.
    fn authorize(&self, asked: &FormParameters) -> AuthAnswer {
        let get = |name: &str| asked.get(name).map_or("", String::as_str);
        let own_issuer = self.issuer();
        let mut state = lock(&self.state);
        let scope = asked.get("scope").map_or("none", String::as_str);
        state.log.push(format!("authorize client={} scope={scope}", get("client_id")));
        let is_document = self.habits.reads_documents && get("client_id").starts_with("https://");
        let is_known = state.clients.get(get("client_id")).map_or(is_document, |client| {
            client.redirects.is_empty() || client.redirects.iter().any(|uri| uri == get("redirect_uri"))
        });
        let is_right = is_known
            && get("response_type") == "code"
            && get("code_challenge_method") == "S256"
            && get("code_challenge").len() == 43
            && get("state").len() >= 16
            && get("resource") == self.resource();
        if !is_right {
            return AuthAnswer::json(400, &json!({ "error": "invalid_request", "asked": asked }));
        }
        let code = state.named("secret-code");
        let grant = Grant {
            client: get("client_id").to_owned(),
            redirect: get("redirect_uri").to_owned(),
            challenge: get("code_challenge").to_owned(),
            scope: get("scope").to_owned(),
        };
        state.codes.insert(code.clone(), grant);
        let sent_state = if self.habits.has("wrong-state") { "somebody-elses-state" } else { get("state") };
        let outcome = if self.habits.has("denies") {
            "error=access_denied&error_description=The+person+said+no".to_owned()
        } else {
            format!("code={}", escaped(&code))
        };
        let issuer = match &*self.habits.vice {
            "missing-iss" => String::new(),
            "wrong-iss" => format!("&iss={}", escaped("http://127.0.0.1:1/as")),
            _ => format!("&iss={}", escaped(&own_issuer)),
        };
        let state = escaped(sent_state);
        AuthAnswer::new(302)
            .with("Location", format!("{}?{outcome}&state={state}{issuer}", get("redirect_uri")))
    }

    fn token(&self, request: &AuthRequest) -> AuthAnswer {
        let form = request.form();
        let mut state = lock(&self.state);
        if self.habits.has("repeats") {
            let why = format!("this is of no use: {}", json!(form));
            return AuthAnswer::json(400, &json!({ "error": "invalid_grant", "error_description": why }));
        }
        match self.exchanged(&mut state, request, &form) {
            Ok(answer) => AuthAnswer::json(200, &answer),
            Err((error, why)) => AuthAnswer::json(400, &json!({ "error": error, "error_description": why })),
        }
    }

    fn exchanged(
        &self,
        state: &mut AuthorityState,
        request: &AuthRequest,
        form: &FormParameters,
    ) -> Result<Value, Refused> {
        let get = |name: &str| form.get(name).map_or("", String::as_str);
        let (client, way) = state.proven(request, form)?;
        state.log.push(format!("token grant={} auth={way}", get("grant_type")));
        if get("resource") != self.resource() {
            return Err(("invalid_target", "it is for another resource"));
        }
        let mut stays = false;
        let grant = match get("grant_type") {
            "authorization_code" => {
                let grant = state.codes.remove(get("code")).ok_or(("invalid_grant", "no such code"))?;
                if grant.redirect != get("redirect_uri") || grant.challenge != challenge(get("code_verifier"))
                {
                    return Err(("invalid_grant", "the redirect or the verifier is another"));
                }
                grant
            }
            "refresh_token" if self.habits.has("refuses-refresh") => {
                return Err(("invalid_grant", "the refresh token has been revoked"));
            }
            "refresh_token" => {
                let grant = state.refresh_tokens.remove(get("refresh_token"));
                let grant = grant.ok_or(("invalid_grant", "no such token"))?;
                stays = self.habits.keeps_refresh;
                grant
            }
            _ => return Err(("unsupported_grant_type", "it is unknown")),
        };
        if grant.client != client {
            return Err(("invalid_grant", "it was given to another client"));
        }
        let token = self.access_token(state, &grant)?;
        let refresh = match stays {
            true => get("refresh_token").to_owned(),
            false => state.named("secret-refresh"),
        };
        state.tokens.insert(token.clone(), grant.scope.clone());
        let mut answer = json!({ "access_token": token, "token_type": "Bearer" });
        if !stays {
            answer["refresh_token"] = refresh.clone().into();
        }
        if !grant.scope.is_empty() {
            answer["scope"] = grant.scope.clone().into();
        }
        if let Some(expires) = self.habits.expires {
            answer["expires_in"] = expires.into();
        }
        state.refresh_tokens.insert(refresh, grant);
        Ok(answer)
    }

    /// Returns a token that nobody has had: a name for ourselves, a signed one for somebody else.
    fn access_token(&self, state: &mut AuthorityState, grant: &Grant) -> Result<String, Refused> {
        let name = state.named("secret-access");
        let Some(resource) = &self.habits.resource else { return Ok(name) };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let claims = json!({
            "iss": format!("{}{}", self.base, state.issuer_path()), "aud": resource, "sub": grant.client, "scope": grant.scope,
            "iat": now, "exp": now + self.habits.expires.unwrap_or(LIFE), "jti": name,
        });
        let token = lock(&self.signer).token(&Value::Null, &claims, "own");
        token.map_err(|_| ("server_error", "it cannot be signed"))
    }

    fn revoke(&self, request: &AuthRequest) -> AuthAnswer {
        let form = request.form();
        let mut state = lock(&self.state);
        let Ok((_, way)) = state.proven(request, &form) else { return AuthAnswer::new(401) };
        let token = form.get("token").map_or("", String::as_str);
        let was_known = state.tokens.remove(token).is_some() | state.refresh_tokens.remove(token).is_some();
        let hint = form.get("token_type_hint").map_or("", String::as_str);
        state.log.push(format!("revoke {hint} known={was_known} auth={way}"));
        AuthAnswer::new(200)
    }
}

impl AuthorityState {
    fn issuer_path(&self) -> &'static str {
        if self.has_moved { "/moved" } else { "/as" }
    }

    fn named(&mut self, what: &str) -> String {
        self.count += 1;
        format!("{what}-{}", self.count)
    }

    /// Returns which client it is, and in which way it has proven it.
    fn proven(
        &self,
        request: &AuthRequest,
        form: &FormParameters,
    ) -> Result<(String, &'static str), Refused> {
        let in_form = |name: &str| form.get(name).cloned();
        let (id, secret, way) = match request.header("authorization").strip_prefix("Basic ") {
            Some(encoded) => {
                let text = String::from_utf8(unbase64(encoded)).unwrap_or_default();
                let (id, secret) =
                    text.split_once(':').ok_or(("invalid_client", "that is no name and secret"))?;
                (plain(id), Some(plain(secret)), "basic")
            }
            None => {
                let secret = in_form("client_secret");
                let way = if secret.is_some() { "post" } else { "none" };
                (in_form("client_id").unwrap_or_default(), secret, way)
            }
        };
        match self.clients.get(&id) {
            Some(client) if client.secret == secret => Ok((id, way)),
            None if id.starts_with("https://") && secret.is_none() => Ok((id, way)),
            _ => Err(("invalid_client", "it is unknown, or its secret is another")),
        }
    }
}

fn unbase64(text: &str) -> Vec<u8> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits: Vec<usize> =
        text.bytes().filter_map(|byte| LETTERS.iter().position(|letter| *letter == byte)).collect();
    let mut bytes = Vec::new();
    for chunk in digits.chunks(4) {
        let bits = (0..4).fold(0, |bits, at| bits << 6 | chunk.get(at).copied().unwrap_or(0));
        bytes.extend((0..chunk.len().saturating_sub(1)).map(|index| (bits >> (16 - 8 * index) & 255) as u8));
    }
    bytes
}
