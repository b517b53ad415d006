//! One session over HTTP: an actor that receives the client's posts, and answers each post whole or with a stream of events.
//!
//! Theory of operation. As over pipes, the session is one task and one `select!`; only the ways of its lines differ. `reply_streams.rs` has
//! these ways.
//!
//! A request of 2026-07-28 stands alone: it has an actor of its own, which ends with its answer, or with its client. A client of 2024-11-05
//! has one stream for everything that it hears, answers included, and its session ends with that stream.
//!
//! Invariants
//!
//! - Nothing here waits for a client. The queue to a client that does not read is bounded in bytes; beyond that the session ends.
//! - In a session of several streams, a broken connection withdraws nothing, and the client can resume a stream where it broke. A request
//!   that stands alone is withdrawn with its connection. A session of one stream ends with its connection, for it cannot be resumed.
//! - A call that is parked for another window ends soon after the process of that window, to which no connection leads meanwhile.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep_until},
};
use unhang_net::serve::axum::body::Bytes;
use unhang_proc::identity::Identity;
use unhang_wire::{Line, Oversized, one_line};

use super::{
    message_budget::MessageBudget,
    reply_streams::{HttpEffects, PostReply, ReplyForm, ReplyMode, SESSION_STREAM},
};
use crate::{
    effects::{SessionEffects, StreamKey},
    session_runtime::{SessionRuntime, WindowJobReply},
    tally::add_one,
};
use unhang_core::{
    config::SESSION_IDLE,
    exit,
    limits::Limits,
    shell::{Stop, set},
    telemetry::Parent,
};
use unhang_upstream::{http::param_headers::ReceivedParamHeaders, window_job::WindowJobOrder};

/// The most posts on their way to a session.
const MAILS: usize = 64;

/// How often unhang looks whether a window still runs that has a parked call.
const WINDOW_LOOK: Duration = Duration::from_millis(500);

/// The process of a window that has made a request.
struct WindowProcess {
    process: Identity,
    next_look: Instant,
}

/// The input of a session.
pub(super) enum SessionCommand {
    /// A message.
    Post {
        body: Bytes,
        /// The room of the body in the budget, kept until the post is answered, because the request stays in memory until then.
        room: Option<MessageBudget>,
        form: ReplyForm,
        trace: Option<Parent>,
        /// Its `Mcp-Param-*` headers, if they have to be compared with its arguments.
        param_headers: Option<ReceivedParamHeaders>,
        reply: oneshot::Sender<PostReply>,
    },
    /// The client listens. `after` is the last event that it has, if it resumes a stream.
    Listen { after: Option<(u64, u64)>, reply: oneshot::Sender<PostReply> },
    /// A message over the limit, which was refused.
    Oversized(Oversized),
    /// A window orders that a job be made of its call.
    MakeJob { order: WindowJobOrder, reply: WindowJobReply },
    /// The client ends the session.
    End { reply: oneshot::Sender<PostReply> },
    /// The client's token is not accepted any more.
    Revoke,
}

/// The sender of commands to a session.
pub(super) type SessionHandle = mpsc::Sender<SessionCommand>;

/// Makes the mailbox of a new session: the sender and the receiver of its commands.
pub(super) fn mailbox() -> (SessionHandle, mpsc::Receiver<SessionCommand>) {
    mpsc::channel(MAILS)
}

/// The reason why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionOver {
    /// Its client has ended it, or had only one request.
    Done,
    /// Its client has been silent for a long time.
    Idle,
    /// Its client does not read.
    Deaf,
    /// The client's token is not accepted any more.
    Revoked,
}

/// The actor of one session.
pub(super) struct HttpSession {
    work: SessionRuntime,
    effects: HttpEffects,
    commands: mpsc::Receiver<SessionCommand>,
    next_stream: StreamKey,
    last_seen: Instant,
    /// The window that has made the request, if it is known.
    window: Option<WindowProcess>,
    /// The reason why the session is over, once it is.
    over: Option<SessionOver>,
    /// The name of the session in the log.
    name: String,
}

impl HttpSession {
    /// Makes a session, or the actor of a request that stands alone.
    pub(super) fn new(
        name: String,
        mut work: SessionRuntime,
        limits: &Limits,
        commands: mpsc::Receiver<SessionCommand>,
        manner: ReplyMode,
    ) -> HttpSession {
        work.mcp_session.set_session_name(&name);
        let effects = HttpEffects::new(manner, limits.queue_bytes, Arc::clone(work.tally()));
        HttpSession {
            work,
            effects,
            commands,
            next_stream: SESSION_STREAM,
            last_seen: Instant::now(),
            window: None,
            over: None,
            name,
        }
    }

    /// Notes the process of the window that makes the request.
    pub(super) fn of_process(self, process: Option<Identity>) -> HttpSession {
        let window = process.map(|process| WindowProcess { process, next_look: Instant::now() });
        HttpSession { window, ..self }
    }

    /// Serves the session until its client ends it, is silent too long or does not read, its token is revoked, or `ending` is set. Then
    /// waits until all work for it has ended.
    pub(super) async fn run(mut self, mut ending: watch::Receiver<bool>) {
        let mut timer = Box::pin(sleep_until(Instant::now()));
        let left = self.effects.left();
        let (mut is_ending, mut is_stopped) = (false, false);
        while self.work.act().is_none() {
            let mcp_session = &self.work.mcp_session;
            self.effects.begin_streams(|key| mcp_session.may_get_a_status(key));
            if let Some(reason) = self.is_over().filter(|_| !is_stopped) {
                is_stopped = true;
                self.stop(reason);
                continue;
            }
            let due = self.next_tick();
            set(&mut timer, due);
            tokio::select! {
                command = self.commands.recv(), if !is_stopped => match command {
                    Some(command) => self.take(command),
                    None => self.is_over_because(SessionOver::Done),
                },
                event = self.work.event() => self.work.take(event, &mut self.effects),
                // A client that was there a moment ago is not forgotten yet.
                () = left.notified() => self.last_seen = Instant::now(),
                () = self.effects.client_gone(), if self.effects.is_alone() && !is_stopped => {
                    self.is_over_because(SessionOver::Done);
                }
                _over_or_gone = ending.wait_for(|ending| *ending), if !is_ending => {
                    is_ending = true;
                    // Accepted commands are not refused.
                    while let Ok(command) = self.commands.try_recv() {
                        self.take(command);
                    }
                    self.work.mcp_session.drain(self.work.now(), Stop::Terminate.cause(), &mut self.effects);
                }
                () = &mut timer => self.tick(),
            }
        }
        self.effects.end();
    }

    fn take(&mut self, command: SessionCommand) {
        self.last_seen = Instant::now();
        match command {
            SessionCommand::Post { body, room, form, trace, param_headers, reply } => {
                self.work.mcp_session.set_trace_parent(trace);
                self.work.mcp_session.set_param_headers(param_headers);
                self.post(&body, room, form, reply);
            }
            // If the client has gone, its next listener takes this place.
            SessionCommand::Listen { after, reply } => {
                let answer = self.effects.listen(after);
                self.work.client_listens();
                let _gone = reply.send(answer);
            }
            SessionCommand::Oversized(oversized) => {
                self.work.mcp_session.answered_too_long(&oversized);
            }
            SessionCommand::MakeJob { order, reply } => self.work.make_job(order, reply),
            SessionCommand::End { reply } => {
                let _gone = reply.send(PostReply::Taken);
                self.is_over_because(SessionOver::Done);
            }
            SessionCommand::Revoke => self.is_over_because(SessionOver::Revoked),
        }
    }

    /// Notes that the session is over. The first reason counts.
    fn is_over_because(&mut self, reason: SessionOver) {
        self.over.get_or_insert(reason);
    }

    fn post(
        &mut self,
        body: &[u8],
        room: Option<MessageBudget>,
        form: ReplyForm,
        reply: oneshot::Sender<PostReply>,
    ) {
        self.next_stream += 1;
        let key = self.next_stream;
        self.effects.opened(key, room, form, reply);
        self.work.catch_up(&mut self.effects);
        let now = self.work.now();
        // The body becomes one line, as servers need it.
        self.work.mcp_session.client_line(now, key, Line::Whole(&one_line(body)), &mut self.effects);
        let session = &self.work.mcp_session;
        self.effects.handled(key, session.awaits(key), session.revision());
    }

    /// Returns whether the client is expected to come back to a call.
    fn is_parked(&self) -> bool {
        self.work.mcp_session.has_parked()
    }

    fn is_over(&self) -> Option<SessionOver> {
        if self.over.is_some() {
            return self.over;
        }
        if self.effects.is_deaf() {
            return Some(SessionOver::Deaf);
        }
        if self.effects.is_alone() {
            let begun = self.next_stream != SESSION_STREAM;
            let is_left = || !self.effects.is_read();
            let is_over = match self.effects.has_no_posts() {
                true => !self.is_parked(),
                false => is_left(),
            };
            return (begun && is_over).then_some(SessionOver::Done);
        }
        if self.effects.is_left() {
            return Some(SessionOver::Done);
        }
        (self.last_seen.elapsed() >= SESSION_IDLE && !self.effects.is_read()).then_some(SessionOver::Idle)
    }

    fn next_tick(&mut self) -> Option<Instant> {
        let idle = (!self.effects.is_alone()).then(|| self.last_seen + SESSION_IDLE);
        // If the client still listens, the next look is one period later.
        let idle = idle.map(|at| if at <= Instant::now() { Instant::now() + SESSION_IDLE } else { at });
        let window = self.window.as_ref().filter(|_| self.is_parked()).map(|window| window.next_look);
        self.work.next_tick().into_iter().chain(self.effects.next_due()).chain(idle).chain(window).min()
    }

    fn tick(&mut self) {
        let mcp_session = &self.work.mcp_session;
        self.effects.tick(Instant::now(), |key| mcp_session.may_get_a_status(key));
        self.work.mcp_session.tick(self.work.now(), &mut self.effects);
        self.look_at_window();
    }

    /// Ends the session if it waits for a window that has ended.
    fn look_at_window(&mut self) {
        let (is_parked, now) = (self.is_parked(), Instant::now());
        let Some(window) = self.window.as_mut().filter(|window| is_parked && window.next_look <= now) else {
            return;
        };
        window.next_look = now + WINDOW_LOOK;
        if !window.process.is_alive() {
            self.is_over_because(SessionOver::Done);
        }
    }

    /// Fails the requests in flight, and tells the work behind them to stop.
    fn stop(&mut self, reason: SessionOver) {
        let cause = match reason {
            SessionOver::Done => "its client ended it",
            SessionOver::Idle => "its client was silent for too long",
            SessionOver::Deaf => "its client does not read",
            SessionOver::Revoked => "unhang no longer accepts its token",
        };
        let waiting = self.effects.client_backlog();
        if reason == SessionOver::Deaf {
            add_one(&self.work.tally().deaf);
            let session = self.name.as_str();
            tracing::warn!(
                session,
                "unhang closes the session {session} with {waiting} bytes waiting: {cause}"
            );
        } else if !self.effects.is_alone() {
            let session = self.name.as_str();
            tracing::info!(session, "the session {session} ends: {cause}");
        }
        let ending = format!("the session is ending because {cause}");
        self.work.mcp_session.stop(self.work.now(), exit::DONE, &ending, &mut self.effects);
        self.effects.end();
    }
}
