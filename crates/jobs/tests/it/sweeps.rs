//! What a process removes by itself when it opens the data folder.

use std::time::Duration;

use unhang_jobs::{engine::EngineOptions, id::JobId, record::JobState};
use unhang_proc::lock::is_held;

use crate::common::{Bench, until};

fn kept_for(options: &mut EngineOptions, time: Duration) {
    options.retention = time;
    options.retention_was_said = true;
}

/// A bench with a job that ended a moment ago, and nothing that follows it any more.
async fn with_one_that_ended(change: impl FnOnce(&mut EngineOptions)) -> (Bench, JobId) {
    let bench = Bench::with(change);
    let id = bench.run("true").await.record.job_id;
    until("its shim has gone", || (!is_held(&bench.job(id).join("lock")).unwrap()).then_some(())).await;
    (bench, id)
}

async fn until_gone(bench: &Bench, id: JobId) {
    until("it is removed", || (!bench.job(id).exists()).then_some(())).await;
}

#[tokio::test]
async fn f_06_what_is_due_is_removed_by_whoever_opens_the_folder_and_ends_at_once() {
    let (bench, old) = with_one_that_ended(|_| {}).await;
    let bench = bench.reopen_with(|options| kept_for(options, Duration::ZERO));
    bench.engine.clone().close().await.unwrap();
    until_gone(&bench, old).await;
    assert!(bench.engine.status(old).await.is_err());
    // What has not ended stays, however old it is.
    let bench = bench.reopen();
    let running = bench.submit("exec sleep 3600").await;
    bench.until(running, JobState::Running).await;
    let bench = bench.reopen_with(|options| kept_for(options, Duration::ZERO));
    bench.engine.clone().close().await.unwrap();
    assert_eq!(bench.engine.status(running).await.unwrap().record.status, JobState::Running);
    bench.engine.cancel(running).await.unwrap();
}

#[tokio::test]
async fn f_06_whoever_was_not_told_how_long_removes_nothing_that_another_keeps() {
    const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);
    let (bench, id) = with_one_that_ended(|options| kept_for(options, MONTH)).await;
    bench.engine.clone().close().await.unwrap();
    let bench = bench.reopen_with(|options| options.retention = Duration::ZERO);
    bench.engine.clone().close().await.unwrap();
    assert!(bench.engine.status(id).await.is_ok() && bench.job(id).exists());
}

#[tokio::test]
async fn f_07_a_clock_that_was_set_forward_removes_nothing() {
    const HOUR: Duration = Duration::from_secs(3600);
    let (bench, id) = with_one_that_ended(|options| kept_for(options, HOUR)).await;
    bench.engine.clone().close().await.unwrap();
    // To the others the clock now says two hours more than it would by the one that nobody sets, and the job is older than it may get.
    rusqlite::Connection::open(bench.folder.path().join("unhang.db"))
        .unwrap()
        .execute_batch(
            "UPDATE counters SET value = value - 7200000 WHERE name = 'clock_offset';
             UPDATE jobs SET completed_at = completed_at - 7200000;",
        )
        .unwrap();
    let mut bench = bench;
    for look in 0..2 {
        bench = bench.reopen_with(|options| kept_for(options, HOUR));
        bench.engine.clone().close().await.unwrap();
        assert!(bench.engine.status(id).await.is_ok() && bench.job(id).exists(), "at look {look}");
    }
    // Whoever asks for it has it removed.
    assert_eq!(bench.engine.prune(HOUR).await.unwrap().jobs, [id]);
}
