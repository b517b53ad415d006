//! Large files of jobs, in a folder that submitter and workers share.

use std::{
    fs,
    path::{Path, PathBuf},
};

use unhang_jobs::{
    folder::{FileName, InputName},
    id::JobId,
    record::{EndReason, JobState},
    store::JobStore as _,
    submission::{InputSource, JobInput, Submission},
};
use unhang_postgres::{
    ARTIFACT_MAX, SharedFiles,
    artifacts::{ArtifactLocation, ArtifactStore, ObjectAccess},
};

use crate::common::{Cluster, LONG, WorkerProcess};

/// The size above which the files of these tests are large.
const INLINE: u64 = 100;

fn shared(folder: &Path) -> SharedFiles {
    let location = ArtifactLocation::parse(folder.to_str().unwrap()).unwrap();
    let artifacts = Some(ArtifactStore::new(&location, ObjectAccess::default()));
    SharedFiles { artifacts, inline: INLINE, largest: ARTIFACT_MAX }
}

/// A cluster whose submitter has an object store.
struct Sharing {
    cluster: Cluster,
    store: PathBuf,
}

impl Sharing {
    fn new(name: &str) -> Self {
        let cluster = Cluster::with_files(name, |folder| {
            let store = folder.join("store");
            fs::create_dir(&store).unwrap();
            shared(&store)
        });
        let store = cluster.path("store");
        Self { cluster, store }
    }

    fn worker(&self, name: &str) -> WorkerProcess {
        let words = [format!("artifacts={}", self.store.display()), format!("inline={INLINE}")];
        self.cluster.worker_with(name, 3, LONG, LONG, &words.each_ref().map(String::as_str))
    }

    /// Returns the paths of all objects, and of what else lies in their folders.
    fn objects(&self) -> Vec<PathBuf> {
        let below = |folder: &Path| -> Vec<PathBuf> {
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
        };
        let jobs = below(&self.store).into_iter().filter(|path| path.is_dir());
        jobs.flat_map(|job| below(&job)).flat_map(|attempt| below(&attempt)).collect()
    }

    fn told(&self) -> String {
        self.store.display().to_string()
    }
}

fn input(submission: &mut Submission, name: &str, content: impl Into<Vec<u8>>) {
    let file = InputName::new(name.as_ref()).unwrap();
    submission.inputs.push(JobInput { file, source: InputSource::Bytes(content.into()) });
}

fn with_results(submission: &mut Submission) {
    submission.results = Some(FileName::new("results.json").unwrap());
}

/// A script that leaves its input as the result.
const ECHO: &str = "cp \"$UNHANG_JOB_DIR/input.json\" \"$UNHANG_JOB_DIR/results.json\"";

fn large() -> String {
    format!("[{}0]", "1, ".repeat(1000))
}

#[tokio::test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
async fn large_files_go_through_the_object_store_and_are_removed_with_their_job() {
    let sharing = Sharing::new("artifacts");
    let cluster = &sharing.cluster;
    let id = cluster
        .submit(&format!("cat \"$UNHANG_JOB_DIR/small\"; {ECHO}"), |submission| {
            input(submission, "input.json", large());
            input(submission, "small", "small\n");
            with_results(submission);
        })
        .await;
    // The small one is in the database.
    assert_eq!(sharing.objects().len(), 1);
    let worker = sharing.worker("one");
    let status = cluster.end(id).await;
    assert_eq!(status.record.status, JobState::Completed, "{status:?}");
    let results = cluster.engine.results(id).await.unwrap();
    assert_eq!(results.results.unwrap(), serde_json::from_str::<serde_json::Value>(&large()).unwrap());
    assert_eq!(results.stdout_tail, "small\n");
    assert_eq!(sharing.objects().len(), 2);
    // A reader without the object store is told where the file is.
    let told =
        cluster.ask(|store| SharedFiles::default().file(store, id, "results.json").unwrap_err()).to_string();
    assert!(told.contains(&sharing.told()) && told.contains("this unhang has none"), "{told}");
    // One that was changed is told, and not read.
    let own = |path: &PathBuf| path.components().any(|part| part.as_os_str() == "1");
    let object = sharing.objects().into_iter().find(own).unwrap();
    fs::write(&object, "[]").unwrap();
    let told = cluster.engine.results(id).await.unwrap_err().to_string();
    assert!(told.contains("damaged") && told.contains(&sharing.told()), "{told}");
    cluster.engine.remove(id).await.unwrap();
    assert!(sharing.objects().is_empty());
    assert!(cluster.ask(|store| store.get(id).unwrap()).is_none());
    worker.stop().await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
async fn a_job_whose_object_store_is_away_is_not_accepted() {
    let sharing = Sharing::new("refused");
    let cluster = &sharing.cluster;
    fs::remove_dir(&sharing.store).unwrap();
    let mut submission = cluster.submission(ECHO);
    input(&mut submission, "input.json", large());
    let id = submission.id;
    let told = cluster.engine.submit(submission).await.unwrap_err().to_string();
    assert!(told.contains("nothing was accepted: the object store"), "{told}");
    assert!(told.contains(&sharing.told()), "{told}");
    assert!(cluster.ask(|store| store.get(id).unwrap()).is_none());
    // The same submission is good afterwards.
    fs::create_dir(&sharing.store).unwrap();
    let mut again = cluster.submission(ECHO);
    again.id = id;
    input(&mut again, "input.json", large());
    cluster.engine.submit(again).await.unwrap();
}

#[tokio::test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
async fn a_job_with_large_inputs_waits_for_a_worker_with_the_same_object_store() {
    let sharing = Sharing::new("without");
    let cluster = &sharing.cluster;
    let id = cluster.submit(ECHO, |submission| input(submission, "input.json", large())).await;
    let without = cluster.worker("without", 1, LONG, LONG);
    let small = cluster.submit("true", |_| {}).await;
    assert_eq!(cluster.end(small).await.record.status, JobState::Completed);
    let told = cluster.seen(id, "it waits", |status| status.wait_reason.clone()).await;
    assert_eq!(told, format!("no worker has the object store {} (`artifacts` in [jobs])", sharing.told()));
    let with = sharing.worker("with");
    assert_eq!(cluster.end(id).await.record.status, JobState::Completed);
    with.stop().await;
    without.stop().await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
async fn a_job_whose_input_cannot_be_read_goes_back_to_the_queue_and_delays_no_other() {
    let sharing = Sharing::new("missing");
    let cluster = &sharing.cluster;
    let id = cluster.submit(ECHO, |submission| input(submission, "input.json", large())).await;
    let [object] = &sharing.objects()[..] else { panic!("one object") };
    fs::remove_file(object).unwrap();
    let worker = sharing.worker("one");
    let reason = |status: &unhang_jobs::engine::JobStatus| {
        (status.record.status == JobState::Queued)
            .then(|| status.wait_reason.clone().filter(|reason| !reason.starts_with("no worker")))
            .flatten()
    };
    let told = cluster.seen(id, "it says why", reason).await;
    assert!(told.contains("cannot read its inputs") && told.contains(&sharing.told()), "{told}");
    assert!(told.contains("has no object"), "{told}");
    let other = cluster.submit("true", |_| {}).await;
    assert_eq!(cluster.end(other).await.record.status, JobState::Completed);
    let claims = cluster.ask(|store| store.get(id).unwrap().unwrap().claims);
    assert_eq!(claims, 0, "the claim does not count");
    cluster.engine.cancel(id).await.unwrap();
    worker.stop().await;
}

/// Promise 7: the end stays on the worker's disk, and so does the file.
#[tokio::test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
async fn an_end_whose_file_cannot_be_written_waits_and_says_why_and_delays_no_other() {
    let sharing = Sharing::new("away");
    let cluster = &sharing.cluster;
    let mut worker = sharing.worker("one");
    let script = format!("{}; echo '{}' > $UNHANG_JOB_DIR/results.json", cluster.gated(), large());
    let id = cluster.submit(&script, with_results).await;
    cluster.running(id).await;
    fs::remove_dir(&sharing.store).unwrap();
    cluster.open_gate();
    let told = cluster.seen(id, "it says why", |status| status.wait_reason.clone()).await;
    assert!(told.contains("cannot deliver its file") && told.contains(&sharing.told()), "{told}");
    let other = cluster.submit("true", |_| {}).await;
    assert_eq!(cluster.end(other).await.record.status, JobState::Completed);
    // The next worker on the folder goes on with it.
    worker.kill().await;
    fs::create_dir(&sharing.store).unwrap();
    let worker = sharing.worker("one");
    let status = cluster.end(id).await;
    assert_eq!((status.record.status, status.wait_reason), (JobState::Completed, None));
    assert!(cluster.engine.results(id).await.unwrap().results.is_some());
    worker.stop().await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
async fn a_result_that_no_store_takes_fails_its_job_with_the_reason() {
    let cluster = Cluster::new("too-large");
    let worker = cluster.worker_with("one", 1, LONG, LONG, &["max=1000"]);
    let script = format!("echo '{}' > $UNHANG_JOB_DIR/results.json", large());
    let id = cluster.submit(&script, with_results).await;
    let ending = cluster.end(id).await.record.ending.unwrap();
    assert_eq!(ending.reason, Some(EndReason::ResultsInvalid));
    let detail = ending.detail.unwrap();
    let parts = ["results.json has 3004 bytes", "takes 1000", "artifact-max", "`artifacts`"];
    assert!(parts.iter().all(|part| detail.contains(part)), "{detail}");
    // The account of a failure is left out, and the failure keeps its reason.
    let script = format!("echo '{{\"a\": {}}}' > $UNHANG_JOB_DIR/error.json; exit 3", large());
    let id = cluster.submit(&script, |_| {}).await;
    let status = cluster.end(id).await;
    let ending = status.record.ending.unwrap();
    assert_eq!((ending.exit_code, status.record.status), (Some(3), JobState::Failed));
    assert!(ending.detail.unwrap().contains("artifact-max"));
    assert_eq!(cluster.engine.results(id).await.unwrap().error, None);
    worker.stop().await;
}

/// Writes that never became part of a job are found by their rows.
#[tokio::test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
async fn objects_without_a_job_are_swept_and_those_of_a_job_are_not() {
    let sharing = Sharing::new("swept");
    let cluster = &sharing.cluster;
    let submit = |content: String| cluster.submit("true", move |submission| input(submission, "a", content));
    let [kept, removed, young, old] =
        [submit(large()).await, submit(large()).await, submit(large()).await, submit(large()).await];
    // As if the process had been killed between the object and the acceptance, now and an hour ago; and as if one without the object
    // store had removed a job.
    let delete = |id: JobId| format!("DELETE FROM unhang.jobs WHERE id = '{id}';");
    let writing = |id: JobId, made: &str| {
        format!(
            "UPDATE unhang.artifacts SET state = 'writing', job = NULL, made_at = now() - interval '{made}' WHERE job_id = '{id}';"
        )
    };
    let sql = [
        delete(removed),
        delete(young),
        delete(old),
        writing(young, "59 minutes"),
        writing(old, "61 minutes"),
    ];
    cluster.execute(&sql.concat()).await;
    let files = shared(&sharing.store);
    cluster.ask(|store| files.sweep(store).unwrap());
    let mut left: Vec<String> = sharing.objects().iter().map(|path| path.display().to_string()).collect();
    left.sort();
    let has = |id: JobId| left.iter().any(|path| path.contains(id.as_str()));
    assert_eq!([kept, removed, young, old].map(has), [true, false, true, false], "{left:?}");
}
