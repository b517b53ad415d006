//! Never answers its first call, and asks and logs about that one when the next comes.

use std::io;
use std::process::ExitCode;

use serde_json::json;
use unhang_demo_servers::{
    arguments::ProgramArguments, entry::ProgramDescription, pipe, plain_server::Plain,
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "asks-late",
    incident: "A server goes on with a call that was cancelled, and its question comes while somebody else's call runs (2025-11-25, cancellation: a notice may come too late).",
    usage: "",
    promises: &[8],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    let server = Plain::new(PROGRAM.name);
    let mut first = None;
    server.serve_calls(|message, mut answer| {
        let Some(whose) = first.clone() else {
            first = Some(message.argument("text").as_str().unwrap_or_default().to_owned());
            return Ok(());
        };
        pipe::send(&pipe::log(&format!("the account of {whose}")))?;
        let mut params = super::well_behaved::question_params("elicitation/create");
        params["message"] = json!(format!("The password of {whose}?"));
        pipe::send(
            &json!({"jsonrpc": "2.0", "id": "late", "method": "elicitation/create", "params": params}),
        )?;
        while let Some(message) = pipe::receive()? {
            if message.method().is_empty() {
                answer["result"]["content"][0]["text"] = json!(message.raw().to_string());
                return pipe::send(&answer);
            }
            if let Some(other) = server.answer(&message).filter(|_| !message.is_call()) {
                pipe::send(&other)?;
            }
        }
        Ok(())
    })
}
