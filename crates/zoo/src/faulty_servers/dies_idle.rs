//! Dies while nobody asks it anything, so long after the handshake.

use std::io;
use std::process::ExitCode;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use unhang_demo_servers::{
    arguments::ProgramArguments,
    bounded_waits,
    entry::ProgramDescription,
    plain_server::{MessageHandling, Plain},
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "dies-idle",
    incident: "A stdio server that died between two calls was never started again (peers.md 3.1 H, anthropics/claude-code#43177).",
    usage: "[MS]",
    promises: &[6],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let delay = arguments.milliseconds(0, 500)?;
    let (doomed, death) = sync_channel::<()>(1);
    let reader = std::thread::spawn(move || {
        Plain::new(PROGRAM.name).serve(|message| {
            if message.method() == "notifications/initialized" {
                // Full means that the clock runs already.
                let _ = doomed.try_send(());
            }
            Ok(MessageHandling::Plain)
        })
    });
    if death.recv().is_ok() {
        let end = bounded_waits::now() + delay;
        while bounded_waits::now() < end && !reader.is_finished() {
            bounded_waits::pause(Duration::from_millis(5));
        }
        if !reader.is_finished() {
            return Ok(ExitCode::FAILURE);
        }
    }
    reader.join().unwrap_or(Ok(ExitCode::FAILURE))
}
