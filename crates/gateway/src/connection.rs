//! The one client of a server: whether it is there, when it may be started, and who wants something of it.
//!
//! Invariants
//!
//! - At most one client at a time can be asked.
//! - The end of a client, or a failed start, is counted once, when it happens. After so many in a row the server is left alone for a while,
//!   and then tried once (promise 6).
//! - Nothing here waits: the caller hands the time in.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use unhang_jobs::timestamp::JobTimestamp;

use super::{
    idle::Demand,
    instance_limit::NoInstance,
    status::{InstanceStatus, ServerRecord},
    verdicts,
};
use unhang_core::{
    breaker::{Breaker, BreakerPhase, BreakerVerdict},
    fault::FaultKind,
};
use unhang_upstream::client::{Client, Error, Failure, Subscription};

/// The one client of a server, if there is one.
pub(super) struct ServerConnection {
    /// The server's name, for errors.
    server: String,
    /// The counts of the server.
    record: Arc<ServerRecord>,
    client: Option<Client>,
    /// The last end of a client that had been ready, with the number of its start.
    last_end: Option<(u64, Failure)>,
    /// Kept for servers that tell of changes only to clients that have asked for that.
    subscription: Option<Subscription>,
    breaker: Breaker,
    /// The beginning of the breaker's time.
    origin: Instant,
    /// Before this time the server is not started again.
    not_before: Instant,
    starts: u64,
    /// The time of the last start.
    started: JobTimestamp,
    in_flight: usize,
    /// Counts who wants something of the server.
    pub(super) demand: Demand,
    is_closed: bool,
}

/// The next step with a server that somebody wants.
pub(super) enum StartDecision {
    /// Ask this client, which belongs to this start.
    Ask(Box<Client>, u64),
    /// Look again at this time.
    Wait(Instant),
    /// The server is left alone for this long.
    Refuse(Duration),
    /// There is no room for an instance of its own.
    Full(NoInstance),
    /// The server has ended for good.
    Closed,
}

impl ServerConnection {
    /// Makes the connection of a server that has not been started.
    pub(super) fn new(server: String, record: Arc<ServerRecord>, breaker: Breaker) -> Self {
        let now = Instant::now();
        Self {
            server,
            record,
            client: None,
            last_end: None,
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

    /// Returns the client if it can be asked, now or once it is ready. Returns `None` otherwise.
    pub(super) fn usable_client(&self) -> Option<&Client> {
        self.client.as_ref().filter(|client| client.is_usable())
    }

    /// Returns the client, if there is one, and the number of its start.
    pub(super) fn current(&self) -> Option<(Client, u64)> {
        Some((self.client.clone()?, self.starts))
    }

    /// Returns how often the server was started.
    pub(super) fn starts(&self) -> u64 {
        self.starts
    }

    /// Returns what to do for somebody who wants the server, or `None` if that needs a start. Counts the end of a client if nobody has
    /// noticed it yet.
    pub(super) fn existing(&mut self) -> Option<StartDecision> {
        if self.is_closed {
            return Some(StartDecision::Closed);
        }
        match &self.client {
            Some(client) if client.is_usable() => {
                return Some(StartDecision::Ask(Box::new(client.clone()), self.starts));
            }
            // The task that tends the client has not had its turn yet.
            Some(_) => self.count_end(),
            None => {}
        }
        None
    }

    /// Returns whether a start has to wait or is refused, or `None` if it may begin.
    pub(super) fn postponed(&self, now: Instant) -> Option<StartDecision> {
        // Before any pause: a refusal comes at once.
        if let BreakerPhase::Open(rest) = self.breaker.phase(now - self.origin) {
            return Some(StartDecision::Refuse(rest));
        }
        (now < self.not_before).then_some(StartDecision::Wait(self.not_before))
    }

    /// Asks the breaker for a start, which may be the one trial of a server that kept failing. Returns the refusal, if there is one.
    pub(super) fn refused(&mut self, now: Instant) -> Option<StartDecision> {
        match self.breaker.ask(now - self.origin) {
            BreakerVerdict::Refuse(rest) => Some(StartDecision::Refuse(rest)),
            _ => None,
        }
    }

    /// Takes this client into use, and returns the number of the start.
    pub(super) fn begin(&mut self, client: Client) -> u64 {
        self.client = Some(client);
        self.record.started(self.starts > 0);
        self.starts += 1;
        self.demand.started();
        self.started = JobTimestamp::now();
        self.starts
    }

    /// Notes that the client of this start has ended. A client that was taken away before was ended on purpose, and is not counted.
    pub(super) fn ended(&mut self, start: u64) {
        let is_over = self.client.as_ref().is_some_and(|client| !client.is_usable());
        if is_over && self.starts == start {
            self.count_end();
        }
    }

    /// Counts that the current client has ended by itself, which is a failure.
    fn count_end(&mut self) {
        let now = Instant::now();
        self.note_end();
        let over = self.client.as_ref().and_then(Client::why_over);
        // One that never came up had nothing that could be lost with it.
        if let Some(failure) = over.filter(|failure| failure.kind == FaultKind::ServerExited) {
            self.last_end = Some((self.starts, failure));
        }
        self.client = None;
        self.subscription = None;
        self.record.failed();
        if self.breaker.failed(now - self.origin) {
            let failures = self.breaker.failures();
            tracing::error!("{}", verdicts::left_alone(&self.server, failures, &self.record, true));
        }
        self.not_before = now + self.breaker.delay();
    }

    /// Notes how the current client has ended, if it has.
    fn note_end(&self) {
        if let Some(failure) = self.client.as_ref().and_then(Client::why_over) {
            self.record.last_failure().note_end(&failure, self.started);
        }
    }

    /// Returns how the client of this start, or of a later one, has ended by itself after it had been ready. The last end counts.
    pub(super) fn end_since(&self, start: u64) -> Option<Failure> {
        let (_, failure) = self.last_end.as_ref().filter(|(ended, _)| *ended >= start)?;
        Some(failure.clone())
    }

    /// Takes the client away, so that its end is not a failure. Also drops its subscription to changes.
    pub(super) fn take(&mut self) -> Option<Client> {
        self.subscription = None;
        self.client.take()
    }

    /// Takes away a client that can be asked, if nobody has wanted anything of it for `idle`. The next request starts the server again.
    pub(super) fn take_idle(&mut self, idle: Duration, is_watched: bool) -> Option<Client> {
        let is_used = self.demand.is_wanted() || self.in_flight > 0 || is_watched;
        if !self.demand.has_rested_for(idle) || is_used {
            return None;
        }
        let client = self.client.take_if(|client| client.is_usable())?;
        self.subscription = None;
        self.demand.rest();
        Some(client)
    }

    /// Returns whether the client was taken away for good.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Takes the client away for good.
    pub(super) fn close(&mut self) -> Option<Client> {
        self.is_closed = true;
        self.take()
    }

    /// Returns whether the server tells us of changes.
    pub(super) fn is_subscribed(&self) -> bool {
        self.subscription.is_some()
    }

    /// Keeps the subscription by which the server tells us of changes.
    pub(super) fn subscribed(&mut self, subscription: Subscription) {
        self.subscription = Some(subscription);
    }

    /// Counts a request that begins now.
    pub(super) fn request_begins(&mut self) {
        self.in_flight += 1;
    }

    /// Counts the end of a request. A request without an answer says nothing about the server.
    pub(super) fn request_ends(&mut self, was_answered: bool) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if !was_answered {
            self.abandon_trial();
        }
    }

    /// Notes that the server has answered, so that the breaker knows that it is well.
    pub(super) fn answered(&mut self) {
        self.breaker.succeeded();
    }

    /// Notes that the one trial of a server that kept failing has ended without a verdict on the server.
    pub(super) fn abandon_trial(&mut self) {
        self.breaker.trial_abandoned(self.origin.elapsed());
    }

    /// Makes the error for a caller who comes while the server is left alone.
    pub(super) fn fenced_off(&self, rest: Duration) -> Error {
        verdicts::fenced_off(&self.server, self.breaker.failures(), rest, &self.record)
    }

    /// Returns the status of the connection, with `waiting` requests that wait for their turn. Notes the end of a client that ended while
    /// nobody asked it anything.
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
