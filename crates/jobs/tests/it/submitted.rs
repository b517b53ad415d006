//! What becomes of a submission while somebody makes the database anew: it is accepted, or it leaves nothing.

use std::{fs, path::Path, time::Duration};

use rustix::process::Signal;
use tokio::time::Instant;
use unhang_jobs::{engine::Engine, id::JobId, record::JobState, store::JobOwnerFilter};
use unhang_proc::deadline::Deadline;

use crate::common::{Bench, Helper, PATIENCE, open};

/// Leaves a line for each time that it runs.
const ONCE: &str = r#"echo ran >> "$UNHANG_JOB_DIR/../../../runs"; echo {} > "$UNHANG_JOB_DIR/results.json""#;

/// Tries to stop a submitter at the moment that is wanted.
const TRIES: usize = 100;

fn runs(folder: &Path) -> usize {
    fs::read_to_string(folder.join("runs")).unwrap_or_default().lines().count()
}

/// The one job whose folder has its orders in it; none where the submitter was faster than this look at it. The moment is short, so
/// nothing rests between two looks.
fn with_orders(folder: &Path, submitter: &mut Helper) -> Option<JobId> {
    let begin = Instant::now();
    while !submitter.has_ended() {
        for entry in fs::read_dir(folder.join("jobs")).into_iter().flatten().map(Result::unwrap) {
            if entry.path().join("launch.json").exists() {
                return entry.file_name().to_str().unwrap().parse().ok();
            }
        }
        assert!(begin.elapsed() < PATIENCE, "in vain: orders");
    }
    None
}

async fn list(engine: &Engine) -> Vec<JobId> {
    let listed = engine.list(None, JobOwnerFilter::Anybodys, 100).await.unwrap();
    listed.iter().map(|status| status.record.job_id).collect()
}

/// A submitter that was stopped with its folder full, and without the database in its hand: as long as it has that, everybody else is
/// told that it is busy.
async fn stopped() -> (Bench, Helper, JobId) {
    for _ in 0..TRIES {
        let bench = Bench::new();
        let mut submitter = Helper::once(&bench, &["submit", ONCE]);
        if let Some(id) = with_orders(bench.folder.path(), &mut submitter) {
            submitter.stop();
            if is_free(&bench) {
                return (bench, submitter, id);
            }
        }
        submitter.signal(Signal::CONT);
        while submitter.next_line().is_some() {}
    }
    panic!("in vain: a submitter between its orders and its row");
}

/// Whether nobody writes to the database.
fn is_free(bench: &Bench) -> bool {
    let database = rusqlite::Connection::open(bench.folder.path().join("unhang.db")).unwrap();
    database.busy_timeout(Duration::ZERO).unwrap();
    database.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_ok()
}

/// The job was accepted, has run once, and its record is there.
async fn ran_once(bench: &Bench, submitter: &mut Helper, id: JobId) {
    submitter.signal(Signal::CONT);
    assert_eq!(submitter.next_line().as_deref(), Some(id.as_str()), "it is told of its job");
    assert_eq!(submitter.next_line().as_deref(), Some("done"));
    let record = bench.end(id).await.record;
    assert_eq!(record.status, JobState::Completed, "{record:?}");
    assert_eq!(runs(bench.folder.path()), 1);
    assert_eq!(list(&bench.engine).await, [id]);
    assert!(bench.job(id).join("job.json").exists());
}

/// The finding: the table made anew knew the folder, the submitter was told that its id was taken, and removed the folder of the
/// running job.
#[tokio::test]
async fn who_makes_the_table_anew_takes_no_job_that_is_being_submitted() {
    for _ in 0..3 {
        let (bench, mut submitter, id) = stopped().await;
        bench.engine.rebuild().await.unwrap();
        ran_once(&bench, &mut submitter, id).await;
    }
}

#[tokio::test]
async fn a_database_that_is_removed_during_a_submission_has_the_job_all_the_same() {
    for _ in 0..5 {
        let (bench, mut submitter, id) = stopped().await;
        for name in ["unhang.db", "unhang.db-wal", "unhang.db-shm"] {
            let _not_all_are_there = fs::remove_file(bench.folder.path().join(name));
        }
        let Bench { folder, .. } = bench;
        let (engine, opened) = open(folder.path(), |_| {});
        let bench = Bench { folder, engine, opened };
        ran_once(&bench, &mut submitter, id).await;
    }
}

/// It was never accepted, or it was and is there for good.
#[tokio::test]
async fn a_submitter_that_was_killed_in_the_middle_leaves_no_job() {
    for _ in 0..5 {
        let (bench, submitter, id) = stopped().await;
        let was_accepted = !list(&bench.engine).await.is_empty();
        submitter.kill().await;
        bench.engine.rebuild().await.unwrap();
        match was_accepted {
            true => assert_eq!(bench.end(id).await.record.status, JobState::Completed),
            false => {
                assert_eq!(list(&bench.engine).await, []);
                assert_eq!(runs(bench.folder.path()), 0);
            }
        }
    }
}

/// The finding: it waited for ever, because it went on believing what it had seen last.
#[tokio::test]
async fn who_waits_for_a_job_that_is_removed_meanwhile_is_told_so() {
    let bench = Bench::new();
    let id = bench.submit("exec sleep 3600").await;
    bench.until(id, JobState::Running).await;
    let waiter = bench.engine.clone();
    let waiting = tokio::spawn(async move { waiter.wait(id, Deadline::after(PATIENCE)).await });
    tokio::task::yield_now().await;
    // Its end and its removal, between two looks.
    let database = rusqlite::Connection::open(bench.folder.path().join("unhang.db")).unwrap();
    database
        .execute_batch(&format!(
            "BEGIN IMMEDIATE; DELETE FROM jobs WHERE id = '{id}'; UPDATE counters SET value = value + 1 WHERE name = 'removals'; COMMIT"
        ))
        .unwrap();
    let error = waiting.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("has ended, and it was removed"), "{error}");
}

/// The table was made of the folders as they were before the job was accepted.
#[tokio::test]
async fn what_is_accepted_while_the_table_is_made_anew_stays() {
    let bench = Bench::new();
    let other = open(bench.folder.path(), |_| {}).0;
    let mut ids = Vec::new();
    for _ in 0..20 {
        let (rebuilt, submitted) =
            tokio::join!(other.rebuild(), bench.engine.submit(bench.submission("true")));
        rebuilt.unwrap();
        ids.push(submitted.unwrap().record.job_id);
    }
    for id in ids {
        assert_eq!(bench.end(id).await.record.status, JobState::Completed);
    }
}
