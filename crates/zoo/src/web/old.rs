//! HTTP+SSE, as of 2024-11-05: a stream says where to post, and all answers come on the stream.
//!
//! # Invariants
//!
//! - What it does not know gets 404 or 405 without a message, as the old frameworks do it.

use std::collections::HashMap;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use serde_json::Value;
use unhang_demo_servers::{bounded_waits::lock, plain_server::Plain};

use super::sessions::WAIT;
use super::wire::Wire;
use super::{Then, WebRequest};

/// Answers that wait for their stream.
const WAITING: usize = 1024;

/// A server of old.
pub(crate) struct Old {
    plain: Plain,
    streams: Mutex<HashMap<String, SyncSender<Value>>>,
    number: AtomicU64,
}

impl Old {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { plain: Plain::new(name).with_tool(WAIT), streams: Mutex::default(), number: AtomicU64::new(0) }
    }

    /// Deals with a request as it should be dealt with.
    pub(crate) fn serve(&self, asked: &WebRequest, wire: &mut Wire) -> io::Result<Then> {
        match (asked.verb.as_str(), asked.path.split_once("?session=")) {
            ("GET", None) if asked.path == "/sse" => self.stream(wire),
            ("POST", Some(("/messages", session))) => self.post(session, asked, wire),
            (_, None) if asked.path == "/sse" => wire.status(405).map(|()| Then::Next),
            _ => wire.status(404).map(|()| Then::Next),
        }
    }

    fn stream(&self, wire: &mut Wire) -> io::Result<Then> {
        let session = self.number.fetch_add(1, Ordering::SeqCst).to_string();
        let (sender, answers) = sync_channel(WAITING);
        lock(&self.streams).insert(session.clone(), sender);
        let told = tell(&session, &answers, wire);
        lock(&self.streams).remove(&session);
        told.map(|()| Then::HangUp)
    }

    fn post(&self, session: &str, asked: &WebRequest, wire: &mut Wire) -> io::Result<Then> {
        let Some(stream) = lock(&self.streams).get(session).cloned() else {
            return wire.status(404).map(|()| Then::Next);
        };
        wire.answer(202, &[], "text/plain", b"Accepted")?;
        let is_wait = asked.message.is_call() && asked.message.tool() == WAIT;
        if let Some(answer) = self.plain.answer(&asked.message).filter(|_| !is_wait) {
            // Its stream may have ended by now.
            let _gone = stream.try_send(answer);
        }
        Ok(Then::Next)
    }
}

fn tell(session: &str, answers: &Receiver<Value>, wire: &mut Wire) -> io::Result<()> {
    wire.begin_events(&[])?;
    wire.piece(format!("event: endpoint\ndata: /messages?session={session}\n\n").as_bytes())?;
    loop {
        let mut next = None;
        let has_come = wire.wait_until(|| {
            next = answers.try_recv().ok();
            next.is_some()
        });
        match next.filter(|_| has_come) {
            Some(answer) => wire.event(None, &answer)?,
            None => return Ok(()),
        }
    }
}
