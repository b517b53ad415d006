//! Answers a call with arrays nested that deep.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments, entry::ProgramDescription, pipe, plain_server::Plain,
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "nested-deep",
    incident: "No thread reports it: results nested deeper than a parser allows are valid JSON that it refuses or that overflows its stack (protocol.md 1.3, SEP-2106).",
    usage: "[LEVELS]",
    promises: &[2],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let levels = arguments.size(0, 10_000)?;
    Plain::new(PROGRAM.name).serve_calls(|message, _| {
        // Built as text: a tree that deep would overflow this stack too.
        let (id, open, close) = (message.id(), "[".repeat(levels), "]".repeat(levels));
        pipe::send_line(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[],"deep":{open}{close}}}}}"#
        ))
    })
}
