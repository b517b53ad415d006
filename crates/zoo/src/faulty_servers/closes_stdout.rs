//! Closes its stdout at the first call and lives on until stdin ends.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments,
    entry::ProgramDescription,
    plain_server::{MessageHandling, Plain},
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "closes-stdout",
    incident: "A server may close stdout on its way out, and one that then stays can never answer (protocol.md 1.1).",
    usage: "",
    promises: &[1, 6],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    Plain::new(PROGRAM.name).serve(|message| {
        if !message.is_call() {
            return Ok(MessageHandling::Plain);
        }
        // Replaced, not just closed, so that the next file opened cannot become stdout.
        rustix::stdio::dup2_stdout(std::fs::File::options().write(true).open("/dev/null")?)?;
        Ok(MessageHandling::Done)
    })
}
