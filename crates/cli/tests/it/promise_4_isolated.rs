//! Promise 4: no process inherits the protocol's stdin or stdout, and what we share with the client stays as it was.
//!
//! stdin and stdout are tried in every form in which clients hand them over: pipes, the socket pairs of Node, files, the
//! null device, a terminal.

use std::{
    fs::{self, File, OpenOptions},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    process::{Command, Stdio},
};

use rustix::{
    fs::{OFlags, fcntl_getfl},
    pipe::{PipeFlags, pipe_with},
};
use serde_json::{Value, json};

use crate::{
    harness::{Client, PATIENCE, Sandbox, lab_program, server_pid, wait_until},
    processes::{children, descriptors, holds, identity, lifeline},
    terminal::terminal,
};

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#;
const ECHO: &str =
    r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"}}}"#;

fn guard_of(sandbox: &Sandbox, faulty_server: &[&str]) -> Command {
    let mut command = sandbox.unhang();
    command.args(["wrap", "--", lab_program(), "zoo"]).args(faulty_server);
    command
}

/// A pipe whose both ends are closed in children unless they are handed over.
fn pipe() -> (OwnedFd, OwnedFd) {
    pipe_with(PipeFlags::CLOEXEC).expect("a pipe")
}

/// A descriptor of the same open file description, as the client keeps one.
fn shared(descriptor: &impl AsFd) -> OwnedFd {
    descriptor.as_fd().try_clone_to_owned().expect("a duplicate")
}

fn flags(descriptor: &OwnedFd) -> OFlags {
    fcntl_getfl(descriptor).expect("flags")
}

/// A client's end of a stream and the one that it hands over.
type Pair = (OwnedFd, OwnedFd);

/// The two kinds of stream that are used directly, without a thread of ours.
const KINDS: &[fn() -> [Pair; 2]] = &[
    || {
        let ((stdin, writer), (reader, stdout)) = (pipe(), pipe());
        [(writer, stdin), (reader, stdout)]
    },
    || {
        [(); 2]
            .map(|()| UnixStream::pair().map(|(ours, theirs)| (ours.into(), theirs.into())).expect("sockets"))
    },
];

#[test]
fn g_07_nobody_but_the_guard_holds_the_clients_streams() {
    for (faulty_server, leaves) in
        [("leaves-grandchild", 1), ("leaves-daemon-empty-env", 1), ("leaves-three-sessions", 3)]
    {
        for kind in KINDS {
            let sandbox = Sandbox::new();
            let [(writer, stdin), (reader, stdout)] = kind();
            let protocol = [identity(&stdin), identity(&stdout)];
            let command = guard_of(&sandbox, &[faulty_server, "--marker", sandbox.marker()]);
            let client = Client::start_on(command, stdin.into(), stdout.into(), File::from(writer));
            let mut client = client.reading(File::from(reader));
            client.initialize();
            wait_until("everybody is there", PATIENCE, || sandbox.survivors().len() >= 3 + leaves);
            let open = descriptors(client.pid());
            for end in &protocol {
                assert!(holds(client.pid(), end), "the guard itself has the client's streams: {open:?}");
            }
            for (pid, command) in sandbox.survivors().into_iter().filter(|(pid, _)| *pid != client.pid()) {
                for end in &protocol {
                    assert!(!holds(pid, end), "{command} holds {end}: {:?}", descriptors(pid));
                }
            }
            client.finish();
        }
    }
}

/// What is left at the numbers 0 and 1 is the null device, so that neither a print nor a child can reach the wire (G-22).
#[test]
fn g_22_the_guards_own_stdin_and_stdout_are_the_null_device() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.initialize();
    let open = descriptors(client.pid());
    for number in [0, 1] {
        assert!(open.contains(&(number, "/dev/null".to_owned())), "{open:?}");
    }
    client.finish();
}

/// A copy of a server's pipe in a third process would keep its end-of-file from coming.
#[test]
fn the_lifeline_holds_no_pipe_of_the_server() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.initialize();
    let lifeline = lifeline(&client);
    let server = server_pid(&mut client);
    wait_until("the lifeline has let go", PATIENCE, || {
        let own = descriptors(lifeline);
        (0..3).all(|number| own.contains(&(number, "/dev/null".to_owned())))
    });
    for (number, pipe) in descriptors(server).into_iter().filter(|(number, _)| *number < 3) {
        assert!(pipe.starts_with("pipe:"), "stream {number} of the server is {pipe}");
        assert!(!holds(lifeline, &pipe), "the lifeline holds stream {number} of the server");
        assert!(holds(client.pid(), &pipe), "the guard has the other end of {number}");
    }
    client.finish();
}

/// A session over descriptors that the test shares with the guard, as a client does.
#[track_caller]
fn leaves_flags_alone(what: &str, stdin: OwnedFd, stdout: OwnedFd, writer: OwnedFd, reader: OwnedFd) {
    let sandbox = Sandbox::new();
    let ours = [shared(&stdin), shared(&stdout)];
    let before = ours.each_ref().map(flags);
    let command = guard_of(&sandbox, &["well-behaved"]);
    let mut client = Client::start_on(command, stdin.into(), stdout.into(), File::from(writer))
        .reading(File::from(reader));
    client.initialize();
    assert_eq!(client.tool_text("echo", json!({"text": "hello"})), "hello", "{what}");
    // More than any of the buffers between holds.
    assert_eq!(client.tool_text("big", json!({"bytes": 300_000})).len(), 300_000, "{what}");
    assert_eq!(
        ours.each_ref().map(flags),
        before,
        "{what}: the guard changed what it shares with its client"
    );
    assert!(
        !before.iter().any(|flags| flags.contains(OFlags::NONBLOCK)),
        "{what}: the test is about blocking ones"
    );
    client.finish();
    assert_eq!(ours.each_ref().map(flags), before, "{what}: changed at the end");
}

#[test]
fn pipes_stay_as_they_were() {
    let ((stdin, writer), (reader, stdout)) = (pipe(), pipe());
    leaves_flags_alone("pipes", stdin, stdout, writer, reader);
}

/// Node hands its children socket pairs.
#[test]
fn socket_pairs_stay_as_they_were() {
    let (stdin, writer) = UnixStream::pair().expect("sockets");
    let (reader, stdout) = UnixStream::pair().expect("sockets");
    leaves_flags_alone("socket pairs", stdin.into(), stdout.into(), writer.into(), reader.into());
}

/// Node's default: the description itself may already be non-blocking, which is the client's business as well.
#[test]
fn sockets_that_are_non_blocking_work_too() {
    let sandbox = Sandbox::new();
    let (stdin, writer) = UnixStream::pair().expect("sockets");
    let (reader, stdout) = UnixStream::pair().expect("sockets");
    for socket in [&stdin, &stdout] {
        socket.set_nonblocking(true).expect("a flag");
    }
    let (stdin, stdout) = (OwnedFd::from(stdin), OwnedFd::from(stdout));
    let mut client =
        Client::start_on(guard_of(&sandbox, &["well-behaved"]), stdin.into(), stdout.into(), writer)
            .reading(reader);
    client.initialize();
    assert_eq!(client.tool_text("big", json!({"bytes": 1_000_000})).len(), 1_000_000);
    client.finish();
}

/// A terminal for both, as when somebody tries the command by hand. What is typed comes back as an echo, which is a request
/// and no answer.
#[test]
fn a_terminal_stays_as_it_was() {
    let sandbox = Sandbox::new();
    let (master, terminal) = terminal();
    let before = flags(&terminal);
    let (stdin, stdout) = (shared(&terminal), shared(&terminal));
    let command = guard_of(&sandbox, &["well-behaved"]);
    let writer = File::from(shared(&master));
    let mut client =
        Client::start_on(command, stdin.into(), stdout.into(), writer).reading(File::from(master));
    client.initialize();
    assert_eq!(client.tool_text("echo", json!({"text": "hello"})), "hello");
    assert_eq!(flags(&terminal), before);
    assert!(!before.contains(OFlags::NONBLOCK));
    // Ctrl+D at the beginning of a line.
    client.write(b"\x04").expect("the terminal is open");
    assert_eq!(client.exit_code(), 0, "{}", client.stderr());
}

/// Everything in a file, and the answers into another: `unhang wrap -- server < requests > answers`.
fn from_file_to_file(sandbox: &Sandbox, requests: &Path, answers: &Path) -> Vec<Value> {
    let input = File::open(requests).expect("the requests");
    let output = OpenOptions::new().create(true).append(true).open(answers).expect("the answers");
    let kept = [
        OwnedFd::from(input.try_clone().expect("a duplicate")),
        output.try_clone().expect("a duplicate").into(),
    ];
    let before = kept.each_ref().map(flags);
    let nobody = std::io::sink();
    let mut client =
        Client::start_on(guard_of(sandbox, &["well-behaved"]), input.into(), output.into(), nobody);
    assert_eq!(client.exit_code(), 0, "{}", client.stderr());
    assert_eq!(kept.each_ref().map(flags), before);
    let text = fs::read_to_string(answers).expect("text");
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

#[test]
fn a_file_for_stdin_and_one_for_stdout() {
    let sandbox = Sandbox::new();
    let (requests, answers) = (sandbox.path().join("requests"), sandbox.path().join("answers"));
    fs::write(&requests, format!("{INITIALIZE}\n{ECHO}\n")).expect("a file");
    let messages = from_file_to_file(&sandbox, &requests, &answers);
    assert_eq!(messages.iter().map(|message| &message["id"]).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(messages[1]["result"]["content"][0]["text"], "hello");
}

#[test]
fn the_null_device_for_stdin_ends_the_session() {
    let sandbox = Sandbox::new();
    let answers = sandbox.path().join("answers");
    assert_eq!(from_file_to_file(&sandbox, Path::new("/dev/null"), &answers), [] as [Value; 0]);
}

/// A program that cannot get at the protocol by itself must not get at it through a child either.
#[test]
fn g_07_what_the_servers_children_print_never_reaches_the_wire() {
    let sandbox = Sandbox::new();
    let script = sandbox.path().join("prints.sh");
    // The child prints on the stdout that it inherited, and reads its stdin, while the server itself is `well-behaved`.
    let text = format!(
        "#!/bin/sh\n(echo stray from a child; echo also on the error stream >&2) &\nexec {} zoo well-behaved\n",
        lab_program()
    );
    fs::write(&script, text).expect("a script");
    let mut command = sandbox.unhang();
    command.args(["wrap", "--", "sh"]).arg(&script);
    let mut client = Client::start(command);
    // The client takes nothing but whole messages, so a stray line would fail here.
    client.initialize();
    wait_until("the stray line is shown instead", PATIENCE, || {
        client.stderr().contains("stray from a child")
    });
    assert_eq!(client.tool_text("echo", json!({"text": "hello"})), "hello");
    client.finish();
}

/// One inherited descriptor too many is how grandchildren hold ports and locks for ever. What whoever started the test left
/// open for all its children is handed on, as it would be without a guard.
#[test]
fn g_11_nothing_of_ours_is_inherited_by_the_server() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.initialize();
    let handed_on = descriptors(own_pid());
    let open: Vec<_> =
        descriptors(server_pid(&mut client)).into_iter().filter(|open| !handed_on.contains(open)).collect();
    assert_eq!(open.len(), 3, "{open:?}");
    assert!(open.iter().all(|(number, what)| *number < 3 && what.starts_with("pipe:")), "{open:?}");
    client.finish();
}

fn own_pid() -> i32 {
    i32::try_from(std::process::id()).expect("a pid")
}

/// A server that inherits a blocked or ignored signal cannot be stopped politely, and a Python one that ignores SIGPIPE writes
/// to nobody for ever.
#[test]
fn the_server_starts_with_every_signal_at_its_default() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.unhang();
    command.args(["wrap", "--", "sleep", "120"]);
    let mut client = Client::start(command);
    let lifeline = lifeline(&client);
    let mut status = String::new();
    wait_until("the server runs", PATIENCE, || {
        let server = children(lifeline).into_iter().find(|child| child.name == "sleep");
        status = server
            .and_then(|server| fs::read_to_string(format!("/proc/{}/status", server.pid)).ok())
            .unwrap_or_default();
        !status.is_empty()
    });
    for name in ["SigBlk:", "SigIgn:"] {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a mask");
        let mask = u64::from_str_radix(line.trim(), 16).expect("a mask");
        // Signals 32 and 33 belong to the C library, whose `posix_spawn` leaves them ignored in what the test itself starts.
        assert_eq!(mask & !(0b11 << 31), 0, "{name} {line}");
    }
    client.finish();
}

/// Both streams of the client as one and the same socket, as some launchers do.
#[test]
fn one_socket_for_both_directions() {
    let sandbox = Sandbox::new();
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    let before = fcntl_getfl(&theirs).expect("flags");
    let kept = shared(&theirs);
    let stdin: OwnedFd = theirs.into();
    let stdout = shared(&stdin);
    let (writer, reader) = (ours.try_clone().expect("a duplicate"), ours.try_clone().expect("a duplicate"));
    let mut client = Client::start_on(
        guard_of(&sandbox, &["well-behaved"]),
        Stdio::from(stdin),
        Stdio::from(stdout),
        writer,
    )
    .reading(reader);
    client.initialize();
    assert_eq!(client.tool_text("big", json!({"bytes": 1_000_000})).len(), 1_000_000);
    assert_eq!(flags(&kept), before);
    drop(kept);
    // Half-closed: the client writes no more but still reads the answer to its last request.
    let id = client.call("sleep", json!({"ms": 300}));
    ours.shutdown(std::net::Shutdown::Write).expect("our direction");
    assert_eq!(client.answer(id)["result"]["content"][0]["text"], "slept 300 ms");
    assert_eq!(client.exit_code(), 0, "{}", client.stderr());
}
