//! Leaves something behind, in one of seven ways, and ends with code 7.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use rustix::process::Signal;
use unhang_demo_servers::{arguments::ProgramArguments, bounded_waits, entry::ProgramDescription};

use crate::child_processes::{self, Holds, Offspring};
use crate::signals;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "leaves-behind",
    incident: "Of seven ways to leave something behind, a kill of the process group misses all but the first, in 20 of 20 runs each (processes.md 1.4).",
    usage: "child|session|daemon|closed|nested|deaf|forks --marker TEXT",
    promises: &[5, 7],
    run,
};

/// What it does meanwhile stands for the work.
const WORK: Duration = Duration::from_millis(80);

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let marker = arguments.required("marker")?;
    let lingers = ["lingers", "--marker", marker];
    let child = Offspring::new(&lingers);
    match arguments.text(0, "what to leave behind")? {
        "child" => drop(child.start()?),
        "session" => drop(Offspring { own_session: true, ..child }.start()?),
        "daemon" => child_processes::leave_daemon(&["detaches", "--marker", marker])?,
        "closed" => {
            signals::ignore(Signal::HUP);
            drop(Offspring { own_session: true, holds: Holds::Nothing, ..child }.start()?);
        }
        "nested" => child_processes::leave_nested(marker)?,
        "deaf" => {
            signals::ignore_the_polite_ones();
            drop(child.start()?);
        }
        "forks" => child_processes::leave_line(marker)?,
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    }
    bounded_waits::pause(WORK);
    Ok(ExitCode::from(7))
}
