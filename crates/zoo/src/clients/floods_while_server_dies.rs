//! Sends so many calls without waiting and lets every fiftieth kill the server.

use std::io;
use std::process::ExitCode;

use serde_json::json;
use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::plain_client::Guest;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "floods-while-server-dies",
    incident: "A call to a dead server waited for up to 30 minutes, and a flood of them meets every moment of its death (peers.md 3.1 B, MoonshotAI/kimi-code#2109).",
    usage: "[COUNT] -- CMD [ARGS...]",
    promises: &[1, 6],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let count = arguments.number(0, 500)?;
    let mut guest = Guest::introduced(PROGRAM.name, arguments)?;
    for number in 1..=count {
        if number % 50 == 0 {
            guest.call("die", &json!({"code": 9}))?;
        } else {
            guest.echo(100)?;
        }
        guest.request("tools/list", &json!({}))?;
    }
    guest.leave()
}
