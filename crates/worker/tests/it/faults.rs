//! Workers, supervisors and databases that go away in the middle of a job.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use unhang_jobs::{
    error::JobError,
    id::JobId,
    record::{EndReason, JobState},
    store::JobStore as _,
};
use unhang_zoo::private_postgres::ServerEnd;

use crate::common::{Cluster, LONG, is_alive, until};

const SHORT: Duration = Duration::from_secs(3);

/// Promise 7: the supervisor holds the job meanwhile, and the next worker goes on with the same lease.
#[tokio::test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
async fn a_killed_worker_is_followed_by_one_that_goes_on_with_its_jobs() {
    let cluster = Cluster::new("followed");
    let mut worker = cluster.worker("one", 2, LONG, LONG);
    let (running, ending) =
        (cluster.submit(&cluster.gated(), |_| {}).await, cluster.submit(&cluster.gated(), |_| {}).await);
    cluster.running(running).await;
    cluster.running(ending).await;
    worker.kill().await;
    // One ends while no worker is there.
    let work = cluster.starts();
    kill_process(Pid::from_raw(i32::try_from(work[1]).unwrap()).unwrap(), Signal::KILL).unwrap();
    let worker = cluster.worker("one", 2, LONG, LONG);
    let has_ended =
        |id: &JobId| cluster.ask(|store| store.get(*id).unwrap().unwrap().record.status.is_final());
    let ended = until("one has ended", || [running, ending].into_iter().find(has_ended)).await;
    assert_eq!(cluster.end(ended).await.record.ending.unwrap().signal, Some(9));
    cluster.open_gate();
    let other = if ended == running { ending } else { running };
    assert_eq!(cluster.end(other).await.record.status, JobState::Completed);
    assert_eq!(cluster.starts().len(), 2, "nothing began twice");
    let log = cluster.engine.results(other).await.unwrap().stdout_tail;
    assert_eq!(log, "begun\ndone\n", "what was copied before is not copied again");
    worker.stop().await;
}

/// A repeatable job is never in two places: its supervisor has killed it before another worker may have it.
#[tokio::test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
async fn a_repeatable_job_of_a_lost_worker_runs_again_elsewhere_and_its_first_work_is_dead_by_then() {
    let cluster = Cluster::new("repeatable");
    let mut lost = cluster.worker("lost", 1, SHORT, LONG);
    let id = cluster.submit(&cluster.gated(), |submission| submission.placement.is_repeatable = true).await;
    cluster.running(id).await;
    lost.kill().await;
    let other = cluster.worker("other", 1, SHORT, LONG);
    let starts = until("it begins again", || Some(cluster.starts()).filter(|starts| starts.len() == 2)).await;
    assert!(!is_alive(starts[0]), "the work of the lost worker still runs");
    assert!(is_alive(starts[1]));
    cluster.open_gate();
    let status = cluster.end(id).await;
    assert_eq!(status.record.status, JobState::Completed, "{status:?}");
    assert_eq!(
        cluster.engine.results(id).await.unwrap().stdout_tail,
        "begun\ndone\n",
        "of the second attempt"
    );
    // The lost worker comes back and finds that the job is another's.
    let back = cluster.worker("lost", 1, SHORT, LONG);
    until("it forgets the job", || {
        (!cluster.path("lost/worker").join(format!("{id}.json")).exists()).then_some(())
    })
    .await;
    assert_eq!(cluster.engine.status(id).await.unwrap().record.status, JobState::Completed);
    other.stop().await;
    back.stop().await;
}

/// A worker that stands still sends no heartbeat and kills nothing. Its supervisor does.
#[tokio::test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
async fn a_worker_that_stands_still_has_its_job_killed_by_the_supervisor() {
    let cluster = Cluster::new("still");
    let worker = cluster.worker("one", 1, SHORT, LONG);
    let id = cluster.submit(&cluster.gated(), |submission| submission.placement.is_repeatable = true).await;
    cluster.running(id).await;
    worker.signal(Signal::STOP);
    let first = cluster.starts()[0];
    until("its work is killed", || (!is_alive(first)).then_some(())).await;
    cluster
        .seen(id, "it is queued again or silent", |status| {
            (status.record.status == JobState::Queued || status.wait_reason.is_some()).then_some(())
        })
        .await;
    worker.signal(Signal::CONT);
    until("it begins again", || (cluster.starts().len() == 2).then_some(())).await;
    cluster.open_gate();
    assert_eq!(cluster.end(id).await.record.status, JobState::Completed);
    worker.stop().await;
}

/// A job that is not repeatable begins once, and its end is lost only after the long lease.
#[tokio::test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
async fn a_job_that_is_not_repeatable_is_lost_with_its_worker_and_never_begins_again() {
    let cluster = Cluster::new("once");
    let mut lost = cluster.worker("lost", 1, SHORT, SHORT);
    let id = cluster.submit(&cluster.gated(), |_| {}).await;
    cluster.running(id).await;
    lost.kill().await;
    let other = cluster.worker("other", 1, SHORT, SHORT);
    let ending = cluster.end(id).await.record.ending.unwrap();
    assert_eq!(ending.reason, Some(EndReason::WorkerLost), "{ending:?}");
    assert!(ending.detail.unwrap().contains("nobody knows how the job ended"));
    assert_eq!(cluster.starts().len(), 1);
    assert!(!is_alive(cluster.starts()[0]), "its own machine has killed it");
    other.stop().await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
async fn a_killed_supervisor_gives_a_repeatable_job_back_and_loses_any_other() {
    let cluster = Cluster::new("supervisor");
    let worker = cluster.worker("one", 2, SHORT, LONG);
    let once = cluster.submit(&cluster.gated(), |_| {}).await;
    cluster.running(once).await;
    let again =
        cluster.submit(&cluster.gated(), |submission| submission.placement.is_repeatable = true).await;
    cluster.running(again).await;
    for id in [once, again] {
        let supervisor = worker.supervisor(id).unwrap();
        kill_process(Pid::from_raw(i32::try_from(supervisor).unwrap()).unwrap(), Signal::KILL).unwrap();
    }
    let ended = cluster.end(once).await.record;
    assert_eq!((ended.status, ended.ending.unwrap().reason), (JobState::Lost, Some(EndReason::ShimKilled)));
    until("it begins again", || (cluster.starts().len() == 3).then_some(())).await;
    cluster.open_gate();
    assert_eq!(cluster.end(again).await.record.status, JobState::Completed);
    worker.stop().await;
}

/// While the database is away, work goes on and ends, and the end is told when the database is back. Nothing is restarted.
#[tokio::test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
async fn an_end_during_an_outage_of_the_database_is_told_afterwards() {
    let mut cluster = Cluster::new("outage");
    let worker = cluster.worker("one", 1, SHORT, LONG);
    let id = cluster.submit(&cluster.gated(), |_| {}).await;
    cluster.running(id).await;
    cluster.server.stop(ServerEnd::Killed);
    // The first one may have found its connection in order and broken off in the middle.
    let first = cluster.engine.submit(cluster.submission("true")).await.unwrap_err();
    assert!(matches!(first, JobError::Shared { .. } | JobError::SharedUncertain { .. }), "{first:?}");
    let refused = cluster.engine.submit(cluster.submission("true")).await.unwrap_err();
    assert!(matches!(refused, JobError::Shared { .. }), "{refused:?}");
    let text = refused.to_string();
    assert!(text.contains("127.0.0.1") && text.contains("Nothing was accepted"), "{text}");
    assert!(!text.contains(unhang_zoo::private_postgres::PASSWORD));
    cluster.open_gate();
    let work = cluster.starts()[0];
    until("the work has ended", || (!is_alive(work)).then_some(())).await;
    cluster.server.resume().unwrap();
    let status = cluster.end(id).await;
    assert_eq!(status.record.status, JobState::Completed, "{status:?}");
    assert_eq!(cluster.engine.results(id).await.unwrap().stdout_tail, "begun\ndone\n");
    assert_eq!(cluster.starts().len(), 1);
    worker.stop().await;
}

/// The worker ends before the database is back, and the next one tells the end.
#[tokio::test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
async fn an_end_that_no_worker_could_tell_is_told_by_the_next_one() {
    let mut cluster = Cluster::new("late");
    let mut worker = cluster.worker("one", 1, SHORT, LONG);
    let id = cluster.submit(&cluster.gated(), |_| {}).await;
    cluster.running(id).await;
    cluster.server.stop(ServerEnd::Killed);
    worker.kill().await;
    cluster.open_gate();
    let worker = cluster.worker("one", 1, SHORT, LONG);
    cluster.server.resume().unwrap();
    assert_eq!(cluster.end(id).await.record.status, JobState::Completed);
    assert_eq!(cluster.starts().len(), 1);
    worker.stop().await;
}
