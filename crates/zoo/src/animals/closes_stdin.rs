//! Closes its stdin at the first call, answers it and lives on.

use std::io;
use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::entry::Animal;
use crate::keeper;
use crate::pipe;
use crate::plain::{Next, Plain};

pub(crate) const ANIMAL: Animal = Animal {
    name: "closes-stdin",
    incident: "No thread reports it: a server whose reader has ended lives on, and every write to it fails (protocol.md 1.1).",
    usage: "",
    promises: &[3, 6],
    run,
};

fn run(_: &Arguments) -> io::Result<ExitCode> {
    let server = Plain::new(ANIMAL.name);
    server.serve(|message| {
        let Some(answer) = server.answer(message).filter(|_| message.is_call()) else {
            return Ok(Next::Plain);
        };
        rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
        pipe::send(&answer)?;
        Ok(Next::Leave(keeper::linger()))
    })
}
