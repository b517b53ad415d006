//! Reads everything and never answers anything.

use std::io;
use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::entry::Animal;
use crate::pipe;

pub(crate) const ANIMAL: Animal = Animal {
    name: "silent-at-start",
    incident: "A server that never answers initialize keeps the SDK client waiting without any limit (protocol.md 5.3 #4).",
    usage: "",
    promises: &[1],
    run,
};

fn run(_: &Arguments) -> io::Result<ExitCode> {
    pipe::drain().map(|()| ExitCode::SUCCESS)
}
