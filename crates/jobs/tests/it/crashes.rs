//! What becomes of a job when a shim or a server is killed, at every point where that makes a difference (J-12, X-07).

use std::{fs, time::Duration};

use rustix::process::{Signal, kill_process};
use serde_json::json;
use unhang_jobs::{
    engine::JobStatus,
    folder::FileName,
    id::JobId,
    record::{EndReason, JobState, Patch},
    submission::Submission,
};
use unhang_proc::{
    lock::is_held,
    pressure::free_disk,
    spawn::{Launch, spawn},
};

use crate::common::{Bench, Home, Server, fixture, open_with_shim, until};

/// A job that leaves a line in `runs` each time it runs, and has a result for the state.
fn change(job: &mut Submission) {
    job.results = Some(FileName::new("results.json").unwrap());
    job.patch = Some(Patch { field: "answer".parse().unwrap(), pointer: None, is_shared: false });
}

const SCRIPT: &str = "echo run >> \"$UNHANG_JOB_DIR/runs\"; echo 42 > \"$UNHANG_JOB_DIR/results.json\"";

impl Bench {
    pub(crate) fn runs(&self, id: JobId) -> usize {
        fs::read_to_string(self.job(id).join("work/runs")).unwrap_or_default().lines().count()
    }

    /// The job's end with a shim that dies at this step, and the bench after it.
    async fn die_at(step: &str) -> (Self, JobId, JobStatus) {
        let folder = Home::new();
        let (engine, opened) = open_with_shim(folder.path(), step, |_| {});
        let bench = Self { folder, engine, opened };
        let id = bench.submit_with(SCRIPT, change).await;
        let status = bench.end(id).await;
        (bench, id, status)
    }
}

#[tokio::test]
async fn x_07_a_shim_that_dies_before_the_end_is_known_gives_lost_and_never_completed() {
    for (step, runs) in [("Begun", 0..=0), ("Spawned", 0..=1), ("Told", 0..=1), ("Ended", 1..=1)] {
        let (bench, id, status) = Bench::die_at(step).await;
        let ending = status.record.ending.unwrap();
        assert_eq!(
            (status.record.status, ending.reason),
            (JobState::Lost, Some(EndReason::ShimKilled)),
            "{step}"
        );
        assert!(runs.contains(&bench.runs(id)), "{step}: it ran {} times", bench.runs(id));
        assert_eq!(bench.engine.document("answer".parse().unwrap()).await.unwrap(), None, "{step}");
    }
}

#[tokio::test]
async fn j_48_a_shim_that_dies_after_the_end_loses_nothing_and_repeats_nothing() {
    for step in ["Recorded", "Settled", "HandedOver"] {
        let (bench, id, status) = Bench::die_at(step).await;
        assert_eq!(status.record.status, JobState::Completed, "{step}");
        assert_eq!(status.record.state_applied, Some(true), "{step}");
        let document = bench.engine.document("answer".parse().unwrap()).await.unwrap().unwrap();
        assert_eq!((document.value, bench.runs(id)), (json!(42), 1), "{step}");
    }
}

/// Whoever comes next starts it, and it runs once.
#[tokio::test]
async fn a_job_whose_shim_died_before_it_began_is_started_again() {
    for step in ["Alive", "Locked"] {
        let folder = Home::new();
        let (engine, opened) = open_with_shim(folder.path(), step, |_| {});
        let bench = Bench { folder, engine, opened };
        let id = bench.submit_with(SCRIPT, change).await;
        let bench = bench.reopen();
        let status = bench.end(id).await;
        assert_eq!((status.record.status, bench.runs(id)), (JobState::Completed, 1), "{step}");
    }
}

#[tokio::test]
async fn a_job_whose_shim_never_comes_up_fails_in_the_end() {
    let (_bench, _id, status) = Bench::die_at("Alive").await;
    let ending = status.record.ending.unwrap();
    assert_eq!((status.record.status, ending.reason), (JobState::Failed, Some(EndReason::StartFailed)));
}

#[tokio::test]
async fn the_next_job_is_started_by_another_where_the_shim_died_before_it_could() {
    let folder = Home::new();
    let (engine, opened) =
        open_with_shim(folder.path(), "Settled", |options| options.rules.max_concurrent = 1);
    let bench = Bench { folder, engine, opened };
    let first = bench.submit("true").await;
    let second = bench.submit("true").await;
    for id in [first, second] {
        assert_eq!(bench.end(id).await.record.status, JobState::Completed);
    }
}

#[tokio::test]
async fn j_95_jobs_outlive_a_killed_server_and_the_queue_drains_without_one() {
    let folder = Home::new();
    let scripts = ["echo a; sleep 0.2; echo b; exit 42", "echo c", "echo d", "echo e"];
    let ids = Server::start(folder.path(), 1, "none", &scripts).kill().await;
    // Nobody but the shims is there.
    let has_ended = |id: &JobId| folder.path().join("jobs").join(id.as_str()).join("exit.json").exists();
    until("all jobs end", || ids.iter().all(has_ended).then_some(())).await;
    let (engine, opened) = open_with_shim(folder.path(), "none", |_| {});
    let bench = Bench { folder, engine, opened };
    let mut seen = Vec::new();
    for id in ids {
        let status = bench.end(id).await;
        seen.push((status.record.status, status.record.ending.unwrap().exit_code, bench.stdout(id)));
    }
    let ended = |state, code, text: &str| (state, Some(code), text.to_owned());
    assert_eq!(
        seen,
        [
            ended(JobState::Failed, 42, "a\nb\n"),
            ended(JobState::Completed, 0, "c\n"),
            ended(JobState::Completed, 0, "d\n"),
            ended(JobState::Completed, 0, "e\n"),
        ]
    );
}

#[tokio::test]
async fn j_92_a_running_job_is_taken_up_again_by_the_next_server() {
    let folder = Home::new();
    let gate = folder.path().join("gate");
    let script = format!("echo here; until [ -e {} ]; do sleep 0.01; done; echo there", gate.display());
    let ids = Server::start(folder.path(), 2, "none", &[&script]).kill().await;
    let (engine, opened) = open_with_shim(folder.path(), "none", |_| {});
    let bench = Bench { folder, engine, opened };
    let status = bench.until(ids[0], JobState::Running).await;
    assert!(status.record.started_at.is_some());
    fs::write(gate, "").unwrap();
    let status = bench.end(ids[0]).await;
    assert_eq!((status.record.status, bench.stdout(ids[0]).as_str()), (JobState::Completed, "here\nthere\n"));
    assert!(status.elapsed() < Duration::from_secs(60));
}

/// Also where whoever accepted the job was killed before its record was copied.
#[tokio::test]
async fn j_35_the_record_is_in_the_folder_before_the_work_starts() {
    let bench = Bench::with(|options| options.rules.max_concurrent = 1);
    let gate = bench.folder.path().join("gate");
    let first = bench.submit(&format!("until [ -e {} ]; do sleep 0.01; done", gate.display())).await;
    let script = "cat \"$UNHANG_JOB_DIR/../job.json\"";
    let (copied, missing) = (bench.submit(script).await, bench.submit(script).await);
    for id in [copied, missing] {
        bench.copied(id, JobState::Queued).await;
    }
    fs::remove_file(bench.job(missing).join("job.json")).unwrap();
    fs::write(gate, "").unwrap();
    for id in [copied, missing] {
        bench.end(id).await;
        let record: serde_json::Value = serde_json::from_str(&bench.stdout(id)).unwrap();
        assert_eq!((&record["job_id"], &record["status"]), (&json!(id), &json!("queued")));
    }
    bench.end(first).await;
}

/// Two shims may be started for one job, where the first one is slow to come up. The first has died before the work ran, so that
/// only what it wrote down keeps the second from it.
#[tokio::test]
async fn work_that_may_have_begun_is_not_begun_again() {
    let folder = Home::new();
    let id = Server::start(folder.path(), 1, "Begun", &[SCRIPT]).kill().await[0];
    let job = folder.path().join("jobs").join(id.as_str());
    until("its shim has died", || (!is_held(&job.join("lock")).unwrap()).then_some(())).await;
    let (program, arguments) = (fixture(), ["shim".into(), "none".into(), id.as_str().into()]);
    let mut second = spawn(Launch { folder: Some(&job), ..Launch::new(&program, &arguments) }).unwrap();
    until("the second shim has gone", || second.try_reap()).await;
    assert!(!job.join("work/runs").exists());
}

/// The disk is full when the first job ends, and no server is there.
#[tokio::test]
async fn a_shim_that_cannot_hand_over_stays_until_there_is_room() {
    // Others use the disk too.
    const MARGIN: u64 = 512 << 20;
    let folder = Home::new();
    let free = free_disk(folder.path()).unwrap();
    let (engine, opened) = open_with_shim(folder.path(), "none", |options| {
        options.rules.max_concurrent = 1;
        options.rules.disk_reserve = free - MARGIN;
    });
    let bench = Bench { folder, engine, opened };
    let wait = |gate: &str| format!("until [ -e {gate} ]; do sleep 0.01; done");
    let script = &format!("{}; fallocate -l 1G large; {}", wait("fill"), wait("gate"));
    let (first, second) = (bench.submit(script).await, bench.submit("true").await);
    let (first, second) = (bench.job(first), bench.job(second));
    let Bench { folder, engine, .. } = bench;
    let path = |name: &str| folder.path().join(name);
    fs::write(path("fill"), "").unwrap();
    until("the disk is full", || path("large").exists().then_some(())).await;
    drop(engine);
    fs::write(path("gate"), "").unwrap();
    until("the first job ends", || first.join("exit.json").exists().then_some(())).await;
    until("its shim waits for room", || is_held(&path("queue.lock")).unwrap().then_some(())).await;
    assert!(!second.join("run.json").exists());
    fs::remove_file(path("large")).unwrap();
    until("the second job ends", || second.join("exit.json").exists().then_some(())).await;
}

/// A program that ends takes a round with it that has given a job a slot and not yet a shim.
#[tokio::test]
async fn an_engine_that_is_closed_first_gives_a_shim_to_whatever_it_has_given_a_slot() {
    let Bench { engine, folder, opened } = Bench::with(|options| options.rules.max_concurrent = 1);
    let bench = Bench { engine: engine.clone(), folder, opened };
    let first = bench.submit("exec sleep 3600").await;
    let second = bench.submit("true").await;
    let shim = until("its shim", || bench.shim(first)).await;
    // The round that finds the first one dead, and gives its slot to the second, waits for this.
    let mut database = rusqlite::Connection::open(bench.folder.path().join("unhang.db")).unwrap();
    let busy = database.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
    kill_process(shim, Signal::KILL).unwrap();
    let exit = |id: JobId| bench.job(id).join("exit.json").exists().then_some(());
    until("the end of the first is known", || exit(first)).await;
    let mut closing = tokio::spawn(engine.close());
    let early = tokio::time::timeout(Duration::from_millis(200), &mut closing).await;
    assert!(early.is_err(), "it is closed in the middle of a round: {early:?}");
    drop(busy);
    closing.await.unwrap().unwrap();
    until("the second ends, with nobody there but its shim", || exit(second)).await;
}
