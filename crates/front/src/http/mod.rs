//! The front over HTTP: both forms of Streamable HTTP on one path, the older HTTP+SSE if it is enabled, and the endpoints for operators.
//!
//! ```text
//! connection (net::serve) ─── service ─ handler ─── asked() ─┬ begins ──► a new session ─┐
//!                                                          ├ belongs ─► its session ───┼─ SessionCommand ─► actor ─ front::McpSession
//!                                                          └ alone ───► one of its own ┘
//! connection ◄─ a status, an answer, or a stream of events ◄─ Reply ◄──────────────────┘
//! ```
//!
//! Invariants
//!
//! - Every refused client is told why, in JSON-RPC if it speaks that, and the log says who it was.
//! - Everything that an outsider can make grow has a limit: connections, sessions, bodies, and the queues for clients that do not read.
//! - Sessions know nothing of one another. A request of one session is answered there alone, and only to the caller that began it.

mod accept;
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
mod reply_streams;
mod service;
mod session;
mod stateless_clients;
mod stream;
mod window_orders;

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    net::UnixListener,
    sync::{Notify, mpsc, watch},
    task::JoinHandle,
    time::Instant,
};
pub use unhang_net::serve::HttpListener;
use unhang_net::serve::{self, Claim, ConnectionLimits, PeerAddress};
pub use unhang_net::tls::{Acceptor, CertificateError};
use unhang_proc::{deadline::Deadline, descriptors, identity::Identity};

pub use self::{
    access::{Access, Token, is_of_its_owner_alone},
    hosts::{AllowedHosts, host_of, name_of, origin_of},
};
use self::{
    access::{Shares, TokenOwner},
    message_budget::Budget,
    operators::JobGauge,
    reply_streams::ReplyMode,
    service::HttpService,
    session::{HttpSession, SessionCommand, SessionHandle, mailbox},
    stateless_clients::{StatelessClient, StatelessClients, StatelessRequest},
};
use super::{
    SessionEndHook, SessionJobs,
    parked_calls::{secret_in, secret_of},
    session_context::SessionContext,
    session_runtime::{OfWindow, SessionRuntime, StatelessCaller, random_name},
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
use unhang_upstream::window_job::WindowCallName;

/// How long requests in flight may take at the end. The parts behind the front need some time after that.
pub const DRAIN: Duration = EXIT_LIMIT.saturating_sub(DISPOSE_LIMIT).saturating_sub(FLUSH_LIMIT);

/// Returns the limits of connections for this many descriptors. One address gets at most three quarters of them, or one quarter if other
/// machines may connect.
fn bounds(descriptors: usize, is_at_home: bool) -> ConnectionLimits {
    let kept = DESCRIPTORS_KEPT.min(descriptors / 2);
    let connections = MAX_CONNECTIONS.min(descriptors - kept).max(1);
    let (part, of) = CONNECTIONS_OF_ONE_AT_HOME;
    let of_one = if is_at_home { connections * part / of } else { connections / CONNECTIONS_OF_ONE };
    ConnectionLimits { connections, of_one: of_one.max(1), head: HEAD_PATIENCE, deaf: DEAF_PATIENCE }
}

/// Everything that a front over HTTP needs.
pub struct HttpSpec {
    /// The limits of each session.
    pub limits: Limits,
    /// The tools of unhang itself.
    pub toolbox: Arc<dyn Toolbox>,
    /// The servers behind it, if there are any.
    pub servers: Option<Servers>,
    /// The jobs of the sessions, if there are any: operators see their counts.
    pub jobs: Option<SessionJobs>,
    /// The instructions to clients about the whole, for their models.
    pub instructions: Option<String>,
    /// The exporter of traces, if there is one.
    pub telemetry: Option<Telemetry>,
    /// More work that has to be done at the end.
    pub at_end: Option<SessionEndHook>,
    /// Set when the end begins.
    pub ending: watch::Sender<bool>,
    /// The listeners for clients.
    pub listeners: Vec<HttpListener>,
    /// The TLS acceptor for the network, or none for plain HTTP. A change affects later connections.
    pub tls: watch::Receiver<Option<Acceptor>>,
    /// Whether clients of 2024-11-05 are served too, by the HTTP+SSE of that revision at `/sse` and `/messages`.
    pub offers_sse: bool,
    /// The most bytes of request bodies and whole replies together; the default is described at
    /// [`MESSAGE_MEMORY`](unhang_core::config::MESSAGE_MEMORY).
    pub message_memory: Option<usize>,
    /// The rules of who may connect. Sessions and requests of callers who lose access end.
    pub access_policy: watch::Receiver<Arc<AccessPolicy>>,
}

/// The rules of who may connect. By default everybody may who asks for a name of this machine for itself.
#[derive(Clone, Debug, Default)]
pub struct AccessPolicy {
    /// The names under which unhang may be asked.
    pub hosts: AllowedHosts,
    /// The rules of who may ask. If other machines reach the listeners, their owner must require tokens here.
    pub access: Access,
}

/// Serves clients until a [`Stop`]. Returns the exit code (design 4). A second `Stop` ends it at once (X-05).
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
    // If only this machine can connect, all clients have the same address.
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
        // Serving ends when it is told to. Before that it can only panic, and the panic was reported.
        _panicked = &mut serving => exit::BUG,
    };
    let sessions = http_state.sessions().len();
    tracing::info!(sessions, "ending: the requests in flight get {DRAIN:?}");
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
        // The last answers are given up; the exit code stays.
        Some(_) = stops.recv() => {}
    }
    code
}

/// Serves the windows that share these servers, until `ending` is set; then drops `claim`. Windows have tools of their own. `jobs` are those
/// of this process, which makes jobs of calls for windows.
pub async fn serve_windows(
    limits: Limits,
    (servers, jobs): (Servers, Option<SessionJobs>),
    (listener, claim): (UnixListener, Claim),
    ending: watch::Receiver<bool>,
) {
    let context = SessionContext::new(Arc::new(NoTools), Some(servers), None).of_windows(jobs);
    // Only the user who started unhang can open the socket.
    let access_policy = watch::channel(Arc::default()).1;
    let budget = Budget::new(None, limits.max_message);
    let http_state =
        HttpState::new(limits, budget, context, JobGauge::of(None), access_policy, ending.clone());
    let tls = watch::channel(None).1;
    let listeners = vec![HttpListener::Local(listener, Some(claim))];
    let bounds = bounds(descriptors::most(), true);
    serve::serve(listeners, HttpService::new(http_state, false), bounds, tls, ending).await;
}

/// Ends a task together with its owner.
struct TaskGuard(JoinHandle<()>);

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The state that all connections share.
struct HttpState {
    limits: Limits,
    /// The room for bodies and whole replies.
    budget: Budget,
    context: SessionContext,
    jobs: JobGauge,
    access_policy: watch::Receiver<Arc<AccessPolicy>>,
    /// The share of each client in the requests in flight.
    requests: Shares,
    /// The sessions, by their names.
    sessions: Mutex<HashMap<String, OwnedSession>>,
    session_shares: Shares,
    /// Requests that stand alone, by the secrets under which their calls are parked.
    alone: Mutex<HashMap<String, OwnedSession>>,
    alone_shares: Shares,
    /// Rung when one of those has a new name of a window's call.
    window_call_named: Notify,
    /// The clients of those requests, as far as servers keep anything for one of them.
    stateless_clients: StatelessClients,
    /// The most sessions, and the most requests that stand alone.
    room: usize,
    ending: watch::Receiver<bool>,
    since: Instant,
    /// A name that tells this process from others that the same windows may reach; `None` if the clients are not windows.
    realm: Option<String>,
}

/// A session or a request, and its owner.
struct OwnedSession {
    owner: TokenOwner,
    mailbox: SessionHandle,
    way: HttpRoute,
    /// The name of a window's call, if it is one.
    window_call: Option<WindowCallName>,
}

/// The route by which a session is reached. By the other route the session is invisible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HttpRoute {
    /// Streamable HTTP.
    Streamable,
    /// The HTTP+SSE of 2024-11-05.
    Old,
}

impl OwnedSession {
    /// Returns the mailbox if this caller owns the session. To other callers the session is invisible.
    fn for_caller(&self, caller: &TokenOwner) -> Option<SessionHandle> {
        (self.owner == *caller).then(|| self.mailbox.clone())
    }
}

/// The reason why nothing new begins.
#[derive(Clone, Copy)]
enum Full {
    /// There are too many in all.
    All,
    /// The caller has as many as one caller may have.
    OfOne,
    /// The end has begun.
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
            window_call_named: Notify::new(),
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

    /// Returns the current rules of who may connect.
    fn access_policy(&self) -> Arc<AccessPolicy> {
        Arc::clone(&self.access_policy.borrow())
    }

    /// Ends the sessions and requests of callers who lose access, whenever the rules change.
    async fn watch_door(self: Arc<Self>) {
        let mut access_policy = self.access_policy.clone();
        let mut before = self.access_policy();
        while access_policy.changed().await.is_ok() {
            let now = Arc::clone(&access_policy.borrow_and_update());
            let is_strange = |owned: &OwnedSession| !now.access.still_knows(&owned.owner, &before.access);
            let mut strange: Vec<SessionHandle> = Vec::new();
            for all in [&self.sessions, &self.alone] {
                let all = all.lock().unwrap_or_else(PoisonError::into_inner);
                strange.extend(
                    all.values().filter(|owned| is_strange(owned)).map(|owned| owned.mailbox.clone()),
                );
            }
            if !strange.is_empty() {
                tracing::info!(
                    sessions = strange.len(),
                    "ending sessions, because unhang no longer accepts their tokens"
                );
            }
            for mailbox in strange {
                // A session with a full mailbox ends when it has read that.
                tokio::spawn(async move { mailbox.send(SessionCommand::Revoke).await });
            }
            self.stateless_clients.part_with(|caller| !now.access.still_knows(caller, &before.access));
            before = now;
        }
    }

    /// Returns the context of a caller's request that stands alone, and the stay of its client with the servers.
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

    /// Returns the key of the caller in fair queues. Returns `None` if the caller has no identity.
    fn owner(&self, caller: &TokenOwner) -> Option<FairnessKey> {
        let is_known = *caller != TokenOwner::Anybody;
        is_known.then(|| self.access_policy().access.fairness_key(caller, || FairnessKey::new("anybody")))
    }

    /// Returns the check whether this caller may read the output of shared servers. Operators may, as at `/status`.
    fn may_read(&self, caller: &TokenOwner) -> MayRead {
        let (access_policy, caller) = (self.access_policy.clone(), caller.clone());
        MayRead::where_it_is_so(move || access_policy.borrow().access.is_operator(&caller))
    }

    /// Returns whether the end has begun, after which nothing new is accepted.
    fn is_ending(&self) -> bool {
        *self.ending.borrow()
    }

    /// Returns the caller's session of this name.
    fn session(&self, name: &str, caller: &TokenOwner, way: HttpRoute) -> Option<SessionHandle> {
        self.sessions().get(name).filter(|session| session.way == way)?.for_caller(caller)
    }

    /// Starts a new session of the caller's, and returns its name with it.
    fn begin(self: &Arc<Self>, caller: &TokenOwner, way: HttpRoute) -> Result<(String, SessionHandle), Full> {
        if self.is_ending() {
            return Err(Full::Ending);
        }
        let share = self.session_shares.take(caller).ok_or(Full::OfOne)?;
        let name = random_name().ok_or(Full::All)?;
        let (mailbox, commands) = mailbox();
        {
            let mut sessions = self.sessions();
            if sessions.len() >= self.room {
                return Err(Full::All);
            }
            let (owner, mailbox) = (caller.clone(), mailbox.clone());
            let owned = OwnedSession { owner, mailbox, way, window_call: None };
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

    /// Removes a session. If no client has heard of it yet, it is over before it began.
    fn forget(&self, name: &str) {
        self.sessions().remove(name);
    }

    /// Starts an actor for one request of the caller's that stands alone.
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
            if alone.len() >= self.room {
                return Err(Full::All);
            }
            let owned = OwnedSession {
                owner: caller.clone(),
                mailbox: mailbox.clone(),
                way: HttpRoute::Streamable,
                window_call: window.as_ref().and_then(|window| window.call),
            };
            alone.insert(secret.clone(), owned);
        }
        self.window_call_named.notify_waiters();
        let fairness_key = self.access_policy().access.fairness_key(caller, || peer_key(peer));
        let work = SessionRuntime::new(self.limits.clone(), &context, fairness_key, Some(secret.clone()));
        let stateless_caller = StatelessCaller {
            key: SessionKey::of(&StatelessClient::new(caller, peer)),
            has_token: *caller != TokenOwner::Anybody,
        };
        let process = window.as_ref().and_then(|_| process_of(peer));
        let work = work.alone().asks_as(stateless_caller).of_window(window);
        drop(context);
        let session = HttpSession::new(String::new(), work, &self.limits, commands, ReplyMode::Alone);
        let session = session.of_process(process);
        let http_state = Arc::clone(self);
        tokio::spawn(async move {
            session.run(http_state.ending.clone()).await;
            http_state.alone.lock().unwrap_or_else(PoisonError::into_inner).remove(&secret);
            drop((share, stay));
        });
        Ok(mailbox)
    }

    /// Returns the number of requests that stand alone and have not ended.
    fn waiting_alone(&self) -> usize {
        self.alone.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Returns the holder of the caller's parked call, to which a request with this state comes back. The call has the name that the window
    /// gives it now.
    fn holder(
        &self,
        state: &str,
        caller: &TokenOwner,
        window_call: Option<WindowCallName>,
    ) -> Option<SessionHandle> {
        let secret = secret_of(state)?;
        let mut alone = self.alone.lock().unwrap_or_else(PoisonError::into_inner);
        let owned = alone.get_mut(secret)?;
        let holder = owned.for_caller(caller)?;
        owned.window_call = window_call;
        self.window_call_named.notify_waiters();
        Some(holder)
    }
}

/// Returns the process of a client at a Unix socket.
fn process_of(peer: PeerAddress) -> Option<Identity> {
    match peer {
        PeerAddress::Local { process: Some(process), .. } => Identity::of(process.unsigned_abs()),
        _ => None,
    }
}

/// Returns the key of a client without a session, which is known only by its process or its machine.
fn peer_key(peer: PeerAddress) -> FairnessKey {
    match peer {
        PeerAddress::Local { process: Some(process), .. } => FairnessKey::new(&format!("process {process}")),
        PeerAddress::Local { process: None, .. } => FairnessKey::one_of("local"),
        PeerAddress::Network(address) => FairnessKey::one_of(&address.ip().to_canonical().to_string()),
    }
}

/// Returns the beginning of a session's name, which tells it from others but gives no access.
fn shown(name: &str) -> &str {
    name.get(..6).unwrap_or(name)
}
