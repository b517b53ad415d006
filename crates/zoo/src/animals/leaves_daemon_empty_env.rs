//! Leaves a daemon behind that was started with an empty environment.

use std::io;
use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::entry::Animal;
use crate::offspring::{self, Offspring};
use crate::plain::{Next, Plain};

pub(crate) const ANIMAL: Animal = Animal {
    name: "leaves-daemon-empty-env",
    incident: "A daemon with a cleaned environment is missed by a sweep that looks for a cookie in environments (processes.md 1.4 and 1.5).",
    usage: "--marker TEXT",
    promises: &[5],
    run,
};

fn run(arguments: &Arguments) -> io::Result<ExitCode> {
    let child = ["detaches", "--marker", arguments.required("marker")?, "--environment", "empty"];
    // The one in the middle ends at once; its own child stays.
    let middle = Offspring { own_session: true, ..Offspring::new(&child) };
    offspring::wait(&mut middle.start()?)?;
    Plain::new(ANIMAL.name).serve(|_| Ok(Next::Plain))
}
