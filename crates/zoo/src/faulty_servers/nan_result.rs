//! Answers each call with a number that JSON does not have.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments, entry::ProgramDescription, pipe, plain_server::Plain,
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "nan-result",
    incident: "Python writes NaN and Infinity into what it calls JSON, and every strict reader refuses the whole line (contract.md part 5, point 6).",
    usage: "",
    promises: &[1, 2],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    Plain::new(PROGRAM.name).serve_calls(|message, _| {
        let id = message.id();
        pipe::send_line(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[],"value":NaN}}}}"#))
    })
}
