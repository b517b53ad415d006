//! One server behind a gateway: its one client, when it may be started, and what it last offered.
//!
//! Invariants
//!
//! - There is at most one client at a time that can be asked.
//! - Its death or a failed start is counted once, when it happens; after so many in a row it is left alone for a while, and then tried
//!   once (promise 6). Whoever asks meanwhile is refused at once.
//! - Whoever waits for it to start may stop waiting: the start goes on for the next one.
//! - An instance of one session is started by whoever asks it something alone, and only where there is a permit for it.

use std::{
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::value::RawValue;
use tokio::{
    sync::{Mutex as AsyncMutex, Notify, Semaphore, watch},
    time::{Instant, sleep_until},
};
use unhang_jobs::moment::Moment;
use unhang_proc::deadline::Deadline;
use unhang_switches::stands;

use super::{
    Absent, RequestPatience, Scope, ServerEntry, SessionKey,
    admission_limits::AdmissionLimits,
    in_turn,
    instance_limit::{InstanceLimit, NoInstance},
    list_store::Recalled,
    lists::ServerLists,
    log_level::RequestedLevel,
    notification_listener::NotificationListener,
    owners,
    resource_watches::{ResourceWatches, Updates},
    rest::Demand,
    status::{Now, ServerRecord, ServerStatus},
    tally::Tally,
    verdicts,
};
use crate::route::{catalog::Offered, names::Style};
use unhang_core::{
    breaker::{Breaker, BreakerPhase, Verdict},
    digest::digest,
    fair::FairnessKey,
};
use unhang_upstream::{
    client::{Client, ClientSpec, Endpoint, Error, RequestOptions, ServerInfo, Subscription, Topics},
    http::REQUESTS,
};

/// Requests of our own that may be with a server: its lists, and whether it lives.
const OURS: usize = 16;

/// One server, or the instance of it that one session has.
pub(super) struct Backend {
    entry: Arc<ServerEntry>,
    /// How it is reached, as we start it.
    spec: ClientSpec,
    /// Where it is the instance of one session.
    own: Option<OwnInstance>,
    /// What it is known by.
    place: usize,
    patience: RequestPatience,
    origin: Instant,
    /// What it says that belongs to no call.
    pub(super) listener: Arc<NotificationListener>,
    /// Whose turn it is.
    pub(super) admission: AdmissionLimits,
    /// What it offers.
    pub(super) lists: ServerLists,
    /// Resources that somebody wants to hear of.
    pub(super) watches: ResourceWatches,
    /// From which level on somebody has asked it to log.
    pub(super) level: RequestedLevel,
    /// Held while it is being stopped because nobody wants it, or while the one before it is.
    pub(super) stop: Arc<AsyncMutex<()>>,
    /// What came of what clients asked of it.
    pub(super) tally: Arc<Tally>,
    /// What has become of it.
    pub(super) record: Arc<ServerRecord>,
    /// Held while it is being ended for good.
    ending: AsyncMutex<()>,
    /// Rung when nobody wants anything of it any more.
    pub(super) unwanted: Notify,
    /// The last of its starts after which it was told what sessions had told the one before.
    pub(super) restored: watch::Sender<u64>,
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) client: Option<Client>,
    pub(super) breaker: Breaker,
    /// Before then it is not started again.
    not_before: Instant,
    /// For servers that tell of changes only to whoever has asked for that.
    pub(super) subscription: Option<Subscription>,
    is_closed: bool,
    starts: u64,
    pub(super) in_flight: usize,
    pub(super) wanted: Demand,
    /// When it was last started.
    started: Moment,
}

/// What an instance of one session needs to be started.
#[derive(Clone)]
pub(super) struct OwnInstance {
    /// Whose it is, where that is told from others.
    pub owner: Option<FairnessKey>,
    pub instance_limit: Arc<InstanceLimit>,
    /// Turns for starts.
    pub starts: Arc<Semaphore>,
    /// Tells it from every other.
    pub key: SessionKey,
}

/// What a server has from the one before it, or an instance from the others.
#[derive(Default)]
struct Inherited {
    offered: Offered,
    recalled: Recalled,
    tally: Arc<Tally>,
    record: Option<Arc<ServerRecord>>,
}

/// What is to be done about a server that is wanted.
pub(super) enum Next {
    /// That is there by this start.
    Ask(Box<Client>, u64),
    Wait(Instant),
    Refuse(Duration),
    Full(NoInstance),
    Closed,
}

/// Who wants a server to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Starter {
    /// Whoever asks it something.
    Caller,
    /// Whoever keeps its lists.
    Keeper,
    /// Somebody who wants to hear of its resources.
    Watcher,
}

/// A request that may be the one trial of a server that kept failing.
pub(super) struct Trial<'a> {
    backend: &'a Backend,
    is_over: bool,
}

impl Backend {
    /// One at this place. What the one before it of the same name offered it offers as well until it has been listed, as far as its own
    /// rules allow that.
    pub(super) fn new(entry: ServerEntry, place: usize, updates: Updates, before: Option<&Backend>) -> Self {
        let inherited = before.map(|before| {
            let offered = Offered::clone(&before.offered());
            let record = Some(Arc::new(before.record.of_successor(entry.secrets.clone())));
            Inherited { offered, tally: Arc::clone(&before.tally), record, ..Inherited::default() }
        });
        Self::made(entry, place, updates, inherited.unwrap_or_default(), None)
    }

    /// The instance of this server that one session has. It is known as the others are, offers what they offer until it has been listed
    /// itself, and rests until it is asked something.
    pub(super) fn instance(&self, updates: Updates, own: OwnInstance) -> Self {
        // What one session makes of it says nothing about the next run.
        let memory = self.entry.memory.clone().filter(|_| !stands("instance-is-not-remembered"));
        let entry = ServerEntry { memory, ..ServerEntry::clone(&self.entry) };
        let inherited = Inherited {
            offered: Offered::clone(&self.offered()),
            recalled: self.lists.recalled_for_another(),
            tally: Arc::clone(&self.tally),
            record: Some(Arc::clone(&self.record)),
        };
        let instance = Self::made(entry, self.place, updates, inherited, Some(own));
        instance.state().wanted.rest();
        instance
    }

    fn made(
        entry: ServerEntry,
        place: usize,
        updates: Updates,
        inherited: Inherited,
        own: Option<OwnInstance>,
    ) -> Self {
        let Inherited { offered, recalled, tally, record } = inherited;
        let entry = Arc::new(entry);
        let patience = RequestPatience::from(&*entry);
        let asked_patience = entry.spec.limits.call_timeout / 10;
        let record = record.unwrap_or_else(|| Arc::new(ServerRecord::new(entry.secrets.clone())));
        let name = entry.spec.name.clone();
        let listener =
            Arc::new(NotificationListener::new(name, place, asked_patience, updates, Arc::clone(&record)));
        let mut spec = ClientSpec { listener: listener.clone(), ..entry.spec.clone() };
        let mut limits = spec.limits.clone();
        if matches!(spec.endpoint, Endpoint::Http(_)) {
            // Beyond that they would wait where turns are not fair.
            limits.max_in_flight = limits.max_in_flight.min(REQUESTS);
        }
        // Turns bound them; those that were withdrawn just now, and what we ask for ourselves, come on top.
        spec.limits.max_in_flight = limits.max_in_flight.saturating_mul(2).saturating_add(OURS);
        // What a server asks in a call may wait for as long as that call.
        spec.limits.call_timeout = patience.longest_call();
        let mixed = |seed: u64, byte: u8| seed.wrapping_mul(31).wrapping_add(byte.into());
        let seed = spec.name.bytes().fold(std::process::id().into(), mixed);
        let state = State {
            client: None,
            breaker: Breaker::new(&spec.limits, seed),
            not_before: Instant::now(),
            subscription: None,
            is_closed: false,
            starts: 0,
            started: Moment::now(),
            in_flight: 0,
            wanted: Demand::new(),
        };
        Self {
            admission: AdmissionLimits::new(
                spec.name.clone(),
                &entry.tool_rules,
                &limits,
                Arc::clone(&listener),
            ),
            lists: ServerLists::new(Arc::clone(&entry), own.is_some(), offered, recalled),
            entry,
            spec,
            own,
            place,
            patience,
            origin: Instant::now(),
            listener,
            watches: ResourceWatches::default(),
            level: RequestedLevel::default(),
            stop: Arc::default(),
            tally,
            record,
            ending: AsyncMutex::default(),
            unwanted: Notify::new(),
            restored: watch::Sender::new(0),
            state: Mutex::new(state),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.entry.spec.name
    }

    /// What came of a request of this tool, as it is told of the server behind another gateway.
    pub(super) fn told_of_owner<T>(&self, tool: Option<&str>, outcome: Result<T, Error>) -> Result<T, Error> {
        if !self.is_gateway() {
            return outcome;
        }
        let owner = || tool.and_then(|tool| self.owner_of(tool)).map(|(server, _)| server);
        outcome.map_err(|error| owners::told_of_owner(self.name(), owner, error))
    }

    /// Whose a tool is here, and what that calls it: of another gateway's tools this is known since it says so.
    pub(super) fn owner_of(&self, tool: &str) -> Option<(String, String)> {
        self.offered().owners.get(tool).filter(|_| self.is_gateway()).cloned()
    }

    /// Whether it goes on when we end in order. What we have started ends with us.
    pub(super) fn outlives_us(&self) -> bool {
        matches!(self.endpoint(), Endpoint::Http(_)) && !self.is_gateway()
    }

    /// How it is reached.
    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.entry.spec.endpoint
    }

    /// Whether it is a gateway as we are: nobody else is reached by a socket.
    pub(super) fn is_gateway(&self) -> bool {
        matches!(&self.entry.spec.endpoint, Endpoint::Http(server) if server.address.socket.is_some())
    }

    /// Who has it.
    pub(super) fn scope(&self) -> Scope {
        self.entry.scope
    }

    /// Whether it is the instance of one session.
    pub(super) fn is_own(&self) -> bool {
        self.own.is_some()
    }

    pub(super) fn place(&self) -> usize {
        self.place
    }

    /// How long requests to it are waited for, where it offers this.
    pub(super) fn patience(&self, offered: &Offered) -> RequestPatience {
        let patience = self.patience.clone();
        match &self.entry.behind {
            Some(behind) => patience.translated(behind, &offered.owners),
            None => patience,
        }
    }

    /// What tells it from what it was before in another configuration, and an instance of one session from those of others. It is the
    /// same in other processes, but for instances.
    pub(super) fn instance_key(&self) -> [u8; 8] {
        match &self.own {
            Some(own) => own.key.bytes(),
            None => digest([self.entry.made_from.as_bytes()]),
        }
    }

    /// Whether this entry would make the same.
    pub(super) fn is_made_from(&self, entry: &ServerEntry) -> bool {
        self.entry.made_from == entry.made_from && stands("unchanged-server-goes-on")
    }

    pub(super) fn request_timeout(&self) -> Duration {
        self.entry.spec.limits.request_timeout
    }

    pub(super) fn idle_timeout(&self) -> Option<Duration> {
        self.entry.idle_timeout
    }

    /// How often it was started.
    pub(super) fn starts(&self) -> u64 {
        self.state().starts
    }

    pub(super) fn prefix(&self) -> &str {
        &self.entry.prefix
    }

    /// What it offered when it was last listed.
    pub(super) fn offered(&self) -> Arc<Offered> {
        self.lists.offered()
    }

    /// Whether there is a process or a connection that can be asked, now or when it is ready.
    pub(super) fn runs(&self) -> bool {
        self.state().client.as_ref().is_some_and(Client::is_usable)
    }

    /// Asks for all its lists, and keeps them.
    pub(super) async fn list(self: &Arc<Self>) -> Result<(), Error> {
        if self.state().wanted.rests() && stands("resting-server-is-left-alone") {
            // What it offered is what it offers, until somebody starts it.
            return Ok(());
        }
        let listed = {
            // That it gives lists does not say that it answers calls: some die of each.
            let _trial = self.trial();
            self.fetch_lists().await
        };
        match listed {
            Ok(offered) => self.lists.accept(offered),
            Err(error) => {
                self.lists.note_failed();
                self.note(&error);
                return Err(error);
            }
        }
        Ok(())
    }

    async fn fetch_lists(self: &Arc<Self>) -> Result<Offered, Error> {
        let (client, session) = self.ready(Starter::Keeper).await?;
        let offered = self.lists.fetch(&client, &session).await?;
        if session.revision.is_stateless() && self.state().subscription.is_none() {
            // A server that has nothing to tell refuses it.
            let topics = Topics { resources: Vec::new(), lists: true };
            match client.subscribe(topics, &RequestOptions::default()).await {
                Ok(subscription) => self.state().subscription = Some(subscription),
                Err(error) => tracing::debug!("`{}` does not tell of changes: {error}", self.name()),
            }
        }
        Ok(offered)
    }

    /// Waits until its lists may be others, or it may be tried again.
    pub(super) async fn until_changed(&self, was_listed: bool) {
        let pause = self.entry.spec.limits.breaker_cooldown;
        self.listener.until_lists_change((!was_listed).then_some(pause)).await;
    }

    /// How it is now.
    fn now(&self) -> Now {
        let mut state = self.state();
        let is_running = state.client.as_ref().is_some_and(Client::is_usable);
        // One that ended while nobody asked it anything.
        self.note_end(&mut state);
        Now {
            is_running,
            is_fenced_off: state.breaker.is_open(),
            in_flight: state.in_flight,
            waiting: self.admission.waiting(),
            failures: state.breaker.failures(),
            breaker: state.breaker.phase(self.origin.elapsed()),
        }
    }

    /// How it is, together with the instances of it that sessions have.
    pub(super) fn status(&self, instances: &[Arc<Backend>]) -> ServerStatus {
        let each: Vec<Now> = instances.iter().map(|instance| instance.now()).chain([self.now()]).collect();
        let running = each.iter().filter(|one| one.is_running).count();
        let now = each.into_iter().reduce(Now::and).unwrap_or_else(|| self.now());
        let status = self.record.status(self.name(), now, running);
        let offered = self.offered();
        let (tools, prompts, resources) =
            (offered.tools.len(), offered.prompts.len(), offered.resources.len());
        ServerStatus { tools, prompts, resources, ..status }
    }

    /// Notes how the client that there is has ended, where it has.
    fn note_end(&self, state: &mut State) {
        if let Some(failure) = state.client.as_ref().and_then(Client::why_over) {
            self.record.trouble().note_end(&failure, state.started);
        }
    }

    /// Something went wrong with it.
    pub(super) fn note(&self, error: &Error) {
        self.record.trouble().note(error);
    }

    /// What is to be said of it where nobody knows what it offers, to whom may read what it wrote or may not.
    pub(super) fn absent(&self, style: &Style, may_read: bool) -> Option<Absent> {
        let was_listed = self.lists.failure_to_list()?;
        let failed = || self.record.trouble().last(may_read).unwrap_or("it could not be listed").to_owned();
        let (server, beginning) = (self.name().to_owned(), style.beginning(self.prefix()));
        Some(Absent { server, beginning, why: was_listed.then(failed) })
    }

    /// The client, once it is ready; started where it is not there. The caller has the deadline.
    pub(super) async fn ready(
        self: &Arc<Self>,
        starter: Starter,
    ) -> Result<(Client, Arc<ServerInfo>), Error> {
        loop {
            // One that is being stopped has its limits, and may hold what the next one needs.
            if stands("next-start-after-the-stop") {
                drop(self.stop.lock().await);
            }
            // As many sessions as come at once begin at once, and each may want its own.
            let own = self.own.as_ref().filter(|_| !self.runs() && stands("instances-start-in-turn"));
            let starts = own.map(|own| Arc::clone(&own.starts));
            let turn = match starts {
                // It is never closed.
                Some(starts) => starts.acquire_owned().await.ok(),
                None => None,
            };
            match self.next(starter) {
                Next::Ask(client, start) => {
                    let ready = in_turn(turn, pin!(client.ready())).await;
                    let session = ready.inspect_err(|error| self.lists.doubt(error))?;
                    self.until_restored(start).await;
                    return Ok((*client, session));
                }
                Next::Wait(until) => {
                    drop(turn);
                    sleep_until(until).await;
                }
                Next::Refuse(rest) => {
                    let failures = self.state().breaker.failures();
                    return Err(verdicts::fenced_off(self.name(), failures, rest, &self.record));
                }
                Next::Full(taken) => return Err(verdicts::no_instance(self.name(), taken)),
                Next::Closed => return Err(Error::Disposed),
            }
        }
    }

    /// What is to be done now for somebody who wants it.
    pub(super) fn next(self: &Arc<Self>, starter: Starter) -> Next {
        let now = Instant::now();
        let since = now - self.origin;
        let mut state = self.state();
        if state.is_closed {
            return Next::Closed;
        }
        match &state.client {
            Some(client) if client.is_usable() => {
                return Next::Ask(Box::new(client.clone()), state.starts);
            }
            // Whoever tends it has not had their turn yet.
            Some(_) => self.count_end(&mut state),
            None => {}
        }
        if self.own.is_some() && starter == Starter::Keeper && stands("instance-is-started-by-its-session") {
            // What it offers is asked of it while it is there, and is no reason to start it.
            return Next::Closed;
        }
        // Before any pause: to be refused nobody waits.
        if let BreakerPhase::Open(rest) = state.breaker.phase(since)
            && stands("gateway-fences-off")
        {
            return Next::Refuse(rest);
        }
        if now < state.not_before && stands("gateway-restart-delayed") {
            return Next::Wait(state.not_before);
        }
        let instance_permit =
            match self.own.as_ref().map(|own| own.instance_limit.take(own.owner.as_ref())).transpose() {
                Ok(instance_permit) => instance_permit,
                Err(taken) => return Next::Full(taken),
            };
        if let Verdict::Refuse(rest) = state.breaker.ask(since)
            && stands("gateway-fences-off")
        {
            return Next::Refuse(rest);
        }
        let client = Client::start_knowing(self.spec.clone(), self.lists.expect_legacy());
        if let Some(instance_permit) = instance_permit {
            let gone = client.gone();
            tokio::spawn(async move {
                gone.await;
                drop(instance_permit);
            });
        }
        state.client = Some(client.clone());
        self.record.started(state.starts > 0);
        state.starts += 1;
        state.wanted.started();
        state.started = Moment::now();
        if starter != Starter::Keeper {
            // What it offers may differ from what the last one offered.
            self.listener.lists_may_have_changed();
        }
        self.tend(&client, state.starts, starter);
        Next::Ask(Box::new(client), state.starts)
    }

    /// The client that there is has ended by itself, which is a failure.
    pub(super) fn count_end(&self, state: &mut State) {
        let now = Instant::now();
        self.note_end(state);
        state.client = None;
        state.subscription = None;
        self.record.failed();
        if state.breaker.failed(now - self.origin) && stands("gateway-fences-off") {
            let failures = state.breaker.failures();
            tracing::error!("{}", verdicts::left_alone(self.name(), failures, &self.record, true));
        }
        state.not_before = now + state.breaker.delay();
    }

    /// The one trial of a server that kept failing has come to nothing that says anything about it.
    pub(super) fn abandon_trial(&self) {
        self.state().breaker.trial_abandoned(self.origin.elapsed());
    }

    /// Tells the server from which level on it is to log, if it runs.
    pub(super) async fn set_level(&self) {
        let client = self.state().client.clone().filter(Client::is_usable);
        if let Some(client) = client {
            self.level.tell(self.name(), &client).await;
        }
    }

    /// The client that there is, and by which start.
    pub(super) fn current(&self) -> Option<(Client, u64)> {
        let state = self.state();
        Some((state.client.clone()?, state.starts))
    }

    /// A request is made now.
    pub(super) fn trial(&self) -> Trial<'_> {
        self.state().in_flight += 1;
        Trial { backend: self, is_over: false }
    }

    /// Ends it for good.
    pub(super) async fn close(&self, deadline: Deadline) {
        // Whoever comes second waits for the same end.
        let _ending = deadline.timeout(self.ending.lock()).await;
        let client = {
            let mut state = self.state();
            state.is_closed = true;
            state.subscription = None;
            state.client.take()
        };
        if let Some(client) = client
            && !client.dispose_by(deadline).await
        {
            tracing::warn!("`{}` had not ended in time; its lifeline ends it", self.name());
        }
        // One that is being stopped already is waited for as well.
        let _stopped = deadline.timeout(self.stop.lock()).await;
        if let Some(memory) = &self.entry.memory {
            memory.settled().await;
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether the client that there is came by this start.
    pub(super) fn is_of(&self, start: u64) -> bool {
        self.starts == start
    }
}

impl Trial<'_> {
    /// This came of it. Only an answer says that the server is well; what its end means is counted where that is noticed.
    pub(super) fn ended(mut self, outcome: &Result<Box<RawValue>, Error>) {
        match outcome {
            Ok(_) | Err(Error::Server(_)) => {
                self.is_over = true;
                self.backend.state().breaker.succeeded();
            }
            Err(error) => self.backend.note(error),
        }
    }
}

/// What came of nothing says nothing about the server.
impl Drop for Trial<'_> {
    fn drop(&mut self) {
        let mut state = self.backend.state();
        state.in_flight = state.in_flight.saturating_sub(1);
        if !self.is_over {
            state.breaker.trial_abandoned(self.backend.origin.elapsed());
        }
    }
}
