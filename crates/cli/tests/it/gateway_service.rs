//! `unhang serve --http systemd`: sockets that a service manager has opened, and what it is told. The tests hand them over as systemd
//! does: as descriptors from 3 on, with a count and the number of the process in the environment.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    os::{
        fd::OwnedFd,
        linux::fs::MetadataExt,
        unix::net::{UnixDatagram, UnixListener, UnixStream},
    },
    process::Stdio,
};

use rustix::process::Signal;
use serde_json::json;

use crate::{
    gateway::server,
    gateway_http::finish,
    harness::{Client, PATIENCE, Sandbox, Web, wait_until},
};

/// Becomes `unhang serve`, with stdin and stdout as the sockets that are handed over.
const HAND_OVER: &str =
    "LISTEN_PID=$$ LISTEN_FDNAMES=a:b exec unhang -v serve --http systemd 3<&0 4>&1 </dev/null >/dev/null";

/// A gateway to which `count` of these are handed over.
fn gateway(sandbox: &Sandbox, line: &str, count: &str, first: OwnedFd, second: Option<OwnedFd>) -> Client {
    let mut command = sandbox.shell(line);
    command.env("LISTEN_FDS", count).env("NOTIFY_SOCKET", sandbox.path().join("manager"));
    Client::start_on(command, first.into(), second.map_or_else(Stdio::null, Stdio::from), std::io::sink())
}

/// Where a service manager listens.
fn manager(sandbox: &Sandbox) -> UnixDatagram {
    let manager = UnixDatagram::bind(sandbox.path().join("manager")).expect("a socket");
    manager.set_read_timeout(Some(PATIENCE)).expect("a limit");
    manager
}

#[track_caller]
fn told(manager: &UnixDatagram) -> String {
    let mut bytes = [0; 4096];
    let count = manager.recv(&mut bytes).expect("it is told in time");
    String::from_utf8_lossy(&bytes[..count]).into_owned()
}

fn on_this_machine() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").expect("a port")
}

fn configure(sandbox: &Sandbox, text: &str) {
    fs::write(sandbox.path().join("unhang.toml"), text).expect("a file");
}

/// The sockets that a process holds, by their inodes.
fn sockets(pid: i32) -> Vec<u64> {
    let all = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = all.filter_map(|entry| fs::read_link(entry.path()).ok()?.into_os_string().into_string().ok());
    links.filter_map(|link| link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()).collect()
}

fn inode(socket: impl Into<OwnedFd>) -> u64 {
    fs::File::from(socket.into()).metadata().expect("it is open").st_ino()
}

#[test]
fn what_a_service_manager_hands_over_is_served_and_nothing_else_has_any_of_it() {
    let sandbox = Sandbox::with_jobs();
    let manager = manager(&sandbox);
    let path = sandbox.path().join("front.sock");
    let (network, local) = (on_this_machine(), UnixListener::bind(&path).expect("a socket"));
    let address = network.local_addr().expect("an address");
    let ours = [inode(network.try_clone().expect("one")), inode(local.try_clone().expect("one"))];
    let work = "[tools.work]\ncommand = [\"sleep\", \"60\"]\nmode = \"job\"\n";
    configure(&sandbox, &(server("one", &["well-behaved"], "inherit-env = true") + work));
    let process = gateway(&sandbox, HAND_OVER, "2", network.into(), Some(local.into()));

    let ready = told(&manager);
    let status = format!("MCP is at http://{address}/mcp and at {} (/mcp over HTTP)", path.display());
    assert_eq!(ready, format!("READY=1\nSTATUS={status}\n"));
    wait_until("a person is told too", PATIENCE, || process.stderr().contains(&status));
    let mut stream = UnixStream::connect(&path).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    stream.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("it is read");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer, and its end");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");

    let web = Web::at(address);
    let session = web.begin();
    assert!(web.call(&session, 1, "one__echo", json!({ "text": "x" })).last()["result"].is_object());
    let job =
        web.call(&session, 2, "work", json!({})).last()["result"]["structuredContent"]["job_id"].clone();
    let others = || sandbox.survivors().into_iter().filter(|(pid, _)| *pid != process.pid());
    wait_until("the job runs", PATIENCE, || others().any(|(_, command)| command.starts_with("sleep 60")));
    let mut seen = 0;
    for (pid, command) in others() {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let environment = String::from_utf8_lossy(&environment).into_owned();
        for name in ["LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "NOTIFY_SOCKET"] {
            assert!(!environment.contains(name), "{command} sees {name}");
        }
        assert!(!sockets(pid).iter().any(|socket| ours.contains(socket)), "{command} holds a socket of ours");
        seen += 1;
    }
    // A server, a job, and whoever holds each.
    assert!(seen >= 4, "{seen}");
    web.call(&session, 3, "terminate_job", json!({ "job_id": job })).last();

    process.signal(Signal::TERM);
    assert_eq!(told(&manager), "STOPPING=1\nSTATUS=ending: requests in flight get their time\n");
    finish(process, &sandbox);
}

#[test]
fn a_restart_behind_a_socket_costs_neither_clients_nor_jobs() {
    let sandbox = Sandbox::with_jobs();
    let network = on_this_machine();
    let web = Web::at(network.local_addr().expect("an address"));
    let handed = || network.try_clone().expect("one more").into();
    let work = "while [ ! -e go ]; do sleep 0.05; done; echo done";
    configure(&sandbox, &format!("[tools.work]\ncommand = [\"sh\", \"-c\", {work:?}]\nmode = \"job\"\n"));
    let first = manager(&sandbox);
    let mut process = gateway(&sandbox, HAND_OVER, "1", handed(), None);
    told(&first);
    let session = web.begin();
    let started = web.call(&session, 1, "work", json!({})).last();
    let job = started["result"]["structuredContent"]["job_id"].clone();
    let job = job.as_str().unwrap_or_else(|| panic!("a job: {started}"));
    let works = || sandbox.survivors().iter().any(|(_, command)| command.contains("! -e go"));
    wait_until("it works", PATIENCE, works);
    // As `KillMode=process` has it: the signal goes to this process alone.
    process.signal(Signal::TERM);
    assert_eq!(process.exit_code(), 143);
    assert!(works(), "the job goes on");

    // Nobody is there, and the socket is.
    let mut waits = TcpStream::connect(web.address()).expect("a connection");
    waits.set_read_timeout(Some(PATIENCE)).expect("a limit");
    waits.write_all(b"GET /health HTTP/1.0\r\nhost: localhost\r\n\r\n").expect("it is taken");
    let process = gateway(&sandbox, HAND_OVER, "1", handed(), None);
    let mut answer = String::new();
    waits.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
    fs::write(sandbox.path().join("go"), "").expect("a file");
    let session = web.begin();
    let status = |id| {
        let told =
            web.call(&session, id, "get_job_status", json!({ "job_id": job, "wait_seconds": 5 })).last();
        told["result"]["structuredContent"]["status"].clone()
    };
    let mut ids = 1..;
    wait_until("it ends", PATIENCE, || status(ids.next().expect("a number")) == "completed");
    finish(process, &sandbox);
}

#[test]
fn sockets_that_are_missing_or_no_good_are_told() {
    let sandbox = Sandbox::with_jobs();
    configure(&sandbox, "");
    let null = || fs::File::open("/dev/null").expect("it is there").into();
    let everywhere = || TcpListener::bind("0.0.0.0:0").expect("a port");
    let no_pid = HAND_OVER.replace("LISTEN_PID=$$ ", "");
    let other_pid = HAND_OVER.replace("$$", "1");
    let connected = UnixDatagram::unbound().expect("a socket");
    for (line, count, socket, expect) in [
        (HAND_OVER, "0", null(), "systemd handed over no socket; let a socket unit of systemd start unhang"),
        (&no_pid, "1", on_this_machine().into(), "systemd handed over no socket"),
        (&other_pid, "1", on_this_machine().into(), "systemd handed over no socket"),
        (HAND_OVER, "one", on_this_machine().into(), "cannot be used: invalid LISTEN_FDS"),
        (HAND_OVER, "9", on_this_machine().into(), "cannot be used: Bad file descriptor"),
        (HAND_OVER, "1", null(), "socket 1 of those handed over does not listen"),
        (HAND_OVER, "1", UdpSocket::bind("127.0.0.1:0").expect("a port").into(), "does not listen"),
        (HAND_OVER, "1", connected.into(), "does not listen"),
        (HAND_OVER, "1", everywhere().into(), "other machines could use"),
    ] {
        let mut process = gateway(&sandbox, line, count, socket, None);
        assert_eq!(process.exit_code(), 2, "{line} {count}");
        let said = process.stderr_at_the_end();
        assert!(said.contains(expect) && !said.contains("MCP is at"), "{line} {count}: {said}");
    }
    // Where somebody asks who they are, they may come; a manager that is not there changes nothing.
    let socket = everywhere();
    let web = Web::at(([127, 0, 0, 1], socket.local_addr().expect("an address").port()).into());
    configure(&sandbox, "[http]\ntokens = [\"one-0123456789abcdef\"]\n");
    let process = gateway(&sandbox, HAND_OVER, "1", socket.into(), None);
    assert_eq!(web.ask("GET", "/status", &[], "").status, 401);
    finish(process, &sandbox);
    // Whoever listens elsewhere says that they are not used.
    let line = HAND_OVER.replace("systemd", "127.0.0.1:0");
    let process = gateway(&sandbox, &line, "1", on_this_machine().into(), None);
    wait_until("it says so", PATIENCE, || process.stderr().contains("`--http systemd` uses them"));
    wait_until("it listens", PATIENCE, || process.stderr().contains("MCP is at"));
    finish(process, &sandbox);
}

#[test]
fn a_service_manager_that_does_not_read_keeps_nobody_waiting() {
    let sandbox = Sandbox::with_jobs();
    configure(&sandbox, "");
    let manager = manager(&sandbox);
    // Nothing more fits.
    let full = UnixDatagram::unbound().expect("a socket");
    full.connect(sandbox.path().join("manager")).expect("it is there");
    full.set_nonblocking(true).expect("it can be");
    while full.send(b"x").is_ok() {}
    let socket = on_this_machine();
    let web = Web::at(socket.local_addr().expect("an address"));
    let process = gateway(&sandbox, HAND_OVER, "1", socket.into(), None);
    assert_eq!(web.ask("GET", "/health", &[], "").status, 200);
    // Once it reads it is told all the same.
    let mut ready = String::new();
    while !ready.starts_with("READY=1") {
        ready = told(&manager);
    }
    while full.send(b"x").is_ok() {}
    finish(process, &sandbox);
}
