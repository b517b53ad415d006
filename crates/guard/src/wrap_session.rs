//! The guard's state and its life: pure, driven by events, without a clock or a descriptor of its own.
//!
//! Theory of operation. The owner tells the session what happened, with the time since its start, and hands in an
//! [`WrapEffects`] through which lines leave at once. After each event the owner carries out the [`WrapAction`]s that have come up
//! and asks [`WrapSession::next_tick`] when to call [`WrapSession::tick`] at the latest.
//!
//! ```text
//! ServerLink:  Live ──exit──► Down ──delay, demand──► (spawn) ──► Replaying ──handshake answered──► Live
//! End:   None ──eof──► Draining ──all answered, or grace──► Stopping ──server gone──► Over
//!        None ──signal, client gone──────────────────────► Stopping
//!        None ──never came up──► Unstartable ──one request told, or grace──► Over
//! ```

use std::{collections::VecDeque, time::Duration};

use unhang_switches::stands;
use unhang_wire::Id;

pub use super::effects::{JobNews, WrapAction, WrapEffects};
use super::{
    calls::{CallEvent, CallTable, Role},
    client_profile::ClientProfile,
    held_input::HeldInput,
    local_jobs::LocalJobs,
    offers::Offers,
    own_requests::{OwnRequest, OwnRequests},
    progress::ProgressTokens,
    questions::ServerQuestions,
    quiet::QuietNotifications,
};
use unhang_core::{
    batch::Batches, breaker::Breaker, config::STOP_SLACK, exit, health::Health, junk::Junk, limits::Limits,
    units::in_words,
};

/// What was counted in the life of a guard; shown at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WrapCounters {
    /// Requests of the client.
    pub requests: u64,
    /// Requests that were answered by the server.
    pub answered: u64,
    /// Requests that were answered with an error of ours.
    pub faults: u64,
    /// Lines of the server's stdout that were no messages.
    pub junk: u64,
    /// Answers whose id had the wrong type and was put right.
    pub repaired_ids: u64,
    /// Answers that nobody had asked for.
    pub unknown_ids: u64,
    /// Answers that came after their request was cancelled or expired.
    pub late_answers: u64,
    /// Notifications that were kept from the client.
    pub dropped_notifications: u64,
    /// Requests that were sent again after a restart.
    pub retried: u64,
    /// Times the server was started again.
    pub restarts: u64,
}

/// The way to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ServerLink {
    /// Lines go straight through.
    Live,
    /// A fresh process is being told the session; lines are held.
    Replaying,
    /// No process; lines are held.
    Down,
}

/// The way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WrapEnd {
    None,
    Draining { until: Duration, code: u8 },
    Unstartable { until: Duration },
    Stopping { until: Duration, code: u8 },
    Over,
}

/// The session. See the module's text.
#[derive(Debug)]
pub struct WrapSession {
    pub(super) name: String,
    pub(super) limits: Limits,
    pub(super) now: Duration,
    pub(super) counters: WrapCounters,
    pub(super) actions: VecDeque<WrapAction>,

    // The client's side.
    pub(super) calls: CallTable,
    pub(super) batches: Batches,
    pub(super) client: ClientProfile,
    pub(super) tokens: ProgressTokens,
    /// What is ours beside what the server has, where somebody keeps jobs.
    pub(super) offers: Option<Box<Offers>>,
    pub(super) local_jobs: LocalJobs,
    pub(super) last_order: u64,

    // The server's side.
    pub(super) questions: ServerQuestions,
    pub(super) own_requests: OwnRequests,
    pub(super) breaker: Breaker,
    pub(super) trial: Option<Id>,
    pub(super) health: Health,
    pub(super) link: ServerLink,
    pub(super) process_alive: bool,
    pub(super) spawned_at: Duration,
    pub(super) answered_ever: bool,
    pub(super) start_expired: bool,
    pub(super) stop_asked: bool,
    pub(super) restart_at: Option<Duration>,
    pub(super) restart_not_before: Duration,
    /// One restart without anybody asking; earned anew by each answered request.
    pub(super) may_restart_unasked: bool,
    pub(super) held: HeldInput,
    pub(super) junk: Junk,
    pub(super) quiet: QuietNotifications,

    pub(super) end: WrapEnd,
    pub(super) start_fault: Option<StartFault>,
}

/// Why the server never came up.
#[derive(Clone, Debug)]
pub(super) struct StartFault {
    pub happened: String,
    pub exit: Option<String>,
}

impl WrapSession {
    /// A guard at time zero that wants its server started. `seed` only varies the back-off.
    pub fn new(name: impl Into<String>, limits: Limits, seed: u64) -> WrapSession {
        WrapSession {
            name: name.into(),
            now: Duration::ZERO,
            counters: WrapCounters::default(),
            actions: VecDeque::from([WrapAction::StartServer]),
            calls: CallTable::default(),
            batches: Batches::default(),
            client: ClientProfile::default(),
            tokens: ProgressTokens::default(),
            offers: None,
            local_jobs: LocalJobs::default(),
            last_order: 0,
            questions: ServerQuestions::default(),
            own_requests: OwnRequests::default(),
            breaker: Breaker::new(&limits, seed),
            trial: None,
            health: Health::new(&limits, Duration::ZERO),
            link: ServerLink::Live,
            process_alive: false,
            spawned_at: Duration::ZERO,
            answered_ever: false,
            start_expired: false,
            stop_asked: false,
            restart_at: None,
            restart_not_before: Duration::ZERO,
            may_restart_unasked: true,
            held: HeldInput::default(),
            junk: Junk::default(),
            quiet: QuietNotifications::default(),
            end: WrapEnd::None,
            start_fault: None,
            limits,
        }
    }

    /// What is to be done next, until there is nothing.
    pub fn next_action(&mut self) -> Option<WrapAction> {
        self.actions.pop_front()
    }

    /// What was counted so far.
    pub fn counters(&self) -> WrapCounters {
        self.counters
    }

    /// Requests of the client that are not answered yet.
    pub fn in_flight(&self) -> usize {
        self.calls.len() + self.local_jobs.len()
    }

    /// False while the client must not be read: it does not read either, and its own errors would pile up.
    pub fn reads_client(&self, effects: &impl WrapEffects) -> bool {
        effects.client_backlog() <= self.limits.queue_bytes.saturating_mul(2)
            || !stands("unreading-client-unread")
    }

    /// False while the server is held back because the client does not read (promise 3).
    pub fn reads_server(&self, effects: &impl WrapEffects) -> bool {
        effects.client_backlog() <= self.limits.queue_bytes || !stands("server-held-back")
    }

    /// False while the server is held back: its answers may have come long ago, nobody reads them here.
    fn is_judged(&self, effects: &impl WrapEffects) -> bool {
        self.reads_server(effects) || !stands("held-back-is-not-judged")
    }

    /// When [`WrapSession::tick`] is due at the latest.
    pub fn next_tick(&self) -> Option<Duration> {
        let end = match self.end {
            WrapEnd::Draining { until, .. } if stands("eof-grace-ends") => Some(until),
            WrapEnd::Unstartable { until } if stands("unasked-failure-ends") => Some(until),
            WrapEnd::Stopping { until, .. } if stands("stop-ends") => Some(until),
            _ => None,
        };
        let restart = self.restart_at.filter(|_| !self.process_alive || !stands("one-process-at-a-time"));
        let health = self.watches_health() && stands("health-checked");
        [
            end,
            restart,
            health.then(|| self.health.next_tick()),
            self.calls.next_deadline().filter(|_| stands("call-deadline")),
            self.questions.next_deadline().filter(|_| stands("question-deadline")),
            self.own_requests.next_deadline().filter(|_| stands("replay-deadline")),
            self.local_jobs.next_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Duration, effects: &mut impl WrapEffects) {
        self.now = now;
        self.expire(effects);
        match self.end {
            WrapEnd::Draining { until, code } if now >= until => {
                self.stop(self.now, code, "the client closed its stream", effects);
            }
            WrapEnd::Unstartable { until } if now >= until => self.finish(exit::UNREACHABLE, effects),
            WrapEnd::Stopping { until, code } if now >= until => self.finish(code, effects),
            _ => {}
        }
        let may_start = !self.process_alive || !stands("one-process-at-a-time");
        if may_start && self.restart_at.is_some_and(|at| now >= at) {
            self.restart_at = None;
            self.actions.push_back(WrapAction::StartServer);
        }
        if self.watches_health() {
            if self.is_judged(effects) {
                self.check_health(effects);
            } else {
                self.health.life(self.now);
            }
        }
    }

    /// The client's stdin ended: what is in flight may still be answered for a while.
    pub fn client_end(&mut self, now: Duration, effects: &mut impl WrapEffects) {
        self.now = now;
        match self.end {
            WrapEnd::None => {
                let never_started =
                    self.start_expired && !self.answered_ever && stands("silent-start-told-by-exit");
                let code = if never_started { exit::DEADLINE } else { exit::DONE };
                self.end = WrapEnd::Draining { until: now + self.limits.eof_grace, code };
                self.check_drained(effects);
            }
            WrapEnd::Unstartable { .. } => self.finish(exit::UNREACHABLE, effects),
            _ => {}
        }
    }

    /// Ends now: a signal, or the client reads no more. What is in flight is answered first.
    pub fn stop(&mut self, now: Duration, code: u8, cause: &str, effects: &mut impl WrapEffects) {
        self.now = now;
        if matches!(self.end, WrapEnd::Stopping { .. } | WrapEnd::Over) && stands("first-outcome-stays") {
            return;
        }
        let never_started =
            matches!(self.end, WrapEnd::Unstartable { .. }) && stands("failed-start-outlasts-signal");
        let code = if never_started { exit::UNREACHABLE } else { code };
        self.end = WrapEnd::Stopping { until: now + self.limits.stop_limit() + STOP_SLACK, code };
        // A subscription ends when the server hears of the end, and then it is the server that answers it.
        let told_now: Vec<Id> = (self.calls.iter())
            .filter(|(_, call)| {
                call.role != Role::Listen || !self.process_alive || !stands("subscription-ended-by-server")
            })
            // What is a job ends with whoever keeps it.
            .filter(|(_, call)| !call.is_job && stands("told-before-the-stop"))
            .map(|(id, _)| id.clone())
            .collect();
        for id in told_now {
            if let Some(call) = self.calls.cancel(&id) {
                self.tell_shutting_down(&call, cause, effects);
            }
        }
        self.end_job_server_requests(cause, effects);
        self.release_quiet(effects);
        if self.process_alive {
            self.ask_to_stop();
        } else {
            self.finish(code, effects);
        }
    }

    /// The client waits for nothing but what ends with the session.
    pub(super) fn is_idle(&self) -> bool {
        self.calls.is_idle() && self.local_jobs.is_idle()
    }

    /// Once the client has ended and nothing is in flight, the server is let go.
    pub(super) fn check_drained(&mut self, effects: &mut impl WrapEffects) {
        if let WrapEnd::Draining { code, .. } = self.end
            && (self.is_idle() || !stands("drained-before-the-stop"))
            && stands("drained-is-the-end")
        {
            self.stop(self.now, code, "the client closed its stream", effects);
        }
    }

    pub(super) fn finish(&mut self, code: u8, effects: &mut impl WrapEffects) {
        if self.end != WrapEnd::Over {
            self.end = WrapEnd::Over;
            let unanswered = self.calls.take_all().into_iter().filter(|(_, call)| !call.is_job);
            for (_, call) in unanswered.filter(|_| stands("nothing-unanswered-at-the-end")) {
                self.tell_shutting_down(&call, "the session is over", effects);
            }
            self.end_job_server_requests("the session is over", effects);
            // A start that was due in the same moment would be for nobody.
            self.actions.retain(|action| *action != WrapAction::StartServer);
            self.actions.push_back(WrapAction::Exit(code));
        }
    }

    pub(super) fn ask_to_stop(&mut self) {
        if !self.stop_asked {
            self.stop_asked = true;
            self.actions.push_back(WrapAction::StopServer);
        }
    }

    /// Enters the replayed `initialize`, which has as long as any start.
    pub(super) fn await_handshake(&mut self, id: Id) {
        self.own_requests.register_handshake(id, self.now + self.limits.start_timeout);
    }

    fn expire(&mut self, effects: &mut impl WrapEffects) {
        while let Some(event) = self.calls.next_event(self.now, !self.questions.is_empty(), effects) {
            match event {
                CallEvent::PromotionDue(wire_id) => self.order(&wire_id),
                CallEvent::Expired(wire_id, call) => self.call_expired(&wire_id, *call, effects),
            }
        }
        while let Some((client_side_id, question)) = self.questions.expire(self.now) {
            self.question_expired(&client_side_id, &question, effects);
        }
        self.expire_job_server_requests(effects);
        while let Some((id, own)) = self.own_requests.expire(self.now) {
            if own == OwnRequest::Handshake && !self.is_judged(effects) {
                let _not_late = self.own_requests.complete(&id);
                self.await_handshake(id);
            } else if own == OwnRequest::Handshake {
                tracing::warn!(
                    server = self.name,
                    "no answer to the replayed `initialize` within {}",
                    in_words(self.limits.start_timeout)
                );
                self.ask_to_stop();
            }
        }
        self.check_drained(effects);
    }

    /// Keeps a line of stdout that was no message, counts it and shows it (promise 2).
    pub(super) fn quarantine(&mut self, line: &[u8], why: &str, effects: &mut impl WrapEffects) {
        self.counters.junk += 1;
        let text = self.junk.keep(line);
        tracing::warn!(target: "unhang::junk", "MCP server '{}' stdout ({why}): {text}", self.name);
        effects.show(&format!("`{}` wrote to stdout what is {why}: {text}", self.name));
    }

    /// Delivers what was kept back while a call ran.
    pub(super) fn release_quiet(&mut self, effects: &mut impl WrapEffects) {
        self.counters.dropped_notifications += self.quiet.release(effects);
    }

    /// Gives an id for a request of our own that nobody else uses at the moment, nor did for one whose answer may still come.
    pub(super) fn own_id(&mut self) -> Id {
        let WrapSession { own_requests, calls, questions, local_jobs, .. } = self;
        own_requests.next_id(|id| calls.is_free(id) && questions.is_free(id) && !local_jobs.has(id))
    }
}
