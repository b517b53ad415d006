//! A small HTTP/1.1 server on loopback, for the faulty servers that speak MCP over HTTP.
//!
//! Its URL is the first line on stdout. Each line after that says, as JSON, what reached it: a connection (`connected`), a request
//! (`asked`), a stream that the client closed (`closed`).
//!
//! # Invariants
//!
//! - It ends when its stdin ends, whatever its connections do.
//! - A thread for each connection, at most [`CONNECTIONS`] at the same time; what it reads of a request is bounded.
//! - It listens on loopback alone, at a port that the system chooses.

pub(crate) mod modern;
pub(crate) mod old;
pub(crate) mod sessions;
pub(crate) mod wire;

use std::io::{self, BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::{Map, Value, json};
use unhang_demo_servers::pipe::{self, ClientMessage};

use wire::Wire;

/// More than any test opens at the same time.
const CONNECTIONS: usize = 1500;
/// More than any test sends.
const LONGEST_BODY: usize = 128 << 20;
const LONGEST_HEAD: u64 = 256 << 10;
/// Threads do little; a thousand of them shall need no memory to speak of.
const STACK: usize = 256 << 10;

/// The headers that are logged.
const LOGGED: [&str; 7] = [
    "authorization",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "user-agent",
];

/// A request.
pub(crate) struct WebRequest {
    pub(crate) verb: String,
    pub(crate) path: String,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The message in it; a JSON null where there is none.
    pub(crate) message: ClientMessage,
}

impl WebRequest {
    /// Returns a header by its name in small letters.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn is_post(&self) -> bool {
        self.verb == "POST"
    }

    /// Whether it opens a stream, or takes one up again.
    pub(crate) fn is_get(&self) -> bool {
        self.verb == "GET"
    }

    /// Reads the next request of a connection; `None` when it has ended.
    fn read(reader: &mut BufReader<TcpStream>) -> io::Result<Option<Self>> {
        let line = |reader: &mut BufReader<TcpStream>| -> io::Result<String> {
            let mut line = String::new();
            reader.take(LONGEST_HEAD).read_line(&mut line)?;
            Ok(line.trim_end().to_owned())
        };
        let first = line(reader)?;
        let mut words = first.split(' ').map(str::to_owned);
        let (Some(verb), Some(path)) = (words.next(), words.next()) else { return Ok(None) };
        let mut headers = Vec::new();
        loop {
            let line = line(reader)?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let length = headers.iter().find(|(name, _)| name == "content-length");
        let length = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0).min(LONGEST_BODY);
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let message = ClientMessage::parse(&body).unwrap_or_else(ClientMessage::none);
        Ok(Some(Self { verb, path, headers, body, message }))
    }

    fn log(&self, connection: usize) -> Value {
        let logged = LOGGED.iter().filter_map(|name| Some(((*name).to_owned(), json!(self.header(name)?))));
        let mirrored = self.headers.iter().filter(|(name, _)| name.starts_with("mcp-param-"));
        let mirrored = mirrored.map(|(name, value)| (name.clone(), json!(value)));
        let headers: Map<String, Value> = logged.chain(mirrored).collect();
        json!({
            "did": "asked", "connection": connection, "verb": self.verb, "path": self.path, "rpc": self.message.method(),
            "id": self.message.id(), "tool": self.message.tool(), "params": self.message.params(), "headers": headers,
        })
    }
}

/// What became of a request.
pub(crate) enum Then {
    /// It was answered; the connection serves on.
    Next,
    /// The connection is closed.
    HangUp,
}

/// Deals with one request.
pub(crate) type RequestHandler = dyn Fn(&WebRequest, &mut Wire) -> io::Result<Then> + Send + Sync;

/// Serves until stdin ends, and says where: the URL with this path.
pub(crate) fn serve(
    path: &str,
    site: impl Fn(&WebRequest, &mut Wire) -> io::Result<Then> + Send + Sync + 'static,
) -> io::Result<ExitCode> {
    let url = listen(path, true, Arc::new(site))?;
    pipe::send_line(&url)?;
    pipe::drain()?;
    Ok(ExitCode::SUCCESS)
}

/// Listens, and returns the URL with this path. Not `is_reading`, it accepts connections and reads nothing from them.
pub(crate) fn listen(path: &str, is_reading: bool, site: Arc<RequestHandler>) -> io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}{path}", listener.local_addr()?);
    let open = Arc::new(AtomicUsize::new(0));
    spawn(move || {
        let mut kept = Vec::new();
        for (number, stream) in listener.incoming().flatten().enumerate() {
            log(&json!({"did": "connected", "connection": number}));
            if !is_reading {
                kept.push(stream);
                kept.truncate(CONNECTIONS);
            } else if open.fetch_add(1, Ordering::SeqCst) < CONNECTIONS {
                let (site, open) = (Arc::clone(&site), Arc::clone(&open));
                spawn(move || {
                    // A connection that breaks is an everyday thing.
                    let _ended = connection(number, stream, &*site);
                    open.fetch_sub(1, Ordering::SeqCst);
                });
            } else {
                open.fetch_sub(1, Ordering::SeqCst);
            }
        }
    });
    Ok(url)
}

/// Runs work on a thread of its own; where none can be had, it is left undone.
fn spawn(work: impl FnOnce() + Send + 'static) {
    let _started = thread::Builder::new().stack_size(STACK).spawn(work);
}

/// Tells what has happened; whoever does not listen is not told.
pub(crate) fn log(event: &Value) {
    let _unread = pipe::send(event);
}

fn connection(number: usize, stream: TcpStream, site: &RequestHandler) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut wire = Wire::new(stream);
    while let Some(asked) = WebRequest::read(&mut reader)? {
        log(&asked.log(number));
        let then = site(&asked, &mut wire);
        if wire.is_closed_by_client() {
            log(
                &json!({"did": "closed", "connection": number, "verb": asked.verb, "rpc": asked.message.method(), "id": asked.message.id()}),
            );
        }
        match then? {
            Then::Next => wire.answered()?,
            Then::HangUp => break,
        }
    }
    wire.hang_up();
    Ok(())
}
