//! Wants another header for its tool than it listed, until it is asked for the list again.

use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::web::modern::{StatelessWebServer, mismatch};
use crate::web::{Then, serve};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "http-changes-headers",
    incident: "A server that is deployed anew refuses headers of the old list with -32020, for which a client has to list again (2026-07-28, SEP-2243).",
    usage: "",
    promises: &[1],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    let (server, lists) = (StatelessWebServer::new(PROGRAM.name, false), AtomicU64::new(0));
    serve("/mcp", move |asked, wire| {
        if asked.message.method() == "tools/list" {
            lists.fetch_add(1, Ordering::SeqCst);
        }
        // The command line lists before it calls; what counts is the list after that.
        if asked.message.is_call() && lists.load(Ordering::SeqCst) < 2 {
            return wire.json(400, &[], &mismatch(&asked.message, "mcp-param-zone")).map(|()| Then::Next);
        }
        server.serve(asked, wire)
    })
}
