//! Requests of the server, and of the local job server, that wait for the client's answer.
//!
//! Invariant: the client knows each question by an id under which it owes no other answer, whoever has asked.

use std::time::Duration;

use unhang_core::{config::LATE_IDS, fault::FaultKind, queue::Class, refusal::ErrorReport, units::in_words};
use unhang_wire::{Completion, Id, InFlight, InvalidReason, RegisterError, compose};

use super::{effects::WrapEffects, own_requests::OwnRequests};

/// The party that has asked a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    Server,
    /// The local job server, on behalf of a job that another process holds.
    JobServer,
}

/// A request of one of the two. The key of the table is the id on the client's side.
#[derive(Debug)]
pub(super) struct ServerQuestion {
    pub asker: Asker,
    /// The asker's own id of the question.
    pub server_id: Id,
    /// Whether the question went out as one about a task of ours, which the server does not hear of.
    pub is_of_a_task: bool,
    pub method: Box<str>,
    pub since: Duration,
}

impl ServerQuestion {
    /// Words the error of a question that the client did not answer in time.
    pub(super) fn deadline(&self, now: Duration) -> ErrorReport<'static> {
        let waited = in_words(now.saturating_sub(self.since));
        ErrorReport {
            kind: FaultKind::Deadline,
            summary: format!("the client did not answer `{}` within {waited}", self.method),
            hint: "go on without its answer",
        }
    }
}

/// The requests of both that are open. Everything that does not name the asker is about those of the server.
#[derive(Debug)]
pub(super) struct ServerQuestions {
    in_flight: InFlight<ServerQuestion>,
}

impl Default for ServerQuestions {
    fn default() -> Self {
        Self { in_flight: InFlight::new(LATE_IDS) }
    }
}

impl ServerQuestions {
    fn of(&self, asker: Asker) -> impl Iterator<Item = (&Id, &ServerQuestion)> {
        self.in_flight.iter().filter(move |(_, question)| question.asker == asker)
    }

    /// Counts the questions of one of the two.
    pub(super) fn len(&self, asker: Asker) -> usize {
        self.of(asker).count()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.of(Asker::Server).next().is_none()
    }

    /// Enters a question, and returns the new id that the client has to see. Returns `None` if the client sees the server's own id.
    ///
    /// A question of the local job server always gets a new id. A question of the server gets one if the client still owes an answer
    /// under the server's id.
    pub(super) fn register(
        &mut self,
        question: ServerQuestion,
        deadline: Option<Duration>,
        own_requests: &mut OwnRequests,
        is_free_elsewhere: impl Fn(&Id) -> bool,
    ) -> Option<Id> {
        let question = match question.asker {
            Asker::JobServer => question,
            Asker::Server => match self.in_flight.register(question.server_id.clone(), deadline, question) {
                Ok(()) => return None,
                Err(RegisterError::InFlight(question) | RegisterError::AwaitsLate(question)) => question,
            },
        };
        let client_side_id = own_requests.next_id(|id| self.in_flight.is_free(id) && is_free_elsewhere(id));
        let _registered = self.in_flight.register(client_side_id.clone(), deadline, question);
        Some(client_side_id)
    }

    pub(super) fn complete(&mut self, client_side_id: &Id) -> Completion<ServerQuestion> {
        self.in_flight.complete(client_side_id)
    }

    /// Takes out the next question that the client did not answer in time.
    pub(super) fn expire(&mut self, now: Duration) -> Option<(Id, ServerQuestion)> {
        self.in_flight.expire(now)
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.in_flight.next_deadline()
    }

    pub(super) fn is_free(&self, client_side_id: &Id) -> bool {
        self.in_flight.is_free(client_side_id)
    }

    pub(super) fn contains(&self, client_side_id: &Id) -> bool {
        self.in_flight.contains(client_side_id)
    }

    /// Returns why the server may not ask now under this id, or `None` if it may.
    pub(super) fn refusal(
        &self,
        server: &str,
        server_id: &Id,
        max_in_flight: usize,
    ) -> Option<ErrorReport<'static>> {
        let report = |kind, summary, hint| Some(ErrorReport { kind, summary, hint });
        let open = self.len(Asker::Server);
        if open >= max_in_flight {
            let happened = format!("the client has not answered {open} requests of `{server}`");
            return report(FaultKind::Overloaded, happened, "wait for its answers");
        }
        if self.asked_as(Asker::Server, server_id).is_some() {
            let happened = format!("a request with the id {server_id} is still in flight");
            return report(FaultKind::InvalidRequest, happened, "give each request an id of its own");
        }
        None
    }

    /// Returns the server's own ids of the open questions.
    pub(super) fn server_ids(&self) -> impl Iterator<Item = &Id> {
        self.of(Asker::Server).map(|(_, question)| &question.server_id)
    }

    /// Returns the id on the client's side of the open question that its asker knows by this id.
    fn asked_as(&self, asker: Asker, server_id: &Id) -> Option<&Id> {
        self.of(asker).find(|(_, question)| question.server_id == *server_id).map(|(id, _)| id)
    }

    /// Returns a question that was asked at this time or later.
    pub(super) fn asked_since(&self, since: Duration) -> Option<&ServerQuestion> {
        self.of(Asker::Server).map(|(_, question)| question).find(|question| question.since >= since)
    }

    /// Ends a question that its asker withdraws. Returns its id on the client's side, or `None` if it is not open.
    pub(super) fn withdraw(&mut self, asker: Asker, server_id: &Id) -> Option<Id> {
        let client_side_id = self.asked_as(asker, server_id).cloned()?;
        let _withdrawn = self.in_flight.cancel(&client_side_id);
        Some(client_side_id)
    }

    /// Withdraws the questions of a process that is gone. Answers of the client go nowhere then.
    pub(super) fn withdraw_all(&mut self, effects: &mut impl WrapEffects) {
        let ids: Vec<Id> = self.of(Asker::Server).map(|(id, _)| id.clone()).collect();
        for id in ids.into_iter() {
            let _withdrawn = self.in_flight.cancel(&id);
            effects
                .to_client(Class::Kept, &compose::cancelled(&id, "unhang: the server that asked has ended"));
        }
    }
}

/// Words the error of a question that is not a valid request.
pub(super) fn refusal_of_invalid(reason: InvalidReason) -> ErrorReport<'static> {
    ErrorReport {
        kind: FaultKind::InvalidRequest,
        summary: format!("the server's request is not a valid JSON-RPC 2.0 message: {reason}"),
        hint: "this is a fault of the server",
    }
}

/// Words the error of a question that is over the limit.
pub(super) fn refusal_of_oversized(length: u64) -> ErrorReport<'static> {
    ErrorReport {
        kind: FaultKind::TooLarge,
        summary: format!("the server's request is {length} bytes long, over the limit"),
        hint: "send smaller messages",
    }
}

/// Words the error of a question to a client whose revision has no questions.
pub(super) fn refusal_by_stateless(method: &str) -> ErrorReport<'static> {
    let happened = format!("a server cannot send `{method}` to a client of revision 2026-07-28");
    let hint = "answer with resultType input_required instead";
    ErrorReport { kind: FaultKind::InvalidRequest, summary: happened, hint }
}

/// Returns the line that answers a question of the server in the client's place.
pub(super) fn refusal_line(
    server: &str,
    server_id: &Id,
    method: &str,
    error_report: ErrorReport<'_>,
) -> Vec<u8> {
    error_report.into_fault(server, Some(method)).response(Some(server_id))
}
