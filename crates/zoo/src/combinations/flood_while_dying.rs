//! Floods stdout and stderr at each call, with so many notifications and lines, and dies unanswered in the middle of them.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{
    arguments::ProgramArguments,
    entry::ProgramDescription,
    pipe,
    plain_server::{MessageHandling, Plain},
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "flood-while-dying",
    incident: "A dying server writes its dump on one pipe while its last messages stand in the other, and neither may keep it from dying (contract.md part 5, point 6; R-29).",
    usage: "[COUNT]",
    promises: &[1, 3, 6],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let count = arguments.number(0, 20_000)?;
    Plain::new(PROGRAM.name).serve(|message| {
        if !message.is_call() {
            return Ok(MessageHandling::Plain);
        }
        let dump =
            std::thread::spawn(move || pipe::complain_lines(100 * usize::try_from(count).unwrap_or(0)));
        for number in 1..=count {
            pipe::send(&pipe::log(&format!("message {number} of {count}")))?;
        }
        // A panic of the dump is a death too.
        let _ = dump.join();
        pipe::send_bytes(b"{\"jsonrpc\":\"2.0\",\"id\":")?;
        Ok(MessageHandling::Leave(ExitCode::FAILURE))
    })
}
