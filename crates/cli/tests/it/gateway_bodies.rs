//! The gateway over HTTP where clients send large bodies and do not finish them.

#![expect(clippy::disallowed_methods, reason = "that nobody waits for somebody else is what is shown")]

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{Shutdown, TcpStream},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use serde_json::json;

use crate::{
    gateway::server,
    gateway_http::finish,
    harness::{PATIENCE, Sandbox, Web, peak_memory, wait_until},
};

const MIB: usize = 1 << 20;
/// How many send.
const POSTS: usize = 16;
/// What each of them sends, one byte less than it says.
const SENT: usize = 59 * MIB;
/// What all that may cost: the budget, and what a gateway has besides.
const MEMORY: u64 = 250 * MIB as u64;
/// How long somebody else may wait meanwhile.
const SECONDS: Duration = Duration::from_secs(5);

/// Begins to post.
fn post(web: &Web) -> TcpStream {
    let mut stream = TcpStream::connect(web.address()).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\n\
         content-length: {}\r\n\r\n",
        SENT + 1
    );
    stream.write_all(head.as_bytes()).expect("it is read");
    stream
}

/// Posts all but the end; the status of the answer and when it says to come back, if one comes.
fn unfinished(mut stream: TcpStream) -> Option<(String, Option<String>)> {
    let piece = vec![b' '; MIB];
    // Whoever is refused in the middle reads why.
    let _sent = (0..SENT / MIB).try_for_each(|_| stream.write_all(&piece));
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let status = lines.next()?.split(' ').nth(1)?.to_owned();
    let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let after = head.iter().find_map(|line| line.strip_prefix("retry-after: "));
    Some((status, after.map(str::to_owned)))
}

#[test]
fn f_32_unfinished_bodies_have_a_budget_together_and_keep_nobody_else_waiting() {
    let sandbox = Sandbox::with_jobs();
    fs::write(sandbox.path().join("unhang.toml"), server("one", &["well-behaved"], "")).expect("a file");
    let (process, web) = Web::start(&sandbox);
    wait_until("it has come up", PATIENCE, || web.ask("GET", "/ready", &[], "").status == 200);
    let session = web.begin();
    let streams: Vec<TcpStream> = (0..POSTS).map(|_| post(&web)).collect();
    thread::scope(|scope| {
        let (tell, told) = mpsc::sync_channel(POSTS);
        for stream in &streams {
            let (tell, stream) = (tell.clone(), stream.try_clone().expect("a descriptor"));
            // Nobody listens any more at the end.
            scope.spawn(move || drop(tell.send(unfinished(stream))));
        }
        // The memory has room for one or two of them whole; the others are put off. Meanwhile somebody else calls.
        let mut put_off = 0;
        for id in 1.. {
            let asked = Instant::now();
            let text = "x".repeat(32 << 10);
            let answer = web.call(&session, id, "one__echo", json!({ "text": text })).last();
            assert_eq!(answer["result"]["content"][0]["text"], text, "{answer}");
            assert!(asked.elapsed() < SECONDS, "{:?}", asked.elapsed());
            if let Ok(answer) = told.recv_timeout(Duration::from_millis(200)) {
                assert_eq!(answer, Some(("503".to_owned(), Some("5".to_owned()))), "{put_off} were put off");
                put_off += 1;
            }
            if put_off == POSTS - 2 {
                break;
            }
        }
        let peak = peak_memory(process.pid()).expect("it runs");
        assert!(peak < MEMORY, "{} MiB", peak >> 20);
        for stream in &streams {
            // Those who were put off have none any more.
            let _gone = stream.shutdown(Shutdown::Both);
        }
    });
    // What they had is free again.
    let ping =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "ping", "params": { "padding": "x".repeat(SENT) } });
    let answer = web.post(&[("mcp-session-id", &session)], &ping);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.last()["result"], json!({}));
    finish(process, &sandbox);
}
