//! Workers, supervisors and databases that go away in the middle of a job.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use unhang_jobs::{
    engine::{Engine, EngineOptions},
    error::JobError,
    id::JobId,
    record::{EndReason, JobState},
    shims::ShimCommand,
    store::JobStore as _,
};
use unhang_proc::deadline::Deadline;
use unhang_zoo::private_postgres::ServerEnd;

use crate::common::{Cluster, LONG, PATIENCE, is_alive, until};

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
    let log = cluster.engine.results(id).await.unwrap().stdout_tail;
    assert_eq!(log, "begun\nbegun\ndone\n", "the log of the second attempt follows that of the first");
    // The lost worker comes back and finds that the job is another's.
    let back = cluster.worker("lost", 1, SHORT, LONG);
    cluster.forgotten("lost", id).await;
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
    assert!(text.contains("127.0.0.1") && text.contains("nothing was accepted"), "{text}");
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

/// Two data folders of one machine stand for two machines here, so the processes of both attempts can be seen by each worker.
#[tokio::test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
async fn a_worker_that_comes_back_leaves_the_attempt_of_another_worker_alone() {
    let cluster = Cluster::new("attempts");
    let mut lost = cluster.worker("lost", 1, SHORT, LONG);
    let id = cluster.submit(&cluster.gated(), |submission| submission.placement.is_repeatable = true).await;
    cluster.running(id).await;
    let supervisor = lost.supervisor(id).unwrap();
    lost.kill().await;
    // Its watcher first: it would end the work.
    for pid in [parent(supervisor), supervisor] {
        kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), Signal::KILL).unwrap();
    }
    let other = cluster.worker("other", 1, SHORT, LONG);
    until("it begins again", || (cluster.starts().len() == 2).then_some(())).await;
    let back = cluster.worker("lost", 1, SHORT, LONG);
    cluster.forgotten("lost", id).await;
    assert!(is_alive(cluster.starts()[1]), "the second attempt was ended");
    cluster.open_gate();
    assert_eq!(cluster.end(id).await.record.status, JobState::Completed);
    other.stop().await;
    back.stop().await;
}

/// A cancelled job does not begin again, although its worker is lost before it hears of the wish.
#[tokio::test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
async fn a_repeatable_job_that_was_cancelled_does_not_begin_again_when_its_worker_is_lost() {
    let cluster = Cluster::new("cancelled");
    let mut lost = cluster.worker("lost", 1, SHORT, LONG);
    let id = cluster.submit(&cluster.gated(), |submission| submission.placement.is_repeatable = true).await;
    cluster.running(id).await;
    lost.kill().await;
    assert!(cluster.ask(|store| store.want_cancel(id).unwrap()));
    let other = cluster.worker("other", 1, SHORT, LONG);
    let ended = cluster.end(id).await.record;
    assert_eq!(ended.status, JobState::Cancelled, "{ended:?}");
    assert!(ended.started_at.is_some(), "it ran");
    assert_eq!(cluster.starts().len(), 1);
    other.stop().await;
}

/// Rows that a newer unhang wrote, or that somebody damaged, keep no other job waiting.
#[tokio::test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
async fn a_job_whose_record_cannot_be_read_keeps_no_other_waiting() {
    let cluster = Cluster::new("unreadable");
    let mut unreadable = Vec::new();
    for record in
        ["{", "replace(record, '\"format\":2', '\"format\":99')", "replace(record, id, 'aaaaaaaaaaaa')"]
    {
        let id = cluster.submit("true", |_| {}).await;
        let value = if record == "{" { "'{'" } else { record };
        cluster.execute(&format!("UPDATE unhang.jobs SET record = {value} WHERE id = '{id}'")).await;
        unreadable.push(id);
    }
    let good = cluster.submit("true", |_| {}).await;
    let worker = cluster.worker("one", 1, LONG, LONG);
    assert_eq!(cluster.end(good).await.record.status, JobState::Completed);
    for id in unreadable {
        let error = cluster.engine.status(id).await.unwrap_err().to_string();
        assert!(error.contains("cannot be read") && error.contains("newer unhang"), "{error}");
    }
    worker.stop().await;
}

/// Whoever tidies up on the worker's machine removes no end that the store does not have yet.
#[tokio::test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
async fn an_end_that_the_store_does_not_have_yet_cannot_be_removed() {
    let mut cluster = Cluster::new("undelivered");
    let mut worker = cluster.worker("one", 1, SHORT, LONG);
    let id = cluster.submit(&cluster.gated(), |_| {}).await;
    cluster.running(id).await;
    cluster.server.stop(ServerEnd::Killed);
    worker.kill().await;
    cluster.open_gate();
    let options = EngineOptions::new(cluster.path("one"), ShimCommand::this_program());
    let (own, _) = Engine::open(options).unwrap();
    own.wait(id, Deadline::after(PATIENCE)).await.unwrap();
    let refused = own.remove(id).await;
    assert!(matches!(refused, Err(JobError::OfWorker(job)) if job == id), "{refused:?}");
    assert_eq!(own.prune(Duration::ZERO).await.unwrap().jobs, []);
    own.close().await.unwrap();
    let worker = cluster.worker("one", 1, SHORT, LONG);
    cluster.server.resume().unwrap();
    assert_eq!(cluster.end(id).await.record.status, JobState::Completed);
    worker.stop().await;
}

/// The process that started this one.
fn parent(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.split_whitespace().nth(1).unwrap().parse().unwrap()
}
