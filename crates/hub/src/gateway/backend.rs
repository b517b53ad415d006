//! One server behind a gateway: its one client, when it may be started, and what it last offered.
//!
//! Invariants
//!
//! - There is at most one client at a time that can be asked.
//! - Its death or a failed start is counted once; after so many in a row it is left alone for a while, and then tried once (promise 6).
//! - Whoever waits for it to start may stop waiting: the start goes on for the next one.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::{Map, value::RawValue};
use tokio::{
    sync::{Mutex as AsyncMutex, Notify},
    time::{Instant, sleep, sleep_until},
};
use unhang_jobs::moment::Moment;
use unhang_proc::deadline::Deadline;
use unhang_switches::stands;

use super::{
    Level, Memory, Patience, ServerEntry,
    ear::Ear,
    memory::Recalled,
    rest::Wanted,
    status::{ServerState, ServerStatus, Trouble},
    tally::Tally,
    turns::Turns,
    watched::{Updates, Watched},
};
use crate::{
    breaker::{Breaker, Verdict},
    client::{Client, Endpoint, Error, Failure, List, Options, Session, Subscription, Topics},
    fault::{Kind, in_words},
    route::{catalog::Offered, rules::ToolRules},
    upstream::http::REQUESTS,
};

/// Between a change of a list and the question for it: changes come in crowds, and some servers tell of them without end.
const CALM: Duration = Duration::from_millis(250);

/// Requests of our own that may be with a server: its lists, and whether it lives.
const OURS: usize = 16;

/// One server.
pub(super) struct Backend {
    entry: ServerEntry,
    /// What it is known by.
    place: usize,
    patience: Patience,
    origin: Instant,
    /// What it says that belongs to no call.
    pub(super) ear: Arc<Ear>,
    /// Whose turn it is.
    pub(super) turns: Turns,
    /// How long whoever is asked something may take for the answer while others wait for the server.
    pub(super) turn_patience: Duration,
    /// Resources that somebody wants to hear of.
    pub(super) watched: AsyncMutex<HashMap<Arc<str>, Watched>>,
    /// Held while it is being stopped because nobody wants it, or while the one before it is.
    pub(super) stop: Arc<AsyncMutex<()>>,
    /// What came of what clients asked of it.
    pub(super) tally: Arc<Tally>,
    /// Rung when nobody wants anything of it any more.
    pub(super) unwanted: Notify,
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) client: Option<Client>,
    breaker: Breaker,
    /// Before then it is not started again.
    not_before: Instant,
    offered: Arc<Offered>,
    was_listed: bool,
    /// What is known from the last time that it was listed.
    pub(super) recalled: Recalled,
    /// It has been listed since we began.
    pub(super) has_lists: bool,
    /// For servers that tell of changes only to whoever has asked for that.
    pub(super) subscription: Option<Subscription>,
    is_closed: bool,
    /// From which level on somebody has asked it to log.
    level: Option<Level>,
    starts: u64,
    pub(super) in_flight: usize,
    pub(super) wanted: Wanted,
    /// Rules that were told to have no effect.
    told: HashSet<String>,
    /// When it was last started.
    started: Moment,
    failures: u64,
    trouble: Trouble,
}

/// What is to be done about a server that is wanted.
enum Next {
    Ask(Box<Client>),
    Wait(Instant),
    Refuse(Duration),
    Closed,
}

/// Who wants a server to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Starter {
    /// Whoever asks it something.
    Caller,
    /// Whoever keeps its lists.
    Keeper,
}

/// A request that may be the one trial of a server that kept failing.
pub(super) struct Trial<'a> {
    backend: &'a Backend,
    is_over: bool,
}

impl Backend {
    /// One at this place. What the one before it of the same name offered it offers as well until it has been listed, as far as its own
    /// rules allow that.
    pub(super) fn new(
        mut entry: ServerEntry,
        place: usize,
        updates: Updates,
        before: Option<&Backend>,
    ) -> Self {
        let patience = Patience::from(&entry);
        let mut offered = before.map(|before| Offered::clone(&before.offered())).unwrap_or_default();
        offered.tools = entry.tool_rules.offered(offered.tools);
        let turn_patience = entry.spec.limits.call_timeout / 10;
        let ear = Arc::new(Ear::new(entry.spec.name.clone(), turn_patience, place, updates));
        entry.spec.listener = ear.clone();
        let mut limits = entry.spec.limits.clone();
        if matches!(entry.spec.endpoint, Endpoint::Http(_)) {
            // Beyond that they would wait where turns are not fair.
            limits.max_in_flight = limits.max_in_flight.min(REQUESTS);
        }
        // Turns bound them; those that were withdrawn just now, and what we ask for ourselves, come on top.
        entry.spec.limits.max_in_flight = limits.max_in_flight.saturating_mul(2).saturating_add(OURS);
        // What a server asks in a call may wait for as long as that call.
        entry.spec.limits.call_timeout = patience.longest_call();
        let mixed = |seed: u64, byte: u8| seed.wrapping_mul(31).wrapping_add(byte.into());
        let seed = entry.spec.name.bytes().fold(std::process::id().into(), mixed);
        let state = State {
            client: None,
            breaker: Breaker::new(&entry.spec.limits, seed),
            not_before: Instant::now(),
            offered: Arc::new(offered),
            was_listed: false,
            recalled: Recalled::default(),
            has_lists: false,
            subscription: None,
            is_closed: false,
            level: None,
            starts: 0,
            started: Moment::now(),
            in_flight: 0,
            wanted: Wanted::new(),
            told: HashSet::new(),
            failures: 0,
            trouble: Trouble::new(entry.secrets.clone()),
        };
        Self {
            turns: Turns::new(&entry.tool_rules, &limits),
            entry,
            place,
            patience,
            origin: Instant::now(),
            ear,
            turn_patience,
            watched: AsyncMutex::default(),
            stop: Arc::default(),
            tally: before.map(|before| Arc::clone(&before.tally)).unwrap_or_default(),
            unwanted: Notify::new(),
            state: Mutex::new(state),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.entry.spec.name
    }

    /// Whether it is a gateway as we are: nobody else is reached by a socket.
    pub(super) fn is_gateway(&self) -> bool {
        matches!(&self.entry.spec.endpoint, Endpoint::Http(server) if server.address.socket.is_some())
    }

    pub(super) fn place(&self) -> usize {
        self.place
    }

    /// How long requests to it are waited for.
    pub(super) fn patience(&self) -> &Patience {
        &self.patience
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

    pub(super) fn memory(&self) -> Option<&Memory> {
        self.entry.memory.as_ref()
    }

    pub(super) fn rules(&self) -> &ToolRules {
        &self.entry.tool_rules
    }

    pub(super) fn prefix(&self) -> &str {
        &self.entry.prefix
    }

    /// What it offered when it was last listed.
    pub(super) fn offered(&self) -> Arc<Offered> {
        self.state().offered.clone()
    }

    /// How it is.
    pub(super) fn status(&self) -> ServerStatus {
        let mut state = self.state();
        let is_running = state.client.as_ref().is_some_and(Client::is_usable);
        // One that ended while nobody asked it anything.
        state.note_end();
        let status = ServerStatus {
            name: self.name().to_owned(),
            state: match is_running {
                true => ServerState::Running,
                false if state.breaker.is_open() => ServerState::FencedOff,
                false => ServerState::Ended,
            },
            starts: state.starts,
            restarts: state.starts.saturating_sub(1),
            in_flight: state.in_flight,
            waiting: self.turns.waiting(),
            failures: state.breaker.failures(),
            failures_total: state.failures,
            breaker: state.breaker.phase(self.origin.elapsed()).into(),
            junk_lines: self.ear.junk_lines(),
            tools: state.offered.tools.len(),
            prompts: state.offered.prompts.len(),
            resources: state.offered.resources.len(),
            last_error: None,
            last_error_at: None,
            last_exit: None,
            stderr_tail: Vec::new(),
        };
        state.trouble.tell(status)
    }

    /// Something went wrong with it.
    pub(super) fn note(&self, error: &Error) {
        self.state().trouble.note(error);
    }

    /// It has been listed, or has failed to be.
    pub(super) fn was_listed(&self) -> bool {
        self.state().was_listed
    }

    /// It is known what it offers, or what it offered in the last run; or it has failed to be listed.
    pub(super) fn has_known_lists(&self) -> bool {
        let state = self.state();
        state.was_listed || state.recalled.has_lists
    }

    /// The client, once it is ready; started where it is not there. The caller has the deadline.
    pub(super) async fn ready(&self, starter: Starter) -> Result<(Client, Arc<Session>), Error> {
        loop {
            // One that is being stopped has its limits, and may hold what the next one needs.
            if stands("next-start-after-the-stop") {
                drop(self.stop.lock().await);
            }
            match self.next(starter) {
                Next::Ask(client) => {
                    let session = client.ready().await.inspect_err(|error| self.doubt(error))?;
                    return Ok((*client, session));
                }
                Next::Wait(until) => sleep_until(until).await,
                Next::Refuse(rest) => return Err(self.fenced_off(rest)),
                Next::Closed => return Err(Error::Disposed),
            }
        }
    }

    fn next(&self, starter: Starter) -> Next {
        let now = Instant::now();
        let since = now - self.origin;
        let mut state = self.state();
        if state.is_closed {
            return Next::Closed;
        }
        match &state.client {
            Some(client) if client.is_usable() => return Next::Ask(Box::new(client.clone())),
            Some(_) => {
                state.note_end();
                state.client = None;
                state.subscription = None;
                state.failures += 1;
                if state.breaker.failed(since) && stands("gateway-fences-off") {
                    tracing::error!(
                        "`{}` failed {} times in a row and is left alone",
                        self.name(),
                        state.breaker.failures()
                    );
                }
                state.not_before = now + state.breaker.delay();
            }
            None => {}
        }
        if now < state.not_before && stands("gateway-restart-delayed") {
            return Next::Wait(state.not_before);
        }
        if let Verdict::Refuse(rest) = state.breaker.ask(since)
            && stands("gateway-fences-off")
        {
            return Next::Refuse(rest);
        }
        let client = Client::start_knowing(self.entry.spec.clone(), state.recalled.started());
        state.client = Some(client.clone());
        state.starts += 1;
        state.wanted.started();
        state.started = Moment::now();
        if starter == Starter::Caller {
            // What it offers may differ from what the last one offered.
            self.ear.changed.notify_one();
        }
        Next::Ask(Box::new(client))
    }

    /// A request is made now.
    pub(super) fn trial(&self) -> Trial<'_> {
        self.state().in_flight += 1;
        Trial { backend: self, is_over: false }
    }

    /// Asks for all its lists, and keeps them.
    pub(super) async fn list(&self) -> Result<(), Error> {
        if self.state().wanted.rests() && stands("resting-server-is-left-alone") {
            // What it offered is what it offers, until somebody starts it.
            return Ok(());
        }
        let listed = {
            // That it gives lists does not say that it answers calls: some die of each.
            let _trial = self.trial();
            self.lists().await
        };
        let mut state = self.state();
        state.was_listed = true;
        match listed {
            Ok(offered) => {
                state.offered = Arc::new(offered);
                state.has_lists = true;
                Ok(())
            }
            Err(error) => {
                state.trouble.note(&error);
                Err(error)
            }
        }
    }

    async fn lists(&self) -> Result<Offered, Error> {
        let (client, session) = self.ready(Starter::Keeper).await?;
        let options = Options::default();
        let (tools, prompts, resources, templates) = tokio::join!(
            client.list(List::Tools, &options),
            client.list(List::Prompts, &options),
            client.list(List::Resources, &options),
            // Nobody declares them by themselves, and many have none.
            client.list(List::ResourceTemplates, &options),
        );
        let listed = Offered {
            tools: tools?,
            prompts: self.or_none(prompts),
            resources: self.or_none(resources),
            templates: self.or_none(templates),
        };
        self.remember(&session, &listed);
        let offered = Offered { tools: self.allowed(listed.tools), ..listed };
        self.watch_again(&client).await;
        self.set_level().await;
        if session.revision.is_stateless() && self.state().subscription.is_none() {
            // A server that has nothing to tell refuses it.
            match client.subscribe(Topics { resources: Vec::new(), lists: true }, &options).await {
                Ok(subscription) => self.state().subscription = Some(subscription),
                Err(error) => tracing::debug!("`{}` does not tell of changes: {error}", self.name()),
            }
        }
        Ok(offered)
    }

    /// What of its tools clients may have. What the rules say in vain is told once.
    fn allowed(&self, listed: Vec<Box<RawValue>>) -> Vec<Box<RawValue>> {
        let rules = &self.entry.tool_rules;
        for (rule, why) in rules.without_effect(&listed) {
            if self.state().told.insert(rule.clone()) {
                tracing::warn!("{rule} of `{}` has no effect: {why}", self.name());
            }
        }
        rules.offered(listed)
    }

    /// What a server that has tools gives besides; nothing where that goes wrong.
    fn or_none(&self, listed: Result<Vec<Box<RawValue>>, Error>) -> Vec<Box<RawValue>> {
        listed.unwrap_or_else(|error| {
            tracing::debug!("`{}`: {error}", self.name());
            Vec::new()
        })
    }

    /// Whether it has to say more than it does for this level; it will from now on.
    pub(super) fn logs_less_than(&self, level: Level) -> bool {
        let mut state = self.state();
        let is_more = state.level.is_none_or(|now| level < now);
        if is_more {
            state.level = Some(level);
        }
        is_more
    }

    /// Tells the server from which level on it is to log, if it runs and is told so once for all (protocol.md 3.3, row 10).
    pub(super) async fn set_level(&self) {
        let (client, level) = {
            let state = self.state();
            (state.client.clone().filter(Client::is_usable), state.level)
        };
        let (Some(client), Some(level)) = (client, level) else { return };
        let Ok(session) = client.ready().await else { return };
        if session.revision.is_stateless() || !session.capabilities.contains_key("logging") {
            return;
        }
        let params = Map::from_iter([("level".to_owned(), level.name().into())]);
        if let Err(error) = client.request("logging/setLevel", params, &Options::default()).await {
            tracing::debug!("`{}` does not log by level: {error}", self.name());
        }
    }

    /// Waits until its lists may be others, or it may be tried again.
    pub(super) async fn until_changed(&self, was_listed: bool) {
        if was_listed {
            self.ear.changed.notified().await;
            sleep(CALM).await;
        } else {
            let pause = self.entry.spec.limits.breaker_cooldown;
            tokio::select! {
                () = sleep(pause) => {}
                // Somebody has asked for it meanwhile, so that it was started anew.
                () = self.ear.changed.notified() => sleep(CALM).await,
            }
        }
    }

    /// Ends it for good.
    pub(super) async fn close(&self, deadline: Deadline) {
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
        if let Some(memory) = self.memory() {
            memory.settled().await;
        }
    }

    /// Our verdict for a caller whose time was over before the server was ready.
    pub(super) fn still_starting(&self, method: &str, limit: Duration) -> Error {
        let happened =
            format!("`{}` was not ready to answer `{method}` within {}", self.name(), in_words(limit));
        let hint = "it is still being started; ask again, or look at its stderr in the log";
        Failure { limit: Some(limit), elapsed: limit, ..self.failure(Kind::Deadline, method, happened, hint) }
            .into()
    }

    /// Our verdict for a caller who answers what was not asked.
    pub(super) fn no_such_question(&self, method: &str) -> Error {
        let happened = format!("`{}` was not asking anything about this `{method}`", self.name());
        let hint = "make the request anew, without requestState and inputResponses";
        self.failure(Kind::InvalidParams, method, happened, hint).into()
    }

    fn fenced_off(&self, rest: Duration) -> Error {
        let failures = self.state().breaker.failures();
        let happened = format!("`{}` failed {failures} times in a row and is left alone", self.name());
        let hint = format!("ask again in {}", in_words(Duration::from_secs(rest.as_secs() + 1)));
        self.failure(Kind::BreakerOpen, "", happened, &hint).into()
    }

    pub(super) fn failure(&self, kind: Kind, method: &str, happened: String, hint: &str) -> Failure {
        let method = Some(method.to_owned()).filter(|method| !method.is_empty());
        Failure {
            kind,
            server: self.name().to_owned(),
            method,
            happened,
            hint: hint.to_owned(),
            ..Failure::ended()
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// This is known from the last run, and counts until the server has been listed.
    pub(super) fn recall(&mut self, offered: Offered, recalled: Recalled) {
        (self.offered, self.recalled) = (Arc::new(offered), recalled);
    }

    /// Notes how the client that there is has ended, where it has.
    fn note_end(&mut self) {
        if let Some(failure) = self.client.as_ref().and_then(Client::why_over) {
            self.trouble.note_end(&failure, self.started);
        }
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
