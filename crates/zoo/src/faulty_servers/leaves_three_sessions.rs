//! Leaves three generations behind, each in a session of its own.

use std::io;
use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::entry::Animal;
use crate::offspring;
use crate::plain::{Next, Plain};

pub(crate) const ANIMAL: Animal = Animal {
    name: "leaves-three-sessions",
    incident: "Three nested sessions escape a sweep that looks for children only once (processes.md 1.4).",
    usage: "--marker TEXT",
    promises: &[5],
    run,
};

fn run(arguments: &Arguments) -> io::Result<ExitCode> {
    offspring::leave_nested(arguments.required("marker")?)?;
    Plain::new(ANIMAL.name).serve(|_| Ok(Next::Plain))
}
