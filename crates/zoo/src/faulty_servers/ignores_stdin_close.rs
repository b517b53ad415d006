//! Goes on living when stdin has ended; signals work.

use std::io;
use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::entry::Animal;
use crate::keeper;
use crate::plain::{Next, Plain};

pub(crate) const ANIMAL: Animal = Animal {
    name: "ignores-stdin-close",
    incident: "Servers that do not notice the end of stdin stay behind as orphans, 312 of them in 24 hours (peers.md 3.1 F, microsoft/azure-devops-mcp#1598).",
    usage: "",
    promises: &[5],
    run,
};

fn run(_: &Arguments) -> io::Result<ExitCode> {
    Plain::new(ANIMAL.name).serve(|_| Ok(Next::Plain))?;
    Ok(keeper::linger())
}
