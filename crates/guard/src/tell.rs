//! The guard's own answers: which fault, in which words (design 4).
//!
//! Invariants: each sentence names the server, what was awaited and how long, and says what to do; each answer goes to the
//! client exactly once, into its batch where it has one.

use std::time::Duration;

use unhang_proc::server::Exit;
use unhang_switches::stands;

use super::{
    calls::{GuardedCall, Role},
    effects::WrapEffects,
    wrap_session::WrapSession,
};
use unhang_core::{
    batch::BatchId,
    breaker::BreakerPhase,
    clients,
    fault::{BAD_RESPONSE_HINT, Evidence, Fault, FaultKind, RESTART_HINT, ended, of_which_starting},
    queue::Class,
    refusal::{Addressee, ErrorReport},
    units::in_words,
};

impl WrapSession {
    /// Answers a call that will get no other answer.
    pub(super) fn tell_call(
        &mut self,
        call: &GuardedCall,
        error_report: ErrorReport<'_>,
        exit: Option<String>,
        effects: &mut impl WrapEffects,
    ) {
        if stands("told-id-is-free") {
            self.calls.forget_name(&call.client_id);
        }
        let fault = Fault {
            kind: error_report.kind,
            server: &self.name,
            method: Some(&call.method),
            happened: error_report.summary,
            hint: error_report.hint,
            elapsed: self.now.saturating_sub(call.since),
            limit: (error_report.kind == FaultKind::Deadline).then_some(call.limit).flatten(),
            retry_after: self.retry_after(error_report.kind),
            exit,
            evidence: self.evidence(effects),
        };
        let line = fault.response(Some(&call.client_id));
        self.answer_fault(call, &line, effects);
    }

    /// Answers a message that never became a call.
    pub(super) fn refuse(
        &mut self,
        to: Addressee<'_>,
        error_report: ErrorReport<'_>,
        effects: &mut impl WrapEffects,
    ) {
        let exit = self.start_fault.as_ref().and_then(|fault| fault.exit.clone());
        let with_evidence = !matches!(error_report.kind, FaultKind::ParseError | FaultKind::InvalidRequest);
        let fault = Fault {
            kind: error_report.kind,
            server: &self.name,
            method: to.method,
            happened: error_report.summary,
            hint: error_report.hint,
            elapsed: Duration::ZERO,
            limit: None,
            retry_after: self.retry_after(error_report.kind),
            exit: exit.filter(|_| error_report.kind == FaultKind::StartFailed),
            evidence: if with_evidence { self.evidence(effects) } else { Evidence::default() },
        };
        self.refuse_with(to.batch, &to.line(&fault), effects);
    }

    /// When it is worth another try, where the server is left alone.
    fn retry_after(&self, kind: FaultKind) -> Option<Duration> {
        let phase = self.breaker.phase(self.now);
        match phase {
            BreakerPhase::Open(rest) if kind == FaultKind::BreakerOpen => Some(rest),
            BreakerPhase::Trial if kind == FaultKind::BreakerOpen => Some(self.limits.breaker_cooldown),
            _ => None,
        }
    }

    fn evidence(&self, effects: &impl WrapEffects) -> Evidence {
        Evidence {
            stderr_tail: effects.stderr_tail(),
            stderr_age: effects.stderr_age(),
            junk: self.junk.lines(),
        }
    }

    fn answer_fault(&mut self, call: &GuardedCall, line: &[u8], effects: &mut impl WrapEffects) {
        if call.is_job {
            return self.answer_job(&call.client_id, line, effects);
        }
        self.refuse_with(call.batch, line, effects);
    }

    fn refuse_with(&mut self, batch: Option<BatchId>, line: &[u8], effects: &mut impl WrapEffects) {
        self.counters.faults += 1;
        tracing::info!(
            server = self.name,
            "answered by unhang: {}",
            String::from_utf8_lossy(&line[..line.len().min(400)])
        );
        self.answer(batch, line, effects);
    }

    /// Sends an answer to the client, or puts it with its batch.
    pub(super) fn answer(&mut self, batch: Option<BatchId>, line: &[u8], effects: &mut impl WrapEffects) {
        match batch {
            None => effects.to_client(Class::Kept, line),
            Some(batch) => {
                if let Some(array) = self.batches.settle(batch, Some(line)) {
                    effects.to_client(Class::Kept, &array);
                }
            }
        }
    }

    /// The request was withdrawn: nothing goes out for it, but its batch may now be complete.
    pub(super) fn answer_nothing(&mut self, batch: Option<BatchId>, effects: &mut impl WrapEffects) {
        if let Some(array) = batch
            .filter(|_| stands("withdrawn-completes-a-batch"))
            .and_then(|batch| self.batches.settle(batch, None))
        {
            effects.to_client(Class::Kept, &array);
        }
    }

    pub(super) fn tell_deadline(&mut self, call: &GuardedCall, effects: &mut impl WrapEffects) {
        let limit = call.limit.unwrap_or_else(|| self.now.saturating_sub(call.since));
        let client_clock = self
            .client
            .call_clock()
            .filter(|_| call.limit.is_some_and(|limit| limit < self.limits.call_timeout));
        let never_started = !self.answered_ever;
        let awaiting = if call.sent { "did not answer" } else { "was not up again in time for" };
        let mut happened = format!("`{}` {awaiting} `{}` within {}", self.name, call.method, in_words(limit));
        // What it asks while it has one call is about that call.
        let question = self.questions.asked_since(call.since);
        let question = question.filter(|_| call.sent && &*call.method == "tools/call");
        if let Some(question) = question {
            happened = format!(
                "`{}` needs the client's answer to `{}`, which did not come within {}",
                self.name,
                question.method,
                in_words(limit)
            );
        }
        if call.sent {
            happened.push_str(&of_which_starting(call.held_for));
        }
        let clock_hint;
        let hint = if call.is_job {
            "the call was cancelled; raise --job-timeout if it needs longer"
        } else if question.is_some() {
            "the call was cancelled; answer the question in time, or raise --call-timeout"
        } else if never_started {
            "it has not answered anything since it was started; raise --start-timeout if it needs longer to start, or see its log"
        } else if let (Some(clock), "tools/call") = (client_clock, &*call.method) {
            clock_hint = clients::cut_short(self.client.name(), clock);
            &clock_hint
        } else if &*call.method == "tools/call" {
            "the call was cancelled; raise --call-timeout if it needs longer"
        } else {
            "the request was cancelled; raise --request-timeout if it needs longer"
        };
        self.tell_call(
            call,
            ErrorReport { kind: FaultKind::Deadline, summary: happened, hint },
            None,
            effects,
        );
    }

    pub(super) fn tell_exited(
        &mut self,
        call: &GuardedCall,
        exit: &Exit,
        restarts: bool,
        effects: &mut impl WrapEffects,
    ) {
        let elapsed = self.now.saturating_sub(call.since);
        let happened = ended(&self.name, &exit.to_string(), elapsed, &call.method);
        let hint = if restarts { RESTART_HINT } else { "see its stderr" };
        self.tell_call(
            call,
            ErrorReport { kind: FaultKind::ServerExited, summary: happened, hint },
            Some(exit.to_string()),
            effects,
        );
    }

    pub(super) fn tell_start_failed(&mut self, call: &GuardedCall, effects: &mut impl WrapEffects) {
        let fault = self.start_fault.clone();
        let happened = fault.as_ref().map_or_else(String::new, |fault| fault.happened.clone());
        let exit = fault.and_then(|fault| fault.exit);
        let error_report = ErrorReport { kind: FaultKind::StartFailed, summary: happened, hint: START_HINT };
        self.tell_call(call, error_report, exit, effects);
    }

    pub(super) fn tell_shutting_down(
        &mut self,
        call: &GuardedCall,
        cause: &str,
        effects: &mut impl WrapEffects,
    ) {
        let elapsed = in_words(self.now.saturating_sub(call.since));
        let happened = format!(
            "unhang is ending because {cause}; `{}` had not answered `{}` after {elapsed}",
            self.name, call.method
        );
        let hint = match call.role {
            Role::Listen => "subscribe again with the next session",
            _ => "send the request again in the next session if it is safe to repeat",
        };
        self.tell_call(
            call,
            ErrorReport { kind: FaultKind::ShuttingDown, summary: happened, hint },
            None,
            effects,
        );
    }

    pub(super) fn tell_bad_response(
        &mut self,
        call: &GuardedCall,
        why: &str,
        effects: &mut impl WrapEffects,
    ) {
        let happened =
            format!("`{}` answered `{}` with what is no valid response: {why}", self.name, call.method);
        let error_report =
            ErrorReport { kind: FaultKind::BadResponse, summary: happened, hint: BAD_RESPONSE_HINT };
        self.tell_call(call, error_report, None, effects);
    }

    pub(super) fn tell_too_large(&mut self, call: &GuardedCall, length: u64, effects: &mut impl WrapEffects) {
        let happened = format!(
            "the answer of `{}` to `{}` is {length} bytes long, over the limit of {}",
            self.name, call.method, self.limits.max_message
        );
        let hint = "ask for less, or raise --max-message";
        self.tell_call(
            call,
            ErrorReport { kind: FaultKind::TooLarge, summary: happened, hint },
            None,
            effects,
        );
    }
}

/// What to do about a server that cannot be started.
pub(super) const START_HINT: &str = "check the command after `unhang wrap --` by running it in a terminal";
