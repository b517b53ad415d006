//! The supervisor: one small process for each job, which outlives the process that accepted the job and sees it to its end.
//!
//! Theory of operation. The supervisor stands in the job's folder and needs nothing else. It takes the lock, writes down its identity, and
//! starts the work with null stdin and its outputs straight to files. Then it waits: for the end of the work, for a signal, for the job's
//! time to be over, for the logs to grow. When the work has ended, the supervisor also ends everything that the work left. It writes
//! `exit.json`, brings the end to the database, and starts the next job.
//!
//! ```text
//! lock ─ run.json ─ work spawned ─ (launch.json removed) ─ run.json with the work ─ exit.json ─ settled ─ next supervisor
//! ```
//!
//! Invariants
//!
//! - A job is run by the holder of its lock, and once: a supervisor that finds a `run.json` does not start the work.
//! - The supervisor keeps nothing of the job alive but its lock, and the work knows nothing of the supervisor.
//! - A disk without room ends no job: a write that fails is tried again, before the start, while the work runs, and at its end.
//! - Every step can be the last one. [`ShimStep`] names them, and each is a test that kills a real supervisor there.
//!
//! Above a supervisor is its [watcher](unhang_proc::watch): `watcher.rs` tells what happens if a supervisor is killed.

mod cap;
mod outcome;
mod watcher;

use std::{
    ffi::{CStr, OsStr, OsString},
    io,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use rustix::process::Signal;
use unhang_proc::{
    file_limit,
    identity::{Identity, ask_for_short_turns, ask_for_usual_turns, boot_id, set_process_name},
    inherited::ForeignDescriptors,
    lock::Lock,
    lookup,
    spawn::{Environment, Exit, Launch, Stream},
    surroundings::lifeline_above,
    tree::{self, ProcessTree, StopSignals, SweptTree, Tier},
    watch::{ForkSide, divide},
};

use self::{
    cap::Logs,
    outcome::{LEASE_OVER, Stopped},
};
use crate::{
    folder::{
        ARGUMENTS, CANCEL, DataFolder, EXIT, FileError, JobFolder, LAUNCH, LOCK, RECORD, RUN, STDERR, STDOUT,
        presence::AWAY_LIMIT,
    },
    id::JobId,
    judge::{JobFinding, judge},
    launch::LaunchOrders as Orders,
    limits,
    record::{EndReason, EndRecord, FORMAT, JobEnd, JobRecord, JobState, RunRecord},
    room::{MemoryGauge, ROOM_LOOK, with_room},
    settle::{settle, write_ending},
    shims::{self, ShimCommand},
    store::{JobAdmission, JobStore, ShimStarter, SqliteStore, StoreError},
    timestamp::JobTimestamp,
    wait::{WaitLimit, look_until, pause},
    work_lease::WatchedLease,
};

/// The time for which the lock is tried: other processes that look at the job hold it for moments.
const LOCK_LIMIT: Duration = Duration::from_secs(5);

/// The pause between two tries.
const LOCK_LOOK: Duration = Duration::from_millis(2);

/// The time that the work has run when `job.json` says so. Nobody reads the copy of a job of a moment, and each replacement takes room in
/// the queue of the disk, where submissions wait.
const COPY_AFTER: Duration = Duration::from_millis(100);

/// The name of a watcher in the process list.
const WATCHER: &CStr = c"mcp-job-watch";

/// The lock of the one supervisor that waits for room.
const QUEUE_LOCK: &str = "queue.lock";

/// The exit code if the arguments make no sense: only unhang itself is meant to call this.
const USAGE: u8 = 2;

/// The steps of a supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShimStep {
    /// The supervisor lives, and holds nothing.
    Alive,
    /// The supervisor has the lock.
    Locked,
    /// `run.json` says that the supervisor has the job.
    Begun,
    /// The work runs.
    Spawned,
    /// `run.json` says that the work runs.
    Told,
    /// The work has ended, and everything that it started.
    Ended,
    /// `exit.json` says how the work ended.
    Recorded,
    /// The database knows the end, and the next job has the slot.
    Settled,
    /// The next supervisor was started.
    HandedOver,
}

/// Runs a supervisor to its end if this program was started as one, as its first argument says; `None` otherwise. To be called before
/// anything else in `main`, while there is one thread.
pub fn run_if_asked(command: &ShimCommand) -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    let is_asked = words.next().is_some_and(|word| word == shims::ARGUMENT);
    is_asked.then(|| run_watched(command, words, &|_| {}))
}

/// Runs a supervisor to its end, with a [watcher](unhang_proc::watch) above it if the fork succeeds. `words` are those after the hidden
/// ones in `command`, which starts the next supervisor. `witness` is called at each step before the next one begins.
pub fn run_watched(
    command: &ShimCommand,
    words: impl Iterator<Item = OsString>,
    witness: &dyn Fn(ShimStep),
) -> ExitCode {
    let Some(shim) = Shim::begin(command, words, witness) else { return ExitCode::from(USAGE) };
    match divide(WATCHER) {
        Ok(ForkSide::Watcher(watched)) => shim.watch(watched),
        Ok(ForkSide::Copy) | Err(_) => shim.run(),
    }
}

/// Runs a supervisor to its end without a watcher: the caller sees what becomes of it.
pub fn run(
    command: &ShimCommand,
    words: impl Iterator<Item = OsString>,
    witness: &dyn Fn(ShimStep),
) -> ExitCode {
    Shim::begin(command, words, witness).map_or(ExitCode::from(USAGE), |shim| shim.run())
}

/// Opens the data folder, which is two above the job's.
fn data_folder(folder: &Path, id: JobId) -> io::Result<DataFolder> {
    let is_ours = folder.file_name() == Some(OsStr::new(id.as_str()));
    let root = folder.parent().and_then(Path::parent).filter(|_| is_ours);
    let root = root.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    DataFolder::open(root).map_err(io::Error::other)
}

struct Shim<'a> {
    data: DataFolder,
    folder: JobFolder,
    id: JobId,
    command: &'a ShimCommand,
    witness: &'a dyn Fn(ShimStep),
}

/// The news that the work runs, as far as it is not written down yet. The work goes on meanwhile, since ending it would lose it.
struct PendingRunRecord<'a> {
    /// The record; `None` once `run.json` has it.
    run: Option<&'a RunRecord>,
    record: &'a JobRecord,
    /// The time of the next write; `None` once all is written.
    again_at: Option<Duration>,
}

/// The reason why a supervisor had to give up; the state on the disk tells the rest.
type ShimError = Box<dyn std::error::Error>;

impl<'a> Shim<'a> {
    /// Prepares this process as a supervisor, and finds its job. Returns `None` if the words make no sense.
    fn begin(
        command: &'a ShimCommand,
        mut words: impl Iterator<Item = OsString>,
        witness: &'a dyn Fn(ShimStep),
    ) -> Option<Self> {
        file_limit::ignore_signal();
        // The starter of the server that started this process may wait for the end of a pipe that came along.
        ForeignDescriptors::find(&[]).close();
        let id = words.next().and_then(|word| word.to_str()?.parse().ok())?;
        if words.next().is_some() {
            return None;
        }
        let data = std::env::current_dir().and_then(|folder| data_folder(&folder, id)).ok()?;
        Some(Self { folder: data.job(id), data, id, command, witness })
    }

    fn run(&self) -> ExitCode {
        set_process_name(c"mcp-job");
        match self.live() {
            Ok(()) => ExitCode::SUCCESS,
            // The disk has everything that happened so far, and the next process that looks at the job goes on from there.
            Err(_) => ExitCode::FAILURE,
        }
    }

    fn live(&self) -> Result<(), ShimError> {
        (self.witness)(ShimStep::Alive);
        let Some(lock) = self.lock()? else { return Ok(()) };
        (self.witness)(ShimStep::Locked);
        let ending = match self.folder.read::<EndRecord>(EXIT)? {
            Some(ending) => ending,
            None if self.folder.has(RUN) => {
                drop(lock);
                return self.judge_predecessor();
            }
            None => self.see_to_the_end()?,
        };
        let ending = self.record(&ending)?;
        (self.witness)(ShimStep::Recorded);
        self.hand_over(&ending)
    }

    fn lock(&self) -> io::Result<Option<Lock>> {
        let path = self.folder.file(LOCK);
        look_until(WaitLimit::after(LOCK_LIMIT), LOCK_LOOK, || Lock::try_take(&path))
    }

    /// Runs the work, and returns how it ended.
    fn see_to_the_end(&self) -> Result<EndRecord, ShimError> {
        let orders = match self.read_orders() {
            Ok(orders) => orders,
            Err(error) => return Ok(failed_start(EndReason::RecordDamaged, &error)),
        };
        let mut run = RunRecord {
            format: FORMAT,
            boot_id: boot_id()?,
            shim: Identity::own().ok_or(io::ErrorKind::Unsupported).map_err(io::Error::from)?.into(),
            work: None,
            control_group: None,
            lifeline: lifeline_above().map(Into::into),
            started_at: JobTimestamp::now(),
        };
        // The signals are caught before anybody can read this process's identity: a process that wants the job to end signals it.
        let stops = StopSignals::listen(&[Signal::TERM, Signal::INT, Signal::HUP])?;
        // The record need not outlive a power failure: a job that had a slot before one is taken for begun anyway.
        let boot_id = run.boot_id.clone();
        let mut lease = WatchedLease::new(&self.folder, &boot_id, orders.lease.clone());
        if lease.is_over() {
            return Ok(EndRecord::without_run(JobEnd::Failed).because(EndReason::LeaseOver, LEASE_OVER));
        }
        let begin = || {
            let is_wanted = !self.folder.has(CANCEL);
            run.started_at = JobTimestamp::now();
            if is_wanted {
                self.folder.write_lightly(RUN, &run)?;
            }
            // The process that accepted the job may have been killed before, and a folder without record and orders is not a job's.
            if !self.folder.has(RECORD) {
                self.folder.write_if_missing(RECORD, &orders.record)?;
            }
            Ok(is_wanted)
        };
        if !with_room(begin)? {
            return Ok(EndRecord::without_run(JobEnd::Cancelled));
        }
        (self.witness)(ShimStep::Begun);
        let started_at = Some(run.started_at);
        let (tree, logs) = match self.start_work(&orders, stops) {
            Ok(started) => started,
            Err(error) => {
                return Ok(EndRecord { started_at, ..failed_start(EndReason::StartFailed, &error) });
            }
        };
        // The logs need short turns. Until here nobody waited for this process but the next job in the queue.
        ask_for_short_turns();
        (self.witness)(ShimStep::Spawned);
        run.work = Identity::of(tree.pid()).map(Into::into);
        run.control_group = tree.group().map(PathBuf::from);
        // The orders may hold secrets, and nobody needs them any more.
        let _ = std::fs::remove_file(self.folder.file(LAUNCH));
        let record = JobRecord { status: JobState::Running, started_at, ..orders.record };
        let mut untold = PendingRunRecord { run: Some(&run), record: &record, again_at: None };
        // If the disk has no room now, `hold` tells it later.
        let _ = self.tell(&mut untold);
        let (exit, stopped, swept) = self.hold(tree, logs, untold, lease);
        // The remaining work is like any other, and submitters go first.
        ask_for_usual_turns();
        (self.witness)(ShimStep::Ended);
        let ending = outcome::judge(&self.folder.work(record.format), &record, exit, stopped);
        Ok(EndRecord { started_at, leaked: swept.leaked, unkilled: swept.unkilled, ..ending })
    }

    fn read_orders(&self) -> Result<Orders, FileError> {
        let damaged = |detail: &str| FileError::damaged(&self.folder.file(LAUNCH), detail);
        let orders: Orders = self.folder.read(LAUNCH)?.ok_or_else(|| damaged("it is missing"))?;
        if orders.record.format.max(orders.format) > FORMAT {
            return Err(damaged("it was made by a newer unhang"));
        }
        if orders.record.format == FORMAT {
            return Ok(orders);
        }
        // An older unhang accepted the job, whose work had no folder of its own.
        self.folder.move_work()?;
        let own = self.folder.work(FORMAT);
        let record = JobRecord { format: FORMAT, ..orders.record.clone() };
        let orders = Orders { record, ..orders.with_own_folder(own.path()) };
        self.folder.write(LAUNCH, &orders)?;
        Ok(orders)
    }

    fn start_work(&self, orders: &Orders, stops: StopSignals) -> Result<(ProcessTree, Logs), ShimError> {
        let command = orders.command();
        let (name, arguments) = command.split_first().ok_or("the command is empty")?;
        let folder = orders.folder();
        let environment = Environment::Exactly(orders.environment());
        let program = lookup::executable(name, &environment, Some(&folder))?;
        let (stdout, stderr) = (self.folder.file(STDOUT), self.folder.file(STDERR));
        let logs = with_room(|| {
            let work = self.folder.work(orders.record.format);
            work.create_if_missing()?;
            if let Some(arguments) = &orders.arguments {
                work.restore(ARGUMENTS, arguments)?;
            }
            Logs::create(&stdout, &stderr, self.folder.path(), orders.record.log_limit)
        })?;
        let tree = ProcessTree::start(Tier::ControlGroup, stops, || {
            Ok(Launch {
                name: Some(name),
                environment: &environment,
                folder: Some(&folder),
                output: Stream::Descriptor(logs.stdout.descriptor()?),
                error: Stream::Descriptor(logs.stderr.descriptor()?),
                ..Launch::new(&program, arguments)
            })
        });
        let tree = tree.map_err(|error| format!("{} could not be started: {error}", program.display()))?;
        Ok((tree, logs))
    }

    /// Writes down that the work runs: first in `run.json`, by which jobs are judged, then in `job.json`.
    fn tell(&self, untold: &mut PendingRunRecord<'_>) -> Result<(), FileError> {
        let told = match untold.run {
            Some(run) => self.folder.write_lightly(RUN, run),
            None => self.folder.write_lightly(RECORD, untold.record),
        };
        untold.again_at = match (&told, untold.run) {
            (Err(_), _) => Some(tree::now() + ROOM_LOOK),
            (Ok(()), Some(_)) => Some(tree::now() + COPY_AFTER),
            (Ok(()), None) => None,
        };
        if told.is_ok() && untold.run.take().is_some() {
            (self.witness)(ShimStep::Told);
        }
        told
    }

    /// Returns whether the work is to end: because of a signal, or of the wish in the folder, since no signal comes from another container.
    fn is_unwanted(&self, tree: &ProcessTree) -> bool {
        tree.stop_asked() || self.folder.has(CANCEL)
    }

    /// Holds the work until it has ended, by itself or because it has to.
    fn hold(
        &self,
        mut tree: ProcessTree,
        mut logs: Logs,
        mut untold: PendingRunRecord<'_>,
        mut lease: WatchedLease<'_>,
    ) -> (Exit, Option<Stopped>, SweptTree) {
        let record = untold.record;
        let timeout = record.timeout();
        let deadline = timeout.map(|timeout| tree::now() + timeout);
        // The reason why the work has to end, and the time when it is killed.
        let mut stop: Option<(Stopped, Duration)> = None;
        let exit = loop {
            if let Some(exit) = tree.reap() {
                break Some(exit);
            }
            if lease.is_over() {
                stop.get_or_insert((Stopped::LeaseOver, tree::now()));
                break None;
            }
            let next = stop.map_or(deadline, |(_, kill_at)| Some(kill_at));
            let is_due = next.is_some_and(|next| tree::now() >= next);
            if is_due && stop.is_some() {
                break None;
            }
            let why = is_due
                .then_some(Stopped::Timeout)
                .or_else(|| self.is_unwanted(&tree).then_some(Stopped::Cancelled));
            if let Some(why) = why
                && stop.is_none()
            {
                stop = Some((why, tree::now() + record.stop_grace()));
                tree.terminate();
                continue;
            }
            if untold.again_at.is_some_and(|again_at| tree::now() >= again_at) {
                // A write that fails is tried again.
                let _ = self.tell(&mut untold);
            }
            let next =
                [next, untold.again_at].into_iter().flatten().map(|next| next.saturating_sub(tree::now()));
            // If a log cannot be kept short, the job goes on all the same: ending it would lose more.
            let _ = logs.wait(&tree, next.chain(lease.next_look()).min());
        };
        let swept = tree.sweep(tree::SWEEP_LIMIT);
        let exit = exit.or_else(|| tree.reap()).unwrap_or(Exit::Unknown);
        let _ = logs.check();
        (exit, stop.map(|(stopped, _)| stopped), swept)
    }

    /// Writes down how the job ended, which no other process knows.
    fn record(&self, ending: &EndRecord) -> Result<EndRecord, FileError> {
        let limit = WaitLimit::after(AWAY_LIMIT);
        loop {
            let written = with_room(|| write_ending(&self.data, self.id, ending));
            match written {
                // Somebody may have moved the data folder, and may move it back: now, or later if the end lies in the folder.
                Err(error) if self.is_away(&error) && !limit.is_over() => {
                    let _ = write_ending_here(ending);
                    pause(ROOM_LOOK);
                }
                written => return written,
            }
        }
    }

    /// Returns whether the data folder is not where it was.
    fn is_away(&self, error: &FileError) -> bool {
        error.kind() == Some(io::ErrorKind::NotFound) && self.data.is_away()
    }

    /// Judges a job that another supervisor has had, or whose files were replaced by other things, and starts the next jobs.
    fn judge_predecessor(&self) -> Result<(), ShimError> {
        let (mut store, _) = SqliteStore::open(&self.data)?;
        let starter = shims::this_process()?;
        let admission = self.admission(&mut store, &starter)?;
        let JobFinding::Settled(settled) = self.look_at(&mut store, self.id, &admission)? else {
            return Ok(());
        };
        self.start(&mut store, settled.admitted, &admission);
        self.wait_with_the_queue(&mut store, &admission)
    }

    fn admission<'s>(
        &self,
        store: &mut SqliteStore,
        starter: &'s ShimStarter,
    ) -> Result<JobAdmission<'s>, StoreError> {
        let limit = limits::of_all(&self.data).max_concurrent;
        Ok(JobAdmission { starter, limit, is_open: self.is_open(store)? })
    }

    /// Brings the end to the database, and starts the next jobs.
    fn hand_over(&self, ending: &EndRecord) -> Result<(), ShimError> {
        let (mut store, _) = SqliteStore::open(&self.data)?;
        let starter = shims::this_process()?;
        let admission = self.admission(&mut store, &starter)?;
        // From here on other processes may wait for this one.
        ask_for_short_turns();
        let settled = settle(&self.data, &mut store, self.id, ending, &admission)?;
        (self.witness)(ShimStep::Settled);
        self.start(&mut store, settled.admitted, &admission);
        (self.witness)(ShimStep::HandedOver);
        self.wait_with_the_queue(&mut store, &admission)
    }

    /// Returns whether the next job may start now, if there is one.
    fn is_open(&self, store: &mut SqliteStore) -> Result<bool, StoreError> {
        let next = store.next_rules()?;
        Ok(next.is_none_or(|rules| rules.lack(&self.data, &MemoryGauge::default()).is_none()))
    }

    /// Waits for room if the queue has to and no other supervisor does so.
    fn wait_with_the_queue(
        &self,
        store: &mut SqliteStore,
        admission: &JobAdmission<'_>,
    ) -> Result<(), ShimError> {
        if admission.is_open {
            return Ok(());
        }
        let Some(_queue) = Lock::try_take(&self.data.path().join(QUEUE_LOCK))? else { return Ok(()) };
        while !self.is_open(store)? {
            pause(ROOM_LOOK);
        }
        let admission = JobAdmission { is_open: true, ..*admission };
        let admitted = store.admit(&admission)?;
        self.start(store, admitted, &admission);
        Ok(())
    }

    /// Starts the supervisors of jobs that have a slot. A job without a folder is settled, and its slot goes to the next job: no other
    /// process may come by for long.
    fn start(&self, store: &mut SqliteStore, mut admitted: Vec<JobId>, admission: &JobAdmission<'_>) {
        while let Some(id) = admitted.pop() {
            let folder = self.data.job(id);
            let is_usable = folder.is_there() && !folder.is_something_else();
            if is_usable && shims::start(self.command, &self.data, id).is_ok() {
                continue;
            }
            // If the job cannot be judged, the next process that looks at the jobs sees that no supervisor has it, and tries again.
            if let Ok(JobFinding::Settled(settled)) = self.look_at(store, id, admission) {
                admitted.extend(settled.admitted);
            }
        }
    }

    /// Judges a job that has a slot, as any other process would.
    fn look_at(
        &self,
        store: &mut SqliteStore,
        id: JobId,
        admission: &JobAdmission<'_>,
    ) -> Result<JobFinding, StoreError> {
        match store.get(id)? {
            Some(job) if job.is_active => judge(&self.data, store, &job, admission),
            _ => Ok(JobFinding::Alive),
        }
    }
}

/// Writes the end of the job into the current folder, which is the job's folder wherever it was moved.
fn write_ending_here(ending: &EndRecord) -> Result<(), FileError> {
    let here = JobFolder::at(Path::new("."));
    if here.has(EXIT) { Ok(()) } else { here.write(EXIT, ending) }
}

fn failed_start(reason: EndReason, error: &dyn std::fmt::Display) -> EndRecord {
    EndRecord::without_run(JobEnd::Failed).because(reason, error.to_string())
}
