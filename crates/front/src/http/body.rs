//! Reads the body of a request within its limits.
//!
//! Invariants: no memory is reserved for a length that a request only announces. Received bytes have their room in the budget, or reading
//! stops. However slowly a body comes, reading it ends in time.

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

use super::{
    HttpState,
    handlers::{put_off, refused},
    message_budget::{MessageBudget, NoRoom},
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

/// The reason why a body was not read.
enum BodyError {
    TooLarge,
    NoRoom(usize),
    Off(Error),
}

/// Reads the body within its limits. Fails with the response that refuses it.
pub(super) async fn whole(
    http_state: &HttpState,
    peer: PeerAddress,
    mut body: Body,
) -> Result<WholeBody, Box<Response>> {
    let limit = http_state.limits.max_message;
    if body.size_hint().lower() > limit as u64 {
        return Err(refusal(http_state, peer, &BodyError::TooLarge));
    }
    match timeout(BODY_PATIENCE, read(http_state, &mut body)).await {
        Ok(Ok(whole)) => Ok(whole),
        Ok(Err(broken)) => {
            if !matches!(broken, BodyError::Off(_)) {
                tokio::spawn(timeout(REST_PATIENCE, skip(body, limit)));
            }
            Err(refusal(http_state, peer, &broken))
        }
        Err(_) => {
            let happened =
                format!("the body of the request did not arrive within {} s", BODY_PATIENCE.as_secs());
            let hint = "send the whole body at once";
            Err(Box::new(refused(peer, StatusCode::REQUEST_TIMEOUT, FaultKind::Deadline, happened, hint)))
        }
    }
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
            return Err(BodyError::TooLarge);
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

/// Discards the rest of a body, up to this many bytes.
async fn skip(mut body: Body, limit: usize) {
    let mut skipped = 0;
    while skipped <= limit
        && let Some(Ok(piece)) = next(&mut body).await
    {
        skipped += piece.len();
    }
}

fn refusal(http_state: &HttpState, peer: PeerAddress, broken: &BodyError) -> Box<Response> {
    Box::new(match broken {
        BodyError::TooLarge => {
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
    })
}
