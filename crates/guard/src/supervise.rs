//! The server's process as the session sees it: started, told the session again, judged, restarted, given up.
//!
//! Invariants: what was in flight when a process died is answered at once; only lists and reads are sent again, once
//! there is at most one process; nothing is restarted over and over while nobody asks; a caller's deadline never
//! stops a server (promise 8).

use std::time::Duration;

use unhang_proc::server::{Exit, Swept};
use unhang_switches::stands;
use unhang_wire::{Id, ResponseOutcome};

use super::{
    calls::{GuardedCall, Role},
    effects::WrapEffects,
    held_input::WaitingForServer,
    own_requests::OwnRequest,
    wrap_session::{ServerLink, StartFault, WrapEnd, WrapSession},
};
use unhang_core::{
    exit,
    fault::FaultKind,
    health::{Advice, Health},
    refusal::ErrorReport,
    units::in_words,
};

impl WrapSession {
    /// A process was spawned. If there is a session, it is told first.
    pub fn server_spawned(&mut self, now: Duration, effects: &mut impl WrapEffects) {
        self.now = now;
        self.process_alive = true;
        self.stop_asked = false;
        self.spawned_at = now;
        self.health = Health::new(&self.limits, now);
        if matches!(self.end, WrapEnd::Stopping { .. } | WrapEnd::Over) {
            return self.ask_to_stop();
        }
        let id = self.own_id();
        let client_shakes_hands =
            self.calls.iter().any(|(_, call)| call.role == Role::Initialize && !call.sent);
        match self.client.session().opening(&id) {
            Some(line)
                if self.link == ServerLink::Down
                    && (!client_shakes_hands || !stands("one-handshake"))
                    && stands("session-replayed") =>
            {
                self.link = ServerLink::Replaying;
                self.await_handshake(id);
                effects.to_server(&line);
            }
            _ => self.go_live(effects),
        }
    }

    /// The program could not be run at all.
    pub fn start_failed(&mut self, now: Duration, error: &str, effects: &mut impl WrapEffects) {
        self.now = now;
        self.process_alive = false;
        let happened = format!("`{}` could not be started: {error}", self.name);
        tracing::error!(server = self.name, "{happened}");
        if matches!(self.end, WrapEnd::Stopping { .. }) && stands("failed-start-ends-the-stop") {
            self.finish(exit::UNREACHABLE, effects);
        } else if self.answered_ever {
            self.lose_server(&happened, None, effects);
        } else {
            self.give_up_start(StartFault { happened, exit: None }, effects);
        }
    }

    /// The process has ended and its last words have been read. `Swept` comes later.
    pub fn server_exited(&mut self, now: Duration, exit: &Exit, effects: &mut impl WrapEffects) {
        self.now = now;
        let text = exit.to_string();
        tracing::info!(server = self.name, "ended ({text})");
        let is_needed = matches!(self.end, WrapEnd::None | WrapEnd::Draining { .. });
        if !is_needed && stands("asked-end-is-expected") {
            self.link = ServerLink::Down;
        } else if !self.answered_ever && stands("death-at-start-told") {
            let happened = format!("`{}` ended ({text}) before it answered anything", self.name);
            self.give_up_start(StartFault { happened, exit: Some(text) }, effects);
        } else {
            effects.show(&format!("`{}` ended unexpectedly ({text})", self.name));
            self.lose_server(&format!("`{}` ended ({text})", self.name), Some(exit), effects);
        }
    }

    /// The process and everything that it left behind are gone; another may be started.
    pub fn server_gone(&mut self, now: Duration, swept: Swept, effects: &mut impl WrapEffects) {
        self.now = now;
        self.process_alive = false;
        if swept.leaked > 0 {
            tracing::warn!(
                server = self.name,
                leaked = swept.leaked,
                unkilled = swept.unkilled,
                "left processes behind"
            );
        }
        if let WrapEnd::Stopping { code, .. } = self.end
            && stands("gone-is-the-end")
        {
            self.finish(code, effects);
        }
    }

    /// The server can no longer hear us, or be heard, though it lives on: it is of no use any more.
    pub fn server_deaf(&mut self, now: Duration, why: &str) {
        self.now = now;
        if self.process_alive && !self.stop_asked && stands("deaf-server-replaced") {
            tracing::warn!(server = self.name, "{why}; it is stopped");
            self.replace_server();
        }
    }

    /// The process is of no use any more: it is stopped, and what is asked from now on waits for the next one.
    fn replace_server(&mut self) {
        self.ask_to_stop();
        if stands("nothing-for-the-stopped") {
            self.link = ServerLink::Down;
        }
    }

    /// The server never came up: whoever waits is told, and a client that has not asked yet is given the time to.
    fn give_up_start(&mut self, fault: StartFault, effects: &mut impl WrapEffects) {
        effects.show(&fault.happened);
        self.start_fault = Some(fault);
        self.link = ServerLink::Down;
        // It may have been deaf before, and somebody may have asked for the next one.
        self.restart_at = None;
        let waiting = self.calls.take_all();
        for (_, call) in &waiting {
            self.tell_start_failed(call, effects);
        }
        if waiting.is_empty() && self.end == WrapEnd::None && stands("failed-start-waits-for-a-question") {
            self.end = WrapEnd::Unstartable { until: self.now + self.limits.eof_grace };
        } else {
            self.finish(exit::UNREACHABLE, effects);
        }
    }

    /// A server that had worked is gone: answers, keeps what is safe to repeat, and plans the restart.
    fn lose_server(&mut self, happened: &str, exit: Option<&Exit>, effects: &mut impl WrapEffects) {
        self.link = ServerLink::Down;
        let opened = stands("deaths-counted") && self.breaker.failed(self.now);
        self.trial = None;
        if stands("dead-replay-forgotten") {
            self.own_requests.forget_all();
        }
        self.questions.withdraw_all(effects);
        let may_restart = self.end == WrapEnd::None && !opened;
        let delay = self.breaker.delay();
        self.restart_not_before = self.now + delay;
        // Somebody may have asked for the next process while this one was still being stopped.
        let early_wish = self.restart_at.filter(|_| may_restart || !stands("no-start-while-fenced-off"));
        let waits = if stands("early-wish-waits") { self.restart_not_before } else { self.now };
        self.restart_at = early_wish.map(|at| at.max(waits));
        if opened {
            tracing::error!(server = self.name, failures = self.breaker.failures(), "fenced off: {happened}");
            effects.show(&format!(
                "`{}` failed {} times in a row and is left alone for {}",
                self.name,
                self.breaker.failures(),
                in_words(self.limits.breaker_cooldown)
            ));
        }
        self.sort_out_calls(happened, exit, may_restart, effects);
        let asked_for = !self.calls.is_empty();
        if may_restart && (asked_for || self.may_restart_unasked || !stands("restarted-unasked-once")) {
            self.may_restart_unasked = false;
            self.wake();
        }
        self.after_call(effects);
    }

    /// Calls that were with the dead server are answered, or wait to be sent again.
    fn sort_out_calls(
        &mut self,
        happened: &str,
        exit: Option<&Exit>,
        may_restart: bool,
        effects: &mut impl WrapEffects,
    ) {
        let (mut again, mut again_bytes) = (Vec::new(), 0);
        for (wire_id, mut call) in self.calls.take_all() {
            let resend = call.sent && call.line.is_some() && call.may_be_sent_again();
            if may_restart && (!call.sent || resend) {
                if call.sent {
                    call.retried = true;
                    call.sent = false;
                    call.held_since = self.now;
                    self.counters.retried += 1;
                    again_bytes += call.line.as_ref().map_or(0, Vec::len);
                    again.push(wire_id.clone());
                }
                self.calls.register_as(wire_id, call);
            } else if let (Some(exit), true) = (exit, call.sent) {
                self.tell_exited(&call, exit, self.end == WrapEnd::None, effects);
            } else {
                self.tell_lost(&call, happened, effects);
            }
        }
        self.held.hold_first(again, again_bytes);
        if !may_restart {
            let _given_up = self.held.take();
        }
    }

    fn tell_lost(&mut self, call: &GuardedCall, happened: &str, effects: &mut impl WrapEffects) {
        let kind = if self.breaker.is_open() { FaultKind::BreakerOpen } else { FaultKind::ServerExited };
        let error_report = ErrorReport {
            kind,
            summary: happened.to_owned(),
            hint: "mend what error.data.stderrTail shows, then try again",
        };
        self.tell_call(call, error_report, None, effects);
    }

    /// Somebody needs the server: start it as soon as the back-off allows.
    pub(super) fn wake(&mut self) {
        if self.link == ServerLink::Down && self.restart_at.is_none() {
            self.counters.restarts += 1;
            let earliest = if stands("restart-delayed") { self.restart_not_before } else { self.now };
            self.restart_at = Some(earliest.max(self.now));
        }
    }

    fn go_live(&mut self, effects: &mut impl WrapEffects) {
        self.link = ServerLink::Live;
        for held in self.held.take() {
            match held {
                WaitingForServer::Line(line) => effects.to_server(&line),
                WaitingForServer::Call(wire_id) => {
                    if let Some(call) = self.calls.get_mut(&wire_id) {
                        call.held_for += self.now.saturating_sub(call.held_since);
                    }
                    self.send_held(&wire_id, effects);
                }
            }
        }
    }

    /// Sends the server a call that was held.
    pub(super) fn send_held(&mut self, wire_id: &Id, effects: &mut impl WrapEffects) {
        if let Some(line) = self.calls.send_held(wire_id) {
            effects.to_server(&line);
        }
    }

    /// An answer to a request of our own.
    pub(super) fn own_answered(
        &mut self,
        own: OwnRequest,
        outcome: &ResponseOutcome<'_>,
        effects: &mut impl WrapEffects,
    ) {
        if own != OwnRequest::Handshake {
            return;
        }
        if let ResponseOutcome::Error(error) = outcome
            && stands("refused-replay-noticed")
        {
            tracing::warn!(server = self.name, "refused the replayed `initialize`: {}", error.get());
            return self.ask_to_stop();
        }
        let deadline = self.now + self.limits.request_timeout;
        let WrapSession { client, own_requests, calls, questions, local_jobs, .. } = self;
        let is_free = |id: &Id| calls.is_free(id) && questions.is_free(id) && !local_jobs.has(id);
        let lines = client.session().sequel(|| {
            let id = own_requests.next_id(is_free);
            own_requests.register(id.clone(), deadline);
            id
        });
        lines.iter().for_each(|line| effects.to_server(line));
        tracing::info!(server = self.name, "is back and has been told the session again");
        effects.show(&format!("`{}` is back", self.name));
        self.go_live(effects);
    }

    /// A call's deadline has passed: its caller is told, the server is told, a late answer goes nowhere.
    pub(super) fn call_expired(
        &mut self,
        wire_id: &Id,
        mut call: GuardedCall,
        effects: &mut impl WrapEffects,
    ) {
        self.tell_deadline(&call, effects);
        self.settle_trial(wire_id);
        let token = call.token.take();
        self.tokens.end(token);
        if call.role == Role::Initialize && stands("handshake-never-cancelled") {
            // Never cancelled (protocol.md 3.1), and never killed for it: a slow start may be an installation, and
            // throwing it away would make the next start as slow (peers.md 3.1 I).
            self.start_expired = true;
        } else if call.sent && stands("expired-cancelled-at-server") {
            self.cancel_at_server(wire_id, "unhang: no answer in time", effects);
        } else {
            self.calls.await_nothing(wire_id);
        }
    }

    /// The trial request ended without an answer; the next may try.
    pub(super) fn settle_trial(&mut self, wire_id: &Id) {
        if self.trial.as_ref() == Some(wire_id) {
            self.end_trial();
        }
    }

    pub(super) fn end_trial(&mut self) {
        if self.trial.take().is_some() && stands("unanswered-trial-frees") {
            self.breaker.trial_abandoned(self.now);
        }
    }

    /// Health is watched while the server is up, the handshake is done, and nothing is in flight either way.
    pub(super) fn watches_health(&self) -> bool {
        self.client.allows_probes()
            && self.link == ServerLink::Live
            && self.process_alive
            && !self.stop_asked
            && self.end == WrapEnd::None
            && (self.questions.is_empty() || !stands("asking-is-not-idle"))
            && (self.calls.server_is_idle() || !stands("busy-is-not-idle"))
    }

    pub(super) fn check_health(&mut self, effects: &mut impl WrapEffects) {
        match self.health.tick(self.now, || effects.processor_time()) {
            Advice::Wait => {}
            Advice::Probe => {
                let id = self.own_id();
                // Its deadline only cleans up; the misses are counted by `Health`.
                let deadline = self.now + self.limits.health_interval;
                let line = self.client.probe(&id);
                self.own_requests.register(id, deadline);
                effects.to_server(&line);
            }
            Advice::Restart(misses) => {
                let text = format!("`{}` left {misses} health checks unanswered and is restarted", self.name);
                tracing::warn!(server = self.name, "{text}");
                effects.show(&text);
                self.replace_server();
            }
        }
    }
}
