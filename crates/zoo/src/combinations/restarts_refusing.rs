//! Is well behaved at its first N starts; at every later one it refuses the handshake.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments,
    entry::ProgramDescription,
    pipe,
    plain_server::{MessageHandling, Plain},
};

use crate::faulty_servers::well_behaved;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "restarts-refusing",
    incident: "A server that found its port, its lock or its database taken by its own predecessor starts and then says no (peers.md 3.1 F, Q00/ouroboros#2325).",
    usage: "--count-file FILE [N]",
    promises: &[1, 6],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    well_behaved::serve_at_first(arguments, |_| {
        Plain::new(PROGRAM.name).serve(|message| {
            if message.method() != "initialize" {
                return Ok(MessageHandling::Plain);
            }
            pipe::send(&pipe::error(message.id(), -32000, "the database is locked"))
                .map(|()| MessageHandling::Done)
        })
    })
}
