//! The server's process as the machine sees it: started, told the session again, judged, restarted, given up.
//!
//! Invariants: what was in flight when a process died is answered at once; only lists and reads are sent again, once
//! (X-14); there is at most one process; nothing is restarted over and over while nobody asks; a caller's deadline never
//! stops a server (promise 8).

use std::{collections::VecDeque, time::Duration};

use unhang_proc::server::{Exit, Swept};
use unhang_switches::stands;
use unhang_wire::{Id, Outcome};

use super::{
    from_client::cancelled,
    machine::{Call, End, Era, Held, Link, Machine, Outside, Own, Role, StartFault},
};
use unhang_core::{
    exit,
    fault::Kind,
    health::{Advice, Health},
    queue::Class,
    refusal::Telling,
    units::in_words,
};

impl Machine {
    /// A process was spawned. If there is a session, it is told first.
    pub fn server_spawned(&mut self, now: Duration, outside: &mut impl Outside) {
        self.now = now;
        self.process_alive = true;
        self.stop_asked = false;
        self.spawned_at = now;
        self.health = Health::new(&self.limits, now);
        if matches!(self.end, End::Stopping { .. } | End::Over) {
            return self.ask_to_stop();
        }
        let id = self.own_id();
        let client_shakes_hands =
            self.calls.iter().any(|(_, call)| call.role == Role::Initialize && !call.sent);
        match self.session.opening(&id) {
            Some(line)
                if self.link == Link::Down
                    && (!client_shakes_hands || !stands("one-handshake"))
                    && stands("session-replayed") =>
            {
                self.link = Link::Replaying;
                self.await_handshake(id);
                outside.to_server(&line);
            }
            _ => self.go_live(outside),
        }
    }

    /// The program could not be run at all.
    pub fn start_failed(&mut self, now: Duration, error: &str, outside: &mut impl Outside) {
        self.now = now;
        self.process_alive = false;
        let happened = format!("`{}` could not be started: {error}", self.name);
        tracing::error!(server = self.name, "{happened}");
        if matches!(self.end, End::Stopping { .. }) && stands("failed-start-ends-the-stop") {
            self.finish(exit::UNREACHABLE, outside);
        } else if self.answered_ever {
            self.lose_server(&happened, None, outside);
        } else {
            self.give_up_start(StartFault { happened, exit: None }, outside);
        }
    }

    /// The process has ended and its last words have been read. `Swept` comes later.
    pub fn server_exited(&mut self, now: Duration, exit: &Exit, outside: &mut impl Outside) {
        self.now = now;
        let text = exit.to_string();
        tracing::info!(server = self.name, "ended ({text})");
        let is_needed = matches!(self.end, End::None | End::Draining { .. });
        if !is_needed && stands("asked-end-is-expected") {
            self.link = Link::Down;
        } else if !self.answered_ever && stands("death-at-start-told") {
            let happened = format!("`{}` ended ({text}) before it answered anything", self.name);
            self.give_up_start(StartFault { happened, exit: Some(text) }, outside);
        } else {
            outside.show(&format!("`{}` ended unexpectedly ({text})", self.name));
            self.lose_server(&format!("`{}` ended ({text})", self.name), Some(exit), outside);
        }
    }

    /// The process and everything that it left behind are gone; another may be started.
    pub fn server_gone(&mut self, now: Duration, swept: Swept, outside: &mut impl Outside) {
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
        if let End::Stopping { code, .. } = self.end
            && stands("gone-is-the-end")
        {
            self.finish(code, outside);
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
            self.link = Link::Down;
        }
    }

    /// The server never came up: whoever waits is told, and a client that has not asked yet is given the time to.
    fn give_up_start(&mut self, fault: StartFault, outside: &mut impl Outside) {
        outside.show(&fault.happened);
        self.start_fault = Some(fault);
        self.link = Link::Down;
        // It may have been deaf before, and somebody may have asked for the next one.
        self.restart_at = None;
        let waiting = self.calls.take_all();
        for (_, call) in &waiting {
            self.tell_start_failed(call, outside);
        }
        if waiting.is_empty() && self.end == End::None && stands("failed-start-waits-for-a-question") {
            self.end = End::Unstartable { until: self.now + self.limits.eof_grace };
        } else {
            self.finish(exit::UNREACHABLE, outside);
        }
    }

    /// A server that had worked is gone: answers, keeps what is safe to repeat, and plans the restart.
    fn lose_server(&mut self, happened: &str, exit: Option<&Exit>, outside: &mut impl Outside) {
        self.link = Link::Down;
        let opened = stands("deaths-counted") && self.breaker.failed(self.now);
        self.trial = None;
        if stands("dead-replay-forgotten") {
            let _forgotten = self.own.take_all();
        }
        self.withdraw_asks(outside);
        let may_restart = self.end == End::None && !opened;
        let delay = self.breaker.delay();
        self.restart_not_before = self.now + delay;
        // Somebody may have asked for the next process while this one was still being stopped.
        let early_wish = self.restart_at.filter(|_| may_restart || !stands("no-start-while-fenced-off"));
        let waits = if stands("early-wish-waits") { self.restart_not_before } else { self.now };
        self.restart_at = early_wish.map(|at| at.max(waits));
        if opened {
            tracing::error!(server = self.name, failures = self.breaker.failures(), "fenced off: {happened}");
            outside.show(&format!(
                "`{}` failed {} times in a row and is left alone for {}",
                self.name,
                self.breaker.failures(),
                in_words(self.limits.breaker_cooldown)
            ));
        }
        self.sort_out_calls(happened, exit, may_restart, outside);
        let asked_for = !self.calls.is_empty();
        if may_restart && (asked_for || self.may_restart_unasked || !stands("restarted-unasked-once")) {
            self.may_restart_unasked = false;
            self.wake();
        }
        self.after_call(outside);
    }

    /// Calls that were with the dead server are answered, or wait to be sent again.
    fn sort_out_calls(
        &mut self,
        happened: &str,
        exit: Option<&Exit>,
        may_restart: bool,
        outside: &mut impl Outside,
    ) {
        let mut again = VecDeque::new();
        for (wire_id, mut call) in self.calls.take_all() {
            let resend = call.sent && call.line.is_some() && call.may_be_sent_again();
            if may_restart && (!call.sent || resend) {
                if call.sent {
                    call.retried = true;
                    call.sent = false;
                    call.held_since = self.now;
                    self.counters.retried += 1;
                    self.held_bytes += call.line.as_ref().map_or(0, Vec::len);
                    again.push_back(Held::Call(wire_id.clone()));
                }
                let _registered = self.calls.register(wire_id, call.next_moment(), call);
            } else if let (Some(exit), true) = (exit, call.sent) {
                self.tell_exited(&call, exit, self.end == End::None, outside);
            } else {
                self.tell_lost(&call, happened, outside);
            }
        }
        again.append(&mut self.held);
        self.held = again;
        if !may_restart {
            self.held.clear();
            self.held_bytes = 0;
        }
    }

    fn tell_lost(&mut self, call: &Call, happened: &str, outside: &mut impl Outside) {
        let kind = if self.breaker.is_open() { Kind::BreakerOpen } else { Kind::ServerExited };
        let telling = Telling {
            kind,
            happened: happened.to_owned(),
            hint: "mend what error.data.stderrTail shows, then try again",
        };
        self.tell_call(call, telling, None, outside);
    }

    /// The client need not answer a process that is gone; if it does all the same, its answer goes nowhere.
    fn withdraw_asks(&mut self, outside: &mut impl Outside) {
        let ids: Vec<Id> = self.asks.iter().map(|(id, _)| id.clone()).collect();
        for id in ids.into_iter().filter(|_| stands("dead-questions-withdrawn")) {
            let _withdrawn = self.asks.cancel(&id);
            outside.to_client(Class::Kept, &cancelled(&id, "unhang: the server that asked has ended"));
        }
    }

    /// Somebody needs the server: start it as soon as the back-off allows.
    pub(super) fn wake(&mut self) {
        if self.link == Link::Down && self.restart_at.is_none() {
            self.counters.restarts += 1;
            let earliest = if stands("restart-delayed") { self.restart_not_before } else { self.now };
            self.restart_at = Some(earliest.max(self.now));
        }
    }

    fn go_live(&mut self, outside: &mut impl Outside) {
        self.link = Link::Live;
        self.held_bytes = 0;
        for held in std::mem::take(&mut self.held) {
            match held {
                Held::Line(line) => outside.to_server(&line),
                Held::Call(wire_id) => {
                    if let Some(call) = self.calls.get_mut(&wire_id) {
                        call.held_for += self.now.saturating_sub(call.held_since);
                    }
                    self.send_held(&wire_id, outside);
                }
            }
        }
    }

    pub(super) fn send_held(&mut self, wire_id: &Id, outside: &mut impl Outside) {
        // It may have been cancelled or have expired while it was held.
        let Some(call) = self.calls.get_mut(wire_id).filter(|call| !call.sent || !stands("held-sent-once"))
        else {
            return;
        };
        call.sent = true;
        // Only what may be sent a second time is kept beyond the first.
        let line = if call.may_be_sent_again() { call.line.clone() } else { call.line.take() };
        if let Some(line) = line {
            outside.to_server(&line);
        }
    }

    /// An answer to a request of our own.
    pub(super) fn own_answered(&mut self, own: Own, outcome: &Outcome<'_>, outside: &mut impl Outside) {
        if own != Own::Handshake {
            return;
        }
        if let Outcome::Error(error) = outcome
            && stands("refused-replay-noticed")
        {
            tracing::warn!(server = self.name, "refused the replayed `initialize`: {}", error.get());
            return self.ask_to_stop();
        }
        let session = std::mem::take(&mut self.session);
        let lines = session.sequel(|| {
            let id = self.own_id();
            let deadline = Some(self.now + self.limits.request_timeout);
            let _registered = self.own.register(id.clone(), deadline, Own::Whatever);
            id
        });
        self.session = session;
        lines.iter().for_each(|line| outside.to_server(line));
        tracing::info!(server = self.name, "is back and has been told the session again");
        outside.show(&format!("`{}` is back", self.name));
        self.go_live(outside);
    }

    /// A call's deadline has passed: its caller is told, the server is told, a late answer goes nowhere.
    pub(super) fn call_expired(&mut self, wire_id: &Id, mut call: Call, outside: &mut impl Outside) {
        self.tell_deadline(&call, outside);
        self.settle_trial(wire_id);
        let token = call.token.take();
        self.bury_token(token);
        if call.role == Role::Initialize && stands("handshake-never-cancelled") {
            // Never cancelled (protocol.md 3.1), and never killed for it: a slow start may be an installation, and
            // throwing it away would make the next start as slow (peers.md 3.1 I).
            self.start_expired = true;
        } else if call.sent && stands("expired-cancelled-at-server") {
            self.cancel_at_server(wire_id, "unhang: no answer in time", outside);
        } else {
            let _never_answered = self.calls.complete(wire_id);
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
        let shaken = match self.era {
            _ if !stands("asked-after-the-handshake") => true,
            Era::Unknown => false,
            Era::Legacy => self.session.is_initialized(),
            Era::Modern => true,
        };
        shaken
            && self.link == Link::Live
            && self.process_alive
            && !self.stop_asked
            && self.end == End::None
            && (self.asks.is_empty() || !stands("asking-is-not-idle"))
            && (self.server_is_idle() || !stands("busy-is-not-idle"))
    }

    pub(super) fn check_health(&mut self, outside: &mut impl Outside) {
        match self.health.tick(self.now, || outside.processor_time()) {
            Advice::Wait => {}
            Advice::Probe => {
                let id = self.own_id();
                // Its deadline only cleans up; the misses are counted by `Health`.
                let deadline = Some(self.now + self.limits.health_interval);
                let line = self.probe(&id);
                let _registered = self.own.register(id, deadline, Own::Whatever);
                outside.to_server(&line);
            }
            Advice::Restart(misses) => {
                let text = format!("`{}` left {misses} health checks unanswered and is restarted", self.name);
                tracing::warn!(server = self.name, "{text}");
                outside.show(&text);
                self.replace_server();
            }
        }
    }

    /// The cheapest question of the client's era (protocol.md 3.1).
    fn probe(&self, id: &Id) -> Vec<u8> {
        let id = id.to_json();
        match &self.modern_version {
            Some(version) if self.era == Era::Modern && stands("asked-in-its-era") => {
                let version = serde_json::Value::from(version.as_str());
                let info = concat!(r#"{"name":"unhang","version":""#, env!("CARGO_PKG_VERSION"), r#""}"#);
                format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"method":"server/discover","params":{{"_meta":{{"io.modelcontextprotocol/protocolVersion":{version},"io.modelcontextprotocol/clientInfo":{info},"io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
                )
            }
            _ => format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#),
        }
        .into_bytes()
    }
}
