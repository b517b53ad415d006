//! The threads that wait for the disk on behalf of callers.
//!
//! Invariants
//!
//! - A disk that hangs delays a caller no longer than the limit of the operation.
//! - The number of threads that wait for the disk is limited. Readers take no permit from writers, and cancellations take none from the
//!   writers of the ends that they wait for.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::{sync::Semaphore, time::timeout};

use crate::error::JobError;

/// The time that a look at the disk may take. Others may hold the database for ten seconds.
const LOOK_LIMIT: Duration = Duration::from_secs(15);

/// The most threads that read the disk at the same time. If the disk hangs, each of them hangs too.
const MOST_LOOKS: usize = 32;

/// The most threads that change something on the disk at the same time.
const MOST_CHANGES: usize = 16;

/// The most threads that cancel a job at the same time. Each waits for the end of its job, which another thread writes.
const MOST_CANCELLATIONS: usize = 32;

/// The permits of those threads.
#[derive(Debug)]
pub(super) struct DiskThreads {
    /// The data folder, which errors name.
    folder: PathBuf,
    looks: Arc<Semaphore>,
    changes: Arc<Semaphore>,
    cancellations: Arc<Semaphore>,
}

impl DiskThreads {
    pub(super) fn new(folder: PathBuf) -> Self {
        let of = |permits| Arc::new(Semaphore::new(permits));
        Self {
            folder,
            looks: of(MOST_LOOKS),
            changes: of(MOST_CHANGES),
            cancellations: of(MOST_CANCELLATIONS),
        }
    }

    /// Runs a read of the disk on a thread of its own kind, with the limit for reads.
    pub(super) fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce() -> Result<T, JobError> + Send + 'static,
    ) -> impl Future<Output = Result<T, JobError>> + Send {
        self.within(LOOK_LIMIT, &self.looks, look)
    }

    /// Runs a change of the disk on a thread of its own kind. A change that is late may still be done.
    pub(super) fn change<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce() -> Result<T, JobError> + Send + 'static,
    ) -> impl Future<Output = Result<T, JobError>> + Send {
        self.within(limit, &self.changes, work)
    }

    /// Cancels a job on a thread of its own kind. The job may still end after the limit.
    pub(super) fn cancel<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce() -> Result<T, JobError> + Send + 'static,
    ) -> impl Future<Output = Result<T, JobError>> + Send {
        self.within(limit, &self.cancellations, work)
    }

    /// Runs `work` on a blocking thread that has one of these permits.
    pub(super) async fn within<T: Send + 'static>(
        &self,
        limit: Duration,
        permits: &Arc<Semaphore>,
        work: impl FnOnce() -> Result<T, JobError> + Send + 'static,
    ) -> Result<T, JobError> {
        let permits = Arc::clone(permits);
        // In a box: hundreds of calls may wait for the disk at the same time, and futures around this one would have room for it more than
        // once.
        let done = Box::pin(async move {
            // The semaphore is never closed.
            let permit = permits.acquire_owned().await.map_err(|_| JobError::Closed)?;
            let done = tokio::task::spawn_blocking(move || {
                let _until_the_disk_answers = permit;
                work()
            });
            // A panic in `work` is a bug. After the runtime's end nobody waits for the answer.
            done.await.map_err(|_| JobError::Closed)?
        });
        let late = |_| JobError::Late { folder: self.folder.clone(), waited: limit };
        timeout(limit, done).await.map_err(late)?
    }
}
