//! Answers calls with a page of HTML and the status 200.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::web::Then;
use crate::web::sessions::serve_with;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "http-answers-html",
    incident: "A login page, or a page for browsers, stands where the server was said to be.",
    usage: "",
    promises: &[1, 2],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    serve_with(PROGRAM.name, |_, asked, wire| {
        if !asked.message.is_call() {
            return Ok(None);
        }
        let page = b"<!DOCTYPE html><title>Welcome</title>";
        wire.answer(200, &[], "text/html; charset=utf-8", page).map(|()| Some(Then::Next))
    })
}
