//! Streams that begin before the answer, their priming events, and the refusals that are no streams.

use unhang_core::queue::Class;

use super::{
    super::stream::{BufferedBytes, EventMarks, ResponseStream, StreamBody, parse_id},
    *,
};

const EVENTS_FIRST: Header<'_> = ("accept", "text/event-stream, application/json");

fn call_with_token(id: u32, tool: &str) -> String {
    let params = json!({ "name": tool, "_meta": { "progressToken": "p" } });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string()
}

/// Begins a session of this revision.
async fn begin_in(web: &Web, revision: &str) -> String {
    let response = web.post(&[], INITIALIZE.replace("2025-11-25", revision)).await;
    assert_eq!(response.status(), 200);
    response.headers()["mcp-session-id"].to_str().expect("text").to_owned()
}

fn kind(response: &Response) -> &str {
    response.headers()["content-type"].to_str().expect("text")
}

/// The id of an event.
fn id_of(event: &str) -> &str {
    event.lines().next().and_then(|line| line.strip_prefix("id: ")).expect("an id")
}

#[tokio::test(start_paused = true)]
async fn a_stream_begins_at_once_if_the_client_prefers_it_or_wants_to_hear_of_progress() {
    let web = Web::new(Limits::default());
    let session = web.begin().await;
    for (accept, body, kinds, seconds) in [
        (BOTH, call(1, "slow"), "text/event-stream", 5),
        (BOTH, call_with_token(2, "slow"), "text/event-stream", 0),
        (EVENTS_FIRST.1, call(3, "slow"), "text/event-stream", 0),
        ("application/json;q=0.9, text/event-stream", call(4, "slow"), "text/event-stream", 0),
        ("text/event-stream", call(5, "slow"), "text/event-stream", 0),
        ("*/*", call(6, "slow"), "text/event-stream", 5),
        ("application/json", call_with_token(7, "slow"), "application/json", 10),
        (BOTH, call(8, "echo"), "application/json", 0),
    ] {
        let before = Instant::now();
        let response = web.post(&[("mcp-session-id", &session), ("accept", accept)], body.clone()).await;
        assert_eq!((kind(&response), before.elapsed().as_secs()), (kinds, seconds), "{accept} {body}");
        if kinds == "text/event-stream" {
            let events = events(response.into_body()).await;
            assert_eq!(before.elapsed().as_secs(), 10, "{accept} {body}");
            // A client that wants to hear of progress hears that the call is still waited for.
            let last = events.last().expect("an answer");
            assert!(events.len() >= 2 && last.contains(r#""result""#), "{accept} {body}: {events:?}");
        }
    }
    // A request without a session gets a stream in the same cases, and no priming event.
    let (headers, body) = alone("tools/call", &json!({ "name": "slow" }));
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
    let with_token = body.replacen(r#""_meta":{"#, r#""_meta":{"progressToken":7,"#, 1);
    for (headers, body) in [([&*headers, &[EVENTS_FIRST]].concat(), body), (headers, with_token)] {
        let before = Instant::now();
        let response = web.post(&headers, body).await;
        assert_eq!((kind(&response), before.elapsed().as_secs()), ("text/event-stream", 0));
        let events = events(response.into_body()).await;
        assert!(events.iter().all(|event| event.starts_with("data: {")), "{events:?}");
        assert!(events.last().is_some_and(|last| last.contains(r#""result""#)), "{events:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_priming_event_is_for_clients_of_2025_11_25_alone() {
    let web = Web::new(Limits::default());
    for (revision, is_primed) in [("2025-03-26", false), ("2025-06-18", false), ("2025-11-25", true)] {
        let session = begin_in(&web, revision).await;
        let session = ("mcp-session-id", &*session);
        // The answer is there at once, or comes later.
        for (key, body) in [LIST.to_owned(), call(2, "slow")].into_iter().enumerate() {
            let response = web.post(&[session, EVENTS_FIRST], body).await;
            let mut events = events(response.into_body()).await;
            if is_primed {
                let key = key + 2;
                assert_eq!(events.remove(0), format!("id: {key}-0-1\nretry: 3000\ndata: \n\n"), "{revision}");
            }
            assert!(events.len() == 1 && events[0].contains(r#""result""#), "{revision}: {events:?}");
            assert!(events[0].starts_with(&format!("id: {}-1\ndata: ", key + 2)), "{revision}: {events:?}");
        }
        let mut body = web.ask("GET", "/mcp", &[session], Body::empty()).await.into_body();
        let first = timeout(Duration::from_secs(1), piece(&mut body)).await.ok().flatten();
        let expect = is_primed.then(|| "id: 0-0-1\nretry: 3000\ndata: \n\n".to_owned());
        assert_eq!(first, expect, "{revision}");
        assert_eq!(web.ask("DELETE", "/mcp", &[session], Body::empty()).await.status(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handshake_is_primed_by_the_revision_that_it_agrees_on() {
    let web = Web::new(Limits::default());
    for (asked, is_primed) in [("2025-11-25", true), ("2099-01-01", true), ("2025-06-18", false)] {
        let response = web.post(&[EVENTS_FIRST], INITIALIZE.replace("2025-11-25", asked)).await;
        let session = response.headers()["mcp-session-id"].to_str().expect("text").to_owned();
        assert_eq!(kind(&response), "text/event-stream");
        let events = events(response.into_body()).await;
        let last = events.last().expect("an answer");
        assert!(last.contains(r#""protocolVersion":"2025-"#), "{last}");
        assert_eq!(events.len(), 1 + usize::from(is_primed), "{asked}: {events:?}");
        let session = ("mcp-session-id", &*session);
        assert_eq!(web.ask("DELETE", "/mcp", &[session], Body::empty()).await.status(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_before_the_answer_is_resumed_from_its_priming_event() {
    let web = Web::new(Limits::default());
    let session = web.begin().await;
    let session = ("mcp-session-id", &*session);
    for body in [call(1, "slow"), LIST.to_owned()] {
        let mut stream = web.post(&[session, EVENTS_FIRST], body).await.into_body();
        let first = piece(&mut stream).await.expect("an event");
        drop(stream);
        let resumed =
            web.ask("GET", "/mcp", &[session, ("last-event-id", id_of(&first))], Body::empty()).await;
        assert_eq!(resumed.status(), 200);
        let events = events(resumed.into_body()).await;
        assert!(events.len() == 1 && events[0].contains(r#""id":1,"result""#), "{events:?}");
    }
}

#[test]
fn whoever_resumes_from_a_priming_event_misses_nothing_and_hears_nothing_twice() {
    let stream = ResponseStream::new(7, 1000, EventMarks::Number, BufferedBytes::default(), Arc::default());
    let read = |mut body: StreamBody| {
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut events = Vec::new();
        while let Poll::Ready(Some(frame)) = Pin::new(&mut body).poll_frame(&mut context) {
            let data = frame.expect("it does not break").into_data().expect("data");
            events.push(String::from_utf8(data.to_vec()).expect("text"));
        }
        events
    };
    stream.say(Class::Kept, b"1");
    stream.end();
    assert_eq!(read(stream.read(None)), ["id: 7-1\ndata: 1\n\n"]);
    stream.say(Class::Kept, b"2");
    // The second event was there before its reader came.
    let events = read(stream.read_primed());
    assert_eq!(events, ["id: 7-1-2\nretry: 3000\ndata: \n\n", "id: 7-2\ndata: 2\n\n"]);
    let (key, number) = parse_id(id_of(&events[0])).expect("an id");
    assert_eq!((key, read(stream.read(Some(number)))), (7, vec!["id: 7-2\ndata: 2\n\n".to_owned()]));
    // Without numbers nobody can resume, and no such event is sent.
    let stream = ResponseStream::new(7, 1000, EventMarks::Kind, BufferedBytes::default(), Arc::default());
    stream.end();
    assert_eq!(read(stream.read_primed()), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_keeps_its_status_whatever_the_client_prefers() {
    let web = Web::new(Limits { max_message: 1000, ..Limits::default() });
    let session = web.begin().await;
    let session = ("mcp-session-id", &*session);
    let long =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":"{}"}}}}"#, "x".repeat(1000));
    let twice = format!("[{LIST}]");
    let cases: &[(&[Header<'_>], &str, u16, i64)] = &[
        (&[("host", "evil.example.com")], LIST, 403, -32600),
        (&[("content-type", "text/plain")], LIST, 415, -32600),
        (&[], LIST, 400, -32600),
        (&[], "no JSON", 400, -32700),
        (&[session], "no JSON", 400, -32700),
        (&[session], r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, 400, -32600),
        (&[session], &twice, 400, -32600),
        (&[session], &long, 413, -31006),
        (&[("mcp-session-id", "never-there")], LIST, 404, -32600),
        (&[session, ("mcp-protocol-version", "1999-01-01")], LIST, 400, -32600),
        (&[], r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#, 200, -32602),
        (&[session], r#"{"jsonrpc":"2.0","id":1,"method":"no/such"}"#, 200, -32601),
    ];
    for accept in [EVENTS_FIRST, ("accept", "text/event-stream")] {
        for (headers, body, status, code) in cases {
            let response = web.post(&[&[accept], *headers].concat(), (*body).to_owned()).await;
            assert_eq!(response.status(), *status, "{headers:?} {body}");
            assert!(!response.headers().contains_key("mcp-session-id"), "{headers:?} {body}");
            let answer = json_of(response).await;
            assert_eq!(answer["error"]["code"], *code, "{headers:?} {body}: {answer}");
        }
    }
    let post = async |method: &str, params: Value, changed: Header<'_>, from: &str, to: &str| {
        let (headers, body) = alone(method, &params);
        let others = headers.iter().filter(|(name, _)| *name != changed.0);
        let headers = others.map(|(name, value)| (*name, &**value)).chain([changed, EVENTS_FIRST]);
        web.post(&headers.collect::<Vec<_>>(), body.replace(from, to)).await
    };
    let token = r#""_meta":{"progressToken":1,"#;
    for (method, changed, from, to, status, code) in [
        ("ping", ("x", ""), "", "", 404, -32601),
        ("no/such", ("x", ""), r#""_meta":{"#, token, 404, -32601),
        ("tools/list", ("mcp-method", "tools/call"), "", "", 400, -32020),
        ("server/discover", ("mcp-protocol-version", "2099-01-01"), "2026-07-28", "2099-01-01", 400, -32022),
        ("tools/list", ("x", ""), "clientCapabilities", "others", 400, -32602),
    ] {
        let response = post(method, json!({}), changed, from, to).await;
        assert_eq!(response.status(), status, "{method}");
        let answer = json_of(response).await;
        assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(code), &json!(7)), "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_its_stream_withdraws_what_stands_alone_and_nothing_else() {
    let web = Web::new(Limits::default());
    let (headers, body) = alone("tools/call", &json!({ "name": "stuck" }));
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
    let before = Instant::now();
    let response = web.post(&[&*headers, &[EVENTS_FIRST]].concat(), body).await;
    assert_eq!((kind(&response), before.elapsed().as_secs()), ("text/event-stream", 0));
    sleep(Duration::from_millis(1)).await;
    assert_eq!(web.withdrawn.load(Ordering::SeqCst), 0);
    drop(response);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(web.withdrawn.load(Ordering::SeqCst), 1);
    assert_eq!(web.http_state.waiting_alone(), 0);
    let session = web.begin().await;
    drop(web.post(&[("mcp-session-id", &session), EVENTS_FIRST], call(1, "stuck")).await);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(web.withdrawn.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn promise_3_what_ended_streams_keep_of_delivered_events_is_bounded() {
    let web = Web::new(Limits { queue_bytes: LONG + LONG / 2, ..Limits::default() });
    let session = web.begin().await;
    let session = ("mcp-session-id", &*session);
    let mut ids = Vec::new();
    for id in 1..=3 {
        let events = events(web.post(&[session, EVENTS_FIRST], call(id, "long")).await.into_body()).await;
        ids.push(id_of(&events[0]).to_owned());
    }
    let mut statuses = Vec::new();
    for id in ids {
        let resumed = web.ask("GET", "/mcp", &[session, ("last-event-id", &id)], Body::empty()).await;
        statuses.push(resumed.status().as_u16());
    }
    assert_eq!(statuses, [400, 200, 200], "the oldest is forgotten");
}
