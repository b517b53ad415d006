//! The gateway over HTTP where somebody holds as many connections as they can.

use std::{fs, net::TcpStream, time::Duration};

use serde_json::json;

use crate::{
    gateway::server,
    gateway_http::finish,
    harness::{Client, PATIENCE, Sandbox, Web, wait_until},
};

/// A gateway that was started with few descriptors, and may have this many.
fn gateway(sandbox: &Sandbox, soft: u32, hard: u32) -> (Client, Web) {
    let limits = "limits = { health-interval = \"10m\" }";
    let mut file = server("one", &["well-behaved"], limits);
    file += "[servers.asked]\ncommand = \"sh\"\nargs = [\"-c\", \"ulimit -Sn > given; ulimit -Hn >> given; exec cat > /dev/null\"]\n";
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
    let (process, web) = gateway(&sandbox, 200, 300);
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
        std::io::Write::write_all(&mut stream, request.as_bytes()).ok()?;
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut stream, &mut answer).ok()?;
        answer.starts_with("HTTP/1.1 200").then_some(())
    };
    wait_until("somebody who asks is answered", Duration::from_secs(20), || answered().is_some());
    let session = web.begin();
    let answer = web.call(&session, 1, "one__echo", json!({ "text": "here" })).last();
    assert_eq!(answer["result"]["content"][0]["text"], "here", "{answer}");
    drop(idle);
    finish(process, &sandbox);
}
