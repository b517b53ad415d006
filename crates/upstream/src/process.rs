//! A server's process with the pipes to it, as one thing to wait for. The guard and the client both hold their servers by it.
//!
//! Invariants: nothing here awaits a write, and nothing waits for a pipe to end; its stderr is drained from the start, by a
//! thread of its own (L-05).

use std::{future::pending, io, time::Duration};

use tokio::time::Instant;
use unhang_proc::{
    deadline::Deadline,
    drain::{Drain, Tail, drain},
    server::{Server, ServerEvent, ServerSpec},
    spawn::SpawnError,
};
use unhang_switches::stands;

use unhang_core::config::LAST_WORDS;

/// The server's process and what belongs to it.
pub struct ServerProcess {
    /// The process, as its lifeline tells of it.
    pub server: Server,
    pub(crate) drain: Drain,
    /// Its stdout was read to the end.
    pub output_ended: bool,
    /// It has closed its stdin.
    pub input_closed: bool,
    /// When, after that, it is asked whether it has read everything.
    pub ask_at: Option<Instant>,
    /// It has ended itself; what it left behind is about to.
    pub exited: bool,
}

impl ServerProcess {
    /// Starts it. Each line of its stderr goes to the log (L-07) and to `on_line`.
    pub fn start(
        name: &str,
        spec: &ServerSpec,
        tail: Tail,
        on_line: impl Fn(&[u8]) + Send + 'static,
    ) -> Result<ServerProcess, SpawnError> {
        let (server, stderr) = Server::start(spec)?;
        let name = name.to_owned();
        let drain = drain(stderr, tail, move |line| {
            if !line.trim_ascii().is_empty() {
                tracing::warn!(target: "unhang::stderr", "MCP server '{name}' stderr: {}", String::from_utf8_lossy(line));
                on_line(line);
            }
        });
        Ok(ServerProcess {
            server,
            drain,
            output_ended: false,
            input_closed: false,
            ask_at: None,
            exited: false,
        })
    }

    /// Waits until what it wrote to stderr before it died has been read: a thread does that, which may not have had its turn.
    pub async fn last_stderr(&mut self) {
        last_stderr(&mut self.drain).await;
    }
}

/// What the server's process is waited for.
pub enum ProcessEvent {
    /// The lifeline has told something.
    Event(ServerEvent),
    /// A read of its stdout is worth while.
    Readable(io::Result<()>),
    /// A write to its stdin is worth while.
    Writable,
    /// It has closed its stdin.
    InputClosed,
}

/// Waits for the next thing that concerns the process; for ever while there is none.
pub async fn awaited(process: &Option<ServerProcess>, reads: bool, writes: bool) -> ProcessEvent {
    let Some(ServerProcess { server, output_ended, input_closed, .. }) = process else {
        return pending().await;
    };
    let open = server.input.as_ref().filter(|_| !input_closed);
    let input = server.input.as_ref().filter(|_| writes);
    tokio::select! {
        event = server.event() => ProcessEvent::Event(event),
        ready = server.output.readable(), if reads && !*output_ended => ProcessEvent::Readable(ready),
        // An error shows at the write itself.
        _ = async { input?.writable().await.ok() }, if input.is_some() => ProcessEvent::Writable,
        () = async { if let Some(open) = open { open.closed().await } }, if open.is_some() => ProcessEvent::InputClosed,
    }
}

async fn last_stderr(drain: &mut Drain) {
    if stands("last-stderr-awaited") {
        let limit = if stands("last-words-bounded") { LAST_WORDS } else { Duration::MAX };
        drain.finish(Deadline::after(limit)).await;
    }
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
