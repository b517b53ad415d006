//! Several instances of one server that all sessions share: which of them gets the next request, and when another one starts.
//!
//! ```text
//! Dispatch ─ InstancePool::take ─┬ the first instance      the backend itself: it gives the lists, and hears of watched resources
//!                                └ a further instance      a Backend of the same server, with the lists of the first
//! ```
//!
//! # Theory of operation
//!
//! A server that works on one call at a time lets all other requests wait in its pipe, and nobody can take them out again. So each instance
//! gets one request at a time, and the others wait here. A request takes an instance that runs and has no request. If there is none, it
//! waits until the requests of all running instances are older than `busy-after`. Then it starts another instance, and takes the first one
//! that becomes free.
//!
//! The caller of a request may stop waiting while the server works on it. Nothing says when the server has ended that work. So its
//! instance is asked for a sign of life, and counts as busy until there is one.
//!
//! # Invariants
//!
//! - An instance has one request of clients at a time, from the moment it is taken until the server has answered, shows that it can, or has
//!   ended.
//! - A further instance that cannot be started costs nobody an error: requests wait for the others.
//! - The further instances end with the first.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::Notify,
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use super::{
    backend::Backend,
    gateway_core::GatewayCore,
    lifecycle::StartReason,
    permits::{Permit, PermitQueue, QueueFull},
    resource_watches::UpdateMerger,
};
use unhang_core::{
    fair::{Bounds, FairnessKey},
    limits::Limits,
    units::in_words,
};
use unhang_upstream::client::{Client, RequestOptions};

/// How long a sign of life may take. A server that answers calls side by side gives it at once.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);
/// The pauses between two questions for one. They are longer than the wait for it, so the server counts as idle in between, and the check
/// of idle servers goes on.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The instances of one server that all sessions share, of one era.
pub(super) struct InstancePool {
    busy_after: Duration,
    /// Requests that wait for an instance, apart from those that look for one: as many of these as there are instances.
    queue: Arc<PermitQueue>,
    state: Mutex<PoolState>,
    /// Rung when an instance may have become free.
    changed: Notify,
    /// Tells once of a change that several instances report.
    pub(super) updates: Arc<UpdateMerger>,
}

struct PoolState {
    /// The first slot is that of the first instance.
    slots: Vec<InstanceSlot>,
    /// Requests that look for an instance.
    looking: usize,
    is_closed: bool,
}

/// The place of one instance.
#[derive(Default)]
struct InstanceSlot {
    /// Present if a further instance was started here. It stays for the next start.
    further: Option<FurtherInstance>,
    /// Since when the instance has a request.
    busy_since: Option<Instant>,
    is_starting: bool,
    /// A start failed, and the next one is not tried before this.
    not_before: Option<Instant>,
}

struct FurtherInstance {
    backend: Arc<Backend>,
    /// The task that stops the instance when nobody wants it.
    tasks: JoinSet<()>,
}

/// The state of one instance, for the choice.
#[derive(Clone, Copy, Debug, Default)]
struct InstancePhase {
    runs: bool,
    busy_since: Option<Instant>,
    is_starting: bool,
    not_before: Option<Instant>,
}

/// What a request that looks for an instance does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextInstance {
    Take(usize),
    Start(usize),
    /// Look again when something changes, or at this time.
    Wait(Option<Instant>),
}

/// An instance that a request has for itself, until this is dropped and the server can take another request.
pub(super) struct InstanceTurn {
    first: Arc<Backend>,
    slot: usize,
    pub(super) backend: Arc<Backend>,
    /// The client that has the request and has not answered.
    asked: Option<Client>,
    _permit: Permit,
}

/// Counts a request that looks for an instance.
struct LookingRequest<'a>(&'a InstancePool);

impl InstancePool {
    /// Makes the pool of at most so many instances, or `None` if there is only one.
    pub(super) fn new(instances: usize, limits: &Limits) -> Option<Self> {
        if instances < 2 {
            return None;
        }
        let mut slots = Vec::new();
        slots.resize_with(instances, InstanceSlot::default);
        Some(Self {
            busy_after: limits.busy_after,
            queue: PermitQueue::new(Bounds { permits: instances, room: limits.max_waiting }),
            state: Mutex::new(PoolState { slots, looking: 0, is_closed: false }),
            changed: Notify::new(),
            updates: Arc::default(),
        })
    }

    /// Returns the most instances.
    pub(super) fn most(&self) -> usize {
        self.queue.bounds().permits
    }

    /// Returns how many requests wait for an instance.
    pub(super) fn waiting(&self) -> usize {
        self.queue.waiting() + self.state().looking
    }

    /// Returns the further instances that there have been. Some of them may not run.
    pub(super) fn further(&self) -> Vec<Arc<Backend>> {
        let state = self.state();
        let further = state.slots.iter().filter_map(|slot| slot.further.as_ref());
        further.map(|further| Arc::clone(&further.backend)).collect()
    }

    /// Lets no further instance come any more. Returns those that there have been.
    pub(super) fn close(&self) -> Vec<Arc<Backend>> {
        let mut state = self.state();
        state.is_closed = true;
        for further in state.slots.iter_mut().filter_map(|slot| slot.further.as_mut()) {
            further.tasks = JoinSet::new();
        }
        drop(state);
        self.further()
    }

    /// Waits for an instance that has no request, and starts one if all that run are busy for long. `first` is the backend whose pool this
    /// is. Cancel-safe.
    ///
    /// # Errors
    /// Fails with [`QueueFull`] if there is no room to wait.
    pub(super) async fn take(
        &self,
        first: &Arc<Backend>,
        core: &Arc<GatewayCore>,
        fairness_key: &FairnessKey,
    ) -> Result<InstanceTurn, QueueFull> {
        let permit = self.queue.take(fairness_key).await?;
        let _looking = LookingRequest::new(self);
        loop {
            // Before the look, so that no change is missed.
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            match self.next(first) {
                (NextInstance::Take(slot), backend) => {
                    return Ok(InstanceTurn {
                        first: Arc::clone(first),
                        slot,
                        backend,
                        asked: None,
                        _permit: permit,
                    });
                }
                (NextInstance::Start(slot), _) => {
                    self.start(first, core, slot);
                    changed.await;
                }
                (NextInstance::Wait(None), _) => changed.await,
                (NextInstance::Wait(Some(until)), _) => tokio::select! {
                    () = changed => {}
                    () = sleep_until(until) => {}
                },
            }
        }
    }

    /// Decides what a request does next. An instance that it takes has the request from now on.
    fn next(&self, first: &Arc<Backend>) -> (NextInstance, Arc<Backend>) {
        let now = Instant::now();
        let backends: Vec<Option<Arc<Backend>>> = {
            let state = self.state();
            let further =
                |slot: &InstanceSlot| slot.further.as_ref().map(|further| Arc::clone(&further.backend));
            state.slots.iter().map(further).collect()
        };
        let of = |slot: usize| match slot {
            0 => Some(Arc::clone(first)),
            slot => backends[slot].clone(),
        };
        // Connections are looked at without the lock.
        let run: Vec<bool> =
            (0..backends.len()).map(|slot| of(slot).is_some_and(|backend| backend.runs())).collect();
        let mut state = self.state();
        let phases = state.slots.iter().zip(run).map(|(slot, runs)| InstancePhase {
            runs,
            busy_since: slot.busy_since,
            is_starting: slot.is_starting,
            not_before: slot.not_before,
        });
        let phases: Vec<InstancePhase> = phases.collect();
        let next = match state.is_closed {
            // The first instance says that the server has ended.
            true => NextInstance::Take(0),
            false => next_instance(&phases, state.looking, self.busy_after, now),
        };
        let mut backend = Arc::clone(first);
        match next {
            NextInstance::Take(slot) => {
                state.slots[slot].busy_since = Some(now);
                backend = of(slot).unwrap_or(backend);
            }
            NextInstance::Start(slot) => state.slots[slot].is_starting = true,
            NextInstance::Wait(_) => {}
        }
        (next, backend)
    }

    /// Starts the instance of this slot, in a task that goes on if the request does not wait for it.
    fn start(&self, first: &Arc<Backend>, core: &Arc<GatewayCore>, slot: usize) {
        let backend = match slot {
            0 => Arc::clone(first),
            slot => {
                let mut state = self.state();
                if state.is_closed {
                    // It was closed a moment ago.
                    state.slots[slot].is_starting = false;
                    self.changed.notify_waiters();
                    return;
                }
                let further = &mut state.slots[slot].further;
                Arc::clone(
                    &further.get_or_insert_with(|| FurtherInstance::new(first, core, slot + 1)).backend,
                )
            }
        };
        tracing::info!(
            "{} starts: a call has kept each running instance for longer than {}",
            backend.title(),
            in_words(self.busy_after)
        );
        let first = Arc::clone(first);
        tokio::spawn(async move {
            let _use = backend.used();
            let failed = backend.ready(StartReason::Request).await.err();
            if let Some(error) = &failed {
                backend.note(error);
                tracing::warn!(
                    "{} cannot be started, so requests wait for the others: {error}",
                    backend.title()
                );
            }
            let Some(pool) = &first.instances else { return };
            let not_before = failed.map(|_| Instant::now() + backend.spec.limits.breaker_cooldown);
            {
                let mut state = pool.state();
                state.slots[slot].is_starting = false;
                state.slots[slot].not_before = not_before;
            }
            pool.changed.notify_waiters();
        });
    }

    /// Notes that the instance of this slot can take the next request.
    fn free(&self, slot: usize) {
        self.state().slots[slot].busy_since = None;
        self.changed.notify_waiters();
    }

    /// Locks the state. The caller must not take the lock of a connection meanwhile, nor hold this one over a wait.
    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Chooses what a request does next that looks for one of these instances. `looking` requests do so, this one among them.
fn next_instance(
    phases: &[InstancePhase],
    looking: usize,
    busy_after: Duration,
    now: Instant,
) -> NextInstance {
    let is_free = |phase: &InstancePhase| phase.busy_since.is_none() && !phase.is_starting;
    if let Some(slot) = phases.iter().position(|phase| is_free(phase) && phase.runs) {
        return NextInstance::Take(slot);
    }
    if phases.iter().all(is_free) {
        // The request finds out for itself why the server is not there.
        return NextInstance::Take(0);
    }
    let starting = phases.iter().filter(|phase| phase.is_starting).count();
    if starting >= looking {
        return NextInstance::Wait(None);
    }
    let newest = phases.iter().filter_map(|phase| phase.busy_since).max();
    if let Some(due) = newest.map(|newest| newest + busy_after).filter(|due| *due > now) {
        return NextInstance::Wait(Some(due));
    }
    let may_start = |phase: &InstancePhase| phase.not_before.is_none_or(|not_before| not_before <= now);
    match phases.iter().position(|phase| is_free(phase) && may_start(phase)) {
        Some(slot) => NextInstance::Start(slot),
        None => {
            let rests = phases.iter().filter(|phase| is_free(phase));
            NextInstance::Wait(rests.filter_map(|phase| phase.not_before).min())
        }
    }
}

impl FurtherInstance {
    fn new(first: &Arc<Backend>, core: &Arc<GatewayCore>, number: usize) -> Self {
        let backend = Arc::new(Backend::further_of(first, number, core.updates.clone()));
        if let Some(level) = first.level.get() {
            backend.level.lower_to(level);
        }
        let mut tasks = JoinSet::new();
        if let Some(idle) = backend.idle_timeout() {
            tasks.spawn(Arc::clone(&backend).rest_after(idle));
        }
        Self { backend, tasks }
    }
}

impl InstanceTurn {
    /// Notes that this client of the instance gets the request now.
    pub(super) fn asks(&mut self, client: &Client) {
        self.asked = Some(client.clone());
    }

    /// Notes that the server has answered.
    pub(super) fn answered(&mut self) {
        self.asked = None;
    }
}

impl Drop for InstanceTurn {
    fn drop(&mut self) {
        let Some(pool) = &self.first.instances else { return };
        let unanswered = self.asked.take().filter(Client::is_usable).zip(Handle::try_current().ok());
        let Some((client, runtime)) = unanswered else { return pool.free(self.slot) };
        let (first, slot) = (Arc::downgrade(&self.first), self.slot);
        runtime.spawn(async move {
            until_alive(&client, &first).await;
            if let Some(pool) = first.upgrade().as_deref().and_then(|first| first.instances.as_ref()) {
                pool.free(slot);
            }
        });
    }
}

/// Waits until the server shows that it can take a request, or has ended.
async fn until_alive(client: &Client, first: &Weak<Backend>) {
    let mut pause = FIRST_PAUSE;
    let options = RequestOptions { timeout: Some(SIGN_OF_LIFE), ..RequestOptions::default() };
    while client.is_usable() && first.strong_count() > 0 {
        if client.ping(&options).await.is_ok() {
            return;
        }
        tokio::select! {
            () = sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
            () = client.ended() => return,
        }
    }
}

impl<'a> LookingRequest<'a> {
    fn new(pool: &'a InstancePool) -> Self {
        pool.state().looking += 1;
        Self(pool)
    }
}

impl Drop for LookingRequest<'_> {
    fn drop(&mut self) {
        self.0.state().looking -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY_AFTER: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_request_takes_who_is_free_and_starts_another_when_all_are_busy_for_long() {
        let begun = Instant::now();
        let now = begun + Duration::from_secs(100);
        let free = InstancePhase { runs: true, ..InstancePhase::default() };
        let rests = InstancePhase::default();
        let busy = |millis| InstancePhase { busy_since: Some(now - Duration::from_millis(millis)), ..free };
        let starts = InstancePhase { is_starting: true, ..free };
        let failed = InstancePhase { not_before: Some(now + BUSY_AFTER), ..rests };
        let tried = InstancePhase { not_before: Some(now), ..rests };
        let due = |millis| Some(now + Duration::from_millis(millis));
        use NextInstance::{Start, Take, Wait};
        for (phases, looking, expect) in [
            (&[free, rests][..], 1, Take(0)),
            (&[rests, rests], 1, Take(0)),
            (&[failed, failed], 1, Take(0)),
            (&[busy(1), free], 1, Take(1)),
            (&[rests, free], 1, Take(1)),
            (&[busy(400), rests], 1, Wait(due(600))),
            (&[busy(1000), rests], 1, Start(1)),
            // The youngest call decides: its instance may be free in a moment.
            (&[busy(9000), busy(400), rests], 1, Wait(due(600))),
            (&[busy(9000), busy(1000), rests], 1, Start(2)),
            (&[busy(9000), busy(9000)], 1, Wait(None)),
            (&[rests, busy(9000)], 1, Start(0)),
            (&[busy(9000), starts, rests], 1, Wait(None)),
            (&[busy(9000), starts, rests], 2, Start(2)),
            (&[busy(9000), failed], 1, Wait(failed.not_before)),
            (&[busy(9000), failed, rests], 1, Start(2)),
            (&[busy(9000), tried], 1, Start(1)),
        ] {
            assert_eq!(next_instance(phases, looking, BUSY_AFTER, now), expect, "{phases:?} {looking}");
        }
    }
}
