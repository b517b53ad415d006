//! The thread that keeps an engine's memory and its jobs up to date.
//!
//! Invariants
//!
//! - A change by another process is known here within [`ROUND`], or sooner if the system tells of writes to the database. An engine that
//!   rests knows within [`ROUND`] what concerns the calls that it holds, and everything else within [`REST`].
//! - A failure of one round is logged and does not end the thread: the next round may find the disk well again.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use unhang_proc::{
    file_events::{AwaitedChange, FileEvents, WakeEvent},
    give_back_code,
    spawn::reap_departed,
    tree::now,
};

use super::{
    EngineState,
    call_events::{CallEvents, WatchedFolders},
    prune_schedule::PruneSchedule,
};
use crate::{
    error::JobError,
    folder::{FileError, RUN, STDOUT},
    id::JobId,
    judge::{JobFinding, judge},
    log::tail,
    progress::JobProgress,
    record::{JobState, RunRecord},
    store::{JobRow, SqliteStore, restore_files},
    wait::pause,
};

/// The longest time between two looks at everything (design 7).
pub(super) const ROUND: Duration = Duration::from_millis(250);

/// The same for an engine that rests: its calls are the only thing that it has to know of at once.
const REST: Duration = Duration::from_secs(30);

/// The time without an event after which an engine that rests needs no code of what has happened.
const SETTLED: Duration = Duration::from_secs(1);

/// The shortest time between two looks, however often the database is written. Several servers that all look at every write of each other
/// have little time for anything else.
const BREATH: Duration = Duration::from_millis(10);

/// The time between two looks of those who wait for a job in the store of many machines.
const STORE_LOOK: Duration = Duration::from_secs(1);

/// The number of removals while no state of the database is known.
const NEVER: i64 = -1;

/// The number of bytes at the end of a job's stdout in which its progress is looked for.
const WINDOW: usize = 64 << 10;

/// The handle that stops the thread when it is dropped.
#[derive(Debug)]
pub(super) struct MaintenanceThread {
    stop: Arc<WakeEvent>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for MaintenanceThread {
    fn drop(&mut self) {
        self.ask_to_stop();
    }
}

impl MaintenanceThread {
    /// Brings everything up to date once, and then keeps it so on a thread.
    pub(super) fn start(inner: &Arc<EngineState>, store: SqliteStore) -> Result<Self, JobError> {
        let failed = |error: std::io::Error| FileError::system("cannot watch", inner.data.path(), error);
        let stop = Arc::new(WakeEvent::new().map_err(failed)?);
        let mut rounds = MaintenanceRounds::new(inner.clone(), store);
        rounds.round()?;
        let stopped = stop.clone();
        let thread = thread::Builder::new()
            .name("jobs-maintain".into())
            .spawn(move || rounds.run(&stopped))
            .map_err(failed)?;
        Ok(Self { stop, thread: Mutex::new(Some(thread)) })
    }

    fn ask_to_stop(&self) {
        self.stop.wake();
    }

    /// Lets the thread finish its round, and waits for that.
    pub(super) fn finish(&self) {
        self.ask_to_stop();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic in the thread has been logged.
            let _ = thread.join();
        }
    }
}

/// Returns a source that tells when the database is written; `None` if the system has none, or the engine rests. Then only the
/// rounds find changes.
fn watch_writes(inner: &EngineState) -> Option<FileEvents> {
    if inner.calls.events().is_some() {
        return None;
    }
    let writes = FileEvents::new().ok()?;
    writes.watch(&inner.data.path().join("unhang.db-wal"), AwaitedChange::Writes).ok()?;
    Some(writes)
}

/// The reason why a wait of the thread has ended.
struct Wakeup {
    /// The engine has gone.
    is_stopped: bool,
    /// The system has told of something.
    is_told: bool,
}

struct MaintenanceRounds {
    inner: Arc<EngineState>,
    store: SqliteStore,
    writes: Option<FileEvents>,
    /// The number of the database that `revision` and `removals` belong to.
    replaced: u64,
    /// The last revision of the database that is known.
    revision: i64,
    removals: i64,
    /// The bytes of stdout at the last look, by job.
    lengths: HashMap<JobId, u64>,
    looked_at: Option<Duration>,
    /// The time of the last news to those who wait for a job in the store of many machines.
    told_at: Option<Duration>,
    watched: WatchedFolders,
    /// The time between two rounds of an engine that rests.
    pace: Duration,
    /// The beginning of the last round.
    round_began_at: Duration,
    prune_schedule: PruneSchedule,
    last_error: Option<String>,
}

impl MaintenanceRounds {
    fn new(inner: Arc<EngineState>, store: SqliteStore) -> Self {
        Self {
            writes: watch_writes(&inner),
            replaced: store.replaced(),
            store,
            revision: 0,
            removals: NEVER,
            lengths: HashMap::new(),
            looked_at: None,
            told_at: None,
            watched: WatchedFolders::default(),
            pace: ROUND,
            round_began_at: now(),
            prune_schedule: PruneSchedule::default(),
            last_error: None,
            inner,
        }
    }

    fn run(mut self, stop: &WakeEvent) {
        // Jobs that are due at the opening are removed even by a process that ends soon (F-06).
        let mut done = self.prune_schedule.round(&self.inner, &mut self.store);
        loop {
            match done {
                Ok(()) => self.last_error = None,
                Err(error) => {
                    let text = error.to_string();
                    if self.last_error.as_ref() != Some(&text) {
                        tracing::warn!("unhang cannot supervise the jobs: {text}");
                    }
                    self.last_error = Some(text);
                }
            }
            if self.wait(stop) {
                return;
            }
            done = self.after_wait();
        }
    }

    /// Does what is to be done after a wait. Between two rounds, an engine that rests looks after the calls that it holds alone.
    fn after_wait(&mut self) -> Result<(), JobError> {
        let inner = Arc::clone(&self.inner);
        if let Some(events) = inner.calls.events() {
            let (is_complete, have_let_go) = (self.watched.look(&inner, events), inner.calls.have_let_go());
            self.pace = if is_complete && !have_let_go { REST } else { ROUND };
            if !have_let_go && !self.until_next_round().is_zero() {
                return Ok(());
            }
        }
        self.round_began_at = now();
        self.round().and_then(|()| self.prune_schedule.round(&self.inner, &mut self.store))
    }

    /// Returns the time until the next round of an engine that rests.
    fn until_next_round(&self) -> Duration {
        self.pace.saturating_sub(now().saturating_sub(self.round_began_at))
    }

    /// Waits for a reason to look. Returns true if the engine has gone.
    fn wait(&self, stop: &WakeEvent) -> bool {
        pause(BREATH);
        if self.inner.calls.events().is_none() {
            return self.poll(stop, ROUND, || {}).is_stopped;
        }
        let wakeup = self.poll(stop, self.until_next_round().min(SETTLED), || {});
        if wakeup.is_stopped || wakeup.is_told || self.until_next_round().is_zero() {
            return wakeup.is_stopped;
        }
        // Nothing has happened for a while. Until the next event, this process needs little of its code.
        self.poll(stop, self.until_next_round(), give_back_code).is_stopped
    }

    /// Waits for an event, and returns what woke the thread up. Calls `last` as the last thing before the wait.
    fn poll(&self, stop: &WakeEvent, limit: Duration, last: impl FnOnce()) -> Wakeup {
        let events = self.inner.calls.events();
        let mut polled = vec![PollFd::new(stop, PollFlags::IN)];
        polled.extend(self.writes.as_ref().map(|writes| PollFd::new(writes, PollFlags::IN)));
        let descriptors = events.map(CallEvents::descriptors);
        let descriptors = descriptors.as_ref().into_iter().flatten();
        polled.extend(descriptors.map(|event| PollFd::new(event, PollFlags::IN)));
        let limit = Timespec::try_from(limit).ok();
        last();
        // An interrupted wait is a short one.
        let _ = poll(&mut polled, limit.as_ref());
        let is_ready = |one: &PollFd<'_>| !one.revents().is_empty();
        let wakeup = Wakeup { is_stopped: is_ready(&polled[0]), is_told: polled.iter().any(is_ready) };
        if let Some(writes) = &self.writes {
            writes.clear();
        }
        if let Some(events) = events {
            events.clear();
        }
        wakeup
    }

    fn round(&mut self) -> Result<(), JobError> {
        if self.inner.presence.look(&self.inner.data) {
            // Tasks that wait for a job in the missing folder would never be woken up otherwise.
            self.inner.memory.changed();
        }
        self.inner.clone().settle_let_go(&mut self.store)?;
        self.follow()?;
        let now = now();
        if self.inner.shared.is_some() && self.told_at.is_none_or(|at| now.saturating_sub(at) >= STORE_LOOK) {
            // The store of many machines announces no changes, so each waiting task asks it once a second.
            self.told_at = Some(now);
            self.inner.memory.changed();
        }
        if self.looked_at.is_none_or(|at| now.saturating_sub(at) >= ROUND) {
            self.looked_at = Some(now);
            self.look()?;
            reap_departed();
        }
        self.fill()?;
        Ok(())
    }

    /// Takes in the changes of the database.
    fn follow(&mut self) -> Result<(), JobError> {
        let (revision, removals) = self.store.counters()?;
        if self.replaced != self.store.replaced() {
            let database = self.inner.data.database();
            tracing::warn!(
                "the database {} was replaced; unhang continues with the new one",
                database.display()
            );
            self.replaced = self.store.replaced();
            self.writes = watch_writes(&self.inner);
            self.removals = NEVER;
        }
        let memory = &self.inner.memory;
        if self.removals == NEVER {
            memory.begin_anew(self.store.open_jobs()?);
        } else if revision != self.revision {
            memory.update(self.store.changed_since(self.revision)?);
        }
        if removals != self.removals {
            // Removed jobs are not in the list of changes.
            let known = memory.known();
            memory.forget(&self.store.missing(&known)?);
            self.removals = removals;
        }
        self.revision = revision;
        Ok(())
    }

    /// Looks after every active job.
    fn look(&mut self) -> Result<(), JobError> {
        let active = self.inner.memory.active();
        self.lengths.retain(|id, _| active.contains(id));
        for id in active {
            let looked = self.look_at(id);
            self.inner.tell_trouble(id, looked)?;
        }
        Ok(())
    }

    /// Looks after a job: tells the holder of a call in this process of a wish in the folder, and settles a job that no process has.
    fn look_at(&mut self, id: JobId) -> Result<(), JobError> {
        if self.inner.calls.holds(id) {
            self.inner.pass_wish_on(id);
            return Ok(());
        }
        let Some(job) = self.inner.memory.active_row(id) else { return Ok(()) };
        let is_call = job.record.call.is_some();
        // The judge handles anything that is not a lock.
        let is_locked = !is_call && self.inner.data.job(id).is_locked();
        if is_call || is_locked {
            self.observe(&job);
        }
        if is_locked { Ok(()) } else { self.judge(&job) }
    }

    fn observe(&mut self, job: &JobRow) {
        let id = job.record.job_id;
        let folder = self.inner.data.job(id);
        // The supervisor may be writing the record for the first time.
        let run: Option<RunRecord> = folder.read(RUN).ok().flatten();
        let log = folder.file(STDOUT);
        let length = log.metadata().map_or(0, |metadata| metadata.len());
        let earlier = self.inner.memory.status(id).and_then(|status| status.progress);
        let progress = match self.lengths.insert(id, length) {
            Some(known) if known == length => earlier,
            _ => tail(&log, WINDOW).ok().and_then(|text| JobProgress::last(text.as_bytes())).or(earlier),
        };
        // The work may begin after the record was read, and its progress proves that it runs.
        let has_begun = run.as_ref().is_some_and(|run| run.work.is_some()) || progress.is_some();
        let state =
            if has_begun || job.record.call.is_some() { JobState::Running } else { JobState::Starting };
        self.inner.memory.observe(id, state, run.map(|run| run.started_at), progress);
    }

    fn judge(&mut self, job: &JobRow) -> Result<(), JobError> {
        match judge(&self.inner.data, &mut self.store, job, &self.inner.admission())? {
            JobFinding::Alive => {}
            JobFinding::StartIt => self.inner.start_shims(&[job.record.job_id]),
            JobFinding::Settled(settled) => {
                self.follow()?;
                self.inner.start_shims(&settled.admitted);
            }
        }
        Ok(())
    }

    /// Writes the files of queued jobs anew after a boot. Returns the error that concerns all of them.
    fn restore_files(&mut self) -> Option<String> {
        match restore_files(&mut self.store, &self.inner.starter.boot_id) {
            Ok(restored) => {
                for (id, trouble) in restored {
                    self.inner.note_trouble(id, trouble);
                }
                None
            }
            Err(error) => Some(error.to_string()),
        }
    }

    /// Starts waiting jobs if a slot is free.
    fn fill(&mut self) -> Result<(), JobError> {
        let inner = self.inner.clone();
        if !inner.memory.has_queued() {
            return Ok(());
        }
        // The process that accepted the next job may have stricter rules than this one.
        let next = self.store.next_rules()?;
        let rules = next.map_or(inner.options.rules, |next| inner.options.rules.stricter(next));
        let lack = rules.lack(&inner.data, &inner.gauge).map(|lack| lack.to_string());
        let reason = lack.or_else(|| self.restore_files());
        inner.memory.set_wait_reason(reason.clone());
        let active = inner.memory.with_slot().len();
        let active = u32::try_from(active).unwrap_or(u32::MAX);
        // Without a limit of this process the transaction decides.
        let is_free = inner.own_limit().is_none_or(|limit| active < limit);
        if reason.is_none() && is_free {
            let admitted = self.store.admit(&inner.admission())?;
            self.follow()?;
            inner.start_shims(&admitted);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::write;

    use super::*;
    use crate::{engine::tests::TestEngine, store::JobStore as _, testing::command};

    #[test]
    fn a_job_that_tells_progress_runs_although_its_record_names_no_work_yet() {
        let mut test = TestEngine::new(|_| {});
        let id = test.accept(&command());
        assert_eq!(test.store.claim(&test.inner.starter, None).unwrap(), Some(id));
        let mut rounds = MaintenanceRounds::new(Arc::new(test.inner), test.store);
        rounds.follow().unwrap();
        let job = rounds.inner.memory.active_row(id).unwrap();
        let mut state_with = |log: &str| {
            write(rounds.inner.data.job(id).file(STDOUT), log).unwrap();
            rounds.observe(&job);
            rounds.inner.memory.status(id).unwrap().record.status
        };
        assert_eq!(state_with("loading\n"), JobState::Starting);
        assert_eq!(state_with("loading\nprogress: 25%\n"), JobState::Running);
    }
}
