//! Asks the client for sampling, input, roots and a ping during a call, and answers with what came back.

use std::io;
use std::process::ExitCode;

use serde_json::json;
use unhang_demo_servers::{
    arguments::ProgramArguments, entry::ProgramDescription, pipe, plain_server::Plain,
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "requests-to-client",
    incident: "A server that asks the client during a call waits for ever when something between them drops the question (protocol.md 3.3 #6 and #7).",
    usage: "",
    promises: &[3],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    let server = Plain::new(PROGRAM.name);
    server.serve_calls(|_, mut answer| {
        let methods = ["sampling/createMessage", "elicitation/create", "roots/list", "ping"];
        for (number, method) in methods.iter().enumerate() {
            let params = super::well_behaved::question_params(method);
            pipe::send(&json!({"jsonrpc": "2.0", "id": number, "method": method, "params": params}))?;
        }
        let mut answered = 0;
        while answered < methods.len() {
            let Some(message) = pipe::receive()? else {
                return Ok(());
            };
            if message.method().is_empty() {
                answered += 1;
            } else if let Some(other) = server.answer(&message).filter(|_| !message.is_call()) {
                pipe::send(&other)?;
            }
        }
        answer["result"]["content"][0]["text"] = json!(format!("the client answered {answered} questions"));
        pipe::send(&answer)
    })
}
