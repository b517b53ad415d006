//! The room that bodies and whole replies have together.

use std::collections::VecDeque;

use super::*;
use unhang_core::config::{ROOM_PATIENCE, SMALL_MESSAGE};

/// A body that comes in these pieces, and then ends or stands still.
struct Pieces {
    pieces: VecDeque<Bytes>,
    ends: bool,
}

impl Pieces {
    fn of(text: &str, ends: bool) -> Body {
        let pieces = text.as_bytes().chunks(1000).map(Bytes::copy_from_slice).collect();
        Body::new(Pieces { pieces, ends })
    }
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        match self.pieces.pop_front() {
            Some(piece) => Poll::Ready(Some(Ok(http_body::Frame::data(piece)))),
            None if self.ends => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

/// A message of about this length.
fn padded(method: &str, params: &Value, length: usize) -> String {
    let padding = "x".repeat(length);
    let mut params = params.clone();
    params["_meta"] = json!({ "padding": padding });
    json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string()
}

/// All of it is free again, once everybody has come to it.
async fn is_free(web: &Web) {
    timeout(Duration::from_secs(60), async {
        while web.http_state.budget.used() > 0 {
            sleep(Duration::from_millis(1)).await;
        }
    })
    .await
    .expect("all of it is free");
}

#[tokio::test(start_paused = true)]
async fn f_32_a_body_has_room_until_it_is_answered() {
    let web = Web::new(Limits::default());
    let session = web.begin().await;
    let headers = [("mcp-session-id", &*session)];
    let list = padded("tools/list", &json!({}), 30_000);
    // Whether it is answered with a result, or not at all.
    assert_eq!(web.post(&headers, Pieces::of(&list, true)).await.status(), 200);
    is_free(&web).await;
    let told = list.replace("\"id\":7,", "").replace("tools/list", "notifications/roots/list_changed");
    assert_eq!(web.post(&headers, Pieces::of(&told, true)).await.status(), 202);
    is_free(&web).await;
    // A call that goes on has it, also when its stream has begun.
    let stuck = padded("tools/call", &json!({ "name": "stuck" }), 30_000);
    let body = web.post(&headers, Pieces::of(&stuck, true)).await.into_body();
    assert!((30_000..32_000).contains(&web.http_state.budget.used()), "{}", web.http_state.budget.used());
    // Nor does it matter that its client has gone: the call goes on.
    drop(body);
    sleep(Duration::from_secs(1)).await;
    assert!(web.http_state.budget.used() >= 30_000);
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 } });
    assert_eq!(web.post(&headers, cancel.to_string()).await.status(), 202);
    is_free(&web).await;
}

#[tokio::test(start_paused = true)]
async fn f_32_a_body_without_room_is_put_off_and_others_are_answered() {
    let web = Web::new(Limits::default());
    let session = web.begin().await;
    let headers = [("mcp-session-id", &*session)];
    let list = padded("tools/list", &json!({}), 40_000);
    let stalled = async {
        let response = web.post(&headers, Pieces::of(&list[..36_000], false)).await;
        assert_eq!(response.status(), 408, "it has an end");
    };
    let others = async {
        while web.http_state.budget.used() < 36_000 {
            sleep(Duration::from_millis(1)).await;
        }
        let before = Instant::now();
        assert_eq!(web.post(&headers, LIST).await.status(), 200);
        let short = padded("tools/list", &json!({}), SMALL_MESSAGE + 1000);
        assert_eq!(web.post(&headers, Pieces::of(&short, true)).await.status(), 200);
        assert_eq!(before.elapsed().as_secs(), 0);
        let response = web.post(&headers, Pieces::of(&list, true)).await;
        assert_eq!(before.elapsed().as_secs(), ROOM_PATIENCE.as_secs(), "it has waited");
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()["retry-after"], "5");
        let answer = json_of(response).await;
        assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(-31005), &Value::Null), "{answer}");
    };
    tokio::join!(stalled, others);
    is_free(&web).await;
    assert_eq!(web.post(&headers, Pieces::of(&list, true)).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn f_32_a_whole_reply_has_room_until_it_is_taken() {
    let web = Web::new(Limits::default());
    let session = web.begin().await;
    for accept in [BOTH, "application/json"] {
        let headers = [("mcp-session-id", &*session), ("accept", accept)];
        let response = web.post(&headers, call(9, "long")).await;
        assert_eq!(response.status(), 200);
        let mut body = response.into_body();
        let frame = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
        let frame = frame.expect("a frame").expect("it does not break");
        // What the connection has taken of us it may still have to send.
        drop(body);
        let used = web.http_state.budget.used();
        assert!(used >= LONG, "{used}");
        drop(frame);
        is_free(&web).await;
    }
}

#[tokio::test(start_paused = true)]
async fn f_32_a_reply_without_room_is_an_error_with_the_id_of_its_request() {
    let web = Web::new(Limits::default());
    let session = web.begin().await;
    let headers = [("mcp-session-id", &*session), ("accept", "application/json")];
    let taken = web.http_state.budget.room_for(45_000).await.expect("there is room");
    let before = Instant::now();
    let response = web.post(&headers, call(9, "long")).await;
    assert_eq!(before.elapsed().as_secs(), ROOM_PATIENCE.as_secs());
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["retry-after"], "5");
    let answer = json_of(response).await;
    assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(-31005), &json!(9)), "{answer}");
    drop(taken);
    assert_eq!(web.post(&headers, call(10, "long")).await.status(), 200);
    is_free(&web).await;
}

#[tokio::test(start_paused = true)]
async fn f_32_replies_wait_for_room_only_as_long_as_there_is_memory_to_wait_in() {
    let web = Web::new(Limits::default());
    let session = web.begin().await;
    for accept in [BOTH, "application/json"] {
        let taken = web.http_state.budget.room_for(45_000).await.expect("there is room");
        let headers = [("mcp-session-id", &*session), ("accept", accept)];
        let before = Instant::now();
        let asked = async |id| {
            let response = web.post(&headers, call(id, "long")).await;
            (response.status().as_u16(), before.elapsed().as_secs())
        };
        let (one, two, three) = tokio::join!(asked(1), asked(2), asked(3));
        let mut all = [one, two, three];
        all.sort_unstable();
        let waited = ROOM_PATIENCE.as_secs();
        assert_eq!(all, [(503, 0), (503, 0), (503, waited)], "{accept}");
        drop(taken);
    }
    is_free(&web).await;
}
