//! Ends at the first line that is no message.

use std::io::{self, BufRead};
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments,
    entry::ProgramDescription,
    pipe::{self, ClientMessage},
    plain_server::Plain,
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "dies-on-garbage",
    incident: "No thread reports it: a reader that lets the exception of a broken line go up takes its server along; the five measured go on (contract.md part 4).",
    usage: "",
    promises: &[1, 2],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    let server = Plain::new(PROGRAM.name);
    let mut line = Vec::new();
    loop {
        line.clear();
        if io::stdin().lock().read_until(b'\n', &mut line)? == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        let Some(message) = ClientMessage::parse(&line) else {
            pipe::complain(
                "Traceback (most recent call last):\njson.decoder.JSONDecodeError: Expecting value",
            )?;
            return Ok(ExitCode::FAILURE);
        };
        server.answer(&message).map_or(Ok(()), |answer| pipe::send(&answer))?;
    }
}
