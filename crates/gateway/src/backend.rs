//! One server behind a gateway, or the instance of the server that one session has: the parts that it consists of.
//!
//! ```text
//! Backend ─┬ ServerConnection   the server's one client, and when that may be started (`lifecycle`, `idle`)
//!          ├ ServerLists        the tools, prompts and resources that the server offers
//!          ├ AdmissionLimits    which request may go to the server
//!          ├ ResourceWatches    resources that sessions want to hear of
//!          ├ ServerRecord       counts, and the last failure
//!          ├ InstancePool       further instances that all sessions share, if the configuration allows them
//!          └ BackendEras        the era that it speaks, and its counterpart in the other era
//! ```
//!
//! Invariants
//!
//! - Each part has a lock of its own. The lock of the connection is taken before any other, and is not held over a wait.
//! - A server that replaces another of the same name offers the lists of that one until it has been listed itself.

use std::{
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak},
    time::Duration,
};

use tokio::{
    sync::{Mutex as AsyncMutex, Notify},
    task::JoinSet,
};
use unhang_bridge::Era;
use unhang_proc::deadline::Deadline;

use super::{
    RequestTimeouts, Scope, ServerEntry, SessionKey, UnlistedServer,
    admission_limits::AdmissionLimits,
    connection::ServerConnection,
    eras::{self, BackendEras},
    instance_limit::InstanceLimit,
    instances::InstancePool,
    lifecycle::{RestoredStart, StartReason, effective_spec},
    list_announcements::{ListKinds, ListOrigin},
    list_fetch::{self, FetchedLists},
    list_refresh::ListRefreshes,
    list_store::RecalledLists,
    lists::ServerLists,
    log_level::RequestedLevel,
    notification_listener::NotificationListener,
    open_sessions::OpenSessions,
    owners,
    request_metrics::RequestMetrics,
    resource_watches::{MirroredSubscriptions, ResourceWatches, UpdateMerger, Updates},
    serial_work::SerialWorkWatch,
    server_task::server_identity,
    session_inboxes::InboxScope,
    start_turns::StartTurns,
    status::{InstanceStatus, ServerRecord, ServerStatus},
    waiting_requests::WaitingRequests,
};
use crate::route::{catalog::ListedItems, names::Style};
use unhang_core::{breaker::Breaker, digest::digest, fair::FairnessKey, limits::Limits};
use unhang_upstream::client::{ClientSpec, Endpoint, Error, RequestOptions, Topics};

/// One server, or the instance of the server that one session has.
pub(super) struct Backend {
    entry: Arc<ServerEntry>,
    /// The way to the server, as we start it.
    pub(super) spec: ClientSpec,
    /// Present if this is the instance of one session.
    pub(super) own: Option<SessionInstance>,
    /// The number of this instance among those that all sessions share, and the first of them, unless this is the first.
    further: Option<(usize, Weak<Backend>)>,
    /// The instances that all sessions share, if there can be several. The first of them has this.
    pub(super) instances: Option<InstancePool>,
    /// The eras of the server, and its counterpart.
    pub(super) eras: BackendEras,
    /// The index by which the gateway knows the server.
    server_index: usize,
    timeouts: RequestTimeouts,
    /// Hears the notifications and requests of the server that belong to no call.
    pub(super) listener: Arc<NotificationListener>,
    /// Admits requests to the server.
    pub(super) admission: AdmissionLimits,
    /// The lists of the server.
    pub(super) lists: Arc<ServerLists>,
    /// Questions for single lists, on behalf of clients.
    pub(super) refreshes: ListRefreshes,
    /// Resources that sessions want to hear of.
    pub(super) watches: ResourceWatches,
    /// The same resources, as far as this further instance was asked for them.
    pub(super) mirrored: MirroredSubscriptions,
    /// The log level that somebody has asked the server for.
    pub(super) level: RequestedLevel,
    /// Held while the server is stopped because nobody wants it, or while its predecessor is stopped.
    pub(super) stop_lock: Arc<AsyncMutex<()>>,
    /// Sees that the server works on one call at a time.
    pub(super) serial_work: SerialWorkWatch,
    /// Counts of client requests to the server, by outcome.
    pub(super) metrics: Arc<RequestMetrics>,
    /// Counts of the server, and its last failure.
    pub(super) record: Arc<ServerRecord>,
    /// Held while the server is ended for good.
    close_lock: AsyncMutex<()>,
    /// The identity of the server, once somebody has asked for it.
    identity: OnceLock<Arc<str>>,
    /// Rung when nobody wants anything of the server any more.
    pub(super) idle_notify: Notify,
    /// The last start of the server after which it was told what sessions had told its predecessor.
    pub(super) restored: RestoredStart,
    connection: Mutex<ServerConnection>,
}

/// The data that an instance of one session needs for its start.
#[derive(Clone)]
pub(super) struct SessionInstance {
    /// The owner of the session, if owners are told from each other.
    pub owner: Option<FairnessKey>,
    pub instance_limit: Arc<InstanceLimit>,
    /// Turns for starts.
    pub start_turns: StartTurns,
    /// Tells the instance from every other.
    pub key: SessionKey,
    /// The number of the session.
    pub session: u64,
}

/// Data that a server takes over from its predecessor, or an instance from the other instances.
#[derive(Default)]
struct Inherited {
    offered: ListedItems,
    recalled: RecalledLists,
    metrics: Arc<RequestMetrics>,
    record: Option<Arc<ServerRecord>>,
    /// What a further instance shares with the first.
    of_first: Option<OfFirstInstance>,
}

/// What a further instance shares with the first.
struct OfFirstInstance {
    lists: Arc<ServerLists>,
    waiting: Arc<WaitingRequests>,
    updates: Option<Arc<UpdateMerger>>,
}

/// The parts that a backend shares with others.
struct SharedParts {
    server_index: usize,
    updates: Updates,
    open_sessions: Arc<OpenSessions>,
}

/// The part that a backend plays for its server.
enum BackendKind {
    /// All sessions share it.
    Shared,
    /// All sessions of this era share it, beside a backend for those of the other era.
    Counterpart(Era),
    /// All sessions share it, beside the first instance of this era. It has this number.
    Further(Era, usize, Weak<Backend>),
    /// One session of this era has it.
    Own(Era, SessionInstance),
}

impl Backend {
    /// Makes the server at this index. Until the server has been listed it offers the lists of `before`, its predecessor of the same name,
    /// as far as its own rules allow.
    pub(super) fn new(
        entry: ServerEntry,
        server_index: usize,
        updates: Updates,
        open_sessions: Arc<OpenSessions>,
        before: Option<&Backend>,
    ) -> Self {
        let inherited = before.map(|before| {
            let offered = ListedItems::clone(&before.offered());
            let record = Some(Arc::new(before.record.of_successor(entry.secrets.clone())));
            Inherited { offered, metrics: Arc::clone(&before.metrics), record, ..Inherited::default() }
        });
        let shared = SharedParts { server_index, updates, open_sessions };
        Self::assemble(entry, shared, inherited.unwrap_or_default(), BackendKind::Shared)
    }

    /// Makes the instance of this server for one session. The instance has the index of the server, and offers the lists of the server
    /// until it has been listed itself. It rests until it is asked something.
    pub(super) fn instance(&self, updates: Updates, era: Era, own: SessionInstance) -> Self {
        // Lists that one session has changed say nothing about the next run.
        let entry = ServerEntry { memory: None, ..ServerEntry::clone(&self.entry) };
        let inherited = Inherited {
            offered: ListedItems::clone(&self.offered()),
            recalled: self.lists.recalled_for_another(),
            metrics: Arc::clone(&self.metrics),
            record: Some(Arc::clone(&self.record)),
            of_first: None,
        };
        let instance =
            Self::assemble(entry, self.shared_with(updates), inherited, BackendKind::Own(era, own));
        instance.connection().demand.rest();
        instance
    }

    /// Makes the counterpart of this backend, which is greeted in this era. It offers the lists of this backend until it has been listed
    /// itself, and keeps none for the next run.
    pub(super) fn counterpart_of(&self, era: Era, updates: Updates) -> Self {
        let entry = ServerEntry { memory: None, ..ServerEntry::clone(&self.entry) };
        let inherited = Inherited {
            offered: ListedItems::clone(&self.offered()),
            metrics: Arc::clone(&self.metrics),
            record: Some(Arc::clone(&self.record)),
            ..Inherited::default()
        };
        Self::assemble(entry, self.shared_with(updates), inherited, BackendKind::Counterpart(era))
    }

    /// Makes a further instance of this server, which has the lists of `first` and rests until it is wanted.
    pub(super) fn further_of(first: &Arc<Backend>, number: usize, updates: Updates) -> Self {
        let entry = ServerEntry { memory: None, ..ServerEntry::clone(&first.entry) };
        let era = first.eras.spoken().unwrap_or_else(|| first.eras.greeting());
        let inherited = Inherited {
            metrics: Arc::clone(&first.metrics),
            record: Some(Arc::clone(&first.record)),
            of_first: Some(OfFirstInstance {
                lists: Arc::clone(&first.lists),
                waiting: Arc::clone(&first.listener.waiting),
                updates: first.instances.as_ref().map(|pool| Arc::clone(&pool.updates)),
            }),
            ..Inherited::default()
        };
        let kind = BackendKind::Further(era, number, Arc::downgrade(first));
        let instance = Self::assemble(entry, first.shared_with(updates), inherited, kind);
        instance.connection().demand.rest();
        instance
    }

    fn shared_with(&self, updates: Updates) -> SharedParts {
        let open_sessions = self.eras.open_sessions();
        SharedParts { server_index: self.server_index, updates, open_sessions }
    }

    fn assemble(entry: ServerEntry, shared: SharedParts, inherited: Inherited, kind: BackendKind) -> Self {
        let SharedParts { server_index, updates, open_sessions } = shared;
        let (greeting, own, further, origin) = match kind {
            BackendKind::Shared => (None, None, None, ListOrigin::Roster),
            BackendKind::Counterpart(era) => (Some(era), None, None, ListOrigin::Counterpart),
            BackendKind::Further(era, number, first) => {
                (Some(era), None, Some((number, first)), ListOrigin::Counterpart)
            }
            BackendKind::Own(era, own) => (Some(era), Some(own), None, ListOrigin::Instance),
        };
        let instances = match (&own, &further) {
            (None, None) => InstancePool::new(entry.instances, &entry.spec.limits),
            _ => None,
        };
        let inbox_scope = own
            .as_ref()
            .map_or(InboxScope::OnlySession, |own: &SessionInstance| InboxScope::OwnSession(own.session));
        let eras = BackendEras::new(&entry, greeting, Arc::clone(&open_sessions));
        let Inherited { offered, recalled, metrics, record, of_first } = inherited;
        let (shared_lists, waiting, merged_updates) = match of_first {
            Some(OfFirstInstance { lists, waiting, updates }) => (Some(lists), waiting, updates),
            None => (None, Arc::default(), instances.as_ref().map(|pool| Arc::clone(&pool.updates))),
        };
        let entry = Arc::new(entry);
        let timeouts = RequestTimeouts::from(&*entry);
        let question_limit = entry.spec.limits.call_timeout / 10;
        let record = record.unwrap_or_else(|| Arc::new(ServerRecord::new(entry.secrets.clone())));
        let name = entry.spec.name.clone();
        let listener = Arc::new(NotificationListener::new(
            name,
            server_index,
            question_limit,
            (updates, merged_updates),
            Arc::clone(&record),
            (open_sessions, inbox_scope),
            waiting,
        ));
        let (spec, limits) = effective_spec(&entry.spec, Arc::clone(&listener), timeouts.longest_call());
        let mixed = |seed: u64, byte: u8| seed.wrapping_mul(31).wrapping_add(byte.into());
        let seed = spec.name.bytes().fold(std::process::id().into(), mixed);
        let breaker = Breaker::new(&spec.limits, seed);
        let connection = ServerConnection::new(spec.name.clone(), Arc::clone(&record), breaker);
        Self {
            admission: AdmissionLimits::new(
                spec.name.clone(),
                &entry.tool_rules,
                &limits,
                Arc::clone(&listener),
            ),
            lists: shared_lists
                .unwrap_or_else(|| Arc::new(ServerLists::new(Arc::clone(&entry), origin, offered, recalled))),
            refreshes: ListRefreshes::default(),
            entry,
            spec,
            own,
            further,
            instances,
            eras,
            server_index,
            timeouts,
            listener,
            watches: ResourceWatches::default(),
            mirrored: MirroredSubscriptions::default(),
            level: RequestedLevel::default(),
            stop_lock: Arc::default(),
            serial_work: SerialWorkWatch::default(),
            metrics,
            record,
            close_lock: AsyncMutex::default(),
            identity: OnceLock::new(),
            idle_notify: Notify::new(),
            restored: RestoredStart::default(),
            connection: Mutex::new(connection),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.entry.spec.name
    }

    /// Returns the name for people: of a further instance, the name with its number.
    pub(super) fn title(&self) -> String {
        match &self.further {
            Some((number, _)) => format!("instance {number} of `{}`", self.name()),
            None => format!("`{}`", self.name()),
        }
    }

    /// Returns the first instance, if this is a further one of those that all sessions share.
    pub(super) fn first_instance(&self) -> Option<Arc<Backend>> {
        self.further.as_ref().and_then(|(_, first)| first.upgrade())
    }

    /// Returns whether this is a further instance of those that all sessions share.
    pub(super) fn is_further(&self) -> bool {
        self.further.is_some()
    }

    /// Returns whether the server has one process for all sessions, and could have several.
    pub(super) fn could_have_instances(&self) -> bool {
        let is_one = self.own.is_none() && self.instances.is_none() && self.further.is_none();
        is_one && matches!(self.endpoint(), Endpoint::Stdio(_))
    }

    /// Returns the other processes of the server that all sessions share: its counterpart, and the further instances of both.
    pub(super) fn siblings(&self) -> Vec<Arc<Backend>> {
        let counterpart = self.eras.counterpart();
        let pools = self.instances.iter().chain(counterpart.and_then(|other| other.instances.as_ref()));
        pools.flat_map(InstancePool::further).chain(counterpart.map(Arc::clone)).collect()
    }

    /// Rewrites the error of a request for this tool so that it names the server behind another gateway. Leaves all else as it is.
    pub(super) fn told_of_owner<T>(&self, tool: Option<&str>, outcome: Result<T, Error>) -> Result<T, Error> {
        if !self.is_gateway() {
            return outcome;
        }
        let owner = || tool.and_then(|tool| self.owner_of(tool)).map(|(server, _)| server);
        outcome.map_err(|error| owners::told_of_owner(self.name(), owner, error))
    }

    /// Returns the owner of a tool of another gateway, as that gateway names it: the server, and the server's name for the tool.
    pub(super) fn owner_of(&self, tool: &str) -> Option<(String, String)> {
        self.offered().owners.get(tool).filter(|_| self.is_gateway()).cloned()
    }

    /// Returns whether the server goes on when we end in order. A server that we have started ends with us.
    pub(super) fn outlives_us(&self) -> bool {
        matches!(self.endpoint(), Endpoint::Http(_)) && !self.is_gateway()
    }

    /// Returns the identity of the server, as tickets name it.
    pub(super) fn identity(&self) -> Arc<str> {
        Arc::clone(self.identity.get_or_init(|| server_identity(self.endpoint()).into()))
    }

    /// Returns the way to the server.
    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.entry.spec.endpoint
    }

    /// Returns whether the server is a gateway as we are: only a gateway is reached by a socket.
    pub(super) fn is_gateway(&self) -> bool {
        matches!(&self.entry.spec.endpoint, Endpoint::Http(server) if server.address.socket.is_some())
    }

    /// Returns who shares the server.
    pub(super) fn scope(&self) -> Scope {
        self.entry.scope
    }

    /// Returns whether this is the instance of one session.
    pub(super) fn is_own(&self) -> bool {
        self.own.is_some()
    }

    pub(super) fn server_index(&self) -> usize {
        self.server_index
    }

    /// Returns the timeouts of requests to the server, if it offers these lists.
    pub(super) fn timeouts(&self, offered: &ListedItems) -> RequestTimeouts {
        let timeouts = self.timeouts.clone();
        match &self.entry.behind {
            Some(behind) => timeouts.translated(behind, &offered.owners),
            None => timeouts,
        }
    }

    /// Returns a key that tells the server from itself under another configuration.
    pub(super) fn config_key(&self) -> [u8; 8] {
        digest([self.entry.made_from.as_bytes()])
    }

    /// Returns whether this entry would make the same server.
    pub(super) fn is_made_from(&self, entry: &ServerEntry) -> bool {
        self.entry.made_from == entry.made_from
    }

    /// Returns the limits with which the server is asked.
    pub(super) fn limits(&self) -> &Limits {
        &self.spec.limits
    }

    pub(super) fn request_timeout(&self) -> Duration {
        self.entry.spec.limits.request_timeout
    }

    pub(super) fn idle_timeout(&self) -> Option<Duration> {
        self.entry.idle_timeout
    }

    /// Returns how often the server was started.
    pub(super) fn starts(&self) -> u64 {
        self.connection().starts()
    }

    pub(super) fn prefix(&self) -> &str {
        &self.entry.prefix
    }

    /// Returns the lists that the server gave last.
    pub(super) fn offered(&self) -> Arc<ListedItems> {
        self.lists.offered()
    }

    /// Returns whether there is a process or a connection that can be asked, now or once it is ready.
    pub(super) fn runs(&self) -> bool {
        self.connection().usable_client().is_some()
    }

    /// Asks the server for all its lists, and keeps them. The caller publishes them, and then ends the round.
    pub(super) async fn list(self: &Arc<Self>) -> Result<(), Error> {
        self.lists.rounds.begin();
        if self.connection().demand.rests() {
            // The lists stay as they are until somebody starts the server.
            return Ok(());
        }
        let listed = {
            // A server that gives lists need not answer calls: some servers die of each call.
            let _trial = self.trial();
            self.fetch_lists().await
        };
        let taken = listed.and_then(|(fetched, announced)| {
            let taken = self.lists.take(fetched, announced);
            // An announcement waits until the server can be listed.
            taken.inspect_err(|_| self.listener.note_announced(announced))
        });
        taken.inspect_err(|error| {
            self.lists.note_failed();
            self.note(error);
        })
    }

    /// Returns the lists that the server gives now, and the kinds that it had announced before it was asked.
    async fn fetch_lists(self: &Arc<Self>) -> Result<(FetchedLists, ListKinds), Error> {
        let (client, session) = self.ready(StartReason::Listing).await?;
        let announced = self.listener.take_announced();
        let is_stateless = session.revision.is_stateless();
        let fetched = list_fetch::fetch(&client, (session, self.eras.greeting()), &self.lists.slow()).await;
        // An announcement waits until the server can be listed.
        let fetched = fetched.inspect_err(|_| self.listener.note_announced(announced))?;
        if is_stateless && !self.connection().is_subscribed() {
            // A server that has nothing to tell refuses the subscription.
            let topics = Topics { resources: Vec::new(), lists: true };
            match client.subscribe(topics, &RequestOptions::default()).await {
                Ok(subscription) => self.connection().subscribed(subscription),
                Err(error) => tracing::debug!("`{}` does not report changes: {error}", self.name()),
            }
        }
        Ok((fetched, announced))
    }

    /// Waits until the lists of the server may have changed or, if they could not be fetched, until another try is due. Meanwhile it calls
    /// `publish` when a late list has come, and when clients are to be told of an announcement.
    pub(super) async fn until_changed(&self, was_listed: bool, publish: impl Fn()) {
        let pause = self.spec.limits.breaker_cooldown;
        let mut changed = pin!(self.listener.until_lists_change((!was_listed).then_some(pause)));
        loop {
            tokio::select! {
                () = changed.as_mut() => return,
                () = self.lists.until_announcement_counts() => publish(),
                () = self.lists.until_late_list() => publish(),
            }
        }
    }

    /// Returns the status of this process or connection.
    fn instance_status(&self) -> InstanceStatus {
        let waiting = self.admission.waiting() + self.instances.as_ref().map_or(0, InstancePool::waiting);
        self.connection().status(waiting)
    }

    /// Returns the status of the server, together with that of the instances that sessions have.
    pub(super) fn status(&self, instances: &[Arc<Backend>]) -> ServerStatus {
        let siblings = self.siblings();
        let each: Vec<InstanceStatus> = instances
            .iter()
            .chain(&siblings)
            .map(|instance| instance.instance_status())
            .chain([self.instance_status()])
            .collect();
        let running = each.iter().filter(|one| one.is_running).count();
        let now = each.into_iter().reduce(InstanceStatus::and).unwrap_or_else(|| self.instance_status());
        let status = self.record.status(self.name(), now, running);
        let offered = self.offered();
        let (tools, prompts, resources) =
            (offered.tools.len(), offered.prompts.len(), offered.resources.len());
        let all = || instances.iter().chain(&siblings).map(|instance| &**instance).chain([self]);
        let speaks = |era: &Era| all().any(|one| one.runs() && one.eras.spoken() == Some(*era));
        let eras = [Era::Legacy, Era::Modern].into_iter().filter(speaks).map(eras::word).collect();
        ServerStatus { tools, prompts, resources, eras, ..status }
    }

    /// Notes an error as the last failure of the server.
    pub(super) fn note(&self, error: &Error) {
        self.record.last_failure().note(error);
    }

    /// Returns a report on the server if it has not been listed since we began. `may_read` says whether the reader may see what the server
    /// wrote.
    pub(super) fn absent(&self, style: &Style, may_read: bool) -> Option<UnlistedServer> {
        let was_listed = self.lists.failure_to_list()?;
        let failed = || {
            self.record.last_failure().last(may_read).unwrap_or("unhang could not get its lists").to_owned()
        };
        let (server, beginning) = (self.name().to_owned(), style.beginning(self.prefix()));
        Some(UnlistedServer { server, beginning, why: was_listed.then(failed) })
    }

    /// Tells the server that the roots of its clients have changed, if it runs.
    pub(super) fn tell_of_roots(&self) {
        if let Some(client) = self.connection().usable_client() {
            client.roots_changed();
        }
    }

    /// Tells the server from which level on to log, if it runs.
    pub(super) async fn set_level(&self) {
        let client = self.connection().usable_client().cloned();
        if let Some(client) = client {
            self.level.tell(self.name(), &client).await;
        }
    }

    /// Ends the server for good.
    pub(super) async fn close(&self, deadline: Deadline) {
        self.eras.stop_counterpart_tasks();
        let further = self.instances.as_ref().map(InstancePool::close).unwrap_or_default();
        let others = further.into_iter().chain(self.eras.counterpart().map(Arc::clone));
        let mut ends: JoinSet<()> = others.map(|other| other.closed(deadline)).collect();
        self.close_alone(deadline).await;
        while ends.join_next().await.is_some() {}
    }

    /// Returns [`close`](Self::close) in a box, because a future cannot contain itself.
    fn closed(self: Arc<Self>, deadline: Deadline) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move { self.close(deadline).await })
    }

    async fn close_alone(&self, deadline: Deadline) {
        // A second caller waits for the same end.
        let _ending = deadline.timeout(self.close_lock.lock()).await;
        let client = self.connection().close();
        if let Some(client) = client
            && !client.dispose_by(deadline).await
        {
            tracing::warn!("`{}` had not ended in time; its lifeline ends it", self.name());
        }
        // A stop that is under way is waited for as well.
        let _stopped = deadline.timeout(self.stop_lock.lock()).await;
        if let Some(memory) = &self.entry.memory {
            memory.settled().await;
        }
    }

    /// Locks the connection. The caller must not hold the lock over a wait.
    pub(super) fn connection(&self) -> MutexGuard<'_, ServerConnection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
