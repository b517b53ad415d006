//! The servers behind a gateway, for callers that ask one of them something: all servers, or the view that one session has of them.

use std::{future, sync::Arc, thread, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};
use unhang_bridge::{
    tasks::{SeenTask, Support, TaskStatus, task_support},
    tools::is_repeatable,
};
use unhang_proc::deadline::Deadline;
use unhang_wire::{Json, text_member};

use super::{
    ProgressSender, Scope, ServerAnswer, ServerRequest, ServerSet, ServerStatus, SideMessage, Watch,
    backend::Backend,
    dispatch::dispatch,
    eras::EraChoice,
    gateway_core::GatewayCore,
    list_refresh::{refresh_all, unlisted_owner},
    request_metrics::{CountedRequest, RequestMetrics},
    server_task::ServerTask,
    server_tasks::ServerTasks,
    session_servers::SessionServers,
    stream_outlook::{StreamedCall, resume},
    task_news::TaskNews,
    tasks::TaskPoller,
    verdicts,
};
use crate::route::names::Owner;
use unhang_core::{config::DISPOSE_LIMIT, list::ServerList, telemetry::SpanSubject};
use unhang_upstream::{call_stream::StreamPoint, client::Error, kept_request::SentSender};

/// The servers behind a gateway. Clones are the same servers; when all clones have gone, so have the servers.
#[derive(Clone)]
pub struct Servers {
    pub(super) core: Arc<GatewayCore>,
    pub(super) tasks: ServerTasks,
    /// The view of one session, or `None` for the caller that looks after the servers.
    pub(super) session_servers: Option<Arc<SessionServers>>,
}

/// Replaces the URIs in a server's result by their public forms, for a session or for the caller that looks after the servers.
fn give_public_uris(
    (core, session_servers): (&GatewayCore, Option<&SessionServers>),
    backend: &Backend,
    method: &str,
    answered: &mut ServerAnswer,
) {
    let Ok(result) = &mut answered.outcome else { return };
    let catalog = match session_servers {
        Some(session_servers) => session_servers.catalog(),
        None => Arc::clone(&core.known.borrow().catalog),
    };
    if let Some(public) = catalog.with_public_uris(backend.server_index(), method, result) {
        *result = public;
    }
}

/// A server whose tool is called.
#[derive(Clone)]
pub struct CalledServer(Arc<Backend>);

impl CalledServer {
    /// Returns the server's name.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Returns the called tool as people know it: the server that the configuration names, and that server's name for the tool.
    pub fn owner_of(&self, tool: &str) -> (String, String) {
        self.0.owner_of(tool).unwrap_or_else(|| (self.name().to_owned(), tool.to_owned()))
    }

    /// Returns a key that tells the server from itself under another configuration, and an instance of one session from other instances.
    pub fn instance(&self) -> [u8; 8] {
        self.0.own.as_ref().map_or_else(|| self.0.config_key(), |own| own.key.bytes())
    }

    /// Returns a key that tells the server from itself under another configuration; `None` if each session has instances of its own.
    pub fn of_all_sessions(&self) -> Option<[u8; 8]> {
        (self.0.scope() != Scope::Session).then(|| self.0.config_key())
    }

    /// Returns whether the server makes a task of its own of every call of this tool. Goes through all tools of the server.
    pub fn makes_tasks_of(&self, tool: &str) -> bool {
        self.has_tool(tool, |tool| task_support(tool) == Support::Required)
    }

    /// Returns whether this tool may be called once more without doing anything twice. Goes through all tools of the server.
    pub fn is_repeatable(&self, tool: &str) -> bool {
        self.has_tool(tool, is_repeatable)
    }

    fn has_tool(&self, name: &str, fits: impl Fn(Json<'_>) -> bool) -> bool {
        let offered = self.0.offered();
        let mut tools = offered.tools.iter().filter_map(|raw| Json::new(raw.get().as_bytes()));
        tools.any(|tool| text_member(tool, "name").is_some_and(|own| own == name) && fits(tool))
    }
}

impl Servers {
    /// Starts all servers and returns at once. Must be called in a runtime. Servers whose lists were read by [`ServerSet::read_ahead`]
    /// offer those of the last run at once.
    #[must_use]
    pub fn start(lineup: ServerSet) -> Self {
        let core = GatewayCore::new(lineup.capacity, lineup.notices.clone());
        let servers = Self { core, tasks: ServerTasks::default(), session_servers: None };
        servers.replace(lineup);
        servers
    }

    /// Returns how many requests wait because all servers together have as many as they may.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.core.all.waiting()
    }

    /// Subscribes to changes of a resource for as long as the watch is kept. The server is asked once, however many sessions want to hear
    /// of it.
    ///
    /// # Errors
    /// Fails with [`Error::Disposed`] if there is no such server, and with a failure if the server is not ready within `limit`. Fails with
    /// the server's error if it does not tell of the resource.
    pub async fn watch(&self, server: usize, uri: Arc<str>, limit: Duration) -> Result<Watch, Error> {
        let backend = self.at(server).ok_or(Error::Disposed)?;
        let waited = Arc::clone(&backend);
        let _use = waited.used();
        let (era, core) = (self.era(), Arc::clone(&self.core));
        let begin = async {
            let backend = EraChoice(&backend).speaking(era, &core).await;
            Watch::begin(backend, uri, limit).await
        };
        let watched = Deadline::after(limit).timeout(begin).await;
        let watched = watched
            .unwrap_or_else(|_| Err(verdicts::still_starting(waited.name(), "resources/subscribe", limit)));
        waited.told_of_owner(None, watched.map_err(|error| self.may_read().error(&waited, error)))
    }

    /// Returns the server at this index, for a caller that wants to know more of it later, whatever the configuration has become by then.
    pub fn whose(&self, server_index: usize) -> Option<CalledServer> {
        self.at(server_index).map(CalledServer)
    }

    /// Returns the status of the servers, in their order.
    #[must_use]
    pub fn status(&self) -> Vec<ServerStatus> {
        let (current, instances) = {
            let roster = self.core.roster();
            (roster.current.clone(), roster.instances.clone())
        };
        let of = |server_index| -> Vec<Arc<Backend>> {
            instances
                .iter()
                .filter(|instance| instance.server_index() == server_index)
                .map(Arc::clone)
                .collect()
        };
        current.iter().map(|backend| backend.status(&of(backend.server_index()))).collect()
    }

    /// Returns the counts of client requests to the servers, in their order, each with the server's name.
    pub fn request_metrics(&self) -> Vec<(String, Arc<RequestMetrics>)> {
        let current = self.core.current().into_iter();
        current.map(|backend| (backend.name().to_owned(), Arc::clone(&backend.metrics))).collect()
    }

    /// Sends a request to one of the servers. Dropping the future withdraws the request.
    pub fn ask(
        &self,
        asked: ServerRequest,
        progress: Option<ProgressSender>,
        asides: Option<mpsc::Sender<SideMessage>>,
    ) -> impl Future<Output = ServerAnswer> + Send + use<> {
        self.ask_and_hear(asked, progress, asides, None, None)
    }

    /// Sends a request to one of the servers. `news` hears of the task with which the server goes on with a call, and `sent` of the request
    /// as a server process was sent it.
    pub fn ask_and_hear(
        &self,
        asked: ServerRequest,
        progress: Option<ProgressSender>,
        asides: Option<mpsc::Sender<SideMessage>>,
        news: Option<TaskNews>,
        sent: Option<SentSender>,
    ) -> impl Future<Output = ServerAnswer> + Send + use<> {
        let backend = self.at(asked.server);
        let core = Arc::clone(&self.core);
        let (may_read, session_servers) = (self.may_read(), self.session_servers.clone());
        async move {
            core.busy_poll.message_arrived();
            let Some(backend) = backend else {
                let ServerRequest { client: era, asked_for, .. } = asked;
                return ServerAnswer { era, server_info: None, outcome: Err(Error::Disposed), asked_for };
            };
            let counted = CountedRequest::begin(Arc::clone(&backend.metrics), asked.method);
            let span = asked.trace.as_ref().map(|trace| {
                let subject = SpanSubject {
                    method: asked.method,
                    tool: asked.tool.as_deref(),
                    ..SpanSubject::default()
                };
                Box::new(trace.server(backend.name(), &subject))
            });
            let tool = asked.tool.clone().filter(|_| backend.is_gateway());
            let method = asked.method;
            let mut answered = dispatch(&backend, &core, &asked, (progress, sent), asides, news).await;
            answered.asked_for = asked.asked_for;
            answered.outcome = backend.told_of_owner(tool.as_deref(), answered.outcome);
            give_public_uris((&core, session_servers.as_deref()), &backend, method, &mut answered);
            core.busy_poll.message_arrived();
            counted.ended(&answered.outcome);
            if let Some(span) = span {
                span.ended(&answered.outcome);
            }
            may_read.told(&backend, answered)
        }
    }

    /// Asks the servers whose lists the caller sees for this list. Returns when the changes are published. Servers that are slow to answer are
    /// waited for [`LIST_PATIENCE`](unhang_core::config::LIST_PATIENCE) at most. Returns the owner of the item `wanted`, if nobody lists that
    /// and only one server may have it all the same.
    pub async fn refresh(&self, list: ServerList, wanted: Option<&str>) -> Option<Owner> {
        let core = Arc::downgrade(&self.core);
        let publish = move || _ = core.upgrade().map(|core| core.publish_changed_list());
        let unknown = refresh_all(self.listed_backends(), list, publish).await;
        unlisted_owner(&self.core.roster(), list, wanted?, &unknown)
    }

    /// Keeps this thread awake while requests and answers follow one another closely. Does nothing on a machine with one processor, which
    /// the awaited process needs. For a runtime that has one thread. Never ends.
    pub async fn stay_awake(&self) {
        match thread::available_parallelism() {
            Ok(processors) if processors.get() > 1 => self.core.busy_poll.keep().await,
            _ => future::pending().await,
        }
    }

    /// Ends all servers, and waits for that as long as it may take.
    pub async fn close(&self) {
        let all = self.core.roster().close();
        self.tasks.stop_all();
        let deadline = Deadline::after(DISPOSE_LIMIT);
        let mut ends = JoinSet::new();
        for backend in all {
            ends.spawn(async move { backend.close(deadline).await });
        }
        // A panic in one task keeps no other server from its end.
        while ends.join_next().await.is_some() {}
    }

    /// Returns the index of the server that has a task: the one with this name and this identity. Returns `None` if there is none.
    pub fn holder_of(&self, name: &str, kept_by: &str) -> Option<usize> {
        let current = self.core.current();
        let holder = current.iter().find(|backend| backend.name() == name && !backend.is_gateway())?;
        let is_the_same = &*holder.identity() == kept_by;
        is_the_same.then(|| holder.server_index())
    }

    /// Waits for the outcome of a task that another process has waited for. It needs no permit, since the server is at it already. Dropping
    /// the future cancels the task, unless it was left.
    pub fn take_up(
        &self,
        server_index: usize,
        task: &ServerTask,
        deadline: Deadline,
        asides: mpsc::Sender<SideMessage>,
        news: &TaskNews,
    ) -> impl Future<Output = ServerAnswer> + Send + use<> {
        let (backend, core) = (self.at(server_index), Arc::clone(&self.core));
        let (task, news, may_read) = (task.clone(), news.clone(), self.may_read());
        let session_servers = self.session_servers.clone();
        async move {
            let era = task.era();
            let answered = |outcome| ServerAnswer { era, server_info: None, outcome, asked_for: None };
            let Some(backend) = backend else { return answered(Err(Error::Disposed)) };
            let _use = backend.used();
            let seen = SeenTask {
                id: task.id.clone(),
                status: TaskStatus::Working,
                message: None,
                ttl_ms: None,
                // The first look is due soon.
                poll_interval_ms: Some(0),
            };
            let poller = TaskPoller::again(&backend, &task, asides, news);
            // The server may take long to start, and this process may end meanwhile.
            poller.tell_begun(&seen);
            let speaking = deadline.timeout(EraChoice(&backend).speaking(era, &core)).await;
            let speaking = speaking.unwrap_or_else(|_| Arc::clone(&backend));
            let _use = speaking.used();
            let pursued = poller.of_backend(Arc::clone(&speaking)).pursue(seen, deadline).await;
            let mut answered = answered(pursued);
            give_public_uris((&core, session_servers.as_deref()), &backend, "tools/call", &mut answered);
            may_read.told(&backend, answered)
        }
    }

    /// Resumes the stream of a call that another process has waited for. It needs no permit, since the server is at it already. `times` are
    /// the time that the call has taken, and the time that it may take in all. Returns `None` if the server has no such streams. Must be
    /// called in a runtime.
    pub fn resume_stream(
        &self,
        server_index: usize,
        point: StreamPoint,
        times: (Duration, Duration),
        asides: mpsc::Sender<SideMessage>,
        news: &TaskNews,
    ) -> Option<StreamedCall> {
        let (backend, core) = (self.at(server_index)?, Arc::clone(&self.core));
        let (progress, seen) = watch::channel(None);
        let (client, follower) = resume(&backend, point, times, (progress, asides), news)?;
        let (may_read, session_servers) = (self.may_read(), self.session_servers.clone());
        let answering = Box::pin(async move {
            let _use = backend.used();
            let mut answered = follower.answer().await;
            give_public_uris((&core, session_servers.as_deref()), &backend, "tools/call", &mut answered);
            may_read.told(&backend, answered)
        });
        Some(StreamedCall { client, answering, seen })
    }
}
