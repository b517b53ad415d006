//! Requests as handlers see them, without sockets and with time as a number.

mod operators;

use std::{
    pin::Pin,
    sync::atomic::{AtomicUsize, Ordering},
    task::{Context, Poll},
    time::Duration,
};

use serde_json::{Map, Value, json};
use tokio::{
    task::yield_now,
    time::{sleep, timeout},
};
use unhang_net::serve::{
    HttpHandler, Origin, PeerAddress,
    axum::{
        body::{Body, Bytes, HttpBody, to_bytes},
        http::Request,
        response::Response,
    },
};

use super::{operators::JobCounter, *};
use unhang_core::config::SESSION_IDLE;
use unhang_gateway::OfSession;
use unhang_tools::{Definition, Hints, ToolAnswer, ToolAnswerFuture, ToolCall, ToolListing};
use unhang_upstream::window_job::COMING;

mod access;
mod old;
mod param_headers;
mod room;
mod streams;

/// What `long` answers with: too much to count for nothing, and less than is cut.
const LONG: usize = 20_000;

/// Tools that take their time.
#[derive(Default)]
struct Tools {
    withdrawn: Arc<AtomicUsize>,
}

impl Toolbox for Tools {
    fn definitions(&self) -> Arc<[Definition]> {
        let tool = |name: &str| Definition {
            name: name.to_owned(),
            description: None,
            input_schema: json!({ "type": "object" }),
            output_schema: None,
            hints: Hints::default(),
            is_job: false,
            listing: ToolListing::First,
        };
        ["echo", "slow", "stuck", "large", "long"].map(tool).into()
    }

    fn call(&self, mut call: ToolCall) -> ToolAnswerFuture {
        let withdrawn = Arc::clone(&self.withdrawn);
        let answer = |text: &str| ToolAnswer { text: text.to_owned(), ..ToolAnswer::default() };
        Box::pin(async move {
            match &*call.tool {
                "slow" => sleep(Duration::from_secs(10)).await,
                "large" => {
                    sleep(Duration::from_secs(10)).await;
                    return answer(&"x".repeat(10_000));
                }
                "long" => return answer(&"x".repeat(LONG)),
                "stuck" => {
                    call.cancellation.cancelled().await;
                    withdrawn.fetch_add(1, Ordering::SeqCst);
                }
                _ => {}
            }
            answer("done")
        })
    }
}

/// A front without a socket.
struct Web {
    http_state: Arc<HttpState>,
    service: HttpService,
    withdrawn: Arc<AtomicUsize>,
    access_policy: watch::Sender<Arc<AccessPolicy>>,
    _end: watch::Sender<bool>,
}

type Header<'a> = (&'a str, &'a str);

const BOTH: &str = "application/json, text/event-stream";
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

fn call(id: u32, tool: &str) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": tool } }).to_string()
}

/// A request of 2026-07-28, and the headers for it.
fn alone(method: &str, params: &Value) -> (Vec<(&'static str, String)>, String) {
    let mut params: Map<String, Value> = params.as_object().cloned().unwrap_or_default();
    let mut headers =
        vec![("mcp-protocol-version", "2026-07-28".to_owned()), ("mcp-method", method.to_owned())];
    if let Some(name) = params.get("name").and_then(Value::as_str) {
        headers.push(("mcp-name", name.to_owned()));
    }
    params.insert(
        "_meta".to_owned(),
        json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {} }),
    );
    (headers, json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string())
}

impl Web {
    fn new(limits: Limits) -> Web {
        Web::whole(Access::default(), limits, 2, None, false)
    }

    /// One that serves clients of 2024-11-05 too.
    fn with_sse(access: Access, limits: Limits) -> Web {
        Web::whole(access, limits, 2, None, true)
    }

    fn with_jobs(limits: Limits, count: Option<JobCounter>) -> Web {
        Web::whole(Access::default(), limits, 2, count, false)
    }

    /// One for those who may ask, each of whom may have so much of everything; of sessions and requests there may be two.
    fn for_those(access: Access, limits: Limits, share: usize) -> Web {
        Web::whole(access, limits, share, None, false)
    }

    fn whole(
        access: Access,
        limits: Limits,
        share: usize,
        count: Option<JobCounter>,
        offers_sse: bool,
    ) -> Web {
        let tools = Tools::default();
        let withdrawn = Arc::clone(&tools.withdrawn);
        let (end, ending) = watch::channel(false);
        let (access_policy, opened) =
            watch::channel(Arc::new(AccessPolicy { access, hosts: AllowedHosts::default() }));
        let http_state = Arc::new(HttpState {
            budget: Budget::new(Some(64 << 10), 32 << 10),
            limits,
            context: SessionContext::new(Arc::new(tools), None, None),
            jobs: JobGauge::new(count),
            access_policy: opened,
            requests: Shares::new(share),
            sessions: Mutex::default(),
            session_shares: Shares::new(share),
            alone: Mutex::default(),
            alone_shares: Shares::new(share),
            window_call_named: Notify::new(),
            stateless_clients: StatelessClients::new(2),
            room: 2,
            ending,
            since: Instant::now(),
            realm: None,
        });
        Web {
            service: HttpService::new(Arc::clone(&http_state), offers_sse),
            http_state,
            withdrawn,
            access_policy,
            _end: end,
        }
    }

    /// Asks with these headers in the place of the usual ones; one without a value is left out.
    async fn ask(&self, method: &str, path: &str, headers: &[Header<'_>], body: impl Into<Body>) -> Response {
        let usual = [("host", "localhost"), ("content-type", "application/json"), ("accept", BOTH)];
        let usual = usual.iter().filter(|(name, _)| headers.iter().all(|(other, _)| other != name));
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in usual.chain(headers).filter(|(_, value)| !value.is_empty()) {
            request = request.header(*name, *value);
        }
        let peer = PeerAddress::Network(([127, 0, 0, 1], 1).into());
        let request = request.body(body.into()).expect("a request");
        self.service.answer(Origin { peer, arrived: None, speaks_tls: false }, request).await
    }

    async fn post(&self, headers: &[Header<'_>], body: impl Into<Body>) -> Response {
        self.ask("POST", "/mcp", headers, body).await
    }

    async fn begin(&self) -> String {
        let response = self.post(&[], INITIALIZE).await;
        assert_eq!(response.status(), 200);
        let name = response.headers()["mcp-session-id"].to_str().expect("text").to_owned();
        assert_eq!(json_of(response).await["result"]["protocolVersion"], "2025-11-25");
        name
    }

    async fn alone(&self, method: &str, params: Value) -> Response {
        let (headers, body) = alone(method, &params);
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
        self.post(&headers, body).await
    }
}

async fn json_of(response: Response) -> Value {
    assert_eq!(response.headers()["content-type"], "application/json");
    let body = to_bytes(response.into_body(), 1 << 20).await.expect("a body");
    serde_json::from_slice(&body).expect("JSON")
}

/// The next piece of a body.
async fn piece(body: &mut Body) -> Option<String> {
    let frame = std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await?;
    let data = frame.expect("it does not break").into_data().expect("data");
    Some(String::from_utf8(data.to_vec()).expect("text"))
}

/// All events that say something, until the end.
async fn events(mut body: Body) -> Vec<String> {
    let mut events = Vec::new();
    while let Some(event) = piece(&mut body).await {
        events.extend(Some(event).filter(|event| !event.starts_with(':')));
    }
    events
}

/// A body that never ends.
struct Endless;

impl HttpBody for Endless {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        Poll::Pending
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_a_request_is_a_status_and_a_sentence() {
    let web = Web::new(Limits { max_message: 1000, ..Limits::default() });
    let session = web.begin().await;
    let session = ("mcp-session-id", &*session);
    let long =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":"{}"}}}}"#, "x".repeat(1000));
    let cases: &[(&[Header<'_>], &str, u16, i64)] = &[
        (&[("content-type", "text/plain")], LIST, 415, -32600),
        (&[("content-type", "")], LIST, 415, -32600),
        (&[("accept", "text/html")], LIST, 406, -32600),
        (&[("host", "evil.example.com")], LIST, 403, -32600),
        (&[("host", "")], LIST, 403, -32600),
        (&[("origin", "https://evil.example.com")], LIST, 403, -32600),
        (&[], LIST, 400, -32600),
        (&[], "", 400, -32600),
        (&[], "no JSON", 400, -32700),
        (&[], r#"{"jsonrpc":"2.0","id":1"#, 400, -32700),
        (&[], r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, 400, -32600),
        (&[session], &format!("{LIST}{LIST}"), 400, -32600),
        (&[session], &long, 413, -31006),
        (&[("mcp-session-id", "never-there")], LIST, 404, -32600),
        (&[session, ("mcp-protocol-version", "1999-01-01")], LIST, 400, -32600),
        (&[session], &format!("[{LIST}]"), 400, -32600),
    ];
    for (headers, body, status, code) in cases {
        let response = web.post(headers, (*body).to_owned()).await;
        assert_eq!(response.status(), *status, "{headers:?} {body}");
        let answer = json_of(response).await;
        assert_eq!(answer["error"]["code"], *code, "{headers:?} {body}: {answer}");
        assert!(answer["error"]["message"].as_str().is_some_and(|text| text.len() > 20), "{answer}");
    }
    for (method, path, status) in [
        ("PUT", "/mcp", 405),
        ("GET", "/", 404),
        ("POST", "/sse", 404),
        ("GET", "/mcp", 400),
        ("DELETE", "/mcp", 400),
    ] {
        let response = web.ask(method, path, &[], Body::empty()).await;
        assert_eq!(response.status(), status, "{method} {path}");
        assert!(json_of(response).await["error"]["message"].is_string());
    }
    // It has no body to be told in, and takes nobody's stream.
    let response = web.ask("HEAD", "/mcp", &[session], Body::empty()).await;
    assert_eq!(response.status(), 405);
    let (name, revision) = (session, ("mcp-protocol-version", "2026-07-28"));
    for method in ["GET", "DELETE"] {
        let response = web.ask(method, "/mcp", &[name, revision], Body::empty()).await;
        assert_eq!((response.status().as_u16(), response.headers()["allow"].as_bytes()), (405, &b"POST"[..]));
    }
    let response = web.ask("GET", "/mcp", &[name, ("accept", "application/json")], Body::empty()).await;
    assert_eq!(response.status(), 406);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let web = Web::new(Limits::default());
    let response = timeout(Duration::from_secs(600), web.post(&[], Body::new(Endless))).await;
    let response = response.expect("it is answered");
    assert_eq!(response.status(), 408);
    assert_eq!(json_of(response).await["error"]["code"], -31001);
}

#[tokio::test(start_paused = true)]
async fn a_session_is_there_until_its_client_ends_it() {
    let web = Web::new(Limits::default());
    let name = web.begin().await;
    let session = ("mcp-session-id", &*name);
    let revision = ("mcp-protocol-version", "2025-11-25");
    let response =
        web.post(&[session, revision], r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
    assert_eq!(response.status(), 202);
    // Written for people, and a line on its way all the same.
    let pretty = format!("{:#}", serde_json::from_str::<Value>(&call(1, "echo")).expect("JSON"));
    let answer = json_of(web.post(&[session, revision], pretty).await).await;
    assert_eq!(answer["result"]["content"][0]["text"], "done");
    let answer = web.post(&[session, ("accept", "text/event-stream")], call(2, "echo")).await;
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let answer = events(answer.into_body()).await.pop().expect("an answer");
    assert!(answer.contains(r#""id":2"#), "{answer}");
    assert_eq!(web.ask("DELETE", "/mcp", &[session], Body::empty()).await.status(), 200);
    assert_eq!(web.post(&[session], LIST).await.status(), 404);
    assert_eq!(web.ask("DELETE", "/mcp", &[session], Body::empty()).await.status(), 404);
    // One that is refused has not begun.
    let response = web.post(&[], r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#).await;
    assert!(!response.headers().contains_key("mcp-session-id"));
    assert!(web.http_state.sessions().is_empty());
}

#[tokio::test(start_paused = true)]
async fn sessions_are_bounded_and_forgotten() {
    let web = Web::new(Limits::default());
    let (one, two) = (web.begin().await, web.begin().await);
    let refused = web.post(&[], INITIALIZE).await;
    assert_eq!((refused.status().as_u16(), refused.headers().contains_key("retry-after")), (503, true));
    assert_eq!(json_of(refused).await["error"]["code"], -31005);
    // One is listened to and stays, the other is not heard of any more.
    let listened = web.ask("GET", "/mcp", &[("mcp-session-id", &one)], Body::empty()).await;
    assert_eq!(listened.status(), 200);
    sleep(SESSION_IDLE + Duration::from_secs(1)).await;
    assert_eq!(web.post(&[("mcp-session-id", &two)], LIST).await.status(), 404);
    assert_eq!(web.post(&[("mcp-session-id", &one)], LIST).await.status(), 200);
    drop(listened);
    sleep(SESSION_IDLE * 2 + Duration::from_secs(1)).await;
    assert!(web.http_state.sessions().is_empty());
}

#[tokio::test(start_paused = true)]
async fn requests_that_stand_alone_are_bounded() {
    let web = Web::new(Limits::default());
    let stuck = || web.alone("tools/call", json!({ "name": "stuck" }));
    let asked = async {
        sleep(Duration::from_secs(1)).await;
        let refused = web.alone("tools/call", json!({ "name": "echo" })).await;
        assert_eq!(
            (refused.status().as_u16(), json_of(refused).await["error"]["code"].clone()),
            (503, json!(-31005))
        );
    };
    tokio::select! {
        _streams = async { tokio::join!(stuck(), stuck()) } => panic!("they are stuck"),
        () = asked => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_is_a_stream_that_can_be_taken_up_again() {
    let web = Web::new(Limits::default());
    let name = web.begin().await;
    let session = ("mcp-session-id", &*name);
    let response = web.post(&[session], call(1, "slow")).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut body = response.into_body();
    // Where it can be taken up (2025-11-25), and nothing else yet.
    let first = piece(&mut body).await.expect("an event");
    let id = first.lines().next().and_then(|line| line.strip_prefix("id: ")).expect("an id").to_owned();
    assert_eq!(first, format!("id: {id}\nretry: 3000\ndata: \n\n"));
    drop(body);
    // A connection that breaks withdraws nothing: the answer waits.
    sleep(Duration::from_secs(20)).await;
    for _ in 0..2 {
        let again = web.ask("GET", "/mcp", &[session, ("last-event-id", &id)], Body::empty()).await;
        let events = events(again.into_body()).await;
        assert!(events.len() == 1 && events[0].contains(r#""id":1,"result""#), "{events:?}");
    }
    for unknown in ["99-1", "nonsense"] {
        let response = web.ask("GET", "/mcp", &[session, ("last-event-id", unknown)], Body::empty()).await;
        assert_eq!(response.status(), 400, "{unknown}");
    }
    sleep(Duration::from_secs(120)).await;
    let late = web.ask("GET", "/mcp", &[session, ("last-event-id", &id)], Body::empty()).await;
    assert_eq!(late.status(), 400, "it is not kept for ever");
    // Who takes no events waits for the answer alone.
    let response = web.post(&[session, ("accept", "application/json")], call(2, "slow")).await;
    assert_eq!(json_of(response).await["id"], 2);
}

#[tokio::test(start_paused = true)]
async fn what_stands_alone_says_in_its_headers_what_its_body_says() {
    let web = Web::new(Limits::default());
    let answer = json_of(web.alone("tools/call", json!({ "name": "echo" })).await).await;
    assert_eq!(answer["result"]["resultType"], "complete");
    let response = web.alone("server/discover", json!({})).await;
    assert_eq!(response.status(), 200);
    // What other revisions have is unknown in this one, and is not found.
    for method in ["initialize", "ping", "logging/setLevel", "resources/subscribe", "no/such"] {
        let response = web.alone(method, json!({ "protocolVersion": "2025-11-25" })).await;
        assert_eq!(response.status(), 404, "{method}");
        let answer = json_of(response).await;
        assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(-32601), &json!(7)), "{method}");
    }
    let (headers, body) = alone("tools/call", &json!({ "name": "echo" }));
    for (name, value) in [
        ("mcp-protocol-version", ""),
        ("mcp-protocol-version", "2025-11-25"),
        ("mcp-method", ""),
        ("mcp-method", "tools/list"),
        ("mcp-name", ""),
        ("mcp-name", "slow"),
        ("mcp-name", "=?base64?c2xvdw==?="),
        ("mcp-name", "=?base64?not base64?="),
    ] {
        let others =
            headers.iter().filter(|(other, _)| *other != name).map(|(name, value)| (*name, &**value));
        let headers: Vec<_> = others.chain([(name, value)]).collect();
        let response = web.post(&headers, body.clone()).await;
        assert_eq!(response.status(), 400, "{name}: {value}");
        let answer = json_of(response).await;
        assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(-32020), &json!(7)), "{name}: {value}");
    }
    // Encoded, it is the same.
    let headers = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "=?base64?ZWNobw==?="),
    ];
    assert_eq!(web.post(&headers, body).await.status(), 200);
    // A revision that nobody speaks, and one that the body says nothing of.
    let (_, body) = alone("server/discover", &json!({}));
    let response =
        web.post(&[("mcp-protocol-version", "2099-01-01")], body.replace("2026-07-28", "2099-01-01")).await;
    assert_eq!(response.status(), 400);
    assert_eq!(json_of(response).await["error"]["code"], -32022);
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/list")];
    let response = web.post(&headers, LIST).await;
    assert_eq!(response.status(), 400);
    assert_eq!(json_of(response).await["error"]["code"], -32602);
    // Wrong parameters of a request that is otherwise whole are no fault of the transport.
    let response = web.alone("tools/call", json!({ "name": "no such tool" })).await;
    assert_eq!(response.status(), 200);
    assert_eq!(json_of(response).await["error"]["code"], -32602);
}

#[tokio::test(start_paused = true)]
async fn what_stands_alone_is_withdrawn_with_its_connection() {
    let web = Web::new(Limits::default());
    // Before an answer has begun, and while there is a stream.
    for (seconds, count) in [(1, 1), (30, 2)] {
        let waited = timeout(Duration::from_secs(seconds), async {
            let response = web.alone("tools/call", json!({ "name": "stuck" })).await;
            events(response.into_body()).await
        });
        assert!(waited.await.is_err());
        sleep(Duration::from_millis(1)).await;
        assert_eq!(web.withdrawn.load(Ordering::SeqCst), count);
    }
    // In a session it goes on.
    let name = web.begin().await;
    let session = [("mcp-session-id", &*name)];
    let waited = timeout(Duration::from_secs(1), web.post(&session, call(1, "stuck")));
    assert!(waited.await.is_err());
    sleep(Duration::from_millis(1)).await;
    assert_eq!(web.withdrawn.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn promise_3_a_session_that_does_not_read_is_closed() {
    let web = Web::new(Limits { queue_bytes: 5000, ..Limits::default() });
    let (deaf, well) = (web.begin().await, web.begin().await);
    let mut unread = Vec::new();
    for id in 1..=2 {
        unread.push(web.post(&[("mcp-session-id", &deaf)], call(id, "large")).await);
        assert_eq!(web.http_state.sessions().len(), 2);
    }
    sleep(Duration::from_secs(20)).await;
    assert_eq!(web.post(&[("mcp-session-id", &deaf)], LIST).await.status(), 404);
    assert_eq!(web.post(&[("mcp-session-id", &well)], LIST).await.status(), 200);
    drop(unread);
}

#[tokio::test(start_paused = true)]
async fn one_listens_to_a_session_at_a_time() {
    let web = Web::new(Limits::default());
    let name = web.begin().await;
    let mut bodies = Vec::new();
    for _ in 0..2 {
        let response = web.ask("GET", "/mcp", &[("mcp-session-id", &name)], Body::empty()).await;
        assert_eq!(response.status(), 200);
        bodies.push(response.into_body());
    }
    // A connection of which the client knows nothing any more is let go of.
    let first = timeout(Duration::from_secs(1), events(bodies.remove(0)));
    assert_eq!(first.await.expect("it ends"), ["id: 0-0-1\nretry: 3000\ndata: \n\n"]);
    assert_eq!(piece(&mut bodies[0]).await.as_deref(), Some("id: 0-0-2\nretry: 3000\ndata: \n\n"));
    // The other hears from time to time that it is not forgotten.
    assert_eq!(piece(&mut bodies[0]).await.as_deref(), Some(":\n\n"));
    assert_eq!(piece(&mut bodies[0]).await.as_deref(), Some(":\n\n"));
}

#[tokio::test(start_paused = true)]
async fn a_page_whose_origin_is_listed_may_read_what_it_asked() {
    let web = Web::new(Limits::default());
    let origin = ("origin", "http://localhost:6274");
    // Another server of this machine has pages too.
    assert_eq!(web.post(&[origin], INITIALIZE).await.status(), 403);
    let hosts = AllowedHosts::default().with_origins([origin.1.to_owned()]);
    web.access_policy.send_replace(Arc::new(AccessPolicy { access: Access::default(), hosts }));
    let question = [origin, ("access-control-request-headers", "mcp-session-id")];
    let response = web.ask("OPTIONS", "/mcp", &question, Body::empty()).await;
    assert_eq!(response.status(), 204);
    assert_eq!(response.headers()["access-control-allow-origin"], "http://localhost:6274");
    assert_eq!(response.headers()["access-control-allow-headers"], "mcp-session-id");
    let response = web.post(&[origin], INITIALIZE).await;
    let exposed = &response.headers()["access-control-expose-headers"];
    assert_eq!(exposed, "mcp-session-id, www-authenticate");
    let auth_error =
        web.ask("OPTIONS", "/mcp", &[("origin", "https://evil.example.com")], Body::empty()).await;
    assert_eq!(auth_error.status(), 403);
    assert!(!auth_error.headers().contains_key("access-control-allow-origin"));
}

#[tokio::test(start_paused = true)]
async fn an_order_that_overtakes_its_call_waits_for_it() {
    let web = Web::new(Limits::default());
    let (call, other) = (WindowCallName::drawn(), WindowCallName::drawn());
    let [found, missed] = [call, other].map(|name| {
        let http_state = Arc::clone(&web.http_state);
        tokio::spawn(async move { timeout(COMING, http_state.holder_of_call(name)).await.is_ok() })
    });
    yield_now().await;
    assert!(!found.is_finished(), "the call comes");
    let session = OfSession { key: SessionKey::drawn(), is_asked_beside: false, is_one_client: false };
    let window = OfWindow { session, limit: None, call: Some(call), order: None };
    let peer = PeerAddress::Network(([127, 0, 0, 1], 1).into());
    let _holder = web
        .http_state
        .alone(&TokenOwner::Anybody, peer, Some(window))
        .unwrap_or_else(|_| panic!("there is room"));
    assert!(found.await.expect("it ends"));
    assert!(!missed.await.expect("it ends"), "a call that never comes");
}
