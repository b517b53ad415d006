//! Leaves a result that is no plain file, or one of 65 MiB, and ends with code 0.

use std::io;
use std::process::ExitCode;

use rustix::fs::{CWD, Mode, mkfifoat};
use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::job_work::{self, RESULT};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "odd-result",
    incident: "No thread reports it: whoever opens a pipe waits for its writer, a link leads out of the folder, and a result without a limit fills the memory of its reader (contract.md part 5, point 6).",
    usage: "fifo|link|folder|huge",
    promises: &[1, 7],
    run,
};

/// More than is worth to be read, and no more on the disk than a block.
const HUGE: u64 = 65 << 20;

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let result = job_work::folder().join(RESULT);
    match arguments.text(0, "what to leave")? {
        "fifo" => mkfifoat(CWD, &result, Mode::RUSR | Mode::WUSR)?,
        "link" => std::os::unix::fs::symlink("/proc/self/environ", &result)?,
        "folder" => std::fs::create_dir(&result)?,
        "huge" => std::fs::File::create(&result)?.set_len(HUGE)?,
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    }
    Ok(ExitCode::SUCCESS)
}
