//! A submission that is in the middle when somebody else makes the database anew.

use std::fs;

use super::*;
use crate::{
    engine::{Engine, EngineOptions},
    folder::DATABASE,
    shims::ShimCommand,
    store::JobStore,
};

type Outcome = oneshot::Receiver<Result<JobId, JobError>>;

fn engine(folder: &tempfile::TempDir) -> Engine {
    let shim = ShimCommand { program: "/nowhere".into(), arguments: Vec::new() };
    Engine::open(EngineOptions::new(folder.path().to_owned(), shim)).unwrap().0
}

/// A submission whose folder is full, and that is not in the database yet.
fn in_the_middle(engine: &Engine) -> (JobId, Vec<(PreparedSubmission, SubmissionReply)>, Outcome) {
    let submission = Submission::new(vec!["/bin/true".into()], "/".into()).unwrap();
    let id = submission.id;
    let (answer, outcome) = oneshot::channel();
    let batch = vec![(NewJob::Command(Box::new(submission)), SubmissionReply::Command(answer))];
    (id, prepare_all(&engine.inner, batch), outcome)
}

async fn is_known(engine: &Engine, id: JobId) -> bool {
    engine.inner.store().get(id).unwrap().is_some()
}

#[tokio::test]
async fn a_folder_that_is_being_submitted_is_in_no_table_before_its_submitter_has_put_it_there() {
    let folder = tempfile::tempdir().unwrap();
    let (submitter, other) = (engine(&folder), engine(&folder));
    let mut store = SqliteStore::open(&submitter.inner.data).unwrap().0;
    let (id, prepared, mut outcome) = in_the_middle(&submitter);
    other.rebuild().await.unwrap();
    assert!(!is_known(&other, id).await);
    take_in(&submitter.inner, &mut store, prepared);
    assert_eq!(outcome.try_recv().unwrap().unwrap(), id);
    assert!(is_known(&other, id).await);
    other.rebuild().await.unwrap();
    assert!(is_known(&other, id).await);
}

#[tokio::test]
async fn a_row_that_was_made_of_the_folder_of_a_submission_is_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let (submitter, other) = (engine(&folder), engine(&folder));
    let mut store = SqliteStore::open(&submitter.inner.data).unwrap().0;
    let (id, mut prepared, mut outcome) = in_the_middle(&submitter);
    // As one of an older unhang, which knows no mark.
    prepared[0].0.mark.take().unwrap().remove();
    other.rebuild().await.unwrap();
    assert!(is_known(&other, id).await);
    take_in(&submitter.inner, &mut store, prepared);
    assert_eq!(outcome.try_recv().unwrap().unwrap(), id);
    assert!(submitter.inner.data.job(id).has("launch.json"));
}

#[tokio::test]
async fn a_database_that_is_replaced_before_the_row_or_after_it_has_the_row() {
    for after in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let submitter = engine(&folder);
        let mut store = SqliteStore::open(&submitter.inner.data).unwrap().0;
        let (id, mut prepared, mut outcome) = in_the_middle(&submitter);
        if after {
            let jobs: Vec<&PreparedSubmission> = prepared.iter().map(|(job, _)| job).collect();
            commit(&submitter.inner, &mut store, &jobs).unwrap();
        }
        for suffix in ["", "-wal", "-shm"] {
            let _not_all_are_there = fs::remove_file(folder.path().join(format!("{DATABASE}{suffix}")));
        }
        let other = engine(&folder);
        assert!(!is_known(&other, id).await);
        assert!(note(&submitter.inner, &mut store, &mut prepared).is_ok());
        take_in(&submitter.inner, &mut store, prepared);
        assert_eq!(outcome.try_recv().unwrap().unwrap(), id);
        assert!(is_known(&other, id).await);
    }
}

#[tokio::test]
async fn what_a_killed_submitter_leaves_is_no_job_and_is_removed_when_it_is_old() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(&folder);
    let (id, prepared, _) = in_the_middle(&engine);
    let job = engine.inner.data.job(id);
    let age = |path: &std::path::Path| {
        let hours_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(2 * 60 * 60);
        fs::File::open(path).unwrap().set_modified(hours_ago).unwrap();
    };
    age(job.path());
    assert_eq!(engine.prune_expired().await.unwrap().orphans, 0, "it is somebody's");
    drop(prepared);
    engine.rebuild().await.unwrap();
    assert!(!is_known(&engine, id).await);
    assert_eq!(engine.prune_expired().await.unwrap().orphans, 1);
    assert!(!job.is_there());
}

#[tokio::test]
async fn the_folder_of_a_job_that_has_another_row_goes_and_the_row_stays() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(&folder);
    let mut store = SqliteStore::open(&engine.inner.data).unwrap().0;
    let (id, prepared, mut outcome) = in_the_middle(&engine);
    let other = JobRecord { name: "another".to_owned(), ..prepared[0].0.record.clone() };
    store.accept(&[JobEntry { record: &other, orders: None }]).unwrap();
    take_in(&engine.inner, &mut store, prepared);
    assert!(matches!(outcome.try_recv().unwrap(), Err(JobError::IdTaken(taken)) if taken == id));
    assert!(is_known(&engine, id).await && !engine.inner.data.job(id).is_there());
}
