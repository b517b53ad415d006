//! Serves MCP over HTTP as it should be, in each of the three ways that there are.

use std::io;
use std::process::ExitCode;

use crate::arguments::Arguments;
use crate::entry::Animal;
use crate::web::modern::Modern;
use crate::web::old::Old;
use crate::web::serve;
use crate::web::sessions::Sessions;

pub(crate) const ANIMAL: Animal = Animal {
    name: "http-well-behaved",
    incident: "Stands for no incident: it is the honest server that shows what a client has to get along with (protocol.md 1.2).",
    usage: "[--dialect modern|session|sse] [--stream yes]",
    promises: &[],
    run,
};

fn run(arguments: &Arguments) -> io::Result<ExitCode> {
    let streams = arguments.option("stream")?.is_some();
    match arguments.option("dialect")?.unwrap_or("modern") {
        "modern" => {
            let server = Modern::new(ANIMAL.name, streams);
            serve("/mcp", move |asked, wire| server.serve(asked, wire))
        }
        "session" => {
            let server = Sessions::new(ANIMAL.name, streams);
            serve("/mcp", move |asked, wire| server.serve(asked, wire))
        }
        "sse" => {
            let server = Old::new(ANIMAL.name);
            serve("/sse", move |asked, wire| server.serve(asked, wire))
        }
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}
