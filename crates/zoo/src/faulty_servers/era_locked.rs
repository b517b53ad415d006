//! Lets its first request decide the era: after a `server/discover`, `initialize` is refused, and the other way round.

use std::io;
use std::process::ExitCode;

use serde_json::{Value, json};
use unhang_demo_servers::{
    arguments::ProgramArguments,
    entry::ProgramDescription,
    pipe,
    pipe::ClientMessage,
    plain_server::{INVALID_PARAMS, METHOD_NOT_FOUND, MODERN_REVISION, UNSUPPORTED_VERSION},
    plain_server::{MessageHandling, Plain},
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "era-locked",
    incident: "On the three Python servers measured a discover binds the process to stateless requests, and initialize gets -32022 (contract.md part 4).",
    usage: "",
    promises: &[6],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    let mut modern = None;
    let server = Plain::new(PROGRAM.name);
    server.serve(|message| {
        if !message.is_request() {
            return Ok(MessageHandling::Plain);
        }
        let stateless = !message.params()["_meta"]["io.modelcontextprotocol/protocolVersion"].is_null();
        let modern = *modern.get_or_insert(stateless);
        let answer = match (modern, message.method()) {
            (true, "initialize") => unsupported(message),
            (false, "server/discover") => pipe::error(message.id(), METHOD_NOT_FOUND, "Method not found"),
            (_, "server/discover") => pipe::result(message.id(), discovery()),
            (true, _) if !stateless => {
                pipe::error(message.id(), INVALID_PARAMS, "Invalid request parameters")
            }
            (true, _) => modernized(server.answer(message).unwrap_or_default()),
            (false, _) => return Ok(MessageHandling::Plain),
        };
        pipe::send(&answer).map(|()| MessageHandling::Done)
    })
}

/// Refuses a version and names those that there are.
pub(crate) fn unsupported(message: &ClientMessage) -> Value {
    let mut answer = pipe::error(message.id(), UNSUPPORTED_VERSION, "Unsupported protocol version");
    let requested = &message.params()["protocolVersion"];
    answer["error"]["data"] = json!({"supported": [MODERN_REVISION], "requested": requested});
    answer
}

/// Returns what `server/discover` finds out.
pub(crate) fn discovery() -> Value {
    modern_result(json!({"supportedVersions": [MODERN_REVISION], "capabilities": {"tools": {}}}))
}

/// Adds to a plain answer what a stateless one must carry.
pub(crate) fn modernized(mut answer: Value) -> Value {
    if answer["result"].is_object() {
        answer["result"] = modern_result(answer["result"].take());
    }
    answer
}

fn modern_result(mut result: Value) -> Value {
    result["resultType"] = json!("complete");
    result["ttlMs"] = json!(0);
    result["cacheScope"] = json!("private");
    result
}
