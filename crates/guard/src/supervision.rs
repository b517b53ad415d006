//! The server's process as the session sees it: started, judged, restarted, given up.
//!
//! ```text
//! Live ──exit──► Down ──delay, demand──► (spawn) ──► Replaying ──handshake answered──► Live
//! ```
//!
//! Invariants: there is at most one process. No server is restarted over and over while nobody needs it. A caller's deadline never stops a
//! server (promise 8).

use std::time::Duration;

use unhang_core::{
    exit,
    fault::Uselessness,
    health::{Advice, Health},
    limits::Limits,
};

/// The way to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerLink {
    /// Lines go straight through.
    Live,
    /// A fresh process is being told the session. Lines are held.
    Replaying,
    /// There is no process. Lines are held.
    Down,
}

/// The reason why the server never came up.
#[derive(Clone, Debug)]
pub(super) struct StartFault {
    pub happened: String,
    pub exit: Option<String>,
}

/// The known facts about the process. See the module's text.
#[derive(Debug)]
pub(super) struct ServerSupervision {
    link: ServerLink,
    process_alive: bool,
    spawned_at: Duration,
    answered_ever: bool,
    start_expired: bool,
    start_fault: Option<StartFault>,
    stop_asked: bool,
    /// Why the process is useless, if it still runs.
    useless: Option<Uselessness>,
    restart_at: Option<Duration>,
    restart_not_before: Duration,
    /// Whether one restart is allowed although nobody needs the server. Each answered request earns it anew.
    may_restart_unasked: bool,
    health: Health,
}

impl ServerSupervision {
    /// Begins with a server that is about to be started for the first time. Lines for it wait in its pipe.
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            link: ServerLink::Live,
            process_alive: false,
            spawned_at: Duration::ZERO,
            answered_ever: false,
            start_expired: false,
            start_fault: None,
            stop_asked: false,
            useless: None,
            restart_at: None,
            restart_not_before: Duration::ZERO,
            may_restart_unasked: true,
            health: Health::new(limits, Duration::ZERO),
        }
    }

    /// Notes that a process was spawned.
    pub(super) fn spawned(&mut self, now: Duration, limits: &Limits) {
        self.process_alive = true;
        self.stop_asked = false;
        self.useless = None;
        self.spawned_at = now;
        self.health = Health::new(limits, now);
    }

    /// Notes that the process and everything that it left behind are gone.
    pub(super) fn gone(&mut self) {
        self.process_alive = false;
    }

    pub(super) fn link(&self) -> ServerLink {
        self.link
    }

    pub(super) fn set_link(&mut self, link: ServerLink) {
        self.link = link;
    }

    pub(super) fn is_live(&self) -> bool {
        self.link == ServerLink::Live
    }

    /// Returns whether there is a process, or anything that it left behind.
    pub(super) fn is_process_alive(&self) -> bool {
        self.process_alive
    }

    /// Returns whether there is a process that is not being stopped.
    pub(super) fn is_of_use(&self) -> bool {
        self.process_alive && !self.stop_asked
    }

    /// Notes that the process should be stopped. Returns false if that was noted before.
    pub(super) fn ask_to_stop(&mut self) -> bool {
        !std::mem::replace(&mut self.stop_asked, true)
    }

    /// Notes why the process is useless, for the report of its end.
    pub(super) fn note_useless(&mut self, now: Duration, why: &'static str) {
        self.useless = Some(Uselessness { since: now, why });
    }

    /// Returns why the guard ended the process, if it did and the process has ended now.
    pub(super) fn reason_of_end(&self, now: Duration, stop_grace: Duration) -> Option<&'static str> {
        self.useless?.reason_of_end(now, stop_grace)
    }

    /// Notes that the process is useless. Requests from now on wait for the next one.
    pub(super) fn replace(&mut self) {
        self.link = ServerLink::Down;
    }

    /// Notes an answer to a request of the client.
    pub(super) fn answered(&mut self) {
        self.answered_ever = true;
    }

    pub(super) fn has_answered(&self) -> bool {
        self.answered_ever
    }

    /// Notes that the server works: it may be restarted once more although nobody needs it.
    pub(super) fn earn_restart(&mut self) {
        self.may_restart_unasked = true;
    }

    /// Notes that the server did not answer some request of the client in time. It need not be a handshake: a client of 2026-07-28 makes
    /// none.
    pub(super) fn start_expired(&mut self) {
        self.start_expired = true;
    }

    /// Returns the exit code of a session whose client has ended. It shows whether the server got requests and never answered any.
    pub(super) fn code_of_drained(&self, is_asked_still: bool) -> u8 {
        let is_silent = !self.answered_ever && (self.start_expired || is_asked_still);
        if is_silent { exit::DEADLINE } else { exit::DONE }
    }

    /// Returns for how long the process has run.
    pub(super) fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.spawned_at)
    }

    /// Returns how long a request with this `limit` may take. A server that is still starting has until its start deadline, whatever the
    /// first request is.
    pub(super) fn with_start(&self, limit: Duration, now: Duration, start_timeout: Duration) -> Duration {
        if self.answered_ever {
            return limit;
        }
        limit.max((self.spawned_at + start_timeout).saturating_sub(now))
    }

    /// Notes that the server never came up.
    pub(super) fn give_up_start(&mut self, fault: StartFault) {
        self.start_fault = Some(fault);
        self.link = ServerLink::Down;
        // The server may have been deaf before, and somebody may have needed the next one.
        self.restart_at = None;
    }

    /// Returns why the server never came up, once it is given up.
    pub(super) fn start_fault(&self) -> Option<&StartFault> {
        self.start_fault.as_ref()
    }

    /// Notes that a server which had worked is gone. The next start waits for `delay`.
    pub(super) fn lost(&mut self, now: Duration, delay: Duration, may_restart: bool) {
        self.link = ServerLink::Down;
        self.restart_not_before = now + delay;
        // Somebody may have needed the next process while this one was still being stopped.
        let early_wish = self.restart_at.filter(|_| may_restart);
        let waits = self.restart_not_before;
        self.restart_at = early_wish.map(|at| at.max(waits));
    }

    /// Takes the one restart that needs no reason. Returns false if it was taken before, unless somebody needs the server.
    pub(super) fn take_restart(&mut self, is_asked_for: bool) -> bool {
        let may_restart = is_asked_for || self.may_restart_unasked;
        self.may_restart_unasked &= !may_restart;
        may_restart
    }

    /// Plans a start as soon as the back-off allows, because somebody needs the server. Returns true if none was planned.
    pub(super) fn wake(&mut self, now: Duration) -> bool {
        let is_asleep = self.link == ServerLink::Down && self.restart_at.is_none();
        if is_asleep {
            let earliest = self.restart_not_before;
            self.restart_at = Some(earliest.max(now));
        }
        is_asleep
    }

    /// Returns when the next process should be started.
    pub(super) fn next_start(&self) -> Option<Duration> {
        self.restart_at.filter(|_| !self.process_alive)
    }

    /// Takes a start that is due. Returns false if none is.
    pub(super) fn take_due_start(&mut self, now: Duration) -> bool {
        let is_due = self.next_start().is_some_and(|at| now >= at);
        if is_due {
            self.restart_at = None;
        }
        is_due
    }

    /// Notes that the server has sent anything.
    pub(super) fn life(&mut self, now: Duration) {
        self.health.life(now);
    }

    /// Returns when [`ServerSupervision::check_health`] is due.
    pub(super) fn next_health_check(&self) -> Duration {
        self.health.next_tick()
    }

    /// Judges a server that works on nothing.
    pub(super) fn check_health(
        &mut self,
        now: Duration,
        processor_time: impl FnOnce() -> Option<Duration>,
    ) -> Advice {
        self.health.tick(now, processor_time)
    }
}
