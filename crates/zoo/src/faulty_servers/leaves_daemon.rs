//! Leaves a daemon behind: forked twice, own session, no pipe of its parent open.

use std::io;
use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::entry::Animal;
use crate::offspring;
use crate::plain::{Next, Plain};

pub(crate) const ANIMAL: Animal = Animal {
    name: "leaves-daemon",
    incident: "A daemon belongs to nobody: its parent has gone and its group is another, so 20 of 20 kills of the group missed it (processes.md 1.4).",
    usage: "--marker TEXT",
    promises: &[5],
    run,
};

fn run(arguments: &Arguments) -> io::Result<ExitCode> {
    offspring::leave_daemon(&["detaches", "--marker", arguments.required("marker")?])?;
    Plain::new(ANIMAL.name).serve(|_| Ok(Next::Plain))
}
