//! Folders, files and databases that are removed, replaced or moved while jobs run: each job still ends as it ends.

use std::{fs, os::unix::fs::symlink, time::Duration};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;
use unhang_jobs::{
    document::Field,
    engine::Engine,
    error::JobError,
    folder::FileName,
    record::{JobState, Patch},
};
use unhang_proc::deadline::Deadline;

use crate::common::{Bench, open, options, until};

/// A script that waits until this bench has a file `gate`, and then does the rest.
fn gated(bench: &Bench, rest: &str) -> String {
    format!("until [ -e {} ]; do sleep 0.01; done; {rest}", bench.folder.path().join("gate").display())
}

fn open_gate(bench: &Bench) {
    fs::write(bench.folder.path().join("gate"), "").unwrap();
}

#[tokio::test]
async fn a_link_to_another_job_in_the_place_of_a_folder_changes_nothing_there() {
    let bench = Bench::with(|options| options.rules.max_concurrent = 4);
    let first = bench.submit(&gated(&bench, "exit 5")).await;
    bench.until(first, JobState::Running).await;
    let (own, other) = (r#"$(dirname "$UNHANG_JOB_DIR")"#, bench.job(first));
    let second =
        bench.submit(&format!("job={own}; rm -rf \"$job\"; ln -s {} \"$job\"", other.display())).await;
    assert_eq!(bench.end(second).await.record.status, JobState::Lost);
    assert!(!other.join("exit.json").exists(), "the end of the second is not that of the first");
    open_gate(&bench);
    assert_eq!(bench.end(first).await.record.ending.unwrap().exit_code, Some(5));
}

#[tokio::test]
async fn a_link_in_the_place_of_a_folder_leads_nothing_out_of_the_data_folder() {
    let bench = Bench::new();
    let outside = tempfile::tempdir().unwrap();
    let own = r#"$(dirname "$UNHANG_JOB_DIR")"#;
    let script = format!("job={own}; rm -rf \"$job\"; ln -s {} \"$job\"", outside.path().display());
    let id = bench.submit(&script).await;
    let record = bench.end(id).await.record;
    assert_eq!(record.status, JobState::Lost);
    assert!(
        record.ending.unwrap().detail.unwrap().contains("something other than its folder is at the path")
    );
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_look_at_a_job_whose_lock_is_gone_ends_nothing_while_its_shim_lives() {
    let bench = Bench::new();
    let id = bench.submit(&gated(&bench, "echo done; exit 7")).await;
    bench.until(id, JobState::Running).await;
    fs::remove_file(bench.job(id).join("lock")).unwrap();
    let bench = bench.reopen();
    assert_eq!(bench.run("true").await.record.status, JobState::Completed, "another one, meanwhile");
    assert!(!bench.engine.status(id).await.unwrap().record.status.is_final());
    open_gate(&bench);
    assert_eq!(bench.end(id).await.record.ending.unwrap().exit_code, Some(7));
    assert_eq!(bench.stdout(id), "done\n");
}

#[tokio::test]
async fn a_result_reaches_the_state_though_the_database_was_removed_meanwhile() {
    let bench = Bench::new();
    let field: Field = "kept".parse().unwrap();
    let script = gated(&bench, r#"echo '{"v": 1}' > "$UNHANG_JOB_DIR/r.json""#);
    let id = bench
        .submit_with(&script, |submission| {
            submission.results = Some(FileName::new("r.json").unwrap());
            submission.patch = Some(Patch { field: field.clone(), pointer: None, is_shared: false });
        })
        .await;
    bench.until(id, JobState::Running).await;
    let Bench { folder, engine, .. } = bench;
    engine.close().await.unwrap();
    for name in ["unhang.db", "unhang.db-wal", "unhang.db-shm"] {
        let _not_all_are_there = fs::remove_file(folder.path().join(name));
    }
    // Nobody looks until the job has ended.
    fs::write(folder.path().join("gate"), "").unwrap();
    let job = folder.path().join("jobs").join(id.as_str());
    until("its end is noted", || job.join("exit.json").exists().then_some(())).await;
    let (engine, opened) = open(folder.path(), |_| {});
    let bench = Bench { folder, engine, opened };
    let record = bench.end(id).await.record;
    assert_eq!((record.status, record.state_applied), (JobState::Completed, Some(true)));
    assert_eq!(bench.engine.document(field).await.unwrap().unwrap().value, json!({ "v": 1 }));
}

#[tokio::test]
async fn jobs_that_the_database_knows_stay_known_when_it_is_made_anew_from_damaged_folders() {
    let bench = Bench::with(|options| options.rules.max_concurrent = 1);
    let ended = bench.run("exit 3").await.record.job_id;
    let running = bench.submit(&gated(&bench, "exit 4")).await;
    bench.until(running, JobState::Running).await;
    let queued = bench.submit("exit 5").await;
    for (id, state) in [(ended, JobState::Failed), (running, JobState::Running)] {
        bench.copied(id, state).await;
    }
    for (id, name) in [(ended, "exit.json"), (running, "job.json"), (queued, "launch.json")] {
        fs::write(bench.job(id).join(name), "").unwrap();
    }
    let rebuilt = bench.engine.rebuild().await.unwrap();
    let named = |id| rebuilt.damaged.iter().any(|(folder, _)| *folder == bench.job(id));
    assert!(named(running) && !named(ended), "that of the one that has ended says it twice: {rebuilt:?}");
    open_gate(&bench);
    let code = async |id| bench.end(id).await.record.ending.unwrap().exit_code;
    assert_eq!((code(ended).await, code(running).await), (Some(3), Some(4)));
    assert!(bench.end(queued).await.record.status.is_final(), "and it keeps no slot");
}

#[tokio::test]
async fn a_data_folder_that_was_moved_and_moved_back_has_the_end_of_its_jobs() {
    let bench = Bench::new();
    let outside = tempfile::tempdir().unwrap();
    let gate = outside.path().join("gate");
    let shown = gate.display();
    let id =
        bench.submit(&format!("until [ -e {shown} ]; do sleep 0.01; done; touch {shown}.seen; exit 6")).await;
    bench.until(id, JobState::Running).await;
    let Bench { folder, engine, .. } = bench;
    engine.close().await.unwrap();
    let (data, away) = (folder.path(), outside.path().join("away"));
    fs::rename(data, &away).unwrap();
    fs::write(&gate, "").unwrap();
    until("the work has ended", || gate.with_extension("seen").exists().then_some(())).await;
    fs::rename(&away, data).unwrap();
    let exit = data.join("jobs").join(id.as_str()).join("exit.json");
    until("its end is noted", || exit.exists().then_some(())).await;
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(&fs::read(exit).unwrap()).unwrap()["exit_code"],
        6
    );
}

/// The finding: whoever waited for a job waited for ever, and was told four times a second of a database that was not there.
#[tokio::test]
async fn who_waits_for_a_job_whose_data_folder_is_gone_is_told_so() {
    let bench = Bench::new();
    let outside = tempfile::tempdir().unwrap();
    let id = bench.submit(&gated(&bench, "exit 6")).await;
    bench.until(id, JobState::Running).await;
    let (data, away) = (bench.folder.path(), outside.path().join("away"));
    fs::rename(data, &away).unwrap();
    let begin = tokio::time::Instant::now();
    let deadline = Deadline::after(Duration::from_secs(60));
    let told = bench.engine.wait(id, deadline).await.unwrap_err();
    assert!(
        matches!(&told, JobError::DataFolderGone { id: of, path, .. } if *of == id && path == data),
        "{told}"
    );
    assert!(begin.elapsed() >= Duration::from_secs(9), "a folder that is being moved has its time");
    // One that comes back is followed as before.
    fs::rename(&away, data).unwrap();
    open_gate(&bench);
    bench.until(id, JobState::Failed).await;
}

/// However long it is away: its shim does not wait for ever.
#[tokio::test]
async fn the_end_of_a_job_goes_along_with_a_data_folder_that_was_moved() {
    let bench = Bench::new();
    let outside = tempfile::tempdir().unwrap();
    let gate = outside.path().join("gate");
    let id = bench.submit(&format!("until [ -e {} ]; do sleep 0.01; done; exit 6", gate.display())).await;
    let shim = until("its shim", || bench.shim(id)).await;
    let Bench { folder, engine, .. } = bench;
    engine.close().await.unwrap();
    let (data, away) = (folder.path(), outside.path().join("away"));
    fs::rename(data, &away).unwrap();
    fs::write(&gate, "").unwrap();
    until("its end is noted", || {
        away.join("jobs").join(id.as_str()).join("exit.json").exists().then_some(())
    })
    .await;
    // As where it has waited for long enough.
    rustix::process::kill_process(shim, rustix::process::Signal::KILL).unwrap();
    fs::rename(&away, data).unwrap();
    let (engine, opened) = open(data, |_| {});
    let bench = Bench { folder, engine, opened };
    let record = bench.end(id).await.record;
    assert_eq!((record.status, record.ending.unwrap().exit_code), (JobState::Failed, Some(6)));
}

/// The finding: it was called lost for good, because there was no `launch.json` any more.
#[tokio::test]
async fn a_job_that_runs_is_not_lost_when_the_table_is_made_anew_without_its_run_json() {
    let bench = Bench::new();
    let id = bench.submit(&gated(&bench, "exit 7")).await;
    bench.until(id, JobState::Running).await;
    bench.copied(id, JobState::Running).await;
    fs::remove_file(bench.job(id).join("run.json")).unwrap();
    bench.engine.rebuild().await.unwrap();
    let bench = bench.reopen();
    assert!(!bench.engine.status(id).await.unwrap().record.status.is_final());
    open_gate(&bench);
    assert_eq!(bench.end(id).await.record.ending.unwrap().exit_code, Some(7));
}

#[tokio::test]
async fn an_end_that_the_shim_saw_counts_for_more_than_lost() {
    let bench = Bench::new();
    let id = bench.submit(&gated(&bench, "exit 7")).await;
    bench.until(id, JobState::Running).await;
    let shim = until("its shim", || bench.shim(id)).await;
    bench.copied(id, JobState::Running).await;
    // Nothing says any more that it lives.
    rustix::process::kill_process(shim, rustix::process::Signal::STOP).unwrap();
    for name in ["lock", "run.json"] {
        fs::remove_file(bench.job(id).join(name)).unwrap();
    }
    bench.engine.rebuild().await.unwrap();
    let lost = bench.engine.status(id).await.unwrap().record;
    assert_eq!(bench.end(id).await.record.status, JobState::Lost, "{lost:?}");
    open_gate(&bench);
    rustix::process::kill_process(shim, rustix::process::Signal::CONT).unwrap();
    bench.until(id, JobState::Failed).await;
    let ending = bench.engine.status(id).await.unwrap().record.ending.unwrap();
    assert_eq!(ending.exit_code, Some(7), "{ending:?}");
    assert_eq!(bench.copied(id, JobState::Failed).await["ending"]["exit_code"], 7);
}

#[test]
fn a_link_in_the_place_of_the_folder_of_jobs_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::create_dir(folder.path().join("elsewhere")).unwrap();
    symlink(folder.path().join("elsewhere"), data.join("jobs")).unwrap();
    let options = options(&data, "none");
    let refused = Engine::open(options).unwrap_err().to_string();
    assert!(refused.contains("it is a link") && refused.contains("UNHANG_HOME"), "{refused}");
}

#[tokio::test]
async fn what_lies_in_the_place_of_the_database_and_is_no_file_is_named() {
    for what in ["a folder", "a pipe", "a link"] {
        let bench = Bench::new();
        let Bench { folder, engine, .. } = bench;
        // A thread of an engine that is only dropped may make the database anew.
        engine.close().await.unwrap();
        let path = folder.path().join("unhang.db");
        fs::remove_file(&path).unwrap();
        match what {
            "a folder" => fs::create_dir(&path).unwrap(),
            "a pipe" => mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0).unwrap(),
            _ => symlink("/nowhere/at-all", &path).unwrap(),
        }
        let error = Engine::open(options(folder.path(), "none")).unwrap_err().to_string();
        assert!(error.contains("it is ") && error.contains("move it away"), "{what}: {error}");
    }
}
