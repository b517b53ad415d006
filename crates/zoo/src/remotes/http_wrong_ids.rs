//! Answers calls with the id of no request.

use std::io;
use std::process::ExitCode;

use serde_json::json;
use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::web::Then;
use crate::web::sessions::serve_with;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "http-wrong-ids",
    incident: "Gateways that renumber requests lose the way back (protocol.md 5.3, row 9).",
    usage: "",
    promises: &[1, 2],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    serve_with(PROGRAM.name, |sessions, asked, wire| {
        if !asked.message.is_call() {
            return Ok(None);
        }
        let mut answer = sessions.response(asked);
        answer["id"] = json!(987_654_321);
        wire.json(200, &[], &answer).map(|()| Some(Then::Next))
    })
}
