//! Calls that become jobs: how late their clients have the ids, what it costs those that are answered in time, and how much memory a
//! call takes that is a job.
//!
//! # Theory of operation
//!
//! One client over pipes stands in front of `unhang serve` or `unhang wrap`, which stands in front of a server whose calls last as long as
//! they are told. Nobody can have the id before the moment of the hand-over, so that this is what a time is counted from. What is answered in
//! time is measured with two servers, of which one has its calls promoted by the clock and the other never: behind one gateway, or behind a
//! guard each. Calls of the one and of the other take turns in small blocks, with new processes in each round, all on one processor.
//!
//! # Invariants
//!
//! - A figure counts only if what it is about went well: every slow call has to become a job, and no fast one may.
//! - Memory is that of the process that serves the client, or of its call holder, and not the servers'.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use unhang_demo_servers::{bounded_waits, processes};

use super::answers::PATIENCE;
use super::jobs::{self, JobLoadError, JobsFolder};
use super::one_processor::OneProcessor;
use super::samples::{difference, percentile, share};
use super::session::LoadSession;
use super::{LoadError, LoadPrograms, SMALL, during};
use crate::corpus::Interrupted;
use crate::signals;

/// After how long a call becomes a job here.
const PROMOTE_AFTER: Duration = Duration::from_millis(300);
/// What a call lasts that is looked at while it is handed over, in seconds.
const SOON: f64 = 2.0;
/// What one lasts that is to run until all has been looked at.
const LATER: f64 = 120.0;
/// What one lasts whose end is waited for. On a busy machine a write to the disk takes a good part of a second, and a call that ended
/// before that would be no job.
const SHORT: f64 = 1.2;
/// The name of a call holder in the table of processes.
const HOLDER: &str = "mcp-call-holder";
/// For how long the memory of a process stays the same that rests.
const AT_REST: Duration = Duration::from_secs(3);
/// Between two looks at a process.
const LOOK: Duration = Duration::from_millis(20);
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
        // Many, since the addresses that the processes of a round happen to have are no merit of either server's.
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
    pub many_p99: Duration,
    /// Bytes of memory of each of those.
    pub call_bytes: f64,
    /// Resident bytes of the call holder that goes on with one of them, once it rests.
    pub holder_bytes: u64,
}

/// What all rounds found out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SlowFigures {
    /// Where no call becomes a job.
    pub never: Vec<SlowRound>,
    /// Where they do by the clock.
    pub by_clock: Vec<SlowRound>,
    /// The same two behind guards.
    pub guarded: [Vec<SlowRound>; 2],
}

/// Measures slow calls behind `unhang`, with its data in a new folder in `parent`. `on_progress` hears what is being done.
///
/// From here on SIGINT, SIGTERM and SIGHUP do not end this process by themselves: the run is cut short, clears up and says so.
///
/// # Errors
///
/// When one of those signals came, or something does not do what it should.
pub fn measure_slow(
    programs: LoadPrograms<'_>,
    parent: &Path,
    plan: &SlowPlan,
    mut on_progress: impl FnMut(&str),
) -> Result<SlowFigures, JobLoadError> {
    signals::catch_every_end();
    let jobs_folder = JobsFolder::make_bare(parent, programs).map_err(during("the folder of the run"))?;
    let measured = measure_in(&SlowCallScene { programs, jobs_folder: &jobs_folder }, plan, &mut on_progress);
    drop(jobs_folder);
    match signals::caught() {
        Some(signal) => Err(JobLoadError::Interrupted(Interrupted { signal })),
        None => measured.map_err(Into::into),
    }
}

fn measure_in(
    scene: &SlowCallScene<'_>,
    plan: &SlowPlan,
    on_progress: &mut dyn FnMut(&str),
) -> Result<SlowFigures, LoadError> {
    let promoted = [
        scene.promoted(Promoter::Serve, plan, on_progress)?,
        scene.promoted(Promoter::Wrap, plan, on_progress)?,
    ];
    let mut figures = SlowFigures::default();
    let one_processor = OneProcessor::enter().map_err(during("one processor for all processes"))?;
    for round in 1..=plan.rounds {
        on_progress(&format!("slow calls, fast ones beside them, round {round} of {} ", plan.rounds));
        let of = |round_trip_p50| SlowRound { promoted: None, round_trip_p50 };
        let what = "calls that are answered in time";
        let [never, by_clock] = scene.in_time(plan).map_err(during(what))?.map(of);
        figures.never.push(never);
        figures.by_clock.push(by_clock);
        let guarded = scene.in_time_guarded(plan).map_err(during(what))?.map(of);
        figures.guarded.iter_mut().zip(guarded).for_each(|(rounds, round)| rounds.push(round));
    }
    drop(one_processor);
    for (rounds, promoted) in [&mut figures.by_clock, &mut figures.guarded[1]].into_iter().zip(promoted) {
        if let Some(first) = rounds.first_mut() {
            first.promoted = Some(promoted);
        }
    }
    Ok(figures)
}

/// Who makes jobs of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promoter {
    Serve,
    Wrap,
}

impl Promoter {
    fn name(self) -> &'static str {
        match self {
            Promoter::Serve => "serve",
            Promoter::Wrap => "wrap",
        }
    }

    /// What the client calls the slow tool.
    fn slow(self) -> &'static str {
        match self {
            Promoter::Serve => "srv__slow",
            Promoter::Wrap => "slow",
        }
    }

    /// What the client calls the tool that tells of a job.
    fn status(self) -> &'static str {
        match self {
            Promoter::Serve => "get_job_status",
            Promoter::Wrap => "unhang_get_job_status",
        }
    }

    /// What the client calls the tool that ends a job.
    fn terminate(self) -> &'static str {
        match self {
            Promoter::Serve => "terminate_job",
            Promoter::Wrap => "unhang_terminate_job",
        }
    }
}

/// Where it all takes place.
struct SlowCallScene<'a> {
    programs: LoadPrograms<'a>,
    jobs_folder: &'a JobsFolder,
}

/// The servers of calls that are answered in time, by what becomes of their calls.
const KINDS: [(&str, &str); 2] = [("never", "off"), ("clock", "by-clock")];

impl SlowCallScene<'_> {
    /// A session with this command of ours, with its data in this folder.
    fn open(&self, data: &str, command: &[&str]) -> io::Result<LoadSession> {
        jobs::go_on()?;
        let data = text(&self.jobs_folder.path(data))?;
        let command: Vec<String> =
            [self.programs.unhang].iter().chain(command).map(|word| (*word).to_owned()).collect();
        let mut session = LoadSession::open_alone(&command, ("UNHANG_HOME", &data), PATIENCE)?;
        // From the answer on the servers' tools are known.
        session.request("tools/list", "{}")?;
        session.answer()?;
        Ok(session)
    }

    /// A session with `unhang serve` in front of these servers.
    fn serve(&self, data: &str, servers: &str) -> io::Result<LoadSession> {
        let configuration = self.jobs_folder.path("slow.toml");
        fs::write(&configuration, servers)?;
        self.open(data, &["serve", "--own", "--stdio", "--config", &text(&configuration)?])
    }

    /// A session with `unhang wrap` in front of this faulty server.
    fn wrap(&self, data: &str, promote_after: &str, faulty_server: &str) -> io::Result<LoadSession> {
        let zoo = self.programs.zoo;
        self.open(data, &["wrap", "--promote-after", promote_after, "--", zoo, "zoo", faulty_server])
    }

    /// A session in which calls become jobs.
    fn promoting(&self, way: Promoter, data: &str) -> io::Result<LoadSession> {
        let (data, after) = (format!("{data}-{}", way.name()), format!("{}ms", PROMOTE_AFTER.as_millis()));
        let zoo = self.programs.zoo;
        match way {
            Promoter::Serve => self.serve(
                &data,
                &format!(
                    "[servers.srv]\ncommand = {zoo:?}\nargs = [\"zoo\", \"slow-answers\"]\nlimits.promote-after = \"{after}\"\n"
                ),
            ),
            Promoter::Wrap => self.wrap(&data, &after, "slow-answers"),
        }
    }

    /// What calls take here that become jobs.
    fn promoted(
        &self,
        way: Promoter,
        plan: &SlowPlan,
        on_progress: &mut dyn FnMut(&str),
    ) -> Result<PromotedUse, LoadError> {
        let name = way.name();
        on_progress(&format!("slow calls, handed over by `unhang {name}` "));
        let added = self.added(way, plan).map_err(during("calls that are handed over"))?;
        on_progress(&format!("slow calls, many at once behind `unhang {name}` "));
        let (many, call_bytes) = self.at_once(way, plan).map_err(during("many calls that are jobs"))?;
        Ok(PromotedUse {
            added_p50: percentile(&added, 50),
            added_p99: percentile(&added, 99),
            many_p99: percentile(&many, 99),
            call_bytes,
            holder_bytes: self.holder_at_rest(way).map_err(during("a call holder at rest"))?,
        })
    }

    /// How much later than the hand-over clients had their ids, sorted.
    fn added(&self, way: Promoter, plan: &SlowPlan) -> io::Result<Vec<Duration>> {
        let mut session = self.promoting(way, "added")?;
        become_jobs(&mut session, way, (SHORT, plan.calls / 10), plan.gap)?.ended(&mut session, way)?;
        let jobs = become_jobs(&mut session, way, (SOON, plan.calls), plan.gap)?;
        jobs.end(&mut session, way)?;
        session.close()?;
        Ok(jobs.added)
    }

    /// The same where many are handed over at the same moment, and the memory of each.
    fn at_once(&self, way: Promoter, plan: &SlowPlan) -> io::Result<(Vec<Duration>, f64)> {
        let mut session = self.promoting(way, "at-once")?;
        // What the first ones need is needed once.
        become_jobs(&mut session, way, (SHORT, plan.at_once / 10), Duration::ZERO)?
            .ended(&mut session, way)?;
        let before = session.resident_memory()?;
        let jobs = become_jobs(&mut session, way, (LATER, plan.at_once), Duration::ZERO)?;
        let after = session.resident_memory()?;
        jobs.end(&mut session, way)?;
        session.close()?;
        Ok((jobs.added, share(difference(after, before), plan.at_once)))
    }

    /// The resident memory of the call holder that goes on when the owner of a job is killed.
    fn holder_at_rest(&self, way: Promoter) -> io::Result<u64> {
        let mut session = self.promoting(way, "holder")?;
        become_jobs(&mut session, way, (LATER, 1), Duration::ZERO)?;
        session.kill();
        let data = text(&self.jobs_folder.path(&format!("holder-{}", way.name())))?;
        let begin = bounded_waits::now();
        let holder = loop {
            let found = processes::marked(&data);
            if let Some(holder) = found.into_iter().find(|process| process.name().as_deref() == Some(HOLDER))
            {
                break holder;
            }
            goes_on_until(begin + PATIENCE, "there is no call holder")?;
        };
        let (mut resident, mut since) = (0, bounded_waits::now());
        while since.elapsed() < AT_REST {
            let now = processes::resident_memory(holder.pid())?;
            if std::mem::replace(&mut resident, now) != now {
                since = bounded_waits::now();
            }
            goes_on_until(begin + PATIENCE, "the call holder does not come to rest")?;
        }
        // Its lifeline ends the server with it.
        let all = processes::marked(&data);
        holder.kill();
        for process in all {
            process.wait(PATIENCE)?;
        }
        Ok(resident)
    }

    /// How long half of the calls took at most that are answered in time, in the order of [`KINDS`].
    fn in_time(&self, plan: &SlowPlan) -> io::Result<[Duration; 2]> {
        let server = |(name, after)| {
            format!(
                "[servers.{name}]\ncommand = {:?}\nargs = [\"zoo\", \"echoes\"]\nlimits.promote-after = \"{after}\"\n",
                self.programs.zoo
            )
        };
        let mut session = self.serve("in-time", &KINDS.map(server).concat())?;
        let trips = in_turn(plan, |kind| round_trip(&mut session, &format!("{}__echo", KINDS[kind].0)))?;
        session.close()?;
        Ok(trips)
    }

    /// The same behind a guard each.
    fn in_time_guarded(&self, plan: &SlowPlan) -> io::Result<[Duration; 2]> {
        let [(_, never), (_, by_clock)] = KINDS;
        let mut sessions =
            [self.wrap("guarded", never, "echoes")?, self.wrap("guarded", by_clock, "echoes")?];
        let trips = in_turn(plan, |kind| round_trip(&mut sessions[kind], "echo"))?;
        let [one, other] = sessions;
        one.close()?;
        other.close()?;
        Ok(trips)
    }
}

/// Pauses between two looks at a process. Fails when the run is cut short, or with these words after this moment.
fn goes_on_until(limit: Instant, what: &str) -> io::Result<()> {
    jobs::go_on()?;
    if bounded_waits::now() >= limit {
        return Err(io::Error::new(io::ErrorKind::TimedOut, what));
    }
    bounded_waits::pause(LOOK);
    Ok(())
}

fn text(path: &Path) -> io::Result<String> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| io::Error::other("the path of the folder is no text"))
}

/// How long half of the calls of each kind took at most, which take turns; whose comes first is no advantage in the long run.
fn in_turn(
    plan: &SlowPlan,
    mut call: impl FnMut(usize) -> io::Result<Duration>,
) -> io::Result<[Duration; 2]> {
    let mut trips = [Vec::with_capacity(plan.round_trips), Vec::with_capacity(plan.round_trips)];
    let warm_up = plan.warm_up.div_ceil(BLOCK);
    for turn in 0..warm_up + plan.round_trips.div_ceil(BLOCK) {
        jobs::go_on()?;
        for kind in if turn % 2 == 0 { [0, 1] } else { [1, 0] } {
            for _ in 0..BLOCK {
                let trip = call(kind)?;
                if turn >= warm_up {
                    trips[kind].push(trip);
                }
            }
        }
    }
    Ok(trips.map(|mut trips| {
        trips.sort_unstable();
        percentile(&trips, 50)
    }))
}

/// How long a call of this tool takes.
fn round_trip(session: &mut LoadSession, tool: &str) -> io::Result<Duration> {
    let params = format!("{{\"name\":\"{tool}\",\"arguments\":{{\"bytes\":{SMALL}}}}}");
    let sent = bounded_waits::now();
    session.request("tools/call", &params)?;
    session.answer()?;
    Ok(sent.elapsed())
}

/// Calls that have become jobs.
struct Jobs {
    ids: Vec<String>,
    /// How much later than the hand-over, sorted.
    added: Vec<Duration>,
}

impl Jobs {
    /// Waits until all of them have ended well.
    fn ended(&self, session: &mut LoadSession, way: Promoter) -> io::Result<()> {
        for id in &self.ids {
            let arguments = json!({"job_id": id, "wait_seconds": 15}).to_string();
            let (result, _) = jobs::call(session, way.status(), &arguments)?;
            let status = &result["structuredContent"]["status"];
            if status != "completed" {
                return Err(io::Error::other(format!("job {id} is {status} instead of completed")));
            }
        }
        Ok(())
    }

    /// Ends those that run. They would go on without their guard.
    fn end(&self, session: &mut LoadSession, way: Promoter) -> io::Result<()> {
        for id in &self.ids {
            let params = json!({"name": way.terminate(), "arguments": {"job_id": id}}).to_string();
            session.request("tools/call", &params)?;
            // Some have ended already.
            session.answer()?;
        }
        Ok(())
    }
}

/// Makes so many calls that last so long, one in each gap, and waits until each is a job.
fn become_jobs(
    session: &mut LoadSession,
    way: Promoter,
    (seconds, count): (f64, usize),
    gap: Duration,
) -> io::Result<Jobs> {
    let (first, begin) = (session.next_id(), bounded_waits::now());
    let (mut sent, mut due) = (Vec::with_capacity(count), begin);
    let mut jobs = Jobs { ids: Vec::with_capacity(count), added: Vec::with_capacity(count) };
    while jobs.ids.len() < count {
        let now = bounded_waits::now();
        let is_to_send = sent.len() < count;
        if is_to_send && now >= due {
            jobs::go_on()?;
            // The same call again would join the job that it has become.
            let arguments = json!({"seconds": seconds, "label": first + sent.len() as u64});
            let params = format!("{{\"name\":\"{}\",\"arguments\":{arguments}}}", way.slow());
            sent.push(bounded_waits::now());
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
        let now = bounded_waits::now();
        let index = line.id().and_then(|id| usize::try_from(id.checked_sub(first)?).ok());
        let sent = index.and_then(|index| sent.get(index)).ok_or(io::ErrorKind::InvalidData)?;
        let told = || io::Error::other(format!("a call that has not become a job: {}", line.beginning()));
        let message = line.message().ok_or_else(told)?;
        let id = &message["result"]["structuredContent"]["job_id"];
        jobs.ids.push(id.as_str().ok_or_else(told)?.to_owned());
        jobs.added.push(now.saturating_duration_since(*sent).saturating_sub(PROMOTE_AFTER));
    }
    jobs.added.sort_unstable();
    Ok(jobs)
}
