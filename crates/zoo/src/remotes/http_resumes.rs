//! Ends the stream of a call before its answer, and gives that to whoever takes the stream up again.

use std::io;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;
use unhang_demo_servers::{arguments::ProgramArguments, bounded_waits::lock, entry::ProgramDescription};

use crate::web::Then;
use crate::web::sessions::serve_with;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "http-resumes",
    incident: "Servers that poll end their streams early and count on clients to come back with `Last-Event-ID` (SEP-1699, protocol.md 1.2).",
    usage: "[ENDS] [--breaks yes] [--refuses STATUS]",
    promises: &[1],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    // How often the stream ends before the answer comes, and whether it breaks instead.
    let (ends, breaks) = (arguments.number(0, 1)?, arguments.option("breaks")?.is_some());
    // What those who come back are told.
    let status = arguments.number_option("refuses", 200)?;
    let status = u16::try_from(status).map_err(|_| io::ErrorKind::InvalidInput)?;
    let (kept, met) = (Mutex::new(Value::Null), AtomicU64::new(0));
    serve_with(PROGRAM.name, move |sessions, asked, wire| {
        if asked.message.is_call() {
            *lock(&kept) = sessions.response(asked);
            met.store(0, Ordering::SeqCst);
            wire.begin_events(&[])?;
            wire.piece(b"id: 7\nretry: 60\ndata: \n\n")?;
        } else if asked.header("last-event-id") != Some("7") {
            return Ok(None);
        } else if status != 200 {
            return wire.status(status).map(|()| Some(Then::Next));
        } else {
            wire.begin_events(&[])?;
            if met.fetch_add(1, Ordering::SeqCst) + 1 >= ends {
                wire.event(Some("8"), &lock(&kept))?;
            }
        }
        if breaks {
            return Ok(Some(Then::HangUp));
        }
        wire.end().map(|()| Some(Then::Next))
    })
}
