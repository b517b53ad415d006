//! Jobs whose work may run until a lease is over, as a worker submits them.

use std::{fs, time::Duration};

use rustix::process::{Signal, kill_process};
use unhang_jobs::{
    error::JobError,
    id::JobId,
    record::{EndReason, JobState},
};
use unhang_proc::{deadline::Deadline, identity::since_boot};

use crate::common::Bench;

const HOUR: Duration = Duration::from_secs(3600);

/// A script that hears no SIGTERM and starts a second process that hears none either.
const DEAF: &str = "trap '' TERM; sh -c 'trap \"\" TERM; sleep 1000 & wait' & echo begun; wait; wait";

async fn leased(bench: &Bench, script: &str, length: Duration) -> JobId {
    let until = since_boot().unwrap() + length;
    bench.submit_with(script, |submission| submission.lease_until = Some(until)).await
}

#[tokio::test]
async fn work_whose_lease_is_over_is_killed_with_everything_that_it_started() {
    let bench = Bench::new();
    let id = leased(&bench, DEAF, Duration::from_secs(1)).await;
    let ending = bench.end(id).await.record.ending.unwrap();
    assert_eq!((ending.reason, ending.signal), (Some(EndReason::LeaseOver), Some(9)), "{ending:?}");
    assert_eq!(bench.alive(id), Vec::<String>::new());
}

#[tokio::test]
async fn a_lease_that_is_prolonged_lets_the_work_go_on() {
    let bench = Bench::new();
    let gate = bench.folder.path().join("gate");
    let script = format!("until [ -e {} ]; do sleep 0.01; done", gate.display());
    let id = leased(&bench, &script, Duration::from_secs(2)).await;
    bench.engine.prolong(id, since_boot().unwrap() + HOUR).await.unwrap();
    let later = bench.engine.wait(id, Deadline::after(Duration::from_secs(3))).await.unwrap();
    assert_eq!(later.record.status, JobState::Running, "its first lease is over: {later:?}");
    fs::write(gate, "").unwrap();
    assert_eq!(bench.end(id).await.record.status, JobState::Completed);
}

#[tokio::test]
async fn work_does_not_begin_after_its_lease() {
    let bench = Bench::new();
    let id = leased(&bench, "echo begun", Duration::ZERO).await;
    let status = bench.end(id).await;
    assert_eq!(status.record.ending.unwrap().reason, Some(EndReason::LeaseOver));
    assert_eq!(bench.stdout_if_any(id), None);
}

/// A worker that is told to give its job up does not wait for the end of the lease, nor for a supervisor that stands still.
#[tokio::test]
async fn a_lease_that_is_revoked_ends_the_work_at_once() {
    let bench = Bench::new();
    for stops_its_supervisor in [false, true] {
        let id = leased(&bench, DEAF, HOUR).await;
        let supervisor = bench.seen(id, "its supervisor", |_| bench.shim(id)).await;
        bench.seen(id, "its work", |_| bench.stdout_if_any(id).filter(|said| !said.is_empty())).await;
        if stops_its_supervisor {
            kill_process(supervisor, Signal::STOP).unwrap();
        }
        let ended = bench.engine.revoke(id).await.unwrap();
        assert_eq!(ended.record.status, JobState::Lost, "{ended:?}");
        assert_eq!(bench.alive(id), Vec::<String>::new());
        let again = bench.engine.revoke(id).await;
        assert!(matches!(again, Err(JobError::HasEnded { .. })), "{again:?}");
    }
}

#[tokio::test]
async fn a_job_that_waits_for_its_slot_never_begins_when_its_lease_is_revoked() {
    let bench = Bench::with(|options| options.rules.max_concurrent = 1);
    let gate = bench.folder.path().join("gate");
    let first = bench.submit(&format!("until [ -e {} ]; do sleep 0.01; done", gate.display())).await;
    let second = leased(&bench, "echo begun", HOUR).await;
    let late = bench.engine.revoke(second).await;
    assert!(matches!(late, Err(JobError::StillEnding { .. })), "its turn has not come: {late:?}");
    fs::write(gate, "").unwrap();
    bench.end(first).await;
    assert_eq!(bench.end(second).await.record.ending.unwrap().reason, Some(EndReason::LeaseOver));
    assert_eq!(bench.stdout_if_any(second), None);
}
