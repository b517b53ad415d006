//! One request over HTTP, as a task: the events of its answer go to the actor, in order, and then the way in which it ended.
//!
//! Invariants: nothing is decided here. An exchange ends with the answer, with the connection, or when it is aborted.

use std::time::Duration;

use tokio::sync::mpsc;
use unhang_net::{
    http::{Connection, Content, HttpError, HttpReply, HttpRequest},
    sse::SseEvent,
};
use unhang_wire::Id;

/// The kind of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ExchangeKind {
    /// The exchange of this request.
    Request(Id),
    /// The end of a legacy handshake, before which nothing else is sent.
    Initialized,
    /// Another notification, or an answer to the server.
    Word,
    /// The stream on which the server speaks unasked, with its number among all such streams.
    Stream(u64),
}

/// An event of an exchange, for the actor.
#[derive(Debug)]
pub(super) enum ExchangeEvent {
    /// The answer has begun; it may name the session.
    Opened(Option<String>),
    Event(SseEvent),
    /// Everything up to here has been said, and the stream can be taken up again from here.
    Marked(ResumePoint),
    /// The whole answer at once: the name of the session, if there is one, and one message.
    Whole(Option<String>, Vec<u8>),
    Closed(Close),
}

/// The event after which a stream can be taken up again, and the pause before that, if the server has said them.
#[derive(Debug)]
pub(super) struct ResumePoint {
    pub(super) last_id: Option<String>,
    pub(super) retry: Option<Duration>,
}

/// The way in which an exchange ended.
#[derive(Debug)]
pub(super) enum Close {
    /// There is no more: the answer was a stream, or had no content.
    Ended(Option<ResumePoint>),
    /// The answer was one message, which the actor has got.
    Whole,
    /// The answer was a stream, and broke.
    Broke(HttpError, Option<ResumePoint>),
    /// The server refuses the request: its status, and its words.
    Refused(u16, Vec<u8>),
    /// The answer is neither JSON nor events: its status, and its content type.
    NoMessage(u16, Option<String>),
    /// There was no answer.
    Failed(HttpError),
}

/// Carries the exchange out, and sends its events to the actor.
pub(super) async fn exchange(
    connection: Connection,
    ask: HttpRequest,
    which: ExchangeKind,
    said: mpsc::Sender<(ExchangeKind, ExchangeEvent)>,
) {
    let last = match connection.ask(ask).await {
        Ok(reply) => match (&which, reply.content()) {
            (ExchangeKind::Request(_), Content::Json) if is_success(&reply) => whole(reply).await,
            _ => ExchangeEvent::Closed(answered(reply, &which, &said).await),
        },
        Err(error) => ExchangeEvent::Closed(Close::Failed(error)),
    };
    // The actor may have gone.
    let _gone = said.send((which, last)).await;
}

fn is_success(reply: &HttpReply) -> bool {
    (200..300).contains(&reply.status())
}

/// Reads an answer of one message, for which the actor gets a single event.
async fn whole(reply: HttpReply) -> ExchangeEvent {
    let session = session(&reply);
    match reply.whole().await {
        Ok(message) => ExchangeEvent::Whole(session, message),
        Err(error) => ExchangeEvent::Closed(Close::Failed(error)),
    }
}

fn session(reply: &HttpReply) -> Option<String> {
    reply.header("mcp-session-id").map(str::to_owned)
}

async fn answered(
    reply: HttpReply,
    which: &ExchangeKind,
    said: &mpsc::Sender<(ExchangeKind, ExchangeEvent)>,
) -> Close {
    let status = reply.status();
    if !is_success(&reply) {
        // An error of the server comes as JSON, and is read whole.
        let told = match reply.content() {
            Content::Json => reply.whole().await.unwrap_or_default(),
            _ => reply.complaint().await,
        };
        return Close::Refused(status, told);
    }
    if matches!(which, ExchangeKind::Stream(_)) && reply.content() != Content::Events {
        return no_message(reply).await;
    }
    let tell = async |what| said.send((which.clone(), what)).await;
    if tell(ExchangeEvent::Opened(session(&reply))).await.is_err() {
        return Close::Ended(None);
    }
    match (which, reply.content()) {
        (_, Content::Events) => {
            let mut events = reply.events();
            let ended = loop {
                match events.next().await {
                    Ok(Some(event)) => {
                        let event = match (event, which) {
                            (SseEvent::Mark(id), ExchangeKind::Request(_)) => {
                                let point = ResumePoint { last_id: Some(id), retry: events.retry() };
                                ExchangeEvent::Marked(point)
                            }
                            (SseEvent::Mark(_), _) => continue,
                            (event, _) => ExchangeEvent::Event(event),
                        };
                        if tell(event).await.is_err() {
                            break None;
                        }
                    }
                    Ok(None) => break None,
                    Err(error) => break Some(error),
                }
            };
            let resume_point =
                Some(ResumePoint { last_id: events.last_id().map(str::to_owned), retry: events.retry() });
            match ended {
                Some(error) => Close::Broke(error, resume_point),
                None => Close::Ended(resume_point),
            }
        }
        (ExchangeKind::Request(_) | ExchangeKind::Stream(_), _) => no_message(reply).await,
        (ExchangeKind::Initialized | ExchangeKind::Word, _) => {
            reply.complaint().await;
            Close::Ended(None)
        }
    }
}

async fn no_message(reply: HttpReply) -> Close {
    let kind = reply.header("content-type").map(str::to_owned);
    let status = reply.status();
    // The body is read so that the connection can serve again.
    reply.complaint().await;
    Close::NoMessage(status, kind)
}
