//! One server, seen from our side: an actor that owns it, and the handles through which it is asked.
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
//! - Whoever waits has a deadline: for the server to be ready, for each answer, for the end.
//! - Dropping the wait for an answer withdraws the request; the server is told, and its late answer goes nowhere.
//! - When all handles have gone, or when it is told to, the actor ends the server; whatever happens to the actor, the lifeline does.

pub mod client;
pub mod handshake;
pub mod http;
pub(crate) mod listener;
pub mod process;
pub mod question;
pub mod request_table;
pub(crate) mod stdio;
pub(crate) mod upstream_session;

use std::{sync::Arc, time::Duration};

use serde_json::value::RawValue;
use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    time::Instant,
};
use unhang_bridge::params::Signature;
use unhang_proc::deadline::Deadline;

use self::handshake::ServerInfo;
use self::question::{OfSession, SideMessageSender};
use unhang_core::error::{Error, Failure};

/// The request to hear of changes, which stays open for as long as somebody wants to.
pub const LISTEN: &str = "subscriptions/listen";

/// As whom a stateless server is asked.
#[derive(Clone, Debug, Default)]
pub enum RequestSignature {
    /// As ourselves.
    #[default]
    ByUs,
    /// As somebody who knows nothing of such servers.
    By(Arc<Signature>),
    /// As whoever has signed the params already, and takes it upon themselves to answer what the server asks instead of a result.
    Already,
}

/// What comes of a request.
pub(crate) type RequestOutcome = Result<Box<RawValue>, Error>;

/// Where the newest progress of a request is put, as received.
pub type ProgressSender = watch::Sender<Option<Box<RawValue>>>;

/// Commands that wait for an actor. It takes them at once.
const COMMANDS: usize = 64;

/// A request to a server.
#[derive(Debug)]
pub(crate) struct ActorRequest {
    pub(crate) method: Box<str>,
    /// An object, as JSON.
    pub(crate) params: String,
    /// Counted from then.
    pub(crate) since: Instant,
    pub(crate) limit: Duration,
    pub(crate) progress: Option<ProgressSender>,
    /// Who hears and answers what the server says and asks beside.
    pub(crate) asides: Option<SideMessageSender>,
    /// The session that asks, where it is one.
    pub(crate) session: Option<OfSession>,
    /// As whom a stateless server is asked.
    pub(crate) signed: RequestSignature,
    /// What a server over HTTP is told in headers too: names and values (2026-07-28).
    pub(crate) mirrored: Vec<(String, String)>,
}

/// What an actor is asked for.
#[derive(Debug)]
pub(crate) enum ActorCommand {
    Request(Box<ActorRequest>, oneshot::Sender<RequestOutcome>),
    /// End the server now.
    Stop,
}

/// Where a server is.
#[derive(Clone, Debug)]
pub(crate) enum ServerPhase {
    Starting,
    Ready(Arc<ServerInfo>),
    /// It answers nothing any more, for this reason.
    Over(Box<Failure>),
}

/// What everybody may know about a server at any time (C-48).
#[derive(Clone, Debug)]
pub(crate) struct UpstreamStatus {
    pub(crate) phase: ServerPhase,
    /// Everything that it was has ended: its processes, its connection.
    pub(crate) has_gone: bool,
}

/// The way to a server. Clones are the same way.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamHandle {
    commands: mpsc::Sender<ActorCommand>,
    withdrawn: Arc<Notify>,
    state: watch::Receiver<UpstreamStatus>,
}

/// The actor's side of the same.
#[derive(Debug)]
pub(crate) struct Mailbox {
    pub(crate) commands: mpsc::Receiver<ActorCommand>,
    pub(crate) withdrawn: Arc<Notify>,
    pub(crate) state: watch::Sender<UpstreamStatus>,
}

/// A way to a server that is about to be started.
pub(crate) fn link() -> (UpstreamHandle, Mailbox) {
    let (commands, received) = mpsc::channel(COMMANDS);
    let (state, seen) = watch::channel(UpstreamStatus { phase: ServerPhase::Starting, has_gone: false });
    let withdrawn = Arc::new(Notify::new());
    let link = UpstreamHandle { commands, withdrawn: withdrawn.clone(), state: seen };
    (link, Mailbox { commands: received, withdrawn, state })
}

/// Tells the actor when nobody waits for the answer any more.
struct WithdrawalGuard<'a> {
    reply: oneshot::Receiver<RequestOutcome>,
    is_over: bool,
    withdrawn: &'a Notify,
}

impl Drop for WithdrawalGuard<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.reply.close();
            self.withdrawn.notify_one();
        }
    }
}

impl UpstreamHandle {
    /// Waits until the server is ready. It has a deadline of its own, so this ends.
    pub(crate) async fn ready(&self) -> Result<Arc<ServerInfo>, Error> {
        let mut state = self.state.clone();
        let seen = state.wait_for(|state| !matches!(state.phase, ServerPhase::Starting)).await;
        match seen.map(|state| state.phase.clone()) {
            Ok(ServerPhase::Ready(session)) => Ok(session),
            Ok(ServerPhase::Over(failure)) => Err(Error::Failure(failure)),
            Ok(ServerPhase::Starting) | Err(_) => Err(Failure::ended().into()),
        }
    }

    /// Asks the server, once it is ready.
    pub(crate) async fn request(&self, request: ActorRequest) -> RequestOutcome {
        self.ready().await?;
        let (reply, received) = oneshot::channel();
        let mut waiting = WithdrawalGuard { reply: received, is_over: false, withdrawn: &self.withdrawn };
        let command = ActorCommand::Request(Box::new(request), reply);
        if self.commands.send(command).await.is_err() {
            return Err(self.ended_error());
        }
        let outcome = (&mut waiting.reply).await;
        waiting.is_over = true;
        outcome.unwrap_or_else(|_| Err(self.ended_error()))
    }

    /// Whether it can be asked, now or when it is ready.
    pub(crate) fn is_usable(&self) -> bool {
        !matches!(self.state.borrow().phase, ServerPhase::Over(_))
    }

    /// Why it cannot be asked any more, where that is so.
    pub(crate) fn why_over(&self) -> Option<Failure> {
        match &self.state.borrow().phase {
            ServerPhase::Over(failure) => Some((**failure).clone()),
            ServerPhase::Starting | ServerPhase::Ready(_) => None,
        }
    }

    /// Waits until the server is ready, or will not be; true when it is. Keeps nothing of it by that.
    pub(crate) fn opened(&self) -> impl Future<Output = bool> + Send + use<> {
        let mut state = self.state.clone();
        async move {
            let seen = state.wait_for(|state| !matches!(state.phase, ServerPhase::Starting)).await;
            seen.is_ok_and(|state| matches!(state.phase, ServerPhase::Ready(_)))
        }
    }

    /// Waits until it can be asked nothing any more. Keeps nothing of it by that.
    pub(crate) fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut state = self.state.clone();
        async move {
            // Where the actor is no more, nothing can be asked.
            let _over = state.wait_for(|state| matches!(state.phase, ServerPhase::Over(_))).await;
        }
    }

    /// Waits until everything that it was has ended.
    pub(crate) fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut state = self.state.clone();
        async move {
            // Where the actor is no more, nothing is.
            let _gone = state.wait_for(|state| state.has_gone).await;
        }
    }

    /// Ends the server, and waits until everything that it was has gone, but not beyond the deadline. True when it has.
    pub(crate) async fn stop(&self, deadline: Deadline) -> bool {
        // Where nobody takes it the actor is at its end already.
        let _taken = deadline.timeout(self.commands.send(ActorCommand::Stop)).await;
        let mut state = self.state.clone();
        let gone = deadline.timeout(state.wait_for(|state| state.has_gone)).await;
        matches!(gone, Ok(Ok(_)))
    }

    fn ended_error(&self) -> Error {
        match &self.state.borrow().phase {
            ServerPhase::Over(failure) => Error::Failure(failure.clone()),
            _ => Failure::ended().into(),
        }
    }
}
