//! The demonstration's client: as plain as possible, with a deadline so that it can report a hang.

use std::{
    ffi::OsString,
    io::{self, IoSlice},
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};
use unhang::{
    config::{STOP_GRACE, STOP_LIMIT},
    process::{
        deadline::Deadline,
        lifeline,
        server::{ErrorPipe, LifelineCommand, Server, ServerEvent, ServerSpec},
        spawn::Environment,
    },
};

use super::home::mark;

/// The outcome of a wait for an answer.
#[derive(Debug)]
pub(crate) enum PeerOutcome {
    /// The answer, and the time that it took.
    Answer(Value, Duration),
    /// Silence until the deadline.
    Silence,
    /// The end of the stream, closed by the other side.
    Ended,
}

/// The variable that carries the mark to all processes.
const MARK: &str = "UNHANG_DEMO_MARK";

/// The number of bytes that are read at once.
const CHUNK: usize = 64 << 10;

/// A connection to a server, bare or guarded.
pub(crate) struct DemoPeer {
    server: Server,
    /// The server's stderr, open but never read: this is how the clients behave whose servers hang on it.
    _errors: ErrorPipe,
    received: Vec<u8>,
    next_id: u64,
    /// The number of lines on the wire that were not JSON-RPC.
    pub(crate) noise: usize,
}

/// Converts the words of a command line.
fn words(list: &[&str]) -> Vec<OsString> {
    list.iter().map(OsString::from).collect()
}

impl DemoPeer {
    /// Connects to `unhang WORDS…`.
    pub(crate) fn start(arguments: &[&str]) -> io::Result<DemoPeer> {
        DemoPeer::launch(arguments, std::env::vars_os(), None)
    }

    /// Connects to `unhang WORDS…` in a folder that also is the data folder.
    pub(crate) fn start_in(home: &Path, arguments: &[&str]) -> io::Result<DemoPeer> {
        let others = std::env::vars_os().filter(|(name, _)| name != "UNHANG_HOME");
        DemoPeer::launch(
            arguments,
            others.chain([("UNHANG_HOME".into(), home.into())]),
            Some(home.to_owned()),
        )
    }

    /// Starts the server with these variables and the mark. Its lifeline has the mark too, and ends after everything that it holds.
    fn launch(
        arguments: &[&str],
        variables: impl Iterator<Item = (OsString, OsString)>,
        folder: Option<PathBuf>,
    ) -> io::Result<DemoPeer> {
        let environment = Environment::Exactly(variables.chain([(MARK.into(), mark().into())]).collect());
        let own = PathBuf::from("/proc/self/exe").canonicalize().or_else(|_| std::env::current_exe())?;
        let spec = ServerSpec {
            program: own.clone().into(),
            arguments: words(arguments),
            environment,
            folder,
            grace: STOP_GRACE,
            stop_limit: STOP_LIMIT,
            lifeline: LifelineCommand { program: own, arguments: words(&[lifeline::ARGUMENT]) },
        };
        let (server, errors) = Server::start(&spec).map_err(io::Error::other)?;
        Ok(DemoPeer { server, _errors: errors, received: Vec::new(), next_id: 0, noise: 0 })
    }

    /// Returns how many processes, apart from this one, have this client's end of the server's stdin open.
    pub(crate) fn holders_of_stdin(&self) -> io::Result<usize> {
        let input = self.server.input.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(unhang_demo_servers::processes::holders_of_pipe(rustix::fs::fstat(input)?.st_ino))
    }

    /// Sends one message. Fails if the pipe does not take all of it within the deadline.
    pub(crate) async fn send(&mut self, message: &Value, deadline: Deadline) -> io::Result<()> {
        let line = format!("{message}\n");
        let mut rest = line.as_bytes();
        let input = self.server.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        while !rest.is_empty() {
            match input.try_write_vectored(&[IoSlice::new(rest)]) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    deadline.timeout(input.writable()).await.map_err(io::Error::other)??;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends a request and returns its id.
    pub(crate) async fn request(
        &mut self,
        method: &str,
        params: Value,
        deadline: Deadline,
    ) -> io::Result<u64> {
        self.next_id += 1;
        let message = json!({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params});
        self.send(&message, deadline).await?;
        Ok(self.next_id)
    }

    /// Calls a tool and returns the id of the call.
    pub(crate) async fn call(&mut self, tool: &str, deadline: Deadline) -> io::Result<u64> {
        self.request("tools/call", json!({"name": tool, "arguments": {"text": "hello"}}), deadline).await
    }

    /// Makes the handshake.
    pub(crate) async fn shake_hands(&mut self, deadline: Deadline) -> io::Result<()> {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "unhang-demo", "version": env!("CARGO_PKG_VERSION")}});
        let id = self.request("initialize", params, deadline).await?;
        match self.answer(id, deadline).await {
            PeerOutcome::Answer(..) => {
                self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}), deadline).await
            }
            PeerOutcome::Silence => Err(io::Error::other("no answer to the handshake")),
            PeerOutcome::Ended => Err(io::Error::other("the server ended in the handshake")),
        }
    }

    /// Waits for the answer to a request.
    pub(crate) async fn answer(&mut self, id: u64, deadline: Deadline) -> PeerOutcome {
        let start = tokio::time::Instant::now();
        loop {
            while let Some(line) = self.next_line() {
                match serde_json::from_slice::<Value>(&line) {
                    Ok(message) if message["jsonrpc"] != "2.0" => self.noise += 1,
                    Ok(message) if message["id"] == id && message.get("method").is_none() => {
                        return PeerOutcome::Answer(message, start.elapsed());
                    }
                    Ok(_) => {}
                    Err(_) => self.noise += 1,
                }
            }
            match self.read(deadline).await {
                Ok(true) => {}
                Ok(false) => return PeerOutcome::Silence,
                Err(_) => return PeerOutcome::Ended,
            }
        }
    }

    fn next_line(&mut self) -> Option<Vec<u8>> {
        let end = self.received.iter().position(|byte| *byte == b'\n')?;
        let mut line: Vec<u8> = self.received.drain(..=end).collect();
        line.pop();
        Some(line)
    }

    /// Reads once. Returns `false` if the deadline has passed.
    async fn read(&mut self, deadline: Deadline) -> io::Result<bool> {
        let mut chunk = vec![0; CHUNK];
        loop {
            match self.server.output.try_read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    self.received.extend_from_slice(&chunk[..count]);
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if deadline.timeout(self.server.output.readable()).await.is_err() {
                        return Ok(false);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Ends the connection and waits, bounded, until nothing of it is left.
    pub(crate) async fn end(self) {
        let DemoPeer { mut server, .. } = self;
        server.begin_stop();
        let gone =
            async { while !matches!(server.event().await, ServerEvent::Gone(_) | ServerEvent::Failed(_)) {} };
        // After the limit the lifeline goes on alone.
        let _bounded = Deadline::after(STOP_LIMIT).timeout(gone).await;
    }
}
