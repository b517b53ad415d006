//! Is well behaved, but from its start after the first N on it answers the handshake only once a file is there.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::faulty_servers::well_behaved;
use crate::job_work;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "restarts-slowly",
    incident: "Seventeen seconds of imports pass between a restart and its handshake, and clients change their minds meanwhile (peers.md 3.1 I, palewire/datawrapper-mcp#82).",
    usage: "--count-file FILE --until FILE [N]",
    promises: &[1, 6],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    well_behaved::serve_at_first(arguments, |_| {
        let file = arguments.required("until")?;
        job_work::wait_until(|| std::fs::exists(file).unwrap_or(true));
        well_behaved::serve(arguments)
    })
}
