//! Calls over HTTP whose answers come on streams: the ticket with which another process resumes the stream, and what happens without one.
//!
//! ```text
//! TaskNews::outlook ─ StreamNotes ─► the ticket in the row, or why the answer is lost
//! this process ends ─┬ a ticket ─► left (`tickets`)
//!                    └ none ─► lost, stream_not_resumable
//! taken up ─ Servers::resume_stream ─ settled ─ no other job has a ticket of this session ─► the session is deleted
//! ```
//!
//! Invariants
//!
//! - A session is deleted only after the job that has used it has ended, and only if no other job needs it.
//! - The tool is not called again.

use std::{future::pending, sync::Arc, time::Duration};

use tokio::{
    task::JoinHandle,
    time::{Instant, sleep_until},
};
use unhang_core::fault::FaultKind;
use unhang_gateway::{AnswerOutlook, ServerAnswer, Servers, TaskNews};
use unhang_jobs::{
    engine::{CallEnd, HeldCall},
    record::{CallTicket, EndReason},
};
use unhang_upstream::{
    call_stream::StreamPoint,
    client::{Error, Failure, ResumedClient},
};

use super::{
    CallSource, CallsEnd, FollowedEnd, FollowedJob, PendingCall, PromotedCalls, RunningCall, WhoIsAsked,
    advice, answer_never_comes, store_end,
    tickets::{AnswerWay, stream_of, ticket_for},
};

/// The least time between two writes of one ticket, because each write is a transaction. After a kill, the next process reads the messages
/// since the last write again, so the log of the job can have them twice.
const NOTE_PAUSE: Duration = Duration::from_secs(1);

/// Makes the ticket of a call with this outlook; `None` if no other process can have the answer.
pub(super) fn ticket(outlook: &AnswerOutlook, who: &WhoIsAsked) -> Option<CallTicket> {
    match outlook {
        AnswerOutlook::Resumable { point, kept_by } => {
            ticket_for(AnswerWay::Stream(point.clone()), kept_by.to_string(), who)
        }
        AnswerOutlook::Unknown | AnswerOutlook::Lost(_) => None,
    }
}

/// The notes of a call's outlook in the record of its job.
#[derive(Debug, Default)]
pub(super) struct StreamNotes {
    seen: u64,
    /// The time before which nothing is written again.
    rests_until: Option<Instant>,
    /// The last write, which goes on beside.
    writing: Option<JoinHandle<()>>,
}

impl StreamNotes {
    /// Waits for the next outlook that is to be noted; without `news` this never returns. Cancel-safe.
    pub(super) async fn next(&mut self, news: Option<&TaskNews>) -> AnswerOutlook {
        let Some(news) = news else { return pending().await };
        if let Some(rests_until) = self.rests_until {
            sleep_until(rests_until).await;
        }
        news.next_outlook(&mut self.seen).await
    }

    /// Notes an outlook beside, so that the disk does not hold up anything else.
    pub(super) fn note(&mut self, held: &HeldCall, outlook: AnswerOutlook, kept: &FollowedJob) {
        // The first point is written at once: a loss that was noted before is none any more.
        let is_point = matches!(outlook, AnswerOutlook::Resumable { .. });
        self.rests_until = is_point.then(|| Instant::now() + NOTE_PAUSE);
        let id = held.id();
        let ticket = ticket(&outlook, &kept.who).map(|ticket| held.note(ticket));
        let loss = match outlook {
            AnswerOutlook::Lost(why) => Some(held.note_lost_with_holder(why)),
            AnswerOutlook::Unknown | AnswerOutlook::Resumable { .. } => None,
        };
        let before = self.written();
        self.writing = Some(tokio::spawn(async move {
            before.await;
            let noted = match (ticket, loss) {
                (Some(ticket), _) => ticket.await,
                (None, Some(loss)) => loss.await,
                (None, None) => Ok(()),
            };
            if let Err(error) = noted {
                tracing::warn!(job = id.as_str(), "unhang cannot store how to resume the job: {error}");
            }
        }));
    }

    /// Waits for the last write, so that a later one is not overtaken.
    pub(super) fn written(&mut self) -> impl Future<Output = ()> + Send + use<> {
        let writing = self.writing.take();
        async move {
            if let Some(writing) = writing {
                // A panic of the write is in the log.
                let _written = writing.await;
            }
        }
    }
}

/// Makes the end of a call whose answer is lost with this process; `None` if that is not known of it.
pub(super) fn lost_with_us(
    running_call: &RunningCall,
    why: CallsEnd,
    is_repeatable: bool,
) -> Option<CallEnd> {
    let news = running_call.source.news().filter(|news| news.known().is_none())?;
    match news.outlook() {
        AnswerOutlook::Lost(loss) => Some(lost(&format!("{}, and {loss}", why.told()), is_repeatable)),
        AnswerOutlook::Unknown | AnswerOutlook::Resumable { .. } => None,
    }
}

fn lost(what: &str, is_repeatable: bool) -> CallEnd {
    CallEnd::Lost {
        reason: EndReason::StreamNotResumable,
        detail: format!("{what}; {}", advice(is_repeatable)),
    }
}

/// Returns the end of a job whose stream could not be resumed; `None` if this is another outcome.
pub(super) fn not_resumed(answered: &ServerAnswer, is_repeatable: bool) -> Option<CallEnd> {
    let Err(Error::Failure(failure)) = &answered.outcome else { return None };
    let is_otherwise = matches!(failure.kind, FaultKind::Deadline | FaultKind::TooLarge);
    (!is_otherwise).then(|| lost(&failure.happened, is_repeatable))
}

/// Ends a job whose ticket leads to no stream of its server.
pub(super) async fn cannot_resume(held: HeldCall, server: &str, is_repeatable: bool) {
    let what = format!(
        "the unhang process that had called `{server}` ended before the answer came, and its session with \
         `{server}` is not one that can be resumed"
    );
    store_end(held, lost(&what, is_repeatable)).await;
}

/// The source of a call whose stream was resumed.
pub(super) struct StreamSource {
    news: TaskNews,
    /// The session's own instances live as long as the call does.
    _servers: Servers,
}

impl StreamSource {
    pub(super) fn new(news: TaskNews, servers: Servers) -> Self {
        Self { news, _servers: servers }
    }
}

impl CallSource for StreamSource {
    /// Fails at once: the call itself is not made once more, and a server of sessions has no reason to want that.
    fn ask(&mut self, _params: Arc<str>) -> PendingCall {
        answer_never_comes(Failure {
            kind: FaultKind::BadResponse,
            method: Some("tools/call".to_owned()),
            happened: "the resumed answer to this call was a question".to_owned(),
            hint: "this is a fault of the server".to_owned(),
            ..Failure::ended()
        })
    }

    fn news(&self) -> Option<&TaskNews> {
        Some(&self.news)
    }

    fn is_resumed(&self) -> bool {
        true
    }
}

impl CallsEnd {
    fn told(self) -> &'static str {
        match self {
            CallsEnd::ClientGone => {
                "its client went away, and unhang with it, before the server had answered"
            }
            CallsEnd::UnhangEnds => "unhang was ended before the server had answered",
        }
    }
}

impl PromotedCalls {
    /// Ends the client of a resumed call once its job has ended, and the session with it, unless another job needs the session.
    pub(super) fn end_session_after(
        &self,
        end: FollowedEnd,
        (client, point, news): (ResumedClient, StreamPoint, TaskNews),
    ) {
        let engine = self.shared.engine.clone();
        self.tasks().spawn(async move {
            end.wait().await;
            // The job that has ended has no ticket any more; one that was left needs its session.
            let is_needed = news.is_left()
                || engine.ticketed_calls().iter().any(|status| {
                    let ticket = status.record.call.as_ref().and_then(|call| call.ticket.as_ref());
                    let stream = ticket.and_then(stream_of);
                    stream.is_some_and(|stream| stream.session == point.session)
                });
            client.end(!is_needed).await;
        });
    }
}
