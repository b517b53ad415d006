//! Behaves until it was idle for a while; from then on it answers nothing, reads nothing and stays, also when stdin ends.

use std::io;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};

use unhang_demo_servers::{
    arguments::ProgramArguments,
    bounded_waits::{self, BOUND},
    entry::ProgramDescription,
    pipe,
    plain_server::Plain,
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "hangs-idle",
    incident: "A call hung for 15 hours inside mcp-remote, whose process was alive all the while (peers.md 3.1 B, vishalsachdev/canvas-mcp#159).",
    usage: "[MS] [--once FILE]",
    promises: &[6],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let idle_limit = arguments.milliseconds(0, 500)?;
    let once = arguments.option("once")?;
    if once.is_some_and(|file| std::fs::exists(file).unwrap_or_default()) {
        return super::well_behaved::serve(arguments);
    }
    let (sender, messages) = sync_channel(1);
    let reader = std::thread::spawn(move || -> io::Result<()> {
        while let Some(message) = pipe::receive()? {
            if sender.send(message).is_err() {
                break;
            }
        }
        Ok(())
    });
    let server = Plain::new(PROGRAM.name);
    // Patience counts from the first message, else a slow client would meet a server that never was well.
    let mut awake = BOUND;
    loop {
        match messages.recv_timeout(awake) {
            Ok(message) => {
                server.answer(&message).map_or(Ok(()), |answer| pipe::send(&answer))?;
                awake = idle_limit;
            }
            Err(RecvTimeoutError::Disconnected) => {
                reader.join().unwrap_or(Ok(()))?;
                return Ok(ExitCode::SUCCESS);
            }
            Err(RecvTimeoutError::Timeout) => {
                once.map_or(Ok(()), |file| std::fs::write(file, std::process::id().to_string()))?;
                return Ok(bounded_waits::linger());
            }
        }
    }
}
