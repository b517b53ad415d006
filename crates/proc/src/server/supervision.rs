//! The state of one supervised server: the reports so far, the progress of the stop, and the rescue if the lifeline fails.
//!
//! Invariants: [`Supervision::advance`] and [`Supervision::hear`] never wait. Events come in the order Started or Failed, Exited, Gone,
//! each at most once, and Gone always comes. Each request to keep has one event, Kept or NotKept, unless it was taken back before. A lifeline
//! that keeps something is not reaped at Gone: it stays until it is released or its owner has ended.

use std::{
    collections::VecDeque,
    io,
    os::fd::{BorrowedFd, OwnedFd},
    path::PathBuf,
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send},
    process::Pid,
};
use tokio::time::Instant;

use super::{Exit, LifelineReport, ServerEvent, SweptTree, command};
use crate::{
    identity::Identity,
    ladder::{Ladder, StopAction, StopTimeouts},
    lifeline_process::LifelineProcess,
    rescue::TreeRescue,
    spawn::{Process, SpawnError, reap_departed},
    sweep,
    system::{self, control_group},
    table::{ProcessEntry, descendants},
};

/// The pause between two tries to reap a lifeline that has said goodbye.
const REAP_PAUSE: Duration = Duration::from_millis(1);
/// The limit for a lifeline to exit after its goodbye; it has nothing else left to do.
const REAP_LIMIT: Duration = Duration::from_millis(500);
/// The length that no report reaches; a longer line is not a report.
const LONGEST_REPORT: usize = 8 * 1024;

#[derive(Debug)]
enum StopPhase {
    /// The lifeline is there, and we listen to it.
    Held,
    /// The lifeline has reported the end and is about to exit.
    Leaving {
        swept: SweptTree,
        until: Instant,
    },
    /// The lifeline failed, and we sweep by ourselves.
    Rescuing {
        rescue: TreeRescue,
        until: Instant,
    },
    Gone,
}

/// The next things that the owner has to do.
pub(super) struct SupervisionStep {
    pub(super) event: Option<ServerEvent>,
    /// Whether the lifeline may have something to say.
    pub(super) listens: bool,
    /// When to look again at the latest.
    pub(super) next: Option<Instant>,
}

/// What was asked of the lifeline and what it has answered.
#[derive(Debug, Default)]
struct Keeping {
    /// Requests whose answer has not come.
    asked: u32,
    /// Requests that were taken back before their answer has come.
    taken_back: u32,
    /// Whether the lifeline has what a holder needs.
    kept: bool,
}

#[derive(Debug)]
pub(super) struct Supervision {
    lifeline: LifelineProcess,
    /// The process that we started as the lifeline, after the lifeline has left it. It is about to exit.
    launcher: Option<Process>,
    program: PathBuf,
    lifeline_program: PathBuf,
    keeping: Keeping,
    phase: StopPhase,
    ladder: Ladder,
    origin: Instant,
    /// The start of a report whose end has not come yet.
    report_start: Vec<u8>,
    events: VecDeque<ServerEvent>,
    server: Option<Pid>,
    group: Option<PathBuf>,
    begun: bool,
    exited: bool,
}

impl Supervision {
    pub(super) fn new(
        lifeline: LifelineProcess,
        program: PathBuf,
        lifeline_program: PathBuf,
        stop_timeouts: StopTimeouts,
    ) -> Self {
        Self {
            lifeline,
            launcher: None,
            program,
            lifeline_program,
            keeping: Keeping::default(),
            phase: StopPhase::Held,
            ladder: Ladder::new(stop_timeouts),
            origin: Instant::now(),
            report_start: Vec::new(),
            events: VecDeque::new(),
            server: None,
            group: None,
            begun: false,
            exited: false,
        }
    }

    pub(super) fn begin_stop(&mut self, now: Instant) {
        self.ladder.begin(now - self.origin);
    }

    /// Returns the command to send, or `None` if it was sent before.
    pub(super) fn kill_now(&mut self, now: Instant) -> Option<u8> {
        self.ladder.kill(now - self.origin).then_some(command::KILL)
    }

    /// Notes that a lifeline has handed the server over. It stays until it is released, as one that keeps something.
    pub(super) fn was_handed_over(&mut self) {
        self.keeping.kept = true;
    }

    /// Notes that the lifeline was asked to keep something.
    pub(super) fn keep_asked(&mut self) {
        self.keeping.asked += 1;
    }

    /// Takes all requests to keep back. Returns the command to send, or `None` if there was no request.
    pub(super) fn release(&mut self) -> Option<u8> {
        let keeping = &mut self.keeping;
        let is_needed = keeping.kept || keeping.asked > 0;
        keeping.taken_back += std::mem::take(&mut keeping.asked);
        keeping.kept = false;
        is_needed.then_some(command::RELEASE)
    }

    /// Returns whether the lifeline has confirmed that it keeps everything.
    pub(super) fn is_kept(&self) -> bool {
        self.keeping.kept
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.server.map(|pid| pid.as_raw_nonzero().get().unsigned_abs())
    }

    pub(super) fn lifeline_pid(&self) -> u32 {
        self.lifeline.pid()
    }

    pub(super) fn lifelines(&self) -> Vec<Identity> {
        self.lifeline.identities()
    }

    pub(super) fn cpu_time(&self) -> Option<Duration> {
        if matches!(self.phase, StopPhase::Gone) || self.server.is_none() {
            return None;
        }
        if let Some(time) = self.group.as_deref().and_then(control_group::cpu_time) {
            return Some(time);
        }
        let table = system::table();
        let lifeline = self.lifeline.number_in(&table)?;
        let lifeline = table.iter().find(|entry| entry.pid == lifeline)?;
        let living: u64 = descendants(&table, lifeline.pid).iter().map(|entry| entry.ticks).sum();
        let ended = lifeline.reaped_ticks;
        let millis = (living + ended) * 1000 / rustix::param::clock_ticks_per_second().max(1);
        Some(Duration::from_millis(millis))
    }

    fn tree(&self) -> Vec<ProcessEntry> {
        if matches!(self.phase, StopPhase::Gone) {
            return Vec::new();
        }
        let table = system::table();
        self.lifeline.number_in(&table).map(|lifeline| descendants(&table, lifeline)).unwrap_or_default()
    }

    pub(super) fn processor_wait(&self) -> Duration {
        self.tree().iter().map(|entry| system::processor_wait(entry.pid)).sum()
    }

    /// Lists the processes of the tree whose stdin is the other end of this pipe.
    pub(super) fn holders(&self, pipe: BorrowedFd<'_>) -> Vec<u32> {
        let tree = self.tree();
        let holding = tree.iter().filter(|entry| system::reads_from(entry.pid, pipe));
        holding.map(|entry| entry.pid.as_raw_nonzero().get().unsigned_abs()).collect()
    }

    /// Reads the lifeline's reports. Returns `false` if there is nothing more at the moment.
    pub(super) fn hear(&mut self, link: &OwnedFd) -> bool {
        let mut buffer = [0; 1024];
        match recv(link, &mut buffer, RecvFlags::DONTWAIT) {
            Ok((0, _)) => self.lost(),
            Ok((count, _)) => self.read_report(buffer.get(..count).unwrap_or_default()),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return false,
            Err(_) => self.lost(),
        }
        true
    }

    fn read_report(&mut self, bytes: &[u8]) {
        self.report_start.extend(bytes);
        while let Some(end) = self.report_start.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.report_start.drain(..=end).collect();
            if let Some(report) = LifelineReport::parse(line.strip_suffix(b"\n").unwrap_or(&line)) {
                self.reported(report);
            }
        }
        self.report_start.truncate(LONGEST_REPORT);
    }

    fn reported(&mut self, report: LifelineReport) {
        match report {
            LifelineReport::Started { pid, tier, group } => {
                self.server = i32::try_from(pid).ok().and_then(Pid::from_raw);
                self.group = group;
                self.begun = true;
                self.events.push_back(ServerEvent::Started { pid, tier });
            }
            LifelineReport::Failed { errno } => {
                let source = io::Error::from_raw_os_error(errno);
                self.failed(SpawnError::Start { program: self.program.clone(), source });
            }
            LifelineReport::Exited(exit) => {
                self.ladder.server_ended(self.origin.elapsed());
                self.exited(exit);
            }
            LifelineReport::Kept(outcome) => self.answered(outcome),
            LifelineReport::Detached(detached) => {
                let before = std::mem::replace(&mut self.lifeline, LifelineProcess::Stranger(detached));
                if let LifelineProcess::Child(process) = before {
                    self.launcher = Some(process);
                }
            }
            LifelineReport::Gone(swept) if self.keeping.kept => self.gone(swept),
            LifelineReport::Gone(swept) => {
                self.phase = StopPhase::Leaving { swept, until: Instant::now() + REAP_LIMIT };
            }
        }
    }

    /// Notes an answer to the oldest request to keep.
    fn answered(&mut self, outcome: Result<(), i32>) {
        let keeping = &mut self.keeping;
        if keeping.taken_back > 0 {
            keeping.taken_back -= 1;
            return;
        }
        keeping.asked = keeping.asked.saturating_sub(1);
        keeping.kept |= outcome.is_ok();
        self.events.push_back(match outcome {
            Ok(()) => ServerEvent::Kept,
            Err(errno) => ServerEvent::NotKept(io::Error::from_raw_os_error(errno)),
        });
    }

    fn failed(&mut self, error: SpawnError) {
        if !self.begun {
            self.begun = true;
            self.exited = true;
            self.events.push_back(ServerEvent::Failed(error));
        }
    }

    fn exited(&mut self, exit: Exit) {
        if !self.exited {
            self.exited = true;
            self.events.push_back(ServerEvent::Exited(exit));
        }
    }

    /// Notes that the lifeline ended without a goodbye, because somebody killed it.
    fn lost(&mut self) {
        if matches!(self.phase, StopPhase::Held) {
            let source = io::Error::other("it ended before the server ran");
            self.failed(SpawnError::Shim { program: self.lifeline_program.clone(), source });
            self.rescue(Instant::now());
        }
    }

    fn rescue(&mut self, now: Instant) {
        self.keeping.kept = false;
        self.phase = StopPhase::Rescuing { rescue: TreeRescue::default(), until: now + sweep::LIMIT };
    }

    /// Does everything that is due, and returns the next step.
    pub(super) fn advance(&mut self, now: Instant, link: &OwnedFd) -> SupervisionStep {
        while let Some(action) = self.ladder.step(now - self.origin) {
            match action {
                StopAction::Terminate => tell(link, command::TERMINATE),
                StopAction::Kill => tell(link, command::KILL),
                StopAction::Abandon if matches!(self.phase, StopPhase::Held) => self.rescue(now),
                StopAction::Abandon => {}
            }
        }
        let pause = self.end(now);
        let event = self.events.pop_front();
        let next = match self.phase {
            StopPhase::Held => self.ladder.next().map(|at| self.origin + at),
            StopPhase::Leaving { .. } | StopPhase::Rescuing { .. } => Some(now + pause),
            StopPhase::Gone => None,
        };
        let next = if self.launcher_has_ended() { next } else { earliest(next, now + REAP_PAUSE) };
        SupervisionStep { event, listens: matches!(self.phase, StopPhase::Held), next }
    }

    /// Reaps the process that we started, unless it is the lifeline.
    fn launcher_has_ended(&mut self) -> bool {
        self.launcher.take_if(|launcher| launcher.try_reap().is_some());
        self.launcher.is_none()
    }

    /// Works towards the end, if the end has begun. Returns how long to wait before the next look.
    fn end(&mut self, now: Instant) -> Duration {
        match &mut self.phase {
            StopPhase::Leaving { swept, until } => {
                let swept = *swept;
                if self.lifeline.try_reap().is_some() {
                    self.gone(swept);
                } else if now >= *until {
                    self.rescue(now);
                }
                REAP_PAUSE
            }
            StopPhase::Rescuing { rescue, until } => {
                let done = rescue.round(&mut self.lifeline, self.group.as_ref());
                if !done && now < *until {
                    return sweep::PAUSE;
                }
                rescue.give_up(&mut self.lifeline);
                let (leaked, unkilled) = rescue.counts(self.server);
                self.gone(SweptTree { leaked, unkilled });
                sweep::PAUSE
            }
            StopPhase::Held | StopPhase::Gone => REAP_PAUSE,
        }
    }

    fn gone(&mut self, swept: SweptTree) {
        self.exited(Exit::Unknown);
        for _ in 0..std::mem::take(&mut self.keeping.asked) {
            let error = io::Error::other("the lifeline ended before it could keep the server's pipes");
            self.events.push_back(ServerEvent::NotKept(error));
        }
        self.events.push_back(ServerEvent::Gone(swept));
        self.phase = StopPhase::Gone;
        reap_departed();
    }
}

fn earliest(one: Option<Instant>, other: Instant) -> Option<Instant> {
    Some(one.map_or(other, |one| one.min(other)))
}

/// Sends a command. A lifeline that cannot take one more byte does not work, and is abandoned in its time.
pub(super) fn tell(link: &OwnedFd, command: u8) {
    let _ = send(link, &[command], SendFlags::DONTWAIT | system::NO_SIGNAL);
}

#[cfg(test)]
mod tests;
