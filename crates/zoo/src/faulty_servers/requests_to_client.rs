//! Asks the client for sampling, input, roots and a ping during a call, and answers with what came back.
//!
//! With `--mode roots` it asks for roots outside calls: after the handshake, and when they have changed. Its calls tell what came back.
//! With `--mode url` it asks in a call for the visit of a URL, and tells of the end of the visit before it answers.

use std::io;
use std::process::ExitCode;

use serde_json::json;
use unhang_demo_servers::{
    arguments::ProgramArguments,
    entry::ProgramDescription,
    pipe,
    plain_server::{MessageHandling, Plain},
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "requests-to-client",
    incident: "A server that asks the client during a call waits for ever when something between them drops the question (protocol.md 3.3 #6 and #7).",
    usage: "[--mode calls|roots|url]",
    promises: &[3],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let server = Plain::new(PROGRAM.name);
    match arguments.option("mode")? {
        Some("roots") => ask_outside_calls(&server),
        Some("url") => ask_for_visits(&server),
        _ => ask_in_calls(&server),
    }
}

fn ask_outside_calls(server: &Plain) -> io::Result<ExitCode> {
    let (mut asked, mut answers) = (0, Vec::new());
    server.serve(|message| {
        match message.method() {
            "notifications/initialized" | "notifications/roots/list_changed" => {
                asked += 1;
                pipe::send(&json!({"jsonrpc": "2.0", "id": asked, "method": "roots/list"}))?;
            }
            "" => answers.push(message.raw().clone()),
            _ => match server.answer(message) {
                Some(mut answer) if message.is_call() => {
                    let said = json!({"asked": asked, "answers": answers});
                    answer["result"]["content"][0]["text"] = json!(said.to_string());
                    pipe::send(&answer)?;
                }
                _ => return Ok(MessageHandling::Plain),
            },
        }
        Ok(MessageHandling::Done)
    })
}

fn ask_for_visits(server: &Plain) -> io::Result<ExitCode> {
    server.serve_calls(|_, answer| {
        let id = "visit-1";
        let params =
            json!({"mode": "url", "message": "Log in", "url": "https://example.org/", "elicitationId": id});
        pipe::send(&json!({"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": params}))?;
        while let Some(message) = pipe::receive()? {
            if message.method().is_empty() {
                let method = "notifications/elicitation/complete";
                pipe::send(&json!({"jsonrpc": "2.0", "method": method, "params": {"elicitationId": id}}))?;
                return pipe::send(&answer);
            }
        }
        Ok(())
    })
}

fn ask_in_calls(server: &Plain) -> io::Result<ExitCode> {
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
