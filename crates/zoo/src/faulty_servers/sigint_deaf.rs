//! Survives SIGINT, and dies of it at the next line on stdin, which is lost.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use unhang_demo_servers::{
    arguments::ProgramArguments,
    bounded_waits,
    entry::ProgramDescription,
    pipe,
    plain_server::{MessageHandling, Plain},
};

use crate::signals;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "sigint-deaf",
    incident: "Python servers stay alive and deaf after SIGINT; the next line kills them after 0.27 s with a traceback (contract.md part 4).",
    usage: "",
    promises: &[5],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    signals::catch_interrupt();
    Plain::new(PROGRAM.name).serve(|_| {
        if !signals::was_interrupted() {
            return Ok(MessageHandling::Plain);
        }
        bounded_waits::pause(Duration::from_millis(270));
        pipe::complain("Traceback (most recent call last):\nKeyboardInterrupt")?;
        Ok(MessageHandling::Leave(ExitCode::FAILURE))
    })
}
