//! Answers each call with a valid JSON-RPC error that carries data.

use std::io;
use std::process::ExitCode;

use serde_json::json;

use crate::arguments::Arguments;
use crate::entry::Animal;
use crate::pipe;
use crate::plain::Plain;

pub(crate) const ANIMAL: Animal = Animal {
    name: "server-error",
    incident: "Two of the five servers measured report an unknown tool as a JSON-RPC error, and a client must see such errors unchanged (contract.md part 4).",
    usage: "",
    promises: &[1],
    run,
};

fn run(_: &Arguments) -> io::Result<ExitCode> {
    Plain::new(ANIMAL.name).serve_calls(|message, _| {
        let mut answer = pipe::error(message.id(), -32603, "Internal error");
        answer["error"]["data"] = json!({"detail": "the database is locked", "retryable": false});
        pipe::send(&answer)
    })
}
