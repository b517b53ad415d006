//! Connections of every kind at one server, in one process.

use axum::routing::get;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Notify,
    task::JoinHandle,
    time::timeout,
};

use super::*;

const PATIENCE: Duration = Duration::from_secs(30);
const LONG: Duration = Duration::from_secs(300);

/// One connection at a time, so that the next one tells when the first has ended.
const ONE: ConnectionLimits = ConnectionLimits { connections: 1, of_one: 100, head: LONG, deaf: LONG };

struct TestServer {
    address: SocketAddr,
    end: watch::Sender<bool>,
    /// Rung when `/slow` is being answered.
    begun: Arc<Notify>,
    serving: JoinHandle<()>,
}

impl TestServer {
    async fn new(bounds: ConnectionLimits) -> TestServer {
        TestServer::speaking(bounds, None).await
    }

    async fn speaking(bounds: ConnectionLimits, tls: Option<Acceptor>) -> TestServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (end, ending) = watch::channel(false);
        let begun = Arc::new(Notify::new());
        let ring = Arc::clone(&begun);
        let slow = || async move {
            ring.notify_one();
            sleep(Duration::from_secs(1)).await;
            "slow"
        };
        let router = Router::new()
            .route("/", get(|| async { "hello" }))
            .route("/slow", get(slow))
            .route("/health", get(|| async { (axum::Extension(UnprovenClient), "well") }))
            .route("/large", get(|| async { vec![b'x'; 64 << 20] }));
        TestServer {
            address,
            end,
            begun,
            serving: tokio::spawn(serve(
                vec![listener.into()],
                router,
                bounds,
                watch::channel(tls).1,
                ending,
            )),
        }
    }

    async fn says(&self, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.expect("a connection");
        stream.write_all(text.as_bytes()).await.expect("it is read");
        stream
    }

    /// A connection on which somebody has had an answer, and which stays.
    async fn heard(&self) -> TcpStream {
        let mut stream = self.says("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        stream.read_exact(&mut [0]).await.expect("an answer");
        stream
    }

    /// Asks on a connection of its own, which ends with the answer.
    async fn asks(&self, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        let mut stream = self.says(&request).await;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        answer
    }
}

#[tokio::test]
async fn there_are_so_many_connections_at_a_time() {
    let server = TestServer::new(ONE).await;
    let first = server.heard().await;
    let mut asking = pin!(server.asks("/"));
    assert!(timeout(Duration::from_millis(300), asking.as_mut()).await.is_err());
    drop(first);
    let answer = timeout(PATIENCE, asking).await.expect("there is room");
    assert!(answer.ends_with("hello"), "{answer}");
}

#[tokio::test]
async fn who_is_slow_with_a_head_is_let_go() {
    // Where there is no room, a silent connection goes for that reason.
    let server =
        TestServer::new(ConnectionLimits { head: Duration::from_millis(200), connections: 10, ..ONE }).await;
    let mut half = server.says("GET / HTT").await;
    // Hyper has a limit of its own, of 30 s.
    let ended = timeout(PATIENCE / 2, half.read_to_end(&mut Vec::new())).await;
    let _closed_or_reset = ended.expect("it ends");
    let answer = timeout(PATIENCE, server.asks("/")).await.expect("there is room");
    assert!(answer.ends_with("hello"), "{answer}");
}

#[tokio::test]
async fn a_head_has_its_limit_however_it_comes() {
    let server = TestServer::new(ConnectionLimits { connections: 10, ..ONE }).await;
    for (target, length, is_taken) in [
        ("/", READ_AHEAD, true),
        ("/", READ_AHEAD + 1, false),
        ("/", 110_000, false),
        ("http://x/", READ_AHEAD, true),
        ("http://x/", READ_AHEAD + 1, false),
    ] {
        let (begin, end) = (format!("GET {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"), "\r\n\r\n");
        let names = ["x-one: ", "\r\nx-two: "];
        let rest = length - begin.len() - end.len() - names.concat().len();
        let (one, two) = ("a".repeat(rest / 2), "b".repeat(rest - rest / 2));
        let head = [begin.as_str(), names[0], &one, names[1], &two, end].concat();
        assert_eq!(head.len(), length);
        let mut stream = server.says(&head).await;
        let mut answer = Vec::new();
        let read = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("it ends");
        let answer = String::from_utf8_lossy(&answer);
        let status = if is_taken { "HTTP/1.1 200" } else { "HTTP/1.1 431" };
        assert!(answer.starts_with(status), "{target} {length}: {read:?} {answer}");
    }
}

#[tokio::test]
async fn of_one_address_there_are_so_many_connections() {
    let server = TestServer::new(ConnectionLimits { connections: 10, of_one: 1, ..ONE }).await;
    let first = server.heard().await;
    let mut second = server.says("").await;
    // It ends at once and keeps nobody waiting.
    let read = timeout(PATIENCE, second.read(&mut [0])).await.expect("it ends");
    assert_eq!(read.expect("its end"), 0);
    drop(first);
    let again = async {
        let mut answer = String::new();
        while !answer.ends_with("hello") {
            let mut stream = server.says("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
            let _until_the_first_is_gone = stream.read_to_string(&mut answer).await;
        }
    };
    timeout(PATIENCE, again).await.expect("the place is free");
}

#[tokio::test]
async fn f_31_whoever_asks_for_nothing_makes_room_for_those_who_do() {
    // Of one address, and of all together.
    for bounds in [
        ConnectionLimits { connections: 100, of_one: 3, ..ONE },
        ConnectionLimits { connections: 3, of_one: 100, ..ONE },
    ] {
        let server = TestServer::new(bounds).await;
        let heard = server.heard().await;
        let mut silent = Vec::new();
        for _ in 0..2 {
            silent.push(server.says("").await);
        }
        // Longer than those who have only just been accepted by then may be silent.
        sleep(SILENCE * 2).await;
        let answer = timeout(PATIENCE, server.asks("/")).await.expect("there is room");
        assert!(answer.ends_with("hello"), "{answer}");
        // The first has gone, and whoever has asked before has not.
        let read = timeout(PATIENCE, silent[0].read(&mut [0])).await.expect("it has ended");
        assert_eq!(read.expect("its end"), 0);
        let mut heard = heard;
        heard.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.expect("it is read");
        let mut rest = String::new();
        timeout(PATIENCE, heard.read_to_string(&mut rest)).await.expect("in time").expect("an answer");
        assert!(rest.ends_with("hello"), "{rest}");
    }
}

#[tokio::test]
async fn f_31_whoever_has_shown_no_token_makes_room_however_often_they_ask() {
    for bounds in [
        ConnectionLimits { connections: 100, of_one: 3, ..ONE },
        ConnectionLimits { connections: 3, of_one: 100, ..ONE },
    ] {
        let server = TestServer::new(bounds).await;
        let mut heard = server.heard().await;
        // Has shown a token, and asks for what needs none since.
        heard.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("it is read");
        let mut connections = Vec::new();
        for _ in 0..2 {
            let mut connection = server.says("").await;
            connections.push(tokio::spawn(async move {
                let mut answer = [0; 512];
                loop {
                    let sent = connection.write_all(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n").await;
                    if sent.is_err() || !matches!(connection.read(&mut answer).await, Ok(1..)) {
                        return;
                    }
                    sleep(SILENCE / 8).await;
                }
            }));
        }
        sleep(SILENCE * 2).await;
        // Room for the next one is made in advance, and a place of one address where one more comes.
        let has_made_room = connections.iter().any(JoinHandle::is_finished);
        assert_eq!(has_made_room, bounds.connections == 3);
        let answer = timeout(PATIENCE, server.asks("/")).await.expect("there is room");
        assert!(answer.ends_with("hello"), "{answer}");
        // The first has gone with an answer to all that it asked.
        timeout(PATIENCE, connections.remove(0)).await.expect("it has ended").expect("it does not panic");
        heard.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.expect("it is read");
        let mut rest = String::new();
        timeout(PATIENCE, heard.read_to_string(&mut rest)).await.expect("in time").expect("an answer");
        assert!(rest.ends_with("hello"), "{rest}");
        connections.iter().for_each(JoinHandle::abort);
    }
}

#[tokio::test]
async fn who_is_slow_with_the_handshake_is_let_go() {
    let certificate = include_bytes!("../../../cli/tests/certificates/server.pem");
    let key = include_bytes!("../../../cli/tests/certificates/server.key");
    let tls = Acceptor::new(certificate, key).expect("they fit");
    let server = TestServer::speaking(
        ConnectionLimits { connections: 2, head: Duration::from_millis(200), ..ONE },
        Some(tls),
    )
    .await;
    // One that says nothing, one that stops in the middle, and one that says something else.
    for words in ["", "\x16\x03\x01", "GET / HTTP/1.1\r\nhost: x\r\n\r\n"] {
        let mut stream = server.says(words).await;
        let ended = timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await;
        let _closed_or_reset = ended.expect("it ends");
    }
}

#[tokio::test]
async fn who_does_not_read_is_let_go() {
    let server = TestServer::new(ConnectionLimits { deaf: Duration::from_millis(500), ..ONE }).await;
    let _deaf = server.says("GET /large HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let answer = timeout(PATIENCE, server.asks("/")).await.expect("there is room");
    assert!(answer.ends_with("hello"), "{answer}");
}

#[tokio::test]
async fn f_34_who_does_not_read_from_a_socket_among_the_files_is_let_go() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.sock");
    let listener = HttpListener::Local(UnixListener::bind(&path).expect("a socket"), None);
    let router = Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/large", get(|| async { vec![b'x'; 64 << 20] }));
    let (_end, ending) = watch::channel(false);
    let bounds = ConnectionLimits { deaf: Duration::from_millis(500), ..ONE };
    let serving = tokio::spawn(serve(vec![listener], router, bounds, watch::channel(None).1, ending));
    let says = async |path: &std::path::Path, text: &str| {
        let mut stream = UnixStream::connect(path).await.expect("it listens");
        stream.write_all(text.as_bytes()).await.expect("it is read");
        stream
    };
    let _deaf = says(&path, "GET /large HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let mut other = says(&path, "GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let mut answer = String::new();
    let read = timeout(PATIENCE, other.read_to_string(&mut answer)).await.expect("there is room");
    assert!(read.is_ok() && answer.ends_with("hello"), "{answer}");
    serving.abort();
}

#[test]
fn f_23_only_our_own_user_comes_to_a_socket_among_the_files() {
    let local = |user| PeerAddress::Local { process: Some(1), user };
    assert!(may_come(local(Some(7)), 7));
    assert!(!may_come(local(Some(8)), 7));
    assert!(!may_come(local(Some(0)), 7));
    assert!(!may_come(local(None), 7), "the system does not tell");
}

#[tokio::test]
async fn the_end_waits_for_answers_and_for_nothing_else() {
    let server = TestServer::new(ConnectionLimits { connections: 3, ..ONE }).await;
    let _idle = server.says("").await;
    let mut used = server.says("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let mut byte = [0];
    used.read_exact(&mut byte).await.expect("an answer");
    let mut slow = server.says("GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    server.begun.notified().await;
    server.end.send_replace(true);
    let mut answer = Vec::new();
    slow.read_to_end(&mut answer).await.expect("an answer");
    assert!(answer.ends_with(b"slow"), "{}", String::from_utf8_lossy(&answer));
    timeout(PATIENCE, server.serving).await.expect("it ends").expect("it does not panic");
    assert!(TcpStream::connect(server.address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn who_came_to_a_socket_before_the_end_is_heard_and_nobody_after() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.sock");
    let listener = UnixListener::bind(&path).expect("a socket");
    let mut stream = UnixStream::connect(&path).await.expect("it listens");
    let (claim, mut claimed) = tokio::sync::oneshot::channel::<()>();
    let router = Router::new().route("/", get(|| async { "hello" }));
    let ending = watch::Sender::new(true).subscribe();
    let listeners = vec![HttpListener::Local(listener, Some(Box::new(claim)))];
    let serving = serve(listeners, router, ONE, watch::channel(None).1, ending);
    let talking = async {
        // Nobody else can come by now.
        assert!(timeout(PATIENCE, &mut claimed).await.expect("it is dropped").is_err());
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("it is read");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer, and its end");
        answer
    };
    let ((), answer) = tokio::join!(serving, talking);
    assert!(answer.ends_with("hello"), "{answer}");
    assert!(UnixStream::connect(&path).await.is_err());
}
