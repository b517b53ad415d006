//! Closes its stdout at the first call and lives on until stdin ends.

use std::io;
use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::entry::Animal;
use crate::plain::{Next, Plain};

pub(crate) const ANIMAL: Animal = Animal {
    name: "closes-stdout",
    incident: "A server may close stdout on its way out, and one that then stays can never answer (protocol.md 1.1).",
    usage: "",
    promises: &[1, 6],
    run,
};

fn run(_: &Arguments) -> io::Result<ExitCode> {
    Plain::new(ANIMAL.name).serve(|message| {
        if !message.is_call() {
            return Ok(Next::Plain);
        }
        // Replaced, not just closed, so that the next file opened cannot become stdout.
        rustix::stdio::dup2_stdout(std::fs::File::options().write(true).open("/dev/null")?)?;
        Ok(Next::Done)
    })
}
