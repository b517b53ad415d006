//! An object store for one test: moto, which answers as S3 does, on a free port of loopback, with everything in memory.
//!
//! # Invariants
//!
//! - The server ends with the value that stands for it, and with this process, however that ends.
//! - Nothing is written to the disk.

use std::io::{self, Error, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use unhang_demo_servers::bounded_waits;
use unhang_demo_servers::child_processes::{ChildStreams, start_with, wait};

/// The time that the server may take to start. Python takes seconds on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(60);
/// The time that an answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);

/// A running object store.
#[derive(Debug)]
pub struct PrivateMoto {
    address: SocketAddr,
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Whom the store lets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MotoAccess {
    /// Everybody, whatever the key.
    Everybody,
    /// Nobody but for the first request, which may make a bucket: it knows no key.
    NobodyAfterTheFirst,
}

impl PrivateMoto {
    /// Starts the program `moto_server` at this path, and waits until it takes connections.
    ///
    /// # Errors
    /// Fails if the program cannot be started, or takes no connection in time.
    pub fn start(program: &Path, access: MotoAccess) -> io::Result<Self> {
        let address = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
        let (stop, is_stopped): (SyncSender<()>, Receiver<()>) = sync_channel(1);
        let (started, is_started) = sync_channel(1);
        let words = words(program, address, access);
        // The kernel kills the server when the thread that started it ends, so this thread only waits.
        let thread = thread::spawn(move || {
            let child = start(&words);
            started.send(child.as_ref().map(drop).map_err(Error::kind)).ok();
            if let Ok(mut child) = child {
                is_stopped.recv().ok();
                child.kill().and_then(|()| wait(&mut child)).ok();
            }
        });
        let server = Self { address, stop: Some(stop), thread: Some(thread) };
        is_started.recv().map_err(Error::other)?.map_err(Error::from)?;
        let end = bounded_waits::now() + START_LIMIT;
        while TcpStream::connect(address).is_err() {
            if bounded_waits::now() > end {
                return Err(Error::new(io::ErrorKind::TimedOut, "moto takes no connections"));
            }
            // Between two looks: nobody tells when the server listens.
            bounded_waits::pause(LOOK);
        }
        Ok(server)
    }

    /// Returns the endpoint of the store.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sends a request without a signature, such as `PUT /bucket`. Returns the whole answer.
    ///
    /// # Errors
    /// Fails if the server does not answer with a code of success.
    pub fn ask(&self, method: &str, path: &str, body: &[u8]) -> io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        // Buckets that this makes are for everybody, so that a test can look into them.
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\nx-amz-acl: public-read-write\r\n\
             Connection: close\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        if answer.starts_with(b"HTTP/1.1 2") {
            return Ok(answer);
        }
        Err(Error::other(String::from_utf8_lossy(&answer).into_owned()))
    }

    /// Returns the keys of all objects in a bucket.
    ///
    /// # Errors
    /// Fails if the server does not answer as a store does.
    pub fn keys(&self, bucket: &str) -> io::Result<Vec<String>> {
        let answer = self.ask("GET", &format!("/{bucket}?list-type=2"), b"")?;
        let text = String::from_utf8_lossy(&answer);
        let keys = text.split("<Key>").skip(1).filter_map(|rest| rest.split_once("</Key>"));
        Ok(keys.map(|(key, _)| key.to_owned()).collect())
    }

    /// Ends the server. Its objects are gone.
    pub fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            stop.send(()).ok();
        }
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

impl Drop for PrivateMoto {
    fn drop(&mut self) {
        self.stop();
    }
}

fn words(program: &Path, address: SocketAddr, access: MotoAccess) -> Vec<String> {
    let mut words = vec!["--pdeathsig".to_owned(), "KILL".to_owned()];
    if access == MotoAccess::NobodyAfterTheFirst {
        words.extend(["env".to_owned(), "INITIAL_NO_AUTH_ACTION_COUNT=1".to_owned()]);
    }
    words.push(program.display().to_string());
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    words.extend(["-H".to_owned(), host, "-p".to_owned(), port]);
    words
}

fn start(words: &[String]) -> io::Result<Child> {
    let streams = ChildStreams { stdin: Stdio::null(), stdout: Stdio::null(), stderr: Stdio::null() };
    start_with("setpriv", words, streams, true)
}
