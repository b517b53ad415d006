//! Lists tools whose schemas are none, two of the same name, and one whose name no model may be told.

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
    name: "faulty-tools",
    incident: "Langvel looked for the schema of a tool where there is none, so every schema was empty, and a client that checks schemas drops such a tool or the whole list (contract.md 3.3).",
    usage: "",
    promises: &[2],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    Plain::new(PROGRAM.name).serve(|message| {
        if !message.is_request() || message.method() != "tools/list" {
            return Ok(MessageHandling::Plain);
        }
        let tools = json!([
            {"name": "twice", "inputSchema": {"type": "object"}},
            {"name": "twice", "inputSchema": {"type": "object", "properties": {"count": {"type": "integr"}}}},
            {"name": "no schema at all", "parameters": {}},
        ]);
        pipe::send(&pipe::result(message.id(), json!({"tools": tools}))).map(|()| MessageHandling::Done)
    })
}
