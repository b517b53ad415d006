//! The front over HTTP: both forms of Streamable HTTP on one path, the HTTP+SSE before it where that is wanted, and what tells operators
//! whether all is well.
//!
//! ```text
//! connection (net::serve) ─── service ─ handler ─── asked() ─┬ begins ──► a new session ─┐
//!                                                          ├ belongs ─► its session ───┼─ SessionCommand ─► actor ─ front::Machine
//!                                                          └ alone ───► one of its own ┘
//! connection ◄─ a status, an answer, or a stream of events ◄─ Reply ◄──────────────────┘
//! ```
//!
//! Invariants
//!
//! - Whoever is refused is told why, in JSON-RPC where they speak it, and the log says who it was.
//! - What an outsider can make grow has a limit: connections, sessions, bodies, what waits for whoever does not read.
//! - Sessions know nothing of one another: what is asked in one is answered there alone, and to whoever began it alone.

mod access;
mod admission;
mod asked;
mod body;
mod handlers;
mod hosts;
mod message_budget;
mod metrics;
mod old;
mod operators;
mod service;
mod session;
mod stateless_clients;
mod stream;

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    net::UnixListener,
    sync::{mpsc, watch},
    task::JoinHandle,
    time::Instant,
};
pub use unhang_net::serve::HttpListener;
use unhang_net::serve::{self, Claim, ConnectionLimits, PeerAddress};
pub use unhang_net::tls::{Acceptor, CertificateError};
use unhang_proc::{deadline::Deadline, descriptors};
use unhang_switches::stands;

pub use self::{
    access::{Access, Token, is_of_its_owner_alone},
    hosts::{AllowedHosts, host_of, name_of, origin_of},
};
use self::{
    access::{Shares, TokenOwner},
    message_budget::Budget,
    operators::JobGauge,
    service::HttpService,
    session::{HttpSession, ReplyMode, SessionCommand, SessionHandle, mailbox},
    stateless_clients::{StatelessClient, StatelessClients, StatelessRequest},
};
use super::{
    SessionEndHook,
    parked_calls::{secret_in, secret_of},
    session_context::SessionContext,
    session_runtime::{OfWindow, SessionRuntime, random_name},
};
use unhang_background::CallsEnd;
use unhang_core::{
    config::{
        CONNECTIONS_OF_ONE, CONNECTIONS_OF_ONE_AT_HOME, DEAF_PATIENCE, DESCRIPTORS_KEPT, DISPOSE_LIMIT,
        EXIT_LIMIT, FLUSH_LIMIT, HEAD_PATIENCE, MAX_CONNECTIONS, MAX_SESSIONS, REQUESTS_OF_ONE,
        SESSIONS_OF_ONE,
    },
    exit,
    limits::Limits,
    shell::Stop,
    telemetry::Telemetry,
};
use unhang_gateway::{FairnessKey, MayRead, Servers, SessionKey};
use unhang_tools::{Toolbox, service::JobService, toolbox::NoTools};

/// How long what is in flight may take at the end: what stands behind it needs some of the time after that.
pub const DRAIN: Duration = EXIT_LIMIT.saturating_sub(DISPOSE_LIMIT).saturating_sub(FLUSH_LIMIT);

/// What connections are limited by, where there may be so many descriptors. Of one address there are at most three quarters, or one
/// where other machines come too.
fn bounds(descriptors: usize, is_at_home: bool) -> ConnectionLimits {
    let kept = DESCRIPTORS_KEPT.min(descriptors / 2);
    let connections = MAX_CONNECTIONS.min(descriptors - kept).max(1);
    let (part, of) = CONNECTIONS_OF_ONE_AT_HOME;
    let of_one = if is_at_home { connections * part / of } else { connections / CONNECTIONS_OF_ONE };
    ConnectionLimits { connections, of_one: of_one.max(1), head: HEAD_PATIENCE, deaf: DEAF_PATIENCE }
}

/// What a front over HTTP needs.
pub struct HttpSpec {
    /// The limits of each session.
    pub limits: Limits,
    /// What it offers.
    pub toolbox: Arc<dyn Toolbox>,
    /// Servers behind it, where there are any.
    pub servers: Option<Servers>,
    /// Who runs jobs, where there are any: for those who look after it.
    pub jobs: Option<super::SessionJobs>,
    /// What clients are told about the whole, to give to their models.
    pub instructions: Option<String>,
    /// Where its requests are told, where somebody wants to see them.
    pub telemetry: Option<Telemetry>,
    /// What else has to end with it.
    pub at_end: Option<SessionEndHook>,
    /// Told when the end begins.
    pub ending: watch::Sender<bool>,
    /// Where clients come.
    pub listeners: Vec<HttpListener>,
    /// What is spoken over the network: TLS, or nothing but HTTP. Whoever comes later is spoken to as it says then.
    pub tls: watch::Receiver<Option<Acceptor>>,
    /// Whether clients of 2024-11-05 are served too, by the HTTP+SSE of that revision at `/sse` and `/messages`.
    pub offers_sse: bool,
    /// Bytes that the bodies of requests and whole replies may have together; by default as [`MESSAGE_MEMORY`](unhang_core::config::MESSAGE_MEMORY) says.
    pub message_memory: Option<usize>,
    /// Who may come; what is there of those who may not any more is ended.
    pub access_policy: watch::Receiver<Arc<AccessPolicy>>,
}

/// Who may come. By default it is whoever knows us by a name of this machine for itself.
#[derive(Clone, Debug, Default)]
pub struct AccessPolicy {
    /// The names under which we may be asked.
    pub hosts: AllowedHosts,
    /// Who may ask. It is up to whoever listens where other machines come that nobody is let in unasked.
    pub access: Access,
}

/// Serves whoever comes until a [`Stop`]. Returns the exit code (design 4). A second `Stop` ends it at once (X-05).
pub async fn run(spec: HttpSpec, mut stops: mpsc::Receiver<Stop>) -> u8 {
    let HttpSpec {
        limits,
        toolbox,
        servers,
        jobs,
        instructions,
        telemetry,
        at_end,
        ending: end,
        listeners,
        tls,
        offers_sse,
        message_memory,
        access_policy,
    } = spec;
    let ending = end.subscribe();
    // Where this machine alone comes, all that come have one address.
    let is_at_home = listeners.iter().all(|listener| match listener {
        HttpListener::Network(listener) => {
            listener.local_addr().is_ok_and(|address| address.ip().is_loopback())
        }
        HttpListener::Local(..) => true,
    });
    let bounds = bounds(descriptors::most(), is_at_home);
    tracing::debug!("at most {} connections, {} of one address", bounds.connections, bounds.of_one);
    let counted = JobGauge::of(jobs.as_ref().map(|jobs| Arc::clone(&jobs.service) as Arc<dyn JobService>));
    let context =
        SessionContext::new(toolbox, servers, instructions).with_jobs(jobs).traced_by(telemetry, "tcp");
    let budget = Budget::new(message_memory, limits.max_message);
    let http_state = HttpState::new(limits, budget, context, counted, access_policy, ending.clone());
    let _watching = TaskGuard(tokio::spawn(Arc::clone(&http_state).watch_door()));
    let service = HttpService::new(Arc::clone(&http_state), offers_sse);
    let mut serving = tokio::spawn(serve::serve(listeners, service, bounds, tls, ending));
    let code = tokio::select! {
        stop = stops.recv() => stop.unwrap_or(Stop::Terminate).exit_code(),
        // It ends when it is told to; before that it can only panic, which was told.
        _panicked = &mut serving => exit::BUG,
    };
    let sessions = http_state.sessions().len();
    tracing::info!(sessions, "ending: what is in flight gets {DRAIN:?}");
    end.send_replace(true);
    let all = async {
        let deadline = Deadline::after(DRAIN + FLUSH_LIMIT);
        if !serving.is_finished() && deadline.timeout(&mut serving).await.is_err() {
            tracing::warn!("some clients had not taken their answers in time");
        }
        if let Some(at_end) = at_end {
            at_end(CallsEnd::UnhangEnds).await;
        }
    };
    tokio::select! {
        () = all => {}
        // Nobody wants to wait for the last answers any more; the outcome stays.
        Some(_) = stops.recv() => {}
    }
    code
}

/// Serves the windows that share these servers until `ending` says that it is over; then `claim` is dropped. They have tools of their
/// own.
pub async fn serve_windows(
    limits: Limits,
    servers: Servers,
    (listener, claim): (UnixListener, Claim),
    ending: watch::Receiver<bool>,
) {
    let context = SessionContext::new(Arc::new(NoTools), Some(servers), None).of_windows();
    // Whoever can open the socket is who has started us.
    let access_policy = watch::channel(Arc::default()).1;
    let budget = Budget::new(None, limits.max_message);
    let http_state =
        HttpState::new(limits, budget, context, JobGauge::of(None), access_policy, ending.clone());
    let tls = watch::channel(None).1;
    let listeners = vec![HttpListener::Local(listener, Some(claim))];
    let bounds = bounds(descriptors::most(), true);
    serve::serve(listeners, HttpService::new(http_state, false), bounds, tls, ending).await;
}

/// Ends a task with its owner.
struct TaskGuard(JoinHandle<()>);

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What all connections share.
struct HttpState {
    limits: Limits,
    /// What bodies and whole replies take.
    budget: Budget,
    context: SessionContext,
    jobs: JobGauge,
    access_policy: watch::Receiver<Arc<AccessPolicy>>,
    /// What each client has of requests in flight.
    requests: Shares,
    /// Those that there are, by their names.
    sessions: Mutex<HashMap<String, OwnedSession>>,
    session_shares: Shares,
    /// Requests that stand alone, by the secrets under which their calls are parked.
    alone: Mutex<HashMap<String, OwnedSession>>,
    alone_shares: Shares,
    /// Whose they are, as far as servers keep anything for one of them.
    stateless_clients: StatelessClients,
    /// How many there may be of each.
    room: usize,
    ending: watch::Receiver<bool>,
    since: Instant,
    /// What tells this process from others to which the same clients may come, where they are windows.
    realm: Option<String>,
}

/// A session or a request, and whose it is.
struct OwnedSession {
    owner: TokenOwner,
    mailbox: SessionHandle,
    way: HttpRoute,
}

/// By which way a session is reached. By the other it is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HttpRoute {
    /// Streamable HTTP.
    Streamable,
    /// The HTTP+SSE of 2024-11-05.
    Old,
}

impl OwnedSession {
    /// To anybody else it is not there.
    fn for_caller(&self, caller: &TokenOwner) -> Option<SessionHandle> {
        (self.owner == *caller || !stands("sessions-are-their-callers")).then(|| self.mailbox.clone())
    }
}

/// Why nothing begins.
#[derive(Clone, Copy)]
enum Full {
    /// There are too many.
    All,
    /// The caller has as many as one may have.
    OfOne,
    /// Nothing new is taken any more.
    Ending,
}

impl HttpState {
    fn new(
        mut limits: Limits,
        budget: Budget,
        context: SessionContext,
        jobs: JobGauge,
        access_policy: watch::Receiver<Arc<AccessPolicy>>,
        ending: watch::Receiver<bool>,
    ) -> Arc<HttpState> {
        limits.eof_grace = limits.eof_grace.min(DRAIN);
        let behind_windows = context.are_windows();
        Arc::new(HttpState {
            limits,
            budget,
            context,
            jobs,
            access_policy,
            requests: Shares::new(REQUESTS_OF_ONE),
            sessions: Mutex::default(),
            session_shares: Shares::new(SESSIONS_OF_ONE),
            alone: Mutex::default(),
            alone_shares: Shares::new(SESSIONS_OF_ONE),
            stateless_clients: StatelessClients::new(MAX_SESSIONS),
            room: MAX_SESSIONS,
            realm: behind_windows.then(random_name).flatten(),
            ending,
            since: Instant::now(),
        })
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<String, OwnedSession>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who may come now.
    fn access_policy(&self) -> Arc<AccessPolicy> {
        Arc::clone(&self.access_policy.borrow())
    }

    /// Ends what belongs to those who may not come any more, whenever that changes.
    async fn watch_door(self: Arc<Self>) {
        let mut access_policy = self.access_policy.clone();
        let mut before = self.access_policy();
        while access_policy.changed().await.is_ok() {
            let now = Arc::clone(&access_policy.borrow_and_update());
            let is_strange = |owned: &OwnedSession| {
                !now.access.still_knows(&owned.owner, &before.access) && stands("revoked-sessions-end")
            };
            let mut strange: Vec<SessionHandle> = Vec::new();
            for all in [&self.sessions, &self.alone] {
                let all = all.lock().unwrap_or_else(PoisonError::into_inner);
                strange.extend(
                    all.values().filter(|owned| is_strange(owned)).map(|owned| owned.mailbox.clone()),
                );
            }
            if !strange.is_empty() {
                tracing::info!(sessions = strange.len(), "ended: whose they are may not come any more");
            }
            for mailbox in strange {
                // One that has as much to read as it may have ends when it has read that.
                tokio::spawn(async move { mailbox.send(SessionCommand::Revoke).await });
            }
            if stands("revoked-sessions-end") {
                self.stateless_clients.part_with(|caller| !now.access.still_knows(caller, &before.access));
            }
            before = now;
        }
    }

    /// What is behind a request of the caller's that stands alone.
    fn behind_one(
        &self,
        caller: &TokenOwner,
        peer: PeerAddress,
    ) -> Result<(SessionContext, Option<StatelessRequest>), Full> {
        let Some(servers) = &self.context.servers else { return Ok((self.context.clone(), None)) };
        let new = || servers.for_session_of(self.owner(caller), self.may_read(caller));
        let (servers, stay) =
            self.stateless_clients.come(StatelessClient::new(caller, peer), new).ok_or(Full::All)?;
        Ok((self.context.with(Some(servers)), Some(stay)))
    }

    /// Who has what begins now, where they are told from others by more than that.
    fn owner(&self, caller: &TokenOwner) -> Option<FairnessKey> {
        let is_known = *caller != TokenOwner::Anybody;
        is_known.then(|| self.access_policy().access.fairness_key(caller, || FairnessKey::new("anybody")))
    }

    /// Whether this caller may read what servers have written that are shared with others: who looks after them may, as at `/status`.
    fn may_read(&self, caller: &TokenOwner) -> MayRead {
        let (access_policy, caller) = (self.access_policy.clone(), caller.clone());
        MayRead::where_it_is_so(move || access_policy.borrow().access.is_operator(&caller))
    }

    /// Nothing new is taken any more.
    fn is_ending(&self) -> bool {
        *self.ending.borrow()
    }

    /// The caller's session of this name.
    fn session(&self, name: &str, caller: &TokenOwner, way: HttpRoute) -> Option<SessionHandle> {
        self.sessions().get(name).filter(|session| session.way == way)?.for_caller(caller)
    }

    /// A new session of the caller's, and its name.
    fn begin(self: &Arc<Self>, caller: &TokenOwner, way: HttpRoute) -> Result<(String, SessionHandle), Full> {
        if self.is_ending() {
            return Err(Full::Ending);
        }
        let share = self.session_shares.take(caller).ok_or(Full::OfOne)?;
        let name = random_name().ok_or(Full::All)?;
        let (mailbox, commands) = mailbox();
        {
            let mut sessions = self.sessions();
            if sessions.len() >= self.room && stands("sessions-bounded") {
                return Err(Full::All);
            }
            let owned = OwnedSession { owner: caller.clone(), mailbox: mailbox.clone(), way };
            sessions.insert(name.clone(), owned);
        }
        let fairness_key =
            self.access_policy().access.fairness_key(caller, || FairnessKey::new(&format!("session {name}")));
        let context = self.context.for_session(self.owner(caller), self.may_read(caller));
        let context = context.called_by(self.access_policy().access.owner_of(caller));
        let work = SessionRuntime::new(self.limits.clone(), &context, fairness_key, None);
        drop(context);
        let manner = match way {
            HttpRoute::Streamable => ReplyMode::Streams,
            HttpRoute::Old => ReplyMode::OneStream(old::endpoint_of(&name)),
        };
        let session = HttpSession::new(shown(&name).to_owned(), work, &self.limits, commands, manner);
        let (http_state, own) = (Arc::clone(self), name.clone());
        tokio::spawn(async move {
            session.run(http_state.ending.clone()).await;
            http_state.sessions().remove(&own);
            drop(share);
        });
        Ok((name, mailbox))
    }

    /// A session that nobody has heard of is over before it began.
    fn forget(&self, name: &str) {
        self.sessions().remove(name);
    }

    /// Somebody who takes one request of the caller's that stands alone.
    fn alone(
        self: &Arc<Self>,
        caller: &TokenOwner,
        peer: PeerAddress,
        window: Option<OfWindow>,
    ) -> Result<SessionHandle, Full> {
        if self.is_ending() {
            return Err(Full::Ending);
        }
        let share = self.alone_shares.take(caller).ok_or(Full::OfOne)?;
        let (context, stay) = self.behind_one(caller, peer)?;
        let context = context.called_by(self.access_policy().access.owner_of(caller));
        let secret = random_name().ok_or(Full::All)?;
        let secret = self.realm.as_deref().map_or_else(|| secret.clone(), |realm| secret_in(realm, &secret));
        let (mailbox, commands) = mailbox();
        {
            let mut alone = self.alone.lock().unwrap_or_else(PoisonError::into_inner);
            if alone.len() >= self.room && stands("requests-alone-bounded") {
                return Err(Full::All);
            }
            let owned =
                OwnedSession { owner: caller.clone(), mailbox: mailbox.clone(), way: HttpRoute::Streamable };
            alone.insert(secret.clone(), owned);
        }
        let fairness_key = self.access_policy().access.fairness_key(caller, || peer_key(peer));
        let work = SessionRuntime::new(self.limits.clone(), &context, fairness_key, Some(secret.clone()));
        let work =
            work.alone().asks_as(SessionKey::of(&StatelessClient::new(caller, peer))).of_window(window);
        drop(context);
        let session = HttpSession::new(String::new(), work, &self.limits, commands, ReplyMode::Alone);
        let http_state = Arc::clone(self);
        tokio::spawn(async move {
            session.run(http_state.ending.clone()).await;
            http_state.alone.lock().unwrap_or_else(PoisonError::into_inner).remove(&secret);
            drop((share, stay));
        });
        Ok(mailbox)
    }

    /// How many requests that stand alone have not ended.
    fn waiting_alone(&self) -> usize {
        self.alone.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whoever holds the caller's call to which a request with this state comes back.
    fn holder(&self, state: &str, caller: &TokenOwner) -> Option<SessionHandle> {
        let secret = secret_of(state)?;
        self.alone.lock().unwrap_or_else(PoisonError::into_inner).get(secret)?.for_caller(caller)
    }
}

/// What tells those who stand alone from others as far as anything does: the process, or the machine.
fn peer_key(peer: PeerAddress) -> FairnessKey {
    match peer {
        PeerAddress::Local { process: Some(process), .. } => FairnessKey::new(&format!("process {process}")),
        PeerAddress::Local { process: None, .. } => FairnessKey::one_of("local"),
        PeerAddress::Network(address) => FairnessKey::one_of(&address.ip().to_canonical().to_string()),
    }
}

/// As much of a session's name as tells it from others, and does not let anybody in.
fn shown(name: &str) -> &str {
    name.get(..6).unwrap_or(name)
}
