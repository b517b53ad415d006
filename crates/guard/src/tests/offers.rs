//! What a client hears of tools and tasks beside what its server has said.

use serde_json::json;

use super::{super::added_capabilities::PREFIXES, *};
use unhang_core::revision::Revision;
use unhang_tools::listed_by_the_guard;

impl Guarded {
    /// The list of tools as its client has it, where the server has this.
    fn listed(&mut self, id: u64, server: &Value) -> Value {
        self.client(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list","params":{{}}}}"#));
        self.said();
        self.server(&json!({"jsonrpc":"2.0","id":id,"result":server}).to_string());
        self.received()[0]["result"].clone()
    }

    /// The names in that list.
    fn names(&mut self, id: u64, server: &Value) -> Vec<String> {
        let listed = self.listed(id, server);
        let tools = listed["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// The tool that an agent is told to ask next.
    fn next_tool(&mut self) -> &'static str {
        self.call(99);
        self.wait(seconds(45));
        self.order().names.prefix
    }
}

const OWN: [&str; 3] = ["get_job_status", "get_job_results", "terminate_job"];

fn prefixed(prefix: &str) -> Vec<String> {
    OWN.iter().map(|name| format!("{prefix}{name}")).collect()
}

fn tool(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}})
}

#[test]
fn the_tools_about_jobs_stand_behind_the_last_of_the_server() {
    let mut guarded = Guarded::with_jobs(Limits::default());
    let first = json!({"tools": [tool("a")], "nextCursor": "2"});
    assert_eq!(guarded.names(1, &first), ["a"]);
    let last = guarded.names(2, &json!({"tools": [tool("b")], "x": 1.0}));
    assert_eq!((last[0].as_str(), &last[1..]), ("b", &prefixed("unhang_")[..]));
    let listed = guarded.listed(3, &json!({"tools": [tool("b")], "x": [1.0], "_meta": {"y": "z"}}));
    assert_eq!(
        (&listed["x"], &listed["_meta"]),
        (&json!([1.0]), &json!({"y": "z"})),
        "the rest is as it was"
    );
    assert_eq!(listed["tools"][0]["execution"]["taskSupport"], "optional");
    assert_eq!(listed["tools"][1]["execution"], Value::Null, "ours answer at once");
    assert!(listed["tools"][1]["inputSchema"].is_object() && listed["tools"][1]["outputSchema"].is_object());
    guarded.request(4, "tools/list");
    guarded.server(r#"{"jsonrpc":"2.0","id":4,"error":{"code":-32000,"message":"m"}}"#);
    assert_eq!(guarded.received()[0]["error"]["code"], -32000);
    let mut without = Guarded::shaken(Limits::default());
    let page = json!({"tools": [tool("a")]});
    assert_eq!(without.listed(1, &page), page, "nobody keeps jobs");
}

#[test]
fn tools_of_ours_are_called_what_none_of_the_server_is() {
    // A guard behind a guard.
    let of_another: Vec<Value> = prefixed("unhang_").iter().map(|name| tool(name)).collect();
    let mut guarded = Guarded::with_jobs(Limits::default());
    let names = guarded.names(1, &json!({"tools": of_another}));
    assert_eq!(names, [prefixed("unhang_"), prefixed("unhang2_")].concat());
    assert_eq!(guarded.next_tool(), "unhang2_");
    guarded.client(r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"unhang_list_jobs"}}"#);
    assert_eq!(guarded.effects.local_jobs.len(), 0, "it is the server's");
    // Once an agent has been told a name it stays, and the server's tool of that name is the server's.
    let mut guarded = Guarded::with_jobs(Limits::default());
    assert_eq!(guarded.next_tool(), "unhang_");
    let names = guarded.names(1, &json!({"tools": [tool("unhang_terminate_job")]}));
    assert_eq!(names.iter().filter(|name| *name == "unhang_terminate_job").count(), 1, "{names:?}");
    assert_eq!(names.len(), 3);
    guarded
        .client(r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"unhang_terminate_job"}}"#);
    assert_eq!(guarded.effects.local_jobs.len(), 0, "it is the server's");
}

#[test]
fn f_73_the_guard_adds_three_tools_in_two_and_a_half_kilobytes() {
    for prefix in PREFIXES {
        let tools: Vec<String> = listed_by_the_guard(ToolNames { prefix })
            .map(|tool| tool.to_json(Revision::V2025November).to_string())
            .collect();
        let bytes: usize = tools.iter().map(String::len).sum();
        assert_eq!(tools.len(), 3);
        assert!(bytes <= 2500, "{bytes} bytes: {tools:#?}");
    }
}

impl Guarded {
    /// A session of a client of this name, of which every word of the server says that its tools never change.
    fn of_client(name: &str) -> (Guarded, Value) {
        let mut guarded = Guarded::new(Limits::default());
        guarded.wrap_session = guarded.wrap_session.with_jobs();
        guarded.client(&INITIALIZE.replace(r#""name":"test""#, &format!(r#""name":"{name}""#)));
        guarded.server(
            r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"x":1},"y":{}}}}"#,
        );
        guarded.client(INITIALIZED);
        let capabilities = guarded.received()[0]["result"]["capabilities"].clone();
        guarded.said();
        (guarded, capabilities)
    }

    /// What the client hears when a call becomes a job.
    fn promotes(&mut self, id: u64) -> Vec<Value> {
        self.call(id);
        self.wait(seconds(45));
        let order = self.order();
        assert!(self.wrap_session.promoted(
            self.now,
            (&order.call, order.order),
            ("j", "{}"),
            &mut self.effects
        ));
        self.received()
    }
}

#[test]
fn f_73_a_client_that_follows_its_list_gets_the_tools_with_its_first_job() {
    let page = json!({"tools": [tool("a")]});
    let (mut guarded, capabilities) = Guarded::of_client("Visual Studio Code");
    assert_eq!(capabilities["tools"], json!({"x": 1, "listChanged": true}));
    assert!(capabilities["tasks"].is_object() && capabilities["y"].is_object(), "{capabilities}");
    assert_eq!(guarded.names(1, &page), ["a"]);
    // Who knows their names is answered all the same.
    guarded.client(r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"unhang_list_jobs"}}"#);
    assert!(!guarded.effects.local_jobs.is_empty());
    let received = guarded.promotes(6);
    assert_eq!(received[0]["method"], "notifications/tools/list_changed", "{received:?}");
    assert_eq!((received.len(), &received[1]["id"]), (2, &json!(6)), "and then the answer: {received:?}");
    assert_eq!(guarded.names(7, &page), [&["a".to_owned()][..], &prefixed("unhang_")].concat());
    assert_eq!(guarded.promotes(8).len(), 1, "it is told once");
    // The next session has them from the start.
    guarded.client(
        &INITIALIZE
            .replace(r#""name":"test""#, r#""name":"Visual Studio Code""#)
            .replace(r#""id":0"#, r#""id":9"#),
    );
    guarded.received();
    assert_eq!(guarded.names(10, &page).len(), 4);
    let (mut unknown, capabilities) = Guarded::of_client("somebody");
    assert_eq!(capabilities["tools"], json!({"x": 1}));
    assert_eq!(unknown.names(1, &page).len(), 4);
    assert_eq!(unknown.promotes(2).len(), 1);
}

#[test]
fn f_73_a_job_that_is_a_task_is_no_use_for_tools() {
    let (mut guarded, _) = Guarded::of_client("opencode 1.1");
    guarded.tools_are_listed();
    guarded.wrap_session.added_capabilities.as_mut().unwrap().wait_for_use(true);
    guarded.client(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","task":{}}}"#);
    guarded.wait(seconds(1));
    let order = guarded.order();
    assert!(guarded.wrap_session.promoted(
        guarded.now,
        (&order.call, order.order),
        ("j", "{}"),
        &mut guarded.effects
    ));
    assert_eq!(guarded.received().len(), 1, "it asks with tasks/get");
    assert_eq!(guarded.names(2, &json!({"tools": [tool("a")]})), ["a"]);
}

#[test]
fn what_a_server_says_of_repeating_a_tool_is_known() {
    let mut guarded = Guarded::with_jobs(Limits::default());
    let hinted = |hint: &str, says: bool| json!({"tools": [{"name": "t", "annotations": {hint: says}}]});
    for (id, (hint, says)) in (1..).zip([
        ("readOnlyHint", true),
        ("idempotentHint", false),
        ("idempotentHint", true),
        ("title", true),
    ]) {
        guarded.listed(id, &hinted(hint, says));
        guarded.call(50 + id);
        guarded.wait(seconds(45));
        let order = guarded.order();
        assert_eq!(order.is_repeatable, says && hint != "title", "{hint}: {says}");
        guarded.answer(50 + id);
        guarded.received();
    }
}

#[test]
fn what_is_learned_of_a_server_is_bounded() {
    let mut guarded = Guarded::with_jobs(Limits::default());
    for page in 0..10 {
        let tools: Vec<Value> = (0..1000)
            .map(|number| json!({"name": format!("unhang-{page}-{number}"), "annotations": {"readOnlyHint": true}}))
            .collect();
        guarded.listed(page + 1, &json!({"tools": tools, "nextCursor": "more"}));
    }
    assert_eq!(guarded.wrap_session.added_capabilities.as_ref().unwrap().learned(), (4096, 4096));
}

#[test]
fn tasks_are_offered_where_the_server_has_tools_and_none_of_its_own() {
    let of =
        |revision: &str, capabilities: &str| Guarded::introduced(Limits::default(), revision, capabilities).1;
    let offered = of("2025-11-25", r#"{"tools":{"listChanged":true},"x":{}}"#);
    assert_eq!(offered["tasks"]["requests"], json!({"tools": {"call": {}}}), "{offered}");
    assert_eq!((&offered["tools"], &offered["x"]), (&json!({"listChanged": true}), &json!({})));
    for (revision, capabilities) in [
        ("2025-06-18", r#"{"tools":{}}"#),
        ("2025-11-25", r#"{"prompts":{}}"#),
        ("2025-11-25", r#"{"tools":{},"tasks":{"list":{}}}"#),
    ] {
        let own: Value = serde_json::from_str(capabilities).unwrap();
        assert_eq!(of(revision, capabilities), own, "{revision}");
    }
}

#[test]
fn a_server_that_has_tasks_keeps_them() {
    let own = r#"{"tools":{},"tasks":{"requests":{"tools":{"call":{}}}}}"#;
    let (mut guarded, _) = Guarded::introduced(Limits::default(), "2025-11-25", own);
    guarded.client(r#"{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"abcdefgh2345"}}"#);
    assert_eq!((guarded.said().len(), guarded.effects.local_jobs.len()), (1, 0));
    let schema = json!({"type": "object", "properties": {"x": {"type": "integer"}}});
    let theirs =
        json!({"tools": [{"name": "t", "execution": {"taskSupport": "forbidden"}, "outputSchema": schema}]});
    let listed = guarded.listed(2, &theirs);
    assert_eq!(listed["tools"][0]["execution"]["taskSupport"], "forbidden", "what it says of them");
    assert!(
        listed["tools"][0]["outputSchema"]["anyOf"].is_array(),
        "and calls are handed over in words: {listed}"
    );
    guarded.call(3);
    guarded.wait(seconds(45));
    assert_eq!(guarded.order().promotion_reply, unhang_front::PromotionReply::Words);
}

#[test]
fn tasks_of_the_extension_are_offered_to_clients_without_a_handshake() {
    let ask = |capabilities: &str| {
        let mut guarded = Guarded::new(Limits::default());
        guarded.wrap_session = guarded.wrap_session.with_jobs();
        let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;
        guarded
            .client(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{{{meta}}}}}"#));
        guarded.server(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"resultType":"complete","capabilities":{capabilities}}}}}"#
        ));
        let offered = guarded.received()[0]["result"]["capabilities"].clone();
        guarded.client(&format!(r#"{{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{{{meta}}}}}"#));
        guarded.server(r#"{"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","tools":[{"name":"t","outputSchema":{"type":"object"}}]}}"#);
        let schema = guarded.received()[0]["result"]["tools"][0]["outputSchema"].clone();
        (offered["extensions"].clone(), schema["anyOf"].is_array())
    };
    let tasks = json!({"io.modelcontextprotocol/tasks": {}});
    assert_eq!(ask(r#"{"tools":{}}"#), (tasks.clone(), false), "it gets tasks, and no words");
    let both = json!({"io.modelcontextprotocol/tasks": {}, "x/y": {}});
    assert_eq!(ask(r#"{"tools":{},"extensions":{"x/y":{}}}"#), (both, false));
    assert_eq!(
        ask(r#"{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#),
        (tasks, true),
        "its own, or words"
    );
}
