//! The kill matrix: rounds in which jobs are submitted and something breaks, and what became of the jobs.
//!
//! # Theory of operation
//!
//! A round submits jobs, waits, and begins its fault. The next round begins while the fault may still last, unless it needs what is broken.
//! So jobs live through the faults of later rounds, too. The judgement is made at the end, job by job, with the times of all faults.
//!
//! # Invariant
//!
//! - A job counts from the moment at which it was accepted, whatever breaks afterwards.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime},
};

use unhang::{
    jobs::{id::JobId, log::LogStream, store::JobStore as _},
    postgres::PostgresStore,
};
use unhang_zoo::scale::{WorkAttempt, WorkObserver, rest, uptime};

use super::{
    failure::ScaleFailure,
    judge::{FaultRecord, JobFlaw, MatrixEvents, StoredEnd, judge},
    plan::{MatrixJob, MatrixPace, MatrixRound, ScaleDraw, ScaleFault},
    sql::SqlClient,
    stage::{PATIENCE, ScaleStage, StageClocks, StageProps, StageWorker, check_interrupted, until, work},
};

/// The workers of a stage.
const WORKERS: usize = 3;
/// By how much clocks are set.
const STEP: i64 = 3600;
/// The difference up to which a clock counts as right.
const CLOCK_BLUR: i64 = 10;
/// The time that a cut lasts at least before the next round begins.
const HEAD_START: Duration = Duration::from_millis(1500);
/// Names the supervisor in the table of processes.
const SUPERVISOR: &str = "mcp-job";
/// The most bytes of a log. Work writes less.
const LOG: usize = 64 << 10;

/// Which rounds are played.
#[derive(Clone, Copy, Debug)]
pub(super) struct MatrixPlan {
    pub(super) seed: u64,
    pub(super) first: u64,
    pub(super) count: u64,
    /// The time after which no further round begins, if every fault has been there.
    pub(super) limit: Option<Duration>,
    pub(super) pace: MatrixPace,
}

/// What became of the jobs of rounds with one fault.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FaultTally {
    pub(super) rounds: u64,
    pub(super) jobs: u64,
    pub(super) completed: u64,
    pub(super) failed: u64,
    pub(super) lost: u64,
    /// Jobs that began more than once.
    pub(super) again: u64,
    pub(super) flaws: BTreeMap<JobFlaw, u64>,
}

/// What became of all of them.
#[derive(Debug, Default)]
pub(super) struct MatrixOutcome {
    pub(super) tallies: BTreeMap<ScaleFault, FaultTally>,
    /// A sentence for each flaw.
    pub(super) flaws: Vec<String>,
}

impl MatrixOutcome {
    /// Adds what became of rounds on another stage.
    pub(super) fn add(&mut self, other: Self) {
        for (fault, tally) in other.tallies {
            let own = self.tallies.entry(fault).or_default();
            own.rounds += tally.rounds;
            own.jobs += tally.jobs;
            own.completed += tally.completed;
            own.failed += tally.failed;
            own.lost += tally.lost;
            own.again += tally.again;
            for (flaw, count) in tally.flaws {
                *own.flaws.entry(flaw).or_default() += count;
            }
        }
        self.flaws.extend(other.flaws);
    }
}

/// A job that was accepted.
struct PlayedJob {
    round: u64,
    fault: ScaleFault,
    id: JobId,
    plan: MatrixJob,
}

/// A fault that lasts.
struct OpenFault {
    /// Its place among the records.
    record: usize,
    ends_at: Duration,
}

struct MatrixPlay<'a> {
    stage: ScaleStage,
    observer: &'a WorkObserver,
    pace: MatrixPace,
    jobs: Vec<PlayedJob>,
    faults: Vec<FaultRecord>,
    open: Vec<OpenFault>,
    lives: BTreeMap<String, usize>,
    outcome: MatrixOutcome,
}

/// Plays rounds on a stage of their own.
pub(super) fn play(
    props: &StageProps<'_>,
    observer: &WorkObserver,
    name: &str,
    plan: &MatrixPlan,
    on_progress: &(dyn Fn(u64) + Sync),
) -> Result<MatrixOutcome, ScaleFailure> {
    let pace = plan.pace;
    let times = [pace.lease, pace.heartbeat, pace.lost_after].map(|time| format!("{}ms", time.as_millis()));
    let flags = ["--slots", "8", "--lease", &times[0], "--heartbeat", &times[1], "--lost-after", &times[2]];
    let stage = ScaleStage::set(props, name, StageClocks::Stepped, (WORKERS, &flags))?;
    stage.wait_for_workers(WORKERS)?;
    check_clocks(&stage)?;
    let mut play = MatrixPlay {
        stage,
        observer,
        pace,
        jobs: Vec::new(),
        faults: Vec::new(),
        open: Vec::new(),
        lives: BTreeMap::new(),
        outcome: MatrixOutcome::default(),
    };
    (0..WORKERS).for_each(|worker| play.note_life(worker));
    let begin = uptime();
    for number in plan.first..plan.first + plan.count {
        let is_late = plan.limit.is_some_and(|limit| uptime() > begin + limit);
        if is_late && play.outcome.tallies.len() == ScaleFault::ALL.len() {
            break;
        }
        play.round(&MatrixRound::draw(plan.seed, number, &pace, WORKERS))?;
        on_progress(number - plan.first + 1);
    }
    play.rest_until(Duration::MAX, |play| play.open.is_empty())?;
    play.conclude()
}

impl MatrixPlay<'_> {
    /// Plays a round, up to the moment at which the next one may begin.
    fn round(&mut self, round: &MatrixRound) -> Result<(), ScaleFailure> {
        let needs = |play: &Self, open: &OpenFault| {
            let record = &play.faults[open.record];
            record.fault.is_of_database() || record.worker == round.worker || round.fault.is_of_database()
        };
        self.rest_until(Duration::MAX, |play| !play.open.iter().any(|open| needs(play, open)))?;
        self.outcome.tallies.entry(round.fault).or_default().rounds += 1;
        for plan in &round.jobs {
            let id = JobId::random().map_err(ScaleFailure::of("draw an id"))?;
            let words = work(id.as_str(), plan.work, plan.code);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let flags = if plan.is_repeatable { &["--repeatable", "--max-attempts", "20"][..] } else { &[] };
            if self.stage.submit(id, flags, &words)? {
                self.jobs.push(PlayedJob { round: round.number, fault: round.fault, id, plan: *plan });
            } else {
                self.note_flaw(round, &format!("the store is there, and does not accept job {id}"));
            }
        }
        self.rest_until(uptime() + round.delay, |_| false)?;
        self.begin(round)?;
        self.rest_until(uptime() + HEAD_START.min(self.pace.longest_round), |play| play.open.is_empty())?;
        self.look_at_workers(round)
    }

    /// Waits, and ends faults that are over meanwhile.
    fn rest_until(&mut self, end: Duration, is_enough: impl Fn(&Self) -> bool) -> Result<(), ScaleFailure> {
        while uptime() < end {
            let now = uptime();
            while let Some(place) = self.open.iter().position(|open| open.ends_at <= now) {
                let open = self.open.swap_remove(place);
                self.end(open.record)?;
            }
            if is_enough(self) {
                break;
            }
            check_interrupted()?;
            rest(Duration::from_millis(10));
        }
        Ok(())
    }

    fn begin(&mut self, round: &MatrixRound) -> Result<(), ScaleFailure> {
        let mut worker = round.worker;
        let from = uptime();
        let mut lasts = true;
        match round.fault {
            ScaleFault::WorkerKilled => self.stage.workers[worker].kill()?,
            ScaleFault::SupervisorKilled => {
                worker = self.kill_supervisor(round)?;
                lasts = false;
            }
            ScaleFault::MachineKilled => {
                self.stage.workers[worker].machine.kill().map_err(ScaleFailure::of("kill a machine"))?;
                self.stage.workers[worker].kill()?;
            }
            ScaleFault::DatabaseKilled => {
                self.stage.database.kill().map_err(ScaleFailure::of("kill the database"))?;
            }
            ScaleFault::WorkerCutOff => self.connect(worker, false)?,
            ScaleFault::DatabaseCutOff => {
                let machine = self.stage.database.machine();
                machine.set_connected(false).map_err(ScaleFailure::of("cut the database off"))?;
            }
            ScaleFault::WorkerClockForward | ScaleFault::WorkerClockBack => {
                self.set_clock_of_worker(worker, round.fault == ScaleFault::WorkerClockForward)?;
                lasts = false;
            }
            ScaleFault::DatabaseClockForward | ScaleFault::DatabaseClockBack => {
                self.set_clock_of_database(round.fault == ScaleFault::DatabaseClockForward)?;
                lasts = false;
            }
            ScaleFault::WorkerStopped => {
                if let Some(program) = self.stage.workers[worker].program() {
                    program.stop();
                }
            }
        }
        let until = (!lasts).then(uptime);
        self.faults.push(FaultRecord { fault: round.fault, worker, from, until });
        if lasts {
            self.open.push(OpenFault { record: self.faults.len() - 1, ends_at: from + round.length });
        }
        Ok(())
    }

    /// Ends a fault: what was killed is started, what was cut off is connected, what was stopped goes on.
    fn end(&mut self, record: usize) -> Result<(), ScaleFailure> {
        let FaultRecord { fault, worker, .. } = self.faults[record];
        match fault {
            ScaleFault::WorkerKilled => self.stage.workers[worker].start()?,
            ScaleFault::MachineKilled => {
                self.stage.workers[worker].machine.boot().map_err(ScaleFailure::of("boot a machine"))?;
                self.note_life(worker);
                self.stage.workers[worker].start()?;
            }
            ScaleFault::DatabaseKilled => {
                self.stage.database.resume().map_err(ScaleFailure::of("start the database again"))?;
            }
            ScaleFault::WorkerCutOff => self.connect(worker, true)?,
            ScaleFault::DatabaseCutOff => {
                let machine = self.stage.database.machine();
                machine.set_connected(true).map_err(ScaleFailure::of("connect the database"))?;
            }
            ScaleFault::WorkerStopped => {
                if let Some(program) = self.stage.workers[worker].program() {
                    program.go_on();
                }
            }
            _ => {}
        }
        self.faults[record].until = Some(uptime());
        Ok(())
    }

    fn connect(&self, worker: usize, is_connected: bool) -> Result<(), ScaleFailure> {
        let machine = &self.stage.workers[worker].machine;
        machine.set_connected(is_connected).map_err(ScaleFailure::of("cut a worker off, or connect it"))
    }

    /// Kills a supervisor, of the round's worker if it has one. Returns the worker.
    fn kill_supervisor(&self, round: &MatrixRound) -> Result<usize, ScaleFailure> {
        let mut draw = ScaleDraw::of(round.number, 1);
        until("a supervisor runs", PATIENCE, || {
            for step in 0..WORKERS {
                let worker = (round.worker + step) % WORKERS;
                let all = self.stage.workers[worker].machine.processes();
                let supervisors: Vec<_> =
                    all.iter().filter(|process| process.name().as_deref() == Some(SUPERVISOR)).collect();
                if !supervisors.is_empty() {
                    let chosen = draw.below(supervisors.len() as u64);
                    supervisors[usize::try_from(chosen).unwrap_or_default()].kill();
                    return Ok(Some(worker));
                }
            }
            Ok(None)
        })
    }

    fn set_clock_of_worker(&self, worker: usize, is_forward: bool) -> Result<(), ScaleFailure> {
        let Some(clock) = self.stage.workers[worker].machine.clock() else { return Ok(()) };
        clock.step(if is_forward { STEP } else { -STEP }).map_err(ScaleFailure::of("set a clock"))
    }

    /// Sets the clock of the database, and waits until the database says so.
    fn set_clock_of_database(&self, is_forward: bool) -> Result<(), ScaleFailure> {
        let Some(clock) = self.stage.database.machine().clock() else { return Ok(()) };
        clock.step(if is_forward { STEP } else { -STEP }).map_err(ScaleFailure::of("set a clock"))?;
        let offset = clock.offset();
        let sql = SqlClient::connect(&self.stage.database.url())?;
        until("the clock of the database is set", PATIENCE, || {
            let told = sql.number("extract(epoch FROM clock_timestamp())")?;
            #[expect(clippy::cast_possible_truncation, reason = "seconds since 1970")]
            let wrong = told as i64 - wall_clock();
            Ok((wrong.abs_diff(offset) <= CLOCK_BLUR.unsigned_abs()).then_some(()))
        })
    }

    fn note_life(&mut self, worker: usize) {
        self.lives.extend(self.stage.workers[worker].machine.namespace().map(|life| (life, worker)));
    }

    fn note_flaw(&mut self, round: &MatrixRound, what: &str) {
        self.outcome.flaws.push(format!("round {} ({}): {what}", round.number, round.fault.name()));
    }

    /// Notes workers that have ended by themselves, and starts them again.
    fn look_at_workers(&mut self, round: &MatrixRound) -> Result<(), ScaleFailure> {
        for worker in 0..WORKERS {
            let program = self.stage.workers[worker].program();
            if program.is_some_and(|program| program.has_ended().unwrap_or_default()) {
                self.note_flaw(round, &format!("worker {worker} has ended by itself"));
                self.stage.workers[worker].kill()?;
                self.stage.workers[worker].start()?;
            }
        }
        Ok(())
    }

    /// Waits for all ends, and judges.
    fn conclude(mut self) -> Result<MatrixOutcome, ScaleFailure> {
        let mut store = self.stage.store()?;
        let mut open: BTreeSet<JobId> = self.jobs.iter().map(|job| job.id).collect();
        let waited = until("every job has ended", self.pace.deadline, || {
            for id in open.clone() {
                if ended(&mut store, id)?.is_some_and(|end| end.state.is_final()) {
                    open.remove(&id);
                }
            }
            Ok(open.is_empty().then_some(()))
        });
        if let Err(failure @ ScaleFailure::Interrupted(_)) = waited {
            return Err(failure);
        }
        for job in std::mem::take(&mut self.jobs) {
            self.judge(&mut store, &job)?;
        }
        Ok(self.outcome)
    }

    fn judge(&mut self, store: &mut PostgresStore, job: &PlayedJob) -> Result<(), ScaleFailure> {
        let end = ended(store, job.id)?;
        let is_over = |attempts: &[WorkAttempt]| attempts.iter().all(|attempt| attempt.ended_by.is_some());
        let attempts = until("the work of a job has ended, too", PATIENCE, || {
            let attempts = self.observer.attempts(job.id.as_str());
            Ok(is_over(&attempts).then_some(attempts))
        });
        let attempts = match attempts {
            Err(failure @ ScaleFailure::Interrupted(_)) => return Err(failure),
            Err(_) => self.observer.attempts(job.id.as_str()),
            Ok(attempts) => attempts,
        };
        let events = MatrixEvents { pace: &self.pace, faults: &self.faults, lives: &self.lives };
        let flaws = judge(&job.plan, &attempts, end.as_ref(), &events);
        let told: String = match flaws.is_empty() {
            true => String::new(),
            false => self.stage.workers.iter().map(|worker| worker.told_about(job.id)).collect(),
        };
        let tally = self.outcome.tallies.entry(job.fault).or_default();
        tally.jobs += 1;
        tally.again += u64::from(attempts.len() > 1);
        match end.map(|end| end.state.as_str()) {
            Some("completed") => tally.completed += 1,
            Some("failed") => tally.failed += 1,
            Some("lost") => tally.lost += 1,
            _ => {}
        }
        for (flaw, what) in flaws {
            *tally.flaws.entry(flaw).or_default() += 1;
            if flaw.breaks_a_promise() {
                let PlayedJob { round, id, plan, .. } = job;
                let name = job.fault.name();
                self.outcome.flaws.push(format!("round {round} ({name}), job {id}, {plan:?}: {what}{told}"));
            }
        }
        Ok(())
    }
}

/// Checks that a step reaches `unhang` on a machine with the library for clocks, and that the workers have this library. Supervisors and work keep
/// the right clock, because they do not get the variables of the worker.
fn check_clocks(stage: &ScaleStage) -> Result<(), ScaleFailure> {
    let id = JobId::random().map_err(ScaleFailure::of("draw an id"))?;
    let right = wall_clock();
    stage.set_client_clock(STEP)?;
    let is_accepted = stage.submit(id, &["--labels", "nobody"], &["true"])?;
    stage.set_client_clock(-STEP)?;
    let job = stage.store()?.get(id).map_err(ScaleFailure::of("look at a job"))?;
    let told = job.filter(|_| is_accepted).map(|job| job.record.created_at.millis() / 1000);
    let told = told.and_then(|told| i64::try_from(told).ok()).unwrap_or_default();
    let have_library = stage.workers.iter().all(StageWorker::has_clock);
    if (told - right).abs_diff(STEP) <= CLOCK_BLUR.unsigned_abs() && have_library {
        return Ok(());
    }
    Err(ScaleFailure::new(format!(
        "steps of the clock do not reach unhang, which is perhaps linked statically: it told {told} at {right}, and workers have the library: {have_library}"
    )))
}

/// Asks the store how a job stands. Returns `None` if the store does not know it.
fn ended(store: &mut PostgresStore, id: JobId) -> Result<Option<StoredEnd>, ScaleFailure> {
    let Some(job) = store.get(id).map_err(ScaleFailure::of("look at a job"))? else { return Ok(None) };
    let page = store.log_page(id, LogStream::Stdout, 0, LOG, true);
    let page = page.map_err(ScaleFailure::of("read a log"))?;
    let ending = job.record.ending.as_ref();
    let end = StoredEnd {
        state: job.record.status,
        reason: ending.and_then(|ending| ending.reason),
        exit_code: ending.and_then(|ending| ending.exit_code),
        claims: job.claims,
        log: String::from_utf8_lossy(&page.text).into_owned(),
    };
    Ok(Some(end))
}

/// Returns the seconds since 1970 by the clock of this machine, which nobody sets.
fn wall_clock() -> i64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or_default()
}
