//! Asks the client before it answers a call, on the stream of the call or on the one for everything else.
//!
//! Where that other stream is to be late, it opens a while after it was asked for, and a question before that
//! is lost.

use std::io;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::arguments::Arguments;
use crate::entry::Animal;
use crate::keeper::{lock, pause};
use crate::pipe;
use crate::web::Then;
use crate::web::sessions::{question, serve_with};

pub(crate) const ANIMAL: Animal = Animal {
    name: "http-asks-client",
    incident: "Clients that read only the stream of their request leave such a question, and the call, unanswered (protocol.md 1.2).",
    usage: "METHOD [--elsewhere yes | --elsewhere late]",
    promises: &[1],
    run,
};

/// How long the stream takes to open.
const LATE: Duration = Duration::from_millis(100);

fn run(arguments: &Arguments) -> io::Result<ExitCode> {
    let method = arguments.text(0, "METHOD")?.to_owned();
    let place = arguments.option("elsewhere")?;
    let (elsewhere, late) = (place.is_some(), place == Some("late"));
    let (asks, is_open, answer) = (AtomicBool::new(false), AtomicBool::new(false), Mutex::new(None::<Value>));
    serve_with(ANIMAL.name, move |_, asked, wire| {
        let question = question("q", &method);
        if asked.message.method().is_empty() && asked.message.id() == "q" {
            *lock(&answer) = Some(asked.message.raw().clone());
            return wire.status(202).map(|()| Some(Then::Next));
        }
        if elsewhere && asked.is_get() {
            if late {
                pause(LATE);
            }
            wire.begin_events(&[])?;
            is_open.store(true, Ordering::SeqCst);
            if wire.wait_until(|| asks.load(Ordering::SeqCst)) {
                wire.event(None, &question)?;
                wire.wait_for_the_end();
            }
            return Ok(Some(Then::HangUp));
        }
        if !asked.message.is_call() {
            return Ok(None);
        }
        asks.store(!late || is_open.load(Ordering::SeqCst), Ordering::SeqCst);
        wire.begin_events(&[])?;
        if !elsewhere {
            wire.event(None, &question)?;
        }
        let mut told = None;
        wire.wait_until(|| {
            told = lock(&answer).take();
            told.is_some()
        });
        let text = told.unwrap_or_default().to_string();
        wire.event(None, &pipe::result(asked.message.id(), pipe::text(&text)))?;
        wire.end().map(|()| Some(Then::Next))
    })
}
