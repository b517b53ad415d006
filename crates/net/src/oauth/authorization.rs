//! The tokens of one server: which one is good, and what is done where none is.
//!
//! Invariants
//!
//! - One flow at a time, which runs to its end whoever waits for it; who waited for his turn takes what came of the one before.
//! - What the disk says counts more than what is remembered, before anything is asked of anybody: another process may have renewed it.
//! - Without an agent who has a person, nobody is asked for anything but what a refresh token brings.

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
use unhang_switches::stands;

use super::{
    ClientSettings,
    agent::Agent,
    error::{AuthorizationError, told, told_as_url},
    flow::{AuthorizedServer, Refreshed, WantedScopes, discover, revoke, union},
    requests::{PlainHttp, RequestLimits, Requests, require_secure},
    store::{StoredLogin, TokenStore},
};

/// Tokens in a row that a server may refuse before nothing better is sought.
const MAX_RENEWALS: u32 = 3;
/// A token that was good for so long was not refused from the start.
const IN_A_ROW: Duration = Duration::from_secs(60);

/// What is needed for tokens of one server.
pub struct AuthorizationSpec {
    /// What people call it.
    pub name: String,
    /// Its URL.
    pub url: String,
    /// Where tokens are kept.
    pub store: TokenStore,
    /// What is known of us.
    pub settings: ClientSettings,
    /// How long others may take to answer.
    pub limits: RequestLimits,
    /// Who takes a person through a login.
    pub agent: Arc<dyn Agent>,
}

/// For how long it is believed that there is no file of a login: most servers want none, and a look at the disk before each request costs
/// more than the request. A server that refuses one has the file looked for at once.
const ABSENT_KEPT: Duration = Duration::from_secs(1);

/// The tokens of one server.
#[derive(Clone)]
pub struct Authorization(Arc<AuthorizationState>);

struct AuthorizationState {
    server: AuthorizedServer,
    store: TokenStore,
    agent: Arc<dyn Agent>,
    known: Mutex<Option<StoredLogin>>,
    /// When there was no file of a login.
    absent: Mutex<Option<Instant>>,
    turn: Arc<AsyncMutex<FlowLock>>,
    /// Flows that have ended.
    ended: AtomicU64,
}

/// What is held by whoever runs a flow.
#[derive(Default)]
struct FlowLock {
    /// What came of the last one.
    outcome: Option<Result<bool, AuthorizationError>>,
    /// Renewals since a token was good for a while.
    in_a_row: u32,
    renewed: Option<Instant>,
}

/// A login, as it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedIn {
    /// Who gave the token.
    pub issuer: String,
    /// What it is good for, where that was said.
    pub scopes: Vec<String>,
    /// When the token ends, where that was said.
    pub expires: Option<SystemTime>,
    /// It is renewed without a person.
    pub is_renewed: bool,
}

/// What became of a login that was to be forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoggedOut {
    /// There was none.
    WasNot,
    /// It is forgotten here.
    Here {
        /// What the authorization server said: it was told, has no place for that, or could not be told.
        revoked: Result<bool, AuthorizationError>,
    },
}

/// What is to be done in a turn.
enum Flow {
    /// This token is about to end.
    Refresh { used: String },
    /// The server refused one.
    Renew(OAuthRefusal),
    /// A person wants to log in.
    LogIn,
}

/// What was refused.
struct OAuthRefusal {
    used: Option<String>,
    /// The scopes that it lacks, where that is why.
    more: Option<Vec<String>>,
    challenge: Option<String>,
}

impl Flow {
    /// The token that is no good.
    fn used(&self) -> Option<&str> {
        match self {
            Flow::Refresh { used } => Some(used),
            Flow::Renew(refusal) => refusal.used.as_deref(),
            Flow::LogIn => None,
        }
    }
}

/// Nothing but whose tokens they are.
impl fmt::Debug for Authorization {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Authorization").field("server", &self.0.server.name).finish_non_exhaustive()
    }
}

impl Authorization {
    /// The tokens of one server. Nothing is read or asked yet.
    ///
    /// # Errors
    /// Where the URL is none.
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

    /// Whether a token may go to this URL: it is on the server that the token is for.
    #[must_use]
    pub fn covers(&self, url: &str) -> bool {
        Url::parse(url).is_ok_and(|url| {
            url.origin() == self.0.server.url.origin()
                && url.origin().is_tuple()
                && require_secure(&url, PlainHttp::Here).is_ok()
        })
    }

    /// The bearer token to send with the next request, refreshed where it is about to end; none where none is known.
    ///
    /// # Errors
    /// Where the token has ended and another one could not be asked for, or the disk does not answer.
    pub async fn token(&self) -> Result<Option<String>, AuthorizationError> {
        let ended = self.0.ended.load(Ordering::Acquire);
        let Some(login) = self.0.login().await? else { return Ok(None) };
        if !login.is_ending() {
            return Ok(Some(login.access_token));
        }
        if login.refresh_token.is_some() {
            let flow = Flow::Refresh { used: login.access_token.clone() };
            // One that has not ended yet is better than none.
            match self.in_turn(ended, flow).await {
                Ok(true) => return Ok(self.0.known().map(|login| login.access_token)),
                Err(error) if login.has_ended() => return Err(error),
                Ok(false) | Err(_) => {}
            }
        }
        Ok(Some(login).filter(|login| !login.has_ended()).map(|login| login.access_token))
    }

    /// The server refused a request (401, or 403 with `insufficient_scope`) that was sent with this token, and said this in
    /// `WWW-Authenticate`. `Ok(true)`: another token is there now, ask again. `Ok(false)`: there is nothing better to be had.
    /// Callers at the same time with the same stale token lead to one flow, not many.
    ///
    /// # Errors
    /// Where there may be a better token, and it could not be had.
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
    /// Where there is no way to log in, or it went wrong.
    pub async fn log_in(&self) -> Result<LoggedIn, AuthorizationError> {
        let ended = self.0.ended.load(Ordering::Acquire);
        self.in_turn(ended, Flow::LogIn).await?;
        self.logged_in()
            .await?
            .ok_or_else(|| AuthorizationError::LoginNeeded { server: self.0.server.name.clone() })
    }

    /// What is known of a login.
    ///
    /// # Errors
    /// Where the disk does not answer.
    pub async fn logged_in(&self) -> Result<Option<LoggedIn>, AuthorizationError> {
        Ok(self.0.login().await?.map(|login| LoggedIn {
            issuer: told(&login.issuer),
            scopes: login.granted,
            expires: login.expires_at.and_then(|end| UNIX_EPOCH.checked_add(Duration::from_secs(end))),
            is_renewed: login.refresh_token.is_some(),
        }))
    }

    /// Forgets the login, and has the authorization server forget it. A renewal that is under way, here or in another process, is waited
    /// for: it would put the login back.
    ///
    /// # Errors
    /// Where the file cannot be removed, or another process does not come to the end of its renewal.
    pub async fn log_out(&self) -> Result<LoggedOut, AuthorizationError> {
        let inner = &self.0;
        let _turn = inner.turn.lock().await;
        let _lock = match inner.store.load(&inner.server.url).await {
            Ok(_) => inner.store.lock(&inner.server.url).await?,
            // Nobody renews what cannot be read.
            Err(_) => None,
        };
        let login = inner.store.load(&inner.server.url).await;
        // One that cannot be read is removed all the same.
        let revoked = match &login {
            Ok(Some(login)) => revoke(&inner.server.url, login, inner.server.limits).await,
            Ok(None) => Ok(false),
            Err(error) => Err(error.clone()),
        };
        *inner.lock_known() = None;
        let was_there = inner.store.remove(&inner.server.url).await?;
        Ok(if was_there { LoggedOut::Here { revoked } } else { LoggedOut::WasNot })
    }

    /// Lets one flow at a time run to its end, whoever waits for it. Whoever waited while another one ended takes what came of that,
    /// unless it is the very token that he had.
    async fn in_turn(&self, ended: u64, flow: Flow) -> Result<bool, AuthorizationError> {
        // Whoever holds it has limits of its own for each step.
        let mut turn: OwnedMutexGuard<FlowLock> = Arc::clone(&self.0.turn).lock_owned().await;
        if stands("one-login-for-all") && self.0.ended.load(Ordering::Acquire) != ended {
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

    /// Finds a token in the place of one that the server refused.
    async fn renew(&self, refusal: OAuthRefusal, turn: &mut FlowLock) -> Result<bool, AuthorizationError> {
        let OAuthRefusal { used, more, challenge } = refusal;
        let stored = self.store.load(&self.server.url).await?;
        // Somebody logged in meanwhile, perhaps another process.
        let is_other =
            |login: &&StoredLogin| Some(&login.access_token) != used.as_ref() && !login.has_ended();
        if let Some(login) = stored.as_ref().filter(is_other) {
            self.set_known(login.clone());
            return Ok(true);
        }
        if turn.renewed.is_none_or(|renewed| renewed.elapsed() > IN_A_ROW) {
            turn.in_a_row = 0;
        }
        if stands("renewals-end") && turn.in_a_row >= MAX_RENEWALS {
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

    /// Asks for more than there was. To ask for what was asked for already would change nothing.
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

    /// Gets a token for the refresh token. Whether there is another one now.
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

    /// Gets a token with a person. Nobody is asked anything where no person is there.
    async fn log_in(&self, challenge: Option<&str>, scopes: WantedScopes) -> Result<(), AuthorizationError> {
        self.agent.redirect_uri()?;
        // One that cannot be read is replaced.
        let before = self.store.load(&self.server.url).await.unwrap_or_default();
        let mut discovered = discover(&self.server, challenge).await?;
        let login = discovered.log_in(&*self.agent, scopes, before.as_ref()).await?;
        self.keep(login).await
    }

    /// What the server says to whoever comes without a token.
    async fn challenge(&self) -> Result<Option<String>, AuthorizationError> {
        let requests = Requests::new(self.server.limits, PlainHttp::of(&self.server.url))?;
        // It asks for nothing and begins nothing, should the server answer whoever comes.
        let request = requests
            .client()
            .request(Method::POST, self.server.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream")
            .body(r#"{"jsonrpc":"2.0","id":0,"method":"ping"}"#)
            .build()
            .map_err(|error| AuthorizationError::System {
                what: "the server cannot be asked",
                why: error.without_url().to_string(),
            })?;
        let answer = requests.send(request).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return Ok(None);
        }
        // There may be several, on lines of their own or on one.
        let challenges =
            answer.headers().get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        let challenges: Vec<&str> = challenges.collect();
        Ok(Some(challenges.join(", ")).filter(|all| !all.is_empty()))
    }

    async fn keep(&self, login: StoredLogin) -> Result<(), AuthorizationError> {
        // What the disk does not take is good for as long as we live.
        self.set_known(login.clone());
        self.store.save(&self.server.url, &login).await
    }

    /// What is known of the login, here or on the disk.
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
