//! Leaves a daemon behind that was started with an empty environment.

use std::io;
use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::entry::Animal;
use crate::offspring;
use crate::plain::{Next, Plain};

pub(crate) const ANIMAL: Animal = Animal {
    name: "leaves-daemon-empty-env",
    incident: "A daemon with a cleaned environment is missed by a sweep that looks for a cookie in environments (processes.md 1.4 and 1.5).",
    usage: "--marker TEXT",
    promises: &[5],
    run,
};

fn run(arguments: &Arguments) -> io::Result<ExitCode> {
    let marker = arguments.required("marker")?;
    offspring::leave_daemon(&["detaches", "--marker", marker, "--environment", "empty"])?;
    Plain::new(ANIMAL.name).serve(|_| Ok(Next::Plain))
}
