//! Runs a story with a session, in the order in which the shell would see it, and checks the promises on the way.
//!
//! Invariants: the session is told nothing that the shell would not tell it. One side is read only while the session reads it. Ticks come
//! when they are due, or later. A process is started only after the previous one is gone.

use std::time::Duration;

use unhang_proc::server::{Exit, SweptTree};
use unhang_wire::{Line, Lines};

use super::{
    super::{
        effects::WrapAction, held_input::WaitingForServer, questions::Asker, session_phase::WrapPhase,
        supervision::ServerLink, wrap_session::WrapSession,
    },
    client::SendContext,
    job_bridge::TestBridgeEvent,
    script::{ClientWord, FuzzScript, ProcessStep, ScriptEvent, ScriptedAnswer, ServerWord},
    speech::{self, IDS, ScriptedRequest, pick},
    test_world::TestWorld,
};
use unhang_core::{
    config::{HEALTH_MISSES, JUNK_LINES, LATE_IDS, STOP_SLACK},
    exit,
    limits::Limits,
    queue::Class,
};
use unhang_tools::service::JobServiceError;

/// The bytes that are read at once. It is a small number, because each byte may cause an error message.
const READ: usize = 256;

/// The bytes that may come on top of a limit: one error message for each byte that was read.
const SLACK: usize = 128 << 10;

/// The same for the server, which gets error messages for whole requests only.
const SERVER_SLACK: usize = 16 << 10;

/// The model of the server's process.
struct ProcessModel {
    output: Vec<u8>,
    lines: Lines,
    pub output_ended: bool,
    pub exited: bool,
    /// The time since which the process has been silent.
    silent_since: Duration,
    /// Whether the process has been without work since then.
    rested: bool,
    /// Whether the process has closed one of its pipes.
    deaf: bool,
}

impl ProcessModel {
    fn new(max_message: usize, now: Duration) -> ProcessModel {
        ProcessModel {
            output: Vec::new(),
            lines: Lines::new(max_message),
            output_ended: false,
            exited: false,
            silent_since: now,
            rested: false,
            deaf: false,
        }
    }
}

/// A session, its world, and the facts that are known about both from outside.
pub(super) struct SessionSimulation {
    limits: Limits,
    wrap_session: WrapSession,
    world: TestWorld,
    now: Duration,
    client_output: Vec<u8>,
    client_lines: Lines,
    client_closes: bool,
    client_ended: bool,
    client_gone: bool,
    process: Option<ProcessModel>,
    unstartable: bool,
    obeys: bool,
    numbers: u64,
    /// When the guard must have ended.
    over_by: Option<Duration>,
    codes: Vec<u8>,
    has_ended: bool,
}

impl SessionSimulation {
    pub(super) fn new(script: &FuzzScript) -> SessionSimulation {
        let limits = script.limits.clone();
        SessionSimulation {
            wrap_session: match (WrapSession::new("srv", limits.clone(), 1), script.makes_jobs) {
                (wrap_session, true) => wrap_session.with_jobs(),
                (wrap_session, false) => wrap_session,
            },
            world: TestWorld::new(&limits),
            now: Duration::ZERO,
            client_output: Vec::new(),
            client_lines: Lines::new(limits.max_message),
            client_closes: false,
            client_ended: false,
            client_gone: false,
            process: None,
            unstartable: false,
            obeys: true,
            numbers: 0,
            over_by: None,
            codes: vec![exit::UNREACHABLE],
            has_ended: false,
            limits,
        }
    }

    pub(super) fn live(mut self, script: &FuzzScript) {
        self.settle();
        if script.shaken {
            self.client_writes(&[ScriptedRequest::new(0, 5, 1, 0).text(), b"\n".to_vec()].concat());
            self.settle();
            self.server_says(&ServerWord::Answer(0, ScriptedAnswer::Well))
                .into_iter()
                .for_each(|word| self.server_writes(&[word, b"\n".to_vec()].concat()));
            self.client_writes(&[speech::client_note(0), b"\n".to_vec()].concat());
            self.settle();
        }
        for event in &script.events {
            if self.has_ended {
                break;
            }
            self.happens(event);
            self.settle();
            self.keeps();
            self.settle();
        }
        self.end(script.by_signal);
    }

    /// Ends the life, whatever state it is in.
    fn end(&mut self, by_signal: bool) {
        if by_signal {
            self.signal();
        } else {
            self.world.client_pipe.room = usize::MAX;
            self.client_closes = true;
        }
        self.settle();
        let limit = self.limits.eof_grace + self.limits.stop_limit() + STOP_SLACK;
        self.wait(limit);
        assert!(self.has_ended, "it ends");
        let more = std::iter::from_fn(|| self.wrap_session.next_action())
            .any(|action| matches!(action, WrapAction::Exit(_)));
        assert!(!more, "it ends once");
        self.world.client.check_end();
        self.world.check_delivered();
    }

    fn happens(&mut self, event: &ScriptEvent) {
        match event {
            ScriptEvent::Client(packing, words) => {
                let words: Vec<_> = words.iter().filter_map(|word| self.client_says(word)).collect();
                self.client_writes(&speech::pack(*packing, &words));
            }
            ScriptEvent::Server(packing, words) => {
                let words: Vec<_> = words.iter().filter_map(|word| self.server_says(word)).collect();
                self.server_writes(&speech::pack(*packing, &words));
            }
            ScriptEvent::Wait(length) => self.wait(*length),
            ScriptEvent::UntilTick(before) => {
                let tick = self
                    .wrap_session
                    .next_tick()
                    .map_or(Duration::ZERO, |tick| tick.saturating_sub(self.now));
                self.wait(tick.saturating_sub(*before));
            }
            ScriptEvent::Oversleep(length) => {
                // An end that begins late takes just as long.
                self.over_by = self.over_by.map(|by| by + *length);
                self.pass(*length);
            }
            ScriptEvent::Process(step) => self.does(*step),
            ScriptEvent::ClientReads(room) => self.world.client_pipe.room = *room,
            ScriptEvent::ServerReads(room) => self.world.server_pipe.room = *room,
            ScriptEvent::ClientEnds => self.client_closes = true,
            ScriptEvent::ClientGone => self.world.client_pipe.broken = true,
            ScriptEvent::Signal => self.signal(),
            ScriptEvent::Busy(busy) => self.world.busy = *busy,
            ScriptEvent::Unstartable(unstartable) => self.unstartable = *unstartable,
            ScriptEvent::Obeys(obeys) => self.obeys = *obeys,
        }
    }

    fn client_says(&mut self, word: &ClientWord) -> Option<Vec<u8>> {
        Some(match word {
            ClientWord::Request { id, method, token } => {
                self.numbers += 1;
                let request = ScriptedRequest::new(*id, *method, *token, self.numbers);
                let text = request.text();
                self.world.requests.insert(self.numbers, request);
                text
            }
            ClientWord::Cancel(id) => speech::cancel(pick(&IDS, *id)),
            ClientWord::Answer(which, answer) => {
                let asked = &self.world.client.asked;
                let position = asked.len().checked_sub(1 + usize::from(*which) % asked.len().max(1))?;
                speech::answer(&asked[position], None, *answer, self.limits.max_message)
            }
            ClientWord::Note(kind) => speech::client_note(*kind),
            ClientWord::Raw(raw) => raw.0.clone(),
        })
    }

    fn server_says(&mut self, word: &ServerWord) -> Option<Vec<u8>> {
        Some(match word {
            ServerWord::Answer(which, answer) => {
                let asked = &self.world.server.asked;
                let asked = &asked[asked.len().checked_sub(1 + usize::from(*which))?];
                speech::answer(&asked.id, asked.number, *answer, self.limits.max_message)
            }
            ServerWord::Ask { id, method } => speech::ask(*id, *method),
            ServerWord::Cancel(id) => speech::cancel(pick(&IDS, *id)),
            ServerWord::Note { kind, token } => speech::server_note(*kind, *token),
            ServerWord::Raw(raw) => raw.0.clone(),
        })
    }

    fn client_writes(&mut self, bytes: &[u8]) {
        if !self.client_closes {
            self.client_output.extend_from_slice(bytes);
        }
    }

    fn server_writes(&mut self, bytes: &[u8]) {
        if let Some(process) =
            self.process.as_mut().filter(|process| !process.output_ended && !process.exited)
        {
            process.output.extend_from_slice(bytes);
        }
    }

    fn does(&mut self, step: ProcessStep) {
        match step {
            ProcessStep::Dies => self.dies(),
            ProcessStep::IsGone => self.is_gone(),
            ProcessStep::DiesAndIsGone => {
                self.dies();
                self.is_gone();
            }
            ProcessStep::ClosesStdout => {
                if self.process.as_ref().is_some_and(|process| !process.output_ended && !process.exited) {
                    self.output_ends();
                    self.hears_nothing("closed its stdout");
                }
            }
            ProcessStep::ClosesStdin => self.world.server_pipe.broken = self.process.is_some(),
        }
    }

    /// Ends the process as the shell reports an exit: output from before is read first.
    fn dies(&mut self) {
        if self.process.as_ref().is_some_and(|process| !process.exited) {
            if let Some(process) = &mut self.process {
                process.exited = true;
            }
            while self.read_server() {}
            self.output_ends();
            self.wrap_session.server_exited(self.now, &Exit::Signal(9), &mut self.world);
        }
    }

    fn output_ends(&mut self) {
        while self.read_server() {}
        let Some(process) = self.process.as_mut().filter(|process| !process.output_ended) else { return };
        process.output_ended = true;
        while let Some(line) = process.lines.finish() {
            self.world.server.says(&line, self.now);
            self.wrap_session.server_last_line(self.now, line, &mut self.world);
        }
        // Half a message is not a message, although it may end in one.
        self.world.server.forgives();
    }

    fn hears_nothing(&mut self, why: &'static str) {
        if let Some(process) = &mut self.process {
            process.deaf = true;
        }
        self.wrap_session.server_deaf(self.now, why);
    }

    fn is_gone(&mut self) {
        if self.process.take_if(|process| process.exited).is_some() {
            self.wrap_session.server_gone(self.now, SweptTree { leaked: 0, unkilled: 0 }, &mut self.world);
        }
    }

    fn signal(&mut self) {
        self.must_end_within(Duration::ZERO, &[exit::TERMINATED]);
        self.wrap_session.stop(self.now, exit::TERMINATED, "a signal", &mut self.world);
    }

    fn must_end_within(&mut self, grace: Duration, codes: &[u8]) {
        let by = self.now + grace + self.limits.stop_limit() + STOP_SLACK;
        self.over_by = Some(self.over_by.map_or(by, |earlier| earlier.min(by)));
        self.codes.extend(codes);
    }

    /// Lets everything happen that needs no time.
    fn settle(&mut self) {
        loop {
            self.lose_peers();
            self.act();
            if self.has_ended || !(self.read_client() || self.read_server()) {
                break;
            }
        }
        self.lose_peers();
        self.act();
        self.check_sizes();
    }

    fn lose_peers(&mut self) {
        self.world.flush();
        if self.world.to_client.peer_gone() && !self.client_gone {
            self.client_gone = true;
            self.must_end_within(Duration::ZERO, &[exit::DONE]);
            self.wrap_session.stop(self.now, exit::DONE, "the client reads no more", &mut self.world);
        }
        if self.world.to_server.peer_gone() {
            self.hears_nothing("closed its stdin");
        }
        if self.world.to_server.cost() > self.limits.queue_bytes {
            self.world.server.forgives();
        }
    }

    fn act(&mut self) {
        while !self.has_ended
            && let Some(action) = self.wrap_session.next_action()
        {
            match action {
                WrapAction::StartServer => self.start(),
                WrapAction::StopServer => {
                    self.check_stop();
                    if self.obeys {
                        self.does(ProcessStep::DiesAndIsGone);
                    }
                }
                WrapAction::Promote(order) => self.world.bridge.orders(*order),
                WrapAction::Join(join) => self.world.bridge.joins(*join),
                WrapAction::Exit(code) => {
                    assert!(
                        self.codes.contains(&code),
                        "exit {code} for another reason than {:?}",
                        self.codes
                    );
                    self.has_ended = true;
                }
            }
        }
    }

    fn start(&mut self) {
        assert!(self.process.is_none(), "at most one process at a time");
        // A call that waits for the restart may still be answered after the client's end of input.
        let serves = self.wrap_session.phase.serves();
        assert!(serves, "nothing is started on the way out: {:?}", self.wrap_session.phase);
        if self.unstartable {
            return self.wrap_session.start_failed(self.now, "no such file", &mut self.world);
        }
        self.world.restarted();
        self.process = Some(ProcessModel::new(self.limits.max_message, self.now));
        self.wrap_session.server_spawned(self.now, &mut self.world);
    }

    /// Checks that a server is stopped for a good reason: at the end, when it is useless, or when it is idle and hangs. It is never stopped
    /// because one caller ran out of patience (promise 8).
    fn check_stop(&self) {
        let Some(process) = self.process.as_ref().filter(|process| !process.exited) else { return };
        if self.wrap_session.phase != WrapPhase::Running
            || process.deaf
            || self.wrap_session.server.link() == ServerLink::Replaying
        {
            return;
        }
        let silent = self.now - process.silent_since;
        let mut least = self.limits.health_interval * HEALTH_MISSES;
        if !process.rested {
            least += self.limits.call_timeout;
        }
        assert!(silent >= least, "it is stopped although it was heard {silent:?} ago");
        let at_work = self.wrap_session.calls.iter().any(|(_, call)| call.deadline.is_some());
        assert!(!at_work, "it is stopped although it is at work");
    }

    /// Reads a little from the client, as the shell would. Returns false if there is nothing to read.
    fn read_client(&mut self) -> bool {
        if self.client_ended || !self.wrap_session.reads_client(&self.world) {
            return false;
        }
        if self.client_output.is_empty() {
            if self.client_closes {
                self.client_end();
            }
            return false;
        }
        let count = self.client_output.len().min(READ);
        let read: Vec<u8> = self.client_output.drain(..count).collect();
        self.client_lines.push(&read);
        self.world.memory = Some(self.client_lines.memory());
        self.client_lines_arrive(false);
        self.world.memory = None;
        true
    }

    fn client_end(&mut self) {
        self.client_ended = true;
        self.client_lines_arrive(true);
        self.must_end_within(self.limits.eof_grace, &[exit::DONE, exit::DEADLINE]);
        self.wrap_session.client_end(self.now, &mut self.world);
    }

    fn client_lines_arrive(&mut self, last: bool) {
        let lines = &mut self.client_lines;
        while let Some(line) = if last { lines.finish() } else { lines.next_line() } {
            for part in speech::parts(&line, false) {
                let line = part.as_deref().map_or_else(|| line.clone(), Line::Whole);
                if self.world.client.would_mix_batches(&line) {
                    continue;
                }
                let moment = SendContext {
                    now: self.now,
                    started: self.wrap_session.server.has_answered(),
                    takes_batches: self.wrap_session.client.negotiated() == Some("2025-03-26"),
                };
                self.world.client.says(&line, moment);
                self.wrap_session.client_line(self.now, line, &mut self.world);
            }
        }
    }

    /// Reads a little from the server. Returns false if there is nothing to read.
    fn read_server(&mut self) -> bool {
        let Some(process) = self.process.as_mut().filter(|process| !process.output.is_empty()) else {
            return false;
        };
        // The output of a dead process is always read: the shell no longer holds it back.
        if !process.exited && !self.wrap_session.reads_server(&self.world) {
            return false;
        }
        let count = process.output.len().min(READ);
        let read: Vec<u8> = process.output.drain(..count).collect();
        process.lines.push(&read);
        self.world.memory = Some(process.lines.memory());
        self.world.hushed = self.limits.quiet;
        while let Some(line) = process.lines.next_line() {
            (process.silent_since, process.rested) = (self.now, false);
            for part in speech::parts(&line, true) {
                let line = part.as_deref().map_or_else(|| line.clone(), Line::Whole);
                self.world.server.says(&line, self.now);
                self.wrap_session.server_line(self.now, line, &mut self.world);
            }
        }
        (self.world.hushed, self.world.memory) = (false, None);
        true
    }

    /// Lets the job bridge act.
    fn keeps(&mut self) {
        for event in self.world.bridge.events() {
            match event {
                TestBridgeEvent::Promotes(call, order, result) => {
                    let is_told = self.wrap_session.promoted(
                        self.now,
                        (&call, order),
                        ("abcdefgh2345", &result),
                        &mut self.world,
                    );
                    self.world.bridge.promoted(call, is_told);
                }
                TestBridgeEvent::Refuses(call, order) => {
                    let why = JobServiceError("there is no disk".to_owned());
                    self.wrap_session.not_promoted(self.now, (&call, order), &why, &mut self.world);
                }
                TestBridgeEvent::Joins(call, order, outcome) => {
                    self.wrap_session.joined(self.now, (&call, order), outcome, &mut self.world);
                }
                TestBridgeEvent::Withdraws(call) => {
                    self.wrap_session.job_withdrawn(self.now, &call, &mut self.world);
                }
                TestBridgeEvent::AsksAgain => {
                    let call = self.wrap_session.register_for_job(self.now, "{}");
                    self.wrap_session.send_or_hold(&call, &mut self.world);
                    self.world.bridge.promoted(call, true);
                }
            }
        }
        self.job_server_answers();
    }

    /// Passes on the answers of the local job server, before any time passes.
    fn job_server_answers(&mut self) {
        for line in self.world.bridge.answers() {
            self.wrap_session.job_server_line(self.now, &Class::Kept, &line, &mut self.world);
        }
    }

    fn pass(&mut self, length: Duration) {
        self.job_server_answers();
        self.now += length;
        self.world.now = self.now;
        if self.world.busy {
            self.world.processor += length;
        } else if let Some(process) = self.process.as_mut().filter(|_| !length.is_zero()) {
            process.rested = true;
        }
    }

    /// Lets time pass, with every tick that is due on the way.
    fn wait(&mut self, length: Duration) {
        let end = self.now + length;
        let mut at_once = 0;
        while !self.has_ended
            && let Some(tick) = self.wrap_session.next_tick().filter(|tick| *tick <= end)
        {
            let length = tick.saturating_sub(self.now);
            at_once = if length.is_zero() { at_once + 1 } else { 0 };
            assert!(at_once < 10, "the clock gets on: {:?} is due at {:?}", tick, self.now);
            self.pass(length);
            self.wrap_session.tick(self.now, &mut self.world);
            self.settle();
            self.check_deadlines();
        }
        self.pass(end.saturating_sub(self.now));
        self.check_deadlines();
    }

    fn check_deadlines(&self) {
        if self.has_ended {
            return;
        }
        self.world.client.check_deadlines(self.now);
        // The questions of a process are withdrawn when it ends, even while its remains are still being swept.
        let lives = self.process.as_ref().is_some_and(|process| !process.exited);
        if lives && self.wrap_session.phase.serves() {
            self.world.server.check_deadlines(self.now, self.limits.call_timeout);
        }
        assert!(self.over_by.is_none_or(|by| self.now <= by), "it should have ended by {:?}", self.over_by);
    }

    /// Checks that everything that is kept is bounded, whatever was said (promise 3).
    fn check_sizes(&self) {
        let limit = self.limits.queue_bytes;
        let wrap_session = &self.wrap_session;
        assert!(
            self.world.to_client.cost() <= limit * 6 + SLACK,
            "{} bytes wait for the client",
            self.world.to_client.cost()
        );
        assert!(
            self.world.to_server.cost() <= limit * 6 + SERVER_SLACK,
            "{} bytes wait for the server",
            self.world.to_server.cost()
        );
        let held = wrap_session.held_input.iter().map(|held| match held {
            WaitingForServer::Line(line) => line.len(),
            WaitingForServer::Call(id) => {
                wrap_session.calls.get(id).and_then(|call| call.line.as_ref()).map_or(0, Vec::len)
            }
        });
        let held: usize = held.sum();
        assert!(held <= limit + SLACK, "{held} bytes are held");
        let (_, quiet) = wrap_session.deferred_notifications.kept();
        assert!(quiet <= limit, "{quiet} bytes are kept quiet");
        assert!(wrap_session.answers.cost() <= self.limits.max_message + SLACK, "answers of batches pile up");
        // If the server never came up, renamed requests are not asked again.
        let names = wrap_session.calls.renamed();
        assert!(
            names <= wrap_session.calls.len() || wrap_session.server.start_fault().is_some(),
            "a name outlives its request"
        );
        let (ended, heartbeats, _) = wrap_session.progress_tokens.kept();
        assert!(heartbeats <= 20 + 2 * self.limits.max_in_flight, "tokens of heartbeats pile up");
        assert!(ended <= LATE_IDS && wrap_session.junk.lines().len() <= JUNK_LINES);
        assert!(
            wrap_session.in_flight() <= self.limits.max_in_flight + self.world.bridge.asked_again
                && wrap_session.questions.len(Asker::Server) <= self.limits.max_in_flight
        );
    }
}
