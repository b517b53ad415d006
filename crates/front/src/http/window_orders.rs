//! Orders of windows to make jobs of their calls ([`unhang_upstream::window_job`]).
//!
//! Invariants
//!
//! - An order whose connection is closed is over, because its reply goes nowhere.
//! - An order may overtake its call, which has a connection of its own. It waits for the call for a while.

use std::{
    pin::pin,
    sync::{Arc, PoisonError},
};

use tokio::{sync::oneshot, time::timeout};
use unhang_jobs::id::JobId;
use unhang_net::serve::axum::{
    http::header,
    response::{IntoResponse, Response},
};
use unhang_wire::{self as wire, Body, Id, Json, Message, Piece};

use super::{
    HttpState,
    accept::JSON,
    session::{SessionCommand, SessionHandle},
};
use unhang_core::fault::FaultKind;
use unhang_upstream::window_job::{COMING, MAKE_JOB, WindowCallName, WindowJobOrder, made_job};

/// Reads a post that is an order. Returns its id, and the order or the reason why it is refused. Returns `None` for any other post.
pub(super) fn read_order(body: &[u8]) -> Option<(Id, Result<WindowJobOrder, String>)> {
    let mut pieces = wire::read(body);
    match (pieces.next(), pieces.next()) {
        (Some(Piece::Message(Message { body: Body::Request { id, method, params, .. }, .. })), None)
            if method == MAKE_JOB =>
        {
            Some((id, WindowJobOrder::read(params.unwrap_or(Json::EMPTY))))
        }
        _ => None,
    }
}

/// Carries out an order, and answers it.
pub(super) async fn ordered(
    http_state: &Arc<HttpState>,
    id: &Id,
    order: Result<WindowJobOrder, String>,
) -> Response {
    let made = match order {
        Ok(order) => made(http_state, order).await,
        Err(why) => Err(why),
    };
    let id = id.to_json();
    let answer = match made {
        Ok(job) => format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{}}}"#, made_job(job)),
        Err(why) => {
            tracing::info!("no job is made of the call of another window: {why}");
            let (code, why) = (FaultKind::Overloaded.code(), serde_json::Value::from(why));
            format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{why}}}}}"#)
        }
    };
    ([(header::CONTENT_TYPE, JSON)], answer).into_response()
}

async fn made(http_state: &HttpState, order: WindowJobOrder) -> Result<JobId, String> {
    let over = || "the call has ended".to_owned();
    let mut ending = http_state.ending.clone();
    let holder = tokio::select! {
        biased;
        holder = timeout(COMING, http_state.holder_of_call(order.call)) => holder.ok(),
        _over_or_gone = ending.wait_for(|ending| *ending) => None,
    };
    let holder = holder.ok_or_else(|| "the window that runs the servers has no such call".to_owned())?;
    let (reply, made) = oneshot::channel();
    holder.send(SessionCommand::MakeJob { order, reply }).await.map_err(|_| over())?;
    made.await.unwrap_or_else(|_| Err(over()))
}

impl HttpState {
    /// Waits for the window's call that has this name, and returns its holder. Cancel-safe.
    pub(super) async fn holder_of_call(&self, call: WindowCallName) -> SessionHandle {
        loop {
            let mut named = pin!(self.window_call_named.notified());
            // Before the look, so that no call is missed.
            named.as_mut().enable();
            let found = {
                let alone = self.alone.lock().unwrap_or_else(PoisonError::into_inner);
                alone
                    .values()
                    .find(|owned| owned.window_call == Some(call))
                    .map(|owned| owned.mailbox.clone())
            };
            if let Some(holder) = found {
                return holder;
            }
            named.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_told_from_every_other_post() {
        let post = |method: &str| format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{{}}}}"#);
        let order = post(MAKE_JOB);
        let (id, read) = read_order(order.as_bytes()).expect("an order");
        assert!(id == Id::Integer(7) && read.is_err(), "another version has written it");
        for other in [post("tools/call"), format!("[{order}]"), format!("{order}\n{order}"), "x".to_owned()] {
            assert!(read_order(other.as_bytes()).is_none(), "{other}");
        }
    }
}
