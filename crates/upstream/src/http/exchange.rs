//! One request over HTTP, as a task: what its answer says goes to the actor, in order, and then how it ended.
//!
//! Invariants: nothing is decided here; an exchange ends with the answer, with the connection, or when it is aborted.

use std::time::Duration;

use tokio::sync::mpsc;
use unhang_net::{
    http::{Connection, Content, HttpError, HttpReply, HttpRequest},
    sse::SseEvent,
};
use unhang_wire::Id;

/// Which exchange it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ExchangeKind {
    /// The one of this request.
    Request(Id),
    /// The end of a handshake of old, before which nothing else is said.
    Initialized,
    /// Another notification, or an answer to the server.
    Word,
    /// The stream of what the server says unasked; which of those that there were.
    Stream(u64),
}

/// What the actor hears.
#[derive(Debug)]
pub(super) enum ExchangeEvent {
    /// The answer has begun; in it, perhaps, the name of the session.
    Opened(Option<String>),
    Event(SseEvent),
    /// All at once: perhaps the name of the session, and the answer as one message.
    Whole(Option<String>, Vec<u8>),
    Closed(Close),
}

/// From where a stream can be taken up again, and after how long, where the server has said it.
#[derive(Debug)]
pub(super) struct ResumePoint {
    pub(super) last_id: Option<String>,
    pub(super) retry: Option<Duration>,
}

/// How it ended.
#[derive(Debug)]
pub(super) enum Close {
    /// There is no more: it was a stream, or there was nothing to say.
    Ended(Option<ResumePoint>),
    /// It was one message, which was said.
    Whole,
    /// It was a stream, and broke.
    Broke(HttpError, Option<ResumePoint>),
    /// The server refuses it: its status, and what it said.
    Refused(u16, Vec<u8>),
    /// The answer is neither JSON nor events: its status, and what it says it is.
    NoMessage(u16, Option<String>),
    /// There was no answer.
    Failed(HttpError),
}

/// Goes through with it.
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

/// The usual answer, of which the actor hears once.
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
        // An error of the server comes as JSON, and counts whole.
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
                        if tell(ExchangeEvent::Event(event)).await.is_err() {
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
    // What is in it is read so that the connection can serve again.
    reply.complaint().await;
    Close::NoMessage(status, kind)
}
