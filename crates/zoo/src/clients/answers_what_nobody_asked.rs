//! Sends answers to questions that were never asked, and what only a server may say.

use std::io;
use std::process::ExitCode;

use serde_json::json;
use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription, pipe};

use crate::plain_client::Guest;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "answers-what-nobody-asked",
    incident: "A client may answer the question of a server process that has died meanwhile; its successor must not take that for an answer of its own (protocol.md 3.2).",
    usage: "-- CMD [ARGS...]",
    promises: &[1, 6],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let mut guest = Guest::introduced(PROGRAM.name, arguments)?;
    for id in [json!(0), json!(1), json!(-1), json!("question-1"), json!("unhang-1"), json!(null)] {
        guest.send(&json!({"jsonrpc": "2.0", "id": id, "result": {"roots": []}}))?;
        guest.send(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": -1, "message": "no"}}))?;
    }
    guest.send(&pipe::log("a client has no log"))?;
    guest.send(&pipe::notification("notifications/tools/list_changed", &json!({})))?;
    guest.echo(10)?;
    guest.leave()
}
