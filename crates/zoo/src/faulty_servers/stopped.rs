//! Stops itself with SIGSTOP once the handshake is done.

use std::io;
use std::process::ExitCode;

use rustix::process::{Signal, getpid, kill_process};
use unhang_demo_servers::{
    arguments::ProgramArguments,
    entry::ProgramDescription,
    plain_server::{MessageHandling, Plain},
};

use crate::child_processes::{Holds, Offspring};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "stopped",
    incident: "No thread reports it: a server stopped by Ctrl+Z or a debugger is alive, silent and deaf to SIGTERM until it is continued (contract.md part 5, point 6).",
    usage: "",
    promises: &[1, 6],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    let mut stopped = false;
    Plain::new(PROGRAM.name).serve(|message| {
        if !stopped && (message.method() == "notifications/initialized" || message.is_work()) {
            stopped = true;
            // A stopped process cannot keep its own bound, so a child keeps it.
            drop(
                Offspring {
                    holds: Holds::Nothing,
                    dies_with_parent: true,
                    ..Offspring::new(&["ends-parent"])
                }
                .start()?,
            );
            kill_process(getpid(), Signal::STOP)?;
        }
        Ok(MessageHandling::Plain)
    })
}
