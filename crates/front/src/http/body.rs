//! Reads the body of a request within its limits.
//!
//! Invariants: no memory is reserved for a length that a request only announces. Received bytes have their room in the budget, or reading
//! stops. However slowly a body comes, reading it ends in time. The rest of an oversized body is skimmed within bounds, and not kept.

use std::{pin::Pin, time::Duration};

use tokio::time::timeout;
use unhang_net::serve::{
    PeerAddress,
    axum::{
        Error,
        body::{Body, Bytes, HttpBody},
        http::StatusCode,
        response::Response,
    },
};
use unhang_wire::{Oversized, SkippedMessage};

use super::{
    HttpState,
    handlers::{put_off, refused},
    message_budget::{MessageBudget, NoRoom},
    session::{SessionCommand, SessionHandle},
};
use unhang_core::{
    config::{BODY_PATIENCE, ROOM_PATIENCE},
    fault::FaultKind,
};

/// How long unhang reads and discards the rest of a refused body. A client that only sends would not see the refusal: its connection would
/// break.
const REST_PATIENCE: Duration = Duration::from_secs(2);

/// A whole body.
pub(super) struct WholeBody {
    pub(super) bytes: Bytes,
    /// The room that the body takes in the budget; `None` if it is small.
    pub(super) room: Option<MessageBudget>,
}

/// A body that was refused.
pub(super) struct RefusedBody {
    pub(super) refusal: Response,
    /// An oversized body, which may be the answer to a question.
    oversized: Option<OversizedBody>,
}

/// A body over the limit, as far as it was read.
struct OversizedBody {
    body: Body,
    skipped: SkippedMessage,
    limit: usize,
    /// Some of it was read. A client that only sends would not see the refusal if the rest was not.
    is_begun: bool,
}

impl RefusedBody {
    /// Skims the rest of an oversized body beside the refusal, and tells this session of the message.
    pub(super) fn told_to(self, session: Option<SessionHandle>) -> Response {
        if let Some(oversized) = self.oversized.filter(|oversized| oversized.is_begun || session.is_some()) {
            tokio::spawn(async move {
                let oversized = oversized.skim().await;
                if let Some(session) = session {
                    // The session may have ended.
                    let _ended = session.send(SessionCommand::Oversized(oversized)).await;
                }
            });
        }
        self.refusal
    }
}

impl OversizedBody {
    /// Reads on, as long as a refused body is read, and returns the facts about the message.
    async fn skim(self) -> Oversized {
        let Self { mut body, mut skipped, limit, .. } = self;
        // A body that does not end in time is known as far as it has come.
        let _late = timeout(REST_PATIENCE, skip(&mut body, limit, |piece| skipped.feed(piece))).await;
        skipped.finish()
    }
}

/// The reason why a body was not read.
enum BodyError {
    /// It is over the limit; the part that was read has been skimmed.
    TooLarge(Box<SkippedMessage>),
    NoRoom(usize),
    Off(Error),
}

/// Reads the body within its limits. Fails with the response that refuses it.
pub(super) async fn whole(
    http_state: &HttpState,
    peer: PeerAddress,
    mut body: Body,
) -> Result<WholeBody, Box<RefusedBody>> {
    let limit = http_state.limits.max_message;
    let is_begun = body.size_hint().lower() <= limit as u64;
    let read = async {
        match is_begun {
            true => read(http_state, &mut body).await,
            false => Err(BodyError::TooLarge(Box::default())),
        }
    };
    let broken = match timeout(BODY_PATIENCE, read).await {
        Ok(Ok(whole)) => return Ok(whole),
        Ok(Err(broken)) => broken,
        Err(_) => {
            let happened =
                format!("the body of the request did not arrive within {} s", BODY_PATIENCE.as_secs());
            let hint = "send the whole body at once";
            let refusal = refused(peer, StatusCode::REQUEST_TIMEOUT, FaultKind::Deadline, happened, hint);
            return Err(Box::new(RefusedBody { refusal, oversized: None }));
        }
    };
    let refusal = refusal(http_state, peer, &broken);
    let oversized = match broken {
        BodyError::TooLarge(skipped) => Some(OversizedBody { body, skipped: *skipped, limit, is_begun }),
        BodyError::NoRoom(_) => {
            tokio::spawn(async move { timeout(REST_PATIENCE, skip(&mut body, limit, |_| {})).await });
            None
        }
        BodyError::Off(_) => None,
    };
    Err(Box::new(RefusedBody { refusal, oversized }))
}

async fn read(http_state: &HttpState, body: &mut Body) -> Result<WholeBody, BodyError> {
    let limit = http_state.limits.max_message;
    // The announced length is the most that can come.
    let most = body
        .size_hint()
        .upper()
        .and_then(|most| usize::try_from(most).ok())
        .map_or(limit, |most| most.min(limit));
    let mut room = None;
    // Nearly all bodies come in one piece, which is not copied.
    let (mut first, mut rest) = (Bytes::new(), Vec::new());
    while let Some(piece) = next(body).await {
        let piece = piece.map_err(BodyError::Off)?;
        let length = first.len() + rest.len() + piece.len();
        if length > limit {
            let mut skipped = Box::<SkippedMessage>::default();
            [&first[..], &rest[..], &piece[..]].into_iter().for_each(|bytes| skipped.feed(bytes));
            return Err(BodyError::TooLarge(skipped));
        }
        http_state.budget.grown(&mut room, length, most).await.map_err(|NoRoom| BodyError::NoRoom(length))?;
        if length == piece.len() {
            first = piece;
            continue;
        }
        if rest.is_empty() {
            rest.extend_from_slice(&std::mem::take(&mut first));
        }
        rest.extend_from_slice(&piece);
    }
    if let Some(room) = &mut room {
        room.is_whole();
    }
    Ok(WholeBody { bytes: if rest.is_empty() { first } else { rest.into() }, room })
}

/// Waits for the next piece of a body. Returns `None` at its end.
async fn next(body: &mut Body) -> Option<Result<Bytes, Error>> {
    loop {
        let frame = std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await?;
        match frame.map(http_body::Frame::into_data) {
            Ok(Ok(piece)) => return Some(Ok(piece)),
            // A frame without data is skipped.
            Ok(Err(_)) => {}
            Err(error) => return Some(Err(error)),
        }
    }
}

/// Discards the rest of a body, up to this many bytes, after `seen` has had each piece.
async fn skip(body: &mut Body, limit: usize, mut seen: impl FnMut(&[u8])) {
    let mut skipped = 0;
    while skipped <= limit
        && let Some(Ok(piece)) = next(body).await
    {
        skipped += piece.len();
        seen(&piece);
    }
}

fn refusal(http_state: &HttpState, peer: PeerAddress, broken: &BodyError) -> Response {
    match broken {
        BodyError::TooLarge(_) => {
            let happened =
                format!("the body is longer than the limit of {} bytes", http_state.limits.max_message);
            let hint = "send smaller messages, or raise --max-message";
            refused(peer, StatusCode::PAYLOAD_TOO_LARGE, FaultKind::TooLarge, happened, hint)
        }
        BodyError::NoRoom(length) => {
            let happened = format!("other messages use the memory that a body of {length} bytes needs");
            let hint = "try again in a moment, or raise message-memory under [http] of unhang.toml";
            put_off(peer, StatusCode::SERVICE_UNAVAILABLE, happened, hint, ROOM_PATIENCE)
        }
        BodyError::Off(error) => {
            let happened = format!("the body broke off: {error}");
            let hint = "send the whole body";
            refused(peer, StatusCode::BAD_REQUEST, FaultKind::InvalidRequest, happened, hint)
        }
    }
}
