//! Calls that become jobs: how late their clients have the ids, what it costs those that are answered in time, and how much memory a
//! call takes that is a job.
//!
//! # Theory of operation
//!
//! One client over pipes stands in front of `unhang serve`, which stands in front of a server whose calls last as long as they are told.
//! Nobody can have the id before the moment of the hand-over, so that this is what a time is counted from. What is answered in time is
//! measured with two servers of one process, of which one has its calls promoted by the clock and the other never: calls of the one and of
//! the other take turns in small blocks, with a new process in each round.
//!
//! # Invariants
//!
//! - A figure counts only if what it is about went well: every slow call has to become a job, and no fast one may.
//! - Memory is that of the process that serves the client, and not the servers'.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::answers::PATIENCE;
use super::jobs::{self, JobLoadError, Place};
use super::samples::{difference, percentile, share};
use super::session::Session;
use super::{LoadError, SMALL, during};
use crate::corpus::Interrupted;
use crate::{keeper, signals};

/// After how long a call becomes a job here.
const PROMOTE_AFTER: Duration = Duration::from_millis(300);
/// What a call lasts that is looked at while it is handed over, in seconds.
const SOON: f64 = 2.0;
/// What one lasts that is to run until all has been looked at.
const LATER: f64 = 120.0;
/// What one lasts whose end is waited for.
const SHORT: f64 = 0.5;
/// Calls of one server before it is the other's turn.
const BLOCK: usize = 25;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowPlan {
    /// Slow calls whose hand-over is looked at, begun one after the other.
    pub calls: usize,
    /// From the beginning of one to that of the next.
    pub gap: Duration,
    /// Calls that are jobs at the same time.
    pub at_once: usize,
    /// How often calls that are answered in time are gone through.
    pub rounds: usize,
    /// Of each kind, before the measuring of a round begins.
    pub warm_up: usize,
    /// Of each kind, in each round.
    pub round_trips: usize,
}

impl SlowPlan {
    /// The plan whose figures mean something; a quarter of a minute.
    pub const FULL: SlowPlan = SlowPlan {
        calls: 100,
        // Longer than one takes, and all are begun and handed over before the first one ends.
        gap: Duration::from_millis(15),
        at_once: 500,
        // Many, since where the system puts the processes of a round is no merit of either server's.
        rounds: 25,
        warm_up: 500,
        round_trips: 1_000,
    };
    /// A plan that shows no more than that everything works.
    pub const QUICK: SlowPlan = SlowPlan {
        calls: 5,
        gap: Duration::from_millis(10),
        at_once: 20,
        rounds: 1,
        warm_up: 10,
        round_trips: 50,
    };
}

/// What one round found out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SlowRound {
    /// What calls take that are jobs. Once a run, and of promotion alone.
    pub promoted: Option<PromotedUse>,
    /// Half of the calls that are answered in time took at most as long.
    pub round_trip_p50: Duration,
}

/// What calls take that become jobs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PromotedUse {
    /// From the moment of the hand-over until the client has the id: half of them took at most as long.
    pub added_p50: Duration,
    /// All but a hundredth of them.
    pub added_p99: Duration,
    /// The same where many become jobs at the same moment.
    pub crowd_p99: Duration,
    /// Bytes of memory of each of those.
    pub call_bytes: f64,
}

/// What all rounds found out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SlowFigures {
    /// Where no call becomes a job.
    pub never: Vec<SlowRound>,
    /// Where they do by the clock.
    pub by_clock: Vec<SlowRound>,
}

/// Measures slow calls behind `program`, our own binary, with its data in a new folder in `parent`. `told` hears what is being done.
///
/// From here on SIGINT, SIGTERM and SIGHUP do not end this process by themselves: the run is cut short, clears up and says so.
///
/// # Errors
///
/// When one of those signals came, or something does not do what it should.
pub fn measure_slow(
    program: &str,
    parent: &Path,
    plan: &SlowPlan,
    mut told: impl FnMut(&str),
) -> Result<SlowFigures, JobLoadError> {
    signals::catch_every_end();
    let place = Place::make_bare(parent, program).map_err(during("the folder of the run"))?;
    let measured = measure_in(&Scene { program, place: &place }, plan, &mut told);
    drop(place);
    match signals::caught() {
        Some(signal) => Err(JobLoadError::Interrupted(Interrupted { signal })),
        None => measured.map_err(Into::into),
    }
}

fn measure_in(
    scene: &Scene<'_>,
    plan: &SlowPlan,
    told: &mut dyn FnMut(&str),
) -> Result<SlowFigures, LoadError> {
    told("slow calls, handed over ");
    let added = scene.added(plan).map_err(during("calls that are handed over"))?;
    told("slow calls, many at once ");
    let (crowd, call_bytes) = scene.at_once(plan).map_err(during("many calls that are jobs"))?;
    let promoted = PromotedUse {
        added_p50: percentile(&added, 50),
        added_p99: percentile(&added, 99),
        crowd_p99: percentile(&crowd, 99),
        call_bytes,
    };
    let mut figures = SlowFigures::default();
    for round in 1..=plan.rounds {
        told(&format!("slow calls, fast ones beside them, round {round} of {} ", plan.rounds));
        let [never, by_clock] = scene.in_time(plan).map_err(during("calls that are answered in time"))?;
        let of = |round_trip_p50| SlowRound { promoted: None, round_trip_p50 };
        figures.never.push(of(never));
        figures.by_clock.push(of(by_clock));
    }
    if let Some(first) = figures.by_clock.first_mut() {
        first.promoted = Some(promoted);
    }
    Ok(figures)
}

/// Where it all takes place.
struct Scene<'a> {
    program: &'a str,
    place: &'a Place,
}

/// The servers of calls that are answered in time, by what becomes of their calls.
const KINDS: [(&str, &str); 2] = [("never", "off"), ("clock", "by-clock")];

impl Scene<'_> {
    /// A session with `unhang serve` in front of these servers, with its data in this folder.
    fn serve(&self, data: &str, servers: &str) -> io::Result<Session> {
        jobs::go_on()?;
        let (data, configuration) = (self.place.path(data), self.place.path("slow.toml"));
        fs::write(&configuration, servers)?;
        let text = |path: &Path| {
            path.to_str()
                .map(str::to_owned)
                .ok_or_else(|| io::Error::other("the path of the folder is no text"))
        };
        let (data, configuration) = (text(&data)?, text(&configuration)?);
        let command = [self.program, "serve", "--own", "--stdio", "--config", &configuration];
        let mut session = Session::open_alone(&command.map(str::to_owned), ("UNHANG_HOME", &data), PATIENCE)?;
        // From the answer on the servers' tools are known.
        session.request("tools/list", "{}")?;
        session.answer()?;
        Ok(session)
    }

    fn slow(&self) -> String {
        let Self { program, .. } = self;
        let after = PROMOTE_AFTER.as_millis();
        format!(
            "[servers.srv]\ncommand = {program:?}\nargs = [\"zoo\", \"slow-answers\"]\nlimits.promote-after = \"{after}ms\"\n"
        )
    }

    /// How much later than the hand-over clients had their ids, sorted.
    fn added(&self, plan: &SlowPlan) -> io::Result<Vec<Duration>> {
        let mut session = self.serve("added", &self.slow())?;
        become_jobs(&mut session, SHORT, plan.calls / 10, plan.gap)?.ended(&mut session)?;
        let jobs = become_jobs(&mut session, SOON, plan.calls, plan.gap)?;
        session.close()?;
        Ok(jobs.added)
    }

    /// The same where many are handed over at the same moment, and the memory of each.
    fn at_once(&self, plan: &SlowPlan) -> io::Result<(Vec<Duration>, f64)> {
        let mut session = self.serve("at-once", &self.slow())?;
        // What the first ones need is needed once.
        become_jobs(&mut session, SHORT, plan.at_once / 10, Duration::ZERO)?.ended(&mut session)?;
        let before = session.resident_memory()?;
        let jobs = become_jobs(&mut session, LATER, plan.at_once, Duration::ZERO)?;
        let after = session.resident_memory()?;
        session.close()?;
        Ok((jobs.added, share(difference(after, before), plan.at_once)))
    }

    /// How long half of the calls took at most that are answered in time, in the order of [`KINDS`].
    fn in_time(&self, plan: &SlowPlan) -> io::Result<[Duration; 2]> {
        let server = |(name, after)| {
            format!(
                "[servers.{name}]\ncommand = {:?}\nargs = [\"zoo\", \"echoes\"]\nlimits.promote-after = \"{after}\"\n",
                self.program
            )
        };
        let mut session = self.serve("in-time", &KINDS.map(server).concat())?;
        let mut trips = [Vec::with_capacity(plan.round_trips), Vec::with_capacity(plan.round_trips)];
        for _ in 0..plan.warm_up.div_ceil(BLOCK) {
            block(&mut session, &mut trips, false)?;
        }
        trips.iter_mut().for_each(Vec::clear);
        for turn in 0..plan.round_trips.div_ceil(BLOCK) {
            jobs::go_on()?;
            block(&mut session, &mut trips, turn % 2 == 1)?;
        }
        session.close()?;
        Ok(trips.map(|mut trips| {
            trips.sort_unstable();
            percentile(&trips, 50)
        }))
    }
}

/// Calls of both kinds, one after the other; whose turn comes first is no advantage in the long run.
fn block(session: &mut Session, trips: &mut [Vec<Duration>; 2], is_turned: bool) -> io::Result<()> {
    let order = if is_turned { [1, 0] } else { [0, 1] };
    for kind in order {
        let name = KINDS[kind].0;
        let params = format!("{{\"name\":\"{name}__echo\",\"arguments\":{{\"bytes\":{SMALL}}}}}");
        for _ in 0..BLOCK {
            let sent = keeper::now();
            session.request("tools/call", &params)?;
            session.answer()?;
            trips[kind].push(sent.elapsed());
        }
    }
    Ok(())
}

/// Calls that have become jobs.
struct Jobs {
    ids: Vec<String>,
    /// How much later than the hand-over, sorted.
    added: Vec<Duration>,
}

impl Jobs {
    /// Waits until all of them have ended well.
    fn ended(&self, session: &mut Session) -> io::Result<()> {
        for id in &self.ids {
            let arguments = json!({"job_id": id, "wait_seconds": 15}).to_string();
            let (result, _) = jobs::call(session, "get_job_status", &arguments)?;
            let status = &result["structuredContent"]["status"];
            if status != "completed" {
                return Err(io::Error::other(format!("job {id} is {status} instead of completed")));
            }
        }
        Ok(())
    }
}

/// Makes so many calls that last so long, one in each gap, and waits until each is a job.
fn become_jobs(session: &mut Session, seconds: f64, count: usize, gap: Duration) -> io::Result<Jobs> {
    let (first, begin) = (session.next_id(), keeper::now());
    let (mut sent, mut due) = (Vec::with_capacity(count), begin);
    let mut jobs = Jobs { ids: Vec::with_capacity(count), added: Vec::with_capacity(count) };
    while jobs.ids.len() < count {
        let now = keeper::now();
        let is_to_send = sent.len() < count;
        if is_to_send && now >= due {
            jobs::go_on()?;
            // The same call again would join the job that it has become.
            let arguments = json!({"seconds": seconds, "label": first + sent.len() as u64});
            let params = format!("{{\"name\":\"srv__slow\",\"arguments\":{arguments}}}");
            sent.push(keeper::now());
            session.request("tools/call", &params)?;
            due += gap;
            continue;
        }
        let limit = if is_to_send { due.saturating_duration_since(now) } else { PATIENCE };
        let Some(line) = session.answer_line_within(limit)? else {
            if is_to_send {
                continue;
            }
            let waiting = count - jobs.ids.len();
            let told = format!("{waiting} calls of {count} are neither answered nor jobs after {PATIENCE:?}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, told));
        };
        let now = keeper::now();
        let place = line.id().and_then(|id| usize::try_from(id.checked_sub(first)?).ok());
        let sent = place.and_then(|place| sent.get(place)).ok_or(io::ErrorKind::InvalidData)?;
        let told = || io::Error::other(format!("a call that has not become a job: {}", line.beginning()));
        let message = line.message().ok_or_else(told)?;
        let id = &message["result"]["structuredContent"]["job_id"];
        jobs.ids.push(id.as_str().ok_or_else(told)?.to_owned());
        jobs.added.push(now.saturating_duration_since(*sent).saturating_sub(PROMOTE_AFTER));
    }
    jobs.added.sort_unstable();
    Ok(jobs)
}
