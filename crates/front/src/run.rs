//! The shell around a session over two pipes: the descriptors and the clock, beside the work that [`SessionRuntime`] does.
//!
//! Theory of operation. One task, one `select!`. Reads feed the session. The session writes through [`PipeEffects`], which passes to the
//! kernel as much as it takes now, and queues the rest.
//!
//! Invariants: no branch awaits a write or a call. After [`SessionAction::Exit`](super::effects::SessionAction::Exit) nothing is read any
//! more, and unfinished tasks are dropped. The queue is delivered for as long as the client reads, within [`EXIT_LIMIT`].

use std::{io, os::fd::OwnedFd, pin::Pin, sync::Arc};

use tokio::{
    sync::{mpsc, watch},
    task::yield_now,
    time::{Instant, sleep_until},
};
use unhang_proc::deadline::Deadline;

use super::{
    effects::{LineTarget, ONLY_STREAM, SessionEffects, StreamKey},
    jobs::SessionJobs,
    session_context::SessionContext,
    session_runtime::{SessionRuntime, random_name},
};
use unhang_background::CallsEnd;
use unhang_core::{
    config::{EXIT_LIMIT, FLUSH_LIMIT, LARGE_BUFFER_KEPT},
    exit,
    limits::Limits,
    queue::Class,
    refusal,
    shell::{FromClient, ReadOutcome, Stop, ToClient, set},
    telemetry::Telemetry,
};
use unhang_gateway::{FairnessKey, MayRead, Servers};
use unhang_tools::Toolbox;

/// The work at the end of a session. Its argument says why the jobs end that are calls.
pub type SessionEndHook = Box<dyn FnOnce(CallsEnd) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// Everything that a front over pipes needs.
pub struct FrontSpec {
    /// The limits of its session.
    pub limits: Limits,
    /// The tools of unhang itself.
    pub toolbox: Arc<dyn Toolbox>,
    /// The servers behind it, if there are any.
    pub servers: Option<Servers>,
    /// The jobs behind it, if there are any.
    pub jobs: Option<SessionJobs>,
    /// The instructions to the client about the whole, for its model.
    pub instructions: Option<String>,
    /// The exporter of traces, if there is one.
    pub telemetry: Option<Telemetry>,
    /// More work at the end of the session, done while the client takes its last answers.
    pub at_end: Option<SessionEndHook>,
    /// Set when the end begins.
    pub ending: watch::Sender<bool>,
    /// The input from the client. The client shares it, so it is never made non-blocking in place.
    pub client_input: OwnedFd,
    /// The output to the client.
    pub client_output: OwnedFd,
}

/// Serves one client until it or a [`Stop`] ends the session. Returns the exit code (design 4). A second `Stop` ends it at once.
///
/// # Errors
/// Fails only if the client's descriptors cannot be used at all.
pub async fn run(mut spec: FrontSpec, mut stops: mpsc::Receiver<Stop>) -> io::Result<u8> {
    let at_end = spec.at_end.take();
    let mut shell = PipeSession::new(spec)?;
    let mut timer = Box::pin(sleep_until(Instant::now()));
    let code = loop {
        if let Some(code) = shell.work.act() {
            break code;
        }
        set(&mut timer, shell.next_tick());
        let reads_client = !shell.from_client.ended && shell.work.mcp_session.reads_client(&shell.effects);
        tokio::select! {
            stop = stops.recv() => {
                if let Some(code) = shell.stop(stop.unwrap_or(Stop::Terminate)) {
                    return Ok(code);
                }
            }
            ready = shell.from_client.readable(), if reads_client => shell.read_client(ready),
            event = shell.work.event() => shell.work.take(event, &mut shell.effects),
            () = shell.effects.to_client.writable(), if shell.effects.to_client.is_waiting() => {}
            () = shell.effects.to_client.closed(), if !shell.ending => shell.client_gone(),
            () = &mut timer => shell.tick(),
        }
        shell.effects.to_client.flush();
        if shell.effects.to_client.peer_gone() && !shell.ending {
            shell.client_gone();
        }
        if shell.from_client.turn.is_over() {
            yield_now().await;
        }
    };
    let why = shell.why;
    let at_end = async {
        if let Some(at_end) = at_end {
            at_end(why).await;
        }
    };
    tokio::select! {
        _ended = async { tokio::join!(shell.finish(), at_end) } => {}
        // The last answers are given up; the exit code stays.
        Some(_) = stops.recv() => {}
    }
    Ok(code)
}

/// The effects of a session over pipes.
struct PipeEffects {
    to_client: ToClient,
}

impl SessionEffects for PipeEffects {
    fn to_client(&mut self, _only_one: LineTarget, class: Class, line: &[u8]) {
        self.to_client.send(class, line, None);
    }

    fn nothing_to_client(&mut self, _only_one: StreamKey) {}

    fn takes_more(&self, _only_one: StreamKey) -> bool {
        true
    }

    fn client_backlog(&self) -> usize {
        self.to_client.backlog()
    }
}

struct PipeSession {
    work: SessionRuntime,
    effects: PipeEffects,
    from_client: FromClient,
    /// When the memory of long lines is checked for release.
    release_at: Option<Instant>,
    ending: bool,
    /// Why the jobs end with the session that are calls.
    why: CallsEnd,
    told: watch::Sender<bool>,
    /// The time by which the process must have ended, once something has ended the session.
    ends_by: Option<Deadline>,
}

impl PipeSession {
    fn new(spec: FrontSpec) -> io::Result<PipeSession> {
        let limits = spec.limits;
        let context = SessionContext::new(spec.toolbox, spec.servers, spec.instructions).with_jobs(spec.jobs);
        let context = context.traced_by(spec.telemetry, "pipe").for_session(None, MayRead::default());
        let mut work =
            SessionRuntime::new(limits.clone(), &context, FairnessKey::new("stdio"), random_name());
        work.is_of_owner = true;
        work.client_listens();
        Ok(PipeSession {
            effects: PipeEffects { to_client: ToClient::new(spec.client_output, limits.queue_bytes)? },
            from_client: FromClient::new(spec.client_input, limits.max_message)?,
            work,
            release_at: None,
            ending: false,
            why: CallsEnd::ClientGone,
            told: spec.ending,
            ends_by: None,
        })
    }

    fn stop(&mut self, stop: Stop) -> Option<u8> {
        if self.ending {
            return Some(stop.exit_code());
        }
        self.why = CallsEnd::UnhangEnds;
        self.begin_end();
        self.ending = true;
        let (now, code, cause) = (self.work.now(), stop.exit_code(), stop.cause());
        self.work.mcp_session.stop_soon(now, code, cause, &mut self.effects);
        None
    }

    fn client_gone(&mut self) {
        self.end(exit::DONE, "the client reads no more");
    }

    fn end(&mut self, code: u8, cause: &str) {
        self.begin_end();
        self.ending = true;
        self.work.mcp_session.stop(self.work.now(), code, &refusal::unhang_ends(cause), &mut self.effects);
    }

    /// Sets the deadline of the end. Later diagnostics need a moment of the time.
    fn begin_end(&mut self) {
        self.told.send_replace(true);
        self.ends_by.get_or_insert_with(|| Deadline::after(EXIT_LIMIT - FLUSH_LIMIT));
    }

    fn read_client(&mut self, ready: io::Result<()>) {
        let taken = self.from_client.read(ready);
        if taken == ReadOutcome::Nothing {
            return;
        }
        self.work.catch_up(&mut self.effects);
        let now = self.work.now();
        while let Some(line) = self.from_client.lines.next_line() {
            self.work.mcp_session.client_line(now, ONLY_STREAM, line, &mut self.effects);
        }
        if taken == ReadOutcome::End {
            self.begin_end();
            while let Some(line) = self.from_client.lines.finish() {
                self.work.mcp_session.client_line(now, ONLY_STREAM, line, &mut self.effects);
            }
            self.work.mcp_session.client_end(now, &mut self.effects);
        }
    }

    fn next_tick(&mut self) -> Option<Instant> {
        if self.from_client.lines.is_large() {
            self.release_at.get_or_insert_with(|| Instant::now() + LARGE_BUFFER_KEPT);
        }
        self.work.next_tick().into_iter().chain(self.release_at).min()
    }

    fn tick(&mut self) {
        self.work.mcp_session.tick(self.work.now(), &mut self.effects);
        if self.release_at.take_if(|at| *at <= Instant::now()).is_some() {
            self.from_client.lines.release();
        }
    }

    /// Delivers the queue to the client.
    async fn finish(mut self) {
        self.begin_end();
        let counters = self.work.mcp_session.counters();
        self.effects.to_client.deliver(self.ends_by).await;
        tracing::info!(?counters, "done");
    }
}
