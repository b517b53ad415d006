//! The bridge to the jobs that calls of a guarded session become, and to the answers about jobs.
//!
//! ```text
//! session ─ WrapAction::Promote ─► JobBridge::order ─ the data folder, opened by the first ─ PromotedCalls::adopt ─► BridgeEvent::Adopted
//! session ─ WrapEffects::to_job ─► JobBridge::tell ─► what the job waits for ─► PromotedCalls::keep ─► the job
//! session ◄── BridgeEvent::Withdrawn ◄── nobody waits for it any more: it was cancelled, or has ended
//! session ─ WrapEffects::to_job_server ─► JobBridge::serve ─► the local job server, opened by the first ─► JobBridge::said ─► session
//! ```
//!
//! # Invariants
//!
//! - Nothing is opened, and no file is touched, before the first call is slow, the client asks about jobs, or the server does not start. A
//!   folder without jobs stays as it is.
//! - If calls may join jobs, the guard opens the folder at once. It reads nothing of its client before it knows the calls of earlier
//!   sessions, for [`RECALL_LIMIT`] at most.
//! - If a call cannot become a job it stays a call, unless its client has asked for a task. The log says why.
//! - News for a job never waits for the job (`relays`).

use std::{
    future::pending,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use tokio::{
    sync::OnceCell,
    task::{JoinSet, spawn_blocking},
    time::Instant,
};
use unhang_bridge::{params::CLIENT_CAPABILITIES, tasks::Dialect};
use unhang_jobs::{error::JobError as EngineError, folder::has_database, id::JobId, record::Holder};
use unhang_wire::{Id, Json, text_member};

use super::{
    effects::JobNews,
    promotion::{Join, JoinOutcome, Promote, WrapPromotionOrder},
    relays::{CallRelays, RelayEvent, RepeatedRequest},
};
use unhang_background::{
    CallOrigin, CallServer, CallsEnd, EngineService, Promotable, Promoted, PromotedCalls, RunningCall,
    ToolOfCaller, WhoIsAsked, joined,
};
use unhang_core::{limits::Limits, queue::Class, units::in_words};
use unhang_front::{LocalJobServer, PromotionReply};
use unhang_gateway::SessionKey;
use unhang_tools::{
    job_report::ToolNames,
    service::{Caller, JobService, JobServiceError},
};
use unhang_upstream::keeping::KeptCall;

/// Opens the data folder of the jobs. It may wait for the disk.
pub type OpenJobs = Box<dyn FnOnce() -> EngineService + Send>;

/// The data folder of the jobs, which is opened when it is needed.
pub struct UnopenedJobs {
    /// The folder.
    pub folder: PathBuf,
    /// Opens the folder.
    pub open: OpenJobs,
}

/// The most calls that may wait for existing jobs, even after their clients have withdrawn them.
const MOST_JOINING: usize = 1024;

/// The time that the disk may take to tell which calls of earlier sessions have ended. The client waits for it.
const RECALL_LIMIT: Duration = Duration::from_secs(3);

/// The data folder of the jobs, opened by its first user.
struct LazyDataFolder {
    folder: PathBuf,
    opened: OnceCell<EngineService>,
    open: Mutex<Option<OpenJobs>>,
    /// The names of the tools, as the first who knew them has told.
    names: OnceLock<ToolNames>,
}

impl LazyDataFolder {
    /// Opens the folder once, and returns its service. The first caller decides the names of the tools.
    async fn service(&self, names: ToolNames) -> EngineService {
        let names = *self.names.get_or_init(|| names);
        self.open().await.clone().called_by(names)
    }

    /// Returns the service, if the folder is open.
    fn opened(&self) -> Option<EngineService> {
        let names = self.names.get().copied().unwrap_or_default();
        Some(self.opened.get()?.clone().called_by(names))
    }

    /// Opens the folder once.
    async fn open(&self) -> &EngineService {
        let open = || async {
            let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
            let opened = match open {
                Some(open) => spawn_blocking(open).await.ok(),
                None => None,
            };
            let nobody = || EngineService::new(Err(EngineError::Closed), Default::default());
            // A panic, which was reported elsewhere.
            opened.unwrap_or_else(nobody)
        };
        self.opened.get_or_init(open).await
    }

    /// Opens the folder, if there may be jobs of earlier sessions.
    async fn earlier(&self) -> Option<PromotedCalls> {
        let folder = self.folder.clone();
        let has_jobs = spawn_blocking(move || has_database(&folder)).await.unwrap_or_default();
        if has_jobs { self.open().await.promoted() } else { None }
    }

    /// Reads which calls of earlier sessions have ended, so that calls of this session join them.
    async fn recall(&self) {
        if let Some(calls) = self.earlier().await {
            calls.joinable().recall_ended().await;
        }
    }

    fn calls(&self) -> Option<PromotedCalls> {
        self.opened()?.promoted()
    }
}

/// A call that has a job on the disk now.
pub(super) struct Adopted {
    pub call: Id,
    pub order: WrapPromotionOrder,
    /// The key of the call's relay.
    relay: u64,
    /// The result that the client gets in place of the answer.
    pub result: String,
    promoted: Promoted,
    who: WhoIsAsked,
    running_call: RunningCall,
    pub calls: PromotedCalls,
    /// The data folder of the job.
    pub data_folder: PathBuf,
}

/// The result of a task of the bridge.
enum BridgeResult {
    Adopted(Box<Adopted>),
    Refused(Id, WrapPromotionOrder, u64, JobServiceError),
    Over(Id, WrapPromotionOrder, JobId),
    Joined(Id, WrapPromotionOrder, JoinOutcome),
    Opened(EngineService, ToolNames),
    Kept(Box<Adopted>),
    NotKept(Box<Adopted>, JobServiceError),
    /// The calls that ended in earlier sessions are known.
    Recalled,
    /// There is nothing to do.
    Done,
}

/// An event of the bridge.
pub(super) enum BridgeEvent {
    /// There is a job, and its client should be told.
    Adopted(Box<Adopted>),
    /// The job would outlive this process, and its client should be told.
    Kept(Box<Adopted>),
    /// The job would end with this process, for this reason.
    NotKept(Box<Adopted>, JobServiceError),
    /// The job of this call has ended.
    Ended(Id),
    /// There is no job, for this reason.
    Refused(Id, WrapPromotionOrder, JobServiceError),
    /// The job that a call waited for has ended, or the wait has to end.
    Over(Id, WrapPromotionOrder, JobId),
    /// There is an outcome for a call that waits for a job.
    Joined(Id, WrapPromotionOrder, JoinOutcome),
    /// Nobody waits for this call any more.
    Withdrawn(Id),
    /// A job makes one more request to the server.
    Asked(Arc<str>, RepeatedRequest),
    /// The local job server has said something.
    Said,
    /// The calls of earlier sessions are known.
    Recalled,
}

/// The local job server, which answers about jobs once the client has asked.
enum LazyJobServer {
    Closed,
    /// It is being opened. The field has the lines that have come meanwhile.
    Opening(Vec<Vec<u8>>),
    Open(Box<LocalJobServer>),
}

/// The bridge. See the module's text.
pub(super) struct JobBridge {
    data_folder: Arc<LazyDataFolder>,
    server: String,
    /// The key of the server's command.
    command: [u8; 8],
    /// The key of the only session.
    session: SessionKey,
    limits: Limits,
    relays: CallRelays,
    tasks: JoinSet<BridgeResult>,
    /// The calls whose jobs have not ended.
    followed: JoinSet<Id>,
    /// When to wait no longer for the calls that ended in earlier sessions; `None` if they are known.
    recall_until: Option<Instant>,
    local_jobs: LazyJobServer,
}

impl JobBridge {
    /// Makes a bridge for this server, whose command has this key, within these limits. If calls may join jobs, call it in a runtime.
    pub(super) fn new((server, command): (String, [u8; 8]), limits: Limits, jobs: UnopenedJobs) -> JobBridge {
        let data_folder = Arc::new(LazyDataFolder {
            folder: jobs.folder,
            opened: OnceCell::new(),
            open: Mutex::new(Some(jobs.open)),
            names: OnceLock::new(),
        });
        let mut tasks = JoinSet::new();
        if limits.join_same_call {
            let data_folder = Arc::clone(&data_folder);
            tasks.spawn(async move {
                data_folder.recall().await;
                BridgeResult::Recalled
            });
        }
        JobBridge {
            data_folder,
            server,
            command,
            session: SessionKey::drawn(),
            relays: CallRelays::new(limits.max_in_flight),
            recall_until: limits.join_same_call.then(|| Instant::now() + RECALL_LIMIT),
            limits,
            tasks,
            followed: JoinSet::new(),
            local_jobs: LazyJobServer::Closed,
        }
    }

    /// Returns when to [give up](Self::give_up_recall) the calls that ended in earlier sessions. Until they are known, the first call of this
    /// session might run again.
    pub(super) fn recall_until(&self) -> Option<Instant> {
        self.recall_until
    }

    /// Waits no longer for the calls that ended in earlier sessions, if their time is over.
    pub(super) fn give_up_recall(&mut self) {
        if self.recall_until.take_if(|until| *until <= Instant::now()).is_some() {
            let (folder, limit) = (self.data_folder.folder.display(), in_words(RECALL_LIMIT));
            tracing::warn!(
                server = self.server,
                "a call may run again that has ended before: {folder} has not answered within {limit}"
            );
        }
    }

    /// Returns the key that all calls of this tool by this client share.
    fn tool_of(&self, client: Option<&str>, tool: &str) -> ToolOfCaller {
        let (caller, client) = (&Caller::owner(), client.unwrap_or_default());
        let call_origin = CallOrigin { caller, session: self.session, client, is_owners: true };
        // There is one client and one server. Restarts of the server leave no calls that could be joined.
        let server = CallServer { name: &self.server, instance: [0; 8], of_all_sessions: Some(self.command) };
        ToolOfCaller::new(&call_origin, &server, tool)
    }

    /// Returns the job that the same call has become before, if there is one.
    pub(super) fn same_call(&self, client: Option<&str>, params: &[u8]) -> Option<JobId> {
        let calls = self.data_folder.calls()?;
        let calls = calls.joinable();
        let params = Json::new(params)?;
        let tool = self.tool_of(client, &text_member(params, "name")?);
        let arguments = || params.member("arguments").map(Json::get);
        calls.may_join(tool).then(|| calls.find_same(&tool.call(arguments()))).flatten()
    }

    /// Returns a sentence about jobs of earlier sessions for which an older process of the server works.
    pub(super) async fn earlier_jobs(&self) -> Option<String> {
        self.data_folder.earlier().await?.earlier_jobs(&self.server)
    }

    /// Makes a job of a call.
    pub(super) fn order(&mut self, order: Promote) {
        if let Some(job) = order.joins {
            return self.still_waits(job, order);
        }
        let Promote {
            call,
            order,
            params,
            elapsed,
            client,
            revision,
            capabilities,
            promotion_reply,
            names,
            is_repeatable,
            is_unsent,
            ..
        } = order;
        let Ok(params) = String::from_utf8(params.into_vec()) else { return };
        let (pending_call, key) = self.relays.open(call.clone());
        let json = Json::new(params.as_bytes()).unwrap_or(Json::EMPTY);
        let tool = text_member(json, "name").unwrap_or_default();
        let arguments = json.member("arguments").map(Json::get);
        let promotable = Promotable {
            name: tool.clone(),
            server: self.server.clone(),
            tool: tool.clone(),
            is_repeatable,
            arguments: arguments.map(str::to_owned),
            elapsed,
            limit: self.limits.job_timeout,
            same: (self.limits.join_same_call && is_repeatable)
                .then(|| self.tool_of(client.as_deref(), &tool).call(arguments)),
            is_unsent,
        };
        let who = who_is_asked(json, capabilities, promotion_reply);
        let running_call = RunningCall {
            params: params.into(),
            way: pending_call,
            source: Box::new(self.relays.source(call.clone())),
        };
        let data_folder = Arc::clone(&self.data_folder);
        self.tasks.spawn(async move {
            let service = data_folder.service(names).await;
            let adopted = match (service.engine().await, service.promoted()) {
                (Ok(engine), Some(calls)) => {
                    let data_folder = engine.options().folder.clone();
                    let adopted = calls.adopt(&Caller::owner(), promotable).await;
                    adopted.map(|promoted| (calls, promoted, data_folder))
                }
                (Err(why), _) => Err(why),
                (Ok(_), None) => Err(JobServiceError("calls are not kept".to_owned())),
            };
            match adopted {
                Ok((calls, promoted, data_folder)) => {
                    let result =
                        promotion_reply.result(&promoted.report, &tool, revision, service.retention());
                    BridgeResult::Adopted(
                        Adopted {
                            call,
                            order,
                            relay: key,
                            result,
                            promoted,
                            who,
                            running_call,
                            calls,
                            data_folder,
                        }
                        .into(),
                    )
                }
                Err(why) => BridgeResult::Refused(call, order, key, why),
            }
        });
    }

    /// Waits for an existing job on behalf of a call.
    pub(super) fn join(&mut self, Join { call, order, job, limit }: Join) {
        let calls = self.data_folder.calls().filter(|_| self.tasks.len() < MOST_JOINING);
        self.tasks.spawn(async move {
            if let Some(calls) = calls {
                // The outcome is read later, so errors are ignored here.
                let _over = calls.join(job, limit).await;
            }
            BridgeResult::Over(call, order, job)
        });
    }

    /// Reads the outcome of a job for a call that still waits for it. From then on the outcome counts as read.
    pub(super) fn read(&mut self, call: Id, order: WrapPromotionOrder, job: JobId) {
        let service = self.data_folder.opened();
        self.tasks.spawn(async move {
            let result = match service {
                Some(service) => result_of(&service, job).await,
                None => None,
            };
            BridgeResult::Joined(call, order, result.map_or(JoinOutcome::Nothing, JoinOutcome::Answer))
        });
    }

    /// Ends the wait of a call for a job. Unless the job has ended, the client is told to follow it by itself.
    fn still_waits(&mut self, job: JobId, promote: Promote) {
        let data_folder = Arc::clone(&self.data_folder);
        self.tasks.spawn(async move {
            let Promote { call, order, params, revision, promotion_reply, names, .. } = promote;
            let service = data_folder.service(names).await;
            let tool = Json::new(&params).and_then(|params| text_member(params, "name")).unwrap_or_default();
            match service.status(job, Duration::ZERO).await {
                // A task may have ended.
                Ok(report)
                    if !report.status.is_final()
                        || promotion_reply == PromotionReply::Task(Dialect::Core) =>
                {
                    let result = promotion_reply.result(&report, &tool, revision, service.retention());
                    BridgeResult::Joined(call, order, JoinOutcome::Still(result))
                }
                _ => BridgeResult::Over(call, order, job),
            }
        });
    }

    /// Passes a line of the client to the local job server, whose tools have these names.
    pub(super) fn serve(&mut self, line: &[u8], names: ToolNames) {
        match &mut self.local_jobs {
            LazyJobServer::Open(local_jobs) => local_jobs.hear(line),
            LazyJobServer::Opening(said) => said.push(line.to_vec()),
            LazyJobServer::Closed => {
                self.local_jobs = LazyJobServer::Opening(vec![line.to_vec()]);
                let data_folder = Arc::clone(&self.data_folder);
                self.tasks
                    .spawn(async move { BridgeResult::Opened(data_folder.service(names).await, names) });
            }
        }
    }

    /// Counts the bytes that wait for the local job server to be opened.
    pub(super) fn job_server_backlog(&self) -> usize {
        match &self.local_jobs {
            LazyJobServer::Opening(said) => said.iter().map(Vec::len).sum(),
            LazyJobServer::Closed | LazyJobServer::Open(_) => 0,
        }
    }

    /// Returns the lines that the local job server has written since the last call.
    pub(super) fn said(&mut self) -> Vec<(Class, Vec<u8>)> {
        match &mut self.local_jobs {
            LazyJobServer::Open(local_jobs) => local_jobs.said(),
            LazyJobServer::Closed | LazyJobServer::Opening(_) => Vec::new(),
        }
    }

    fn open_job_server(&mut self, service: EngineService, names: ToolNames) {
        let mut local_jobs = Box::new(LocalJobServer::new(self.limits.clone(), service, names));
        if let LazyJobServer::Opening(said) = &self.local_jobs {
            said.iter().for_each(|line| local_jobs.hear(line));
        }
        self.local_jobs = LazyJobServer::Open(local_jobs);
    }

    /// Sends news to the job of a call.
    pub(super) fn tell(&mut self, call: &Id, news: JobNews<'_>) {
        self.relays.tell(&self.server, call, news);
    }

    /// Returns whether no event can come before this is told something. A session waits for events after every message, and most sessions
    /// have no jobs.
    fn has_nothing_to_await(&self) -> bool {
        let has_local_jobs = matches!(self.local_jobs, LazyJobServer::Open(_));
        // Requests of jobs and withdrawals come only from calls that become jobs or are jobs.
        let has_jobs = !(self.tasks.is_empty() && self.followed.is_empty() && self.relays.is_empty());
        !has_jobs && !has_local_jobs
    }

    /// Waits for the next event. Cancel-safe.
    pub(super) async fn event(&mut self) -> BridgeEvent {
        loop {
            if self.has_nothing_to_await() {
                return pending().await;
            }
            tokio::select! {
                biased;
                Some(done) = self.tasks.join_next() => match done {
                    Ok(BridgeResult::Adopted(adopted)) => return BridgeEvent::Adopted(adopted),
                    Ok(BridgeResult::Refused(call, order, relay, why)) => {
                        self.relays.forget(&call, relay);
                        return BridgeEvent::Refused(call, order, why);
                    }
                    Ok(BridgeResult::Over(call, order, job)) => return BridgeEvent::Over(call, order, job),
                    Ok(BridgeResult::Joined(call, order, outcome)) => return BridgeEvent::Joined(call, order, outcome),
                    Ok(BridgeResult::Kept(adopted)) => return BridgeEvent::Kept(adopted),
                    Ok(BridgeResult::NotKept(adopted, why)) => return BridgeEvent::NotKept(adopted, why),
                    Ok(BridgeResult::Opened(service, names)) => {
                        self.open_job_server(service, names);
                        return BridgeEvent::Said;
                    }
                    Ok(BridgeResult::Recalled) => {
                        self.recall_until = None;
                        return BridgeEvent::Recalled;
                    }
                    // After a panic, which was reported elsewhere, the call stays a call.
                    Ok(BridgeResult::Done) | Err(_) => {}
                },
                Some(Ok(call)) = self.followed.join_next() => return BridgeEvent::Ended(call),
                event = self.relays.event() => match event {
                    RelayEvent::Asked(params, again) => return BridgeEvent::Asked(params, again),
                    RelayEvent::Withdrawn(call) => return BridgeEvent::Withdrawn(call),
                },
                () = works(&mut self.local_jobs) => return BridgeEvent::Said,
            }
        }
    }

    /// Names the process that has the call resumed when this process has gone. The job's record then says so.
    pub(super) fn name_keeper(&mut self, adopted: Box<Adopted>, keeper: Holder) {
        let noted = adopted.calls.name_keeper(adopted.promoted.id(), keeper);
        self.tasks.spawn(async move {
            match noted.await {
                Ok(()) => BridgeResult::Kept(adopted),
                Err(why) => BridgeResult::NotKept(adopted, why),
            }
        });
    }

    /// Does the same for a job that its client was told of.
    pub(super) fn name_late_keeper(&mut self, calls: &PromotedCalls, job: JobId, keeper: Holder) {
        let noted = calls.name_keeper(job, keeper);
        self.tasks.spawn(async move {
            match noted.await {
                Ok(()) => {
                    tracing::info!(
                        job = job.as_str(),
                        "the server has the call, and the job outlives unhang"
                    );
                }
                Err(why) => tracing::warn!(job = job.as_str(), "the job ends with unhang: {why}"),
            }
            BridgeResult::Done
        });
    }

    /// Keeps a job that its client was told of, or forgets a job that nobody waits for.
    pub(super) fn adopted(&mut self, adopted: Adopted, is_told: bool) {
        let Adopted { call, relay, promoted, who, running_call, calls, .. } = adopted;
        if is_told {
            let end = calls.keep(promoted, running_call, who, None);
            self.followed.spawn(async move {
                end.wait().await;
                call
            });
            return;
        }
        self.relays.forget(&call, relay);
        drop(running_call);
        calls.forget(async move { Ok(promoted) });
    }

    /// Notes that a request of a job was made under this id.
    pub(super) fn asked(&mut self, call: Id, again: RepeatedRequest) {
        self.relays.insert(call, again);
    }

    /// Ends all jobs, each with the reason.
    pub(super) async fn end(&self, why: CallsEnd) {
        let Some(service) = self.data_folder.opened.get() else { return };
        if let Some(calls) = service.promoted() {
            calls.end(why).await;
        }
        service.close().await;
    }
}

impl Adopted {
    /// Returns what a call holder has to know about the call, whose request has this progress token.
    pub(super) fn kept_call(&self, token: Option<Id>, is_sent: bool) -> KeptCall {
        // All calls are of the one client of the guard.
        let (client, who) = (Some(0), self.who.clone());
        KeptCall { job: self.promoted.id(), id: self.call.clone(), token, who, client, is_sent, next: None }
    }

    /// Returns the job's id.
    pub(super) fn job(&self) -> &str {
        self.promoted.report.job_id.as_str()
    }
}

/// Waits for the local job server to do something. Cancel-safe.
async fn works(local_jobs: &mut LazyJobServer) {
    match local_jobs {
        LazyJobServer::Open(local_jobs) => local_jobs.work().await,
        LazyJobServer::Closed | LazyJobServer::Opening(_) => pending().await,
    }
}

/// Returns who can answer the server's questions about a call with these params, once it is a job. `declared` are the capabilities in the
/// client's handshake. After a handshake, the server asks its client directly as long as this process lives.
fn who_is_asked(params: Json<'_>, declared: Option<Box<str>>, promotion_reply: PromotionReply) -> WhoIsAsked {
    let capabilities = || params.member("_meta")?.member(CLIENT_CAPABILITIES).map(Json::get);
    match promotion_reply {
        PromotionReply::Task(Dialect::Extension) => {
            WhoIsAsked::Followers(capabilities().unwrap_or("{}").into())
        }
        PromotionReply::Task(Dialect::Core) => WhoIsAsked::Followers(declared.unwrap_or_else(|| "{}".into())),
        PromotionReply::Words => WhoIsAsked::Nobody,
    }
}

/// Returns the outcome of a job, or `None` if the same call has no use for it.
async fn result_of(service: &EngineService, job: JobId) -> Option<String> {
    let status = service.promoted()?.join(job, Duration::ZERO).await.ok()?;
    joined(service, &status).await
}
