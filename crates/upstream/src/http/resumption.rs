//! The streams of calls that outlive this process: what another process needs to resume one, and how it does so.
//!
//! Invariants: a resumed request is never posted, and its session is greeted by nobody again.

use std::sync::{Arc, atomic::AtomicBool};

use tokio::time::Instant;
use unhang_core::revision::Revision;
use unhang_net::http::Bytes;
use unhang_wire::Id;

use super::{BrokenStream, Exchange, HttpServer, LEAST_RETRY, RETRY, connected, exchange::ResumePoint, run};
use crate::{
    Mailbox,
    call_stream::{CallStream, Resumability, StreamPoint},
    handshake::ServerInfo,
    resumed_request::ResumedRequest,
    upstream_session::{RequestOrigin, UpstreamConfig, UpstreamSession},
};

/// The most attempts in a row to resume the stream of another process while the server cannot be asked: some eight minutes in all. The
/// server may come up after us.
pub(super) const MOST_VAIN: u32 = 20;

/// A stream of which somebody wants to hear.
pub(super) struct WatchedStream {
    stream: CallStream,
    revision: Revision,
    /// The newest point, while a question of the server is open: the process that resumes the stream has to hear the question.
    held: Option<StreamPoint>,
}

impl WatchedStream {
    /// Begins to watch the stream of a request to a server of this revision.
    pub(super) fn begin(stream: CallStream, revision: Revision) -> Self {
        stream.comes_to(Resumability::WithoutIds(revision));
        Self { stream, revision, held: None }
    }

    /// Goes on to watch a stream that was resumed.
    fn resumed(stream: CallStream, revision: Revision, point: StreamPoint) -> Self {
        stream.comes_to(Resumability::At(point));
        Self { stream, revision, held: None }
    }

    /// Notes from where the stream can be resumed. A server of 2026-07-28 knows no such point, whatever it says.
    pub(super) fn marked(&mut self, id: &Id, session: Option<&str>, point: ResumePoint, is_asked: bool) {
        let (Id::Integer(request), Some(last_event)) = (id, point.last_id) else { return };
        if self.revision.is_stateless() {
            return;
        }
        let point = StreamPoint {
            session: session.map(str::to_owned),
            revision: self.revision.name().to_owned(),
            request: *request,
            last_event,
            retry_ms: point.retry.and_then(|retry| u64::try_from(retry.as_millis()).ok()),
        };
        self.held = Some(point);
        if !is_asked {
            self.release();
        }
    }

    /// Tells of the point that was held back: no question is open any more.
    pub(super) fn release(&mut self) {
        if let Some(point) = self.held.take() {
            self.stream.comes_to(Resumability::At(point));
        }
    }

    /// Returns whether another process resumes the stream.
    pub(super) fn is_left(&self) -> bool {
        self.stream.is_left()
    }
}

/// Returns a server's text without the name of the session, which is a secret.
pub(super) fn without_session(text: String, session: Option<&str>) -> String {
    match session.filter(|session| !session.is_empty()) {
        Some(session) => text.replace(session, "(session)"),
        None => text,
    }
}

/// A request whose stream is resumed, and the parties that hear of it.
pub(crate) struct StreamResumption {
    pub(crate) point: StreamPoint,
    pub(crate) info: ServerInfo,
    pub(crate) request: ResumedRequest,
    pub(crate) origin: RequestOrigin,
    pub(crate) stream: CallStream,
    /// Whether the session is deleted at the end.
    pub(crate) deletes_session: Arc<AtomicBool>,
}

/// Resumes the stream of another process, and follows it until it is told to end.
pub(crate) async fn resume(
    server: HttpServer,
    resumption: StreamResumption,
    config: UpstreamConfig,
    mailbox: Mailbox,
) {
    let StreamResumption { point, info, request, origin, stream, deletes_session } = resumption;
    let (id, revision) = (request.id.clone(), info.revision);
    let begin = |session: &mut UpstreamSession| session.resume(info, [(request, origin)], []);
    let Some((mut actor, said)) = connected(&server, (config, mailbox), begin) else { return };
    actor.session.clone_from(&point.session);
    actor.deletes_session = deletes_session;
    let retry = point.retry_ms.map_or(RETRY, std::time::Duration::from_millis).max(LEAST_RETRY);
    let broken = BrokenStream {
        last_id: point.last_event.clone(),
        retry,
        // The server may replay at once: the other process has waited long enough.
        at: Some(Instant::now()),
        vain: 0,
    };
    let exchange = Exchange {
        method: "tools/call".into(),
        line: Bytes::new(),
        mirrored: Vec::new(),
        // The first look replaces it.
        task: actor.tasks.spawn(async {}),
        session: point.session.clone(),
        broken: Some(broken),
        is_repeated: true,
        is_crossed: false,
        is_resumed: true,
        watched: Some(WatchedStream::resumed(stream, revision, point)),
    };
    actor.exchanges.insert(id, exchange);
    run(actor, said).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(watched: &mut WatchedStream, id: &str, is_asked: bool) {
        let point = ResumePoint { last_id: Some(id.to_owned()), retry: None };
        watched.marked(&Id::Integer(4), Some("secret"), point, is_asked);
    }

    fn last_event(stream: &CallStream) -> Option<String> {
        match stream.state() {
            Resumability::At(point) => Some(point.last_event),
            _ => None,
        }
    }

    #[test]
    fn a_point_does_not_pass_a_question_that_nobody_has_answered() {
        let stream = CallStream::default();
        let mut watched = WatchedStream::begin(stream.clone(), Revision::V2025November);
        assert_eq!(stream.state(), Resumability::WithoutIds(Revision::V2025November));
        marks(&mut watched, "1", false);
        marks(&mut watched, "2", true);
        marks(&mut watched, "3", true);
        assert_eq!(last_event(&stream).as_deref(), Some("1"));
        watched.release();
        assert_eq!(last_event(&stream).as_deref(), Some("3"));
    }

    #[test]
    fn a_server_of_2026_has_no_point_whatever_it_says() {
        let stream = CallStream::default();
        let mut watched = WatchedStream::begin(stream.clone(), Revision::V2026July);
        marks(&mut watched, "1", false);
        assert_eq!(stream.state(), Resumability::WithoutIds(Revision::V2026July));
    }

    #[test]
    fn the_name_of_a_session_is_taken_out_of_what_a_server_says() {
        let told = || "HTTP 404: Session abc not found".to_owned();
        assert_eq!(without_session(told(), Some("abc")), "HTTP 404: Session (session) not found");
        assert_eq!((without_session(told(), None), without_session(told(), Some(""))), (told(), told()));
    }
}
