//! Processes of two containers on one data folder: they have the boot in common and no number of a process (F-04).

use rustix::process::Signal;
use unhang_jobs::{
    record::{EndReason, JobState},
    timestamp::JobTimestamp,
};
use unhang_proc::identity::{boot_id, kernel_boot};

use crate::common::{Bench, Helper, until};

/// The name of this boot in another container.
fn elsewhere() -> String {
    let name = format!("{}-1234567890", kernel_boot(&boot_id().unwrap()));
    assert_ne!(name, boot_id().unwrap());
    name
}

fn change(bench: &Bench, sql: &str) {
    let database = rusqlite::Connection::open(bench.folder.path().join("unhang.db")).unwrap();
    database.execute_batch(sql).unwrap();
}

#[tokio::test]
async fn f_04_a_job_that_another_container_was_to_start_is_started_and_not_lost() {
    let one_at_a_time = |options: &mut unhang_jobs::engine::EngineOptions| options.rules.max_concurrent = 1;
    let bench = Bench::with(one_at_a_time);
    let first = bench.submit("exec sleep 3600").await;
    bench.until(first, JobState::Running).await;
    let second = bench.submit("echo ran").await;
    bench.engine.clone().close().await.unwrap();
    // It has got a slot in another container, whose process is about to start its shim, and will not.
    change(
        &bench,
        &format!(
            "UPDATE boots SET id = '{0}';
             UPDATE jobs SET state = 'active', starts = 1, starter = json_object('boot_id', '{0}',
                 'process', json_object('pid', 7, 'start', 70), 'since', '{now}') WHERE id = '{second}';",
            elsewhere(),
            now = JobTimestamp::now(),
        ),
    );
    let bench = bench.reopen_with(one_at_a_time);
    let record = bench.end(second).await.record;
    assert_eq!(record.status, JobState::Completed, "{record:?}");
    assert_eq!(bench.stdout(second), "ran\n");
    bench.engine.cancel(first).await.unwrap();
}

#[tokio::test]
async fn f_04_a_job_that_runs_in_another_container_is_judged_by_its_lock() {
    let bench = Bench::new();
    let id = bench.submit("exec sleep 3600").await;
    bench.until(id, JobState::Running).await;
    let shim = until("its shim", || bench.shim(id)).await;
    let path = bench.job(id).join("run.json");
    let text = std::fs::read_to_string(&path).unwrap().replace(&boot_id().unwrap(), &elsewhere());
    assert!(text.contains(&elsewhere()), "{text}");
    std::fs::write(&path, text).unwrap();
    let bench = bench.reopen();
    assert_eq!(bench.engine.status(id).await.unwrap().record.status, JobState::Running);
    rustix::process::kill_process(shim, Signal::KILL).unwrap();
    let ending = bench.end(id).await.record.ending.unwrap();
    assert_eq!(ending.reason, Some(EndReason::ShimKilled));
}

/// The finding: its shim could not be signalled from there, and looked at no wish.
#[tokio::test]
async fn a_job_that_runs_in_another_container_is_cancelled_by_the_wish_in_its_folder() {
    let bench = Bench::new();
    let id = bench.submit("trap 'exit 3' TERM; while :; do sleep 0.01; done").await;
    bench.until(id, JobState::Running).await;
    until("its shim", || bench.shim(id)).await;
    let path = bench.job(id).join("run.json");
    let text = std::fs::read_to_string(&path).unwrap().replace(&boot_id().unwrap(), &elsewhere());
    let mut run: serde_json::Value = serde_json::from_str(&text).unwrap();
    run["shim"]["pid"] = (u32::MAX >> 1).into();
    std::fs::write(&path, run.to_string()).unwrap();
    let record = bench.engine.cancel(id).await.unwrap().record;
    let ending = record.ending.unwrap();
    assert_eq!((record.status, ending.exit_code, ending.reason), (JobState::Cancelled, Some(3), None));
}

#[tokio::test]
async fn f_04_a_call_that_is_waited_for_in_another_container_is_left_to_it() {
    let bench = Bench::new();
    let mut holder = Helper::once(&bench, &["hold"]);
    let id = holder.line().parse().unwrap();
    change(
        &bench,
        &format!(
            "UPDATE jobs SET record = json_set(record, '$.call.holder.boot_id', '{}') WHERE id = '{id}'",
            elsewhere()
        ),
    );
    let bench = bench.reopen();
    assert_eq!(bench.engine.status(id).await.unwrap().record.status, JobState::Running, "it is held");
    holder.kill().await;
    assert_eq!(bench.end(id).await.record.ending.unwrap().reason, Some(EndReason::UnhangEnded));
}
