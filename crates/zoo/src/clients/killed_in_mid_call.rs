//! Kills itself with SIGKILL while its call is being worked on; the command lives on.

use std::io;
use std::process::ExitCode;

use rustix::process::{Signal, getpid, kill_process};
use serde_json::json;
use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::child_processes::ChildStreams;
use crate::plain_client::Guest;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "killed-in-mid-call",
    incident: "Desktop clients are killed, and about 1,500 servers were left behind on one machine (peers.md 3.1 F, delimit-ai/delimit-mcp-server#142).",
    usage: "-- CMD [ARGS...]",
    promises: &[5],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let mut guest = Guest::arrive_with(PROGRAM.name, arguments, ChildStreams::default(), true)?;
    guest.listen();
    guest.shake_hands()?;
    let call = guest.call("sleep", &json!({"ms": 60_000}))?;
    guest.forgive(call);
    guest.round_trip()?;
    guest.report("left alone")?;
    kill_process(getpid(), Signal::KILL)?;
    Ok(ExitCode::FAILURE)
}
