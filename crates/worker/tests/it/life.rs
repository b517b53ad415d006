//! The life of a job that a worker runs: everything that a job of one machine has, seen from another data folder.

use std::{fs, time::Duration};

use serde_json::json;
use unhang_jobs::{
    error::JobError,
    folder::{FileName, InputName},
    log::LogStream,
    record::{EndReason, JobState},
    store::JobOwnerFilter,
    submission::{InputSource, JobInput},
};

use unhang_postgres::WorkerList;

use crate::common::{Cluster, LONG, is_alive};

#[tokio::test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
async fn a_job_that_is_submitted_elsewhere_runs_on_a_worker_with_its_output() {
    let cluster = Cluster::new("life");
    let worker = cluster.worker("one", 2, LONG, LONG);
    let script = "cat input.txt; echo problem >&2; echo 'progress: 40%'; \
                  cp \"$UNHANG_JOB_DIR/input.txt\" \"$UNHANG_JOB_DIR/note\"; \
                  echo '{\"size\": 7}' > \"$UNHANG_JOB_DIR/results.json\"";
    let script = script.replace("cat input.txt", "cat \"$UNHANG_JOB_DIR/input.txt\"");
    let id = cluster
        .submit(&script, |submission| {
            submission.inputs = vec![JobInput {
                file: InputName::new("input.txt".as_ref()).unwrap(),
                source: InputSource::Bytes("größe\n".repeat(100_000).into()),
            }];
            submission.results = Some(FileName::new("results.json").unwrap());
        })
        .await;
    let status = cluster.end(id).await;
    assert_eq!(status.record.status, JobState::Completed, "{status:?}");
    assert!(status.shared.unwrap().worker.unwrap().len() > 12);
    let results = cluster.engine.results(id).await.unwrap();
    assert_eq!(results.results, Some(json!({"size": 7})));
    assert_eq!(results.stderr_tail, "problem\n");
    assert!(results.stdout_tail.ends_with("größe\nprogress: 40%\n"), "{}", results.stdout_tail);
    // All of the log, page by page, each between two characters.
    let (mut text, mut offset) = (String::new(), 0);
    loop {
        let page = cluster.engine.logs(id, LogStream::Stdout, offset, 10_000).await.unwrap();
        (text, offset) = (text + &page.text, page.next_offset);
        if page.eof {
            break;
        }
    }
    assert_eq!(text, "größe\n".repeat(100_000) + "progress: 40%\n");
    let listed = cluster.engine.list(Some(JobState::Completed), JobOwnerFilter::Anybodys, 10).await.unwrap();
    assert_eq!(listed.iter().map(|status| status.record.job_id).collect::<Vec<_>>(), [id]);
    // The worker keeps nothing of it.
    crate::common::until("its copy has gone", || {
        let left = fs::read_dir(cluster.path("one/jobs")).unwrap().count();
        (left == 0 && !cluster.path("one/worker").join(format!("{id}.json")).exists()).then_some(())
    })
    .await;
    cluster.engine.remove(id).await.unwrap();
    assert!(matches!(cluster.engine.status(id).await, Err(JobError::NoSuchJob(_))));
    worker.stop().await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
async fn a_running_job_shows_log_and_progress_elsewhere_and_can_be_cancelled() {
    let cluster = Cluster::new("cancel");
    let lease = Duration::from_secs(3);
    let worker = cluster.worker("one", 1, lease, lease);
    let id = cluster.submit(&format!("echo 'progress: 25%'; {}", cluster.gated()), |_| {}).await;
    let queued = cluster.submit("true", |_| {}).await;
    cluster.running(id).await;
    let fraction = cluster.seen(id, "its progress", |status| status.progress.clone()?.fraction).await;
    assert!((fraction - 0.25).abs() < 1e-9);
    assert_eq!(cluster.engine.status(queued).await.unwrap().queue_position, Some(0));
    let began = tokio::time::Instant::now();
    loop {
        let page = cluster.engine.logs(id, LogStream::Stdout, 0, 1000).await.unwrap();
        if page.text.ends_with("begun\n") {
            assert!(!page.eof);
            break;
        }
        assert!(began.elapsed() < crate::common::PATIENCE, "{page:?}");
    }
    let ended = cluster.engine.cancel(queued).await.unwrap();
    assert_eq!(ended.record.status, JobState::Cancelled);
    let ended = cluster.engine.cancel(id).await.unwrap();
    assert_eq!(ended.record.status, JobState::Cancelled);
    assert!(cluster.starts().iter().all(|pid| !is_alive(*pid)));
    assert!(matches!(cluster.engine.cancel(id).await, Err(JobError::HasEnded { .. })));
    worker.stop().await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
async fn a_job_without_a_worker_waits_and_says_which_label_is_missing() {
    let cluster = Cluster::new("labels");
    let id = cluster.submit("true", |submission| submission.placement.labels = vec!["gpu".to_owned()]).await;
    let reason = cluster.engine.status(id).await.unwrap().wait_reason.unwrap();
    assert!(
        reason.starts_with("no worker allows any command") && reason.ends_with("has the label gpu"),
        "{reason}"
    );
    let plain = cluster.worker("plain", 1, LONG, LONG);
    let first = cluster.submit("true", |_| {}).await;
    cluster.end(first).await;
    let reason = cluster.engine.status(id).await.unwrap().wait_reason;
    assert_eq!(reason.as_deref(), Some("no worker has the label gpu"));
    let gpu = cluster.worker_with("gpu", 1, LONG, LONG, &["gpu"]);
    assert_eq!(cluster.end(id).await.record.status, JobState::Completed);
    let workers = cluster.ask(|store| WorkerList(store).all().unwrap());
    let labels: Vec<usize> = workers.iter().map(|worker| worker.note.labels.len()).collect();
    assert_eq!((workers.len(), labels.iter().sum::<usize>()), (2, 3), "{workers:?}");
    for worker in [plain, gpu] {
        worker.stop().await;
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
async fn work_that_cannot_be_done_here_fails_with_the_reason() {
    let cluster = Cluster::new("refused");
    let worker = cluster.worker("one", 1, LONG, LONG);
    for (change, words) in [
        (
            (|submission| submission.folder = "/nowhere".into())
                as fn(&mut unhang_jobs::submission::Submission),
            "/nowhere does not exist on this worker",
        ),
        (|submission| submission.command = vec!["no-such-program".into()], "no-such-program"),
    ] {
        let id = cluster.submit("true", change).await;
        let ending = cluster.end(id).await.record.ending.unwrap();
        assert_eq!(ending.reason, Some(EndReason::StartFailed));
        assert!(ending.detail.as_ref().unwrap().contains(words), "{ending:?}");
    }
    let id = cluster.submit("exit 3", |_| {}).await;
    assert_eq!(cluster.end(id).await.record.ending.unwrap().exit_code, Some(3));
    worker.stop().await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
async fn a_drained_worker_ends_when_its_last_job_has_ended() {
    let cluster = Cluster::new("drained");
    let lease = Duration::from_secs(3);
    let mut worker = cluster.worker("one", 1, lease, lease);
    let id = cluster.submit(&cluster.gated(), |_| {}).await;
    cluster.running(id).await;
    cluster.ask(|store| {
        let name = WorkerList(store).all().unwrap()[0].note.name.clone();
        assert!(WorkerList(store).want_drain(&name, true).unwrap());
    });
    let later = cluster.submit("true", |_| {}).await;
    cluster
        .seen(later, "no worker takes it", |status| {
            status.wait_reason.clone().filter(|reason| reason.starts_with("no worker"))
        })
        .await;
    cluster.open_gate();
    assert_eq!(worker.ended().await, "drained");
    assert_eq!(cluster.end(id).await.record.status, JobState::Completed);
    assert_eq!(cluster.ask(|store| WorkerList(store).all().unwrap()), []);
    assert_eq!(cluster.engine.status(later).await.unwrap().record.status, JobState::Queued);
}
