//! The load generator: a client that measures what stands between it and a server, and the fast server that it measures
//! with.
//!
//! # Theory of operation
//!
//! The same server is reached in several ways: directly, through `cat` on both sides, through any command that takes a
//! server command after it. One blocking thread plays the client. It goes through all ways in each round, so that a noisy
//! machine hits all of them alike, and a comparison within one round is fair even where the figures of two rounds differ.
//!
//! # Invariants
//!
//! - Never more is sent than a pipe holds, so the client cannot block on writing; each read has a deadline.
//! - Whatever a session started has ended when the session ends, also after an error. The kernel kills it if this process
//!   dies.
//! - The peak of memory is taken in a session whose messages are at most 1 MiB.

mod answers;
mod commands;
mod echo_server;
mod functions;
pub(crate) mod gateway;
mod jobs;
mod one_processor;
mod samples;
mod session;
mod slow;

use std::fmt;
use std::io;
use std::time::Duration;

use unhang_demo_servers::bounded_waits;

pub use commands::{CommandFigures, CommandPlan, CommandRound, measure_commands};
pub(crate) use echo_server::echo;
pub use functions::{FunctionLanguage, FunctionPlan, FunctionRound, measure_functions};
pub(crate) use gateway::echo_over_http;
pub use gateway::{
    CrowdPlan, CrowdRound, GatewayFigures, GatewayPlan, GatewayRound, measure_crowd, measure_gateway,
};
pub use jobs::{EndedUse, JobFigures, JobLoadError, JobPeer, JobPlan, JobRound, LogUse, measure_jobs};
pub use samples::median;
use samples::percentile;
use session::LoadSession;
pub use slow::{PromotedUse, SlowFigures, SlowPlan, SlowRound, measure_slow};

/// Bytes of text in a small answer.
const SMALL: usize = 64;
/// Bytes of text in the largest answers of the session whose memory is measured (design 8).
const MEDIUM: usize = 1 << 20;
/// How many of those.
const MEDIUM_COUNT: usize = 4;

/// The binaries of a run.
#[derive(Clone, Copy, Debug)]
pub struct LoadPrograms<'a> {
    /// The `unhang` that is measured.
    pub unhang: &'a str,
    /// A program that runs the zoo behind the word `zoo`: it plays the servers and the jobs.
    pub zoo: &'a str,
}

/// How the server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadRoute {
    /// Over its own two pipes.
    Direct,
    /// Through `cat` on both sides: what two more pipes cost.
    Cats,
    /// Through a command that takes the server's command after it.
    Through(Vec<String>),
}

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadPlan {
    /// How often all ways are gone through.
    pub rounds: usize,
    /// Calls before the measuring of a session begins.
    pub warm_up: usize,
    /// Calls with one in flight, in each round.
    pub round_trips: usize,
    /// Calls with many in flight, in each round.
    pub calls: usize,
    /// How many are in flight then; what they send must fit into a pipe, so at most 256.
    pub in_flight: usize,
    /// Large results in each round.
    pub large_results: usize,
    /// Bytes of text in each.
    pub large_bytes: usize,
    /// Starts and stops in each round.
    pub starts: usize,
    /// After this time a measure makes do with the calls that it has, so that a slow way costs no more than time.
    pub limit: Duration,
}

impl LoadPlan {
    /// The plan whose figures mean something; a quarter of a minute for three ways, well under a minute with slow ones.
    pub const FULL: LoadPlan = LoadPlan {
        rounds: 13,
        // The system needs a while until it leaves the processes where they are, which is how they are in a session.
        warm_up: 3_000,
        round_trips: 3_000,
        calls: 15_000,
        in_flight: 64,
        large_results: 20,
        large_bytes: 10_000_000,
        starts: 2,
        limit: Duration::from_millis(500),
    };

    /// A plan that shows no more than that everything works.
    pub const QUICK: LoadPlan = LoadPlan {
        rounds: 2,
        warm_up: 10,
        round_trips: 50,
        calls: 128,
        in_flight: 64,
        large_results: 1,
        large_bytes: 10_000_000,
        starts: 1,
        limit: Duration::from_millis(200),
    };
}

/// What one round found out about one way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadRound {
    /// Half of the round trips were at most as long.
    pub round_trip_p50: Duration,
    /// All but a hundredth of the round trips were at most as long.
    pub round_trip_p99: Duration,
    /// Answers a second with many calls in flight.
    pub calls_per_second: f64,
    /// Bytes a second of large results, one after the other.
    pub bytes_per_second: f64,
    /// From the spawn to the answer of `initialize`.
    pub start: Duration,
    /// From the end of stdin to the end of the process.
    pub stop: Duration,
    /// Peak resident memory, in bytes, of all processes that the way adds.
    pub memory: u64,
    /// Processor time that those processes take for one round trip, where the system tells.
    pub processor: Option<Duration>,
}

/// Why a way could not be measured.
#[derive(Debug)]
pub struct LoadError {
    /// What was being done.
    pub action: &'static str,
    /// What went wrong.
    pub source: io::Error,
}

impl fmt::Display for LoadError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.action, self.source)
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Returns what says what was being done when an error came.
fn during(action: &'static str) -> impl FnOnce(io::Error) -> LoadError {
    move |source| LoadError { action, source }
}

/// Measures all ways, round by round; the outcomes are in the order of `ways`. `server` is the command that runs the
/// helper `echoes`. `on_progress` hears the number of each round, from 1, as it begins.
///
/// A way that fails is left out from then on, and the others go on.
pub fn measure(
    server: &[String],
    ways: &[LoadRoute],
    plan: &LoadPlan,
    mut on_progress: impl FnMut(usize),
) -> Vec<Result<Vec<LoadRound>, LoadError>> {
    let mut outcomes: Vec<Result<Vec<LoadRound>, LoadError>> = ways.iter().map(|_| Ok(Vec::new())).collect();
    for round in 1..=plan.rounds {
        on_progress(round);
        for (way, outcome) in ways.iter().zip(&mut outcomes) {
            let Ok(rounds) = outcome else { continue };
            match measure_once(server, way, plan) {
                Ok(figures) => rounds.push(figures),
                Err(error) => *outcome = Err(error),
            }
        }
    }
    outcomes
}

fn measure_once(server: &[String], way: &LoadRoute, plan: &LoadPlan) -> Result<LoadRound, LoadError> {
    let (start, stop) = start_and_stop(server, way, plan)?;
    let mut session = LoadSession::open(way, server).map_err(during("the start"))?;
    session.look_around(server);
    for _ in 0..plan.warm_up {
        session.round_trip(SMALL).map_err(during("the first calls"))?;
    }
    let before = session.processor_time();
    let trips = round_trips(&mut session, plan).map_err(during("one call at a time"))?;
    let used = session.processor_time().zip(before).and_then(|(after, before)| after.checked_sub(before));
    let calls_per_second = many_in_flight(&mut session, plan).map_err(during("many calls in flight"))?;
    for _ in 0..MEDIUM_COUNT {
        session.round_trip(MEDIUM).map_err(during("results of 1 MiB"))?;
    }
    let memory = session.peak_memory();
    session.close().map_err(during("the stop"))?;
    let bytes_per_second = large_results(server, way, plan).map_err(during("large results"))?;
    Ok(LoadRound {
        round_trip_p50: percentile(&trips, 50),
        round_trip_p99: percentile(&trips, 99),
        calls_per_second,
        bytes_per_second,
        start,
        stop,
        memory,
        processor: used.map(|used| used / u32::try_from(trips.len()).unwrap_or(u32::MAX).max(1)),
    })
}

/// Starts and stops the server a few times and returns the medians.
fn start_and_stop(
    server: &[String],
    way: &LoadRoute,
    plan: &LoadPlan,
) -> Result<(Duration, Duration), LoadError> {
    let (mut starts, mut stops) = (Vec::new(), Vec::new());
    for _ in 0..plan.starts {
        let begin = bounded_waits::now();
        let mut session = LoadSession::open(way, server).map_err(during("the start"))?;
        starts.push(begin.elapsed());
        session.look_around(server);
        stops.push(session.close().map_err(during("the stop"))?);
    }
    starts.sort_unstable();
    stops.sort_unstable();
    Ok((percentile(&starts, 50), percentile(&stops, 50)))
}

/// Makes one call after the other and returns how long each took, sorted.
fn round_trips(session: &mut LoadSession, plan: &LoadPlan) -> io::Result<Vec<Duration>> {
    let begin = bounded_waits::now();
    let mut trips = Vec::with_capacity(plan.round_trips);
    while trips.len() < plan.round_trips && begin.elapsed() < plan.limit {
        let sent = bounded_waits::now();
        session.round_trip(SMALL)?;
        trips.push(sent.elapsed());
    }
    trips.sort_unstable();
    Ok(trips)
}

/// Sends a call for each answer that comes, so that always as many are in flight; returns answers a second.
fn many_in_flight(session: &mut LoadSession, plan: &LoadPlan) -> io::Result<f64> {
    let begin = bounded_waits::now();
    let (mut sent, mut answered) = (0, 0);
    while sent < plan.in_flight.min(plan.calls) {
        session.call(SMALL)?;
        sent += 1;
    }
    while answered < sent {
        session.answer()?;
        answered += 1;
        if sent < plan.calls && begin.elapsed() < plan.limit {
            session.call(SMALL)?;
            sent += 1;
        }
    }
    Ok(per_second(answered, begin.elapsed()))
}

/// Fetches large results one after the other, in a session of their own; returns bytes a second.
fn large_results(server: &[String], way: &LoadRoute, plan: &LoadPlan) -> io::Result<f64> {
    let mut session = LoadSession::open(way, server)?;
    session.look_around(server);
    // The server makes its text at the first one, and buffers grow.
    session.round_trip(plan.large_bytes)?;
    let begin = bounded_waits::now();
    let (mut bytes, mut fetched) = (0, 0);
    while fetched < plan.large_results && (fetched == 0 || begin.elapsed() < plan.limit) {
        bytes += session.round_trip(plan.large_bytes)?;
        fetched += 1;
    }
    let rate = per_second(bytes, begin.elapsed());
    session.close()?;
    Ok(rate)
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below the 52 bits of a mantissa")]
fn per_second(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(f64::EPSILON)
}

#[cfg(test)]
mod tests;
