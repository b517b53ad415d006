//! Servers that go on with a call as a task of theirs. The gateway waits for the task, so that the caller has the answer, whether it knows
//! tasks or not.
//!
//! Theory of operation. A server of 2026-07-28 gives tasks to a caller that declares with the call that it copes with them. A client of this
//! revision declares that itself, or gets the server's answer without a task. A client of the handshake era cannot declare it. The gateway
//! declares it for a client that has asked for a task. For others it repeats the call with the declaration if the tool needs tasks. A
//! server of 2025-11-25 has to be asked, and is, for tools that need tasks. Then the gateway looks at the task as often as the server
//! wants. A question of the task is put as if the call had asked it. The outcome of the task is the answer to the call.
//!
//! Invariants
//!
//! - A task whose call nobody waits for any more is cancelled, unless it was left to another process ([`super::task_news`]).
//! - The gateway declares tasks for no client of 2026-07-28. It declares them for another client only if that client has asked for a task,
//!   or the server has refused the call without.
//! - A server is asked no more often than it says, within our own bounds, and no longer than its call may take. It is asked earlier if it says
//!   something about the task, or if a client asks for the task; four times a second at most.
//! - A broken message of a server about a task becomes an error that says so.
//! - A question is open at the caller only while the task lists it.
//! - A task that another process goes on with is not cancelled by our end. A task is given up only when its server has been away for
//!   minutes.

use std::{pin::pin, sync::Arc, time::Duration};

use serde_json::{Value, value::RawValue};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until},
};
use unhang_bridge::{
    Era, Splice,
    params::CLIENT_CAPABILITIES,
    tasks::{self, Dialect, Payload, SeenTask, Support, TaskStatus},
};
use unhang_proc::deadline::Deadline;
use unhang_wire::{Json, text_member};

use super::{
    OpenServerQuestion, SideMessage,
    backend::Backend,
    lifecycle::StartReason,
    server_task::ServerTask,
    task_fate::TaskFate,
    task_looks::{LooksTaken, TaskLooks},
    task_news::{KnownTask, TaskNews},
    task_questions::TaskQuestions,
    verdicts,
};
use unhang_core::fault::FaultKind;
use unhang_upstream::{
    client::{CallOptions, Error, RequestSignature, ServerError, ServerInfo},
    question::{ASIDES, OfSession, Replied},
};

/// The least and the greatest pause between two looks at a task, and the pause if its server does not say.
const POLL_LEAST: Duration = Duration::from_millis(100);
const POLL_MOST: Duration = Duration::from_secs(30);
const POLL_USUAL: Duration = Duration::from_secs(1);

/// The least pause between two looks if somebody wants to know of the task.
const LOOK_LEAST: Duration = Duration::from_millis(250);

/// The number of looks in a row that may fail before the task is given up, with longer and longer pauses: some eight minutes in all. The
/// server keeps the task while it cannot be reached.
const MOST_FAILURES: u32 = 20;

/// The time in which a server has to hear that a task is not wanted any more.
const CANCEL_LIMIT: Duration = Duration::from_secs(5);

/// Waits for a call that may go on as a task of its server.
#[derive(Clone)]
pub(super) struct TaskPoller {
    backend: Arc<Backend>,
    dialect: Dialect,
    /// The `_meta` of the call, without the members that are about the call alone.
    meta: Option<String>,
    signed: RequestSignature,
    asides: Option<mpsc::Sender<SideMessage>>,
    /// The session that has called, if it is there.
    session: Option<OfSession>,
    /// Hears of the task.
    news: Option<TaskNews>,
    /// The start of the server whose process has begun the task, if it was begun for us.
    begun_by: Option<u64>,
}

/// Cancels a task that nobody waits for any more.
struct CancelOnDrop {
    poller: TaskPoller,
    task: Option<String>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let (poller, Some(task)) = (self.poller.clone(), self.task.take()) else { return };
        let is_left = poller.news.as_ref().is_some_and(TaskNews::is_left);
        if is_left {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let cancelled = poller.ask(tasks::CANCEL, &tasks::about(&task), CANCEL_LIMIT, None).await;
                if let Err(error) = cancelled {
                    tracing::debug!("a task of `{}` could not be cancelled: {error}", poller.backend.name());
                }
            });
        }
    }
}

impl TaskPoller {
    /// Makes the poller for a call of this tool. Returns `None` if the call cannot become a task of the server. `may_wait` says whether we
    /// may ask a server of the handshake era for a task.
    pub(super) fn of(
        backend: &Arc<Backend>,
        session: &ServerInfo,
        tool: &str,
        params: &str,
        signed: &RequestSignature,
        asides: Option<&mpsc::Sender<SideMessage>>,
        may_wait: bool,
    ) -> Option<Self> {
        let capabilities = Value::from(session.capabilities.clone()).to_string();
        let capabilities = Json::new(capabilities.as_bytes())?;
        let dialect = match session.revision.era() {
            Era::Modern => Dialect::Extension,
            Era::Legacy => Dialect::Core,
        };
        let is_required = || {
            let offered = backend.offered();
            let mut tools = offered.tools.iter().filter_map(|raw| Json::new(raw.get().as_bytes()));
            let found = tools.find(|raw| text_member(*raw, "name").is_some_and(|name| name == tool));
            found.is_some_and(|raw| tasks::task_support(raw) == Support::Required)
        };
        let is_wanted = tasks::offers_tasks(dialect, capabilities)
            && (dialect == Dialect::Extension || (may_wait && is_required()));
        if !is_wanted {
            return None;
        }
        let meta = Json::new(params.as_bytes()).and_then(|params| params.member("_meta"));
        let meta = meta.and_then(|meta| Splice::new(meta).remove("progressToken").apply());
        Some(Self {
            backend: Arc::clone(backend),
            dialect,
            meta: meta.map(Into::into),
            signed: signed.clone(),
            asides: asides.cloned(),
            session: None,
            news: None,
            begun_by: None,
        })
    }

    /// Makes the poller for a task that another process has waited for.
    pub(super) fn again(
        backend: &Arc<Backend>,
        task: &ServerTask,
        asides: mpsc::Sender<SideMessage>,
        news: TaskNews,
    ) -> Self {
        let backend = Arc::clone(backend);
        Self {
            backend,
            dialect: task.dialect(),
            meta: None,
            signed: task.signed(),
            asides: Some(asides),
            session: None,
            news: Some(news),
            begun_by: None,
        }
    }

    /// Returns the poller for a call of this session.
    pub(super) fn asked_in(self, session: Option<OfSession>) -> Self {
        Self { session, ..self }
    }

    /// Returns the poller with `news`, which hears of its task.
    pub(super) fn told_to(self, news: Option<TaskNews>) -> Self {
        Self { news, ..self }
    }

    /// Returns the signature with which the server is asked.
    pub(super) fn signed(&self) -> RequestSignature {
        self.signed.clone()
    }

    /// Returns the params with which the call asks for a task of the handshake era, or `None` if the params can go as they are.
    pub(super) fn params(&self, params: &str) -> Option<String> {
        let json = Json::new(params.as_bytes()).filter(|_| self.dialect == Dialect::Core)?;
        tasks::ask_for_task(json, None)
    }

    /// Returns whether the server has refused the call because its caller has not declared tasks.
    pub(super) fn lacks_declaration(&self, outcome: &Result<Box<RawValue>, Error>) -> bool {
        let Err(Error::Server(error)) = outcome else { return false };
        let data = error.data.as_ref().and_then(|data| Json::new(data.get().as_bytes()));
        self.dialect == Dialect::Extension && tasks::are_required(error.code, data)
    }

    /// Declares tasks for the caller from now on, if the server is stateless. Returns the params that do so, or `None` if the signature does.
    pub(super) fn declare(&mut self, params: &str) -> Option<String> {
        if self.dialect == Dialect::Core {
            return None;
        }
        self.meta = self.meta.take().map(|meta| declared(&meta).unwrap_or(meta));
        match &self.signed {
            RequestSignature::By(signature) => {
                let mut signature = signature.as_ref().clone();
                signature.client_capabilities = tasks::declare(&signature.client_capabilities);
                self.signed = RequestSignature::By(Arc::new(signature));
                None
            }
            RequestSignature::Already => {
                let json = Json::new(params.as_bytes())?;
                let meta = declared(json.member("_meta")?.get())?;
                Some(Splice::new(json).set("_meta", meta).apply()?.into_owned())
            }
            RequestSignature::ByUs => None,
        }
    }

    /// Waits for the outcome of the task, if the answer to the call is a task. Returns any other answer as it is.
    pub(super) async fn follow(
        self,
        outcome: Result<Box<RawValue>, Error>,
        deadline: Deadline,
    ) -> Result<Box<RawValue>, Error> {
        let Ok(result) = &outcome else { return outcome };
        let Some(raw) = Json::new(result.get().as_bytes()) else { return outcome };
        let task = match tasks::read_created(self.dialect, raw) {
            Ok(None) => return outcome,
            Ok(Some(task)) => task,
            Err(why) => return Err(self.broken(&why)),
        };
        tracing::debug!("`{}` continues a call as task {}", self.backend.name(), task.id);
        // Few calls become tasks. In a box, what following one needs makes the future of every other call no larger.
        let begun_by = Some(self.backend.starts());
        Box::pin(Self { begun_by, ..self }.pursue(task, deadline)).await
    }

    /// Waits for the outcome of a task. Dropping the future cancels the task, and so does the deadline, unless the task was left.
    pub(super) async fn pursue(self, task: SeenTask, deadline: Deadline) -> Result<Box<RawValue>, Error> {
        self.tell_begun(&task);
        let looks = self.news.as_ref().map_or_else(TaskLooks::default, TaskNews::looks);
        if let Some(asides) = &self.asides {
            // The caller may wait no more, or have more to read than there is time for.
            let _told = deadline.timeout(asides.send(SideMessage::TaskBegun)).await;
        }
        let callers = &self.backend.listener.task_callers;
        // From now on, the server's questions about the task go to the caller, which has heard of the task before.
        let _known = self.asides.clone().map(|asides| callers.note(&task.id, asides, looks.clone()));
        let mut cancel_on_drop = CancelOnDrop { task: Some(task.id.clone()), poller: self };
        let outcome = cancel_on_drop.poller.clone().wait(task, deadline, &looks).await;
        // The server may work on a task that is late, or that it tells of in a broken way.
        let is_given_up = |kind| matches!(kind, FaultKind::Deadline | FaultKind::BadResponse);
        if !matches!(&outcome, Err(Error::Failure(failure)) if is_given_up(failure.kind)) {
            cancel_on_drop.task = None;
        }
        outcome
    }

    /// Tells the listener of the task, so that the call can be left to another process from now on.
    pub(super) fn tell_begun(&self, task: &SeenTask) {
        if let Some(news) = &self.news {
            news.begun(KnownTask {
                task: ServerTask::new(&task.id, self.dialect, &self.signed, self.meta.as_deref()),
                kept_by: self.backend.identity().to_string(),
                outlives_us: self.backend.outlives_us(),
                doing: task.message.clone(),
            });
        }
    }

    /// Returns the poller that asks this backend of the same server.
    pub(super) fn of_backend(self, backend: Arc<Backend>) -> Self {
        Self { backend, ..self }
    }

    async fn wait(
        &self,
        mut task: SeenTask,
        deadline: Deadline,
        looks: &TaskLooks,
    ) -> Result<Box<RawValue>, Error> {
        let (mut looks, mut last_look) = (looks.take(), Instant::now());
        let mut questions = TaskQuestions::default();
        let (mut failures, mut fate) = (0, TaskFate::new(self.begun_by));
        loop {
            let pause = task.poll_interval_ms.map_or(POLL_USUAL, Duration::from_millis);
            let pause = pause.max(rest_after(failures)).clamp(POLL_LEAST, POLL_MOST);
            if deadline.remaining() <= pause {
                return Err(fate.late(&self.backend, &task));
            }
            tokio::select! {
                () = sleep(pause) => {}
                // A server that is away is not asked more often.
                () = wanted_look(&mut looks, last_look), if failures == 0 => {}
                Some((key, replied)) = questions.next_reply(), if !questions.are_answered() => {
                    self.reply(&task.id, key, replied).await;
                    continue;
                }
            }
            last_look = Instant::now();
            looks.begin();
            let limit = deadline.remaining().min(self.backend.request_timeout());
            let got = match self.ask(tasks::GET, &tasks::about(&task.id), limit, None).await {
                Ok(got) => got,
                // The server may be starting anew, and know the task still.
                Err(Error::Failure(failure)) if failures < MOST_FAILURES => {
                    failures += 1;
                    fate.missed(&self.backend, *failure);
                    looks.end();
                    continue;
                }
                Err(Error::Server(error)) if is_task_unknown(&error) => {
                    return Err(fate.forgotten(&self.backend, &error));
                }
                Err(error) => return Err(fate.unreachable(&self.backend, error)),
            };
            failures = 0;
            fate.is_known_to(self.backend.starts());
            let raw = Json::new(got.get().as_bytes()).unwrap_or(Json::EMPTY);
            let (seen, payload) = tasks::read_got(self.dialect, raw).map_err(|why| self.broken(&why))?;
            let status = seen.status;
            questions.withdraw_unless_listed(payload.as_ref());
            task = SeenTask { id: task.id, ..seen };
            if let Some(news) = &self.news {
                news.doing(task.message.as_deref());
            }
            match (status, payload) {
                (TaskStatus::Working, _) => looks.end(),
                (_, Some(Payload::Result(result))) => {
                    return RawValue::from_string(result).map_err(|error| self.broken(&error.to_string()));
                }
                (_, Some(Payload::Error(error))) => {
                    let error = ServerError::read(self.backend.name(), "tools/call", &error);
                    return Err(Error::Server(Box::new(error)));
                }
                (_, Some(Payload::Input(inputs))) => {
                    if let Some(asides) = &self.asides {
                        questions.put(asides, inputs);
                    }
                    looks.end();
                }
                (TaskStatus::Cancelled, _) => return Err(fate.cancelled(&self.backend, &task)),
                // In the core dialect, the outcome and the questions of a task come with the answer to another request.
                (TaskStatus::Completed | TaskStatus::Failed | TaskStatus::InputRequired, None) => {
                    if status == TaskStatus::InputRequired {
                        // The result comes when it is there, and nobody looks any more.
                        drop(looks);
                    }
                    let result = self.result(&task, deadline).await;
                    return result.map_err(|error| match error {
                        // The wait for the result has the limit of the call, and not that of a request.
                        Error::Failure(failure) if failure.kind == FaultKind::Deadline => {
                            fate.late(&self.backend, &task)
                        }
                        error => fate.unreachable(&self.backend, error),
                    });
                }
            }
        }
    }

    /// Waits for the result of a task in the core dialect, and passes on what the task asks meanwhile. Removes the server's own name for
    /// the task, which is for nobody else.
    async fn result(&self, task: &SeenTask, deadline: Deadline) -> Result<Box<RawValue>, Error> {
        let (theirs, mut said) = mpsc::channel(ASIDES);
        let _waits = self.backend.listener.task_callers.waits_for_result(&task.id, theirs.clone());
        let about = tasks::about(&task.id);
        let mut answer = pin!(self.ask(tasks::RESULT, &about, deadline.remaining(), Some(theirs)));
        let result = loop {
            tokio::select! {
                result = &mut answer => break result?,
                Some(aside) = said.recv() => if let Some(asides) = &self.asides {
                    let aside = match aside {
                        SideMessage::Asked(question) => {
                            let params = question.params.map(unrelated);
                            OpenServerQuestion { params, ..*question }.into()
                        }
                        other => other,
                    };
                    match aside {
                        // It is never lost.
                        SideMessage::ElicitationOver(_) => drop(deadline.timeout(asides.send(aside)).await),
                        // A question is declined if too many are on their way.
                        aside => drop(asides.try_send(aside)),
                    }
                },
            }
        };
        Ok(unrelated(result))
    }

    async fn reply(&self, task: &str, key: String, replied: Replied) {
        let response = match replied {
            Ok(response) => response,
            // The protocol has no way to say why.
            Err(_) => r#"{"action":"cancel"}"#.to_owned(),
        };
        let update = tasks::update(task, &[(key, response)]);
        if let Err(error) = self.ask(tasks::UPDATE, &update, self.backend.request_timeout(), None).await {
            tracing::warn!("unhang could not pass an answer to `{}`: {error}", self.backend.name());
        }
    }

    /// Sends one request about a task.
    async fn ask(
        &self,
        method: &str,
        params: &str,
        limit: Duration,
        asides: Option<mpsc::Sender<SideMessage>>,
    ) -> Result<Box<RawValue>, Error> {
        let deadline = Deadline::after(limit);
        let ready = deadline.timeout(self.backend.ready(StartReason::Request)).await;
        let (client, _) =
            ready.unwrap_or_else(|_| Err(verdicts::still_starting(self.backend.name(), method, limit)))?;
        let signed = Json::new(params.as_bytes()).zip(self.meta.as_ref()).and_then(|(params, meta)| {
            Some(Splice::new(params).set("_meta", meta.as_str()).apply()?.into_owned())
        });
        let manner = CallOptions {
            timeout: Some(deadline.remaining()),
            asides,
            session: self.session,
            signed: self.signed.clone(),
            ..CallOptions::default()
        };
        client.ask(method, signed.as_deref().unwrap_or(params), &manner).await
    }

    fn broken(&self, why: &str) -> Error {
        let name = self.backend.name();
        let happened = format!("`{name}` continues `tools/call` as a task, and {why}");
        let hint = "this is a fault of the server";
        verdicts::failure(name, FaultKind::BadResponse, "tools/call", happened, hint).into()
    }
}

/// Waits until a look at a task is wanted and may be taken so soon after the last one.
async fn wanted_look(looks: &mut LooksTaken, last_look: Instant) {
    looks.wanted().await;
    sleep_until(last_look + LOOK_LEAST).await;
}

/// Returns the pause after so many failures in a row, for a server that may come up after us.
fn rest_after(failures: u32) -> Duration {
    let before = failures.checked_sub(1);
    let rest = before.map(|before| POLL_USUAL.saturating_mul(2_u32.saturating_pow(before)).min(POLL_MOST));
    rest.unwrap_or_default()
}

/// Returns whether this error says that the server does not know the task.
fn is_task_unknown(error: &ServerError) -> bool {
    let codes = [FaultKind::InvalidParams.code(), FaultKind::MethodNotFound.code()];
    codes.iter().any(|code| i64::from(*code) == error.code)
}

/// Returns the message without the name of the task that it belongs to.
fn unrelated(message: Box<RawValue>) -> Box<RawValue> {
    let without = Json::new(message.get().as_bytes()).and_then(tasks::unrelated);
    let without = without.and_then(|without| RawValue::from_string(without.into_owned()).ok());
    without.unwrap_or(message)
}

/// Returns the `_meta` of a client that declares that it copes with tasks.
fn declared(meta: &str) -> Option<String> {
    let meta = Json::new(meta.as_bytes())?;
    let capabilities = tasks::declare(meta.member(CLIENT_CAPABILITIES).map_or("{}", Json::get));
    Some(Splice::new(meta).set(CLIENT_CAPABILITIES, capabilities).apply()?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_away_has_minutes_to_come_up() {
        let rests: Vec<Duration> = (0..=MOST_FAILURES).map(rest_after).collect();
        assert_eq!(rests[..4], [0, 1, 2, 4].map(Duration::from_secs), "one that comes up soon is asked soon");
        assert!(rests.iter().all(|rest| *rest <= POLL_MOST));
        let whole: Duration = rests.iter().sum();
        assert!((Duration::from_mins(5)..Duration::from_mins(10)).contains(&whole), "{whole:?}");
    }
}
