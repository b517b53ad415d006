//! Sends the command SIGTERM while its call is being worked on.

use std::io;
use std::process::ExitCode;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::plain_client::Guest;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "terminates-in-mid-call",
    incident: "Clients end their servers by signal without waiting for answers; a guard that dies of it leaves the call unanswered (peers.md 3.1 F, anthropics/claude-code#50777).",
    usage: "-- CMD [ARGS...]",
    promises: &[1, 5],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let mut guest = Guest::introduced(PROGRAM.name, arguments)?;
    guest.call("sleep", &json!({"ms": 60_000}))?;
    guest.round_trip()?;
    let pid = i32::try_from(guest.pid()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
    kill_process(pid, Signal::TERM)?;
    guest.see_off()
}
