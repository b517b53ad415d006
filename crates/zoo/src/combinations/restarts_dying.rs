//! Is well behaved at its first N starts; at every later one it shakes hands and dies of what comes next.

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
    name: "restarts-dying",
    incident: "A server that dies of the session that is told it again would be started for ever (peers.md 3.1 H, metatool-ai/metamcp#294).",
    usage: "--count-file FILE [N]",
    promises: &[1, 6],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    well_behaved::serve_at_first(arguments, |_| {
        Plain::new(PROGRAM.name).serve(|message| {
            if message.method() == "initialize" {
                return Ok(MessageHandling::Plain);
            }
            pipe::complain("fatal: the session cannot be restored")?;
            Ok(MessageHandling::Leave(ExitCode::FAILURE))
        })
    })
}
