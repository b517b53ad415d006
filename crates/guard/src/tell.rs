//! The guard's own answers: which fault, in which words (design 4).
//!
//! Invariants: each sentence names the server, what was awaited and how long, and says what to do; each answer goes to the
//! client exactly once, into its batch where it has one.

use std::time::Duration;

use unhang_proc::server::Exit;
use unhang_switches::stands;

use super::machine::{Call, Machine, Outside, Role};
use unhang_core::{
    batch::BatchId,
    breaker::Phase,
    clients,
    fault::{BAD_RESPONSE_HINT, Evidence, Fault, Kind, RESTART_HINT, ended, of_which_starting},
    queue::Class,
    refusal::{Addressee, Telling},
    units::in_words,
};

impl Machine {
    /// Answers a call that will get no other answer.
    pub(super) fn tell_call(
        &mut self,
        call: &Call,
        telling: Telling<'_>,
        exit: Option<String>,
        outside: &mut impl Outside,
    ) {
        if stands("told-id-is-free") {
            self.renamed.remove(&call.client_id);
        }
        let fault = Fault {
            kind: telling.kind,
            server: &self.name,
            method: Some(&call.method),
            happened: telling.happened,
            hint: telling.hint,
            elapsed: self.now.saturating_sub(call.since),
            limit: (telling.kind == Kind::Deadline).then_some(call.limit).flatten(),
            retry_after: self.retry_after(telling.kind),
            exit,
            evidence: self.evidence(outside),
        };
        let line = fault.response(Some(&call.client_id));
        self.answer_fault(call, &line, outside);
    }

    /// Answers a message that never became a call.
    pub(super) fn refuse(&mut self, to: Addressee<'_>, telling: Telling<'_>, outside: &mut impl Outside) {
        let exit = self.start_fault.as_ref().and_then(|fault| fault.exit.clone());
        let with_evidence = !matches!(telling.kind, Kind::ParseError | Kind::InvalidRequest);
        let fault = Fault {
            kind: telling.kind,
            server: &self.name,
            method: to.method,
            happened: telling.happened,
            hint: telling.hint,
            elapsed: Duration::ZERO,
            limit: None,
            retry_after: self.retry_after(telling.kind),
            exit: exit.filter(|_| telling.kind == Kind::StartFailed),
            evidence: if with_evidence { self.evidence(outside) } else { Evidence::default() },
        };
        self.refuse_with(to.batch, &to.line(&fault), outside);
    }

    /// When it is worth another try, where the server is left alone.
    fn retry_after(&self, kind: Kind) -> Option<Duration> {
        let phase = self.breaker.phase(self.now);
        match phase {
            Phase::Open(rest) if kind == Kind::BreakerOpen => Some(rest),
            Phase::Trial if kind == Kind::BreakerOpen => Some(self.limits.breaker_cooldown),
            _ => None,
        }
    }

    fn evidence(&self, outside: &impl Outside) -> Evidence {
        Evidence {
            stderr_tail: outside.stderr_tail(),
            stderr_age: outside.stderr_age(),
            junk: self.junk.lines(),
        }
    }

    fn answer_fault(&mut self, call: &Call, line: &[u8], outside: &mut impl Outside) {
        if call.is_job {
            return self.answer_job(&call.client_id, line, outside);
        }
        self.refuse_with(call.batch, line, outside);
    }

    fn refuse_with(&mut self, batch: Option<BatchId>, line: &[u8], outside: &mut impl Outside) {
        self.counters.faults += 1;
        tracing::info!(
            server = self.name,
            "answered by unhang: {}",
            String::from_utf8_lossy(&line[..line.len().min(400)])
        );
        self.answer(batch, line, outside);
    }

    /// Sends an answer to the client, or puts it with its batch.
    pub(super) fn answer(&mut self, batch: Option<BatchId>, line: &[u8], outside: &mut impl Outside) {
        match batch {
            None => outside.to_client(Class::Kept, line),
            Some(batch) => {
                if let Some(array) = self.batches.settle(batch, Some(line)) {
                    outside.to_client(Class::Kept, &array);
                }
            }
        }
    }

    /// The request was withdrawn: nothing goes out for it, but its batch may now be complete.
    pub(super) fn answer_nothing(&mut self, batch: Option<BatchId>, outside: &mut impl Outside) {
        if let Some(array) = batch
            .filter(|_| stands("withdrawn-completes-a-batch"))
            .and_then(|batch| self.batches.settle(batch, None))
        {
            outside.to_client(Class::Kept, &array);
        }
    }

    pub(super) fn tell_deadline(&mut self, call: &Call, outside: &mut impl Outside) {
        let limit = call.limit.unwrap_or_else(|| self.now.saturating_sub(call.since));
        let client_clock =
            self.call_clock.filter(|_| call.limit.is_some_and(|limit| limit < self.limits.call_timeout));
        let never_started = !self.answered_ever;
        let awaiting = if call.sent { "did not answer" } else { "was not up again in time for" };
        let mut happened = format!("`{}` {awaiting} `{}` within {}", self.name, call.method, in_words(limit));
        // What it asks while it has one call is about that call.
        let question = self.asks.iter().map(|(_, ask)| ask).find(|ask| ask.since >= call.since);
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
            clock_hint = clients::cut_short(self.client_name.as_deref(), clock);
            &clock_hint
        } else if &*call.method == "tools/call" {
            "the call was cancelled; raise --call-timeout if it needs longer"
        } else {
            "the request was cancelled; raise --request-timeout if it needs longer"
        };
        self.tell_call(call, Telling { kind: Kind::Deadline, happened, hint }, None, outside);
    }

    pub(super) fn tell_exited(
        &mut self,
        call: &Call,
        exit: &Exit,
        restarts: bool,
        outside: &mut impl Outside,
    ) {
        let elapsed = self.now.saturating_sub(call.since);
        let happened = ended(&self.name, &exit.to_string(), elapsed, &call.method);
        let hint = if restarts { RESTART_HINT } else { "see its stderr" };
        self.tell_call(
            call,
            Telling { kind: Kind::ServerExited, happened, hint },
            Some(exit.to_string()),
            outside,
        );
    }

    pub(super) fn tell_start_failed(&mut self, call: &Call, outside: &mut impl Outside) {
        let fault = self.start_fault.clone();
        let happened = fault.as_ref().map_or_else(String::new, |fault| fault.happened.clone());
        let exit = fault.and_then(|fault| fault.exit);
        let telling = Telling { kind: Kind::StartFailed, happened, hint: START_HINT };
        self.tell_call(call, telling, exit, outside);
    }

    pub(super) fn tell_shutting_down(&mut self, call: &Call, cause: &str, outside: &mut impl Outside) {
        let elapsed = in_words(self.now.saturating_sub(call.since));
        let happened = format!(
            "unhang is ending because {cause}; `{}` had not answered `{}` after {elapsed}",
            self.name, call.method
        );
        let hint = match call.role {
            Role::Listen => "subscribe again with the next session",
            _ => "send the request again in the next session if it is safe to repeat",
        };
        self.tell_call(call, Telling { kind: Kind::ShuttingDown, happened, hint }, None, outside);
    }

    pub(super) fn tell_bad_response(&mut self, call: &Call, why: &str, outside: &mut impl Outside) {
        let happened =
            format!("`{}` answered `{}` with what is no valid response: {why}", self.name, call.method);
        let telling = Telling { kind: Kind::BadResponse, happened, hint: BAD_RESPONSE_HINT };
        self.tell_call(call, telling, None, outside);
    }

    pub(super) fn tell_too_large(&mut self, call: &Call, length: u64, outside: &mut impl Outside) {
        let happened = format!(
            "the answer of `{}` to `{}` is {length} bytes long, over the limit of {}",
            self.name, call.method, self.limits.max_message
        );
        let hint = "ask for less, or raise --max-message";
        self.tell_call(call, Telling { kind: Kind::TooLarge, happened, hint }, None, outside);
    }
}

/// What to do about a server that cannot be started.
pub(super) const START_HINT: &str = "check the command after `unhang wrap --` by running it in a terminal";
