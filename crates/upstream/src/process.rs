//! A server's process and its pipes, as one thing to wait for. The guard and the client both hold their servers by it.
//!
//! Invariants: nothing here awaits a write, and nothing waits for a pipe to end. A thread of its own drains stderr from the start (L-05).

use std::{
    future::pending,
    io,
    os::fd::{AsFd, OwnedFd},
};

use tokio::time::Instant;
use unhang_proc::{
    deadline::Deadline,
    drain::{Drain, Tail, drain},
    server::{ErrorPipe, Server, ServerEvent, ServerSpec},
    spawn::SpawnError,
};

use unhang_core::{config::LAST_WORDS, queue::Queue};

/// The server's process and its pipes.
pub struct ServerProcess {
    /// The process, as its lifeline reports it.
    pub server: Server,
    pub(crate) drain: Drain,
    /// The server's stderr, for a process that goes on with the server; `None` if the system had no descriptor for it.
    pub stderr: Option<OwnedFd>,
    /// The server's stdout was read to the end.
    pub output_ended: bool,
    /// The server has closed its stdin.
    pub input_closed: bool,
    /// The time after that at which the guard checks whether the server has read everything.
    pub ask_at: Option<Instant>,
    /// The server process has ended; the processes that it left behind are about to.
    pub exited: bool,
}

impl ServerProcess {
    /// Starts the server. Each line of its stderr goes to the log (L-07) and to `on_line`.
    pub fn start(
        name: &str,
        spec: &ServerSpec,
        tail: Tail,
        on_line: impl Fn(&[u8]) + Send + 'static,
    ) -> Result<ServerProcess, SpawnError> {
        let (server, stderr) = Server::start(spec)?;
        Ok(Self::of(name, server, stderr, tail, on_line))
    }

    /// Takes a server that runs already. Its stderr goes the ways that [`start`](Self::start) describes.
    pub fn of(
        name: &str,
        server: Server,
        stderr: ErrorPipe,
        tail: Tail,
        on_line: impl Fn(&[u8]) + Send + 'static,
    ) -> ServerProcess {
        let name = name.to_owned();
        let kept = stderr.as_fd().try_clone_to_owned().ok();
        let drain = drain(stderr, tail, move |line| {
            if !line.trim_ascii().is_empty() {
                tracing::warn!(target: "unhang::stderr", "MCP server '{name}' stderr: {}", String::from_utf8_lossy(line));
                on_line(line);
            }
        });
        ServerProcess {
            server,
            drain,
            stderr: kept,
            output_ended: false,
            input_closed: false,
            ask_at: None,
            exited: false,
        }
    }

    /// Writes what waits for the server: the backlog of its stdin first, and then this queue.
    pub fn write_from(&mut self, queue: &mut Queue) {
        let Some(input) = &mut self.server.input else { return };
        if input.backlog() > 0 {
            // A full pipe takes the rest later. The queue sees any other error with its next line.
            let _later = input.flush_journal();
        }
        queue.flush(input);
    }

    /// Returns whether bytes wait in the backlog of its stdin.
    pub fn has_backlog(&self) -> bool {
        self.server.input.as_ref().is_some_and(|input| input.backlog() > 0)
    }

    /// Waits until the last output on stderr has been read. A thread reads it, which may not have had its turn.
    pub async fn last_stderr(&mut self) {
        last_stderr(&mut self.drain).await;
    }
}

/// An event of the server's process.
pub enum ProcessEvent {
    /// The lifeline has reported something.
    Event(ServerEvent),
    /// The server's stdout is readable.
    Readable(io::Result<()>),
    /// The server's stdin is writable.
    Writable,
    /// The server has closed its stdin.
    InputClosed,
}

/// Waits for the next event of the process; for ever if there is no process.
pub async fn awaited(process: &Option<ServerProcess>, reads: bool, writes: bool) -> ProcessEvent {
    let Some(ServerProcess { server, output_ended, input_closed, .. }) = process else {
        return pending().await;
    };
    let open = server.input.as_ref().filter(|_| !input_closed);
    let input = server.input.as_ref().filter(|_| writes);
    tokio::select! {
        event = server.event() => ProcessEvent::Event(event),
        ready = server.output.readable(), if reads && !*output_ended => ProcessEvent::Readable(ready),
        // The write itself shows the error.
        _ = async { input?.writable().await.ok() }, if input.is_some() => ProcessEvent::Writable,
        () = async { if let Some(open) = open { open.closed().await } }, if open.is_some() => ProcessEvent::InputClosed,
    }
}

async fn last_stderr(drain: &mut Drain) {
    drain.finish(Deadline::after(LAST_WORDS)).await;
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Write},
        os::fd::OwnedFd,
    };

    use super::*;

    #[tokio::test]
    async fn the_last_words_on_stderr_are_awaited() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let tail = Tail::new(1024);
        let mut drain = drain(OwnedFd::from(reader).into(), tail.clone(), |_| {});
        let words = async {
            // By now the other side waits, if it does.
            tokio::time::sleep(LAST_WORDS / 10).await;
            writer.write_all(b"no project file found\n").expect("somebody reads");
            drop(writer);
        };
        let reported = async {
            last_stderr(&mut drain).await;
            tail.last_lines(1)
        };
        let ((), reported) = tokio::join!(words, reported);
        assert_eq!(reported, ["no project file found"]);
    }
}
