//! Answers each call twice.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments, entry::ProgramDescription, pipe, plain_server::Plain,
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "answers-twice",
    incident: "The five real servers measured answer a repeated id twice, so two answers to one id do occur (contract.md part 4).",
    usage: "",
    promises: &[1],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    Plain::new(PROGRAM.name).serve_calls(|_, answer| {
        pipe::send(&answer)?;
        pipe::send(&answer)
    })
}
