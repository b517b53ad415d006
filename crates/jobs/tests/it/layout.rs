//! What lies where in a job's folder: our own files apart from what the work may touch, and folders of the first format.

use std::{fs, path::Path, time::Duration};

use serde_json::{Value, json};
use unhang_jobs::{folder::FileName, record::JobState};

use crate::common::{Bench, Home, open, until};

/// Work that begins with an empty folder of its own, as many programs do.
#[tokio::test]
async fn f_02_work_that_empties_its_own_folder_is_seen_to_its_end() {
    let bench = Bench::new();
    let gate = bench.folder.path().join("gate");
    let script = format!(
        "rm -rf \"$UNHANG_JOB_DIR\"; mkdir \"$UNHANG_JOB_DIR\"; echo emptied; until [ -e {} ]; do sleep 0.01; done; \
         echo '[1]' > \"$UNHANG_JOB_DIR/results.json\"; exit 3",
        gate.display()
    );
    let id = bench.submit(&script).await;
    until("it has emptied its folder", || bench.stdout_if_any(id).filter(|text| text == "emptied\n")).await;
    let shim = until("its shim", || bench.shim(id)).await;
    // Whoever opens the folder looks at every job.
    let bench = bench.reopen();
    bench.until(id, JobState::Running).await;
    assert_eq!(bench.shim(id), Some(shim), "no other shim has taken it");
    fs::write(gate, "").unwrap();
    let ending = bench.end(id).await.record.ending.unwrap();
    assert_eq!((ending.exit_code, ending.reason), (Some(3), None), "{ending:?}");
    assert_eq!(fs::read_to_string(bench.work(id).await.join("results.json")).unwrap(), "[1]\n");
    assert_eq!(bench.alive(id), [""; 0]);
}

#[tokio::test]
async fn f_02_the_work_is_told_of_a_folder_without_files_of_ours() {
    let bench = Bench::new();
    let id = bench
        .submit_with("ls -A \"$UNHANG_JOB_DIR\"", |job| job.arguments = Some(json!({ "steps": 1 })))
        .await;
    bench.end(id).await;
    assert_eq!(bench.stdout(id), "input.json\n");
    let mut ours: Vec<_> =
        fs::read_dir(bench.job(id)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    ours.sort();
    let expected = ["exit.json", "job.json", "lock", "run.json", "stderr.log", "stdout.log", "work"];
    assert_eq!(ours, expected);
}

/// The result of work that has put a link in the place of its folder is not looked for where that leads.
#[tokio::test]
async fn f_02_a_link_in_the_place_of_the_works_folder_is_not_followed() {
    let bench = Bench::new();
    let elsewhere = bench.folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("results.json"), "1").unwrap();
    let script = format!("rm -r \"$UNHANG_JOB_DIR\"; ln -s {} \"$UNHANG_JOB_DIR\"", elsewhere.display());
    let results = Some(FileName::new("results.json").unwrap());
    let id = bench.submit_with(&script, |job| job.results = results).await;
    let ending = bench.end(id).await.record.ending.unwrap();
    assert!(ending.detail.as_ref().is_some_and(|detail| detail.contains("not a folder")), "{ending:?}");
    bench.engine.remove(id).await.unwrap();
    assert!(elsewhere.join("results.json").exists());
}

/// An older unhang accepted it, and this one starts it: its command and its environment name the folder of that time, which the work
/// empties when it has read its arguments.
#[tokio::test]
async fn f_02_a_queued_job_of_the_first_format_is_given_a_folder_of_its_own() {
    let folder = Home::new();
    let job = folder.path().join("jobs/queuedaaaaaa");
    fs::create_dir_all(&job).unwrap();
    let mut record: Value = serde_json::from_str(include_str!("../format-1/runningaaaaa/job.json")).unwrap();
    for (name, value) in [
        ("job_id", json!("queuedaaaaaa")),
        ("status", json!("queued")),
        ("rules", json!({ "max_concurrent": 2, "memory_limit": 100.0, "disk_reserve": 0 })),
        ("started_at", Value::Null),
    ] {
        record[name] = value;
    }
    let script = format!(
        "cat '{}/input.json'; rm -rf \"$UNHANG_JOB_DIR\"; mkdir \"$UNHANG_JOB_DIR\"; \
         echo '{{\"value\": 42}}' > \"$UNHANG_JOB_DIR/results.json\"",
        job.display()
    );
    let launch = json!({
        "format": 1, "record": record, "command": ["sh", "-c", script], "folder": "/",
        "environment": [["PATH", std::env::var("PATH").unwrap()], ["UNHANG_JOB_DIR", job.to_str().unwrap()]],
    });
    fs::write(job.join("job.json"), record.to_string()).unwrap();
    fs::write(job.join("launch.json"), launch.to_string()).unwrap();
    fs::write(job.join("input.json"), "{\"steps\": 1}\n").unwrap();
    let (engine, opened) = open(folder.path(), |_| {});
    let bench = Bench { folder, engine, opened };
    let id = "queuedaaaaaa".parse().unwrap();
    let record = bench.end(id).await.record;
    assert_eq!((record.status, record.state_applied), (JobState::Completed, Some(true)), "{record:?}");
    assert_eq!(bench.engine.results(id).await.unwrap().results, Some(json!({ "value": 42 })));
    assert_eq!(bench.stdout(id), "{\"steps\": 1}\n");
    let document = bench.engine.document("answer".parse().unwrap()).await.unwrap();
    assert_eq!(document.map(|document| document.value), Some(json!(42)));
    assert!(job.join("work/results.json").exists() && !job.join("results.json").exists());
}

/// Their results and logs are read as before, and again after a new database.
#[tokio::test]
async fn f_02_folders_of_jobs_that_ended_under_an_older_version_are_moved() {
    let folder = Home::new();
    let (jobs, fixture) =
        (folder.path().join("jobs"), Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/format-1"));
    let name = "completedaaa";
    fs::create_dir_all(jobs.join(name)).unwrap();
    for entry in fs::read_dir(fixture.join(name)).unwrap().flatten() {
        fs::copy(entry.path(), jobs.join(name).join(entry.file_name())).unwrap();
    }
    fs::write(jobs.join(name).join("left"), "by the work").unwrap();
    let mut seen = Vec::new();
    for _ in 0..2 {
        let (engine, _) = open(folder.path(), |options| options.retention = Duration::MAX);
        until("its files are moved", || jobs.join(name).join("work/left").exists().then_some(())).await;
        let results = engine.results(name.parse().unwrap()).await.unwrap();
        seen.push((results.results, results.stdout_tail));
        engine.close().await.unwrap();
        assert!(!jobs.join(name).join("left").exists() && jobs.join(name).join("exit.json").exists());
        // With its companions: a thread of the closed engine may still have them open.
        crate::folder::remove_database(folder.path());
    }
    assert!(seen[0].0.is_some() && seen[0] == seen[1], "{seen:?}");
}
