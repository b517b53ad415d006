//! The life of each process or connection of a server, from its start to its end, whoever wanted it.
//!
//! Invariants
//!
//! - A server that was started anew is told what sessions had told its predecessor, before any request reaches it. A server that does not
//!   answer that delays nobody for long.
//! - A request to a server that is left alone is refused at once.
//! - A caller that waits for the start may stop waiting: the start goes on for the next one.
//! - Only requests and watches of its session start an instance, and only if there is a permit for it.
//! - The end of a process or connection is counted when it happens.
//! - While somebody wants to hear of its resources, the server is started again as soon as it may be. Requests are not needed for that.
//! - Nothing here keeps a server that nobody has any more.

use std::{
    pin::pin,
    sync::{Arc, Weak},
    time::Duration,
};

use serde_json::value::RawValue;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};
use unhang_bridge::Era;

use super::{
    backend::Backend, connection::StartDecision, notification_listener::NotificationListener,
    resource_watches, start_turns::in_turn, verdicts,
};
use unhang_core::{
    config::{REMOTE_COOLDOWN_MAX, RESTORE_PATIENCE, RETRY_MOST},
    limits::Limits,
};
use unhang_upstream::{
    client::{Client, ClientSpec, Endpoint, Error, ServerInfo},
    http::REQUESTS,
};

/// Requests of our own that may be with a server: for its lists, and to see whether it is alive.
const INTERNAL_REQUESTS: usize = 16;

/// Who wants a server to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartReason {
    /// A request.
    Request,
    /// The task that keeps the server's lists.
    Listing,
    /// A session that wants to hear of its resources.
    Watch,
}

/// The last start of a server after which it was told what sessions had told its predecessor.
pub(super) struct RestoredStart(watch::Sender<u64>);

impl Default for RestoredStart {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl RestoredStart {
    /// Waits until the server of this start has been told, but for [`RESTORE_PATIENCE`] at most.
    async fn until(&self, start: u64) {
        if *self.0.borrow() >= start {
            return;
        }
        let mut restored = self.0.subscribe();
        // The task that tells the server gives up earlier, and logs that.
        let _told = timeout(RESTORE_PATIENCE, restored.wait_for(|restored| *restored >= start)).await;
    }

    /// Notes that the server of this start has been told.
    fn note(&self, start: u64) {
        self.0.send_if_modified(|restored| {
            let is_newer = *restored < start;
            *restored = start.max(*restored);
            is_newer
        });
    }
}

/// A request that may be the one trial of a server that kept failing.
pub(super) struct Trial<'a> {
    backend: &'a Backend,
    was_answered: bool,
}

impl Backend {
    /// Returns the client once it is ready, and starts the server if it is not there. The caller has the deadline.
    pub(super) async fn ready(
        self: &Arc<Self>,
        reason: StartReason,
    ) -> Result<(Client, Arc<ServerInfo>), Error> {
        loop {
            // A server that is being stopped has its limits, and may hold a resource that the next one needs.
            drop(self.stop_lock.lock().await);
            // Sessions that come at once begin at once, and each may want an instance of its own.
            let own = self.own.as_ref().filter(|_| !self.runs());
            let turn = match own {
                Some(own) => own.start_turns.take().await,
                None => None,
            };
            match self.start(reason) {
                StartDecision::Ask(client, start) => {
                    let ready = in_turn(turn, pin!(client.ready())).await;
                    let session = ready.inspect_err(|error| {
                        self.lists.doubt(error);
                        self.eras.note_failed_start();
                    })?;
                    self.eras.note_spoken(session.revision.era());
                    self.restored.until(start).await;
                    return Ok((*client, session));
                }
                StartDecision::Wait(until) => {
                    drop(turn);
                    sleep_until(until).await;
                }
                StartDecision::Refuse(rest) => return Err(self.connection().fenced_off(rest)),
                StartDecision::Full(taken) => return Err(verdicts::no_instance(self.name(), taken)),
                StartDecision::Closed => return Err(Error::Disposed),
            }
        }
    }

    /// Starts the server for somebody who wants it, unless it is there or may not be started.
    fn start(self: &Arc<Self>, reason: StartReason) -> StartDecision {
        let now = Instant::now();
        let mut connection = self.connection();
        if let Some(decision) = connection.existing() {
            return decision;
        }
        if self.own.is_some() && reason == StartReason::Listing {
            // An instance is asked for its lists while it is there. The lists are no reason to start it.
            return StartDecision::Closed;
        }
        if let Some(decision) = connection.postponed(now) {
            return decision;
        }
        let instance_permit =
            match self.own.as_ref().map(|own| own.instance_limit.take(own.owner.as_ref())).transpose() {
                Ok(instance_permit) => instance_permit,
                Err(taken) => return StartDecision::Full(taken),
            };
        if let Some(decision) = connection.refused(now) {
            return decision;
        }
        let is_legacy = self.lists.expect_legacy() || self.eras.greeting() == Era::Legacy;
        let client = Client::start_knowing(self.spec.clone(), is_legacy);
        if let Some(instance_permit) = instance_permit {
            let gone = client.gone();
            tokio::spawn(async move {
                gone.await;
                drop(instance_permit);
            });
        }
        let start = connection.begin(client.clone());
        if reason != StartReason::Listing {
            // The lists may differ from those of the last process.
            self.listener.lists_may_have_changed();
        }
        self.tend(&client, start, reason);
        StartDecision::Ask(Box::new(client), start)
    }

    /// Tends a client that was just started, until it has ended.
    fn tend(self: &Arc<Self>, client: &Client, start: u64, reason: StartReason) {
        let (opened, ended) = (client.opened(), client.ended());
        let backend = Arc::downgrade(self);
        tokio::spawn(async move {
            if opened.await {
                restore(&backend, start).await;
                if reason == StartReason::Watch
                    && let Some(backend) = backend.upgrade()
                {
                    // A session that watches asks nothing that would show how the server is.
                    backend.connection().abandon_trial();
                }
            }
            ended.await;
            if let Some(backend) = backend.upgrade() {
                backend.connection().ended(start);
            }
            stay_watched(&backend, start).await;
        });
    }

    /// Counts a request that begins now.
    pub(super) fn trial(&self) -> Trial<'_> {
        self.connection().request_begins();
        Trial { backend: self, was_answered: false }
    }
}

impl Trial<'_> {
    /// Notes the outcome of the request. Only an answer says that the server is well. The end of the server is counted where it is noticed.
    pub(super) fn ended(mut self, outcome: &Result<Box<RawValue>, Error>) {
        match outcome {
            Ok(_) | Err(Error::Server(_)) => {
                self.was_answered = true;
                self.backend.connection().answered();
            }
            Err(error) => self.backend.note(error),
        }
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        self.backend.connection().request_ends(self.was_answered);
    }
}

/// Tells a server what sessions had told its predecessor.
async fn restore(backend: &Weak<Backend>, start: u64) {
    let Some(backend) = backend.upgrade() else { return };
    let current = backend.connection().current();
    if let Some((client, _)) = current.filter(|(_, current)| *current == start) {
        let told = Arc::clone(&backend);
        let telling = tokio::spawn(async move {
            told.set_level().await;
            match told.is_further() {
                true => resource_watches::mirror(&told).await,
                false => told.watches.renew(told.name(), &client, start, told.request_timeout()).await,
            }
        });
        if timeout(RESTORE_PATIENCE, telling).await.is_err() {
            tracing::warn!(
                "`{}` is slow to take its log level and its subscriptions; requests do not wait for that",
                backend.name()
            );
        }
    }
    backend.restored.note(start);
}

/// Starts the server again that has ended after this start, while somebody wants to hear of its resources and nobody else starts it.
async fn stay_watched(backend: &Weak<Backend>, start: u64) {
    loop {
        let again = match backend.upgrade() {
            Some(backend) if backend.starts() == start && !backend.watches.is_empty() => {
                match backend.start(StartReason::Watch) {
                    StartDecision::Wait(until) => until,
                    StartDecision::Refuse(rest) => Instant::now() + rest,
                    StartDecision::Full(_) => Instant::now() + RETRY_MOST,
                    StartDecision::Ask(..) | StartDecision::Closed => return,
                }
            }
            _ => return,
        };
        sleep_until(again).await;
    }
}

/// Returns the way to the server as we start it, and the limits for admission.
pub(super) fn effective_spec(
    spec: &ClientSpec,
    listener: Arc<NotificationListener>,
    longest_call: Duration,
) -> (ClientSpec, Limits) {
    let mut spec = ClientSpec { listener, ..spec.clone() };
    let mut limits = spec.limits.clone();
    if matches!(spec.endpoint, Endpoint::Http(_)) {
        // More requests would wait where turns are not fair.
        limits.max_in_flight = limits.max_in_flight.min(REQUESTS);
        spec.limits.breaker_cooldown = limits.breaker_cooldown.min(REMOTE_COOLDOWN_MAX);
    }
    // Admission bounds the requests. Requests that were withdrawn just now, and our own, come on top.
    spec.limits.max_in_flight = limits.max_in_flight.saturating_mul(2).saturating_add(INTERNAL_REQUESTS);
    // The answer to a server's question in a call may take as long as that call.
    spec.limits.call_timeout = longest_call;
    (spec, limits)
}
