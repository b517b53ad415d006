//! Counts its starts in a file and fails at once at every start after the first N.

use std::io;
use std::io::Write as _;
use std::process::ExitCode;

use crate::Animal;
use crate::arguments::Arguments;
use crate::pipe;

pub(crate) const ANIMAL: Animal = Animal {
    name: "restarts-broken",
    incident: "Each start timeout threw away the partial installation, so no later start could ever succeed (peers.md 3.1 I, artokun/comfyui-mcp#1447).",
    usage: "--count-file FILE [N]",
    run,
};

fn run(arguments: &Arguments) -> io::Result<ExitCode> {
    let file = arguments.required("count-file")?;
    let good_starts = arguments.number(0, 1)?;
    writeln!(std::fs::File::options().append(true).create(true).open(file)?, "{}", std::process::id())?;
    let starts = std::fs::read_to_string(file)?.lines().count() as u64;
    if starts > good_starts {
        pipe::complain(&format!("error: start {starts} fails"))?;
        return Ok(ExitCode::FAILURE);
    }
    super::well_behaved::serve(arguments)
}
