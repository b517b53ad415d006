//! Asks the client before it answers a call, on the stream of the call or on the one for everything else.
//!
//! Where that other stream is to be late, it opens a while after it was asked for, and a question before that
//! is lost. Or it asks without end: there, whoever calls, or on the stream of a list, which it never gives.

use std::io;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use unhang_demo_servers::{
    arguments::ProgramArguments,
    bounded_waits::{lock, pause},
    entry::ProgramDescription,
    pipe,
};

use crate::web::Then;
use crate::web::sessions::{question, serve_with};
use crate::web::wire::Wire;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "http-asks-client",
    incident: "Clients that read only the stream of their request leave such a question, and the call, unanswered (protocol.md 1.2).",
    usage: "METHOD [--elsewhere yes|late | --endless yes|listing]",
    promises: &[1],
    run,
};

/// How long the stream takes to open, and each answer to be taken by one that asks without end.
const LATE: Duration = Duration::from_millis(100);

/// Questions that leave at once.
const CROWD: usize = 200;

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let method = arguments.text(0, "METHOD")?.to_owned();
    let elsewhere = arguments.option("elsewhere")?;
    let (elsewhere, late) = (elsewhere.is_some(), elsewhere == Some("late"));
    let endless = arguments.option("endless")?.map(|endless| endless == "listing");
    let (asks, is_open, answer) = (AtomicBool::new(false), AtomicBool::new(false), Mutex::new(None::<Value>));
    serve_with(PROGRAM.name, move |_, asked, wire| {
        if let Some(listing) = endless {
            let is_answer = asked.is_post() && asked.message.method().is_empty();
            let is_stream = if listing { asked.message.method() == "tools/list" } else { asked.is_get() };
            return match (is_answer, is_stream) {
                (true, _) => {
                    pause(LATE);
                    wire.status(202).map(|()| Some(Then::Next))
                }
                (_, true) => ask_for_ever(&method, wire),
                _ => Ok(None),
            };
        }
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

/// Ends with the client, which closes the stream.
fn ask_for_ever(method: &str, wire: &mut Wire) -> io::Result<Option<Then>> {
    wire.begin_events(&[])?;
    for number in 0_u64.. {
        let ids = (0..CROWD).map(|of_these| format!("q{number}-{of_these}"));
        let questions: Vec<Value> = ids.map(|id| question(&id, method)).collect();
        wire.events(&questions)?;
    }
    Ok(Some(Then::HangUp))
}
