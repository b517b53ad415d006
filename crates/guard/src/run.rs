//! The shell around the session: descriptors, the process, the clock.
//!
//! Theory of operation. There is one task with one `select!`. Reads feed the session, and the session writes through [`ProcessEffects`].
//! That gathers short lines until everything that was read at once is handled, and hands long ones to the kernel at once. Bytes that the
//! kernel does not take wait in a queue. No branch awaits a write, so neither direction can wait for the other. A thread of its own reads
//! the server's stderr, which never passes here.
//!
//! Invariants: there is one server process at a time. After [`WrapAction::Exit`] lines that the client has written are refused, and nothing
//! is read any more. Lines that wait for the client are delivered for as long as it reads, within [`EXIT_LIMIT`] from the event that ended
//! the session. When the process is dropped, its lifeline ends the tree.

mod job_events;

use std::{
    ffi::{OsStr, OsString},
    future::pending,
    io,
    os::fd::OwnedFd,
    time::Duration,
};

use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until, timeout},
};
use unhang_proc::{
    deadline::Deadline,
    give_back_code,
    lossy::LossyWriter,
    server::{HolderCommand, ServerEvent, ServerSpec},
};
use unhang_wire::Lines;

use self::job_events::{DepartedServer, UnsentJob};
use super::{
    effects::{WrapAction, WrapEffects},
    job_bridge::{self, Adopted, JobBridge, UnopenedJobs},
    process_effects::ProcessEffects,
    wrap_session::WrapSession,
};
use unhang_background::CallsEnd;
use unhang_core::{
    config::{EXIT_LIMIT, FLUSH_LIMIT, LARGE_BUFFER_KEPT, LAST_MOMENT},
    digest::digest,
    exit,
    limits::Limits,
    promotion::Promotion,
    shell::{FromClient, ReadOutcome, Stop, is_passing, set},
    units::in_words,
};
use unhang_upstream::{
    keeping::ServerKeeping,
    process::{ProcessEvent, ServerProcess, awaited},
};

/// The parts that a guard needs.
pub struct GuardSpec {
    /// The server's name in errors, logs and file names.
    pub name: String,
    /// The server's limits.
    pub limits: Limits,
    /// The command of the server.
    pub server: ServerSpec,
    /// The descriptor that the client writes to. It is shared with the client, so it is never made non-blocking in place.
    pub client_input: OwnedFd,
    /// The descriptor that the client reads from.
    pub client_output: OwnedFd,
    /// The place for copies of the server's stderr and of our own notices, which may be lost.
    pub notices: LossyWriter,
    /// The function that opens the folder of jobs. Without it slow calls do not become jobs.
    pub jobs: Option<UnopenedJobs>,
    /// The command of a call holder, without its plan. Without it, jobs of calls end with this process.
    pub call_holder: Option<HolderCommand>,
}

/// Whether code was removed from memory at these moments of a session.
#[derive(Debug, Default)]
struct CodeRemovals {
    after_start: bool,
    before_large_messages: bool,
}

/// Removes from memory the code that is mapped so far, unless that was done at this moment of the session.
fn once(is_done: &mut bool) {
    if !std::mem::replace(is_done, true) {
        give_back_code();
    }
}

/// Guards one server until the client or a [`Stop`] ends it. Returns the exit code (design 4). A second `Stop` ends it at once.
///
/// # Errors
/// Fails if the client's descriptors cannot be used at all.
pub async fn run(spec: GuardSpec, mut stops: mpsc::Receiver<Stop>) -> io::Result<u8> {
    let mut shell = GuardLoop::new(spec)?;
    let mut timer = Box::pin(sleep_until(Instant::now()));
    let code = loop {
        if let Some(code) = shell.act() {
            break code;
        }
        set(&mut timer, shell.next_tick());
        let reads_client = shell.reads_client();
        let reads_server = shell.wrap_session.reads_server(&shell.effects);
        let writes_server = shell.effects.has_output_for_server();
        tokio::select! {
            stop = stops.recv() => {
                if let Some(code) = shell.stop(stop.unwrap_or(Stop::Terminate)) {
                    return Ok(code);
                }
            }
            ready = shell.from_client.readable(), if reads_client => shell.read_client(ready),
            awaited = awaited(&shell.effects.process, reads_server, writes_server) => match awaited {
                ProcessEvent::Event(event) => shell.process_event(event).await,
                ProcessEvent::Readable(ready) => shell.read_server(ready),
                ProcessEvent::Writable => shell.effects.flush_server(),
                ProcessEvent::InputClosed => shell.input_closed(),
            },
            () = shell.effects.to_client.writable(), if shell.effects.to_client.is_waiting() => shell.effects.to_client.flush(),
            () = shell.effects.to_client.closed(), if !shell.ending => shell.client_gone(),
            event = bridge_event(&mut shell.effects.bridge) => shell.job_event(event),
            () = &mut timer => shell.tick(),
        }
        shell.hear_job_server();
        // The server and the plan have a call before its client has the id of the job.
        shell.effects.flush_server();
        shell.note_sent_calls();
        // A question whose answer the server has is not asked again.
        shell.note_processed();
        shell.effects.to_client.flush();
        shell.keep_sent_jobs();
        shell.notice_lost_peers();
    };
    tokio::select! {
        () = shell.finish() => {}
        // Nobody wants to wait for the last answers any more. The outcome stays.
        Some(_) = stops.recv() => {}
    }
    Ok(code)
}

/// Waits for the next event of jobs. Without a bridge it waits for ever. Cancel-safe.
async fn bridge_event(bridge: &mut Option<JobBridge>) -> job_bridge::BridgeEvent {
    match bridge {
        Some(bridge) => bridge.event().await,
        None => pending().await,
    }
}

struct GuardLoop {
    wrap_session: WrapSession,
    effects: ProcessEffects,
    origin: Instant,
    from_client: FromClient,
    server_lines: Lines,
    /// When to look at memory that long lines needed.
    release_at: Option<Instant>,
    /// How often code that only the start needed has been removed from memory.
    settled: CodeRemovals,
    server: ServerSpec,
    name: String,
    limits: Limits,
    ending: bool,
    /// The reason that is given to jobs that end with the session.
    jobs_end: CallsEnd,
    /// When the process has to be gone, once something has ended the session.
    ends_by: Option<Deadline>,
    keeping: ServerKeeping,
    /// The command of a call holder, without its plan.
    call_holder: Option<HolderCommand>,
    /// The jobs that the lifeline has not confirmed, so their clients were not told.
    unkept: Vec<Adopted>,
    /// The jobs whose calls the server had not got when their clients were told.
    unsent: Vec<UnsentJob>,
    departed: Vec<DepartedServer>,
}

/// The time that the disk may take to tell of earlier jobs. The client waits for it, but only for a server that did not start.
const EARLIER_JOBS_LIMIT: Duration = Duration::from_secs(1);

/// Returns a key that tells a server from others of the same name: its command and its folder.
fn key_of(server: &ServerSpec) -> [u8; 8] {
    let folder = server.folder.clone().or_else(|| std::env::current_dir().ok()).unwrap_or_default();
    let words = [&server.program].into_iter().chain(&server.arguments).map(OsString::as_os_str);
    digest([folder.as_os_str()].into_iter().chain(words).map(OsStr::as_encoded_bytes))
}

impl GuardLoop {
    fn new(spec: GuardSpec) -> io::Result<GuardLoop> {
        let limits = spec.limits;
        let wrap_session = WrapSession::new(spec.name.clone(), limits.clone(), u64::from(std::process::id()));
        let bridge = spec.jobs.filter(|_| limits.promote_after != Promotion::Off);
        let bridge = bridge
            .map(|jobs| JobBridge::new((spec.name.clone(), key_of(&spec.server)), limits.clone(), jobs));
        Ok(GuardLoop {
            wrap_session: if bridge.is_some() { wrap_session.with_jobs() } else { wrap_session },
            effects: ProcessEffects::new(spec.client_output, &limits, spec.notices, bridge)?,
            origin: Instant::now(),
            from_client: FromClient::new(spec.client_input, limits.max_message)?,
            server_lines: Lines::new(limits.max_message),
            release_at: None,
            settled: CodeRemovals::default(),
            server: spec.server,
            name: spec.name,
            limits,
            ending: false,
            jobs_end: CallsEnd::ClientGone,
            ends_by: None,
            keeping: ServerKeeping::default(),
            call_holder: spec.call_holder,
            unkept: Vec::new(),
            unsent: Vec::new(),
            departed: Vec::new(),
        })
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn reads_client(&self) -> bool {
        // A call that comes before the earlier ones are known would run again, and not join one of them.
        self.recall_until().is_none()
            && !self.from_client.ended
            && self.wrap_session.reads_client(&self.effects)
    }

    fn recall_until(&self) -> Option<Instant> {
        self.effects.bridge.as_ref().and_then(JobBridge::recall_until)
    }

    /// Carries out the session's actions. Returns the exit code at the end.
    fn act(&mut self) -> Option<u8> {
        while let Some(action) = self.wrap_session.next_action() {
            match action {
                WrapAction::StartServer => self.start_server(),
                WrapAction::StopServer if self.leaves_server() => self.leave_server(),
                WrapAction::StopServer => self.stop_server(),
                WrapAction::Promote(order) => {
                    if let Some(bridge) = &mut self.effects.bridge {
                        bridge.order(*order);
                    }
                }
                WrapAction::Join(join) => {
                    if let Some(bridge) = &mut self.effects.bridge {
                        bridge.join(*join);
                    }
                }
                WrapAction::Exit(code) => return Some(code),
            }
        }
        None
    }

    fn start_server(&mut self) {
        let notices = self.effects.notices.clone();
        let show = move |line: &[u8]| notices.send(&[line, b"\n"].concat());
        match ServerProcess::start(&self.name, &self.server, self.effects.tail.clone(), show) {
            Ok(process) => {
                self.effects.process = Some(process);
                self.keeping.process_changed();
                self.effects.to_server.clear();
                self.server_lines = Lines::new(self.limits.max_message);
                self.wrap_session.server_spawned(self.now(), &mut self.effects);
            }
            Err(error) => self.wrap_session.start_failed(self.now(), &error.to_string(), &mut self.effects),
        }
    }

    fn stop(&mut self, stop: Stop) -> Option<u8> {
        if self.ending {
            return Some(stop.exit_code());
        }
        self.begin_end();
        self.ending = true;
        self.jobs_end = CallsEnd::UnhangEnds;
        self.wrap_session.stop(self.now(), stop.exit_code(), stop.cause(), &mut self.effects);
        None
    }

    /// Returns when [`GuardLoop::tick`] is due.
    fn next_tick(&mut self) -> Option<Instant> {
        if self.from_client.lines.is_large() || self.server_lines.is_large() {
            self.release_at.get_or_insert_with(|| Instant::now() + LARGE_BUFFER_KEPT);
            // From here on memory goes to messages. By now everything that a session begins with has been done once.
            once(&mut self.settled.before_large_messages);
        }
        let wrap_session = self.wrap_session.next_tick().map(|tick| self.origin + tick);
        let ask = self.effects.process.as_ref().and_then(|process| process.ask_at);
        let others = [self.release_at, ask, self.keeping.answer_by(), self.recall_until()];
        others.into_iter().flatten().chain(wrap_session).min()
    }

    fn tick(&mut self) {
        self.wrap_session.tick(self.now(), &mut self.effects);
        self.refuse_late();
        if let Some(bridge) = &mut self.effects.bridge {
            bridge.give_up_recall();
        }
        if self.release_at.take_if(|at| *at <= Instant::now()).is_some() {
            self.from_client.lines.release();
            self.server_lines.release();
        }
        if let Some(ServerProcess { server, ask_at, exited, .. }) = &mut self.effects.process
            && ask_at.take_if(|at| *at <= Instant::now()).is_some()
            && !*exited
            && server.input.as_ref().is_some_and(|input| input.unread() > 0)
        {
            self.wrap_session.server_deaf(self.now(), "closed its stdin and left input unread");
        }
    }

    /// Notes that the server has closed its stdin. It may still answer requests that it has read. Nobody will read the rest in the pipe.
    fn input_closed(&mut self) {
        if let Some(process) = &mut self.effects.process {
            process.input_closed = true;
            process.ask_at = Some(Instant::now() + LAST_MOMENT);
        }
    }

    fn client_gone(&mut self) {
        self.ending = true;
        self.wrap_session.stop(self.now(), exit::DONE, "the client reads no more", &mut self.effects);
    }

    /// Handles failed writes. The write that failed has only noted that the peer is gone.
    fn notice_lost_peers(&mut self) {
        if self.effects.to_client.peer_gone() && !self.ending {
            self.client_gone();
        }
        if self.effects.to_server.peer_gone() {
            self.wrap_session.server_deaf(self.now(), "closed its stdin");
        }
    }

    fn read_client(&mut self, ready: io::Result<()>) {
        let outcome = self.from_client.read(ready);
        self.client_read(outcome);
    }

    /// Refuses the lines that the client has written by now. The client was allowed to write them, so they are answered. This is the last
    /// step before its way to us is closed.
    fn refuse_the_rest(&mut self) {
        let deadline = Deadline::after(FLUSH_LIMIT);
        while !self.from_client.ended && !deadline.is_past() && self.wrap_session.reads_client(&self.effects)
        {
            let outcome = self.from_client.read_now();
            self.client_read(outcome);
            if outcome == ReadOutcome::Nothing {
                return;
            }
            self.effects.to_client.flush();
        }
    }

    fn client_read(&mut self, outcome: ReadOutcome) {
        match outcome {
            ReadOutcome::Bytes => {
                let now = self.now();
                self.effects.memory = Some(self.from_client.lines.memory());
                while let Some(line) = self.from_client.lines.next_line() {
                    self.wrap_session.client_line(now, line, &mut self.effects);
                }
                self.effects.memory = None;
                self.renew_plan();
            }
            ReadOutcome::Nothing => {}
            ReadOutcome::End => self.client_end(),
        }
    }

    /// Sets the deadline of the end. The diagnostics after this process need a moment of it.
    fn begin_end(&mut self) {
        self.ends_by.get_or_insert_with(|| Deadline::after(EXIT_LIMIT - FLUSH_LIMIT));
    }

    fn client_end(&mut self) {
        self.begin_end();
        let now = self.now();
        while let Some(line) = self.from_client.lines.finish() {
            self.wrap_session.client_line(now, line, &mut self.effects);
        }
        self.wrap_session.client_end(now, &mut self.effects);
    }

    fn read_server(&mut self, ready: io::Result<()>) {
        let Some(process) = &mut self.effects.process else { return };
        let read = ready.and_then(|()| process.server.output.try_read(self.server_lines.spare()));
        self.server_read(read);
    }

    /// Takes the result of a read from the server. Returns true if there may be more at once.
    fn server_read(&mut self, read: io::Result<usize>) -> bool {
        match read {
            Ok(count @ 1..) => {
                self.server_lines.filled(count);
                self.keeping.read(count);
                let now = self.now();
                self.effects.memory = Some(self.server_lines.memory());
                let mut held = self.server_lines.held().len();
                while let Some(line) = self.server_lines.next_line() {
                    self.wrap_session.server_line(now, line, &mut self.effects);
                    self.note_needed_line(held);
                    held = self.server_lines.held().len();
                }
                self.effects.memory = None;
                // The server runs, and what comes needs none of the code that starts one.
                once(&mut self.settled.after_start);
                true
            }
            Err(error) if is_passing(&error) => false,
            Ok(_) | Err(_) => {
                self.output_ended();
                false
            }
        }
    }

    /// Handles the end of the server's stdout. A server that ends closes it a moment before. A server that goes on running is useless.
    fn output_ended(&mut self) {
        let now = self.now();
        let Some(process) = &mut self.effects.process else { return };
        process.output_ended = true;
        let exited = process.exited;
        while let Some(line) = self.server_lines.finish() {
            self.wrap_session.server_last_line(now, line, &mut self.effects);
        }
        if !exited {
            self.wrap_session.server_deaf(now, "closed its stdout");
        }
    }

    async fn process_event(&mut self, event: ServerEvent) {
        match event {
            ServerEvent::Started { pid, tier } => {
                tracing::info!(server = self.name, pid, ?tier, "started after {}", in_words(self.now()));
            }
            ServerEvent::Failed(error) => {
                self.lose_process();
                self.wrap_session.start_failed(self.now(), &error.to_string(), &mut self.effects);
            }
            ServerEvent::Kept => self.lifeline_keeps(),
            ServerEvent::NotKept(error) => self.lifeline_refuses(&error.to_string()),
            ServerEvent::Exited(exit) => {
                self.last_words().await;
                self.look_for_earlier_jobs().await;
                self.wrap_session.server_exited(self.now(), &exit, &mut self.effects);
            }
            ServerEvent::Gone(swept) => {
                self.lose_process();
                self.wrap_session.server_gone(self.now(), swept, &mut self.effects);
            }
        }
    }

    /// Looks for jobs of earlier sessions if the server ended before it answered anything: an older process may be in its way.
    async fn look_for_earlier_jobs(&mut self) {
        if self.wrap_session.awaits_start()
            && let Some(bridge) = &self.effects.bridge
        {
            self.effects.earlier_jobs =
                timeout(EARLIER_JOBS_LIMIT, bridge.earlier_jobs()).await.ok().flatten();
        }
    }

    /// Reads the last output of the dead process, which is in the pipes already. It does not wait for the end of the pipes, which another
    /// process may hold open (processes.md 1.3).
    async fn last_words(&mut self) {
        if let Some(process) = &mut self.effects.process {
            process.exited = true;
        }
        while let Some(process) = self.effects.process.as_mut().filter(|process| !process.output_ended) {
            let read = process.server.output.read_now(self.server_lines.spare());
            if !self.server_read(read) {
                break;
            }
        }
        if self.effects.process.as_ref().is_some_and(|process| !process.output_ended) {
            self.output_ended();
        }
        if let Some(process) = &mut self.effects.process {
            process.last_stderr().await;
        }
    }

    /// Passes on the lines of the local job server.
    fn hear_job_server(&mut self) {
        let Some(bridge) = &mut self.effects.bridge else { return };
        let said = bridge.said();
        if !said.is_empty() {
            let now = self.now();
            said.iter().for_each(|(class, line)| {
                self.wrap_session.job_server_line(now, class, line, &mut self.effects);
            });
        }
    }

    /// Refuses the lines that the client has written meanwhile, delivers the lines that wait for it, and ends the jobs.
    async fn finish(mut self) {
        self.begin_end();
        self.refuse_kept("unhang ends");
        self.refuse_the_rest();
        drop(self.from_client);
        let (counters, shed) = (self.wrap_session.counters(), self.effects.to_client.shed());
        let jobs_end = async {
            if let Some(bridge) = &self.effects.bridge {
                bridge.end(self.jobs_end).await;
            }
        };
        tokio::join!(self.effects.to_client.deliver(self.ends_by), jobs_end);
        tracing::info!(server = self.name, ?counters, shed, "done");
    }
}

#[cfg(test)]
mod tests;
