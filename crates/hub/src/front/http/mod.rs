//! The front over HTTP: both forms of Streamable HTTP on one path, and what tells operators whether all is well.
//!
//! ```text
//! connection (net::serve) ─ handler ─ asked() ─┬ begins ──► a new session ─┐
//!                                              ├ belongs ─► its session ───┼─ Mail ─► actor ─ front::Machine
//!                                              └ alone ───► one of its own ┘
//! connection ◄─ a status, an answer, or a stream of events ◄─ Reply ◄──────────────────┘
//! ```
//!
//! Invariants
//!
//! - Whoever is refused is told why, in JSON-RPC where they speak it, and the log says who it was.
//! - What an outsider can make grow has a limit: connections, sessions, bodies, what waits for whoever does not read.
//! - Sessions know nothing of one another: what is asked in one is answered there alone.

mod asked;
mod handlers;
mod hosts;
mod metrics;
mod operators;
mod session;
mod stream;

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    net::{TcpListener, UnixListener},
    sync::{mpsc, watch},
    time::Instant,
};
use unhang_net::serve::{self, Bounds, Claim, Listener};
use unhang_proc::deadline::Deadline;
use unhang_switches::stands;

pub use self::hosts::{Hosts, name_of};
use self::operators::Jobs;
use self::session::{Mailbox, Session, mailbox};
use super::{
    AtEnd,
    parking::secret_of,
    toolbox::{NoTools, Toolbox},
    work::{Behind, Work, random_name},
};
use crate::{
    config::{
        DEAF_PATIENCE, DISPOSE_LIMIT, EXIT_LIMIT, FLUSH_LIMIT, HEAD_PATIENCE, Limits, MAX_CONNECTIONS,
        MAX_SESSIONS,
    },
    exit,
    gateway::Servers,
    guard::Stop,
    tools::service::JobService,
};

/// How long what is in flight may take at the end: what stands behind it needs some of the time after that.
pub(crate) const DRAIN: Duration = EXIT_LIMIT.saturating_sub(DISPOSE_LIMIT).saturating_sub(FLUSH_LIMIT);

/// What connections are limited by.
const BOUNDS: Bounds = Bounds { connections: MAX_CONNECTIONS, head: HEAD_PATIENCE, deaf: DEAF_PATIENCE };

/// What a front over HTTP needs.
pub struct HttpSpec {
    /// The limits of each session.
    pub limits: Limits,
    /// What it offers.
    pub toolbox: Arc<dyn Toolbox>,
    /// Servers behind it, where there are any.
    pub servers: Option<Servers>,
    /// Who runs jobs, where there are any: for those who look after it.
    pub jobs: Option<Arc<dyn JobService>>,
    /// What clients are told about the whole, to give to their models.
    pub instructions: Option<String>,
    /// What else has to end with it.
    pub at_end: Option<AtEnd>,
    /// Told when the end begins.
    pub ending: watch::Sender<bool>,
    /// Where clients come.
    pub listener: TcpListener,
    /// The names under which it may be asked.
    pub hosts: Hosts,
}

/// Serves whoever comes until a [`Stop`]. Returns the exit code (design 4). A second `Stop` ends it at once (X-05).
pub async fn run(spec: HttpSpec, mut stops: mpsc::Receiver<Stop>) -> u8 {
    let HttpSpec { limits, toolbox, servers, jobs, instructions, at_end, ending: end, listener, hosts } =
        spec;
    let ending = end.subscribe();
    let behind = Behind::new(toolbox, servers, instructions);
    let gate = Gate::new(limits, behind, Jobs::of(jobs), hosts, ending.clone());
    let router = handlers::router(Arc::clone(&gate));
    let mut serving = tokio::spawn(serve::serve(listener, router, BOUNDS, ending));
    let code = tokio::select! {
        stop = stops.recv() => stop.unwrap_or(Stop::Terminate).exit_code(),
        // It ends when it is told to; before that it can only panic, which was told.
        _panicked = &mut serving => exit::BUG,
    };
    let sessions = gate.sessions().len();
    tracing::info!(sessions, "ending: what is in flight gets {DRAIN:?}");
    end.send_replace(true);
    let all = async {
        let deadline = Deadline::after(DRAIN + FLUSH_LIMIT);
        if !serving.is_finished() && deadline.timeout(&mut serving).await.is_err() {
            tracing::warn!("some clients had not taken their answers in time");
        }
        if let Some(at_end) = at_end {
            at_end.await;
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
pub(crate) async fn serve_windows(
    limits: Limits,
    servers: Servers,
    (listener, claim): (UnixListener, Claim),
    ending: watch::Receiver<bool>,
) {
    let behind = Behind::new(Arc::new(NoTools), Some(servers), None);
    let gate = Gate::new(limits, behind, Jobs::of(None), Hosts::default(), ending.clone());
    serve::serve(Listener::Local(listener, claim), handlers::router(gate), BOUNDS, ending).await;
}

/// What all connections share.
struct Gate {
    limits: Limits,
    behind: Behind,
    jobs: Jobs,
    hosts: Hosts,
    /// Those that there are, by their names.
    sessions: Mutex<HashMap<String, Mailbox>>,
    /// Requests that stand alone, by the secrets under which their calls are parked.
    alone: Mutex<HashMap<String, Mailbox>>,
    /// How many there may be of each.
    room: usize,
    ending: watch::Receiver<bool>,
    since: Instant,
}

impl Gate {
    fn new(
        mut limits: Limits,
        behind: Behind,
        jobs: Jobs,
        hosts: Hosts,
        ending: watch::Receiver<bool>,
    ) -> Arc<Gate> {
        limits.eof_grace = limits.eof_grace.min(DRAIN);
        Arc::new(Gate {
            limits,
            behind,
            jobs,
            hosts,
            sessions: Mutex::default(),
            alone: Mutex::default(),
            room: MAX_SESSIONS,
            ending,
            since: Instant::now(),
        })
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<String, Mailbox>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing new is taken any more.
    fn is_ending(&self) -> bool {
        *self.ending.borrow()
    }

    fn session(&self, name: &str) -> Option<Mailbox> {
        self.sessions().get(name).cloned()
    }

    /// A new session and its name; none where there are too many, and at the end.
    fn begin(self: &Arc<Self>) -> Option<(String, Mailbox)> {
        if self.is_ending() {
            return None;
        }
        let name = random_name()?;
        let (mailbox, mails) = mailbox();
        {
            let mut sessions = self.sessions();
            if sessions.len() >= self.room && stands("sessions-bounded") {
                return None;
            }
            sessions.insert(name.clone(), mailbox.clone());
        }
        let work = Work::new(self.limits.clone(), &self.behind, None);
        let session = Session::new(shown(&name).to_owned(), work, &self.limits, mails, false);
        let (gate, own) = (Arc::clone(self), name.clone());
        tokio::spawn(async move {
            session.run(gate.ending.clone()).await;
            gate.sessions().remove(&own);
        });
        Some((name, mailbox))
    }

    /// A session that nobody has heard of is over before it began.
    fn forget(&self, name: &str) {
        self.sessions().remove(name);
    }

    /// Somebody who takes one request that stands alone; none where there are too many, and at the end.
    fn alone(self: &Arc<Self>) -> Option<Mailbox> {
        if self.is_ending() {
            return None;
        }
        let secret = random_name()?;
        let (mailbox, mails) = mailbox();
        {
            let mut alone = self.alone.lock().unwrap_or_else(PoisonError::into_inner);
            if alone.len() >= self.room && stands("requests-alone-bounded") {
                return None;
            }
            alone.insert(secret.clone(), mailbox.clone());
        }
        let work = Work::new(self.limits.clone(), &self.behind, Some(secret.clone())).alone();
        let session = Session::new(String::new(), work, &self.limits, mails, true);
        let gate = Arc::clone(self);
        tokio::spawn(async move {
            session.run(gate.ending.clone()).await;
            gate.alone.lock().unwrap_or_else(PoisonError::into_inner).remove(&secret);
        });
        Some(mailbox)
    }

    /// How many requests that stand alone have not ended.
    fn waiting_alone(&self) -> usize {
        self.alone.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whoever holds the call to which a request with this state comes back.
    fn holder(&self, state: &str) -> Option<Mailbox> {
        let secret = secret_of(state)?;
        self.alone.lock().unwrap_or_else(PoisonError::into_inner).get(secret).cloned()
    }
}

/// As much of a session's name as tells it from others, and does not let anybody in.
fn shown(name: &str) -> &str {
    name.get(..6).unwrap_or(name)
}
