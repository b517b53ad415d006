//! The questions that a server asks this client: their audience, and which of them wait for an answer.
//!
//! Invariants
//!
//! - Every question that there is room for has one reply: an answer, or a refusal with its reason. A question that the server has withdrawn
//!   has none.
//! - A question that may be about several calls of a session stays open while the caller of one of them waits.
//! - The number of open questions, and the memory for them, is bounded.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    future::ready,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use serde_json::value::RawValue;
use tokio::{
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep, timeout},
};
use unhang_bridge::tasks;
use unhang_wire::{Id, Json, compose};

use super::{
    RequestOrigin,
    audience::{Audience, next_call},
    known_roots::{KnownRoots, RootsOwner},
    outbox::Outbox,
    reply_budget::{ReplyBudget, ReplyReservation},
};
use crate::{
    listener::{ListenerAnswer, ServerListener},
    question::{self, Replied, ReplyError, SessionKey, SideMessageSender},
    request_table::RequestTable,
};
use unhang_core::{fault::FaultKind, limits::Limits, units::in_words};

/// The pause before a question about a task is put again that its caller has left. The call may just become a job.
const PUT_AGAIN: Duration = Duration::from_millis(100);

/// The answers to a leading window that are remembered. It may ask once more while an answer is on its way.
const ANSWERED: usize = 64;

/// A question of the server that has been answered, or that its audience has left.
pub(crate) struct AnsweredQuestion {
    id: Id,
    end: QuestionEnd,
    room: ReplyReservation,
}

/// The end of the wait for an answer.
enum QuestionEnd {
    Replied(Replied),
    /// The call beside which it was put has ended, and nobody has answered.
    Left(MovableQuestion),
}

/// The end of the wait, once it is there.
type Ending = Pin<Box<dyn Future<Output = QuestionEnd> + Send>>;

/// A question that is put beside a call of a session, and that moves to another call if that one ends.
struct MovableQuestion {
    key: u64,
    method: String,
    params: Option<Box<RawValue>>,
    /// The session, if any of its calls can carry the question; `None` if the question can only be about its call.
    session: Option<SessionKey>,
    /// The number of the call beside which it is put.
    call: i64,
    /// The number of the newest call that it may be about.
    newest: i64,
    /// The calls beside which it was put before, which have ended.
    left_calls: Vec<i64>,
    is_of_several: bool,
    /// Gives the reason why the session has had enough time.
    enough: Pin<Box<dyn Future<Output = String> + Send>>,
    since: Instant,
}

impl MovableQuestion {
    /// Puts the question beside its call. Waits for the answer, or until nobody waits for the call any more.
    async fn put(mut self, asides: SideMessageSender) -> QuestionEnd {
        let asked = (self.method.clone(), self.params.clone());
        tokio::select! {
            replied = question::put(&asides, self.key, asked, self.is_of_several) => match replied {
                Some(replied) => QuestionEnd::Replied(replied),
                None => QuestionEnd::Left(self),
            },
            why = &mut self.enough => {
                let declined = format!("`{}` is declined: {why}", self.method);
                QuestionEnd::Replied(Err((FaultKind::Cancelled.code(), declined).into()))
            }
        }
    }
}

/// The task that answers an open question.
struct QuestionTask {
    task: AbortHandle,
    /// The number of the call beside which the question is put.
    call: Option<i64>,
    /// The party that is asked for its roots; `None` if the question is another one.
    roots_owner: Option<RootsOwner>,
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
    tasks: HashMap<Id, QuestionTask>,
    /// The server is the leading window, which asks beside the answers of 2026-07-28, and asks the same question beside another call when
    /// the first one has ended.
    pub(super) is_of_leader: bool,
    /// The newest answered questions of a leading window.
    answered: VecDeque<Id>,
    pub(super) budget: ReplyBudget,
    /// The roots that clients have told the server.
    pub(super) known_roots: KnownRoots,
}

impl UpstreamQuestions {
    pub(super) fn new(server: &str, limits: &Limits, listener: Arc<dyn ServerListener>) -> Self {
        Self {
            listener,
            most: limits.max_in_flight,
            reply_timeout: limits.call_timeout,
            open: JoinSet::new(),
            tasks: HashMap::new(),
            is_of_leader: false,
            answered: VecDeque::new(),
            budget: ReplyBudget::new(server, limits),
            known_roots: KnownRoots::default(),
        }
    }

    /// Returns whether no question waits for an answer.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns the ids of the questions that wait for an answer.
    pub(super) fn ids(&self) -> impl Iterator<Item = &Id> {
        self.tasks.keys()
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
        audience: impl FnOnce(&HashSet<i64>) -> Audience<'a>,
        out: &mut Outbox,
    ) {
        if self.is_of_leader && (self.tasks.contains_key(&id) || self.answered.contains(&id)) {
            // The question moves to another call, and is the same for its client.
            return;
        }
        let Some(mut room) = self.budget.reserve(&id) else { return };
        let bytes = params.as_ref().map_or(0, |params| params.get().len());
        if method == "ping" {
            out.reply(compose::answer(&id, "{}"), room);
        } else if is_stateless && !self.is_of_leader {
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
            let audience = audience(&self.carrying());
            let call = match audience {
                Audience::One { number, .. } => Some(number),
                _ => None,
            };
            let roots_owner = RootsOwner::of(method, &audience);
            let asked = self.ask(&id, method, params, &audience);
            self.open(id, (asked, call, roots_owner), Instant::now(), room);
        }
    }

    /// Returns the numbers of the calls that carry a question now.
    pub(super) fn carrying(&self) -> HashSet<i64> {
        self.tasks.values().filter_map(|task| task.call).collect()
    }

    /// Waits for the end of a question that was put at `since`.
    fn open(
        &mut self,
        id: Id,
        (asked, call, roots_owner): (Ending, Option<i64>, Option<RootsOwner>),
        since: Instant,
        room: ReplyReservation,
    ) {
        let (key, reply_timeout) = (id.clone(), self.reply_timeout);
        let task = self.open.spawn(async move {
            let late = |_| {
                let why = format!("the client did not answer within {}", in_words(reply_timeout));
                QuestionEnd::Replied(Err((FaultKind::Deadline.code(), why).into()))
            };
            let left = reply_timeout.saturating_sub(since.elapsed());
            let end = timeout(left, asked).await.unwrap_or_else(late);
            AnsweredQuestion { id, end, room }
        });
        self.tasks.insert(key, QuestionTask { task, call, roots_owner });
    }

    /// Asks the session whose request a question is about, or the listener if no request is in flight.
    fn ask(&self, id: &Id, method: &str, params: Option<Box<RawValue>>, audience: &Audience<'_>) -> Ending {
        let method = method.to_owned();
        match *audience {
            Audience::Nobody => answered_by_listener(self.listener.asked(method, params)),
            Audience::AfterCallsOf(session) => {
                match self.listener.asked_after_calls_of(session, &method, params.as_deref()) {
                    Some(answer) => answered_by_listener(answer),
                    None => self.decline_of_several(&method),
                }
            }
            Audience::Task(ref task) => {
                let caller = self.listener.caller_of_task(task);
                let listener = Arc::clone(&self.listener);
                Box::pin(async move {
                    QuestionEnd::Replied(match caller.await {
                        Some(asides) => put_about_task(&asides, question::drawn(), method, params).await,
                        None => listener.asked(method, params).await.map(|result| result.to_string()),
                    })
                })
            }
            Audience::Call { asides } => {
                let asides = asides.clone();
                let named = question::read_window_question_id(id).filter(|_| self.is_of_leader);
                let (key, is_of_several) = named.unwrap_or_else(|| (question::drawn(), false));
                if self.is_of_leader && related_task(params.as_deref()).is_some() {
                    return Box::pin(async move {
                        QuestionEnd::Replied(put_about_task(&asides, key, method, params).await)
                    });
                }
                Box::pin(async move {
                    let left = question::left_by_caller(&method);
                    let replied = question::put(&asides, key, (method, params), is_of_several).await;
                    QuestionEnd::Replied(replied.unwrap_or(Err(left.into())))
                })
            }
            Audience::One { asides, is_of_several, number, newest, session } => {
                let question = MovableQuestion {
                    key: question::drawn(),
                    enough: self.listener.asks(&method, session),
                    method,
                    params,
                    session: session.filter(|_| is_of_several),
                    call: number,
                    newest,
                    left_calls: Vec::new(),
                    is_of_several,
                    since: Instant::now(),
                };
                Box::pin(question.put(asides.clone()))
            }
            Audience::Several => self.decline_of_several(&method),
        }
    }

    /// Declines a question that may be about calls of several sessions.
    fn decline_of_several(&self, method: &str) -> Ending {
        self.listener.asks_in_a_crowd(method);
        let why = "it does not say which of several calls it is about, and a cancelled call counts until the \
            server answers it; ask again during a call that runs alone";
        let declined = (FaultKind::MethodNotFound.code(), format!("`{method}` is declined: {why}"));
        Box::pin(ready(QuestionEnd::Replied(Err(declined.into()))))
    }

    /// Sends an answer that has come, or puts a question that was left beside another of these calls. For `None`, forgets the tasks that
    /// ended without an answer.
    pub(super) fn reply(
        &mut self,
        answered: Option<AnsweredQuestion>,
        calls: &RequestTable<RequestOrigin>,
        out: &mut Outbox,
    ) {
        let Some(AnsweredQuestion { id, end, room }) = answered else {
            return self.tasks.retain(|_, task| !task.task.is_finished());
        };
        let roots_owner = self.tasks.remove(&id).and_then(|task| task.roots_owner);
        let replied = match end {
            QuestionEnd::Replied(replied) => replied,
            QuestionEnd::Left(mut left) => {
                left.left_calls.push(left.call);
                let carrying = self.carrying();
                let next = left.session.and_then(|session| {
                    next_call(calls, session, (left.newest, &left.left_calls), &carrying)
                });
                if let Some((call, asides)) = next {
                    let since = left.since;
                    let asked: Ending = Box::pin(MovableQuestion { call, ..left }.put(asides.clone()));
                    return self.open(id, (asked, Some(call), roots_owner), since, room);
                }
                Err(question::left_by_caller(&left.method).into())
            }
        };
        if self.is_of_leader {
            self.answered.truncate(ANSWERED - 1);
            self.answered.push_front(id.clone());
        }
        if let (Some(owner), Ok(roots)) = (roots_owner, &replied) {
            self.known_roots.note(owner, roots);
        }
        match replied {
            Ok(result) => out.reply(compose::answer(&id, &result), room),
            Err(ReplyError { code, message, data }) => {
                out.reply(compose::error(&id, code, &message, data.as_deref()), room);
            }
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
            task.task.abort();
        }
    }

    /// Ends all questions without an answer.
    pub(super) fn abort_all(&mut self) {
        self.open.abort_all();
    }
}

/// Waits for the answer of the listener.
fn answered_by_listener(answer: impl Future<Output = ListenerAnswer> + Send + 'static) -> Ending {
    Box::pin(async move { QuestionEnd::Replied(answer.await.map(|result| result.to_string())) })
}

/// Returns the name of the task that a question with these params is about. Returns `None` if it names no task.
pub(super) fn related_task(params: Option<&RawValue>) -> Option<String> {
    let params = Json::new(params?.get().as_bytes())?;
    tasks::related_to(params).map(Into::into)
}

/// Puts a question about a task to the caller, which may be making a job of the call meanwhile. So a question that is left is put again, as
/// long as the caller waits.
async fn put_about_task(
    asides: &SideMessageSender,
    key: u64,
    method: String,
    params: Option<Box<RawValue>>,
) -> Replied {
    loop {
        let asked = (method.clone(), params.clone());
        if let Some(replied) = question::put(asides, key, asked, false).await {
            return replied;
        }
        if asides.is_closed() {
            return Err(question::left_by_caller(&method).into());
        }
        sleep(PUT_AGAIN).await;
    }
}
