//! Gives out a task in place of an answer, in the dialect of 2026-07-28: `tasks-modern` over HTTP.

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;
use unhang_demo_servers::{
    arguments::ProgramArguments, bounded_waits::now, entry::ProgramDescription,
    plain_server::METHOD_NOT_FOUND,
};

use crate::tasks::USAGE;
use crate::tasks::modern::{MISSING_CAPABILITY, ModernTaskServer, TaskAnswer};
use crate::web::modern::refusal;
use crate::web::wire::Wire;
use crate::web::{Then, WebRequest, serve};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "http-tasks-modern",
    incident: "Stands for no incident: the conformance suite speaks HTTP alone, and what is right for it here has to be right through a gateway (protocol.md 4.1).",
    usage: USAGE,
    promises: &[],
    run,
};

/// Between two looks at what became of tasks that somebody listens to.
const LOOK: Duration = Duration::from_millis(20);

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let server = ModernTaskServer::open(PROGRAM.name, arguments)?;
    serve("/mcp", move |asked, wire| answer(&server, asked, wire))
}

fn answer(server: &ModernTaskServer, asked: &WebRequest, wire: &mut Wire) -> io::Result<Then> {
    if !asked.is_post() {
        return wire.status(405).map(|()| Then::Next);
    }
    if !asked.message.is_request() {
        return wire.status(400).map(|()| Then::Next);
    }
    if let Some((status, refusal)) = refusal(asked) {
        return wire.json(status, &[], &refusal).map(|()| Then::Next);
    }
    match server.answer(&asked.message) {
        TaskAnswer::Now(response) => wire.json(status(&response), &[], &response)?,
        TaskAnswer::Later(length, response) => {
            let end = now() + length;
            // A client that goes away has cancelled.
            if !wire.wait_until(|| now() >= end) {
                return Ok(Then::HangUp);
            }
            wire.json(status(&response), &[], &response)?;
        }
        TaskAnswer::Listen(acknowledgement, mut listener) => {
            wire.begin_events(&[])?;
            wire.event(None, &acknowledgement)?;
            while !wire.is_gone_after(LOOK) {
                listener.news(server).iter().try_for_each(|news| wire.event(None, news))?;
            }
            return Ok(Then::HangUp);
        }
    }
    Ok(Then::Next)
}

/// The status that goes with a response.
fn status(response: &Value) -> u16 {
    match response["error"]["code"].as_i64() {
        Some(METHOD_NOT_FOUND) => 404,
        Some(MISSING_CAPABILITY) => 400,
        _ => 200,
    }
}
