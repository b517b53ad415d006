//! Serves MCP over HTTP as it should be, in each of the three ways that there are.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::web::modern::StatelessWebServer;
use crate::web::old::Old;
use crate::web::serve;
use crate::web::sessions::SessionWebServer;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "http-well-behaved",
    incident: "Stands for no incident: it is the honest server that shows what a client has to get along with (protocol.md 1.2).",
    usage: "[--dialect modern|session|sse] [--stream yes]",
    promises: &[],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let streams = arguments.option("stream")?.is_some();
    match arguments.option("dialect")?.unwrap_or("modern") {
        "modern" => {
            let server = StatelessWebServer::new(PROGRAM.name, streams);
            serve("/mcp", move |asked, wire| server.serve(asked, wire))
        }
        "session" => {
            let server = SessionWebServer::new(PROGRAM.name, streams);
            serve("/mcp", move |asked, wire| server.serve(asked, wire))
        }
        "sse" => {
            let server = Old::new(PROGRAM.name);
            serve("/sse", move |asked, wire| server.serve(asked, wire))
        }
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}
