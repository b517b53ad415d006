//! Hears the messages of a server that belong to no call: changes of lists and resources, and questions, which go to the inbox of
//! the one session that they can be for.
//!
//! Invariants
//!
//! - A question that nobody can be asked is declined, with a reason.
//! - A client that is asked something has all the time of the call for the answer, unless another session waits for the server. The reason
//!   then says so.

use std::{
    future::{self, Future},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::{Map, Value, json, value::RawValue};
use tokio::{
    sync::{Notify, mpsc},
    time::{Instant, sleep},
};
use unhang_wire::{Json, text_member};

use super::{
    SessionKey,
    list_announcements::ListKinds,
    open_sessions::OpenSessions,
    resource_watches::{ResourceUpdate, UpdateMerger, Updates},
    session_inboxes::InboxScope,
    status::ServerRecord,
    task_callers::TaskCallers,
    waiting_requests::WaitingRequests,
};
use unhang_core::{fault::FaultKind, insertion::InsertEach};
use unhang_upstream::{
    client::{ListenerAnswer, ReplyError, ServerListener},
    question::{ELICITATION_COMPLETE, OpenServerQuestion, SideMessage},
};

/// The pause between a change of a list and the request for it: changes come in crowds, and some servers tell of them without end.
const CALM: Duration = Duration::from_millis(250);

/// The notifications by which a server says something about a task, in both dialects.
const TASK_NOTIFICATIONS: [&str; 2] = ["notifications/tasks/status", "notifications/tasks"];

/// The reason why a question outside calls is for nobody.
const NOBODY_TO_ASK: &str =
    "the server has no call in flight, and no single session whose client can be asked without one";

/// Hears a server, and passes its questions outside calls on. Declines those that nobody can be asked.
pub(super) struct NotificationListener {
    server: String,
    /// Rung when the server's lists may have changed.
    changed: Notify,
    /// Rung when somebody waits for the server's lists.
    wanted: Notify,
    /// The kinds of lists whose change the server has announced since it was last asked for its lists.
    announced: Mutex<ListKinds>,
    /// The server asks questions during calls, over a stream on which nothing says which call a question is about.
    asks: AtomicBool,
    /// The first question of the server was put to a session.
    asked_one_first: AtomicBool,
    /// Sessions that wait for the server, so that no client is waited for in vain.
    pub(super) waiting: Arc<WaitingRequests>,
    /// The time that a client may take for an answer while others wait for the server.
    question_limit: Duration,
    server_index: usize,
    updates: Updates,
    /// Present if several instances may tell of the same change.
    merged_updates: Option<Arc<UpdateMerger>>,
    /// The counts of the server.
    record: Arc<ServerRecord>,
    /// The sessions whose clients have declared extensions.
    open_sessions: Arc<OpenSessions>,
    /// The sessions that its messages outside calls can be for.
    inbox_scope: InboxScope,
    /// The callers of the calls that the server continues as tasks.
    pub(super) task_callers: TaskCallers,
}

impl NotificationListener {
    pub(super) fn new(
        server: String,
        server_index: usize,
        question_limit: Duration,
        (updates, merged_updates): (Updates, Option<Arc<UpdateMerger>>),
        record: Arc<ServerRecord>,
        (open_sessions, inbox_scope): (Arc<OpenSessions>, InboxScope),
        waiting: Arc<WaitingRequests>,
    ) -> Self {
        let (changed, wanted) = (Notify::new(), Notify::new());
        let (asks, asked_one_first) = (AtomicBool::default(), AtomicBool::default());
        Self {
            server,
            changed,
            wanted,
            announced: Mutex::default(),
            asks,
            asked_one_first,
            waiting,
            question_limit,
            server_index,
            updates,
            merged_updates,
            record,
            open_sessions,
            inbox_scope,
            task_callers: TaskCallers::default(),
        }
    }

    /// Notes that the server's lists may have changed.
    pub(super) fn lists_may_have_changed(&self) {
        self.changed.notify_one();
    }

    /// Notes that somebody waits for the server's lists.
    pub(super) fn lists_are_wanted(&self) {
        self.wanted.notify_one();
    }

    /// Takes what the server has announced so far. Its lists are asked for next.
    pub(super) fn take_announced(&self) -> ListKinds {
        std::mem::take(&mut *self.announced())
    }

    /// Notes what the server has announced, until its lists are asked for again.
    pub(super) fn note_announced(&self, kinds: ListKinds) {
        self.announced().add(kinds);
    }

    fn announced(&self) -> MutexGuard<'_, ListKinds> {
        self.announced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the server's lists may have changed or somebody waits for them, or for `retry_after` if they could not be fetched.
    pub(super) async fn until_lists_change(&self, retry_after: Option<Duration>) {
        let changed = async {
            self.changed.notified().await;
            sleep(CALM).await;
        };
        let retry = async {
            match retry_after {
                Some(pause) => sleep(pause).await,
                None => future::pending().await,
            }
        };
        tokio::select! {
            () = changed => {}
            () = retry => {}
            () = self.wanted.notified() => {}
        }
    }

    /// Returns whether the server was seen to ask questions during calls.
    pub(super) fn asks(&self) -> bool {
        self.asks.load(Ordering::Acquire)
    }

    /// Returns whether the first question of the server was put to a session: the one that had all calls at that time.
    pub(super) fn asked_one_first(&self) -> bool {
        self.asked_one_first.load(Ordering::Relaxed)
    }

    /// Notes that the server asks a question of one session or of nobody, which `is_of_one` says. The task that speaks with the server
    /// calls this, and nobody else at the same time.
    fn is_seen_to_ask(&self, method: &str, is_of_one: bool) {
        if !self.asks() {
            self.asked_one_first.store(is_of_one, Ordering::Relaxed);
            self.asks.store(true, Ordering::Release);
            tracing::info!(
                "`{}` sent {method} during a call; from now on it gets the calls of one session at a time",
                self.server
            );
        }
    }
}

impl ServerListener for NotificationListener {
    /// Returns the capabilities that clients can have. The calling client is not known yet; a client without a capability declines for
    /// itself.
    fn capabilities(&self) -> Map<String, Value> {
        let elicitation = json!({ "form": {}, "url": {} });
        let extensions = Value::Object(self.open_sessions.declared());
        let offered = [
            ("elicitation", elicitation),
            ("sampling", json!({})),
            ("roots", json!({ "listChanged": true })),
        ];
        let offered = offered.into_iter().chain([("extensions", extensions)]);
        offered.map(|(name, value)| (name.to_owned(), value)).insert_each()
    }

    fn asks(
        &self,
        method: &str,
        session: Option<SessionKey>,
    ) -> Pin<Box<dyn Future<Output = String> + Send + 'static>> {
        self.is_seen_to_ask(method, true);
        let (waiting, put, question_limit) = (Arc::clone(&self.waiting), Instant::now(), self.question_limit);
        Box::pin(async move {
            waiting.until_crowded(session, put, question_limit).await;
            "other calls waited for the server, and the client did not answer".to_owned()
        })
    }

    fn asks_in_a_crowd(&self, method: &str) {
        // No wait depends on this.
        self.is_seen_to_ask(method, false);
    }

    fn wrote_junk(&self, lines: u64) {
        self.record.wrote_junk(lines);
    }

    fn may_have_missed_some(&self) {
        self.lists_may_have_changed();
    }

    fn notified(&self, method: &str, params: Option<&RawValue>) {
        if method.ends_with("/list_changed") {
            self.note_announced(ListKinds::announced_by(method));
            self.lists_may_have_changed();
        } else if method == "notifications/resources/updated" {
            let params = params.and_then(|params| Json::new(params.get().as_bytes()));
            if let Some(uri) = params.and_then(|params| text_member(params, "uri")) {
                let update = ResourceUpdate { server: self.server_index, uri: uri.into() };
                match &self.merged_updates {
                    Some(merger) => merger.tell(&self.updates, update),
                    // If nobody listens, the change is for nobody.
                    None => drop(self.updates.send(update)),
                }
            }
        } else if TASK_NOTIFICATIONS.contains(&method) {
            let params = params.and_then(|params| Json::new(params.get().as_bytes()));
            if let Some(task) = params.and_then(|params| text_member(params, "taskId")) {
                self.task_callers.has_changed(&task);
            }
        } else if method == ELICITATION_COMPLETE
            && let Some(params) = params
            && let Some(inbox) = self.open_sessions.inboxes.now(self.inbox_scope)
        {
            // The session takes its messages at once, or ends.
            let _left = inbox.try_send(SideMessage::ElicitationOver(params.to_owned()));
        } else {
            tracing::debug!("`{}` says {method}: {}", self.server, params.map_or("", RawValue::get));
        }
    }

    fn caller_of_task(
        &self,
        task: &str,
    ) -> Pin<Box<dyn Future<Output = Option<mpsc::Sender<SideMessage>>> + Send + 'static>> {
        let (callers, task) = (self.task_callers.clone(), task.to_owned());
        Box::pin(async move { callers.find(&task).await })
    }

    fn asked(
        &self,
        method: String,
        params: Option<Box<RawValue>>,
    ) -> Pin<Box<dyn Future<Output = ListenerAnswer> + Send + 'static>> {
        let (open_sessions, inbox_scope) = (Arc::clone(&self.open_sessions), self.inbox_scope);
        Box::pin(async move {
            match open_sessions.inboxes.until_open(inbox_scope).await {
                Some(inbox) => asked_outside_calls(inbox, method, params).await,
                None => Err(declined(&method, NOBODY_TO_ASK)),
            }
        })
    }

    fn asked_after_calls_of(
        &self,
        session: SessionKey,
        method: &str,
        params: Option<&RawValue>,
    ) -> Option<Pin<Box<dyn Future<Output = ListenerAnswer> + Send + 'static>>> {
        let inbox = self.open_sessions.inboxes.now_of(self.inbox_scope, session)?;
        Some(Box::pin(asked_outside_calls(inbox, method.to_owned(), params.map(RawValue::to_owned))))
    }
}

/// Puts a question into the inbox of a session, and waits for the answer.
async fn asked_outside_calls(
    inbox: mpsc::Sender<SideMessage>,
    method: String,
    params: Option<Box<RawValue>>,
) -> ListenerAnswer {
    let (question, awaited) = OpenServerQuestion::about_one(method.clone(), params);
    // A session that has ended drops the question.
    let _left = inbox.send(question.into()).await;
    let ended = || declined(&method, "the session of the client has ended");
    let replied = awaited.reply().await.ok_or_else(ended)?;
    serde_json::from_str(&replied?)
        .map_err(|_| (FaultKind::Cancelled.code(), "the answer of the client is not JSON".to_owned()).into())
}

fn declined(method: &str, why: &str) -> ReplyError {
    (FaultKind::MethodNotFound.code(), format!("`{method}` is declined: {why}")).into()
}

#[cfg(test)]
mod tests {
    use tokio::{runtime::Handle, sync::broadcast, time::timeout};
    use unhang_core::config::{CLIENT_EXTENSION_BYTES, CLIENT_EXTENSIONS};

    use super::*;

    fn listener() -> NotificationListener {
        let (updates, _) = broadcast::channel(1);
        let limit = Duration::from_secs(30);
        let whose = (Arc::default(), InboxScope::OnlySession);
        NotificationListener::new(
            "srv".to_owned(),
            0,
            limit,
            (updates, None),
            Arc::default(),
            whose,
            Arc::default(),
        )
    }

    #[test]
    fn a_server_hears_of_the_extensions_of_clients_and_of_views_in_any_case() {
        let listener = listener();
        let declared = || Value::from(listener.capabilities())["extensions"].clone();
        let views = json!({ "mimeTypes": ["text/html;profile=mcp-app"] });
        assert_eq!(declared(), json!({ "io.modelcontextprotocol/ui": views }));
        let long = "x".repeat(CLIENT_EXTENSION_BYTES);
        for extensions in [
            json!({ "com.example/a": { "b": 1 }, "io.modelcontextprotocol/tasks": {}, "com.example/c": { "d": long } }),
            json!({ "com.example/a": { "b": 2 }, "io.modelcontextprotocol/ui": { "mimeTypes": [] } }),
            json!(5),
        ] {
            listener.open_sessions.note_declared(&json!({ "extensions": extensions }).to_string());
        }
        let expect = json!({ "com.example/a": { "b": 1 }, "io.modelcontextprotocol/ui": views });
        assert_eq!(declared(), expect, "the first client that declares an extension counts");
        let many: Map<String, Value> =
            (0..100).map(|number| (format!("com.example/{number}"), json!({}))).collect();
        listener.open_sessions.note_declared(&json!({ "extensions": many }).to_string());
        assert!(declared().as_object().is_some_and(|declared| declared.len() <= CLIENT_EXTENSIONS));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_being_asked_is_taken_away_by_those_who_wait_alone_however_often_a_server_asks() {
        const LONG: Duration = Duration::from_hours(1);
        let listener = listener();
        let mut open = ServerListener::asks(&listener, "elicitation/create", None);
        (0..1000).for_each(|_| listener.asks_in_a_crowd("roots/list"));
        assert_eq!(Handle::current().metrics().num_alive_tasks(), 0);
        assert!(timeout(LONG, open.as_mut()).await.is_err(), "nobody waits");
        let _waits = listener.waiting.enter(None, Instant::now());
        let why = timeout(LONG, open).await.expect("it is over");
        assert!(why.contains("other calls waited") && listener.asks(), "{why}");
    }
}
