//! What becomes of the answer to a call over HTTP if this process ends, and how another process resumes the stream of the answer.
//!
//! ```text
//! CallStream ─ TaskNews::outlook ─► the keeper of the call: writes down a StreamPoint, or why the answer is lost
//! another process ─ Servers::holder_of, resume_stream ─ upstream::ResumedStream
//! ```
//!
//! Invariants
//!
//! - The stream is resumed at the server that has been called, and not at another server of the same name.
//! - The headers of the way to the server are those of today's configuration.

use std::{pin::Pin, sync::Arc, time::Duration};

use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};
use unhang_bridge::{
    Era,
    tasks::{self, Dialect},
};
use unhang_proc::deadline::Deadline;
use unhang_upstream::{
    call_stream::{Resumability, StreamPoint},
    client::{
        DecliningListener, Endpoint, Error, ProgressSender, RequestSignature, ResumedClient, ResumedOutcome,
        ResumedStream,
    },
};
use unhang_wire::Json;

use super::{
    ServerAnswer, SideMessage,
    backend::Backend,
    server_task::ServerTask,
    task_news::{CallStage, TaskNews},
    tasks::TaskPoller,
};

/// What becomes of the answer to a call if this process ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerOutlook {
    /// The server has not been asked over HTTP, so nothing is known here.
    Unknown,
    /// The answer is lost: the rest of a sentence that says why.
    Lost(String),
    /// Another process can resume the stream of the answer.
    Resumable {
        /// The point from which it does so.
        point: StreamPoint,
        /// The identity of the server.
        kept_by: Arc<str>,
    },
}

impl AnswerOutlook {
    /// Returns the outlook of a call to the server of this name and identity, whose stream is in this state.
    pub(super) fn of(state: Resumability, name: &str, kept_by: &Arc<str>) -> Self {
        match state {
            Resumability::Unasked => Self::Unknown,
            Resumability::WithoutIds(revision) if revision.is_stateless() => Self::Lost(format!(
                "`{name}` speaks revision {}, in which the stream of an answer cannot be resumed",
                revision.name()
            )),
            Resumability::WithoutIds(_) => Self::Lost(format!(
                "`{name}` had sent no event with an id, so that the stream of the answer cannot be resumed"
            )),
            Resumability::At(point) => Self::Resumable { point, kept_by: Arc::clone(kept_by) },
        }
    }
}

/// A call whose stream was resumed.
pub struct StreamedCall {
    /// The client of the session of the call, which is to be ended after the call.
    pub client: ResumedClient,
    /// The answer. Dropping it withdraws the call.
    pub answering: Pin<Box<dyn Future<Output = ServerAnswer> + Send>>,
    /// The newest progress.
    pub seen: watch::Receiver<Option<Box<RawValue>>>,
}

/// Resumes the stream of a call at its server. `times` are the time that the call has taken, and the time that it may take in all. Returns
/// `None` if the server is not reached over HTTP, or the point is not one of a session.
pub(super) fn resume(
    backend: &Arc<Backend>,
    point: StreamPoint,
    times: (Duration, Duration),
    (progress, asides): (ProgressSender, mpsc::Sender<SideMessage>),
    news: &TaskNews,
) -> Option<(ResumedClient, StreamFollower)> {
    let Endpoint::Http(server) = backend.endpoint() else { return None };
    let stream = news.watches(backend.name(), backend.identity());
    let (elapsed, limit) = times;
    let resumed = ResumedStream {
        name: backend.name().to_owned(),
        server: server.clone(),
        limits: backend.limits().clone(),
        listener: Arc::new(DecliningListener),
        point,
        elapsed,
        limit,
        session: None,
        progress,
        asides: asides.clone(),
        stream,
    };
    let (client, outcome) = resumed.resume()?;
    news.comes_to(CallStage::Asked);
    let deadline = Deadline::after(limit.saturating_sub(elapsed));
    let follower =
        StreamFollower { backend: Arc::clone(backend), outcome, deadline, asides, news: news.clone() };
    Some((client, follower))
}

/// Waits for the outcome of a call whose stream was resumed.
pub(super) struct StreamFollower {
    backend: Arc<Backend>,
    outcome: ResumedOutcome,
    deadline: Deadline,
    asides: mpsc::Sender<SideMessage>,
    news: TaskNews,
}

impl StreamFollower {
    /// Waits for that. If the server goes on with the call as a task, that is the outcome of the task.
    pub(super) async fn answer(self) -> ServerAnswer {
        let Self { backend, outcome, deadline, asides, news } = self;
        let outcome = outcome.await;
        let outcome = match created_task(&outcome) {
            Some(task) => TaskPoller::again(&backend, &task, asides, news).follow(outcome, deadline).await,
            None => outcome,
        };
        ServerAnswer { era: Era::Legacy, server_info: None, outcome, asked_for: None }
    }
}

/// Returns the task with which a server has answered a call; `None` if it has answered otherwise.
fn created_task(outcome: &Result<Box<RawValue>, Error>) -> Option<ServerTask> {
    let answer = Json::new(outcome.as_ref().ok()?.get().as_bytes())?;
    let created = tasks::read_created(Dialect::Core, answer).ok()??;
    Some(ServerTask::new(&created.id, Dialect::Core, &RequestSignature::ByUs, None))
}

#[cfg(test)]
mod tests {
    use unhang_core::revision::Revision;

    use super::*;

    #[test]
    fn the_outlook_says_why_an_answer_is_lost() {
        let kept_by: Arc<str> = "srv-1".into();
        let of = |state| AnswerOutlook::of(state, "srv", &kept_by);
        assert_eq!(of(Resumability::Unasked), AnswerOutlook::Unknown);
        for (revision, words) in [
            (Revision::V2026July, "`srv` speaks revision 2026-07-28, in which"),
            (Revision::V2025November, "`srv` had sent no event with an id"),
        ] {
            match of(Resumability::WithoutIds(revision)) {
                AnswerOutlook::Lost(why) => assert!(why.starts_with(words), "{why}"),
                other => panic!("{other:?}"),
            }
        }
    }
}
