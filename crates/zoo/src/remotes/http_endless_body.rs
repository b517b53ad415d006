//! Answers calls with a JSON body that has no end.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use unhang_demo_servers::{arguments::ProgramArguments, bounded_waits::pause, entry::ProgramDescription};

use crate::web::sessions::serve_with;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "http-endless-body",
    incident: "Clients have no bound for what a server may send, or one that nobody can raise (peers.md 3.1 J).",
    usage: "",
    promises: &[1, 3],
    run,
};

/// So that nobody runs out of memory who has no bound.
const STEP: Duration = Duration::from_millis(1);

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    serve_with(PROGRAM.name, |_, asked, wire| {
        if !asked.message.is_call() {
            return Ok(None);
        }
        wire.begin(&[], "application/json")?;
        wire.piece(br#"{"jsonrpc":"2.0","id":1,"result":{"text":""#)?;
        loop {
            wire.piece(&[b'x'; 16 << 10])?;
            pause(STEP);
        }
    })
}
