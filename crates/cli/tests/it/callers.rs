//! Callers of tools, over pipes and over HTTP, and the slow server that they call.

use std::{
    fs,
    ops::{Deref, DerefMut},
};

use serde_json::{Value, json};

use crate::{
    gateway::server,
    harness::{Client, PATIENCE, Sandbox, Web, lab_program},
};

/// A server whose slow calls become jobs soon. It answers questions about these jobs, however busy the machine is.
pub(crate) fn slow_server(more: &str) -> String {
    let more = format!(
        "limits.promote-after = \"300ms\"\ntools.seen.promote-after = \"off\"\ntools.pid.promote-after = \"off\"\n{more}"
    );
    server("srv", &["slow-answers"], &more)
}

/// A call of `slow` that lasts so long, told from others by a label.
pub(crate) fn lasting(seconds: f64, label: &str) -> Value {
    json!({ "seconds": seconds, "label": label })
}

/// The text of a call of this size.
pub(crate) fn text(size: usize) -> String {
    let mut text: String = (0..size).step_by(16).map(|position| format!("{position:015} ")).collect();
    text.truncate(size);
    text
}

/// Over pipes or over HTTP, somebody who calls tools.
pub(crate) trait Calls {
    /// Asks, and gives the answer.
    fn ask(&mut self, method: &str, params: Value) -> Value;

    /// Returns the caller's name for a tool that has this name behind `unhang serve`.
    fn named(&self, tool: &str) -> String {
        tool.to_owned()
    }

    /// Calls a tool, and gives its result.
    #[track_caller]
    fn result(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.ask("tools/call", json!({ "name": self.named(tool), "arguments": arguments }));
        assert!(answer["result"].is_object(), "{tool}: {answer}");
        answer["result"].clone()
    }

    /// Returns the report of a job, and the words that say that there is no answer yet.
    #[track_caller]
    fn becomes_a_job(&mut self, arguments: Value) -> Value {
        let result = self.result("srv__slow", arguments);
        handed_over(&result)
    }

    /// The same of a call that may be made again without doing anything twice.
    #[track_caller]
    fn reads_as_a_job(&mut self, arguments: Value) -> Value {
        let result = self.result("srv__slow_read", arguments);
        handed_over(&result)
    }

    /// Returns the report of a job once the job has ended.
    #[track_caller]
    fn at_its_end(&mut self, job: &Value) -> Value {
        for _ in 0..PATIENCE.as_secs() {
            let told = self.result("get_job_status", json!({ "job_id": job, "wait_seconds": 2 }));
            let told = &told["structuredContent"];
            if !["queued", "starting", "running"].contains(&told["status"].as_str().expect("a word")) {
                return told.clone();
            }
        }
        panic!("job {job} does not end");
    }

    /// Returns the server's answer from a job that ends well.
    #[track_caller]
    fn whole(&mut self, job: &Value) -> Vec<Value> {
        let told = self.at_its_end(job);
        assert_eq!((&told["status"], &told["kind"]), (&json!("completed"), &json!("call")), "{told}");
        let result = self.result("get_job_results", json!({ "job_id": job }));
        assert_eq!(result["isError"], Value::Null, "{result:.500}");
        let blocks = result["content"].as_array().expect("blocks")[1..].to_vec();
        match blocks.is_empty() {
            true => vec![json!({ "type": "text", "text": self.in_parts(job, result) })],
            false => blocks,
        }
    }

    /// The text of an answer that comes in parts, of which this is the first.
    #[track_caller]
    fn in_parts(&mut self, job: &Value, mut result: Value) -> String {
        let mut whole = String::new();
        loop {
            let length = result.to_string().chars().count();
            assert!(length <= 25_000, "an answer of {length} characters");
            let text = result["content"][0]["text"].as_str().expect("text").to_owned();
            let mut lines = text.splitn(3, '\n');
            let sentence = lines.next().expect("a sentence");
            whole.push_str(lines.nth(1).unwrap_or_else(|| panic!("a part: {text:.500}")));
            let Some((_, next)) = sentence.split_once(", offset=") else { return whole };
            let next: usize = next.split_once(')').and_then(|(next, _)| next.parse().ok()).expect("a number");
            assert_eq!(whole.chars().count(), next);
            result = self.result("get_job_results", json!({ "job_id": job, "offset": next }));
        }
    }

    /// Returns the server's own counts.
    #[track_caller]
    fn of_server(&mut self) -> Value {
        let result = self.result("srv__seen", json!({}));
        // On a busy machine it may become a job itself behind a guard, where it cannot be left out of that.
        let job = &result["structuredContent"]["job_id"];
        assert!(job.is_null() || self.named("srv__seen") == "seen", "it was left out: {result}");
        let content = if job.is_string() { self.whole(job)[0].clone() } else { result["content"][0].clone() };
        serde_json::from_str(content["text"].as_str().expect("text")).expect("JSON")
    }

    /// The same in three numbers: begun, answered and cancelled.
    #[track_caller]
    fn counted(&mut self) -> [u64; 3] {
        let seen = self.of_server();
        ["begun", "answered", "cancelled"].map(|name| seen[name].as_u64().expect("a number"))
    }
}

impl Calls for Client {
    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params);
        self.answer(id)
    }
}

/// Somebody at a pipe, in front of the slow server behind `unhang serve` or `unhang wrap`.
pub(crate) struct StdioCaller {
    pub(crate) client: Client,
    pub(crate) is_guarded: bool,
}

impl Deref for StdioCaller {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl DerefMut for StdioCaller {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.client
    }
}

impl Calls for StdioCaller {
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.client.ask(method, params)
    }

    fn named(&self, tool: &str) -> String {
        match tool.strip_prefix("srv__") {
            _ if !self.is_guarded => tool.to_owned(),
            Some(theirs) => theirs.to_owned(),
            None => format!("unhang_{tool}"),
        }
    }
}

impl StdioCaller {
    /// A client of `unhang serve`.
    pub(crate) fn at(client: Client) -> StdioCaller {
        StdioCaller { client, is_guarded: false }
    }

    /// One in front of the slow server with these limits, which has not shaken hands yet.
    pub(crate) fn new(sandbox: &Sandbox, is_guarded: bool, limits: &[(&str, &str)]) -> StdioCaller {
        let mut command = sandbox.unhang();
        let is_moment = |(name, _): &&(&str, &str)| *name == "promote-after";
        let moment = limits.iter().find(is_moment).map(|(_, moment)| *moment);
        let is_joining = |(name, _): &&(&str, &str)| *name == "join-same-call";
        let joining = limits.iter().find(is_joining).map(|(_, joins)| *joins);
        let others = limits.iter().filter(|limit| !is_moment(limit) && (is_guarded || !is_joining(limit)));
        if is_guarded {
            // Nothing can be left out of it there, so that what is fast is given more time.
            command.args(["-v", "wrap", "--name", "srv", "--promote-after", moment.unwrap_or("1s")]);
            command.args(others.map(|(name, value)| format!("--{name}={value}")));
            command.args(["--", lab_program(), "zoo", "slow-answers"]);
        } else {
            let more: String = others.map(|(name, value)| format!("limits.{name} = {value:?}\n")).collect();
            let joins =
                joining.map(|joins| format!("[jobs]\njoin-same-call = {joins}\n")).unwrap_or_default();
            let config = slow_server(&more).replace("300ms", moment.unwrap_or("300ms")) + &joins;
            fs::write(sandbox.path().join("unhang.toml"), config).expect("a file");
            command.args(["-v", "serve"]);
        }
        StdioCaller { client: Client::start(command), is_guarded }
    }
}

/// The same behind `unhang serve` and `unhang wrap`, with these limits.
pub(crate) fn both(limits: &[(&str, &str)], test: impl Fn(&Sandbox, StdioCaller)) {
    for is_guarded in [false, true] {
        let sandbox = Sandbox::with_jobs();
        let mut caller = StdioCaller::new(&sandbox, is_guarded, limits);
        caller.initialize();
        test(&sandbox, caller);
        sandbox.assert_nothing_left();
    }
}

/// A client with a session over HTTP.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) web: Web,
    pub(crate) name: String,
}

impl Session {
    /// Begins one as this client.
    #[track_caller]
    pub(crate) fn begin(web: &Web, client: &str) -> Session {
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": client, "version": "1" } });
        let message = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let answer = web.post(&[], &message);
        let name = answer.header("mcp-session-id").expect("a name").to_owned();
        let said = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(web.post(&[("mcp-session-id", &name)], &said).status, 202);
        Session { web: web.clone(), name }
    }

    /// Ends it, as a client does that goes away.
    #[track_caller]
    pub(crate) fn end(self) {
        assert_eq!(self.web.ask("DELETE", "/mcp", &[("mcp-session-id", &self.name)], "").status, 200);
    }
}

impl Calls for Session {
    fn ask(&mut self, method: &str, params: Value) -> Value {
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        self.web.post(&[("mcp-session-id", &self.name)], &message).last()
    }
}

/// The job that a call has become, of which its model is told in words and programs in fields.
#[track_caller]
pub(crate) fn handed_over(result: &Value) -> Value {
    let job = result["structuredContent"]["job_id"].clone();
    let id = job.as_str().unwrap_or_else(|| panic!("no job: {result:.500}"));
    assert_eq!(result["structuredContent"]["status"], "running", "{result}");
    assert_eq!(result["isError"], Value::Null, "{result}");
    assert_eq!(id_in_words(result), id);
    job
}

/// The id that a model reads.
#[track_caller]
pub(crate) fn id_in_words(result: &Value) -> &str {
    let text = result["content"][0]["text"].as_str().expect("text");
    for words in [
        "continues in the background",
        "not its answer yet",
        "Do not call it again",
        "get_job_status(job_id=",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let id = text.split_once(" as job ").and_then(|(_, rest)| rest.get(..12));
    id.unwrap_or_else(|| panic!("no id: {text}"))
}
