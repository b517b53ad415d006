//! The gateway over HTTP where somebody holds as many connections as they can.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use serde_json::json;

use crate::{
    gateway::server,
    gateway_access::ONE,
    gateway_http::finish,
    harness::{Client, PATIENCE, Sandbox, Web, wait_until},
};

/// A gateway that was started with few descriptors, and may have this many.
fn gateway(sandbox: &Sandbox, soft: u32, hard: u32, more: &str) -> (Client, Web) {
    let limits = "limits = { health-interval = \"10m\" }";
    let mut file = server("one", &["well-behaved"], limits);
    file += "[servers.asked]\ncommand = \"sh\"\nargs = [\"-c\", \"ulimit -Sn > given; ulimit -Hn >> given; exec cat > /dev/null\"]\n";
    file += more;
    fs::write(sandbox.path().join("unhang.toml"), file).expect("a file");
    let line = format!("ulimit -Sn {soft}; ulimit -Hn {hard}; exec unhang -v serve --http 127.0.0.1:0");
    let command = sandbox.shell(&line);
    Web::start_as(command)
}

/// The soft limit of a process.
fn soft_limit(process: &Client) -> String {
    let limits = fs::read_to_string(format!("/proc/{}/limits", process.pid())).expect("it runs");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("a line");
    line.split_whitespace().nth(3).expect("a number").to_owned()
}

#[test]
fn f_31_idle_connections_keep_nobody_out_and_servers_get_the_limit_that_we_were_given() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = gateway(&sandbox, 200, 300, "");
    assert_eq!(soft_limit(&process), "300", "it is raised to the hard one");
    let given = sandbox.path().join("given");
    let told = || fs::read_to_string(&given).unwrap_or_default();
    wait_until("a server tells what it was given", PATIENCE, || told().lines().count() == 2);
    assert_eq!(told(), "200\n300\n");
    // More than it may have in all.
    let idle: Vec<TcpStream> = (0..400).filter_map(|_| TcpStream::connect(web.address()).ok()).collect();
    assert!(idle.len() > 300);
    // Whoever is silent for two seconds makes room.
    let answered = || {
        let mut stream = TcpStream::connect(web.address()).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        let request = "GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.starts_with("HTTP/1.1 200").then_some(())
    };
    wait_until("somebody who asks is answered", Duration::from_secs(20), || answered().is_some());
    let session = web.begin();
    let answer = web.call(&session, 1, "one__echo", json!({ "text": "here" })).last();
    assert_eq!(answer["result"]["content"][0]["text"], "here", "{answer}");
    drop(idle);
    finish(process, &sandbox);
}

#[test]
fn f_31_strangers_who_ask_for_what_everybody_may_keep_nobody_with_a_token_out() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = gateway(&sandbox, 200, 300, &format!("[http]\ntokens = [\"{ONE}\"]\n"));
    let ((going_on, over), rounds) = (mpsc::sync_channel::<()>(0), Arc::new(AtomicUsize::new(0)));
    let (address, counted) = (web.address().to_owned(), Arc::clone(&rounds));
    // More than it may have in all, and each asks again before it would count as silent.
    let connections = thread::spawn(move || {
        let mut all: Vec<TcpStream> = (0..400).filter_map(|_| TcpStream::connect(&address).ok()).collect();
        for connection in &all {
            connection.set_nonblocking(true).expect("a socket");
        }
        while over.recv_timeout(Duration::from_millis(500)) == Err(mpsc::RecvTimeoutError::Timeout) {
            all.retain_mut(|connection| {
                let _nobody_looks = connection.read(&mut [0; 4096]);
                connection.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").is_ok()
            });
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    wait_until("strangers ask for longer than anybody may be silent", PATIENCE, || {
        rounds.load(Ordering::Relaxed) > 8
    });
    let answered = || {
        let mut stream = TcpStream::connect(web.address()).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        let request = format!(
            "GET /status HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {ONE}\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.starts_with("HTTP/1.1 200").then_some(())
    };
    wait_until("whoever has a token is answered", Duration::from_secs(20), || answered().is_some());
    drop(going_on);
    connections.join().expect("they end");
    finish(process, &sandbox);
}
