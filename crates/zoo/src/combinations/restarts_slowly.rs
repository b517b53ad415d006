//! Is well behaved, but from its start after the first N on it answers the handshake only once a file is there.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use crate::animals::well_behaved;
use crate::arguments::Arguments;
use crate::entry::Animal;
use crate::keeper::{self, BOUND};

pub(crate) const ANIMAL: Animal = Animal {
    name: "restarts-slowly",
    incident: "Seventeen seconds of imports pass between a restart and its handshake, and clients change their minds meanwhile (peers.md 3.1 I, palewire/datawrapper-mcp#82).",
    usage: "--count-file FILE --until FILE [N]",
    promises: &[1, 6],
    run,
};

fn run(arguments: &Arguments) -> io::Result<ExitCode> {
    well_behaved::serve_at_first(arguments, |_| {
        let file = arguments.required("until")?;
        let end = keeper::now() + BOUND;
        while !std::fs::exists(file)? && keeper::now() < end {
            keeper::pause(Duration::from_millis(5));
        }
        well_behaved::serve(arguments)
    })
}
