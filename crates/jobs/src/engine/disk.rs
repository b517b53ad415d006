//! The threads that wait for the disk on behalf of callers.
//!
//! Invariants
//!
//! - A disk that hangs delays a caller no longer than the limit of what is done.
//! - The threads that wait for the disk have a bound, and what only looks takes no permit from what changes something.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::{sync::Semaphore, time::timeout};

use crate::error::JobError;

/// How long a look at the disk may take. The database may be held by others for ten seconds.
const LOOK_LIMIT: Duration = Duration::from_secs(15);

/// Threads that look at the disk at the same time. Where it hangs each of them hangs too.
const MOST_LOOKS: usize = 32;

/// Threads that change something on the disk at the same time. Whoever cancels a job waits for its end.
const MOST_CHANGES: usize = 64;

/// The permits of those threads.
#[derive(Debug)]
pub(super) struct DiskThreads {
    /// The folder that an error names.
    folder: PathBuf,
    looks: Arc<Semaphore>,
    changes: Arc<Semaphore>,
}

impl DiskThreads {
    pub(super) fn new(folder: PathBuf) -> Self {
        let (looks, changes) = (Semaphore::new(MOST_LOOKS), Semaphore::new(MOST_CHANGES));
        Self { folder, looks: Arc::new(looks), changes: Arc::new(changes) }
    }

    /// Looks at the disk where that delays nobody else.
    pub(super) async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce() -> Result<T, JobError> + Send + 'static,
    ) -> Result<T, JobError> {
        self.within(LOOK_LIMIT, &self.looks, look).await
    }

    /// Changes something on the disk where that delays nobody else. What is late may still be done.
    pub(super) async fn change<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl FnOnce() -> Result<T, JobError> + Send + 'static,
    ) -> Result<T, JobError> {
        self.within(limit, &self.changes, work).await
    }

    /// Does it on a thread that has one of these permits.
    pub(super) async fn within<T: Send + 'static>(
        &self,
        limit: Duration,
        permits: &Arc<Semaphore>,
        work: impl FnOnce() -> Result<T, JobError> + Send + 'static,
    ) -> Result<T, JobError> {
        let permits = Arc::clone(permits);
        let done = async {
            // Nobody closes it.
            let permit = permits.acquire_owned().await.map_err(|_| JobError::Closed)?;
            let done = tokio::task::spawn_blocking(move || {
                let _until_the_disk_answers = permit;
                work()
            });
            // A panic in it is a bug, and the runtime's end leaves nobody to answer.
            done.await.map_err(|_| JobError::Closed)?
        };
        let late = |_| JobError::Late { folder: self.folder.clone(), waited: limit };
        timeout(limit, done).await.map_err(late)?
    }
}
