//! The HTTP+SSE of 2024-11-05.

use super::*;

const OLD: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#;

const EVENTS_ALONE: Header<'_> = ("accept", "text/event-stream");

fn old(limits: Limits) -> Web {
    Web::with_sse(Access::default(), limits)
}

/// What an event says, which is a message.
fn message(event: &str) -> Value {
    let data = event.strip_prefix("event: message\ndata: ").unwrap_or_else(|| panic!("a message: {event:?}"));
    serde_json::from_str(data).expect("JSON")
}

/// The next event that says something.
async fn next(body: &mut Body) -> Option<String> {
    loop {
        match piece(body).await {
            Some(event) if event.starts_with(':') => {}
            event => return event,
        }
    }
}

/// Opens a stream: where messages are posted, and the rest of it.
async fn open(web: &Web, headers: &[Header<'_>]) -> (String, Body) {
    let headers = [&[EVENTS_ALONE], headers].concat();
    let response = web.ask("GET", "/sse", &headers, Body::empty()).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert!(!response.headers().contains_key("mcp-session-id"));
    let mut body = response.into_body();
    let first = piece(&mut body).await.expect("an event");
    let endpoint = first.strip_prefix("event: endpoint\ndata: ").and_then(|rest| rest.strip_suffix("\n\n"));
    let endpoint =
        endpoint.unwrap_or_else(|| panic!("the first event says where messages are posted: {first:?}"));
    (endpoint.to_owned(), body)
}

async fn post(web: &Web, endpoint: &str, headers: &[Header<'_>], body: impl Into<Body>) -> u16 {
    // Clients of that time say nothing of what they accept.
    let headers = [&[("accept", "")], headers].concat();
    web.ask("POST", endpoint, &headers, body).await.status().as_u16()
}

#[tokio::test(start_paused = true)]
async fn the_first_event_says_where_to_post_and_all_answers_come_on_the_stream() {
    let web = old(Limits::default());
    let (endpoint, mut body) = open(&web, &[]).await;
    assert!(endpoint.starts_with("/messages?sessionId=") && endpoint.len() > 40, "{endpoint}");
    assert_eq!(post(&web, &endpoint, &[], OLD).await, 202);
    assert_eq!(
        message(&next(&mut body).await.expect("an answer"))["result"]["protocolVersion"],
        "2024-11-05"
    );
    let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_eq!(post(&web, &endpoint, &[], initialized).await, 202);
    // Newer clients say what they have come to; here it changes nothing.
    let header = [("mcp-protocol-version", "2024-11-05")];
    assert_eq!(post(&web, &endpoint, &header, call(1, "slow")).await, 202);
    assert_eq!(post(&web, &endpoint, &header, call(2, "echo")).await, 202);
    assert_eq!(post(&web, &endpoint, &[], LIST.replace("\"id\":1", "\"id\":\"three\"")).await, 202);
    let mut answers = Vec::new();
    for _ in 0..3 {
        let answer = message(&next(&mut body).await.expect("an answer"));
        assert!(answer["result"].is_object(), "{answer}");
        answers.push(answer["id"].clone());
    }
    assert_eq!(answers, [json!(2), json!("three"), json!(1)], "each when it is there");
    // By the other way it is not there, nor is one of the other way here.
    let name = endpoint.split_once('=').expect("a name").1;
    for method in ["POST", "GET", "DELETE"] {
        let response = web.ask(method, "/mcp", &[("mcp-session-id", name)], LIST).await;
        assert_eq!(response.status(), 404, "{method}");
    }
    let streamable = web.begin().await;
    assert_eq!(post(&web, &format!("/messages?sessionId={streamable}"), &[], LIST).await, 404);
    assert_eq!(post(&web, &endpoint, &[], LIST).await, 202, "it goes on");
}

#[tokio::test(start_paused = true)]
async fn a_session_ends_with_its_stream() {
    let web = old(Limits::default());
    let (endpoint, mut body) = open(&web, &[]).await;
    post(&web, &endpoint, &[], OLD).await;
    next(&mut body).await.expect("an answer");
    // However long its client has nothing to say.
    sleep(SESSION_IDLE * 3).await;
    assert_eq!(post(&web, &endpoint, &[], call(1, "stuck")).await, 202);
    sleep(Duration::from_secs(1)).await;
    drop(body);
    sleep(Duration::from_secs(1)).await;
    assert!(web.http_state.sessions().is_empty(), "nobody can come back to it");
    assert_eq!(web.withdrawn.load(Ordering::SeqCst), 1, "what it had asked is withdrawn");
    assert_eq!(post(&web, &endpoint, &[], LIST).await, 404);
}

#[tokio::test(start_paused = true)]
async fn promise_3_a_session_whose_stream_nobody_reads_is_closed() {
    let web = old(Limits { queue_bytes: 5000, ..Limits::default() });
    let ((deaf, unread), (well, mut read)) = (open(&web, &[]).await, open(&web, &[]).await);
    for endpoint in [&deaf, &well] {
        assert_eq!(post(&web, endpoint, &[], OLD).await, 202);
    }
    next(&mut read).await.expect("an answer");
    for id in 1..=2 {
        assert_eq!(post(&web, &deaf, &[], call(id, "large")).await, 202);
    }
    sleep(Duration::from_secs(20)).await;
    assert_eq!(post(&web, &deaf, &[], LIST).await, 404);
    assert_eq!(post(&web, &well, &[], LIST).await, 202);
    assert_eq!(message(&next(&mut read).await.expect("an answer"))["id"], 1);
    // What was taken before comes, and then the end.
    timeout(Duration::from_secs(1), events(unread)).await.expect("it ends");
}

#[tokio::test(start_paused = true)]
async fn who_comes_this_way_is_refused_for_the_same_reasons() {
    let token = |text: &str| Token::new(text.to_owned()).expect("a token");
    let access = Access::new(vec![token("one-0123456789abcdef"), token("two-0123456789abcdef")]);
    let web = Web::with_sse(access, Limits { max_message: 1000, ..Limits::default() });
    let one = ("authorization", "Bearer one-0123456789abcdef");
    let two = ("authorization", "Bearer two-0123456789abcdef");
    for path in ["/sse", "/messages?sessionId=x"] {
        for method in ["GET", "POST", "DELETE"] {
            assert_eq!(web.ask(method, path, &[], Body::new(Endless)).await.status(), 401, "{method} {path}");
        }
    }
    for (name, value) in [("host", "evil.example.com"), ("origin", "https://evil.example.com")] {
        for (method, path) in [("GET", "/sse"), ("POST", "/messages")] {
            let response = web.ask(method, path, &[one, (name, value)], Body::new(Endless)).await;
            assert_eq!(response.status(), 403, "{method} {path} {name}");
        }
    }
    let no_events = [one, ("accept", "application/json")];
    assert_eq!(web.ask("GET", "/sse", &no_events, Body::empty()).await.status(), 406);
    for (method, path, verbs) in [("POST", "/sse", "GET"), ("GET", "/messages", "POST")] {
        let response = web.ask(method, path, &[one], LIST).await;
        assert_eq!(response.status(), 405);
        // Or newer clients would not take it for the sign to listen.
        let is_message = response.headers()["content-type"] == "application/json";
        assert_eq!(is_message, path == "/messages");
        assert_eq!(response.headers()["allow"], verbs);
    }
    let (endpoint, mut body) = open(&web, &[one]).await;
    let long =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":"{}"}}}}"#, "x".repeat(1000));
    let cases: &[(&str, &[Header<'_>], &str, u16)] = &[
        (&endpoint, &[two], OLD, 404),
        ("/messages", &[one], OLD, 404),
        ("/messages?sessionId=never-there", &[one], OLD, 404),
        (&endpoint, &[one, ("content-type", "text/plain")], OLD, 415),
        (&endpoint, &[one], &long, 413),
        (&endpoint, &[one], "no JSON", 400),
        (&endpoint, &[one], r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, 400),
        (&endpoint, &[one], &format!("{LIST}{LIST}"), 400),
        (&endpoint, &[one], "", 400),
        (&endpoint, &[one], OLD, 202),
    ];
    for (endpoint, headers, body, status) in cases {
        assert_eq!(
            post(&web, endpoint, headers, (*body).to_owned()).await,
            *status,
            "{endpoint} {headers:?} {body}"
        );
    }
    assert_eq!(message(&next(&mut body).await.expect("an answer"))["id"], 0, "nothing else has come there");
    // One client has its share of streams, and all have no more than there may be.
    let (_second, kept) = open(&web, &[two]).await;
    let refused = web.ask("GET", "/sse", &[one], Body::empty()).await;
    assert_eq!((refused.status().as_u16(), refused.headers().contains_key("retry-after")), (503, true));
    drop(kept);
    sleep(Duration::from_secs(1)).await;
    let _in_its_place = open(&web, &[two]).await;
}

#[tokio::test(start_paused = true)]
async fn it_is_there_where_it_is_wanted_alone() {
    let web = Web::new(Limits::default());
    for (method, path) in [("GET", "/sse"), ("POST", "/messages?sessionId=x")] {
        let response = web.ask(method, path, &[], Body::empty()).await;
        assert_eq!(response.status(), 404);
        let answer = json_of(response).await;
        let told = answer["error"]["message"].as_str().expect("a sentence");
        assert!(told.contains("--sse"), "{told}");
    }
}
