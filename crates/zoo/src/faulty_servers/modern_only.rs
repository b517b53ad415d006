//! Speaks 2026-07-28 only, and refuses `initialize` naming that.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments,
    entry::ProgramDescription,
    pipe,
    plain_server::{INVALID_PARAMS, METHOD_NOT_FOUND},
    plain_server::{MessageHandling, Plain},
};

use super::era_locked::{discovery, modernized, unsupported};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "modern-only",
    incident: "A server of the stateless era names its versions in the error to initialize, so that the client can say what is wrong (protocol.md 1.4).",
    usage: "",
    promises: &[1],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    let server = Plain::new(PROGRAM.name);
    server.serve(|message| {
        if !message.is_request() {
            return Ok(MessageHandling::Done);
        }
        let stateless = !message.params()["_meta"]["io.modelcontextprotocol/protocolVersion"].is_null();
        let answer = match message.method() {
            "initialize" => unsupported(message),
            "ping" => pipe::error(message.id(), METHOD_NOT_FOUND, "Method not found: ping"),
            _ if !stateless => {
                pipe::error(message.id(), INVALID_PARAMS, "the protocol version is missing in `_meta`")
            }
            "server/discover" => pipe::result(message.id(), discovery()),
            _ => modernized(server.answer(message).unwrap_or_default()),
        };
        pipe::send(&answer).map(|()| MessageHandling::Done)
    })
}
