//! Works on one request at a time and keeps nothing between calls; `work` blocks everything for as long as its call says.
//!
//! `seen` tells what the client has told it. With `--watch FILE` it tells of each subscribed resource when the length of the file changes.
//! With `--fails-beside FILE` it ends at its start while that file exists, and makes the file: a second one beside the first cannot start.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use unhang_demo_servers::{
    arguments::ProgramArguments,
    bounded_waits,
    entry::ProgramDescription,
    pipe::{self, ClientMessage},
    plain_server::{MessageHandling, Plain},
};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "one-at-a-time",
    incident: "A Python server with a blocking tool let `quick` wait behind `simulate`, although `simulate` had become a job (issue 24).",
    usage: "[--watch FILE] [--fails-beside FILE]",
    promises: &[7, 8],
    run,
};

/// The pause between two looks at the watched file.
const LOOK: Duration = Duration::from_millis(10);

type Subscribed = Arc<Mutex<BTreeSet<String>>>;

/// What the client has told the server.
#[derive(Default)]
struct Told {
    level: Value,
    roots: Value,
    subscribed: Subscribed,
}

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    if let Some(beside) = arguments.option("fails-beside")? {
        if Path::new(beside).exists() {
            return Ok(ExitCode::FAILURE);
        }
        fs::write(beside, "")?;
    }
    let mut told = Told::default();
    if let Some(file) = arguments.option("watch")? {
        let (file, subscribed) = (PathBuf::from(file), Arc::clone(&told.subscribed));
        thread::spawn(move || watch(&file, &subscribed));
    }
    let server = Plain::new(PROGRAM.name).with_tool("work").with_tool("seen");
    server.serve(|message| {
        let answer = match told.answer(message)? {
            Some(answer) => Some(answer),
            None => server.answer(message).map(declared),
        };
        answer.map_or(Ok(()), |answer| pipe::send(&answer)).map(|()| MessageHandling::Done)
    })
}

impl Told {
    /// Returns the answer to a message that the plain server does not know.
    fn answer(&mut self, message: &ClientMessage) -> io::Result<Option<Value>> {
        let (id, params) = (message.id(), message.params());
        let uri = || params["uri"].as_str().unwrap_or_default().to_owned();
        Ok(Some(match message.method() {
            "" => {
                self.roots = message.raw()["result"]["roots"].clone();
                return Ok(None);
            }
            "notifications/initialized" | "notifications/roots/list_changed" => {
                pipe::send(&json!({"jsonrpc": "2.0", "id": "roots", "method": "roots/list"}))?;
                return Ok(None);
            }
            "logging/setLevel" => {
                self.level = params["level"].clone();
                pipe::result(id, json!({}))
            }
            "resources/subscribe" => {
                bounded_waits::lock(&self.subscribed).insert(uri());
                pipe::result(id, json!({}))
            }
            "resources/unsubscribe" => {
                bounded_waits::lock(&self.subscribed).remove(&uri());
                pipe::result(id, json!({}))
            }
            "resources/list" => {
                let listed = json!([{"uri": "zoo://watched", "name": "watched"}]);
                pipe::result(id, json!({"resources": listed}))
            }
            "tools/call" if message.tool() == "work" => {
                let length = message.argument("ms").as_u64().unwrap_or(0);
                bounded_waits::pause(Duration::from_millis(length));
                pipe::result(id, pipe::text(&format!("{length} ms are over")))
            }
            "tools/call" if message.tool() == "seen" => {
                let subscribed: Vec<String> = bounded_waits::lock(&self.subscribed).iter().cloned().collect();
                let seen = json!({
                    "pid": std::process::id(), "level": self.level, "roots": self.roots, "subscribed": subscribed,
                });
                pipe::result(id, pipe::text(&seen.to_string()))
            }
            _ => return Ok(None),
        }))
    }
}

/// Declares resources in the answer to `initialize`.
fn declared(mut answer: Value) -> Value {
    if answer["result"]["capabilities"].is_object() {
        answer["result"]["capabilities"]["resources"] = json!({"subscribe": true});
    }
    answer
}

/// Tells of the subscribed resources whenever the length of the file changes.
fn watch(file: &Path, subscribed: &Subscribed) {
    let length = || fs::metadata(file).map_or(0, |metadata| metadata.len());
    let mut last = length();
    loop {
        bounded_waits::pause(LOOK);
        let now = length();
        if now == last {
            continue;
        }
        last = now;
        for uri in bounded_waits::lock(subscribed).iter() {
            let update = pipe::notification("notifications/resources/updated", &json!({"uri": uri}));
            if pipe::send(&update).is_err() {
                return;
            }
        }
    }
}
