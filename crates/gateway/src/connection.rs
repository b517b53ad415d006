//! The one client of a server: whether it is there, when it may be started, and who wants something of it.
//!
//! Invariants
//!
//! - There is at most one client at a time that can be asked.
//! - Its death or a failed start is counted once, when it happens; after so many in a row it is left alone for a while, and then tried
//!   once (promise 6).
//! - Nothing here waits: the time is given.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use unhang_jobs::timestamp::JobTimestamp;
use unhang_switches::stands;

use super::{
    idle::Demand,
    instance_limit::NoInstance,
    status::{InstanceStatus, ServerRecord},
    verdicts,
};
use unhang_core::breaker::{Breaker, BreakerPhase, BreakerVerdict};
use unhang_upstream::client::{Client, Error, Subscription};

/// The one client of a server, where it has one.
pub(super) struct ServerConnection {
    /// The server's name, for errors.
    server: String,
    /// What has become of it.
    record: Arc<ServerRecord>,
    client: Option<Client>,
    /// For servers that tell of changes only to whoever has asked for that.
    subscription: Option<Subscription>,
    breaker: Breaker,
    /// From when on the breaker counts its time.
    origin: Instant,
    /// Before then it is not started again.
    not_before: Instant,
    starts: u64,
    /// When it was last started.
    started: JobTimestamp,
    in_flight: usize,
    /// Who wants something of it.
    pub(super) demand: Demand,
    is_closed: bool,
}

/// What is to be done about a server that is wanted.
pub(super) enum StartDecision {
    /// Ask this client, which is there by this start.
    Ask(Box<Client>, u64),
    /// Look again at this time.
    Wait(Instant),
    /// It is left alone for so long.
    Refuse(Duration),
    /// There is no room for an instance of its own.
    Full(NoInstance),
    /// It has ended for good.
    Closed,
}

impl ServerConnection {
    /// Makes that of a server which is not there yet.
    pub(super) fn new(server: String, record: Arc<ServerRecord>, breaker: Breaker) -> Self {
        let now = Instant::now();
        Self {
            server,
            record,
            client: None,
            subscription: None,
            breaker,
            origin: now,
            not_before: now,
            starts: 0,
            started: JobTimestamp::now(),
            in_flight: 0,
            demand: Demand::new(),
            is_closed: false,
        }
    }

    /// Returns the client, if it can be asked now or when it is ready.
    pub(super) fn usable_client(&self) -> Option<&Client> {
        self.client.as_ref().filter(|client| client.is_usable())
    }

    /// Returns the client that there is, and by which start.
    pub(super) fn current(&self) -> Option<(Client, u64)> {
        Some((self.client.clone()?, self.starts))
    }

    /// Returns how often it was started.
    pub(super) fn starts(&self) -> u64 {
        self.starts
    }

    /// Decides what is to be done for somebody who wants it, where that does not need a start. Counts the end of a client that nobody has
    /// seen yet.
    pub(super) fn existing(&mut self) -> Option<StartDecision> {
        if self.is_closed {
            return Some(StartDecision::Closed);
        }
        match &self.client {
            Some(client) if client.is_usable() => {
                return Some(StartDecision::Ask(Box::new(client.clone()), self.starts));
            }
            // Whoever tends it has not had their turn yet.
            Some(_) => self.count_end(),
            None => {}
        }
        None
    }

    /// Decides whether a start has to wait, or is refused.
    pub(super) fn postponed(&self, now: Instant) -> Option<StartDecision> {
        // Before any pause: to be refused nobody waits.
        if let BreakerPhase::Open(rest) = self.breaker.phase(now - self.origin)
            && stands("gateway-fences-off")
        {
            return Some(StartDecision::Refuse(rest));
        }
        (now < self.not_before && stands("gateway-restart-delayed"))
            .then_some(StartDecision::Wait(self.not_before))
    }

    /// Asks the breaker for a start, which may be the one trial of a server that kept failing.
    pub(super) fn refused(&mut self, now: Instant) -> Option<StartDecision> {
        match self.breaker.ask(now - self.origin) {
            BreakerVerdict::Refuse(rest) if stands("gateway-fences-off") => Some(StartDecision::Refuse(rest)),
            _ => None,
        }
    }

    /// Has this client from now on, and returns the number of the start.
    pub(super) fn begin(&mut self, client: Client) -> u64 {
        self.client = Some(client);
        self.record.started(self.starts > 0);
        self.starts += 1;
        self.demand.started();
        self.started = JobTimestamp::now();
        self.starts
    }

    /// Notes that the client of this start has ended. Where it was taken away before, somebody has ended it on purpose.
    pub(super) fn ended(&mut self, start: u64) {
        let is_over = self.client.as_ref().is_some_and(|client| !client.is_usable());
        if is_over && self.starts == start {
            self.count_end();
        }
    }

    /// Counts that the client that there is has ended by itself, which is a failure.
    fn count_end(&mut self) {
        let now = Instant::now();
        self.note_end();
        self.client = None;
        self.subscription = None;
        self.record.failed();
        if self.breaker.failed(now - self.origin) && stands("gateway-fences-off") {
            let failures = self.breaker.failures();
            tracing::error!("{}", verdicts::left_alone(&self.server, failures, &self.record, true));
        }
        self.not_before = now + self.breaker.delay();
    }

    /// Notes how the client that there is has ended, where it has.
    fn note_end(&self) {
        if let Some(failure) = self.client.as_ref().and_then(Client::why_over) {
            self.record.last_failure().note_end(&failure, self.started);
        }
    }

    /// Takes the client away, so that its end is no failure. It is no more told of changes.
    pub(super) fn take(&mut self) -> Option<Client> {
        self.subscription = None;
        self.client.take()
    }

    /// Takes a client away that can be asked, if nobody has wanted anything of it for so long. It is started when it is asked again.
    pub(super) fn take_idle(&mut self, idle: Duration, is_watched: bool) -> Option<Client> {
        let is_used = self.demand.is_wanted() || self.in_flight > 0 || is_watched;
        if !self.demand.has_rested_for(idle) || is_used && stands("server-in-use-does-not-rest") {
            return None;
        }
        let client = self.client.take_if(|client| client.is_usable())?;
        self.subscription = None;
        self.demand.rest();
        Some(client)
    }

    /// Takes the client away for good.
    pub(super) fn close(&mut self) -> Option<Client> {
        self.is_closed = true;
        self.take()
    }

    /// Returns whether it tells of changes.
    pub(super) fn is_subscribed(&self) -> bool {
        self.subscription.is_some()
    }

    /// Keeps what has it tell of changes.
    pub(super) fn subscribed(&mut self, subscription: Subscription) {
        self.subscription = Some(subscription);
    }

    /// Counts a request that is made now.
    pub(super) fn request_begins(&mut self) {
        self.in_flight += 1;
    }

    /// Counts the end of a request. What came of nothing says nothing about the server.
    pub(super) fn request_ends(&mut self, was_answered: bool) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if !was_answered {
            self.abandon_trial();
        }
    }

    /// Notes that the server has answered, so that it is well.
    pub(super) fn answered(&mut self) {
        self.breaker.succeeded();
    }

    /// Notes that the one trial of a server that kept failing has come to nothing that says anything about it.
    pub(super) fn abandon_trial(&mut self) {
        self.breaker.trial_abandoned(self.origin.elapsed());
    }

    /// Gives the verdict for a caller who comes while it is left alone.
    pub(super) fn fenced_off(&self, rest: Duration) -> Error {
        verdicts::fenced_off(&self.server, self.breaker.failures(), rest, &self.record)
    }

    /// Returns how it is now, with so many requests that wait for their turn. Notes the end of one that ended while nobody asked it
    /// anything.
    pub(super) fn status(&self, waiting: usize) -> InstanceStatus {
        let is_running = self.usable_client().is_some();
        self.note_end();
        InstanceStatus {
            is_running,
            is_fenced_off: self.breaker.is_open(),
            in_flight: self.in_flight,
            waiting,
            failures: self.breaker.failures(),
            breaker: self.breaker.phase(self.origin.elapsed()),
        }
    }
}
