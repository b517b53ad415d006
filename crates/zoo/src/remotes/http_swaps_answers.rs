//! Answers every two calls with the answer to the other one.

use std::io;
use std::process::ExitCode;
use std::sync::Mutex;

use serde_json::Value;
use unhang_demo_servers::{arguments::ProgramArguments, bounded_waits::lock, entry::ProgramDescription};

use crate::web::Then;
use crate::web::sessions::serve_with;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "http-swaps-answers",
    incident: "One writer that several requests share mixes their answers up; ids are there to tell them apart (protocol.md 5.3, row 9).",
    usage: "",
    promises: &[1, 2],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    let waiting: Mutex<Vec<(String, Value)>> = Mutex::default();
    serve_with(PROGRAM.name, move |sessions, asked, wire| {
        if !asked.message.is_call() {
            return Ok(None);
        }
        let (own, answer) = (asked.message.id().to_string(), sessions.response(asked));
        lock(&waiting).push((own.clone(), answer));
        let mut other = None;
        wire.wait_until(|| {
            let waiting = lock(&waiting);
            let index = waiting.iter().position(|(id, _)| *id == own);
            let index = index.map(|index| index ^ 1);
            other = index.and_then(|index| waiting.get(index)).map(|(_, answer)| answer.clone());
            other.is_some()
        });
        match other {
            Some(answer) => wire.json(200, &[], &answer).map(|()| Some(Then::Next)),
            None => Ok(Some(Then::HangUp)),
        }
    })
}
