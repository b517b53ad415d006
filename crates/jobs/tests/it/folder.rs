//! One data folder: shared by many, damaged, lost and found again, and kept small.

use std::{fs, path::Path, time::Duration};

use rustix::process::Signal;
use serde_json::{Value, json};
use unhang_jobs::{
    engine::{self, EngineOptions},
    error::JobError,
    id::JobId,
    record::{EndReason, JobState, Patch},
    store::JobOwnerFilter,
};
use unhang_proc::{
    deadline::Deadline,
    identity::Identity,
    lock::{Lock, is_held},
    spawn::{Launch, spawn},
};

use crate::{
    common::{Bench, Home, PATIENCE, Server, copy, fixture, open, open_with_shim, until},
    kills::{self, End},
};

pub(crate) fn remove_database(folder: &Path) {
    for name in ["unhang.db", "unhang.db-wal", "unhang.db-shm"] {
        let _ = fs::remove_file(folder.join(name));
    }
}

#[tokio::test]
async fn a_missing_database_is_made_anew_from_the_folders() {
    let bench = Bench::with(|options| options.rules.max_concurrent = 1);
    let done = bench.submit("exit 3").await;
    bench.end(done).await;
    let gate = bench.folder.path().join("gate");
    let running = bench.submit(&format!("until [ -e {} ]; do sleep 0.01; done", gate.display())).await;
    bench.until(running, JobState::Running).await;
    let queued = bench.submit("echo mine").await;
    // An engine that is open may make the database anew before the next one opens it.
    bench.engine.clone().close().await.unwrap();
    remove_database(bench.folder.path());
    let bench = bench.reopen_with(|options| options.rules.max_concurrent = 1);
    assert_eq!(bench.opened.rebuilt.as_ref().map(|rebuilt| rebuilt.jobs), Some(3));
    let status = bench.engine.status(done).await.unwrap();
    assert_eq!((status.record.status, status.record.ending.unwrap().exit_code), (JobState::Failed, Some(3)));
    assert_eq!(bench.engine.status(queued).await.unwrap().record.status, JobState::Queued);
    fs::write(gate, "").unwrap();
    for id in [running, queued] {
        assert_eq!(bench.end(id).await.record.status, JobState::Completed);
    }
    assert_eq!(bench.stdout(queued), "mine\n");
}

#[tokio::test]
async fn a_damaged_database_is_named_and_can_be_replaced() {
    let bench = Bench::new();
    let id = bench.submit("true").await;
    bench.end(id).await;
    let mut options = bench.engine.options().clone();
    // A copy, because whoever closes the database last may still write into it.
    let folder = Home::new();
    copy(bench.folder.path(), folder.path());
    options.folder = folder.path().to_owned();
    for name in ["unhang.db-wal", "unhang.db-shm"] {
        let _ = fs::remove_file(folder.path().join(name));
    }
    fs::write(folder.path().join("unhang.db"), "no database at all, and long enough to be looked at")
        .unwrap();
    let open = |options: &EngineOptions| engine::Engine::open(options.clone());
    let error = open(&options).unwrap_err().to_string();
    assert!(error.contains("is damaged") && error.contains("unhang job rebuild"), "{error}");
    let (aside, rebuilt) = engine::replace_damaged_database(folder.path()).unwrap();
    assert!(aside.exists());
    assert_eq!(rebuilt.jobs, 1);
    let (engine, _) = open(&options).unwrap();
    assert_eq!(engine.status(id).await.unwrap().record.status, JobState::Completed);
}

/// Whoever closes a database as the last one removes its log. A process whose locks are lost is not seen by the last one.
#[tokio::test]
async fn a_stranger_who_looks_into_the_database_takes_nothing_from_us() {
    let bench = Bench::with(|options| options.rules.max_concurrent = 1);
    let database = bench.folder.path().join("unhang.db");
    let count = async || {
        let words = vec!["count".into(), database.clone().into()];
        let (end, said) = kills::run(fixture(), words, bench.folder.path().to_owned(), usize::MAX).await;
        assert_eq!(end, End::Itself(0));
        said.trim().parse::<usize>().unwrap()
    };
    for accepted in 0..3 {
        assert_eq!(count().await, accepted, "what was accepted is there for others");
        bench.submit("true").await;
    }
    let (engine, _) = open(bench.folder.path(), |_| {});
    assert_eq!(engine.list(None, JobOwnerFilter::Anybodys, 10).await.unwrap().len(), 3);
}

#[tokio::test]
async fn a_database_that_is_replaced_under_a_server_is_followed() {
    let bench = Bench::new();
    let first = bench.run("true").await.record.job_id;
    let gate = bench.folder.path().join("gate");
    let script = format!("until [ -e {} ]; do sleep 0.01; done; exit 3", gate.display());
    let second = bench.submit(&script).await;
    bench.until(second, JobState::Running).await;
    let (_, rebuilt) = engine::replace_damaged_database(bench.folder.path()).unwrap();
    assert_eq!(rebuilt.jobs, 2);
    let third = bench.run("true").await.record;
    assert_eq!(third.status, JobState::Completed);
    fs::write(gate, "").unwrap();
    assert_eq!(bench.end(second).await.record.ending.unwrap().exit_code, Some(3));
    let (other, _) = open(bench.folder.path(), |_| {});
    for id in [first, second, third.job_id] {
        assert!(other.status(id).await.unwrap().record.status.is_final());
    }
    // The same where somebody has removed it.
    remove_database(bench.folder.path());
    let fourth = bench.run("true").await.record.job_id;
    assert_eq!(bench.engine.list(None, JobOwnerFilter::Anybodys, 10).await.unwrap().len(), 4);
    // It may hear of another engine's job a moment later.
    let seen = other.wait(fourth, Deadline::after(PATIENCE)).await.unwrap();
    assert!(seen.record.status.is_final(), "{seen:?}");
}

/// The shim dies with nobody there who could judge before the file was damaged.
#[tokio::test]
async fn a_damaged_file_gives_a_job_that_is_lost_and_says_which_file() {
    for (file, step) in [("run.json", "Ended"), ("exit.json", "Recorded")] {
        let folder = Home::new();
        let gate = folder.path().join("gate");
        let script = format!("until [ -e {} ]; do sleep 0.01; done", gate.display());
        let id = Server::start(folder.path(), 1, step, &[&script]).kill().await[0];
        let job = folder.path().join("jobs").join(id.as_str());
        fs::write(gate, "").unwrap();
        until("its shim has died", || (!is_held(&job.join("lock")).unwrap()).then_some(())).await;
        fs::write(job.join(file), "{\"form").unwrap();
        let (engine, opened) = open_with_shim(folder.path(), "none", |_| {});
        let status = Bench { folder, engine, opened }.end(id).await;
        let ending = status.record.ending.unwrap();
        assert_eq!((status.record.status, ending.reason), (JobState::Lost, Some(EndReason::RecordDamaged)));
        assert!(ending.detail.as_ref().unwrap().contains(file), "{ending:?}");
    }
}

/// Eight engines, each with connections of its own, as eight processes have them.
#[tokio::test]
async fn many_at_once_lose_nothing_and_are_never_told_that_the_database_is_locked() {
    const ENGINES: usize = 8;
    const EACH: usize = 12;
    let bench = Bench::with(|options| options.rules.max_concurrent = 4);
    let mut tasks = Vec::new();
    for _ in 0..ENGINES {
        let folder = bench.folder.path().to_owned();
        let submissions: Vec<_> = (0..EACH).map(|_| bench.submission("true")).collect();
        tasks.push(tokio::spawn(async move {
            let (engine, _) = open_with_shim(&folder, "none", |options| options.rules.max_concurrent = 4);
            let mut ids = Vec::new();
            for submission in submissions {
                ids.push(engine.submit(submission).await.unwrap().record.job_id);
            }
            ids
        }));
    }
    let mut ids: Vec<JobId> = Vec::new();
    for task in tasks {
        ids.extend(task.await.unwrap());
    }
    for &id in &ids {
        assert_eq!(bench.end(id).await.record.status, JobState::Completed);
    }
    assert_eq!(bench.engine.list(None, JobOwnerFilter::Anybodys, 1000).await.unwrap().len(), ENGINES * EACH);
}

#[tokio::test]
async fn an_id_is_taken_once() {
    let bench = Bench::new();
    let first = bench.submission("true");
    let mut second = bench.submission("true");
    second.id = first.id;
    let id = bench.engine.submit(first).await.unwrap().record.job_id;
    let error = bench.engine.submit(second).await.unwrap_err();
    assert!(matches!(error, JobError::IdTaken(taken) if taken == id), "{error}");
    assert_eq!(bench.end(id).await.record.status, JobState::Completed);
}

#[tokio::test]
async fn j_136_without_room_a_job_is_refused_and_leaves_no_folder() {
    let bench = Bench::with(|options| options.rules.memory_limit = 0.0);
    let error = bench.engine.submit(bench.submission("true")).await.unwrap_err().to_string();
    assert!(error.contains("of the memory is in use") && error.contains("end other programs"), "{error}");
    assert_eq!(fs::read_dir(bench.folder.path().join("jobs")).unwrap().count(), 0);
    let bench = bench.reopen_with(|options| options.rules.disk_reserve = u64::MAX);
    let error = bench.engine.submit(bench.submission("true")).await.unwrap_err().to_string();
    assert!(error.contains("MiB are free on the disk"), "{error}");
}

/// The finding: it said to wait for running jobs, or to cancel one, and there was none.
#[tokio::test]
async fn who_has_too_little_disk_is_told_to_cancel_a_job_only_where_one_runs() {
    let bench = Bench::with(|options| options.rules.disk_reserve = u64::MAX);
    let alone = bench.engine.submit(bench.submission("true")).await.unwrap_err().to_string();
    assert!(alone.contains("free some space") && !alone.contains("cancel"), "{alone}");
    let bench = bench.reopen();
    let running = bench.submit("exec sleep 3600").await;
    bench.until(running, JobState::Running).await;
    let bench = bench.reopen_with(|options| options.rules.disk_reserve = u64::MAX);
    let beside = bench.engine.submit(bench.submission("true")).await.unwrap_err().to_string();
    assert!(
        beside.contains("free some space") && beside.contains(&format!("cancel one (running: {running})")),
        "{beside}"
    );
    bench.engine.cancel(running).await.unwrap();
}

/// Nothing but a shim is there that could start it when there is room again.
#[tokio::test]
async fn a_queue_without_room_waits_and_says_why() {
    let bench = Bench::with(|options| options.rules.max_concurrent = 1);
    let gate = bench.folder.path().join("gate");
    let first = bench.submit(&format!("until [ -e {} ]; do sleep 0.01; done", gate.display())).await;
    let second = bench.submit("true").await;
    let bench = bench.reopen_with(|options| options.rules.memory_limit = 0.0);
    let status = bench.engine.status(second).await.unwrap();
    assert_eq!(status.queue_position, Some(0));
    assert!(status.wait_reason.unwrap().contains("memory"));
    fs::write(gate, "").unwrap();
    // The rules that it was accepted under let it start.
    for id in [first, second] {
        assert_eq!(bench.end(id).await.record.status, JobState::Completed);
    }
}

#[tokio::test]
async fn x_08_only_what_has_ended_long_enough_ago_is_removed() {
    let bench = Bench::with(|options| options.rules.max_concurrent = 1);
    let ended = bench.submit("true").await;
    bench.end(ended).await;
    let running = bench.submit("exec sleep 3600").await;
    let queued = bench.submit("true").await;
    assert_eq!(bench.engine.prune(Duration::from_secs(3600)).await.unwrap().jobs, []);
    // The clock of the database counts milliseconds.
    bench
        .seen(ended, "it is older than nothing", |status| {
            let is_over = status.record.ending?.completed_at < unhang_jobs::timestamp::JobTimestamp::now();
            is_over.then_some(())
        })
        .await;
    let pruned = bench.engine.prune(Duration::ZERO).await.unwrap();
    assert_eq!(pruned.jobs, [ended]);
    assert!(!bench.job(ended).exists() && bench.job(running).exists() && bench.job(queued).exists());
    let error = bench.engine.remove(running).await.unwrap_err();
    assert!(matches!(error, JobError::HasNotEnded { .. }), "{error}");
    assert!(matches!(bench.engine.status(ended).await, Err(JobError::NoSuchJob(_))));
    bench.engine.cancel(queued).await.unwrap();
    bench.engine.cancel(running).await.unwrap();
    bench.engine.remove(queued).await.unwrap();
    assert!(!bench.job(queued).exists());
}

#[tokio::test]
async fn f_09_what_is_removed_takes_nothing_from_what_is_known_of_others() {
    let bench = Bench::with(|options| options.rules.max_concurrent = 2);
    let (one, two) = (bench.submit("true").await, bench.submit("true").await);
    for id in [one, two] {
        bench.end(id).await;
    }
    let running = bench.submit("echo 'progress: 40%'; exec sleep 3600").await;
    bench.seen(running, "its progress", |status| status.progress).await;
    let (other, _) = open(bench.folder.path(), |_| {});
    // By another process, and by this one.
    other.remove(one).await.unwrap();
    until_gone(&bench.engine, one).await;
    let goes_on = || async {
        let status = bench.engine.status(running).await.unwrap();
        assert_eq!(status.record.status, JobState::Running);
        assert_eq!(status.progress.and_then(|progress| progress.fraction), Some(0.4));
    };
    goes_on().await;
    bench.engine.remove(two).await.unwrap();
    until_gone(&other, two).await;
    goes_on().await;
    // The same where the database is made anew.
    engine::replace_damaged_database(bench.folder.path()).unwrap();
    let last = bench.submit("true").await;
    bench.end(last).await;
    goes_on().await;
    bench.engine.cancel(running).await.unwrap();
}

/// Until this engine has heard that the job was removed.
async fn until_gone(engine: &engine::Engine, id: JobId) {
    let begin = tokio::time::Instant::now();
    while engine.status(id).await.is_ok() {
        assert!(begin.elapsed() < PATIENCE, "job {id} is still known");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_job_whose_folder_somebody_removed_is_lost() {
    let bench = Bench::with(|options| options.rules.max_concurrent = 1);
    let gate = bench.folder.path().join("gate");
    let first = bench.submit(&format!("until [ -e {} ]; do sleep 0.01; done", gate.display())).await;
    let second = bench.submit("true").await;
    // The last that is written there before its turn comes.
    bench.copied(second, JobState::Queued).await;
    fs::remove_dir_all(bench.job(second)).unwrap();
    fs::write(gate, "").unwrap();
    assert_eq!(bench.end(first).await.record.status, JobState::Completed);
    let status = bench.end(second).await;
    assert_eq!(status.record.status, JobState::Lost);
    assert!(status.record.ending.unwrap().detail.unwrap().contains("is gone"));
}

/// A data folder with the jobs that the first version of this format wrote.
fn first_format() -> Home {
    let folder = Home::new();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/format-1");
    for entry in fs::read_dir(&fixture).unwrap() {
        let entry = entry.unwrap();
        let job = folder.path().join("jobs").join(entry.file_name());
        fs::create_dir_all(&job).unwrap();
        for file in fs::read_dir(entry.path()).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), job.join(file.file_name())).unwrap();
        }
    }
    folder
}

/// After a restart of the machine the numbers in `run.json` may be those of anybody.
#[tokio::test]
async fn after_a_reboot_nobody_is_taken_for_what_a_shim_left() {
    let folder = first_format();
    let arguments = ["3600".into()];
    let mut foreign_process = spawn(Launch::new(Path::new("/bin/sleep"), &arguments)).unwrap();
    let identity = Identity::of(foreign_process.pid()).unwrap();
    let path = folder.path().join("jobs/runningaaaaa/run.json");
    let mut run: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    run["shim"] = json!({ "pid": identity.pid, "start": identity.start });
    fs::write(&path, run.to_string()).unwrap();
    let (engine, opened) = open_with_shim(folder.path(), "none", |_| {});
    let status = Bench { folder, engine, opened }.end("runningaaaaa".parse().unwrap()).await;
    let is_alive = identity.is_alive();
    foreign_process.signal(Signal::KILL);
    until("it has gone", || foreign_process.try_reap()).await;
    assert_eq!(status.record.ending.unwrap().reason, Some(EndReason::Reboot));
    assert!(is_alive, "a stranger was killed");
}

/// It must load for ever.
#[tokio::test]
async fn a_data_folder_of_the_first_format_loads() {
    let folder = first_format();
    // Its jobs ended in November 2026: the default retention would remove them.
    let (engine, opened) = open_with_shim(folder.path(), "none", |options| options.retention = Duration::MAX);
    let rebuilt = opened.rebuilt.unwrap();
    assert_eq!((rebuilt.jobs, rebuilt.damaged), (3, vec![]));
    let status = async |id: &str| engine.status(id.parse().unwrap()).await.unwrap().record;
    let completed = status("completedaaa").await;
    assert_eq!((completed.status, completed.state_applied), (JobState::Completed, Some(true)));
    let patch = Patch {
        field: "answer".parse().unwrap(),
        pointer: Some("/value".parse().unwrap()),
        is_shared: false,
    };
    assert_eq!(completed.patch, Some(patch));
    let results = engine.results("completedaaa".parse().unwrap()).await.unwrap();
    // Its files are moved meanwhile.
    let text =
        fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/format-1/completedaaa/results.json"))
            .unwrap();
    assert_eq!(results.results, serde_json::from_slice(&text).unwrap());
    let failed = status("failedaaaaaa").await;
    assert_eq!((failed.status, failed.ending.unwrap().reason), (JobState::Failed, Some(EndReason::Timeout)));
    // Of another boot, and never ended.
    let lost = status("runningaaaaa").await;
    assert_eq!((lost.status, lost.ending.unwrap().reason), (JobState::Lost, Some(EndReason::Reboot)));
}

#[tokio::test]
async fn a_document_is_set_listed_and_read_and_a_broken_one_is_named() {
    let bench = Bench::new();
    let (one, two) = ("one".parse().unwrap(), "two.b-c".parse().unwrap());
    bench.engine.set_document(two, json!([1, 2])).await.unwrap();
    bench.engine.set_document(one, json!("text")).await.unwrap();
    let listed = bench.engine.documents().await.unwrap();
    let names: Vec<_> = listed.iter().map(|listed| listed.field.as_str()).collect();
    assert_eq!(names, ["one", "two.b-c"]);
    fs::write(bench.folder.path().join("state/one.json"), "{").unwrap();
    let error = bench.engine.document("one".parse().unwrap()).await.unwrap_err().to_string();
    assert!(error.contains("one.json is damaged"), "{error}");
}

/// What a writer had begun when it was killed. One that lives holds the lock of the state.
#[tokio::test]
async fn f_93_what_killed_writers_of_the_state_had_begun_is_removed_at_the_next_open() {
    let bench = Bench::new();
    bench.engine.set_document("one".parse().unwrap(), json!(1)).await.unwrap();
    let state = bench.folder.path().join("state");
    let begun = state.join(".one.json.aaaaaaaaaaaa");
    fs::write(&begun, "[1, 2").unwrap();
    let lock = Lock::try_take(&state.join(".lock")).unwrap().unwrap();
    let bench = bench.reopen();
    assert!(begun.exists(), "somebody writes it");
    drop(lock);
    let bench = bench.reopen();
    assert!(!begun.exists());
    let document = bench.engine.document("one".parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(document.value, json!(1));
}

/// A folder that no row knows is a job in the making, or what is left of one whose maker died.
#[tokio::test]
async fn an_unknown_folder_is_removed_when_it_is_old() {
    let bench = Bench::new();
    let folder = |id: &str| bench.job(id.parse().unwrap());
    let (young, old) = (folder("youngaaaaaaa"), folder("oldaaaaaaaaa"));
    for path in [&young, &old] {
        fs::create_dir(path).unwrap();
    }
    let hours_ago = std::time::SystemTime::now() - Duration::from_secs(2 * 60 * 60);
    fs::File::open(&old).unwrap().set_modified(hours_ago).unwrap();
    let pruned = bench.engine.prune(Duration::from_secs(3600)).await.unwrap();
    assert_eq!((pruned.orphans, young.exists(), old.exists()), (1, true, false));
}

/// What `rebuild` has promised to keep is kept, however old it is.
#[tokio::test]
async fn f_03_a_folder_without_a_row_is_removed_only_if_it_is_nobodys() {
    let bench = Bench::new();
    let hours_ago = std::time::SystemTime::now() - Duration::from_secs(2 * 60 * 60);
    let make = |id: &str, files: &[(&str, &str)]| {
        let folder = bench.job(id.parse().unwrap());
        fs::create_dir_all(folder.join("work")).unwrap();
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
        fs::File::open(&folder).unwrap().set_modified(hours_ago).unwrap();
        folder
    };
    let ended = include_str!("../format-1/completedaaa/job.json");
    let ending = include_str!("../format-1/completedaaa/exit.json");
    let running = include_str!("../format-1/runningaaaaa/job.json");
    let newer = ended.replacen("\"format\": 1", "\"format\": 99", 1);
    let nobodys = [
        make("emptyaaaaaaa", &[]),
        make("inputsaaaaaa", &[("work/seed.json", "{}"), (".launch.json.aaaaaaaaaaaa", "{")]),
    ];
    let damaged = [
        ("halfaaaaaaaa", make("halfaaaaaaaa", &[("job.json", "{\"format\""), ("stdout.log", "mine\n")])),
        ("neweraaaaaaa", make("neweraaaaaaa", &[("job.json", &newer), ("stdout.log", "mine\n")])),
        ("logaaaaaaaaa", make("logaaaaaaaaa", &[("stdout.log", "mine\n")])),
    ];
    let kept = [
        make("endedaaaaaaa", &[("job.json", ended), ("exit.json", ending)]),
        make("runaaaaaaaaa", &[("job.json", running)]),
        make("lockedaaaaaa", &[("job.json", "{"), ("lock", "")]),
    ];
    let _lock = Lock::try_take(&kept[2].join("lock")).unwrap().unwrap();
    let link = bench.job("linkaaaaaaaa".parse().unwrap());
    std::os::unix::fs::symlink(&kept[0], &link).unwrap();
    // Longer ago than anything here has ended.
    let pruned = bench.engine.prune(Duration::from_secs(100 * 365 * 24 * 60 * 60)).await.unwrap();
    assert_eq!(pruned.orphans, nobodys.len());
    assert!(nobodys.iter().all(|folder| !folder.exists()));
    assert!(kept.iter().all(|folder| folder.exists()), "{pruned:?}");
    assert_eq!(pruned.left.len(), 2, "those that the database should know are named: {pruned:?}");
    let quarantine = bench.folder.path().join("quarantine");
    for (id, folder) in &damaged {
        assert!(!folder.exists(), "{id}");
        assert_eq!(fs::read_to_string(quarantine.join(id).join("stdout.log")).unwrap(), "mine\n");
    }
    let listed = bench.engine.quarantined().await.unwrap();
    assert_eq!(listed, {
        let mut moved = pruned.quarantined;
        moved.sort_by(|one, other| one.folder.cmp(&other.folder));
        for one in &mut moved {
            let id = one.folder.file_name().unwrap().to_str().unwrap().to_owned();
            one.reason = one.reason.replace(&format!("jobs/{id}"), &format!("quarantine/{id}"));
        }
        moved
    });
    assert_eq!(listed.len(), damaged.len());
    assert!(listed.iter().any(|found| found.reason.contains("format 99")), "{listed:?}");
    // It is as young as the test, and a link: what it leads to is not touched.
    assert!(fs::symlink_metadata(&link).is_ok());
    // What has ended is removed when its time is over, as every job that has.
    let pruned = bench.engine.prune(Duration::ZERO).await.unwrap();
    assert!(pruned.orphans == 1 && !kept[0].exists(), "{pruned:?}");
}

#[tokio::test]
async fn who_only_looks_lets_no_more_run_than_was_agreed_on() {
    let bench = Bench::with(|options| options.rules.max_concurrent = 1);
    let gate = bench.folder.path().join("gate");
    let script = format!("until [ -e {} ]; do sleep 0.01; done", gate.display());
    let (first, second) = (bench.submit(&script).await, bench.submit("true").await);
    bench.until(first, JobState::Running).await;
    let bench = bench.reopen_with(|options| options.keeps_recorded_limits = true);
    // A submission goes through everything that could start the second.
    let third = bench.submit("true").await;
    assert_eq!(bench.engine.status(second).await.unwrap().record.status, JobState::Queued);
    fs::write(gate, "").unwrap();
    for id in [first, second, third] {
        assert_eq!(bench.end(id).await.record.status, JobState::Completed);
    }
}
