//! Changes its lists in the middle of its life and announces nothing, or never answers the request for one of them.
//!
//! It works on one request at a time.

use std::{io, process::ExitCode, time::Duration};

use serde_json::{Value, json};
use unhang_demo_servers::{
    arguments::ProgramArguments,
    bounded_waits,
    entry::ProgramDescription,
    pipe::{self, ClientMessage},
    plain_server::{INVALID_PARAMS, METHOD_NOT_FOUND, MessageHandling, Plain, settle_revision},
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "changes-lists",
    incident: "A stateless server had no way to announce that its tools had changed, and its clients kept the old list for days (NousResearch/hermes-agent#95988); a proxy went on to list the tools of a server's former version (obot-platform/obot#7918).",
    usage: "[--declares-changes true] [--withholds METHOD] [--refuses METHOD]",
    promises: &[1, 4],
    run,
};

/// The standard code of a server that is in trouble.
const INTERNAL_ERROR: i64 = -32603;

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let withheld = arguments.option("withholds")?.unwrap_or_default().to_owned();
    let refused = arguments.option("refuses")?.unwrap_or_default().to_owned();
    let declares = arguments.option("declares-changes")?.is_some();
    let mut grown = 0;
    Plain::new(PROGRAM.name).serve(|message| {
        if !message.is_request() || message.method() == withheld {
            return Ok(MessageHandling::Done);
        }
        let answered = match answer(message, &mut grown) {
            _ if message.method() == refused => pipe::error(message.id(), INTERNAL_ERROR, "it is broken"),
            Ok(mut result) => {
                if declares && message.method() == "initialize" {
                    for list in ["tools", "prompts", "resources"] {
                        result["capabilities"][list]["listChanged"] = true.into();
                    }
                }
                pipe::result(message.id(), result)
            }
            Err((code, text)) => pipe::error(message.id(), code, text),
        };
        pipe::send(&answered).map(|()| MessageHandling::Done)
    })
}

fn answer(message: &ClientMessage, grown: &mut u64) -> Result<Value, (i64, &'static str)> {
    let items = |member: &str, one: &dyn Fn(u64) -> Value| {
        let all: Vec<Value> = (0..=*grown).map(one).collect();
        Ok(json!({ member: all }))
    };
    let name = |number| format!("grown-{number}");
    Ok(match message.method() {
        "initialize" => json!({
            "protocolVersion": settle_revision(message),
            "capabilities": { "tools": {}, "prompts": {}, "resources": {} },
            "serverInfo": { "name": PROGRAM.name, "version": "1" },
        }),
        "ping" => json!({}),
        "tools/list" => {
            let tool = |name: String| json!({ "name": name, "inputSchema": { "type": "object" } });
            let fixed = ["grow", "block"].map(str::to_owned);
            let tools: Vec<Value> = fixed.into_iter().chain((0..=*grown).map(name)).map(tool).collect();
            json!({ "tools": tools })
        }
        "prompts/list" => return items("prompts", &|number| json!({ "name": name(number) })),
        "resources/list" => {
            let resource = |number| json!({ "name": name(number), "uri": format!("grown://{number}") });
            return items("resources", &resource);
        }
        "resources/templates/list" => json!({ "resourceTemplates": [] }),
        "tools/call" if message.tool() == "grow" => {
            *grown += 1;
            pipe::text(&name(*grown))
        }
        "tools/call" if message.tool() == "block" => {
            bounded_waits::pause(Duration::from_millis(message.argument("ms").as_u64().unwrap_or(0)));
            pipe::text("blocked")
        }
        "tools/call" => {
            let number = message.tool().strip_prefix("grown-").and_then(|number| number.parse().ok());
            match number.filter(|number: &u64| number <= grown) {
                Some(_) => pipe::text(message.tool()),
                None => return Err((INVALID_PARAMS, "there is no such tool")),
            }
        }
        _ => return Err((METHOD_NOT_FOUND, "there is no such method")),
    })
}
