//! Ends of calls that the disk does not take: the holder keeps them, and nothing stands still meanwhile.

use std::{fs, path::PathBuf, time::Duration};

use tokio::{
    task::JoinHandle,
    time::{sleep, timeout},
};
use unhang_jobs::{
    engine::{CallEnd, HeldCall, JobStatus},
    error::JobError,
    id::JobId,
    record::JobState,
};

use crate::{
    calls::call,
    common::{Bench, PATIENCE},
};

const ANSWER: &str = r#"{"content":[]}"#;

/// A call that is held.
async fn held(bench: &Bench) -> (HeldCall, JobId) {
    let (held, _) = bench.engine.adopt(call()).await.unwrap();
    let id = held.id();
    (held, id)
}

/// A call that is held, and a folder in the place of its result.
async fn held_without_place(bench: &Bench) -> (HeldCall, JobId, PathBuf) {
    let (held, id) = held(bench).await;
    let place = bench.work(id).await.join("results.json");
    fs::create_dir_all(place.join("full")).unwrap();
    (held, id, place)
}

/// Settles a call with its answer, beside the test.
fn settling(held: HeldCall) -> JoinHandle<Result<JobStatus, JobError>> {
    let answered = CallEnd::Answered { result: ANSWER.to_owned().into(), is_error: false };
    tokio::spawn(held.settle_in_the_end(answered))
}

/// The status with which a call was settled.
async fn settled(settling: JoinHandle<Result<JobStatus, JobError>>) -> JobState {
    let settled = timeout(PATIENCE, settling).await.expect("it ends").expect("no panic");
    settled.expect("the disk takes it").record.status
}

#[tokio::test]
async fn an_end_is_stored_as_soon_as_nothing_is_in_its_place() {
    let bench = Bench::new();
    let (held, id, place) = held_without_place(&bench).await;
    let settling = settling(held);
    // Nothing tells of a try that has failed. On a machine that is slower, the test sees less and stays green.
    sleep(Duration::from_millis(500)).await;
    assert!(!settling.is_finished());
    assert_eq!(bench.engine.status(id).await.unwrap().record.status, JobState::Running);
    fs::remove_dir_all(&place).unwrap();
    assert_eq!(settled(settling).await, JobState::Completed);
    assert_eq!(bench.engine.call_result(id).await.unwrap().as_deref(), Some(ANSWER));
}

#[tokio::test]
async fn a_job_whose_answer_cannot_be_stored_can_be_cancelled() {
    let bench = Bench::new();
    let (held, id, _place) = held_without_place(&bench).await;
    let settling = settling(held);
    bench.engine.cancel(id).await.unwrap();
    assert_eq!(settled(settling).await, JobState::Cancelled);
}

#[tokio::test]
async fn an_end_waits_for_a_data_folder_that_was_moved_and_makes_none_in_its_place() {
    let bench = Bench::new();
    let (held, id) = held(&bench).await;
    let (path, aside) = (bench.folder.path().to_owned(), bench.folder.path().with_extension("aside"));
    fs::rename(&path, &aside).unwrap();
    let settling = settling(held);
    // As above: two of its tries fail meanwhile.
    sleep(Duration::from_millis(1500)).await;
    assert!(!settling.is_finished() && !path.exists());
    fs::rename(&aside, &path).unwrap();
    assert_eq!(settled(settling).await, JobState::Completed);
    assert_eq!(bench.engine.call_result(id).await.unwrap().as_deref(), Some(ANSWER));
}

/// The finding: the maintenance thread waited for itself.
#[tokio::test]
async fn a_call_that_was_let_go_and_cannot_be_settled_holds_nothing_up() {
    let bench = Bench::new();
    let (held, id) = held(&bench).await;
    let folder = bench.work(id).await.parent().unwrap().to_owned();
    let aside = folder.with_extension("aside");
    fs::rename(&folder, &aside).unwrap();
    fs::write(&folder, "no folder").unwrap();
    drop(held);
    let other = timeout(PATIENCE, bench.run("true")).await.expect("other jobs end");
    assert_eq!(other.record.status, JobState::Completed);
    fs::remove_file(&folder).unwrap();
    fs::rename(&aside, &folder).unwrap();
    assert_eq!(bench.end(id).await.record.status, JobState::Failed);
    timeout(PATIENCE, bench.engine.close()).await.expect("the engine ends").unwrap();
}

/// A mount point lies in the place of the data folder for a moment.
#[tokio::test]
async fn an_end_goes_into_no_folder_that_is_not_the_data_folder() {
    for is_let_go in [false, true] {
        let bench = Bench::new();
        let (held, id) = held(&bench).await;
        let (path, aside) = (bench.folder.path().to_owned(), bench.folder.path().with_extension("aside"));
        fs::rename(&path, &aside).unwrap();
        fs::create_dir(&path).unwrap();
        let settling = (!is_let_go).then(|| settling(held));
        // As above: some tries fail meanwhile.
        sleep(Duration::from_millis(1500)).await;
        // It fails if anything was made there.
        fs::remove_dir(&path).unwrap();
        fs::rename(&aside, &path).unwrap();
        match settling {
            Some(settling) => assert_eq!(settled(settling).await, JobState::Completed),
            None => assert_eq!(bench.end(id).await.record.status, JobState::Failed),
        }
    }
}
