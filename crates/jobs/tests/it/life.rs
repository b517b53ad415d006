//! One job's life: how it is accepted, run and remembered.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use rustix::process::{Signal, kill_process};
use serde_json::json;
use tokio::time::Instant;
use unhang_jobs::{
    document::Field,
    error::JobError,
    folder::FileName,
    record::{EndReason, JobEnd, JobState, Patch},
    store::JobOwnerFilter,
    submission::{InputSource, JobInput, Submission},
};

use unhang_proc::deadline::Deadline;

use crate::common::{Bench, PATIENCE, until};

/// A poll is answered from memory, and waits for no timer: it is there at the first look.
#[tokio::test]
async fn a_mere_look_at_a_job_waits_for_nothing() {
    let bench = Bench::new();
    let gate = bench.folder.path().join("gate");
    let script = format!("until [ -e {} ]; do sleep 0.01; done", gate.display());
    let id = bench.submit(&script).await;
    let mut look = pin!(bench.engine.wait(id, Deadline::after(Duration::ZERO)));
    let looked = look.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(looked, Poll::Ready(Ok(status)) if !status.record.status.is_final()));
    fs::write(gate, "").unwrap();
    bench.end(id).await;
}

#[tokio::test]
async fn jobs_are_counted_by_state() {
    let bench = Bench::with(|options| options.rules.max_concurrent = 1);
    let gate = bench.folder.path().join("gate");
    for script in ["true", "true", "exit 3"] {
        bench.run(script).await;
    }
    let running = bench.submit(&format!("until [ -e {} ]; do sleep 0.01; done", gate.display())).await;
    bench.until(running, JobState::Running).await;
    let queued = bench.submit("true").await;
    let counts = bench.engine.counts().await.unwrap();
    // Queued, starting, running, completed, failed, cancelled, lost.
    let expected = JobState::ALL.into_iter().zip([1, 0, 1, 2, 1, 0, 0]);
    assert_eq!(counts, expected.collect::<Vec<_>>());
    fs::write(gate, "").unwrap();
    bench.end(queued).await;
}

/// They are the client's, and bounded by what a message may have; the limit of our own files is none for them.
#[tokio::test]
async fn arguments_of_many_mebibytes_reach_the_job() {
    let bench = Bench::new();
    // Among the orders, beside them, and longer than the orders may be.
    for length in [30 << 10, 40 << 10, 17 << 20] {
        let arguments = json!({"text": "\"".repeat(length)});
        let script = "wc -c < \"$UNHANG_JOB_DIR/input.json\"";
        let id = bench.submit_with(script, |submission| submission.arguments = Some(arguments)).await;
        assert_eq!(bench.end(id).await.record.status, JobState::Completed);
        let escaped = 2 * length + r#"{"text":""}"#.len() + 1;
        assert_eq!(bench.stdout(id).trim(), escaped.to_string());
    }
}

/// Its supervisor is known from `run.json` on, and hears the signal from then on.
#[tokio::test]
async fn a_job_that_is_cancelled_while_it_begins_does_not_blame_its_supervisor() {
    let bench = Bench::new();
    for _ in 0..50 {
        let id = bench.submit("exec sleep 3600").await;
        // The moment is short, so nothing rests between two looks.
        let run = bench.job(id).join("run.json");
        let begin = Instant::now();
        while !run.exists() {
            assert!(begin.elapsed() < PATIENCE, "in vain: run.json");
        }
        let ending = bench.engine.cancel(id).await.unwrap().record.ending.unwrap();
        assert_eq!((ending.outcome, ending.reason), (JobEnd::Cancelled, None));
    }
}

/// What it leaves in `error.json` is taken for the reason, wherever its end is told.
#[tokio::test]
async fn a_job_that_says_why_it_failed_ends_with_its_words() {
    let bench = Bench::new();
    for (said, detail) in [
        (r#"{"kind": "K", "message": "no\nfeedstock"}"#, "exit code 4: no feedstock"),
        (r#""no feedstock""#, "exit code 4: no feedstock"),
        (r#"{"code": 7}"#, "exit code 4"),
        ("no JSON", "exit code 4"),
    ] {
        let script = format!("printf %s '{said}' > \"$UNHANG_JOB_DIR/error.json\"; exit 4");
        let record = bench.run(&script).await.record;
        assert_eq!(record.ending.unwrap().detail.as_deref(), Some(detail), "{said}");
    }
}

#[tokio::test]
async fn j_07_a_job_is_accepted_runs_and_is_completed() {
    let bench = Bench::new();
    let id = bench.submit("echo out; echo err >&2").await;
    let status = bench.end(id).await;
    assert_eq!(status.record.status, JobState::Completed, "{status:?}");
    assert_eq!(status.record.ending.unwrap().exit_code, Some(0));
    let results = bench.engine.results(id).await.unwrap();
    assert_eq!((results.stdout_tail.as_str(), results.stderr_tail.as_str()), ("out\n", "err\n"));
    assert_eq!(bench.copied(id, JobState::Completed).await["format"], json!(2));
    for file in ["stdout.log", "stderr.log", "job.json", "run.json", "exit.json", "lock"] {
        let mode = bench.job(id).join(file).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    for folder in [bench.job(id), bench.work(id).await] {
        assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    }
}

#[tokio::test]
async fn g_11_a_job_reads_the_null_device_and_only_its_own_environment() {
    let bench = Bench::new();
    let id = bench.submit("cat; env; readlink /proc/self/fd/0").await;
    bench.end(id).await;
    let output = bench.stdout(id);
    assert!(output.ends_with("/dev/null\n"), "{output}");
    for name in ["UNHANG_JOB_ID=", "UNHANG_JOB_DIR=", "PYTHONUNBUFFERED=1", "PATH="] {
        assert!(output.contains(name), "{name} in {output}");
    }
    assert!(!output.contains("CARGO"), "{output}");
}

#[tokio::test]
async fn the_orders_are_gone_as_soon_as_the_work_runs() {
    let bench = Bench::new();
    let id = bench.submit("exec sleep 3600").await;
    until("its shim says that it runs", || bench.shim(id)).await;
    assert!(!bench.job(id).join("launch.json").exists());
    bench.engine.cancel(id).await.unwrap();
}

/// Nobody has started these, so no shim has removed what it read.
#[tokio::test]
async fn f_92_a_job_that_never_ran_keeps_no_orders() {
    let bench = Bench::with(|options| options.rules.max_concurrent = 1);
    let running = bench.submit("exec sleep 3600").await;
    let secret = |submission: &mut Submission| submission.command.extend(["--token".into(), "s3cret".into()]);
    let cancelled = bench.submit_with("true", secret).await;
    bench.engine.cancel(cancelled).await.unwrap();
    // Its folder to work in goes before its turn comes.
    let folder = bench.folder.path().join("place");
    fs::create_dir(&folder).unwrap();
    let failed = bench
        .submit_with("true", |submission| {
            secret(submission);
            submission.folder.clone_from(&folder);
        })
        .await;
    fs::remove_dir(&folder).unwrap();
    bench.engine.cancel(running).await.unwrap();
    let ending = bench.end(failed).await.record.ending.unwrap();
    assert_eq!(ending.reason, Some(EndReason::StartFailed), "{ending:?}");
    for id in [cancelled, failed] {
        bench.copied(id, bench.engine.status(id).await.unwrap().record.status).await;
        let entries = fs::read_dir(bench.job(id)).unwrap().map(Result::unwrap);
        for entry in entries.filter(|entry| entry.file_type().unwrap().is_file()) {
            let text = fs::read_to_string(entry.path()).unwrap();
            assert!(!text.contains("s3cret"), "{}: {text}", entry.path().display());
        }
    }
}

#[tokio::test]
async fn nothing_secret_is_kept() {
    let bench = Bench::new();
    let id = bench
        .submit_with("sleep 0 --token tell-nobody 2>/dev/null; true", |submission| {
            submission.environment.push(("API_KEY".into(), "tell-nobody-either".into()));
            submission.command.extend(["--password".into(), "hidden-word".into()]);
        })
        .await;
    bench.end(id).await;
    let entries = fs::read_dir(bench.job(id)).unwrap().map(Result::unwrap);
    for entry in entries.filter(|entry| entry.file_type().unwrap().is_file()) {
        let text = fs::read_to_string(entry.path()).unwrap();
        assert!(!text.contains("hidden-word") && !text.contains("tell-nobody-either"), "{text}");
    }
}

#[tokio::test]
async fn j_54_every_way_to_end_is_told_as_it_is() {
    let bench = Bench::new();
    for (script, code, signal, reason) in [
        ("exit 1", Some(1), None, None),
        ("exit 255", Some(255), None, None),
        ("kill -9 $$", None, Some(9), None),
        ("kill -11 $$", None, Some(11), None),
    ] {
        let status = bench.run(script).await;
        assert_eq!(status.record.status, JobState::Failed, "{script}");
        let ending = status.record.ending.unwrap();
        assert_eq!((ending.exit_code, ending.signal, ending.reason), (code, signal, reason), "{script}");
    }
}

#[tokio::test]
async fn j_36_what_cannot_be_started_is_refused_and_leaves_no_folder() {
    let bench = Bench::new();
    let mut missing = bench.submission("true");
    missing.command = vec!["no-such-program".into()];
    let mut nowhere = bench.submission("true");
    nowhere.folder = "/no/such/folder".into();
    let mut empty = bench.submission("true");
    empty.command.clear();
    for (submission, expect) in [
        (missing, "program `no-such-program` not found"),
        (nowhere, "working folder `/no/such/folder` cannot be used"),
        (empty, "the command is empty"),
    ] {
        let error = bench.engine.submit(submission).await.unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
    }
    assert_eq!(fs::read_dir(bench.folder.path().join("jobs")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_job_that_takes_too_long_is_ended_with_everything_that_it_started() {
    let bench = Bench::new();
    let script = "sh -c 'echo $$; exec sleep 3600' & echo $$; exec sleep 3600";
    let id = bench.submit_with(script, |job| job.timeout = Some(Duration::from_secs(1))).await;
    let status = bench.end(id).await;
    let ending = status.record.ending.unwrap();
    assert_eq!((status.record.status, ending.reason), (JobState::Failed, Some(EndReason::Timeout)));
    for pid in bench.stdout(id).lines() {
        assert!(!std::path::Path::new("/proc").join(pid).exists(), "{pid} is left");
    }
}

#[tokio::test]
async fn a_running_job_and_a_queued_one_can_be_cancelled_and_an_ended_one_cannot() {
    let bench = Bench::with(|options| options.rules.max_concurrent = 1);
    let running = bench.submit("trap '' TERM; echo here; sleep 3600; sleep 3600").await;
    let queued = bench.submit("echo never").await;
    until("it says so", || bench.stdout_if_any(running).filter(|text| text.contains("here"))).await;
    let status = bench.engine.cancel(queued).await.unwrap();
    assert_eq!((status.record.status, status.record.started_at), (JobState::Cancelled, None));
    let status = bench.engine.cancel(running).await.unwrap();
    assert_eq!(status.record.status, JobState::Cancelled);
    let error = bench.engine.cancel(running).await.unwrap_err();
    assert!(matches!(error, JobError::HasEnded { status: JobState::Cancelled, .. }), "{error}");
    assert!(!bench.job(queued).join("stdout.log").exists());
}

/// The shim stands still, so that nobody answers for the job.
#[tokio::test]
async fn a_job_whose_shim_is_deaf_can_be_cancelled() {
    let bench = Bench::new();
    let id = bench
        .submit_with("echo here; exec sleep 3600", |job| job.stop_grace = Duration::from_millis(100))
        .await;
    let shim = until("its shim", || bench.shim(id)).await;
    kill_process(shim, Signal::STOP).unwrap();
    let status = bench.engine.cancel(id).await.unwrap();
    assert_eq!(status.record.status, JobState::Cancelled);
    assert_eq!(bench.alive(id), [""; 0]);
}

#[tokio::test]
async fn j_89_no_more_than_the_limit_run_and_they_run_in_their_order() {
    for limit in [1, 2] {
        let bench = Bench::with(|options| options.rules.max_concurrent = limit);
        let shared = bench.folder.path().join("marks");
        let script = format!("echo begin >> {0}; sleep 0.05; echo end >> {0}", shared.display());
        let mut ids = Vec::new();
        for _ in 0..8 {
            ids.push(bench.submit(&script).await);
        }
        let mut started = Vec::new();
        for id in &ids {
            started.push(bench.end(*id).await.record.started_at.unwrap());
        }
        // Of two that come up at the same time, either may be the first.
        assert!(limit > 1 || started.is_sorted(), "{started:?}");
        let (mut running, mut most) = (0, 0);
        for mark in fs::read_to_string(shared).unwrap().lines() {
            running = if mark == "begin" { running + 1 } else { running - 1 };
            most = most.max(running);
        }
        assert_eq!((running, most), (0, limit));
    }
}

#[tokio::test]
async fn j_139_the_result_is_in_the_state_when_the_job_is_completed() {
    let bench = Bench::new();
    let field: Field = "simulation".parse().unwrap();
    let script = r#"echo '{"digester": {"volume": 12.5}, "a/b": 1}' > "$UNHANG_JOB_DIR/results.json""#;
    let with = |pointer: &str| {
        let patch = Patch { field: field.clone(), pointer: Some(pointer.parse().unwrap()), is_shared: false };
        move |job: &mut Submission| {
            job.results = Some(FileName::new("results.json").unwrap());
            job.patch = Some(patch);
        }
    };
    let id = bench.submit_with(script, with("/digester")).await;
    let status = bench.end(id).await;
    assert_eq!(status.record.state_applied, Some(true), "{status:?}");
    let document = bench.engine.document(field.clone()).await.unwrap().unwrap();
    assert_eq!(document.value, json!({ "volume": 12.5 }));
    // A pointer that finds nothing leaves the value as it is.
    let id = bench.submit_with(script, with("/nothing")).await;
    let status = bench.end(id).await;
    assert_eq!((status.record.status, status.record.state_applied), (JobState::Completed, Some(false)));
    assert!(status.record.state_reason.unwrap().contains("matches nothing"));
    assert_eq!(bench.engine.document(field).await.unwrap().unwrap().value, document.value);
}

#[tokio::test]
async fn a_result_that_is_missing_or_no_json_fails_the_job() {
    let bench = Bench::new();
    for (script, reason) in [
        ("true", EndReason::ResultsMissing),
        ("echo '{\"a\": NaN}' > \"$UNHANG_JOB_DIR/results.json\"", EndReason::ResultsInvalid),
        ("printf '{\"a\": 1' > \"$UNHANG_JOB_DIR/results.json\"", EndReason::ResultsInvalid),
        ("mkfifo \"$UNHANG_JOB_DIR/results.json\"", EndReason::ResultsInvalid),
    ] {
        let results = Some(FileName::new("results.json").unwrap());
        let id = bench.submit_with(script, |job| job.results = results).await;
        let status = bench.end(id).await;
        let ending = status.record.ending.unwrap();
        assert_eq!((status.record.status, ending.reason), (JobState::Failed, Some(reason)), "{script}");
    }
}

#[tokio::test]
async fn j_17_inputs_come_from_the_state_and_a_missing_one_is_an_error_and_no_job() {
    let bench = Bench::new();
    let field: Field = "basis".parse().unwrap();
    let input = JobInput {
        file: FileName::new("basis.json").unwrap().into(),
        source: InputSource::State(field.clone()),
    };
    let mut submission = bench.submission("cat \"$UNHANG_JOB_DIR/basis.json\"");
    submission.inputs = vec![input.clone()];
    let error = bench.engine.submit(submission).await.unwrap_err().to_string();
    assert!(error.contains("the state field `basis` is missing"), "{error}");
    assert_eq!(bench.engine.list(None, JobOwnerFilter::Anybodys, 20).await.unwrap().len(), 0);
    assert_eq!(fs::read_dir(bench.folder.path().join("jobs")).unwrap().count(), 0);
    bench.engine.set_document(field, json!({ "cod": 5 })).await.unwrap();
    let id = bench.submit_with("cat \"$UNHANG_JOB_DIR/basis.json\"", |job| job.inputs = vec![input]).await;
    bench.end(id).await;
    assert_eq!(bench.stdout(id), "{\"cod\":5}\n");
}

#[tokio::test]
async fn j_100_progress_can_be_seen_while_the_job_runs() {
    let bench = Bench::new();
    let id = bench
        .submit("echo 'progress: 40%'; echo '{\"progress\": 0.5, \"message\": \"half\"}'; exec sleep 3600")
        .await;
    let progress = bench
        .seen(id, "its progress", |status| status.progress.filter(|seen| seen.fraction > Some(0.45)))
        .await;
    assert_eq!(progress.message.as_deref(), Some("half"));
    assert_eq!(bench.engine.status(id).await.unwrap().record.status, JobState::Running);
    bench.engine.cancel(id).await.unwrap();
}
