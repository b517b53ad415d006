//! Leaves half a result file, and ends with code 0.

use std::io;
use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::entry::Animal;
use crate::work::{self, RESULT};

pub(crate) const ANIMAL: Animal = Animal {
    name: "half-a-result",
    incident: "A result that is written in place can be read half, and a state that takes it over is truncated (contract.md 3.2).",
    usage: "",
    promises: &[7],
    run,
};

fn run(_: &Arguments) -> io::Result<ExitCode> {
    work::leave(RESULT, br#"{"volume": [1, 2"#)?;
    Ok(ExitCode::SUCCESS)
}
