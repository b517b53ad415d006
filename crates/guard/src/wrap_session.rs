//! The guard's state and its life: pure, driven by events, without a clock or a descriptor of its own.
//!
//! Theory of operation. The owner tells the session each event, with the time since its start. Lines leave at once through [`WrapEffects`].
//! Then the owner carries out the pending [`WrapAction`]s. It calls [`WrapSession::tick`] by [`WrapSession::next_tick`] at the latest.
//!
//! The state lies in parts, each in the file of its subject. The session connects them. This file has the events of time, of the owner and
//! of the job bridge. `from_client` has those of the client, and `from_server` those of the server.

use std::{collections::VecDeque, time::Duration};

use unhang_core::{
    batch::BatchId,
    config::STOP_SLACK,
    exit,
    fault::{Evidence, Fault, FaultKind},
    health::Advice,
    junk::Junk,
    limits::Limits,
    refusal::{Addressee, ErrorReport},
    units::in_words,
};
use unhang_tools::service::JobServiceError;
use unhang_wire::{Id, compose, one_line};

use super::{
    added_capabilities::AddedCapabilities,
    answers::BatchedAnswers,
    call_report::CallReport,
    calls::{CallEvent, CallTable, GuardedCall, Role},
    client_profile::ClientProfile,
    deferred_notifications::DeferredNotifications,
    held_input::HeldInput,
    local_jobs::LocalJobs,
    own_requests::{OwnRequest, OwnRequests},
    progress::ProgressTokens,
    promotion::{JoinOutcome, PromotionOrders, WrapPromotionOrder},
    questions::ServerQuestions,
    server_breaker::ServerBreaker,
    session_phase::WrapPhase,
    supervision::ServerSupervision,
};
pub use super::{
    counters::WrapCounters,
    effects::{JobNews, WrapAction, WrapEffects},
};

/// The session. See the module's text.
#[derive(Debug)]
pub struct WrapSession {
    pub(super) name: String,
    pub(super) limits: Limits,
    pub(super) now: Duration,
    pub(super) counters: WrapCounters,
    pub(super) actions: VecDeque<WrapAction>,
    pub(super) phase: WrapPhase,

    // The client's side.
    pub(super) client: ClientProfile,
    pub(super) calls: CallTable,
    pub(super) progress_tokens: ProgressTokens,
    pub(super) answers: BatchedAnswers,
    pub(super) deferred_notifications: DeferredNotifications,

    // Jobs.
    /// The additions of the guard to the server's features, if calls may become jobs.
    pub(super) added_capabilities: Option<Box<AddedCapabilities>>,
    pub(super) local_jobs: LocalJobs,
    pub(super) promotion_orders: PromotionOrders,

    // The server's side.
    pub(super) server: ServerSupervision,
    pub(super) breaker: ServerBreaker,
    pub(super) questions: ServerQuestions,
    pub(super) own_requests: OwnRequests,
    pub(super) held_input: HeldInput,
    pub(super) junk: Junk,
}

impl WrapSession {
    /// Makes a guard at time zero that wants its server started. `seed` only varies the back-off.
    pub fn new(name: impl Into<String>, limits: Limits, seed: u64) -> WrapSession {
        WrapSession {
            name: name.into(),
            now: Duration::ZERO,
            counters: WrapCounters::default(),
            actions: VecDeque::from([WrapAction::StartServer]),
            phase: WrapPhase::Running,
            client: ClientProfile::default(),
            calls: CallTable::default(),
            progress_tokens: ProgressTokens::default(),
            answers: BatchedAnswers::default(),
            deferred_notifications: DeferredNotifications::default(),
            added_capabilities: None,
            local_jobs: LocalJobs::default(),
            promotion_orders: PromotionOrders::default(),
            server: ServerSupervision::new(&limits),
            breaker: ServerBreaker::new(&limits, seed),
            questions: ServerQuestions::default(),
            own_requests: OwnRequests::default(),
            held_input: HeldInput::default(),
            junk: Junk::default(),
            limits,
        }
    }

    /// Lets slow calls become jobs.
    #[must_use]
    pub fn with_jobs(self) -> WrapSession {
        WrapSession { added_capabilities: Some(Box::default()), ..self }
    }

    /// Returns the next action, or `None` if there is none.
    pub fn next_action(&mut self) -> Option<WrapAction> {
        self.actions.pop_front()
    }

    /// Returns the counters so far.
    pub fn counters(&self) -> WrapCounters {
        self.counters
    }

    /// Counts the requests of the client that are not answered yet.
    pub fn in_flight(&self) -> usize {
        self.calls.len() + self.local_jobs.len()
    }

    /// Returns whether the client may be read. If it does not read either, its own errors would pile up.
    pub fn reads_client(&self, effects: &impl WrapEffects) -> bool {
        effects.client_backlog() <= self.limits.queue_bytes.saturating_mul(2)
    }

    /// Returns whether the server may be read. It is held back while the client does not read (promise 3).
    pub fn reads_server(&self, effects: &impl WrapEffects) -> bool {
        effects.client_backlog() <= self.limits.queue_bytes
    }

    /// Returns whether the server may be judged. While it is held back its answers may wait unread.
    fn is_judged(&self, effects: &impl WrapEffects) -> bool {
        self.reads_server(effects)
    }

    /// Returns when [`WrapSession::tick`] is due at the latest.
    pub fn next_tick(&self) -> Option<Duration> {
        let health = self.watches_health();
        [
            self.phase.next_tick(),
            self.server.next_start(),
            health.then(|| self.server.next_health_check()),
            self.calls.next_deadline(),
            self.questions.next_deadline(),
            self.own_requests.next_deadline(),
            self.local_jobs.next_deadline(),
            self.added_capabilities.as_ref().and_then(|names| names.waits_for_tools(self.now)),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Does what is due at this time.
    pub fn tick(&mut self, now: Duration, effects: &mut impl WrapEffects) {
        self.now = now;
        self.expire(effects);
        match self.phase {
            WrapPhase::Draining { until } if now >= until => self.stop_drained(effects),
            WrapPhase::Unstartable { until } if now >= until => self.finish(exit::UNREACHABLE, effects),
            WrapPhase::Stopping { until, code } if now >= until => self.finish(code, effects),
            _ => {}
        }
        if self.server.take_due_start(now) {
            self.actions.push_back(WrapAction::StartServer);
        }
        if self.watches_health() {
            if self.is_judged(effects) {
                self.check_health(effects);
            } else {
                self.server.life(self.now);
            }
        }
    }

    /// Notes that the client's stdin ended. Requests in flight may still be answered for a while.
    pub fn client_end(&mut self, now: Duration, effects: &mut impl WrapEffects) {
        self.now = now;
        match self.phase {
            WrapPhase::Running => {
                self.phase = WrapPhase::Draining { until: now + self.limits.eof_grace };
                // The client that would hear of a job has ended, and the job would end with the session.
                let unsent = self.calls.keep_as_calls();
                unsent.iter().for_each(|wire_id| self.send_or_hold(wire_id, effects));
                self.stop_if_drained(effects);
            }
            WrapPhase::Unstartable { .. } => self.finish(exit::UNREACHABLE, effects),
            _ => {}
        }
    }

    /// Ends the session now: a signal came, or the client no longer reads. Requests in flight are answered first.
    pub fn stop(&mut self, now: Duration, code: u8, cause: &str, effects: &mut impl WrapEffects) {
        self.now = now;
        if matches!(self.phase, WrapPhase::Stopping { .. } | WrapPhase::Closed) {
            return;
        }
        let never_started = matches!(self.phase, WrapPhase::Unstartable { .. });
        let code = if never_started { exit::UNREACHABLE } else { code };
        self.phase = WrapPhase::Stopping { until: now + self.limits.stop_limit() + STOP_SLACK, code };
        let is_process_alive = self.server.is_process_alive();
        // The server goes on for its jobs, if a call holder follows.
        let has_jobs = self.calls.iter().any(|(_, call)| call.is_job);
        for (wire_id, call) in self.calls.cancel_for_stop(is_process_alive) {
            if has_jobs && call.sent {
                self.cancel_at_server(&wire_id, "unhang ends", effects);
            }
            self.fail_call(&call, self.report(&call).shutting_down(cause), None, effects);
        }
        self.end_local_requests(cause, effects);
        self.flush_deferred(effects);
        if is_process_alive {
            self.ask_to_stop();
        } else {
            self.finish(code, effects);
        }
    }

    /// Returns whether the client waits only for answers that come with the end of the session.
    pub(super) fn is_idle(&self) -> bool {
        self.calls.is_idle() && self.local_jobs.is_idle()
    }

    /// Stops the server once the client has ended and nothing is in flight.
    pub(super) fn stop_if_drained(&mut self, effects: &mut impl WrapEffects) {
        if let WrapPhase::Draining { .. } = self.phase
            && self.is_idle()
        {
            self.stop_drained(effects);
        }
    }

    /// Ends a session whose client has ended.
    fn stop_drained(&mut self, effects: &mut impl WrapEffects) {
        let code = self.server.code_of_drained(!self.calls.is_idle());
        self.stop(self.now, code, "the client closed its stream", effects);
    }

    /// Ends the session with this code.
    pub(super) fn finish(&mut self, code: u8, effects: &mut impl WrapEffects) {
        if self.phase != WrapPhase::Closed {
            self.phase = WrapPhase::Closed;
            let unanswered = self.calls.take_all().into_iter().filter(|(_, call)| !call.is_job);
            for (_, call) in unanswered {
                let error_report = self.report(&call).shutting_down("the session is over");
                self.fail_call(&call, error_report, None, effects);
            }
            self.end_local_requests("the session is over", effects);
            // A start that was due at the same moment would be useless.
            self.actions.retain(|action| *action != WrapAction::StartServer);
            self.actions.push_back(WrapAction::Exit(code));
        }
    }

    /// Refuses the requests at the local job server in its place, because the session ends.
    fn end_local_requests(&mut self, cause: &str, effects: &mut impl WrapEffects) {
        for (id, asked) in self.local_jobs.take_all() {
            self.refuse(asked.addressee(&id), asked.session_ended(cause), effects);
        }
    }

    /// Orders the process to be stopped.
    pub(super) fn ask_to_stop(&mut self) {
        if self.server.ask_to_stop() {
            self.actions.push_back(WrapAction::StopServer);
        }
    }

    /// Orders a useless process to be replaced.
    pub(super) fn replace_server(&mut self) {
        self.ask_to_stop();
        self.server.replace();
    }

    /// Plans a start of the server, if it is down, because somebody needs it.
    pub(super) fn wake(&mut self) {
        self.counters.restarts += u64::from(self.server.wake(self.now));
    }

    fn expire(&mut self, effects: &mut impl WrapEffects) {
        while let Some(event) = self.calls.next_event(self.now, !self.questions.is_empty(), effects) {
            match event {
                CallEvent::PromotionDue(wire_id) => self.promote(&wire_id),
                CallEvent::Expired(wire_id, call) => self.call_expired(&wire_id, *call, effects),
            }
        }
        while let Some((client_side_id, question)) = self.questions.expire(self.now) {
            self.question_expired(&client_side_id, &question, effects);
        }
        self.end_wait_for_tools(effects);
        while let Some((id, asked)) =
            self.local_jobs.expire(self.now, self.added_capabilities.as_deref_mut(), effects)
        {
            self.refuse(asked.addressee(&id), asked.deadline(self.now, &self.name), effects);
            self.after_call(effects);
        }
        while let Some(id) = self.own_requests.expire_handshake(self.now) {
            let start_timeout = self.limits.start_timeout;
            if self.is_judged(effects) {
                let limit = in_words(start_timeout);
                tracing::warn!(server = self.name, "no answer to the replayed `initialize` within {limit}");
                self.ask_to_stop();
            } else {
                self.own_requests.renew_handshake(id, self.now + start_timeout);
            }
        }
        self.stop_if_drained(effects);
    }

    /// Ends a call whose deadline has passed. The caller and the server are told. A late answer goes nowhere.
    fn call_expired(&mut self, wire_id: &Id, mut call: GuardedCall, effects: &mut impl WrapEffects) {
        if let Some(answer) = call.doubtful_answer.take() {
            self.progress_tokens.end(call.token.take());
            return self.fail_broken(&call, self.report(&call).bad_response(&answer.why), effects);
        }
        let question = self.questions.asked_since(call.since);
        let (summary, hint) = self.report(&call).deadline(
            &self.client,
            self.limits.call_timeout,
            self.server.has_answered(),
            question,
        );
        let error_report = ErrorReport { kind: FaultKind::Deadline, summary, hint: &hint };
        self.fail_call(&call, error_report, None, effects);
        self.breaker.settle_trial(wire_id, self.now);
        self.progress_tokens.end(call.token.take());
        self.server.start_expired();
        if call.role == Role::Initialize {
            // A handshake is never cancelled (protocol.md 3.1), and the server is never killed for it: a slow start may be an installation
            // (peers.md 3.1 I).
        } else if call.sent {
            self.cancel_at_server(wire_id, "unhang: no answer in time", effects);
        } else {
            self.calls.await_nothing(wire_id);
        }
    }

    /// Orders a job to be made of a call whose time has come.
    pub(super) fn promote(&mut self, wire_id: &Id) {
        let WrapSession { promotion_orders: orders, client, now, .. } = self;
        if let Some((call, added_capabilities)) =
            self.calls.get_mut(wire_id).zip(self.added_capabilities.as_mut())
            && let Some(promote) = call.order_promotion(wire_id, orders, added_capabilities, (*now, client))
        {
            self.actions.push_back(WrapAction::Promote(promote.into()));
        }
    }

    /// Answers a call that is a job on the disk now with `result`. Returns false if nobody waits for it, so that the job is useless.
    pub fn promoted(
        &mut self,
        now: Duration,
        (wire_id, order): (&Id, WrapPromotionOrder),
        (job, result): (&str, &str),
        effects: &mut impl WrapEffects,
    ) -> bool {
        self.now = now;
        let is_theirs = |call: &&mut GuardedCall| call.is_of(order) && !call.is_job;
        let Some(call) = self.calls.get_mut(wire_id).filter(is_theirs) else { return false };
        let promoted = call.become_job(wire_id, job, self.limits.job_timeout);
        tracing::info!(
            server = self.name,
            client = self.client.name(),
            job,
            "`{}` (id {}) continues as a job",
            call.method,
            promoted.client_id
        );
        let is_kept_back = promoted.is_a_task && !call.sent;
        self.calls.note_next_moment(wire_id);
        // Other requests do not wait for this one's verdict on the server, which may take hours.
        self.breaker.settle_trial(wire_id, self.now);
        self.calls.forget_name(&promoted.client_id);
        if let Some(token) = promoted.token {
            self.progress_tokens.give_to_job(token, wire_id, &self.calls);
        }
        if promoted.is_in_words {
            self.list_job_tools(effects);
        }
        if is_kept_back && self.phase.serves() {
            // A client that has the id may end this process at once, and the call would be lost.
            self.send_or_hold(wire_id, effects);
            effects.flush_server();
        }
        self.answer_with((&promoted.client_id, promoted.batch), result, effects);
        true
    }

    /// Notes that a call cannot become a job. A client that has asked for a task is told so. The server has not got that call.
    pub fn not_promoted(
        &mut self,
        now: Duration,
        (wire_id, order): (&Id, WrapPromotionOrder),
        why: &JobServiceError,
        effects: &mut impl WrapEffects,
    ) {
        self.now = now;
        let waits = |call: &GuardedCall| call.is_of(order) && !call.is_job && call.waits_for_its_task();
        if self.calls.get(wire_id).is_some_and(waits)
            && let Some(call) = self.calls.cancel(wire_id)
        {
            self.calls.await_nothing(wire_id);
            self.breaker.settle_trial(wire_id, self.now);
            self.progress_tokens.end(call.token.clone());
            self.fail_call(&call, call.not_kept(why), None, effects);
            self.after_call(effects);
        }
    }

    /// Returns whether a call still waits for the job that the order was about.
    pub fn waits_for_a_job(&self, wire_id: &Id, order: WrapPromotionOrder) -> bool {
        self.calls.get(wire_id).is_some_and(|call| call.waits_for_a_job(order))
    }

    /// Takes the outcome for a call that waits for a job.
    pub fn joined(
        &mut self,
        now: Duration,
        (wire_id, order): (&Id, WrapPromotionOrder),
        outcome: JoinOutcome,
        effects: &mut impl WrapEffects,
    ) {
        self.now = now;
        let is_theirs = |call: &&mut GuardedCall| call.waits_for_a_job(order);
        let may_become_a_job = self.phase == WrapPhase::Running;
        let Some(call) = self.calls.get_mut(wire_id).filter(is_theirs) else { return };
        let is_job_still = matches!(outcome, JoinOutcome::Still(_));
        match outcome {
            // The job ends with the session, so the client is not told to ask later.
            JoinOutcome::Still(_) if !may_become_a_job => {}
            JoinOutcome::Answer(result) | JoinOutcome::Still(result) => {
                let (client_id, batch, token) = (call.client_id.clone(), call.batch, call.token.take());
                self.calls.await_nothing(wire_id);
                self.calls.forget_name(&client_id);
                self.breaker.settle_trial(wire_id, self.now);
                self.progress_tokens.end(token);
                if is_job_still {
                    self.list_job_tools(effects);
                }
                self.answer_with((&client_id, batch), &result, effects);
            }
            JoinOutcome::Nothing => {
                call.join_nothing(now, may_become_a_job);
                let is_of_a_task = call.waits_for_its_task();
                self.calls.note_next_moment(wire_id);
                if !is_of_a_task {
                    self.send_or_hold(wire_id, effects);
                }
            }
        }
    }

    fn answer_with(
        &mut self,
        (client_id, batch): (&Id, Option<BatchId>),
        result: &str,
        effects: &mut impl WrapEffects,
    ) {
        self.answers.send(batch, &one_line(&compose::answer(client_id, result)), effects);
        self.after_call(effects);
    }

    /// Notes that nobody wants the result of a call any more that is a job, or was to become one.
    pub fn job_withdrawn(&mut self, now: Duration, wire_id: &Id, effects: &mut impl WrapEffects) {
        self.now = now;
        if self.calls.get(wire_id).is_some_and(|call| call.is_job)
            && let Some(call) = self.calls.cancel(wire_id)
        {
            self.breaker.settle_trial(wire_id, self.now);
            if call.sent {
                self.cancel_at_server(wire_id, "the job was cancelled", effects);
            } else {
                self.calls.await_nothing(wire_id);
            }
        }
    }

    /// Registers one more request to the server on behalf of a job, with the answers to its questions. Returns the id of the request, which
    /// the caller then sends.
    pub fn register_for_job(&mut self, now: Duration, params: &str) -> Id {
        self.now = now;
        let wire_id = self.own_id();
        let call = GuardedCall::of_job(&wire_id, params, now, self.limits.job_timeout);
        self.calls.register_as(wire_id.clone(), call);
        wire_id
    }

    /// Returns whether health is watched: the server is up, the handshake is done, and nothing is in flight either way.
    fn watches_health(&self) -> bool {
        self.client.allows_probes()
            && self.server.is_live()
            && self.server.is_of_use()
            && self.phase == WrapPhase::Running
            && self.questions.is_empty()
            && self.calls.server_is_idle()
    }

    fn check_health(&mut self, effects: &mut impl WrapEffects) {
        match self.server.check_health(self.now, || effects.processor_time()) {
            Advice::Wait => {}
            Advice::Probe => {
                let id = self.own_id();
                let line = self.client.probe(&id);
                // The deadline only cleans up. `Health` counts the misses.
                self.own_requests.register(OwnRequest::AnyAnswer, id, self.now + self.limits.health_interval);
                effects.to_server(&line);
            }
            Advice::Restart(misses) => {
                let text =
                    format!("`{}` left {misses} health checks unanswered, and unhang restarts it", self.name);
                tracing::warn!(server = self.name, "{text}");
                effects.show(&text);
                self.replace_server();
            }
        }
    }

    /// Keeps a line of stdout that was not a message, counts it and shows it (promise 2).
    pub(super) fn quarantine(&mut self, line: &[u8], why: &str, effects: &mut impl WrapEffects) {
        self.counters.junk += 1;
        let text = self.junk.keep(line);
        tracing::warn!(target: "unhang::junk", "MCP server '{}' stdout ({why}): {text}", self.name);
        effects.show(&format!("`{}` wrote a line to stdout that is {why}: {text}", self.name));
    }

    /// Delivers the notifications that were kept back while a call ran.
    pub(super) fn flush_deferred(&mut self, effects: &mut impl WrapEffects) {
        self.counters.dropped_notifications += self.deferred_notifications.release(effects);
    }

    /// Returns an id for a request of our own. No other request in flight has it, and no request whose answer may still come.
    pub(super) fn own_id(&mut self) -> Id {
        let WrapSession { own_requests, calls, questions, local_jobs, .. } = self;
        own_requests.next_id(|id| calls.is_free(id) && questions.is_free(id) && !local_jobs.has(id))
    }

    /// Returns a call with the data for an error about it.
    pub(super) fn report<'a>(&'a self, call: &'a GuardedCall) -> CallReport<'a> {
        CallReport { server: &self.name, call, now: self.now }
    }

    /// Refuses a call that will get no other answer.
    pub(super) fn fail_call(
        &mut self,
        call: &GuardedCall,
        error_report: ErrorReport<'_>,
        exit: Option<String>,
        effects: &mut impl WrapEffects,
    ) {
        self.calls.forget_name(&call.client_id);
        let retry_after = self.breaker.retry_after(error_report.kind, self.now);
        let line = self.report(call).line(error_report, exit, retry_after, self.evidence(effects));
        if call.is_job {
            return effects.to_job(&call.client_id, JobNews::Answer(self.client.bridge_era(), &line));
        }
        self.refuse_with(call.batch, &line, effects);
    }

    /// Refuses a message that never became a call.
    pub(super) fn refuse(
        &mut self,
        to: Addressee<'_>,
        error_report: ErrorReport<'_>,
        effects: &mut impl WrapEffects,
    ) {
        let start_fault = self.server.start_fault().filter(|_| error_report.kind == FaultKind::StartFailed);
        let with_evidence = !matches!(error_report.kind, FaultKind::ParseError | FaultKind::InvalidRequest);
        let fault = Fault {
            retry_after: self.breaker.retry_after(error_report.kind, self.now),
            exit: start_fault.and_then(|fault| fault.exit.clone()),
            evidence: if with_evidence { self.evidence(effects) } else { Evidence::default() },
            ..error_report.into_fault(&self.name, to.method)
        };
        self.refuse_with(to.batch, &to.line(&fault), effects);
    }

    fn evidence(&self, effects: &impl WrapEffects) -> Evidence {
        Evidence {
            stderr_tail: effects.stderr_tail(),
            stderr_age: effects.stderr_age(),
            junk: self.junk.lines(),
        }
    }

    fn refuse_with(&mut self, batch: Option<BatchId>, line: &[u8], effects: &mut impl WrapEffects) {
        self.counters.faults += 1;
        tracing::info!(
            server = self.name,
            "answered by unhang: {}",
            String::from_utf8_lossy(&line[..line.len().min(400)])
        );
        self.answers.send(batch, line, effects);
    }
}
