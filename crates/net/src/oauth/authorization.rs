//! The tokens of one server: which of them is good, and how to get a new one.
//!
//! Invariants
//!
//! - One flow runs at a time, to its end, whether its caller waits or not. A caller that waited for its turn takes the outcome of the flow
//!   before.
//! - The disk counts more than the memory, before anything is asked of anybody: another process may have renewed the login.
//! - Without an agent that has a person, a new token comes from a refresh token alone.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use reqwest::{
    Method, StatusCode, Url,
    header::{ACCEPT, CONTENT_TYPE, WWW_AUTHENTICATE},
};
use rmcp::transport::auth::WWWAuthenticateParams;
use tokio::{
    sync::{Mutex as AsyncMutex, OwnedMutexGuard},
    task::JoinError,
    time::Instant,
};

use super::{
    ClientSettings,
    agent::Agent,
    error::{AuthorizationError, told, told_as_url},
    flow::{AuthorizedServer, Refreshed, WantedScopes, discover, revoke, union},
    requests::{PlainHttp, RequestLimits, Requests, require_secure},
    store::{StoredLogin, TokenStore},
};

/// The most tokens in a row that a server may refuse before the search for a better one ends.
const MAX_RENEWALS: u32 = 3;
/// A token that was good for so long was not refused from the start.
const IN_A_ROW: Duration = Duration::from_secs(60);

/// The description of a server whose tokens are wanted.
pub struct AuthorizationSpec {
    /// The server's name for people.
    pub name: String,
    /// The server's URL.
    pub url: String,
    /// The store of tokens.
    pub store: TokenStore,
    /// The settings of unhang as a client.
    pub settings: ClientSettings,
    /// The limits of requests to others.
    pub limits: RequestLimits,
    /// Takes a person through a login.
    pub agent: Arc<dyn Agent>,
}

/// The time for which a missing file of a login is believed to be missing. Most servers want no login, and a look at the disk before each
/// request costs more than the request. If a server refuses a request, the file is looked for at once.
const ABSENT_KEPT: Duration = Duration::from_secs(1);

/// The tokens of one server.
#[derive(Clone)]
pub struct Authorization(Arc<AuthorizationState>);

struct AuthorizationState {
    server: AuthorizedServer,
    store: TokenStore,
    agent: Arc<dyn Agent>,
    known: Mutex<Option<StoredLogin>>,
    /// The time at which there was no file of a login.
    absent: Mutex<Option<Instant>>,
    turn: Arc<AsyncMutex<FlowLock>>,
    /// The number of flows that have ended.
    ended: AtomicU64,
}

/// The state that belongs to the flow whose turn it is.
#[derive(Default)]
struct FlowLock {
    /// The outcome of the last flow.
    outcome: Option<Result<bool, AuthorizationError>>,
    /// The renewals since a token was good for a while.
    in_a_row: u32,
    renewed: Option<Instant>,
}

/// A login, as it is shown to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedIn {
    /// The authorization server that gave the token.
    pub issuer: String,
    /// The scopes of the token, if they are known.
    pub scopes: Vec<String>,
    /// The time at which the token ends, if it is known.
    pub expires: Option<SystemTime>,
    /// The token is renewed without a person.
    pub is_renewed: bool,
}

/// The outcome of a logout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoggedOut {
    /// There was no login.
    WasNot,
    /// The login is forgotten here.
    Here {
        /// The authorization server's answer: `true` if it was told, `false` if it has no place for that, or the reason why it could not be
        /// told.
        revoked: Result<bool, AuthorizationError>,
    },
}

/// The work of a turn.
enum Flow {
    /// Renews this token, which is about to end.
    Refresh { used: String },
    /// Replaces a token that the server refused.
    Renew(OAuthRefusal),
    /// Logs a person in.
    LogIn,
}

/// A token that the server refused.
struct OAuthRefusal {
    used: Option<String>,
    /// The scopes that the token lacks, if that is the reason.
    more: Option<Vec<String>>,
    challenge: Option<String>,
}

impl Flow {
    /// Returns the token that is to be replaced, if there is one.
    fn used(&self) -> Option<&str> {
        match self {
            Flow::Refresh { used } => Some(used),
            Flow::Renew(refusal) => refusal.used.as_deref(),
            Flow::LogIn => None,
        }
    }
}

/// Shows the server's name alone.
impl fmt::Debug for Authorization {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Authorization").field("server", &self.0.server.name).finish_non_exhaustive()
    }
}

impl Authorization {
    /// Makes the handle of one server's tokens. It reads and asks nothing yet.
    ///
    /// # Errors
    /// Fails with [`AuthorizationError::NoUrl`] if the URL is not one of http or https.
    pub fn new(spec: AuthorizationSpec) -> Result<Self, AuthorizationError> {
        let AuthorizationSpec { name, url, store, settings, limits, agent } = spec;
        let parsed = Url::parse(&url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let mut url = parsed.ok_or_else(|| AuthorizationError::NoUrl { url: told_as_url(&url) })?;
        url.set_fragment(None);
        let server = AuthorizedServer { name: told(&name), url, settings, limits };
        let known = Mutex::default();
        Ok(Self(Arc::new(AuthorizationState {
            server,
            store,
            agent,
            known,
            absent: Mutex::default(),
            turn: Arc::default(),
            ended: AtomicU64::default(),
        })))
    }

    /// Returns whether a token may go to this URL: whether it is on the server that the token is for.
    #[must_use]
    pub fn covers(&self, url: &str) -> bool {
        Url::parse(url).is_ok_and(|url| {
            url.origin() == self.0.server.url.origin()
                && url.origin().is_tuple()
                && require_secure(&url, PlainHttp::Here).is_ok()
        })
    }

    /// Returns the bearer token for the next request, refreshed if it is about to end; `None` if none is known.
    ///
    /// # Errors
    /// Fails if the token has ended and another one could not be obtained, or if the disk does not answer.
    pub async fn token(&self) -> Result<Option<String>, AuthorizationError> {
        let ended = self.0.ended.load(Ordering::Acquire);
        let Some(login) = self.0.login().await? else { return Ok(None) };
        if !login.is_ending() {
            return Ok(Some(login.access_token));
        }
        if login.refresh_token.is_some() {
            let flow = Flow::Refresh { used: login.access_token.clone() };
            // A token that has not ended yet is better than none.
            match self.in_turn(ended, flow).await {
                Ok(true) => return Ok(self.0.known().map(|login| login.access_token)),
                Err(error) if login.has_ended() => return Err(error),
                Ok(false) | Err(_) => {}
            }
        }
        Ok(Some(login).filter(|login| !login.has_ended()).map(|login| login.access_token))
    }

    /// Finds a token in the place of one that the server refused (401, or 403 with `insufficient_scope`). `challenge` is its
    /// `WWW-Authenticate`.
    /// Returns `true` if another token is there now, so that the caller can repeat the request; `false` if there is no better one.
    /// Callers at the same time with the same stale token lead to one flow, not many.
    ///
    /// # Errors
    /// Fails if there may be a better token, and it could not be obtained.
    pub async fn refused(
        &self,
        used: Option<&str>,
        status: u16,
        challenge: Option<&str>,
    ) -> Result<bool, AuthorizationError> {
        let ended = self.0.ended.load(Ordering::Acquire);
        let said = challenge.map(|challenge| WWWAuthenticateParams::parse(challenge, &self.0.server.url));
        let needs_more =
            status == 403 && said.as_ref().is_some_and(WWWAuthenticateParams::is_insufficient_scope);
        if status != 401 && !needs_more {
            return Ok(false);
        }
        let (used, challenge) = (used.map(str::to_owned), challenge.map(str::to_owned));
        let scope = said.and_then(|said| said.scope).unwrap_or_default();
        let more = needs_more.then(|| scope.split_whitespace().map(str::to_owned).collect());
        self.in_turn(ended, Flow::Renew(OAuthRefusal { used, more, challenge })).await
    }

    /// Logs in anew, whatever is known.
    ///
    /// # Errors
    /// Fails if there is no way to log in, or if it went wrong.
    pub async fn log_in(&self) -> Result<LoggedIn, AuthorizationError> {
        let ended = self.0.ended.load(Ordering::Acquire);
        self.in_turn(ended, Flow::LogIn).await?;
        self.logged_in()
            .await?
            .ok_or_else(|| AuthorizationError::LoginNeeded { server: self.0.server.name.clone() })
    }

    /// Returns the login that is known; `None` if there is none.
    ///
    /// # Errors
    /// Fails with [`AuthorizationError::Store`] if the disk does not answer.
    pub async fn logged_in(&self) -> Result<Option<LoggedIn>, AuthorizationError> {
        Ok(self.0.login().await?.map(|login| LoggedIn {
            issuer: told(&login.issuer),
            scopes: login.granted,
            expires: login.expires_at.and_then(|end| UNIX_EPOCH.checked_add(Duration::from_secs(end))),
            is_renewed: login.refresh_token.is_some(),
        }))
    }

    /// Forgets the login, and asks the authorization server to forget it. Waits for a renewal that is under way, here or in another
    /// process: it would put the login back.
    ///
    /// # Errors
    /// Fails with [`AuthorizationError::Store`] if the file cannot be removed, or if another process does not come to the end of its
    /// renewal.
    pub async fn log_out(&self) -> Result<LoggedOut, AuthorizationError> {
        let inner = &self.0;
        let _turn = inner.turn.lock().await;
        let _lock = match inner.store.load(&inner.server.url).await {
            Ok(_) => inner.store.lock(&inner.server.url).await?,
            // Nobody renews a login that cannot be read.
            Err(_) => None,
        };
        let login = inner.store.load(&inner.server.url).await;
        // A login that cannot be read is removed all the same.
        let revoked = match &login {
            Ok(Some(login)) => revoke(&inner.server.url, login, inner.server.limits).await,
            Ok(None) => Ok(false),
            Err(error) => Err(error.clone()),
        };
        *inner.lock_known() = None;
        let was_there = inner.store.remove(&inner.server.url).await?;
        Ok(if was_there { LoggedOut::Here { revoked } } else { LoggedOut::WasNot })
    }

    /// Lets one flow at a time run to its end, whether its caller waits or not. A caller that waited while another flow ended takes its
    /// outcome, unless the token is still the one that it had.
    async fn in_turn(&self, ended: u64, flow: Flow) -> Result<bool, AuthorizationError> {
        // The holder of the lock has limits of its own for each step.
        let mut turn: OwnedMutexGuard<FlowLock> = Arc::clone(&self.0.turn).lock_owned().await;
        if self.0.ended.load(Ordering::Acquire) != ended {
            let has_other = self.0.known().is_some_and(|login| Some(&*login.access_token) != flow.used());
            if has_other {
                return Ok(true);
            }
            if let Some(outcome) = turn.outcome.clone() {
                return outcome;
            }
        }
        let inner = Arc::clone(&self.0);
        let flow = tokio::spawn(async move {
            let outcome = inner.run(flow, &mut turn).await;
            turn.outcome = Some(outcome.clone());
            inner.ended.fetch_add(1, Ordering::Release);
            outcome
        });
        let panicked = |error: JoinError| AuthorizationError::System {
            what: "the login broke off",
            why: error.to_string(),
        };
        flow.await.map_err(panicked)?
    }
}

impl AuthorizationState {
    async fn run(&self, flow: Flow, turn: &mut FlowLock) -> Result<bool, AuthorizationError> {
        match flow {
            Flow::Refresh { used } => self.refresh(&used, None).await,
            Flow::Renew(refusal) => self.renew(refusal, turn).await,
            Flow::LogIn => {
                let challenge = self.challenge().await?;
                self.log_in(challenge.as_deref(), WantedScopes::Initial).await?;
                (turn.in_a_row, turn.renewed) = (0, Some(Instant::now()));
                Ok(true)
            }
        }
    }

    /// Finds a token in the place of one that the server refused; returns whether there is one.
    async fn renew(&self, refusal: OAuthRefusal, turn: &mut FlowLock) -> Result<bool, AuthorizationError> {
        let OAuthRefusal { used, more, challenge } = refusal;
        let stored = self.store.load(&self.server.url).await?;
        // Another login has happened meanwhile, perhaps in another process.
        let is_other =
            |login: &&StoredLogin| Some(&login.access_token) != used.as_ref() && !login.has_ended();
        if let Some(login) = stored.as_ref().filter(is_other) {
            self.set_known(login.clone());
            return Ok(true);
        }
        if turn.renewed.is_none_or(|renewed| renewed.elapsed() > IN_A_ROW) {
            turn.in_a_row = 0;
        }
        if turn.in_a_row >= MAX_RENEWALS {
            return Ok(false);
        }
        turn.in_a_row += 1;
        let renewed = match (more, stored) {
            (Some(more), Some(login)) => self.step_up(more, challenge.as_deref(), &login).await,
            (None, Some(_))
                if self.refresh(used.as_deref().unwrap_or_default(), challenge.as_deref()).await? =>
            {
                Ok(true)
            }
            (_, _) => self.log_in(challenge.as_deref(), WantedScopes::Initial).await.map(|()| true),
        };
        turn.renewed = Some(Instant::now());
        renewed
    }

    /// Asks for more scopes than before; returns whether there is a new token. A request for the same scopes again would change nothing.
    async fn step_up(
        &self,
        more: Vec<String>,
        challenge: Option<&str>,
        login: &StoredLogin,
    ) -> Result<bool, AuthorizationError> {
        if more.iter().all(|scope| login.requested.contains(scope)) {
            return Ok(false);
        }
        let all = login.requested.iter().chain(&login.granted).chain(&more).map(String::as_str);
        self.log_in(challenge, WantedScopes::More(union(all))).await?;
        Ok(true)
    }

    /// Gets a token for the refresh token; returns whether there is another one now.
    async fn refresh(&self, used: &str, challenge: Option<&str>) -> Result<bool, AuthorizationError> {
        let Some(_lock) = self.store.lock(&self.server.url).await? else { return Ok(false) };
        let Some(login) = self.store.load(&self.server.url).await? else { return Ok(false) };
        if login.access_token != used {
            self.set_known(login);
            return Ok(true);
        }
        if login.refresh_token.is_none() {
            return Ok(false);
        }
        let mut discovered = discover(&self.server, challenge).await?;
        if discovered.issuer != login.issuer {
            return Ok(false);
        }
        match discovered.refresh(&login).await? {
            Refreshed::Login(login) => {
                self.keep(*login).await?;
                Ok(true)
            }
            Refreshed::Rejected => {
                self.keep(StoredLogin { refresh_token: None, ..login }).await?;
                Ok(false)
            }
        }
    }

    /// Gets a token with a person. Asks nobody anything if no person is there.
    async fn log_in(&self, challenge: Option<&str>, scopes: WantedScopes) -> Result<(), AuthorizationError> {
        self.agent.redirect_uri()?;
        // A login that cannot be read is replaced.
        let before = self.store.load(&self.server.url).await.unwrap_or_default();
        let mut discovered = discover(&self.server, challenge).await?;
        let login = discovered.log_in(&*self.agent, scopes, before.as_ref()).await?;
        self.keep(login).await
    }

    /// Returns the challenge that the server gives to a request without a token; `None` if it gives none.
    async fn challenge(&self) -> Result<Option<String>, AuthorizationError> {
        let requests = Requests::new(self.server.limits, PlainHttp::of(&self.server.url))?;
        // The request asks for nothing and begins nothing, in case the server answers requests without a token.
        let request = requests
            .client()
            .request(Method::POST, self.server.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream")
            .body(r#"{"jsonrpc":"2.0","id":0,"method":"ping"}"#)
            .build()
            .map_err(|error| AuthorizationError::System {
                what: "the request cannot be sent to the server",
                why: error.without_url().to_string(),
            })?;
        let answer = requests.send(request).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return Ok(None);
        }
        // There may be several challenges, on lines of their own or on one.
        let challenges =
            answer.headers().get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        let challenges: Vec<&str> = challenges.collect();
        Ok(Some(challenges.join(", ")).filter(|all| !all.is_empty()))
    }

    async fn keep(&self, login: StoredLogin) -> Result<(), AuthorizationError> {
        // A login that the disk does not take is good for as long as this process lives.
        self.set_known(login.clone());
        self.store.save(&self.server.url, &login).await
    }

    /// Returns the login that is known, here or on the disk.
    async fn login(&self) -> Result<Option<StoredLogin>, AuthorizationError> {
        if let Some(login) = self.known() {
            return Ok(Some(login));
        }
        if self.lock_absent().is_some_and(|seen| seen.elapsed() < ABSENT_KEPT) {
            return Ok(None);
        }
        let login = self.store.load(&self.server.url).await?;
        match &login {
            Some(login) => self.set_known(login.clone()),
            None => *self.lock_absent() = Some(Instant::now()),
        }
        Ok(login)
    }

    fn lock_absent(&self) -> MutexGuard<'_, Option<Instant>> {
        self.absent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> Option<StoredLogin> {
        self.lock_known().clone()
    }

    fn set_known(&self, login: StoredLogin) {
        *self.lock_known() = Some(login);
    }

    fn lock_known(&self) -> MutexGuard<'_, Option<StoredLogin>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tokio::time::sleep;

    use super::*;
    use crate::oauth::{NoAgent, store::tests::login};

    #[tokio::test]
    async fn where_there_was_no_login_the_disk_is_asked_once_a_second() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = TokenStore::new(folder.path().to_owned());
        let url = "http://127.0.0.1:1/mcp";
        let path = store.path(&Url::parse(url).expect("a URL"));
        let authorization = Authorization::new(AuthorizationSpec {
            name: "srv".to_owned(),
            url: url.to_owned(),
            store,
            settings: ClientSettings::default(),
            limits: RequestLimits { answer: Duration::from_secs(1), body: 1 },
            agent: Arc::new(NoAgent { server: "srv".to_owned() }),
        });
        let authorization = authorization.expect("a server");
        let begun = Instant::now();
        assert_eq!(authorization.token().await, Ok(None));
        fs::write(path, "no login").expect("a file");
        let again = authorization.token().await;
        // Unless this machine stood still meanwhile.
        assert!(again == Ok(None) || begun.elapsed() >= ABSENT_KEPT, "it was looked for just now");
        // How long it is believed is what is tested; nobody else is waited for.
        sleep(ABSENT_KEPT).await;
        assert!(authorization.token().await.is_err(), "it is found, and is of no use");
    }

    #[tokio::test]
    async fn f_35_a_logout_waits_for_a_renewal_and_is_not_undone_by_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = TokenStore::new(folder.path().to_owned());
        let url = Url::parse("http://127.0.0.1:1/mcp").expect("a URL");
        store.save(&url, &login(&url)).await.expect("saved");
        let authorization = Authorization::new(AuthorizationSpec {
            name: "srv".to_owned(),
            url: url.to_string(),
            store: store.clone(),
            settings: ClientSettings::default(),
            limits: RequestLimits { answer: Duration::from_secs(1), body: 1 },
            agent: Arc::new(NoAgent { server: "srv".to_owned() }),
        });
        let authorization = authorization.expect("a server");
        // As another process does while it renews the token.
        let lock = store.lock(&url).await.expect("free").expect("there");
        let mut out = std::pin::pin!(authorization.log_out());
        let waited = tokio::time::timeout(Duration::from_millis(300), out.as_mut()).await;
        assert!(waited.is_err(), "it waits");
        store.save(&url, &login(&url)).await.expect("renewed");
        drop(lock);
        let out = out.await;
        assert_eq!(out, Ok(LoggedOut::Here { revoked: Ok(false) }));
        assert!(store.load(&url).await.expect("read").is_none(), "it is gone for good");
        assert_eq!(authorization.token().await, Ok(None));
    }
}
