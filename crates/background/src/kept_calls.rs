//! Calls of stdio servers that outlive this process, because the server's lifeline keeps the server for them.
//!
//! ```text
//! adopted ─ have_kept: SentRequest::keep ─ name_keeper ─► the id goes out
//! sent later, or once more ─ keep_each: the same      this process ends, or lets the server go ─ leave ─► the call holder
//! ```
//!
//! Invariants
//!
//! - The keeper of a call is in its record before the id of its job goes out, unless no server process has the call yet.
//! - The request stays in the plan of the call holder until the job has ended, or the server was left.

use std::{convert::Infallible, future::pending};

use tokio::sync::watch;
use unhang_jobs::id::JobId;
use unhang_tools::service::JobServiceError;
use unhang_upstream::{
    keeping::WhoIsAsked,
    kept_request::{KeepError, KeepOrder, KeptRequest, SentRequest},
};

use super::{Promoted, PromotedCalls};

/// The kept request of a call, and the news of the requests that its server was sent.
#[derive(Default)]
pub(super) struct CallKeeping {
    kept: Option<KeptRequest>,
    /// Tells which request the server was sent last; `None` if nothing keeps the call.
    sent: Option<watch::Receiver<Option<SentRequest>>>,
}

/// Has the server of an adopted call go on for it. See [`PromotedCalls::have_kept`].
pub(super) async fn have_kept(
    calls: &PromotedCalls,
    promoted: &mut Promoted,
    sent: &SentRequest,
    who: &WhoIsAsked,
) -> Result<(), JobServiceError> {
    match kept(calls, promoted.id(), sent, who).await {
        Ok(kept) => promoted.kept = kept,
        // The answer is there, or the end of the server.
        Err(KeepError::Over) => {}
        Err(KeepError::Impossible) => {
            tracing::warn!(
                job = promoted.id().as_str(),
                "the job ends with unhang: {}",
                KeepError::Impossible
            );
        }
        Err(KeepError::Refused(why)) => return Err(JobServiceError(why)),
    }
    Ok(())
}

/// Has a request kept, and names its keeper. Returns `None` where calls end with this process.
async fn kept(
    calls: &PromotedCalls,
    job: JobId,
    sent: &SentRequest,
    who: &WhoIsAsked,
) -> Result<Option<KeptRequest>, KeepError> {
    let Some(command) = calls.shared.holder.get().cloned() else { return Ok(None) };
    let data_folder = calls.shared.engine.options().folder.clone();
    let kept = sent.keep(KeepOrder { job, who: who.clone(), data_folder, command }).await?;
    match calls.name_keeper(job, kept.keeper().clone()).await {
        Ok(()) => Ok(Some(kept)),
        Err(JobServiceError(why)) => Err(KeepError::Refused(why)),
    }
}

impl CallKeeping {
    pub(super) fn new(kept: Option<KeptRequest>, sent: Option<watch::Receiver<Option<SentRequest>>>) -> Self {
        Self { kept, sent }
    }

    /// Has each request kept that the server is sent for this job. Never ends. Cancel-safe.
    pub(super) async fn keep_each(
        &mut self,
        calls: &PromotedCalls,
        job: JobId,
        who: &WhoIsAsked,
    ) -> Infallible {
        let Some(sent) = &mut self.sent else { return pending().await };
        loop {
            let request = sent.borrow_and_update().clone();
            let is_kept = |request: &SentRequest| self.kept.as_ref().is_some_and(|kept| kept.is_of(request));
            if let Some(request) = request.filter(|request| !is_kept(request)) {
                // In a box, what lasts for a moment makes the future of the whole call no larger.
                match Box::pin(kept(calls, job, &request, who)).await {
                    // The request before stays in the plan until this one is.
                    Ok(Some(kept)) => {
                        self.kept = Some(kept);
                        tracing::info!(
                            job = job.as_str(),
                            "the server has the call, and the job outlives unhang"
                        );
                    }
                    Ok(None) => return pending().await,
                    Err(KeepError::Over) => {}
                    Err(why) => tracing::warn!(job = job.as_str(), "the job ends with unhang: {why}"),
                }
            }
            if sent.changed().await.is_err() {
                return pending().await;
            }
        }
    }

    /// Returns whether this process has let go of the server, which goes on for the call.
    pub(super) fn is_left(&self) -> bool {
        self.kept.as_ref().is_some_and(KeptRequest::is_left)
    }

    /// Leaves the request to the call holder.
    pub(super) fn leave(self) {
        if let Some(kept) = self.kept {
            kept.leave_to_holder();
        }
    }
}
