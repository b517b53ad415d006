//! The shim: one small process for each job, which outlives whoever accepted the job and sees it to its end.
//!
//! Theory of operation. It stands in the job's folder and needs nothing else. It takes the lock, writes down who it is, starts
//! the work with null stdin and its outputs straight to files, and waits: for the end of the work, for a signal, for the job's
//! time to be over, for the logs to grow. When the work has ended, everything that it left is ended too, `exit.json` is
//! written, the end is brought to the database, and the next job is started.
//!
//! ```text
//! lock ─ run.json ─ work spawned ─ (launch.json removed) ─ run.json with the work ─ exit.json ─ settled ─ next shim
//! ```
//!
//! Invariants
//!
//! - A job is run by the holder of its lock, and once: whoever finds a `run.json` does not start the work.
//! - Nothing of the job is kept alive by the shim but its lock, and nothing of the shim is known to the work.
//! - A disk without room ends no job: what has to be written is tried again, before the start, while the work runs, and at its end.
//! - Every step can be the last one. [`ShimStep`] names them, and each is a test that kills a real shim there.
//!
//! Above a shim is its [watcher](unhang_proc::watch): what becomes of a shim that is killed is in `watcher.rs`.

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
use unhang_switches::stands;

use self::{cap::Logs, outcome::Stopped};
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
    room::MemoryGauge,
    settle::{JobAdmission, settle, write_ending},
    shims::{self, ShimCommand},
    store::{self, ShimStarter, Store, StoreError},
    timestamp::JobTimestamp,
    wait::{WaitLimit, look_until, pause},
};

/// How long the lock is tried for: whoever looks at the job holds it for moments.
const LOCK_LIMIT: Duration = Duration::from_secs(5);

/// The pause between two tries.
const LOCK_LOOK: Duration = Duration::from_millis(2);

/// How often a shim that cannot write or hand over for lack of room looks again.
const ROOM_LOOK: Duration = Duration::from_secs(1);

/// How long the work has run when `job.json` is told. Nobody reads the copy of a job of a moment, and each time that it is replaced
/// takes room in the queue of the disk, where submits wait.
const COPY_AFTER: Duration = Duration::from_millis(100);

/// What a watcher is called in the process list.
const WATCHER: &CStr = c"mcp-job-watch";

/// Held by the one shim that waits for room.
const QUEUE_LOCK: &str = "queue.lock";

/// Exit code where the arguments make no sense: nobody but ourselves is meant to call this.
const USAGE: u8 = 2;

/// Where a shim has got to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShimStep {
    /// It lives, and holds nothing.
    Alive,
    /// It has the lock.
    Locked,
    /// `run.json` says that it has the job.
    Begun,
    /// The work runs.
    Spawned,
    /// `run.json` says so.
    Told,
    /// The work has ended, and everything that it started.
    Ended,
    /// `exit.json` says how.
    Recorded,
    /// The database knows, and the next job has the slot.
    Settled,
    /// The next shim was started.
    HandedOver,
}

/// Runs a shim to its end if that is what this program was started for, which its first argument says. To be called before
/// anything else in `main`, while there is one thread. None where it was started for something else.
pub fn run_if_asked(command: &ShimCommand) -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    let is_asked = words.next().is_some_and(|word| word == shims::ARGUMENT);
    is_asked.then(|| run_watched(command, words, &|_| {}))
}

/// Runs a shim to its end, with a [watcher](unhang_proc::watch) above it where there is one to be had. `words` are those after the
/// hidden ones in `command`, which is how the next shim is started. `witness` is told of each step before the next one begins.
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

/// Runs a shim to its end, and leaves it to others to see what becomes of it.
pub fn run(
    command: &ShimCommand,
    words: impl Iterator<Item = OsString>,
    witness: &dyn Fn(ShimStep),
) -> ExitCode {
    Shim::begin(command, words, witness).map_or(ExitCode::from(USAGE), |shim| shim.run())
}

/// The data folder is two above the job's.
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

/// What is still to be said: that the work runs. It goes on meanwhile, for to end it would lose it.
struct PendingRunRecord<'a> {
    /// None once `run.json` says so.
    run: Option<&'a RunRecord>,
    record: &'a JobRecord,
    /// When to go on; never once all is said.
    again_at: Option<Duration>,
}

/// Why a shim had to give up; the state on the disk says the rest.
type ShimError = Box<dyn std::error::Error>;

impl<'a> Shim<'a> {
    /// What every shim begins with. None where the words make no sense.
    fn begin(
        command: &'a ShimCommand,
        mut words: impl Iterator<Item = OsString>,
        witness: &'a dyn Fn(ShimStep),
    ) -> Option<Self> {
        file_limit::ignore_signal();
        // Whoever started the server that started us may wait for the end of a pipe that came along.
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
            // What happened is on the disk as far as it came, and whoever looks at the job goes on from there.
            Err(_) => ExitCode::FAILURE,
        }
    }

    fn live(&self) -> Result<(), ShimError> {
        (self.witness)(ShimStep::Alive);
        let Some(lock) = self.lock()? else { return Ok(()) };
        (self.witness)(ShimStep::Locked);
        let ending = match self.folder.read::<EndRecord>(EXIT)? {
            Some(ending) => ending,
            None if self.folder.has(RUN) && stands("work-started-once") => {
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

    /// Runs the work, and says how it ended.
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
        // Before anybody reads who we are: whoever wants the job to end signals us.
        let stops = StopSignals::listen(&[Signal::TERM, Signal::INT, Signal::HUP])?;
        // It need not outlive a power failure: a job that had a slot before one is taken for begun anyway.
        let begin = || {
            let is_wanted = !self.folder.has(CANCEL);
            run.started_at = JobTimestamp::now();
            if is_wanted && stands("run-before-work") {
                self.folder.write_lightly(RUN, &run)?;
            }
            // Whoever accepted it may have been killed before, and a folder without record and orders is no job's.
            if stands("record-before-work") && !self.folder.has(RECORD) {
                self.folder.write_if_missing(RECORD, &orders.record)?;
            }
            Ok(is_wanted)
        };
        if !with_room(stands("start-waits-for-room"), begin)? {
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
        // For the logs; until here nobody waits for this process but the next in the queue.
        ask_for_short_turns();
        (self.witness)(ShimStep::Spawned);
        run.work = Identity::of(tree.pid()).map(Into::into);
        run.control_group = tree.group().map(PathBuf::from);
        // What it says may be secret, and nobody needs it any more.
        if stands("orders-removed") {
            let _ = std::fs::remove_file(self.folder.file(LAUNCH));
        }
        let record = JobRecord { status: JobState::Running, started_at, ..orders.record };
        let mut untold = PendingRunRecord { run: Some(&run), record: &record, again_at: None };
        let told = self.tell(&mut untold);
        if !stands("running-told-later") {
            told?;
        }
        let (exit, stopped, swept) = self.hold(tree, logs, untold);
        // What is left is work like any other, and those who submit meanwhile go first.
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
        // An older unhang accepted it, whose work had no folder of its own.
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
        let logs = with_room(stands("start-waits-for-room"), || {
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

    /// Says that the work runs, where everybody looks for it: first where we look ourselves.
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

    /// Whether somebody wants the work to end: a signal says so, or the wish in the folder, where no signal comes from another container.
    fn is_unwanted(&self, tree: &ProcessTree) -> bool {
        tree.stop_asked() || self.folder.has(CANCEL)
    }

    /// Holds the work until it has ended, by itself or because it has to.
    fn hold(
        &self,
        mut tree: ProcessTree,
        mut logs: Logs,
        mut untold: PendingRunRecord<'_>,
    ) -> (Exit, Option<Stopped>, SweptTree) {
        let record = untold.record;
        let timeout = record.timeout().filter(|_| stands("job-timeout"));
        let deadline = timeout.map(|timeout| tree::now() + timeout);
        // Why it has to end, and when it is killed.
        let mut stop: Option<(Stopped, Duration)> = None;
        let exit = loop {
            if let Some(exit) = tree.reap() {
                break Some(exit);
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
                // What fails is tried again.
                let _ = self.tell(&mut untold);
            }
            let next = [next, untold.again_at].into_iter().flatten().min();
            // Where a log cannot be kept short the job goes on all the same: to end it would lose more.
            let _ = logs.wait(&tree, next.map(|next| next.saturating_sub(tree::now())));
        };
        let swept = tree.sweep(tree::SWEEP_LIMIT);
        let exit = exit.or_else(|| tree.reap()).unwrap_or(Exit::Unknown);
        let _ = logs.check();
        (exit, stop.map(|(stopped, _)| stopped), swept)
    }

    /// Writes down how it ended, which nobody else knows.
    fn record(&self, ending: &EndRecord) -> Result<EndRecord, FileError> {
        let limit = WaitLimit::after(AWAY_LIMIT);
        loop {
            let written =
                with_room(stands("end-waits-for-room"), || write_ending(&self.data, self.id, ending));
            match written {
                // Somebody may have moved the data folder, and may move it back: now or, where the end lies in the folder, later.
                Err(error) if self.is_away(&error) && !limit.is_over() => {
                    let _ = write_ending_here(ending);
                    pause(ROOM_LOOK);
                }
                written => return written,
            }
        }
    }

    /// Whether the data folder is not where it was.
    fn is_away(&self, error: &FileError) -> bool {
        error.kind() == Some(io::ErrorKind::NotFound) && self.data.is_away()
    }

    /// Says what became of another shim that has had the job, or of something in the place of what it wrote, and starts what is next.
    fn judge_predecessor(&self) -> Result<(), ShimError> {
        let (mut store, _) = Store::open(&self.data)?;
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
        store: &mut Store,
        starter: &'s ShimStarter,
    ) -> Result<JobAdmission<'s>, StoreError> {
        let limit = limits::of_all(&self.data).max_concurrent;
        Ok(JobAdmission { starter, limit, is_open: self.is_open(store)? })
    }

    /// Brings the end to the database, and starts what is next.
    fn hand_over(&self, ending: &EndRecord) -> Result<(), ShimError> {
        let (mut store, _) = Store::open(&self.data)?;
        let starter = shims::this_process()?;
        let admission = self.admission(&mut store, &starter)?;
        // From here on others may wait for us.
        ask_for_short_turns();
        let settled = settle(&self.data, &mut store, self.id, ending, &admission)?;
        (self.witness)(ShimStep::Settled);
        self.start(&mut store, settled.admitted, &admission);
        (self.witness)(ShimStep::HandedOver);
        self.wait_with_the_queue(&mut store, &admission)
    }

    /// Whether the next job may start now, if there is one.
    fn is_open(&self, store: &mut Store) -> Result<bool, StoreError> {
        let next = store.read(store::next_rules)?;
        Ok(next.is_none_or(|rules| rules.lack(&self.data, &MemoryGauge::default()).is_none()))
    }

    /// Waits for room where the queue had to, and nobody else does that.
    fn wait_with_the_queue(&self, store: &mut Store, admission: &JobAdmission<'_>) -> Result<(), ShimError> {
        if admission.is_open || !stands("queue-waits-for-room") {
            return Ok(());
        }
        let Some(_queue) = Lock::try_take(&self.data.path().join(QUEUE_LOCK))? else { return Ok(()) };
        while !self.is_open(store)? {
            pause(ROOM_LOOK);
        }
        let admission = JobAdmission { is_open: true, ..*admission };
        let admitted = store.write(|transaction| admission.admit(transaction))?;
        self.start(store, admitted, &admission);
        Ok(())
    }

    /// Starts the shims of jobs that have a slot. One without a folder to start in is settled, and its slot goes to the next: nobody else
    /// may come by for long.
    fn start(&self, store: &mut Store, mut admitted: Vec<JobId>, admission: &JobAdmission<'_>) {
        while let Some(id) = admitted.pop() {
            let folder = self.data.job(id);
            let is_usable = folder.is_there() && !folder.is_something_else();
            if is_usable && shims::start(self.command, &self.data, id).is_ok() {
                continue;
            }
            // Where it cannot be judged, whoever looks at the jobs next sees that nobody has it, and tries again.
            if let Ok(JobFinding::Settled(settled)) = self.look_at(store, id, admission) {
                admitted.extend(settled.admitted);
            }
        }
    }

    /// Judges a job that has a slot, as somebody who comes by.
    fn look_at(
        &self,
        store: &mut Store,
        id: JobId,
        admission: &JobAdmission<'_>,
    ) -> Result<JobFinding, StoreError> {
        match store.read(|connection| store::get(connection, id))? {
            Some(job) if job.is_active => judge(&self.data, store, &job, admission),
            _ => Ok(JobFinding::Alive),
        }
    }
}

/// Writes down how the job ended where we stand, which is its folder wherever somebody has moved that.
fn write_ending_here(ending: &EndRecord) -> Result<(), FileError> {
    let here = JobFolder::at(Path::new("."));
    if here.has(EXIT) { Ok(()) } else { here.write(EXIT, ending) }
}

/// Does what takes room on the disk, again and again while there is none, if that may be waited for.
fn with_room<T>(waits: bool, mut work: impl FnMut() -> Result<T, FileError>) -> Result<T, FileError> {
    loop {
        match work() {
            Err(error) if error.is_for_lack_of_room() && waits => pause(ROOM_LOOK),
            done => return done,
        }
    }
}

fn failed_start(reason: EndReason, error: &dyn std::fmt::Display) -> EndRecord {
    EndRecord::without_run(JobEnd::Failed).because(reason, error.to_string())
}
