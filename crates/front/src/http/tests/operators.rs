//! What operators ask, without sockets.

use std::future::pending;

use unhang_jobs::{record::JobState, shared_jobs::WorkerSummary};

use super::{
    super::stream::{BufferedBytes, EventMarks, ResponseStream},
    *,
};
use crate::tally::FrontTally;
use unhang_core::{config::STATUS_PATIENCE, limits::Limits, queue::Class};

async fn get(web: &Web, path: &str) -> String {
    let response = web.ask("GET", path, &[], Body::empty()).await;
    assert_eq!(response.status(), 200, "{path}");
    let body = to_bytes(response.into_body(), 1 << 20).await.expect("a body");
    String::from_utf8(body.to_vec()).expect("text")
}

/// The samples of this name, without what stands in front of them.
fn samples<'a>(page: &'a str, name: &str) -> Vec<&'a str> {
    page.lines().filter_map(|line| line.strip_prefix(name)).collect()
}

#[tokio::test(start_paused = true)]
async fn what_sessions_do_is_counted() {
    let web = Web::new(Limits::default());
    let name = web.begin().await;
    for tool in ["echo", "echo", "none"] {
        web.post(&[("mcp-session-id", &name)], call(1, tool)).await;
    }
    web.alone("tools/call", json!({ "name": "echo" })).await;
    web.ask("GET", "/nowhere", &[], Body::empty()).await;
    let page = get(&web, "/metrics").await;
    for sample in [
        r#"unhang_client_requests_total{method="tools/call"} 4"#,
        r#"unhang_client_requests_total{method="initialize"} 1"#,
        r#"unhang_client_answers_total{outcome="result"} 4"#,
        r#"unhang_client_answers_total{outcome="error"} 1"#,
        r#"unhang_tool_calls_total{tool="echo",outcome="ok"} 3"#,
        r#"unhang_http_responses_total{status="200"} 5"#,
        r#"unhang_http_responses_total{status="404"} 1"#,
        "unhang_sessions 1",
        "unhang_requests_without_session 0",
        "unhang_queue_bytes 0",
    ] {
        assert!(page.lines().any(|line| line == sample), "{sample} is not in\n{page}");
    }
    assert!(!page.contains("# EOF") && !page.contains("unhang_jobs"), "{page}");
}

#[tokio::test(start_paused = true)]
async fn no_outsider_makes_series_grow() {
    let web = Web::new(Limits::default());
    let name = web.begin().await;
    for number in 0..100 {
        let method = format!("strange/{number}");
        let message = json!({ "jsonrpc": "2.0", "id": number, "method": method }).to_string();
        web.post(&[("mcp-session-id", &name)], message).await;
        web.post(&[("mcp-session-id", &name)], call(number, &method)).await;
        web.ask("GET", &format!("/{method}"), &[], Body::empty()).await;
    }
    let page = get(&web, "/metrics").await;
    assert!(!page.contains("strange"), "{page}");
    assert_eq!(samples(&page, r#"unhang_client_requests_total{method="other"} "#), ["100"]);
    assert!(page.lines().count() < 100, "{page}");
}

#[tokio::test(start_paused = true)]
async fn what_a_client_does_not_read_is_counted() {
    let web = Web::new(Limits { queue_bytes: 4 << 10, ..Limits::default() });
    let name = web.begin().await;
    let mut bodies = Vec::new();
    for id in 0..4 {
        // Longer than an answer is waited for whole, so that it comes as events.
        bodies.push(web.post(&[("mcp-session-id", &name)], call(id, "large")).await);
    }
    sleep(Duration::from_secs(20)).await;
    let page = get(&web, "/metrics").await;
    assert_eq!(samples(&page, "unhang_sessions_dropped_total "), ["1"], "{page}");
    drop(bodies);
    let page = get(&web, "/metrics").await;
    assert_eq!(samples(&page, "unhang_queue_bytes "), ["0"], "{page}");
}

#[tokio::test(start_paused = true)]
async fn jobs_are_told_by_state() {
    let worker = WorkerSummary {
        name: "big-1".to_owned(),
        host: "big".to_owned(),
        version: "1.2".to_owned(),
        labels: vec!["gpu".to_owned(), "unhang:command".to_owned()],
        slots: 4,
        running: 3,
        heard_seconds_ago: 7,
        is_silent: false,
        is_draining: false,
    };
    let counts = crate::http::operators::JobCounts {
        states: vec![(JobState::Queued, 2), (JobState::Running, 1)],
        workers: vec![worker],
    };
    let count: JobCounter = Arc::new(move || {
        let counts = counts.clone();
        Box::pin(async move { Some(counts) })
    });
    let web = Web::with_jobs(Limits::default(), Some(count));
    let status: Value = serde_json::from_str(&get(&web, "/status").await).expect("JSON");
    assert_eq!(status["jobs"], json!({ "queued": 2, "running": 1 }));
    let page = get(&web, "/metrics").await;
    assert_eq!(samples(&page, r#"unhang_jobs{state="#), [r#""queued"} 2"#, r#""running"} 1"#]);
    let info = r#"unhang_worker_info{worker="big-1",host="big",version="1.2",labels="gpu,unhang:command"} "#;
    assert_eq!(samples(&page, info), ["1"], "{page}");
    for (name, value) in [("slots", "4"), ("running_jobs", "3"), ("heartbeat_age_seconds", "7")] {
        let sample = format!(r#"unhang_worker_{name}{{worker="big-1"}} "#);
        assert_eq!(samples(&page, &sample), [value], "{page}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stuck_disk_keeps_nobody_from_hearing_how_the_rest_is() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let count: JobCounter = Arc::new(move || {
        counted.fetch_add(1, Ordering::SeqCst);
        Box::pin(pending())
    });
    let web = Web::with_jobs(Limits::default(), Some(count));
    let since = Instant::now();
    for path in ["/status", "/metrics", "/status"] {
        let told = timeout(Duration::from_secs(60), get(&web, path)).await.expect("it does not wait for it");
        assert!(!told.contains("jobs"), "{told}");
    }
    assert!(since.elapsed() < STATUS_PATIENCE * 4, "{:?}", since.elapsed());
    assert_eq!(asked.load(Ordering::SeqCst), 1, "whoever waits for the disk waits alone");
}

#[tokio::test(start_paused = true)]
async fn a_stranger_hears_nothing() {
    let web = Web::new(Limits::default());
    for path in ["/health", "/ready", "/status", "/metrics"] {
        let response = web.ask("GET", path, &[("host", "evil.example.com")], Body::empty()).await;
        assert_eq!(response.status(), 403, "{path}");
    }
}

#[test]
fn what_is_left_out_for_a_client_that_does_not_read_is_counted() {
    let tally = Arc::<FrontTally>::default();
    let stream = ResponseStream::new(
        1,
        4 << 10,
        EventMarks::None,
        BufferedBytes::new(Arc::clone(&tally)),
        Arc::default(),
    );
    for _ in 0..100 {
        stream.say(Class::Log, &[b'x'; 100]);
    }
    let (shed, waiting) = (tally.shed.load(Ordering::SeqCst), tally.waiting.load(Ordering::SeqCst));
    assert!((60..100).contains(&shed) && (1..=4 << 10).contains(&waiting), "{shed} and {waiting}");
    drop(stream);
    assert_eq!(tally.waiting.load(Ordering::SeqCst), 0);
}
