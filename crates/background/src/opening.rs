//! The engine on a data folder, or the reason why there is none. While there is none, each request has the folder opened again.
//!
//! Invariants
//!
//! - No error outlives its cause: a folder that can be used again is used by the next request (F-08).
//! - The folder is opened on a thread for blocking work, by one request at a time, and the wait for that is limited.

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Mutex as Turn, watch},
    task::spawn_blocking,
    time::timeout,
};
use unhang_jobs::{engine::Engine, error::JobError as EngineError};
use unhang_proc::server::HolderCommand;

use super::PromotedCalls;
use unhang_tools::service::JobServiceError;

/// Opens the data folder again. It may wait for the disk.
pub(super) type Reopen = Box<dyn Fn() -> Result<Engine, EngineError> + Send + Sync>;

/// The time that opening the folder may take. It takes milliseconds, but other processes may hold the database for ten seconds.
const OPEN_LIMIT: Duration = Duration::from_secs(15);

/// The engine, once the data folder could be opened. Clones share their state.
#[derive(Clone)]
pub(super) struct Opening(Arc<OpeningState>);

struct OpeningState {
    /// The opened engine and its promoted calls.
    opened: watch::Sender<Option<(Engine, PromotedCalls)>>,
    /// The reason why the last attempt could not open the folder.
    refused: Mutex<JobServiceError>,
    reopen: Option<Reopen>,
    /// The command of a call holder, without its plan.
    holder: Arc<OnceLock<HolderCommand>>,
    turn: Arc<Turn<()>>,
}

impl Opening {
    /// Keeps the result of opening the folder, and the function that opens it again. Without `reopen` the first error stays.
    pub(super) fn new(engine: Result<Engine, EngineError>, reopen: Option<Reopen>) -> Self {
        let (engine, refused) = match engine {
            Ok(engine) => (Some(engine), JobServiceError(String::new())),
            Err(error) => (None, error.into()),
        };
        let holder = Arc::default();
        let opened =
            engine.map(|engine| (engine.clone(), PromotedCalls::held_by(engine, Arc::clone(&holder))));
        Self(Arc::new(OpeningState {
            opened: watch::Sender::new(opened),
            refused: Mutex::new(refused),
            reopen,
            holder,
            turn: Arc::default(),
        }))
    }

    /// Sets the command of a call holder once and for all.
    pub(super) fn hold_by(&self, command: HolderCommand) {
        // The first one stays.
        let _set_before = self.0.holder.set(command);
    }

    /// Returns the engine, if the folder is open already.
    pub(super) fn known(&self) -> Option<Engine> {
        self.0.opened.borrow().as_ref().map(|(engine, _)| engine.clone())
    }

    /// Returns the promoted calls, if the folder is open already.
    pub(super) fn promoted(&self) -> Option<PromotedCalls> {
        self.0.opened.borrow().as_ref().map(|(_, promoted)| promoted.clone())
    }

    /// Waits until any request has opened the folder, and returns the promoted calls.
    pub(super) async fn until_opened(&self) -> Option<PromotedCalls> {
        let mut opened = self.0.opened.subscribe();
        let opened = opened.wait_for(Option::is_some).await.ok()?;
        opened.as_ref().map(|(_, promoted)| promoted.clone())
    }

    /// Returns the engine. Opens the folder first if it is not open yet.
    ///
    /// # Errors
    /// Fails with the reason why the folder cannot be opened.
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
            // Another request may have opened the folder meanwhile.
            if shared.opened.borrow().is_some() {
                return;
            }
            let open = move || {
                let _until_the_disk_answers = turn;
                shared.open();
            };
            // A panic in `open` has been logged, and the previous error stays.
            let _done = spawn_blocking(open).await;
        };
        if timeout(OPEN_LIMIT, opening).await.is_err() {
            let why = self.refused().clone();
            return Err(JobServiceError(format!(
                "unhang could not open the data folder before ({why}), and the disk has not answered for \
                 {} s now",
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
                let promoted = PromotedCalls::held_by(engine.clone(), Arc::clone(&self.holder));
                self.opened.send_replace(Some((engine, promoted)));
            }
            Err(error) => {
                *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = error.into();
            }
        }
    }
}
