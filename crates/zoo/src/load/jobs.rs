//! What durable jobs cost: a client that submits to, and polls, a server of jobs, and what it is measured beside.
//!
//! # Theory of operation
//!
//! The server is a command that speaks MCP over pipes, with its data in a folder made for the run. Beside each measure stands
//! a *floor*, taken in the same round: for a submit one file made durable in the same folder, for a poll a `ping` through the
//! same pipes, for jobs a second a loop that starts processes and waits for them, as servers do by hand, and for a folder with
//! many ended jobs one with next to none.
//!
//! # Invariants
//!
//! - What is compared is interleaved or follows at once, so that a noisy machine hits both alike.
//! - A figure counts only if what it is about went well: every job has to complete.
//! - Whatever ends the run, by the signals that ask for it or an error, its processes are ended and its folder is removed. What
//!   a killed run leaves ends by itself within two minutes.

mod ended;
mod flood;
mod floors;
mod jobs_folder;
mod peer;
mod server;

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use unhang_demo_servers::bounded_waits;

pub(super) use jobs_folder::JobsFolder;
pub use peer::JobPeer;
use server::LoadServer;
pub(super) use server::call;

use super::samples::percentile;
use super::{LoadError, LoadPrograms, during, per_second};
use crate::corpus::Interrupted;
use crate::signals;

/// How many jobs, and how many processes by hand, are at work at the same time where their rate counts.
const TOGETHER: usize = 2;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobPlan {
    /// How often everything is gone through.
    pub rounds: usize,
    /// Submits of one client in each round, one after the other.
    pub submits: usize,
    /// Servers on one data folder, each with a client that submits.
    pub writers: usize,
    /// What each of these submits in each round.
    pub submits_each: usize,
    /// Jobs that run while they are polled, one of which floods.
    pub running: usize,
    /// Polls in each round.
    pub polls: usize,
    /// Jobs whose rate counts, in each round, and as many processes by hand.
    pub jobs: usize,
    /// Bytes of output of a job whose log is watched, on each of its streams.
    pub log_bytes: u64,
    /// Ended jobs in the folder that is compared with one that has next to none.
    pub ended: usize,
    /// Submits to each of these two, and polls, in each round.
    pub ended_submits: usize,
}

impl JobPlan {
    /// The plan whose figures mean something.
    pub const FULL: JobPlan = JobPlan {
        rounds: 3,
        submits: 200,
        writers: 8,
        submits_each: 25,
        running: 8,
        polls: 1_500,
        jobs: 200,
        log_bytes: 1 << 30,
        ended: 5_000,
        ended_submits: 100,
    };

    /// A plan that shows no more than that everything works.
    pub const QUICK: JobPlan = JobPlan {
        rounds: 1,
        submits: 5,
        writers: 3,
        submits_each: 2,
        running: 3,
        polls: 20,
        jobs: 5,
        log_bytes: 16 << 20,
        ended: 20,
        ended_submits: 3,
    };

    /// How many ended jobs must not be felt (design 8).
    pub const MANY: usize = 100_000;
}

/// What one round found out, about the jobs or about the floor.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct JobRound {
    /// Half of the submits of one client took at most as long.
    pub submit_p50: Duration,
    /// All but a hundredth of them.
    pub submit_p99: Duration,
    /// All but a hundredth of the submits to several servers on one folder; peers have none.
    pub several_p99: Option<Duration>,
    /// Half of the polls took at most as long, while jobs ran.
    pub status_p50: Duration,
    /// All but a hundredth of them.
    pub status_p99: Duration,
    /// Jobs a second that do nothing.
    pub jobs_per_second: f64,
    /// A folder with many ended jobs; peers have none.
    pub ended: Option<EndedUse>,
    /// What a log took; the floor and peers have none.
    pub log: Option<LogUse>,
}

/// What the log of a job that writes much took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogUse {
    /// The peak of its allocated blocks, in bytes.
    pub peak: u64,
    /// Whether its last line could be read when the job had ended.
    pub has_last_line: bool,
}

/// What it is like to use a folder with many ended jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedUse {
    /// Half of the submits took at most as long.
    pub submit: Duration,
    /// Half of the polls.
    pub status: Duration,
    /// From the spawn of a server on that folder to the answer of `initialize`.
    pub start: Duration,
}

/// What all rounds found out.
#[derive(Debug, Default)]
pub struct JobFigures {
    /// The floor, by round.
    pub floor: Vec<JobRound>,
    /// The jobs, by round.
    pub jobs: Vec<JobRound>,
    /// Each peer, by round, in the order in which they were named; one that fails is left out from then on.
    pub peers: Vec<Result<Vec<JobRound>, LoadError>>,
    /// On which kind of file system, where the system tells.
    pub file_system: Option<String>,
}

/// Why jobs could not be measured.
#[derive(Debug)]
pub enum JobLoadError {
    /// It was cut short from outside.
    Interrupted(Interrupted),
    /// Something went wrong.
    Failed(LoadError),
}

impl From<LoadError> for JobLoadError {
    fn from(error: LoadError) -> Self {
        Self::Failed(error)
    }
}

impl fmt::Display for JobLoadError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupted(_) => formatter.write_str("interrupted"),
            Self::Failed(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for JobLoadError {}

/// Measures the jobs of `unhang`, with its data in a new folder in `parent`, and those of peers. `on_progress` hears
/// what is being done.
///
/// From here on SIGINT, SIGTERM and SIGHUP do not end this process by themselves: the run is cut short, clears up and says so.
///
/// # Errors
///
/// When one of those signals came, or something cannot be measured.
pub fn measure_jobs(
    programs: LoadPrograms<'_>,
    parent: &Path,
    peers: &[JobPeer],
    plan: &JobPlan,
    mut on_progress: impl FnMut(&str),
) -> Result<JobFigures, JobLoadError> {
    signals::catch_every_end();
    let jobs_folder = JobsFolder::make(parent, programs).map_err(during("the folder of the run"))?;
    let measured = measure_in(&jobs_folder, peers, plan, &mut on_progress);
    on_progress("clearing up ");
    drop(jobs_folder);
    match signals::caught() {
        Some(signal) => Err(JobLoadError::Interrupted(Interrupted { signal })),
        None => measured.map_err(Into::into),
    }
}

fn measure_in(
    jobs_folder: &JobsFolder,
    peers: &[JobPeer],
    plan: &JobPlan,
    on_progress: &mut dyn FnMut(&str),
) -> Result<JobFigures, LoadError> {
    on_progress(&format!("making {} ended jobs ", plan.ended));
    ended::make(jobs_folder, plan.ended).map_err(during("making ended jobs"))?;
    let mut figures = JobFigures { file_system: jobs_folder.file_system(), ..JobFigures::default() };
    figures.peers = peers.iter().map(|_| Ok(Vec::new())).collect();
    for round in 1..=plan.rounds {
        on_progress(&format!("the jobs, round {round} of {} ", plan.rounds));
        let (floor, jobs) = measure_once(jobs_folder, plan)?;
        figures.floor.push(floor);
        figures.jobs.push(jobs);
        for (peer, outcome) in peers.iter().zip(&mut figures.peers) {
            let Ok(rounds) = outcome else { continue };
            match peer::measure(jobs_folder, peer, plan) {
                Ok(round) => rounds.push(round),
                Err(error) => *outcome = Err(error),
            }
        }
    }
    Ok(figures)
}

/// The floor and the jobs.
fn measure_once(jobs_folder: &JobsFolder, plan: &JobPlan) -> Result<(JobRound, JobRound), LoadError> {
    let (mut floor, mut jobs) = (JobRound::default(), JobRound::default());
    let (pings, polls) = polls(jobs_folder, plan).map_err(during("polls"))?;
    (floor.status_p50, floor.status_p99) = (percentile(&pings, 50), percentile(&pings, 99));
    (jobs.status_p50, jobs.status_p99) = (percentile(&polls, 50), percentile(&polls, 99));
    let (files, submits) = one_client(jobs_folder, plan).map_err(during("submits"))?;
    (floor.submit_p50, floor.submit_p99) = (percentile(&files, 50), percentile(&files, 99));
    (jobs.submit_p50, jobs.submit_p99) = (percentile(&submits, 50), percentile(&submits, 99));
    let (files, submits) =
        several_clients(jobs_folder, plan).map_err(during("submits to several servers"))?;
    (floor.several_p99, jobs.several_p99) = (Some(percentile(&files, 99)), Some(percentile(&submits, 99)));
    floor.jobs_per_second = floors::by_hand(plan.jobs).map_err(during("processes by hand"))?;
    jobs.jobs_per_second = rate(jobs_folder, plan.jobs).map_err(during("jobs a second"))?;
    jobs.log = Some(flood::watch(jobs_folder, plan.log_bytes).map_err(during("the log of a flood"))?);
    let (few, many) = ended::compare(jobs_folder, plan.ended_submits).map_err(during("many ended jobs"))?;
    (floor.ended, jobs.ended) = (Some(few), Some(many));
    Ok((floor, jobs))
}

/// Durations in ascending order.
type SortedDurations = Vec<Duration>;

fn sorted(mut samples: Vec<Duration>) -> SortedDurations {
    samples.sort_unstable();
    samples
}

/// Submits jobs and makes files durable in turn; jobs run meanwhile.
fn one_client(jobs_folder: &JobsFolder, plan: &JobPlan) -> io::Result<(SortedDurations, SortedDurations)> {
    let mut server = LoadServer::start(jobs_folder, "alone", TOGETHER)?;
    let files = jobs_folder.sub_folder("files")?;
    let (mut file_times, mut submits, mut jobs) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.submits {
        file_times.push(floors::durable_file(&files)?);
        let (job, time) = server.submit("trivial", "{}")?;
        jobs.push(job);
        submits.push(time);
    }
    server.expect_completed(&jobs)?;
    server.close()?;
    Ok((sorted(file_times), sorted(submits)))
}

/// The same with several clients at once, each with a server of its own on one folder.
fn several_clients(
    jobs_folder: &JobsFolder,
    plan: &JobPlan,
) -> io::Result<(SortedDurations, SortedDurations)> {
    // Started here, for the kernel kills what a thread has started when that thread ends.
    let servers: io::Result<Vec<_>> =
        (0..plan.writers).map(|_| LoadServer::start(jobs_folder, "several", TOGETHER)).collect();
    let files = jobs_folder.sub_folder("files")?;
    let file_times = at_once(vec![(); plan.writers], |()| {
        (0..plan.submits_each).map(|_| floors::durable_file(&files)).collect::<io::Result<Vec<_>>>()
    })?;
    let submitted = at_once(servers?, |mut server| {
        let submits: io::Result<Vec<_>> =
            (0..plan.submits_each).map(|_| server.submit("trivial", "{}")).collect();
        submits.map(|submits| (server, submits))
    })?;
    let mut times = Vec::new();
    for (mut server, submits) in submitted {
        let jobs: Vec<String> = submits.iter().map(|(job, _)| job.clone()).collect();
        server.expect_completed(&jobs)?;
        server.close()?;
        times.extend(submits.into_iter().map(|(_, time)| time));
    }
    Ok((sorted(file_times.concat()), sorted(times)))
}

/// Lets each of these be worked on by a thread of its own.
fn at_once<One: Send, Done: Send>(
    ones: Vec<One>,
    work: impl Fn(One) -> io::Result<Done> + Sync,
) -> io::Result<Vec<Done>> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = ones.into_iter().map(|one| scope.spawn(move || work(one))).collect();
        let panicked = |_| io::Error::other("a thread of the client has failed");
        threads.into_iter().map(|thread| thread.join().map_err(panicked)?).collect()
    })
}

/// Polls jobs that run, one of which floods, and pings in turn.
fn polls(jobs_folder: &JobsFolder, plan: &JobPlan) -> io::Result<(SortedDurations, SortedDurations)> {
    /// More than it can write until it is told to end.
    const WITHOUT_END: &str = r#"{"bytes": 1000000000000}"#;
    jobs_folder.close_gate()?;
    let mut server = LoadServer::start(jobs_folder, "polled", plan.running)?;
    let mut jobs = vec![server.submit("floods", WITHOUT_END)?.0];
    for _ in 1..plan.running {
        jobs.push(server.submit("waits", "{}")?.0);
    }
    for job in &jobs {
        server.wait_until_running(job)?;
    }
    let (mut pings, mut polls) = (Vec::new(), Vec::new());
    for job in jobs.iter().cycle().take(plan.polls) {
        pings.push(server.ping()?);
        let (status, time) = server.status(job)?;
        if status != "running" {
            return Err(io::Error::other(format!("job {job} is {status} and ought to be running")));
        }
        polls.push(time);
    }
    jobs_folder.open_gate()?;
    server.terminate(&jobs[0])?;
    server.expect_completed(&jobs[1..])?;
    server.close()?;
    Ok((sorted(pings), sorted(polls)))
}

/// Runs so many jobs that do nothing, and returns how many ended in a second.
fn rate(jobs_folder: &JobsFolder, count: usize) -> io::Result<f64> {
    /// When the last few have ended, so have the others, or nearly.
    const LAST: usize = 8;
    let mut server = LoadServer::start(jobs_folder, "rate", TOGETHER)?;
    let begin = bounded_waits::now();
    let jobs: io::Result<Vec<String>> =
        (0..count).map(|_| server.submit("trivial", "{}").map(|(job, _)| job)).collect();
    let jobs = jobs?;
    let (others, last) = jobs.split_at(jobs.len().saturating_sub(LAST));
    server.expect_completed(last)?;
    let time = begin.elapsed();
    server.expect_completed(others)?;
    server.close()?;
    Ok(per_second(count, time))
}

/// An error once one of the signals that ask for the end has come.
pub(super) fn go_on() -> io::Result<()> {
    if signals::was_interrupted() { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
}
