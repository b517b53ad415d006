//! Writes JSON log lines to stdout before it answers a call, and reads nothing meanwhile.

use std::io;
use std::process::ExitCode;

use serde_json::json;
use unhang_demo_servers::{
    arguments::ProgramArguments, entry::ProgramDescription, pipe, plain_server::Plain,
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "json-logs",
    incident: "JSON log lines on stdout made the rmcp client write an error for each into a stdin that nobody read, until both pipes were full (protocol.md 5.3 #1).",
    usage: "[COUNT]",
    promises: &[2],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let count = arguments.number(0, 8000)?;
    Plain::new(PROGRAM.name).serve_calls(|_, answer| {
        for number in 0..count {
            let line =
                json!({"level": "info", "time": number, "msg": "a structured log line on the wrong stream"});
            pipe::send(&line)?;
        }
        pipe::send(&answer)
    })
}
