//! The engine on a data folder, or why there is none; whoever asks next while there is none has the folder opened again.
//!
//! Invariants
//!
//! - No error outlives its cause: a folder that can be used again is used by the next request (F-08).
//! - The folder is opened beside the runtime's threads, by one at a time, and whoever waits for that has a limit.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Mutex as Turn, watch},
    task::spawn_blocking,
    time::timeout,
};
use unhang_jobs::{engine::Engine, error::JobError as EngineError};

use super::PromotedCalls;
use unhang_tools::service::JobServiceError;

/// Opens the data folder again. It may wait for the disk.
pub(super) type Reopen = Box<dyn Fn() -> Result<Engine, EngineError> + Send + Sync>;

/// How long the folder may take to be opened. It takes milliseconds; other processes may hold the database for ten seconds.
const OPEN_LIMIT: Duration = Duration::from_secs(15);

/// See the module's text. Clones are the same.
#[derive(Clone)]
pub(super) struct Opening(Arc<OpeningState>);

struct OpeningState {
    /// What was opened, with what keeps calls as its jobs.
    opened: watch::Sender<Option<(Engine, PromotedCalls)>>,
    /// Why the last one who tried could not open it.
    refused: Mutex<JobServiceError>,
    reopen: Option<Reopen>,
    turn: Arc<Turn<()>>,
}

impl Opening {
    /// What came of opening the folder, and what opens it again; without that the first error stays.
    pub(super) fn new(engine: Result<Engine, EngineError>, reopen: Option<Reopen>) -> Self {
        let (engine, refused) = match engine {
            Ok(engine) => (Some(engine), JobServiceError(String::new())),
            Err(error) => (None, error.into()),
        };
        let opened = engine.map(|engine| (engine.clone(), PromotedCalls::new(engine)));
        Self(Arc::new(OpeningState {
            opened: watch::Sender::new(opened),
            refused: Mutex::new(refused),
            reopen,
            turn: Arc::default(),
        }))
    }

    /// The engine, where it is there already.
    pub(super) fn known(&self) -> Option<Engine> {
        self.0.opened.borrow().as_ref().map(|(engine, _)| engine.clone())
    }

    /// What keeps calls as jobs, where the engine is there already.
    pub(super) fn promoted(&self) -> Option<PromotedCalls> {
        self.0.opened.borrow().as_ref().map(|(_, promoted)| promoted.clone())
    }

    /// Waits until the folder has been opened, by whoever asks.
    pub(super) async fn until_opened(&self) -> Option<PromotedCalls> {
        let mut opened = self.0.opened.subscribe();
        let opened = opened.wait_for(Option::is_some).await.ok()?;
        opened.as_ref().map(|(_, promoted)| promoted.clone())
    }

    /// The engine; the folder is opened for it where it is not open yet.
    ///
    /// # Errors
    /// Why it cannot be opened.
    pub(super) async fn engine(&self) -> Result<Engine, JobServiceError> {
        if let Some(engine) = self.known() {
            return Ok(engine);
        }
        if self.0.reopen.is_none() {
            return Err(self.refused().clone());
        }
        let shared = Arc::clone(&self.0);
        let opening = async move {
            let turn = Arc::clone(&shared.turn).lock_owned().await;
            // Somebody else may have been first.
            if shared.opened.borrow().is_some() {
                return;
            }
            let open = move || {
                let _until_the_disk_answers = turn;
                shared.open();
            };
            // A panic in it has been told, and leaves the error that there was.
            let _done = spawn_blocking(open).await;
        };
        if timeout(OPEN_LIMIT, opening).await.is_err() {
            let why = self.refused().clone();
            return Err(JobServiceError(format!(
                "the data folder could not be opened before ({why}), and has not answered for {} s now",
                OPEN_LIMIT.as_secs()
            )));
        }
        self.known().ok_or_else(|| self.refused().clone())
    }

    fn refused(&self) -> MutexGuard<'_, JobServiceError> {
        self.0.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpeningState {
    /// Opens the folder, or notes why that cannot be done.
    fn open(&self) {
        let Some(reopen) = &self.reopen else { return };
        match reopen() {
            Ok(engine) => {
                tracing::info!("the data folder {} can be used again", engine.options().folder.display());
                self.opened.send_replace(Some((engine.clone(), PromotedCalls::new(engine))));
            }
            Err(error) => {
                *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = error.into();
            }
        }
    }
}
