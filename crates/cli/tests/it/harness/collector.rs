//! A collector that takes traces over OTLP, or hangs.
//!
//! Invariants: it ends with its value; what came is there to be looked at.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest, common::v1::any_value::Value, trace::v1::Span,
};
use prost::Message;

/// A collector on this machine.
pub(crate) struct Collector {
    address: String,
    posts: Arc<Mutex<Vec<(String, ExportTraceServiceRequest)>>>,
    ends: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Collector {
    /// One that takes everything, or takes connections and never answers.
    pub(crate) fn start(answers: bool) -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let (posts, ends) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<AtomicBool>::default());
        let (told, over) = (Arc::clone(&posts), Arc::clone(&ends));
        let accepting = thread::spawn(move || {
            let mut kept = Vec::new();
            for stream in listener.incoming().map_while(Result::ok) {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                match answers {
                    true => take(stream, &told),
                    false => kept.push(stream),
                }
            }
        });
        Collector { address, posts, ends, accepting: Some(accepting) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The heads of all posts.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.posts.lock().expect("no panic").iter().map(|(head, _)| head.clone()).collect()
    }

    /// What it was told, in its order.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let posts = self.posts.lock().expect("no panic");
        let resources = posts.iter().flat_map(|(_, post)| &post.resource_spans);
        resources.flat_map(|resource| &resource.scope_spans).flat_map(|scope| scope.spans.clone()).collect()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // It wakes up.
        let _woken = TcpStream::connect(&self.address);
        let ended = self.accepting.take().map(JoinHandle::join);
        assert!(thread::panicking() || ended.is_some_and(|ended| ended.is_ok()));
    }
}

/// Takes one post, and closes the connection.
fn take(stream: TcpStream, posts: &Mutex<Vec<(String, ExportTraceServiceRequest)>>) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).expect("a head") == 0 {
            return;
        }
    }
    let head = head.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.expect("a length")];
    reader.read_exact(&mut body).expect("a body");
    let post = ExportTraceServiceRequest::decode(&*body).expect("a message");
    posts.lock().expect("no panic").push((head, post));
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    reader.get_mut().write_all(answer).expect("it listens");
}

/// What a span says of itself under this key.
pub(crate) fn noted(span: &Span, key: &str) -> Option<String> {
    let value = span.attributes.iter().find(|attribute| attribute.key == key)?.value.clone()?.value?;
    match value {
        Value::StringValue(text) => Some(text),
        other => panic!("no text: {other:?}"),
    }
}
