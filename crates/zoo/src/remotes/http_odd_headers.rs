//! Lists tools whose annotations for headers break the rules, beside one that is well.

use std::io;
use std::process::ExitCode;

use serde_json::json;
use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::web::modern::{StatelessWebServer, annotate};
use crate::web::{Then, serve};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "http-odd-headers",
    incident: "A header name with a line break in it is a way into a request; clients must leave such tools out (2026-07-28, SEP-2243).",
    usage: "",
    promises: &[2],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    let server = StatelessWebServer::new(PROGRAM.name, false);
    serve("/mcp", move |asked, wire| {
        if asked.message.method() != "tools/list" || !asked.message.is_request() {
            return server.serve(asked, wire);
        }
        let mut response = server.response(&asked.message).unwrap_or_default();
        let tools = &mut response["result"]["tools"];
        for (number, header) in ["", "two words", "line\r\nbreak"].into_iter().enumerate() {
            let mut tool = tools[1].clone();
            tool["name"] = json!(format!("odd-{number}"));
            annotate(&mut tool, "text", header);
            if let Some(tools) = tools.as_array_mut() {
                tools.push(tool);
            }
        }
        wire.json(200, &[], &response).map(|()| Then::Next)
    })
}
