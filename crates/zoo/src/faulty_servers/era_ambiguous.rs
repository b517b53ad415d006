//! Refuses `server/discover` as unknown, but answers stateless requests under the old rules.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments,
    entry::ProgramDescription,
    plain_server::{MessageHandling, Plain},
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "era-ambiguous",
    incident: "The two Node servers measured answer discover with -32601 and a stateless tools/list without resultType (contract.md part 4).",
    usage: "",
    promises: &[1],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    Plain::new(PROGRAM.name).serve(|_| Ok(MessageHandling::Plain))
}
