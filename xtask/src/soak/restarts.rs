//! The part `restarts`: one guard whose server dies again and again in every way, and one whose server leaves a daemon
//! behind each time.
//!
//! # Invariants
//!
//! - A restart counts when the next process has answered under the session that the client opened with the first.
//! - One answered request between two deaths keeps the breaker closed and the restart delay short, as for a server that is
//!   of some use.

use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use super::client::SoakTimeouts;
use super::lane::{Lane, LaneResult, LaneWork, drive};
use super::progress::PartProgress;
use super::random::Random;
use super::session::{SessionFailure, SoakStage};

const FLAGS: &[&str] = &["--restart-delay", "1ms", "--stop-grace", "200ms"];
/// Less than what the lanes make the servers and the guard say.
const LOG_LIMIT: u64 = 64 << 10;
/// For a hundred of these restarts, how many there are of the server with the daemon beside them.
const DAEMON_PERCENT: u64 = 10;
const SAMPLES: u64 = 100;
const PATIENCE: SoakTimeouts = SoakTimeouts {
    start: Duration::from_secs(20),
    request: Duration::from_secs(20),
    call: Duration::from_secs(20),
};

/// How many restarts with a daemon there are beside so many others.
pub(crate) fn beside(total: u64) -> u64 {
    (total * DAEMON_PERCENT / 100).max(10)
}

/// Runs both lanes side by side.
pub(crate) fn restarts(
    stage: &SoakStage,
    seed: u64,
    total: u64,
    progress: &PartProgress,
) -> Result<Vec<(&'static str, LaneResult)>, SessionFailure> {
    let dying = Lane {
        name: "dying",
        faulty_server: "well-behaved",
        flags: FLAGS,
        log_limit: LOG_LIMIT,
        timeouts: PATIENCE,
        seed,
        total,
        progress,
    };
    let leaving = Lane { name: "leaving", faulty_server: "leaves-daemon", total: beside(total), ..dying };
    thread::scope(|scope| {
        let daemons = scope.spawn(|| drive(leaving, stage, |work| deaths(work, kill)));
        let dying = drive(dying, stage, |work| deaths(work, die))?;
        let leaving = daemons.join().map_err(|_| SessionFailure::panicked())??;
        Ok(vec![("dying", dying), ("leaving", leaving)])
    })
}

fn deaths(
    work: &mut LaneWork<'_>,
    mut death: impl FnMut(&mut LaneWork<'_>, &mut Random) -> Result<(), String>,
) -> Result<(), String> {
    let mut random = Random::of(work.lane.seed, work.lane.total);
    let every = (work.lane.total / SAMPLES).max(1);
    for number in 0..work.lane.total {
        let before = server(work)?;
        death(work, &mut random)?;
        work.client.request("tools/list", json!({}));
        work.client.settle()?;
        work.demand_there()?;
        if server(work)? == before {
            return Err(format!("the server was not replaced after death {number}"));
        }
        work.run.restarts += 1;
        work.lane.progress.count(1)?;
        if number % every == 0 {
            work.settle_and_sample()?;
        }
        work.client.open.clear();
    }
    Ok(())
}

/// The server's process, which is there once it has answered.
fn server(work: &mut LaneWork<'_>) -> Result<u32, String> {
    let mut found = None;
    let faulty_server = work.lane.faulty_server;
    work.client.until("a server below the lifeline", PATIENCE.start, |client| {
        found = client.guard.below(faulty_server).map(|(_, server)| server);
        found.is_some()
    })?;
    found.ok_or_else(|| "there is no server below the lifeline".to_owned())
}

/// The server dies of itself or of a signal, with calls and lists in flight.
fn die(work: &mut LaneWork<'_>, random: &mut Random) -> Result<(), String> {
    for _ in 0..random.between(0, 5) {
        match random.between(1, 3) {
            1 => drop(work.client.call("sleep", &json!({"ms": 5000}), random.chance(50), None)),
            2 => drop(work.client.request("tools/list", json!({}))),
            _ => drop(work.client.call("stderr", &json!({"bytes": random.size(1, 20_000)}), false, None)),
        }
    }
    match random.between(1, 4) {
        1 => drop(work.client.call("die", &json!({"code": random.between(0, 120)}), false, None)),
        2 => {
            let signal = random.pick(&[Signal::KILL, Signal::SEGV, Signal::ABORT, Signal::TERM]);
            work.client.call("die-by-signal", &json!({"signal": signal.as_raw()}), false, None);
        }
        _ => {
            // Else the calls would come too late for this process and wait for the next.
            work.client.flush()?;
            return kill(work, random);
        }
    }
    Ok(())
}

/// The server is killed from outside.
fn kill(work: &mut LaneWork<'_>, _: &mut Random) -> Result<(), String> {
    let faulty_server = work.lane.faulty_server;
    let before = server(work)?;
    work.client.guard.signal_below(faulty_server, false, Signal::KILL);
    // What is asked before the guard knows is lost with the dead process, and answered so; this part asks the next one.
    work.client.until("the death of the server", PATIENCE.start, |client| {
        client.guard.below(faulty_server).is_none_or(|(_, server)| server != before)
    })
}
