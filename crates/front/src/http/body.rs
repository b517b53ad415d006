//! The body of a request, read within its limits.
//!
//! Invariants: nothing is set aside for what a request only says that it brings; what has come has its room in the budget, or is not read
//! on from; however slowly it comes, there is an end to it.

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
use unhang_switches::stands;

use super::{
    HttpState,
    handlers::{put_off, refused},
    message_budget::{MessageBudget, NoRoom},
};
use unhang_core::{
    config::{BODY_PATIENCE, ROOM_PATIENCE},
    fault::FaultKind,
};

/// How long what a refused client still sends is taken and thrown away: one that only sends would not see why it is refused, for its
/// connection would break.
const REST_PATIENCE: Duration = Duration::from_secs(2);

/// A whole body.
pub(super) struct WholeBody {
    pub(super) bytes: Bytes,
    /// What it takes of the budget; nothing where it is small.
    pub(super) room: Option<MessageBudget>,
}

/// Why there is none.
enum BodyError {
    TooLarge,
    NoRoom(usize),
    Off(Error),
}

/// The body, within its limits.
pub(super) async fn whole(
    http_state: &HttpState,
    peer: PeerAddress,
    mut body: Body,
) -> Result<WholeBody, Box<Response>> {
    let limit = http_state.limits.max_message;
    if body.size_hint().lower() > limit as u64 {
        return Err(refusal(http_state, peer, &BodyError::TooLarge));
    }
    let wait_limit = if stands("slow-body-ends") { BODY_PATIENCE } else { Duration::MAX };
    match timeout(wait_limit, read(http_state, &mut body)).await {
        Ok(Ok(whole)) => Ok(whole),
        Ok(Err(broken)) => {
            if !matches!(broken, BodyError::Off(_)) {
                tokio::spawn(timeout(REST_PATIENCE, skip(body, limit)));
            }
            Err(refusal(http_state, peer, &broken))
        }
        Err(_) => {
            let happened = format!("the body was not there within {} s", BODY_PATIENCE.as_secs());
            let hint = "send it at once";
            Err(Box::new(refused(peer, StatusCode::REQUEST_TIMEOUT, FaultKind::Deadline, happened, hint)))
        }
    }
}

async fn read(http_state: &HttpState, body: &mut Body) -> Result<WholeBody, BodyError> {
    let limit = http_state.limits.max_message;
    // What it says that it brings is the most that can come.
    let most = body
        .size_hint()
        .upper()
        .and_then(|most| usize::try_from(most).ok())
        .map_or(limit, |most| most.min(limit));
    let mut room = None;
    // Nearly all come in one piece, which is not copied.
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

/// The next piece of a body; none at its end.
async fn next(body: &mut Body) -> Option<Result<Bytes, Error>> {
    loop {
        let frame = std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await?;
        match frame.map(http_body::Frame::into_data) {
            Ok(Ok(piece)) => return Some(Ok(piece)),
            // What is no data says nothing here.
            Ok(Err(_)) => {}
            Err(error) => return Some(Err(error)),
        }
    }
}

/// Takes what comes, up to so much, and throws it away.
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
            let hint = "send less at once, or raise --max-message";
            refused(peer, StatusCode::PAYLOAD_TOO_LARGE, FaultKind::TooLarge, happened, hint)
        }
        BodyError::NoRoom(length) => {
            let happened = format!("other messages have the memory that a body of {length} bytes needs");
            let hint = "come back in a moment, or raise message-memory under [http] of unhang.toml";
            put_off(peer, StatusCode::SERVICE_UNAVAILABLE, happened, hint, ROOM_PATIENCE)
        }
        BodyError::Off(error) => {
            let happened = format!("the body broke off: {error}");
            let hint = "send it whole";
            refused(peer, StatusCode::BAD_REQUEST, FaultKind::InvalidRequest, happened, hint)
        }
    })
}
