//! A session offers its client methods, capabilities and lists.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    promotion::{BEHIND, TASK, job_report},
    servers::{TOOL, ask, known},
    *,
};
use crate::{session_catalog::SessionCatalog, tasks::JobCapabilities};
use unhang_core::{promotion::Promotion, revision::Revision};
use unhang_gateway::{KnownServers, Level, RequestTimeouts};

/// The members by which a request of 2026-07-28 introduces its client, which supports tasks.
const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;

fn alone() -> String {
    format!("{{{META}}}")
}

/// Returns the knowledge about one server. The times say when calls become jobs: of all its tools, and of single ones.
pub(super) fn promoting(
    promotion: Promotion,
    promotions: &[(&str, Promotion)],
    tools: &[&str],
) -> KnownServers {
    let promotions = promotions.iter().map(|(tool, promotion)| ((*tool).to_owned(), *promotion)).collect();
    let timeouts = RequestTimeouts { promotion, promotions, ..RequestTimeouts::default() };
    KnownServers { timeouts: Arc::new([(0, timeouts)].into()), ..known(tools, true) }
}

#[test]
fn a_session_offers_the_methods_of_what_is_behind_it_in_its_revision() {
    // With nothing, servers and jobs behind it: each in a session of 2025-11-25, and by itself.
    for (method, [plain, served, with_jobs]) in [
        ("ping", [(true, false), (true, false), (true, false)]),
        ("server/discover", [(false, true), (false, true), (false, true)]),
        ("tools/list", [(true, true), (true, true), (true, true)]),
        ("tools/call", [(true, true), (true, true), (true, true)]),
        ("prompts/list", [(false, false), (true, true), (false, false)]),
        ("prompts/get", [(false, false), (true, true), (false, false)]),
        ("resources/list", [(false, false), (true, true), (false, false)]),
        ("resources/templates/list", [(false, false), (true, true), (false, false)]),
        ("resources/read", [(false, false), (true, true), (false, false)]),
        ("completion/complete", [(false, false), (true, true), (false, false)]),
        ("resources/subscribe", [(false, false), (true, false), (false, false)]),
        ("resources/unsubscribe", [(false, false), (true, false), (false, false)]),
        ("logging/setLevel", [(false, false), (true, false), (false, false)]),
        ("subscriptions/listen", [(false, false), (false, true), (false, true)]),
        ("tasks/get", [(false, false), (false, false), (true, true)]),
        ("tasks/update", [(false, false), (false, false), (false, true)]),
        ("no/such", [(false, false), (false, false), (false, false)]),
    ] {
        for (number, (in_session, by_itself)) in [plain, served, with_jobs].into_iter().enumerate() {
            for (is_stateless, is_offered) in [(false, in_session), (true, by_itself)] {
                let mut front = match is_stateless {
                    true => TestSession::new(Limits::default()),
                    false => TestSession::shaken(Limits::default(), "2025-11-25"),
                };
                let revision = if is_stateless { "2026-07-28" } else { "2025-11-25" };
                match number {
                    0 => {}
                    1 => front.mcp_session = front.mcp_session.with_servers(known(&[TOOL], true)),
                    _ => front.mcp_session.jobs = BEHIND,
                }
                let params = if is_stateless { alone() } else { "{}".to_owned() };
                ask(&mut front, 1, method, &params);
                let received = front.received();
                let error = received.first().map(|message| message["error"].clone()).unwrap_or_default();
                assert_eq!(error["code"] != -32601, is_offered, "{method} {number} {revision}: {received:?}");
                if !is_offered {
                    let hint = match number {
                        1 => "it offers the methods of tools, prompts, resources and completions",
                        _ => "it offers tools/list and tools/call",
                    };
                    let happened =
                        format!("unhang does not offer the method `{method}` in the revision {revision}");
                    assert_eq!(error["message"], format!("{happened}; {hint}"));
                }
            }
        }
    }
}

fn own(name: &str, is_job: bool, listing: ToolListing) -> Definition {
    Definition { name: name.to_owned(), is_job, listing, ..echo() }
}

/// A catalog with a tool of its own, and with these servers.
fn catalog(is_job: bool, servers: Option<KnownServers>) -> SessionCatalog {
    let mut catalog = SessionCatalog::new([own("echo", is_job, ToolListing::First)].into(), None);
    if let Some(known) = servers {
        catalog.put_servers(known);
    }
    catalog
}

#[test]
fn tasks_are_offered_where_one_can_come_to_be() {
    let after = Promotion::After(seconds(5));
    let by_clock = || Some(promoting(Promotion::ByClock, &[], &[TOOL]));
    let off = || Some(promoting(Promotion::Off, &[], &[TOOL]));
    let one_tool = || Some(promoting(Promotion::Off, &[("now", after)], &[TOOL]));
    let no_promotion = JobCapabilities { promotes: false, ..BEHIND };
    let nothing = JobCapabilities { are_there: false, ..BEHIND };
    for (is_job, servers, jobs, is_offered) in [
        (true, None, BEHIND, true),
        (true, None, no_promotion, true),
        (true, None, nothing, false),
        (false, None, BEHIND, false),
        (false, by_clock(), BEHIND, true),
        (false, by_clock(), no_promotion, false),
        (false, by_clock(), nothing, false),
        (false, off(), BEHIND, false),
        (false, one_tool(), BEHIND, true),
        (true, off(), BEHIND, true),
    ] {
        let what = format!("{is_job} {servers:?} {jobs:?}");
        let catalog = catalog(is_job, servers);
        let offers =
            |revision, member: &str| catalog.handshake(revision, jobs)["capabilities"].get(member).cloned();
        let core = json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } });
        assert_eq!(offers(Revision::V2025November, "tasks"), is_offered.then_some(core), "{what}");
        assert_eq!(offers(Revision::V2025November, "extensions"), None, "{what}");
        assert_eq!(offers(Revision::V2025June, "tasks"), None, "{what}");
        assert_eq!(offers(Revision::V2024November, "tasks"), None, "{what}");
        let discovered = catalog.discovery(Revision::V2026July, jobs)["capabilities"].clone();
        let extension = json!({ "io.modelcontextprotocol/tasks": {} });
        assert_eq!(discovered.get("extensions").cloned(), is_offered.then_some(extension), "{what}");
        assert_eq!(discovered.get("tasks"), None, "{what}");
    }
    let alike = JobCapabilities { tells_callers_apart: false, ..BEHIND };
    let tasks =
        catalog(true, None).handshake(Revision::V2025November, alike)["capabilities"]["tasks"].clone();
    assert_eq!(
        tasks,
        json!({ "cancel": {}, "requests": { "tools": { "call": {} } } }),
        "nobody lists others' tasks"
    );
}

#[test]
fn a_session_says_what_may_change() {
    let changing = json!({ "tools": { "listChanged": true } });
    let all = json!({
        "tools": { "listChanged": true }, "prompts": { "listChanged": true },
        "resources": { "listChanged": true, "subscribe": true }, "completions": {}, "logging": {},
    });
    let none_yet = KnownServers { timeouts: Arc::default(), ..known(&[], true) };
    for (servers, tools_change, expect) in [
        (None, false, json!({ "tools": {} })),
        (None, true, changing.clone()),
        (Some(none_yet), false, changing),
        (Some(known(&[TOOL], true)), false, all),
    ] {
        let mut catalog = catalog(false, servers);
        if tools_change {
            catalog.tools_may_change();
        }
        let shaken = catalog.handshake(Revision::V2025June, JobCapabilities::default());
        assert_eq!((&shaken["capabilities"], &shaken["protocolVersion"]), (&expect, &json!("2025-06-18")));
        let discovered = catalog.discovery(Revision::V2026July, JobCapabilities::default());
        assert_eq!(discovered["capabilities"], expect);
    }
}

/// The result of `tools/list` for a client of this revision, with these tools of unhang and these servers.
fn listed(
    tools: &[Definition],
    servers: Option<KnownServers>,
    (revision, copes_with_tasks): (&str, bool),
    jobs: JobCapabilities,
) -> Value {
    let mut front = TestSession::new(Limits::default());
    front.mcp_session = McpSession::new(Limits::default(), tools.into(), None);
    front.mcp_session.jobs = jobs;
    if let Some(known) = servers {
        front.mcp_session = front.mcp_session.with_servers(known);
    }
    let params = match (revision, copes_with_tasks) {
        ("2026-07-28", true) => alone(),
        ("2026-07-28", false) => alone().replace(r#""io.modelcontextprotocol/tasks":{}"#, ""),
        _ => {
            ask(&mut front, 0, "initialize", &format!(r#"{{"protocolVersion":"{revision}"}}"#));
            front.received();
            "{}".to_owned()
        }
    };
    ask(&mut front, 1, "tools/list", &params);
    front.received().remove(0)["result"].clone()
}

#[test]
fn a_servers_tool_is_listed_with_what_may_become_of_its_calls() {
    const NOW: &str =
        r#"{"name":"now","inputSchema":{"type":"object"},"outputSchema":{"type":"object","x":1.0e0}}"#;
    let by_clock = || promoting(Promotion::ByClock, &[], &[NOW]);
    let off = || promoting(Promotion::Off, &[], &[NOW]);
    let not_this_one = || promoting(Promotion::ByClock, &[("now", Promotion::Off)], &[NOW]);
    let this_one = || promoting(Promotion::Off, &[("now", Promotion::ByClock)], &[NOW]);
    let no_promotion = JobCapabilities { promotes: false, ..BEHIND };
    let unsaid = || KnownServers { timeouts: Arc::default(), ..by_clock() };
    for (known, client, jobs, says_task, says_both) in [
        (by_clock(), ("2025-11-25", false), BEHIND, true, true),
        (by_clock(), ("2025-06-18", false), BEHIND, false, true),
        (by_clock(), ("2026-07-28", false), BEHIND, false, true),
        // It gets a task, and never words.
        (by_clock(), ("2026-07-28", true), BEHIND, false, false),
        (by_clock(), ("2025-11-25", false), no_promotion, false, false),
        (off(), ("2025-11-25", false), BEHIND, false, false),
        (not_this_one(), ("2025-11-25", false), BEHIND, false, false),
        (this_one(), ("2025-11-25", false), BEHIND, true, true),
        (unsaid(), ("2025-11-25", false), BEHIND, true, true),
    ] {
        let what = format!("{client:?} {jobs:?} {:?}", known.timeouts);
        let tools = listed(&[], Some(known), client, jobs)["tools"].clone();
        assert_eq!(tools.as_array().map(Vec::len), Some(1), "{what}");
        assert_eq!(tools[0]["name"], "srv__now", "{what}");
        let support = json!({ "taskSupport": "optional" });
        assert_eq!(tools[0].get("execution").cloned(), says_task.then_some(support), "{what}: {tools}");
        assert_eq!(tools[0]["outputSchema"].get("anyOf").is_some(), says_both, "{what}: {tools}");
    }
}

#[test]
fn a_tool_of_unhang_that_is_a_job_may_be_asked_for_as_a_task() {
    let nothing = JobCapabilities::default();
    for (is_job, revision, jobs, is_told) in [
        (true, "2025-11-25", BEHIND, true),
        (false, "2025-11-25", BEHIND, false),
        (true, "2025-11-25", nothing, false),
        (true, "2025-06-18", BEHIND, false),
        (true, "2026-07-28", BEHIND, false),
    ] {
        let tool = own("work", is_job, ToolListing::First);
        let listed = listed(&[tool], None, (revision, true), jobs)["tools"][0].clone();
        let support = json!({ "taskSupport": "optional" });
        assert_eq!(
            listed.get("execution").cloned(),
            is_told.then_some(support),
            "{is_job} {revision} {jobs:?}"
        );
    }
    for (is_job, method) in [(true, None), (false, Some(-32601))] {
        let mut front = TestSession::new(Limits::default());
        let tools = [own("work", is_job, ToolListing::First), own("other", !is_job, ToolListing::First)];
        front.mcp_session = McpSession::new(Limits::default(), tools.into(), None);
        front.mcp_session.jobs = BEHIND;
        ask(&mut front, 0, "initialize", r#"{"protocolVersion":"2025-11-25"}"#);
        front.received();
        ask(&mut front, 1, "tools/call", &TASK.replace("srv__now", "work"));
        let refused = front.received().first().map(|message| message["error"]["code"].clone());
        assert_eq!(refused, method.map(Value::from));
        // It answers at once with the job that it has begun, which is the task.
        let Some(key) = front.called().pop() else { continue };
        let answer = ToolAnswer { job: Some(Box::new(job_report())), ..answer("begun") };
        front.mcp_session.ended(front.now, key, &answer, &mut front.effects);
        assert_eq!(front.received()[0]["result"]["task"]["status"], "working");
        // Without a wish for a task, the answer is that of the tool.
        ask(&mut front, 2, "tools/call", r#"{"name":"work"}"#);
        let key = front.called()[0];
        front.mcp_session.ended(front.now, key, &answer, &mut front.effects);
        assert_eq!(front.received()[0]["result"]["content"][0]["text"], "begun");
    }
}

#[test]
fn tools_are_listed_in_their_places_and_kept_for_as_long_as_they_stay() {
    let tools = [
        own("last", false, ToolListing::Last),
        own("first", false, ToolListing::First),
        own("hidden", false, ToolListing::Nowhere),
    ];
    let names = |listed: &Value| -> Vec<String> {
        let tools = listed["tools"].as_array().expect("tools");
        tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
    };
    for (servers, life, expect) in [
        (None, 60_000, &["first", "last"][..]),
        // Servers may change their lists at any time.
        (Some(known(&[TOOL], true)), 0, &["first", "srv__now", "last"]),
    ] {
        let alone = listed(&tools, servers.clone(), ("2026-07-28", true), BEHIND);
        assert_eq!(names(&alone), expect);
        assert_eq!((&alone["ttlMs"], &alone["cacheScope"]), (&json!(life), &json!("private")));
        assert_eq!(alone["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "unhang");
        let in_session = listed(&tools, servers, ("2025-11-25", false), BEHIND);
        assert_eq!(names(&in_session), expect);
        assert_eq!(in_session.as_object().map(Map::len), Some(1), "{in_session}");
    }
    // Other lists have no tools of unhang in them.
    let mut front = TestSession::new(Limits::default());
    front.mcp_session = front.mcp_session.with_servers(known(&[TOOL], true));
    ask(&mut front, 1, "prompts/list", &alone());
    assert_eq!(front.received()[0]["result"]["prompts"], json!([{ "name": "srv__hello" }]));
}

#[test]
fn a_call_of_a_tool_of_unhang_is_checked_before_it_begins() {
    let tools = [own("echo", false, ToolListing::First), own("hidden", false, ToolListing::Nowhere)];
    let mut front = TestSession::new(Limits::default());
    front.mcp_session = McpSession::new(Limits::default(), tools.into(), None);
    ask(&mut front, 0, "initialize", r#"{"protocolVersion":"2025-11-25"}"#);
    front.received();
    let object = "give params.arguments as an object, or leave it out";
    for (params, expect) in [
        ("{}", "`tools/call` names no tool; give params.name"),
        (r#"{"name":"ech"}"#, "there is no tool `ech` (did you mean `echo`?); tools/list names all tools"),
        // It is listed nowhere, so that it is suggested to nobody.
        (r#"{"name":"hiddem"}"#, "there is no tool `hiddem`; tools/list names all tools"),
        (r#"{"name":"echo","arguments":[1]}"#, object),
        (r#"{"name":"echo","arguments":"x"}"#, object),
        (
            r#"{"name":"echo","arguments":{"x":123456789012345678901234567890}}"#,
            "unhang changes no number, so it does not accept this one",
        ),
    ] {
        ask(&mut front, 1, "tools/call", params);
        let error = front.heard_fault(1, -32602);
        assert!(error["message"].as_str().is_some_and(|text| text.ends_with(expect)), "{params}: {error}");
        assert!(front.actions().is_empty(), "{params}");
    }
    for (params, expect) in [
        (r#"{"name":"hidden"}"#, json!({})),
        (r#"{"name":"echo","arguments":null}"#, json!({})),
        (r#"{"name":"echo","arguments":{"x":[1.5]}}"#, json!({ "x": [1.5] })),
    ] {
        ask(&mut front, 2, "tools/call", params);
        match &front.actions()[..] {
            [SessionAction::Call { key, arguments, length, limit, .. }] => {
                assert_eq!((Value::from(arguments.clone()), *length), (expect, params.len()));
                assert_eq!(*limit, seconds(300));
                front.ends(*key, "x");
                front.received();
            }
            other => panic!("{params}: {other:?}"),
        }
    }
}

#[test]
fn a_request_to_a_server_says_what_the_server_and_the_gateway_need_to_know() {
    let windows = JobCapabilities { are_of_windows: true, promotes: false, ..BEHIND };
    let call = |more: &str| format!(r#"{{"name":"srv__now"{more}}}"#);
    let token = r#","_meta":{"progressToken":"p"}"#;
    let info = r#""io.modelcontextprotocol/clientInfo":{"name":"two"},"io.modelcontextprotocol/logLevel":"error","io.modelcontextprotocol/protocolVersion""#;
    let alone = format!(",{META}").replace(r#""io.modelcontextprotocol/protocolVersion""#, info);
    let read = r#"{"uri":"note:1"}"#.to_owned();
    let by_clock = || promoting(Promotion::ByClock, &[], &[TOOL]);
    let off = || promoting(Promotion::Off, &[], &[TOOL]);
    for (known, jobs, method, params, may_wait, may_be_a_job, wants_progress, key) in [
        (by_clock(), BEHIND, "tools/call", call(""), true, true, false, "client"),
        (by_clock(), BEHIND, "tools/call", call(token), true, true, true, "client"),
        (off(), BEHIND, "tools/call", call(""), false, false, false, "client"),
        (by_clock(), BEHIND, "resources/read", read.clone(), false, false, false, "client"),
        // The window decides how long it waits.
        (by_clock(), windows, "tools/call", call(""), true, false, false, "client"),
        (by_clock(), windows, "resources/read", read, true, false, false, "client"),
        // A request that stands alone says which of several clients asks.
        (by_clock(), BEHIND, "tools/call", call(&alone), true, true, false, "client two"),
        (by_clock(), windows, "tools/call", call(&alone), true, false, false, "client two"),
    ] {
        let mut front = TestSession::shaken(Limits::default(), "2025-11-25");
        let fairness_key = unhang_gateway::FairnessKey::one_of("client");
        front.mcp_session = front.mcp_session.with_servers(known).with_fairness_key(fairness_key);
        front.mcp_session.jobs = jobs;
        ask(&mut front, 1, method, &params);
        let mut actions = front.actions();
        let Some(SessionAction::Ask { asked, may_be_a_job: told, .. }) = actions.pop() else {
            panic!("{method} {params}")
        };
        assert_eq!(
            (asked.may_wait, told, asked.wants_progress, asked.fairness_key.name()),
            (may_wait, may_be_a_job, wants_progress, key),
            "{method} {params} {jobs:?}"
        );
        let is_alone = key != "client";
        assert_eq!(
            asked.signature.is_none(),
            is_alone,
            "what was said in the handshake is of its client alone"
        );
        // A window sends the log level of its client with each request.
        let level = (is_alone && jobs.are_of_windows).then_some(SessionAction::Log(Level::Error));
        assert_eq!(actions, Vec::from_iter(level), "{method} {params} {jobs:?}");
    }
}

#[test]
fn a_subscription_to_a_resource_has_the_limit_of_requests_to_its_server() {
    for (timeouts, limit) in [(BTreeMap::from([(0, seconds(7))]), 7), (BTreeMap::new(), 30)] {
        let timeouts = timeouts
            .into_iter()
            .map(|(server, request)| (server, RequestTimeouts { request, ..RequestTimeouts::default() }));
        let known = KnownServers { timeouts: Arc::new(timeouts.collect()), ..known(&[TOOL], true) };
        let mut front = TestSession::shaken(Limits::default(), "2025-11-25");
        front.mcp_session = front.mcp_session.with_servers(known);
        ask(&mut front, 1, "resources/subscribe", r#"{"uri":"note:1"}"#);
        match &front.actions()[..] {
            [SessionAction::Watch { limit: told, .. }] => assert_eq!(*told, seconds(limit)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_subscription_is_refused_on_a_stream_that_ends_with_the_answer() {
    let mut front = TestSession::new(Limits::default());
    front.mcp_session = front.mcp_session.with_servers(known(&[TOOL], true));
    front.effects.takes_only_answers = true;
    ask(&mut front, 1, "subscriptions/listen", &alone());
    let error = front.heard_fault(1, -32600);
    let expect =
        "`subscriptions/listen` came from a client that accepts only an answer; accept text/event-stream";
    assert_eq!(error["message"], expect);
    assert!(front.actions().is_empty());
}

#[test]
fn a_request_that_is_refused_says_what_to_do_instead() {
    let mut front = TestSession::shaken(Limits::default(), "2025-11-25");
    front.mcp_session = front.mcp_session.with_servers(known(&[TOOL], true));
    for (method, params, expect) in [
        (
            "logging/setLevel",
            r#"{"level":"loud"}"#,
            "`logging/setLevel` does not name a known level; name a level from debug (most messages) to emergency",
        ),
        (
            "prompts/list",
            r#"{"cursor":"x"}"#,
            "`prompts/list` has a cursor that unhang never gave out; ask without a cursor: the first page has all items",
        ),
        (
            "resources/unsubscribe",
            "{}",
            "`resources/unsubscribe` names no resource in params.uri; give the URI of the resource there",
        ),
        (
            "initialize",
            "{}",
            "`initialize` names no protocolVersion; name the newest revision that the client supports",
        ),
        (
            "tools/list",
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#,
            "`tools/list` has no io.modelcontextprotocol/clientCapabilities in params._meta; give each request both \
             members; an empty object is enough",
        ),
    ] {
        ask(&mut front, 1, method, params);
        assert_eq!(front.heard_fault(1, -32602)["message"], expect);
        assert!(front.actions().is_empty());
    }
    // A request that stands alone has no handshake, and is not answered before it says its revision.
    let mut front = TestSession::new(Limits::default());
    front.mcp_session = front.mcp_session.for_one_request();
    for (method, params) in [("initialize", r#"{"protocolVersion":"2025-11-25"}"#), ("ping", "{}")] {
        ask(&mut front, 2, method, params);
        front.heard_fault(2, -32602);
    }
}
