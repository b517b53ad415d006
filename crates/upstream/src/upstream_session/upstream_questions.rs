//! The questions that a server asks this client: their audience, and which of them wait for an answer.
//!
//! Invariants
//!
//! - Every question that there is room for has one reply: an answer, or a refusal with its reason. A question that the server has withdrawn
//!   has none.
//! - The number of open questions, and the memory for them, is bounded.

use std::{collections::HashMap, future::ready, pin::Pin, sync::Arc, time::Duration};

use serde_json::value::RawValue;
use tokio::{
    task::{AbortHandle, JoinSet},
    time::timeout,
};
use unhang_wire::{Id, compose};

use super::{
    audience::Audience,
    outbox::Outbox,
    reply_budget::{ReplyBudget, ReplyReservation},
};
use crate::{
    listener::ServerListener,
    question::{self, Replied},
};
use unhang_core::{fault::FaultKind, limits::Limits, units::in_words};

/// A question of the server that has been answered.
#[derive(Debug)]
pub(crate) struct AnsweredQuestion {
    id: Id,
    reply: Replied,
    room: ReplyReservation,
}

/// The questions of one server.
pub(super) struct UpstreamQuestions {
    listener: Arc<dyn ServerListener>,
    /// The most questions that may be open.
    most: usize,
    /// The time that an answer may take.
    reply_timeout: Duration,
    open: JoinSet<AnsweredQuestion>,
    /// The tasks that answer the open questions.
    tasks: HashMap<Id, AbortHandle>,
    pub(super) budget: ReplyBudget,
}

impl UpstreamQuestions {
    pub(super) fn new(server: &str, limits: &Limits, listener: Arc<dyn ServerListener>) -> Self {
        Self {
            listener,
            most: limits.max_in_flight,
            reply_timeout: limits.call_timeout,
            open: JoinSet::new(),
            tasks: HashMap::new(),
            budget: ReplyBudget::new(server, limits),
        }
    }

    /// Returns whether no question waits for an answer.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Waits for the next answer; `None` if its question was withdrawn, or if the task that answers it has panicked, which the log tells.
    /// Must not be awaited while there are no questions ([`UpstreamQuestions::is_empty`]). Cancel-safe.
    pub(super) async fn next_answer(&mut self) -> Option<AnsweredQuestion> {
        self.open.join_next().await?.ok()
    }

    /// Takes a question in: replies at once, or asks its audience.
    pub(super) fn put<'a>(
        &mut self,
        (id, method, params): (Id, &str, Option<Box<RawValue>>),
        is_stateless: bool,
        audience: impl FnOnce() -> Audience<'a>,
        out: &mut Outbox,
    ) {
        let Some(mut room) = self.budget.reserve(&id) else { return };
        let bytes = params.as_ref().map_or(0, |params| params.get().len());
        if method == "ping" {
            out.reply(compose::answer(&id, "{}"), room);
        } else if is_stateless {
            let text = format!(
                "a server cannot send `{method}` to a client of revision 2026-07-28; answer with \
                 input_required"
            );
            out.refuse(&id, FaultKind::InvalidRequest.code(), &text, room);
        } else if self.open.len() >= self.most {
            let text = format!("{} questions are still unanswered", self.open.len());
            out.refuse(&id, FaultKind::Overloaded.code(), &text, room);
        } else if !self.budget.holds(&mut room, bytes) {
            let text =
                format!("{bytes} bytes are too many together with the questions that are still unanswered");
            out.refuse(&id, FaultKind::Overloaded.code(), &text, room);
        } else {
            let asked = self.ask(method, params, &audience());
            let reply_timeout = self.reply_timeout;
            let key = id.clone();
            let task = self.open.spawn(async move {
                let late = |_| {
                    Err((
                        FaultKind::Deadline.code(),
                        format!("the client did not answer within {}", in_words(reply_timeout)),
                    ))
                };
                let reply = timeout(reply_timeout, asked).await.unwrap_or_else(late);
                AnsweredQuestion { id, reply, room }
            });
            self.tasks.insert(key, task);
        }
    }

    /// Asks the session whose request a question is about, or the listener if no request is in flight.
    fn ask(
        &self,
        method: &str,
        params: Option<Box<RawValue>>,
        audience: &Audience<'_>,
    ) -> Pin<Box<dyn Future<Output = Replied> + Send>> {
        let method = method.to_owned();
        match *audience {
            Audience::Nobody => {
                let answer = self.listener.asked(method, params);
                Box::pin(async move { answer.await.map(|result| result.to_string()) })
            }
            Audience::Call { asides } => {
                let asides = asides.clone();
                Box::pin(async move { question::ask(&asides, method, params).await })
            }
            Audience::One { asides, is_of_several, session } => {
                let (asides, enough) = (asides.clone(), self.listener.asks(&method, session));
                Box::pin(async move {
                    let declined = (FaultKind::Cancelled.code(), format!("`{method}` is declined: "));
                    tokio::select! {
                        replied = question::ask_one(&asides, method, params, is_of_several) => replied,
                        why = enough => Err((declined.0, declined.1 + &why)),
                    }
                })
            }
            Audience::Several => {
                self.listener.asks_in_a_crowd(&method);
                let why = "it does not say which of several calls it is about, and a cancelled call counts \
                    until the server answers it; ask again during a call that runs alone";
                let declined = (FaultKind::MethodNotFound.code(), format!("`{method}` is declined: {why}"));
                Box::pin(ready(Err(declined)))
            }
        }
    }

    /// Sends an answer that has come. For `None`, forgets the tasks that ended without an answer.
    pub(super) fn reply(&mut self, answered: Option<AnsweredQuestion>, out: &mut Outbox) {
        let Some(AnsweredQuestion { id, reply, room }) = answered else {
            return self.tasks.retain(|_, task| !task.is_finished());
        };
        self.tasks.remove(&id);
        match reply {
            Ok(result) => out.reply(compose::answer(&id, &result), room),
            Err((code, message)) => out.refuse(&id, code, &message, room),
        }
    }

    /// Refuses an invalid request, if there is room for the refusal.
    pub(super) fn refuse_invalid(&mut self, line: Vec<u8>, out: &mut Outbox) {
        if let Some(room) = self.budget.reserve_refusal() {
            out.reply(line, room);
        }
    }

    /// Ends a question that the server has withdrawn.
    pub(super) fn withdraw(&mut self, id: &Id) {
        if let Some(task) = self.tasks.remove(id) {
            task.abort();
        }
    }

    /// Ends all questions without an answer.
    pub(super) fn abort_all(&mut self) {
        self.open.abort_all();
    }
}
