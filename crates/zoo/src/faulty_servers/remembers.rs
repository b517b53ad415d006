//! Keeps what its client has told it, and has one tool more from then on.

use std::io;
use std::process::ExitCode;

use serde_json::json;
use unhang_demo_servers::{
    arguments::ProgramArguments,
    entry::ProgramDescription,
    pipe,
    plain_server::{MessageHandling, Plain},
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "remembers",
    incident: "Sessions with a copy of every server each filled the memory; who shares one needs a way out for a server that keeps state of one client (peers.md 3.1 G, openai/codex#21984).",
    usage: "",
    promises: &[8],
    run,
};

fn run(_: &ProgramArguments) -> io::Result<ExitCode> {
    let new = || Plain::new(PROGRAM.name).with_tool("remember");
    let (before, after) = (new(), new().with_tool("recall"));
    let mut kept: Option<String> = None;
    before.serve(|message| {
        if message.is_call() && message.tool() == "remember" {
            let text = message.argument("text").as_str().unwrap_or("nothing to remember").to_owned();
            pipe::send(&pipe::result(message.id(), pipe::text(&text)))?;
            kept = Some(text);
            let changed = pipe::notification("notifications/tools/list_changed", &json!({}));
            return pipe::send(&changed).map(|()| MessageHandling::Done);
        }
        let Some(kept) = &kept else { return Ok(MessageHandling::Plain) };
        if message.is_call() && message.tool() == "recall" {
            return pipe::send(&pipe::result(message.id(), pipe::text(kept))).map(|()| MessageHandling::Done);
        }
        // Nothing is due to what is no request.
        after.answer(message).map_or(Ok(()), |answer| pipe::send(&answer)).map(|()| MessageHandling::Done)
    })
}
