//! One server, seen from unhang's side: an actor that owns it, and the handles through which it is asked.
//!
//! ```text
//! UpstreamHandle ─ ActorCommand (bounded) ─ actor ─┬ UpstreamSession ─┬ Handshake        which revision, pure
//!                                                  │                  ├ RequestTable     ids in flight, what a line means, pure
//!                                                  │                  └ ServerQuestions  what the server asks us
//!                                                  ├ ServerProcess    pipes, lifeline, stop ladder (stdio)
//!                                                  └ Exchange         one request over HTTP and what it streams back (http)
//! UpstreamHandle ◄─ reply, UpstreamStatus ─────────┘
//! ```
//!
//! Invariants
//!
//! - Every wait has a deadline: the wait for the server to be ready, for each answer, for the end.
//! - Dropping the wait for an answer withdraws the request; the server is told, and its late answer goes nowhere.
//! - The actor ends the server when it is told to, or when all handles are dropped. The lifeline does so whatever happens to the actor.

pub mod call_stream;
pub mod client;
pub mod handshake;
pub mod http;
pub mod keeping;
pub mod kept_request;
pub(crate) mod listener;
mod long_answers;
pub mod process;
pub mod question;
mod request_keeping;
pub mod request_table;
mod resumed_request;
pub(crate) mod stdio;
pub(crate) mod upstream_session;
pub mod window_job;

use std::{sync::Arc, time::Duration};

use serde_json::value::RawValue;
use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    time::Instant,
};
use unhang_bridge::params::Signature;
use unhang_proc::deadline::Deadline;

use self::call_stream::CallStream;
use self::handshake::ServerInfo;
use self::kept_request::{KeepCommand, SentSender};
use self::question::{OfSession, SideMessageSender};
use unhang_core::error::{Error, Failure};

/// The request for changes, which stays open for as long as somebody wants to hear of them.
pub const LISTEN: &str = "subscriptions/listen";

/// The identity under which a stateless server is asked.
#[derive(Clone, Debug, Default)]
pub enum RequestSignature {
    /// Unhang's own identity.
    #[default]
    ByUs,
    /// The identity of a client that knows nothing of stateless servers.
    By(Arc<Signature>),
    /// The identity of a caller that has signed the params already. This caller answers the questions that the server asks instead of a
    /// result.
    Already,
}

/// The outcome of a request.
pub(crate) type RequestOutcome = Result<Box<RawValue>, Error>;

/// Receives the newest progress of a request, as the server sent it.
pub type ProgressSender = watch::Sender<Option<Box<RawValue>>>;

/// The capacity of an actor's queue of commands. The actor takes them at once.
const COMMANDS: usize = 64;

/// A request to a server.
#[derive(Debug)]
pub(crate) struct ActorRequest {
    pub(crate) method: Box<str>,
    /// A JSON object.
    pub(crate) params: String,
    /// The moment from which the limit counts.
    pub(crate) since: Instant,
    pub(crate) limit: Duration,
    pub(crate) progress: Option<ProgressSender>,
    /// Hears and answers the server's messages and questions during the request.
    pub(crate) asides: Option<SideMessageSender>,
    /// The session that asks, if there is one.
    pub(crate) session: Option<OfSession>,
    /// The identity under which a stateless server is asked.
    pub(crate) signed: RequestSignature,
    /// The headers that repeat parts of the request for a server over HTTP: names and values (2026-07-28).
    pub(crate) mirrored: Vec<(String, String)>,
    /// Receives the request once a process of the server has been sent it, so that it can be kept.
    pub(crate) sent: Option<SentSender>,
    /// Hears of the stream of the answer, if the server is reached over HTTP.
    pub(crate) stream: Option<CallStream>,
}

/// A command to an actor.
#[derive(Debug)]
pub(crate) enum ActorCommand {
    Request(Box<ActorRequest>, oneshot::Sender<RequestOutcome>),
    /// Has the server go on for a request when this process has ended.
    Keep(Box<KeepCommand>),
    /// Ends the server now.
    Stop,
}

/// The phase of a server's life.
#[derive(Clone, Debug)]
pub(crate) enum ServerPhase {
    Starting,
    Ready(Arc<ServerInfo>),
    /// The server answers nothing any more, for this reason.
    Over(Box<Failure>),
}

/// The status of a server, which every handle can read at any time (C-48).
#[derive(Clone, Debug)]
pub(crate) struct UpstreamStatus {
    pub(crate) phase: ServerPhase,
    /// Everything that belonged to the server has ended: its processes, its connection.
    pub(crate) has_gone: bool,
}

/// A handle of a server's actor. Clones lead to the same actor.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamHandle {
    commands: mpsc::Sender<ActorCommand>,
    withdrawn: Arc<Notify>,
    roots: Arc<Notify>,
    state: watch::Receiver<UpstreamStatus>,
}

/// The actor's side of its handles.
#[derive(Debug)]
pub(crate) struct Mailbox {
    pub(crate) commands: mpsc::Receiver<ActorCommand>,
    /// The other end of the commands, which keeps no server running.
    pub(crate) own_commands: mpsc::WeakSender<ActorCommand>,
    pub(crate) withdrawn: Arc<Notify>,
    /// Rung when the roots of the client have changed.
    pub(crate) roots: Arc<Notify>,
    pub(crate) state: watch::Sender<UpstreamStatus>,
}

/// Makes the handle and the mailbox of a server that is about to be started.
pub(crate) fn link() -> (UpstreamHandle, Mailbox) {
    let (commands, received) = mpsc::channel(COMMANDS);
    let (state, seen) = watch::channel(UpstreamStatus { phase: ServerPhase::Starting, has_gone: false });
    let (withdrawn, roots) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let own_commands = commands.downgrade();
    let link = UpstreamHandle { commands, withdrawn: withdrawn.clone(), roots: roots.clone(), state: seen };
    (link, Mailbox { commands: received, own_commands, withdrawn, roots, state })
}

/// Tells the actor when nobody waits for the answer any more.
struct WithdrawalGuard {
    reply: oneshot::Receiver<RequestOutcome>,
    is_over: bool,
    withdrawn: Arc<Notify>,
}

impl Drop for WithdrawalGuard {
    fn drop(&mut self) {
        if !self.is_over {
            self.reply.close();
            self.withdrawn.notify_one();
        }
    }
}

impl UpstreamHandle {
    /// Waits until the server is ready. This ends, because becoming ready has a deadline of its own.
    pub(crate) async fn ready(&self) -> Result<Arc<ServerInfo>, Error> {
        let mut state = self.state.clone();
        let seen = state.wait_for(|state| !matches!(state.phase, ServerPhase::Starting)).await;
        match seen.map(|state| state.phase.clone()) {
            Ok(ServerPhase::Ready(session)) => Ok(session),
            Ok(ServerPhase::Over(failure)) => Err(Error::Failure(failure)),
            Ok(ServerPhase::Starting) | Err(_) => Err(Failure::ended().into()),
        }
    }

    /// Sends the server a request, once it is ready.
    pub(crate) async fn request(&self, request: ActorRequest) -> RequestOutcome {
        self.ready().await?;
        let (reply, received) = oneshot::channel();
        let outcome = self.outcome(received);
        let command = ActorCommand::Request(Box::new(request), reply);
        // If nobody takes the command, its end of the reply is dropped with it.
        let _taken = self.commands.send(command).await;
        outcome.await
    }

    /// Waits for the outcome of a request, which comes here. Dropping the future withdraws the request, also before the first poll. The
    /// future holds no handle.
    pub(crate) fn outcome(
        &self,
        reply: oneshot::Receiver<RequestOutcome>,
    ) -> impl Future<Output = RequestOutcome> + Send + use<> {
        let guard = WithdrawalGuard { reply, is_over: false, withdrawn: Arc::clone(&self.withdrawn) };
        let state = self.state.clone();
        async move {
            let mut waiting = guard;
            let outcome = (&mut waiting.reply).await;
            waiting.is_over = true;
            outcome.unwrap_or_else(|_| Err(ended_error(&state)))
        }
    }

    /// Notes that the roots of the client have changed. Several changes may be told as one.
    pub(crate) fn roots_changed(&self) {
        self.roots.notify_one();
    }

    /// Returns whether the server can be asked, now or when it is ready.
    pub(crate) fn is_usable(&self) -> bool {
        !matches!(self.state.borrow().phase, ServerPhase::Over(_))
    }

    /// Returns why the server cannot be asked any more; `None` while it can.
    pub(crate) fn why_over(&self) -> Option<Failure> {
        match &self.state.borrow().phase {
            ServerPhase::Over(failure) => Some((**failure).clone()),
            ServerPhase::Starting | ServerPhase::Ready(_) => None,
        }
    }

    /// Waits until the server is ready, or will not be. The future gives true if it is ready, and holds no handle.
    pub(crate) fn opened(&self) -> impl Future<Output = bool> + Send + use<> {
        let mut state = self.state.clone();
        async move {
            let seen = state.wait_for(|state| !matches!(state.phase, ServerPhase::Starting)).await;
            seen.is_ok_and(|state| matches!(state.phase, ServerPhase::Ready(_)))
        }
    }

    /// Waits until the server can be asked nothing any more. The future holds no handle.
    pub(crate) fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut state = self.state.clone();
        async move {
            // If the actor has gone, nothing can be asked.
            let _over = state.wait_for(|state| matches!(state.phase, ServerPhase::Over(_))).await;
        }
    }

    /// Waits until the server and everything that belongs to it has ended.
    pub(crate) fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut state = self.state.clone();
        async move {
            // If the actor has gone, so has everything else.
            let _gone = state.wait_for(|state| state.has_gone).await;
        }
    }

    /// Ends the server, and waits until everything that belongs to it has gone, but not beyond the deadline. Returns true if it has gone.
    pub(crate) async fn stop(&self, deadline: Deadline) -> bool {
        // If nobody takes the command, the actor is at its end already.
        let _taken = deadline.timeout(self.commands.send(ActorCommand::Stop)).await;
        let mut state = self.state.clone();
        let gone = deadline.timeout(state.wait_for(|state| state.has_gone)).await;
        matches!(gone, Ok(Ok(_)))
    }
}

fn ended_error(state: &watch::Receiver<UpstreamStatus>) -> Error {
    match &state.borrow().phase {
        ServerPhase::Over(failure) => Error::Failure(failure.clone()),
        _ => Failure::ended().into(),
    }
}
