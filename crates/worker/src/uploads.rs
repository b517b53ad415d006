//! The way of a file that an ended job has left: to the database, or to an object store.
//!
//! Theory of operation. The database takes a file within the loop of the deliveries. An object store may take a minute, or may be away. So
//! an upload is a task of its own with a connection of its own, and the loop looks at the job again when the task is done.
//!
//! Invariants
//!
//! - The end of a job is not told before its file is where readers find it. Until then the file is on this machine's disk.
//! - An upload that fails is tried again until it is done, or until the job is not this worker's any more.
//! - The reason of a failure is in the log of the worker once, and in the status of the job.
//! - The uploads of all jobs hold at most [`AT_ONCE`] files in memory.

use std::{sync::Arc, time::Duration};

use tokio::{task::spawn_blocking, time::Instant};
use unhang_jobs::id::JobId;
use unhang_postgres::{FilePlace, PostgresError, PostgresStore};

use crate::{held::HeldJob, link::StoreLink, link::jittered, worker::WorkerState};

/// The most uploads at the same time.
pub(crate) const AT_ONCE: usize = 2;

/// The pause after the first failure. It doubles with each further one, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The state of the upload of a job's file.
#[derive(Clone, Debug, Default)]
pub(crate) enum UploadState {
    /// Nothing was begun, or nothing has to be done.
    #[default]
    Open,
    /// A task is at it.
    Running(UploadFailures),
    /// The last try has failed.
    Failed(UploadFailures),
    /// The file is where it belongs.
    Done,
}

/// The failures of an upload in a row.
#[derive(Clone, Debug, Default)]
pub(crate) struct UploadFailures {
    count: u32,
    /// The reason of the last one.
    why: String,
    /// The time of the next try.
    next: Option<Instant>,
}

/// What became of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileDelivery {
    /// The store has it. `None` if there is none.
    Done(Option<Arc<Vec<u8>>>),
    /// It is on its way. The end of the job waits.
    UnderWay,
    /// No store takes it, for this reason.
    TooLarge(String),
}

/// Brings a file that a job has left a step nearer to where readers find it.
pub(crate) async fn deliver(
    state: &Arc<WorkerState>,
    link: &mut StoreLink,
    job: &HeldJob,
    name: &str,
) -> Result<FileDelivery, PostgresError> {
    let (id, token) = (job.note.job, job.note.token.clone());
    let failures = match &job.upload {
        UploadState::Done => UploadFailures::default(),
        UploadState::Running(_) => return Ok(FileDelivery::UnderWay),
        UploadState::Failed(failures) if failures.next.is_some_and(|next| Instant::now() < next) => {
            return Ok(FileDelivery::UnderWay);
        }
        UploadState::Failed(failures) => failures.clone(),
        UploadState::Open => UploadFailures::default(),
    };
    let content = state.engine.left_file(id, name).await.ok().flatten().map(Arc::new);
    let Some(content) = content else { return Ok(FileDelivery::Done(None)) };
    if matches!(job.upload, UploadState::Done) {
        return Ok(FileDelivery::Done(Some(content)));
    }
    match state.files.place(state.address.shown(), name, content.len() as u64) {
        Ok(FilePlace::Database) => {
            let (name, kept) = (name.to_owned(), Arc::clone(&content));
            link.run(move |store| store.put_file(id, &token, &name, &kept)).await?;
            Ok(FileDelivery::Done(Some(content)))
        }
        Ok(FilePlace::Artifacts(_)) => {
            state.held.change(id, &token, |held| held.upload = UploadState::Running(failures));
            tokio::spawn(upload(Arc::clone(state), id, token, name.to_owned()));
            Ok(FileDelivery::UnderWay)
        }
        Err(error) => Ok(FileDelivery::TooLarge(error.to_string())),
    }
}

/// Makes one try to write a file into the object store, and notes how it went.
async fn upload(state: Arc<WorkerState>, id: JobId, token: String, name: String) {
    // The semaphore is never closed.
    let _permit = state.uploads.acquire().await;
    let outcome = match state.engine.left_file(id, &name).await {
        Ok(Some(content)) => try_once(&state, id, &token, name, content).await,
        // Its end is told without it, as that of a job without such a file.
        Ok(None) => Ok(()),
        Err(error) => Err(error.to_string()),
    };
    state.held.change(id, &token, |held| {
        let UploadState::Running(before) = &held.upload else { return };
        held.upload = match outcome {
            Ok(()) => {
                if before.count > 0 {
                    tracing::info!("the file of job {id} is in its object store now");
                }
                UploadState::Done
            }
            Err(why) => {
                if before.why != why {
                    tracing::warn!("the end of job {id} waits on this worker: {why}; the worker tries again");
                }
                let doubled = FIRST_PAUSE.saturating_mul(1 << before.count.min(8));
                let next = Some(Instant::now() + jittered(doubled.min(LONGEST_PAUSE)));
                UploadState::Failed(UploadFailures { count: before.count.saturating_add(1), why, next })
            }
        };
    });
    state.has_news.notify_one();
}

async fn try_once(
    state: &Arc<WorkerState>,
    id: JobId,
    token: &str,
    name: String,
    content: Vec<u8>,
) -> Result<(), String> {
    let (address, files, token) = (state.address.clone(), state.files.clone(), token.to_owned());
    let done = spawn_blocking(move || {
        let mut store = PostgresStore::open(address).map_err(|error| error.to_string())?;
        // A job that is not this worker's any more has nothing to wait for; the store refuses its end as well.
        let put = files.put(&mut store, id, &token, &name, content).map(drop);
        put.map_err(|error| {
            if error.is_of_artifacts() {
                let trouble = format!("it has ended, and its worker cannot deliver its file: {error}");
                // The log of the worker has the reason, too.
                let _ = store.note_trouble(id, &token, Some(&trouble));
            }
            error.to_string()
        })
    });
    done.await.unwrap_or_else(|error| Err(error.to_string()))
}
