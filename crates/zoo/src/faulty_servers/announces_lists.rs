//! Announces changes of its lists, when it is told to or without end, although the lists stay the same.

use std::{io, path::Path, process::ExitCode, thread, time::Duration};

use serde_json::json;
use unhang_demo_servers::{
    arguments::ProgramArguments,
    bounded_waits,
    entry::ProgramDescription,
    pipe,
    plain_server::{MessageHandling, Plain},
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "announces-lists",
    incident: "A server sent tools/list_changed without end although no tool had changed, and a proxy that asked for the list after each never came to rest (JetBrains/mcp-server-plugin#52, browseros-ai/BrowserOS#1005).",
    usage: "[--every MS] [--refuses-until FILE]",
    promises: &[8],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let every = arguments.number_option("every", 0)?;
    let until = arguments.option("refuses-until")?.map(Path::new);
    let mut was_listed = false;
    let server = Plain::new(PROGRAM.name).with_tool("announce");
    server.serve(|message| {
        if message.is_call() && message.tool() == "announce" {
            // In this order, so that whoever has the answer can wait for what follows from the announcement.
            announce(message.argument("text").as_str().unwrap_or("tools"))?;
            return Ok(MessageHandling::Plain);
        }
        if message.method() != "tools/list" {
            return Ok(MessageHandling::Plain);
        }
        if std::mem::replace(&mut was_listed, true) {
            if until.is_some_and(|file| !file.exists()) {
                let refused = pipe::error(message.id(), -32603, "the lists are being made");
                return pipe::send(&refused).map(|()| MessageHandling::Done);
            }
        } else if every > 0 {
            // It ends with the process.
            let _announcing = thread::spawn(move || -> io::Result<()> {
                loop {
                    bounded_waits::pause(Duration::from_millis(every));
                    announce("tools")?;
                }
            });
        }
        Ok(MessageHandling::Plain)
    })
}

fn announce(list: &str) -> io::Result<()> {
    pipe::send(&pipe::notification(&format!("notifications/{list}/list_changed"), &json!({})))
}
