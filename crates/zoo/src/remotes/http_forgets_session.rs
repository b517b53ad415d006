//! Forgets its session after every so many calls, as a server does that was deployed anew.

use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::web::Then;
use crate::web::sessions::serve_with;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "http-forgets-session",
    incident: "A server that was restarted answers 404 to its old sessions, and its client stays broken until it is restarted too (peers.md 3.1 H, sparfenyuk/mcp-proxy#247).",
    usage: "[CALLS]",
    promises: &[1, 6],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let (every, calls) = (arguments.number(0, 1)?, AtomicU64::new(0));
    serve_with(PROGRAM.name, move |sessions, asked, wire| {
        if sessions.refuses(asked, wire)? {
            return Ok(Some(Then::Next));
        }
        if asked.message.is_call() && (calls.fetch_add(1, Ordering::SeqCst) + 1).is_multiple_of(every + 1) {
            sessions.forget();
        }
        Ok(None)
    })
}
