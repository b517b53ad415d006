//! Works on a call for a second and reports progress all the while, cancelled or not, and never answers a cancelled one.

use std::io;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use unhang_demo_servers::{
    arguments::ProgramArguments,
    bounded_waits,
    entry::ProgramDescription,
    pipe,
    plain_server::{MessageHandling, Plain},
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "progress-after-cancel",
    incident: "The Node server everything sent six more progress notifications after the call had been cancelled (contract.md part 4).",
    usage: "",
    promises: &[1],
    run,
};

/// A call takes one second in all.
const STEPS: u64 = 10;
const STEP: Duration = Duration::from_millis(100);

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    let cancelled = Arc::new(Mutex::new(Vec::new()));
    let server = Plain::new(PROGRAM.name);
    server.serve(|message| {
        if message.method() == "notifications/cancelled" {
            bounded_waits::lock(&cancelled).push(message.params()["requestId"].clone());
        }
        let Some(answer) = server.answer(message).filter(|_| message.is_call()) else {
            return Ok(MessageHandling::Plain);
        };
        let (cancelled, token) = (Arc::clone(&cancelled), message.progress_token().clone());
        let work = move || -> io::Result<()> {
            for step in 1..=STEPS {
                bounded_waits::pause(STEP);
                pipe::send(&pipe::progress(&token, step, STEPS))?;
            }
            if bounded_waits::lock(&cancelled).contains(&answer["id"]) { Ok(()) } else { pipe::send(&answer) }
        };
        std::thread::spawn(work);
        Ok(MessageHandling::Done)
    })
}
