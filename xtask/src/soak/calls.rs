//! The part `calls`: many calls through one guard in front of a fast server, and a few at the same time through another in
//! front of a server one of whose tools is stuck.
//!
//! # Invariants
//!
//! - Every result must show that it belongs to its own request.
//! - The largest messages have gone through before the first sample, so that the working size does not hang on when chance
//!   brings them: a short run has few of them.

use std::thread;
use std::time::Duration;

use serde_json::json;

use super::client::{SoakClient, SoakTimeouts};
use super::lane::{Lane, LaneResult, LaneWork, drive};
use super::progress::PartProgress;
use super::random::Random;
use super::session::{SessionFailure, SoakStage};

/// Of a hundred calls, how many go to the faulty server that is stuck.
const STUCK_PERCENT: u64 = 2;
/// Quiet moments in the course of a lane with many calls, and with few or slow ones.
const MOST_ROUNDS: u64 = 100;
const FEWEST_ROUNDS: u64 = 20;
/// Calls between two quiet moments, where there are as many.
const CALLS_A_ROUND: u64 = 500;
/// The longest text that is echoed, and the longest that is asked for, in bytes.
const LONGEST_ECHO: usize = 200_000;
const LONGEST_BIG: usize = 300_000;
/// How often both are asked for before the first quiet moment, and how many may be in flight then.
const WARM_UP: usize = 32;
const WARM_UP_IN_FLIGHT: usize = 8;
/// The one limit that calls to the stuck tool meet.
const STUCK_DEADLINE: Duration = Duration::from_millis(500);
/// Less than what the lanes make the servers say.
const LOG_LIMIT: u64 = 256 << 10;

/// Runs both lanes side by side.
pub(crate) fn calls(
    stage: &SoakStage,
    seed: u64,
    total: u64,
    progress: &PartProgress,
) -> Result<Vec<(&'static str, LaneResult)>, SessionFailure> {
    let timeouts =
        |call| SoakTimeouts { start: Duration::from_secs(10), request: Duration::from_secs(30), call };
    let stuck_total = total * STUCK_PERCENT / 100;
    let long = timeouts(Duration::from_secs(30));
    let fast = Lane {
        name: "fast",
        faulty_server: "well-behaved",
        flags: &[],
        log_limit: LOG_LIMIT,
        timeouts: long,
        seed,
        total: total - stuck_total,
        progress,
    };
    let short = timeouts(STUCK_DEADLINE);
    let stuck =
        Lane { name: "stuck", faulty_server: "never-answers", timeouts: short, total: stuck_total, ..fast };
    let many = (fast.total / CALLS_A_ROUND).clamp(FEWEST_ROUNDS, MOST_ROUNDS);
    thread::scope(|scope| {
        let beside = scope.spawn(|| drive(stuck, stage, |work| rounds(work, FEWEST_ROUNDS, call_stuck)));
        let fast = drive(fast, stage, |work| {
            warm_up(work)?;
            rounds(work, many, call_fast)
        })?;
        let stuck = beside.join().map_err(|_| SessionFailure::panicked())??;
        Ok(vec![("fast", fast), ("stuck", stuck)])
    })
}

/// Has the largest messages of [`call_fast`] go through.
fn warm_up(work: &mut LaneWork<'_>) -> Result<(), String> {
    let client = &mut work.client;
    for _ in 0..WARM_UP {
        client.call("echo", &json!({"text": "x".repeat(LONGEST_ECHO)}), false, None);
        client.call("big", &json!({"bytes": LONGEST_BIG}), false, None);
        while client.ledger.waiting() >= WARM_UP_IN_FLIGHT && !client.has_gone() {
            client.turn(Duration::from_millis(100))?;
        }
    }
    client.open.clear();
    client.settle()
}

/// Makes the lane's calls in so many rounds, with a sample after each.
fn rounds(
    work: &mut LaneWork<'_>,
    rounds: u64,
    mut call: impl FnMut(&mut SoakClient, &mut Random) -> usize,
) -> Result<(), String> {
    let mut random = Random::of(work.lane.seed, work.lane.total);
    for round in 0..rounds {
        let share = work.lane.total * (round + 1) / rounds - work.lane.total * round / rounds;
        let mut in_flight = 64;
        for number in 0..share {
            if number % 200 == 0 {
                in_flight = random.size(1, 256);
            }
            let window = call(&mut work.client, &mut random).min(in_flight);
            while work.client.ledger.waiting() >= window && !work.client.has_gone() {
                work.client.turn(Duration::from_millis(100))?;
            }
        }
        work.settle_and_sample()?;
        work.lane.progress.count(share)?;
    }
    Ok(())
}

/// Sends one call or another request; returns how many may be in flight behind it.
fn call_fast(client: &mut SoakClient, random: &mut Random) -> usize {
    match random.between(1, 1000) {
        1..=780 => echo(client, random, 200),
        781..=830 => echo(client, random, 16_000),
        831..=840 => echo(client, random, LONGEST_ECHO),
        841..=870 => drop(client.request("ping", json!({}))),
        871..=910 => drop(client.request("tools/list", json!({}))),
        911..=930 => drop(client.request("resources/read", json!({"uri": "zoo://numbers/3"}))),
        931..=945 => drop(client.request("prompts/list", json!({}))),
        946..=960 => drop(client.call("big", &json!({"bytes": random.size(1, LONGEST_BIG)}), false, None)),
        961..=970 => drop(client.call("log", &json!({"count": random.between(1, 20)}), false, None)),
        971..=980 => drop(client.call("no-such-tool", &json!({}), false, None)),
        981..=985 => drop(client.call("stderr", &json!({"bytes": random.size(1, 5000)}), false, None)),
        _ => {
            let id = client.call("sleep", &json!({"ms": random.between(1, 60)}), random.chance(50), None);
            if random.chance(70) {
                client.cancel(&id);
            }
        }
    }
    // What was sent leaves in whole windows; the list of what could be withdrawn is not used here.
    client.open.clear();
    256
}

fn call_stuck(client: &mut SoakClient, random: &mut Random) -> usize {
    if random.chance(50) {
        let id = client.call("stuck", &json!({}), random.chance(20), None);
        if random.chance(10) {
            client.cancel(&id);
        }
    } else {
        echo(client, random, 200);
    }
    client.open.clear();
    256
}

/// Calls `echo` with a text that no other request has.
fn echo(client: &mut SoakClient, random: &mut Random, most: usize) {
    let proof = format!("echo-{:016x}", random.next());
    let text = format!("{proof} {}", "x".repeat(random.size(0, most)));
    client.call("echo", &json!({"text": text}), false, Some(proof));
}
