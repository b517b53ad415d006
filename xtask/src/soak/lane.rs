//! One long-lived guard in front of one faulty server, watched while it works: what the parts `calls` and `restarts` have in
//! common.
//!
//! # Invariants
//!
//! - Samples are taken when nothing is in flight, so that they can be compared.
//! - A lane is over when its guard has exited with 0, everything was answered and no process is left.

use std::fs;
use std::time::Duration;

use crate::leftovers::Marker;

use super::client::{SoakClient, SoakTimeouts};
use super::faulty_servers::{self, CommandWords};
use super::ledger::WireTally;
use super::progress::PartProgress;
use super::samples::{ProcessSample, Series};
use super::session::{SessionFailure, SoakStage, demand_nothing_left, end_all};

/// How long a first answer or a new process may take on a busy machine.
const START: Duration = Duration::from_secs(30);

/// What a lane needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lane<'a> {
    pub(crate) name: &'static str,
    pub(crate) faulty_server: &'static str,
    pub(crate) flags: &'a [&'static str],
    /// Bytes of log that may lie on disk.
    pub(crate) log_limit: u64,
    pub(crate) timeouts: SoakTimeouts,
    pub(crate) seed: u64,
    /// How many calls or restarts there shall be.
    pub(crate) total: u64,
    /// Counted up as they are done.
    pub(crate) progress: &'a PartProgress,
}

/// What became of a lane.
#[derive(Debug, Default)]
pub(crate) struct LaneResult {
    pub(crate) tally: WireTally,
    pub(crate) guard: Series,
    pub(crate) lifeline: Series,
    pub(crate) restarts: u64,
}

/// A lane at work.
#[derive(Debug)]
pub(crate) struct LaneWork<'a> {
    pub(crate) lane: Lane<'a>,
    pub(crate) client: SoakClient,
    pub(crate) run: LaneResult,
}

impl LaneWork<'_> {
    /// Waits until nothing is in flight and looks at the guard and its lifeline.
    pub(crate) fn settle_and_sample(&mut self) -> Result<(), String> {
        self.client.settle()?;
        self.demand_there()?;
        self.run.guard.add(ProcessSample::take(self.client.guard.pid()));
        let below = self.client.guard.below(self.lane.faulty_server);
        self.run.lifeline.add(below.and_then(|(lifeline, _)| ProcessSample::take(lifeline)));
        Ok(())
    }

    /// Demands that the guard has not left.
    pub(crate) fn demand_there(&self) -> Result<(), String> {
        match self.client.guard.status() {
            None if !self.client.has_gone() => Ok(()),
            None => Err("the guard has closed its streams".to_owned()),
            Some(status) => Err(format!("the guard left by itself with {status}")),
        }
    }
}

/// Starts a guard, lets `work` use it, ends it and judges the whole.
pub(crate) fn drive(
    lane: Lane<'_>,
    stage: &SoakStage,
    work: impl FnOnce(&mut LaneWork<'_>) -> Result<(), String>,
) -> Result<LaneResult, SessionFailure> {
    let plainly = |what| SessionFailure { what, story: String::new() };
    let marker = Marker::unique();
    let room = stage.room(lane.name).map_err(plainly)?;
    let mut flags = lane.timeouts.flags();
    flags.extend(lane.flags.iter().map(|flag| (*flag).to_owned()));
    let log_limit = format!("{}B", lane.log_limit);
    flags.extend(["--name", lane.name, "--stderr-log", &log_limit].map(str::to_owned));
    let command_words = CommandWords { marker: marker.value(), folder: &room, lab: &stage.lab };
    let task =
        stage.wrap(&room, &marker, &flags, &faulty_servers::command(lane.faulty_server, command_words));
    let client = SoakClient::start(&task, true, "2025-11-25", lane.timeouts).map_err(plainly)?;
    let mut at_work = LaneWork { lane, client, run: LaneResult::default() };
    let outcome = begin(&mut at_work.client)
        .and_then(|()| work(&mut at_work))
        .and_then(|()| end(&mut at_work))
        .and_then(|()| demand_nothing_left(&marker))
        .and_then(|()| demand_bounded_log(stage, &lane));
    if let Err(what) = outcome {
        let story = at_work.client.guard.story();
        end_all(&marker);
        return Err(SessionFailure { what: format!("{}: {what}", lane.name), story });
    }
    let tally = at_work.client.ledger.into_tally();
    Ok(LaneResult { tally, ..at_work.run })
}

fn begin(client: &mut SoakClient) -> Result<(), String> {
    client.shake_hands();
    client.until("the handshake", START, SoakClient::is_greeted)?;
    client.say_initialized();
    Ok(())
}

/// Demands that the guard wrote a log, and no more of it than it may keep.
fn demand_bounded_log(stage: &SoakStage, lane: &Lane<'_>) -> Result<(), String> {
    let folder = stage.home().join("logs");
    let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let is_ours =
        |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(&format!("{}-", lane.name));
    let size: u64 =
        entries.flatten().filter(is_ours).filter_map(|entry| Some(entry.metadata().ok()?.len())).sum();
    let limit = lane.log_limit;
    if size > 0 && size <= limit {
        Ok(())
    } else {
        Err(format!("the log has {size} bytes; it may have up to {limit}"))
    }
}

fn end(work: &mut LaneWork<'_>) -> Result<(), String> {
    work.client.settle()?;
    work.demand_there()?;
    work.client.guard.close_input();
    let status = work.client.await_exit()?;
    if !status.success() {
        return Err(format!("the guard exited with {status} after the end of its input"));
    }
    work.client.ledger.demand_complete()?;
    work.run.guard.demand_flat("the guard")?;
    work.run.lifeline.demand_flat("the lifeline")
}
