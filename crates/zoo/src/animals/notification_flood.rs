//! Sends so many log notifications before it answers a call.

use std::io;
use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::entry::Animal;
use crate::pipe;
use crate::plain::Plain;

pub(crate) const ANIMAL: Animal = Animal {
    name: "notification-flood",
    incident: "Log notifications by the ten thousand grew a client without bounds to 231 MiB (protocol.md 5.3 #11, G-03).",
    usage: "[COUNT]",
    promises: &[3],
    run,
};

fn run(arguments: &Arguments) -> io::Result<ExitCode> {
    let count = arguments.number(0, 10_000)?;
    Plain::new(ANIMAL.name).serve_calls(|_, answer| {
        for number in 1..=count {
            pipe::send(&pipe::log(&format!("message {number} of {count}")))?;
        }
        pipe::send(&answer)
    })
}
