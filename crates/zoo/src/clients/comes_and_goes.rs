//! Starts the command so many times at once and leaves each time before it is answered.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::plain_client::Guest;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "comes-and-goes",
    incident: "Editors that reconnect started 312 servers in a day and ended none of them (peers.md 3.1 F, microsoft/azure-devops-mcp#1598).",
    usage: "[TIMES] -- CMD [ARGS...]",
    promises: &[5],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let times = arguments.number(0, 8)?.max(1);
    let mut clients = Vec::new();
    for _ in 0..times {
        let mut client = Guest::arrive(PROGRAM.name, arguments)?;
        client.shake_hands()?;
        client.close_stdin();
        client.close_stdout();
        clients.push(client);
    }
    let last = clients.pop();
    let mut ends = clients.iter_mut().map(Guest::await_end).collect::<io::Result<Vec<_>>>()?;
    let Some(mut last) = last else { return Ok(ExitCode::SUCCESS) };
    ends.push(last.await_end()?);
    last.note("ends", ends);
    last.see_off()
}
