//! Answers each call with an array around its response.

use std::io;
use std::process::ExitCode;

use serde_json::json;

use crate::arguments::Arguments;
use crate::entry::Animal;
use crate::pipe;
use crate::plain::Plain;

pub(crate) const ANIMAL: Animal = Animal {
    name: "batch-answers",
    incident: "Servers of the revision 2025-03-26 may answer with arrays, which every other revision forbids (protocol.md 1.1).",
    usage: "",
    promises: &[1, 2],
    run,
};

fn run(_: &Arguments) -> io::Result<ExitCode> {
    Plain::new(ANIMAL.name).serve_calls(|_, answer| pipe::send(&json!([answer])))
}
