//! Damage in one job's folder concerns that job, and nothing else.

use std::{fs, os::unix::fs::symlink, path::Path};

use rustix::process::{Signal, kill_process};
use unhang_jobs::{
    engine::Engine,
    id::JobId,
    record::{EndReason, JobState},
    store::JobOwnerFilter,
};

use crate::common::{Bench, open, options, until};

/// What was done to a job's folder while its shim was there.
type Damage = (&'static str, fn(&Path));

fn in_the_place_of(path: &Path, put: impl FnOnce(&Path)) {
    let aside = path.with_extension("aside");
    fs::rename(path, &aside).unwrap();
    put(path);
}

/// Where a link leads that somebody has put in our way.
fn elsewhere(job: &Path) -> std::path::PathBuf {
    job.parent().unwrap().parent().unwrap().join("elsewhere")
}

const DAMAGES: [Damage; 9] = [
    ("a folder as lock", |job| in_the_place_of(&job.join("lock"), |lock| fs::create_dir(lock).unwrap())),
    ("a link as lock", |job| {
        in_the_place_of(&job.join("lock"), |lock| symlink(elsewhere(job).join("lock"), lock).unwrap());
    }),
    ("a link in a circle as lock", |job| {
        in_the_place_of(&job.join("lock"), |lock| symlink(lock, lock).unwrap());
    }),
    ("a folder as exit.json", |job| fs::create_dir_all(job.join("exit.json/full")).unwrap()),
    ("a link as exit.json", |job| symlink(elsewhere(job).join("exit.json"), job.join("exit.json")).unwrap()),
    ("a folder as run.json", |job| {
        in_the_place_of(&job.join("run.json"), |run| fs::create_dir(run).unwrap());
    }),
    ("no JSON in run.json", |job| fs::write(job.join("run.json"), "{").unwrap()),
    ("a file as the job's folder", |job| in_the_place_of(job, |job| fs::write(job, "in the way").unwrap())),
    ("a link as the job's folder", |job| in_the_place_of(job, |job| symlink(elsewhere(job), job).unwrap())),
];

async fn list(engine: &Engine) -> Vec<JobId> {
    let listed = engine.list(None, JobOwnerFilter::Anybodys, 100).await.unwrap();
    listed.iter().map(|status| status.record.job_id).collect()
}

/// The finding: `open`, `list` and `rebuild` of every process failed for ever.
#[tokio::test]
async fn f_01_damage_in_one_folder_settles_that_job_and_stops_no_other() {
    for (what, damage) in DAMAGES {
        let bench = Bench::with(|options| options.rules.max_concurrent = 1);
        let target = bench.folder.path().join("elsewhere");
        fs::create_dir(&target).unwrap();
        let id = bench.submit("exec sleep 3600").await;
        let shim = until("its shim", || bench.shim(id)).await;
        let waiting = bench.submit("echo mine").await;
        let Bench { folder, engine, .. } = bench;
        engine.close().await.unwrap();
        let job = folder.path().join("jobs").join(id.as_str());
        kill_process(shim, Signal::STOP).unwrap();
        damage(&job);
        kill_process(shim, Signal::KILL).unwrap();
        let (engine, opened) = open(folder.path(), |options| options.rules.max_concurrent = 1);
        let bench = Bench { folder, engine, opened };
        let ending = bench.end(id).await.record.ending.unwrap();
        assert!(
            matches!(ending.reason, Some(EndReason::ShimKilled | EndReason::RecordDamaged)),
            "{what}: {ending:?}"
        );
        assert_eq!(
            bench.end(waiting).await.record.status,
            JobState::Completed,
            "{what}: the next in the queue"
        );
        assert_eq!(list(&bench.engine).await.len(), 2, "{what}");
        assert_eq!(bench.alive(id), [""; 0], "{what}");
        let rebuilt = bench.engine.rebuild().await.unwrap();
        assert!(rebuilt.jobs + rebuilt.damaged.len() == 2, "{what}: {rebuilt:?}");
        assert_eq!(
            fs::read_dir(&target).unwrap().count(),
            0,
            "{what}: nothing is written where a link leads"
        );
        assert_eq!(bench.run("true").await.record.status, JobState::Completed, "{what}: another job");
    }
}

/// Somebody has replaced the lock while the shim lives, which goes on holding the one that was there.
#[tokio::test]
async fn f_01_a_job_whose_lock_is_replaced_while_its_shim_lives_goes_on_and_ends_as_it_ends() {
    for (what, damage) in &DAMAGES[..3] {
        let bench = Bench::new();
        let gate = bench.folder.path().join("gate");
        let id = bench.submit(&format!("until [ -e {} ]; do sleep 0.01; done; exit 7", gate.display())).await;
        let shim = until("its shim", || bench.shim(id)).await;
        damage(&bench.job(id));
        let bench = bench.reopen();
        assert_eq!(bench.run("true").await.record.status, JobState::Completed, "{what}");
        assert_eq!(bench.shim(id), Some(shim), "{what}: no other shim has taken it");
        assert!(!bench.engine.status(id).await.unwrap().record.status.is_final(), "{what}");
        fs::write(gate, "").unwrap();
        assert_eq!(bench.end(id).await.record.ending.unwrap().exit_code, Some(7), "{what}");
    }
}

/// A job in the queue, whose files the first engine of a boot writes anew, and another behind it.
#[tokio::test]
async fn f_01_a_queued_job_whose_folder_cannot_be_made_keeps_no_other_from_its_turn() {
    let bench = Bench::with(|options| options.rules.max_concurrent = 1);
    let first = bench.submit("exec sleep 3600").await;
    bench.until(first, JobState::Running).await;
    let (blocked, behind) = (bench.submit("true").await, bench.submit("true").await);
    let Bench { folder, engine, .. } = bench;
    engine.close().await.unwrap();
    let job = folder.path().join("jobs").join(blocked.as_str());
    fs::remove_dir_all(&job).unwrap();
    fs::write(&job, "in the way").unwrap();
    let database = rusqlite::Connection::open(folder.path().join("unhang.db")).unwrap();
    database.execute("UPDATE boots SET id = 'another'", []).unwrap();
    let (engine, opened) = Engine::open(options(folder.path(), "none")).unwrap();
    let bench = Bench { folder, engine, opened };
    bench.engine.cancel(first).await.unwrap();
    assert_eq!(bench.end(behind).await.record.status, JobState::Completed);
    let status = bench.engine.status(blocked).await.unwrap();
    assert_eq!(status.record.status, JobState::Queued);
    assert!(status.wait_reason.unwrap().contains("cannot make"), "it says why it waits");
    fs::remove_file(&job).unwrap();
    assert_eq!(bench.end(blocked).await.record.status, JobState::Completed);
}

/// What was done to the folder of a job that waited for its turn.
const OF_THE_NEXT: [Damage; 5] = [
    ("no folder", |job| fs::remove_dir_all(job).unwrap()),
    ("a file as its folder", |job| in_the_place_of(job, |job| fs::write(job, "in the way").unwrap())),
    ("a link as its folder", |job| in_the_place_of(job, |job| symlink(elsewhere(job), job).unwrap())),
    ("a folder as run.json", |job| fs::create_dir(job.join("run.json")).unwrap()),
    ("no JSON in run.json", |job| fs::write(job.join("run.json"), "{").unwrap()),
];

/// Where no other unhang runs, the queue is up to the one supervisor that ends.
#[tokio::test]
async fn a_damaged_job_that_is_next_does_not_stop_the_queue() {
    for (what, damage) in OF_THE_NEXT {
        let bench = Bench::with(|options| options.rules.max_concurrent = 1);
        fs::create_dir(bench.folder.path().join("elsewhere")).unwrap();
        let (go, ran) = (bench.folder.path().join("go"), bench.folder.path().join("ran"));
        bench.submit(&format!("until test -e {}; do sleep 0.02; done", go.display())).await;
        let next = bench.submit("true").await;
        bench.submit(&format!("touch {}", ran.display())).await;
        bench.engine.clone().close().await.unwrap();
        let Bench { folder, engine, .. } = bench;
        drop(engine);
        damage(&folder.path().join("jobs").join(next.as_str()));
        fs::write(&go, "").unwrap();
        until(what, || ran.exists().then_some(())).await;
        let (engine, opened) = open(folder.path(), |_| {});
        let bench = Bench { engine, opened, folder };
        let record = bench.end(next).await.record;
        let reason = record.ending.as_ref().and_then(|ending| ending.reason);
        assert_eq!((record.status, reason), (JobState::Lost, Some(EndReason::RecordDamaged)), "{what}");
    }
}
