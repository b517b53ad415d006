//! Whose a name is, and what becomes of a request while nobody knows.

use std::{collections::BTreeMap, sync::Arc};

use unhang_bridge::Era;

use super::{
    servers::{TOOL, answered, ask, asked, fronted, known, raw, source},
    *,
};
use unhang_gateway::{
    KnownServers, RequestTimeouts, UnlistedServer,
    route::{
        catalog::{Catalog, ListedItems},
        names::Style,
    },
};

fn absent(servers: &[(&str, &str, Option<&str>)]) -> Arc<Vec<UnlistedServer>> {
    let unlisted = |(server, beginning, why): &(&str, &str, Option<&str>)| UnlistedServer {
        server: (*server).to_owned(),
        beginning: (*beginning).to_owned(),
        why: why.map(str::to_owned),
    };
    Arc::new(servers.iter().map(unlisted).collect())
}

#[test]
fn a_server_is_asked_by_its_own_name_for_what_the_client_named() {
    let mut front = fronted(known(&[TOOL], true));
    let prompt = |name: &str| format!(r#"{{"x":1.0e0,"ref":{{"type":"ref/prompt","name":"{name}"}}}}"#);
    let uri = |uri: &str| format!(r#"{{"ref":{{"type":"ref/resource","uri":"{uri}"}},"x":1.0e0}}"#);
    let named = |name: &str| format!(r#"{{"name":"{name}"}}"#);
    let located = |uri: &str| format!(r#"{{"uri":"{uri}"}}"#);
    for (method, params, expect, asked_for) in [
        ("tools/call", named("srv__now"), named("now"), None),
        ("prompts/get", named("srv__hello"), named("hello"), None),
        ("resources/read", located("note:1"), located("note:1"), Some(r#""note:1""#)),
        ("resources/read", located("srv+note:7"), located("note:7"), Some(r#""note:7""#)),
        ("completion/complete", prompt("srv__hello"), prompt("hello"), None),
        ("completion/complete", uri("note:{number}"), uri("note:{number}"), Some(r#""note:{number}""#)),
        // A resource without a template can be completed as well.
        ("completion/complete", uri("note:1"), uri("note:1"), Some(r#""note:1""#)),
    ] {
        ask(&mut front, 1, method, &params);
        let (key, asked) = asked(&mut front);
        assert_eq!((asked.method, &*asked.params), (method, &*expect), "{params}");
        assert_eq!(asked.asked_for.as_deref(), asked_for, "{method} {params}");
        assert_eq!(asked.tool.as_deref(), Some("now").filter(|_| method == "tools/call"), "{method}");
        front.mcp_session.answered(front.now, key, &answered(Era::Legacy, Ok(raw("{}"))), &mut front.effects);
    }
}

#[test]
fn a_request_about_nothing_that_is_known_says_what_is_wrong_with_it() {
    let why = Some("`late` could not be started: no such file");
    let known = KnownServers { absent: absent(&[("late", "late__", why)]), ..known(&[TOOL], true) };
    let mut front = fronted(known);
    let missing = "fix that server; unhang tries it again by itself";
    let prompts = "prompts/list names all prompts";
    let templates = "resources/templates/list names the templates";
    for (method, params, happened, hint) in [
        ("prompts/get", "{}", "`prompts/get` has no name in params.name", "give the name there"),
        ("resources/read", "{}", "`resources/read` has no name in params.uri", "give the name there"),
        (
            "completion/complete",
            r#"{"ref":{"type":"ref/prompt"}}"#,
            "`completion/complete` has no name in params.ref.name",
            "give the name there",
        ),
        (
            "completion/complete",
            r#"{"name":"srv__hello","uri":"note:1"}"#,
            "`completion/complete` has no name in params.ref.uri",
            "give the name there",
        ),
        (
            "completion/complete",
            r#"{"ref":{"type":"ref/resource","uri":"nobody:1"}}"#,
            "there is no resource or template `nobody:1`",
            templates,
        ),
        (
            "prompts/get",
            r#"{"name":"srv__hullo"}"#,
            "there is no prompt `srv__hullo` (did you mean `srv__hello`?)",
            prompts,
        ),
        ("prompts/get", r#"{"name":"note:1"}"#, "there is no prompt `note:1`", prompts),
        (
            "prompts/get",
            r#"{"name":"late__hello"}"#,
            "the prompt `late__hello` is not available, because `late` is not available: `late` could not be started: \
             no such file",
            missing,
        ),
        (
            "tools/call",
            r#"{"name":"late__now"}"#,
            "the tool `late__now` is not available, because `late` is not available: `late` could not be started: no \
             such file",
            missing,
        ),
    ] {
        ask(&mut front, 1, method, params);
        let error = front.heard_fault(1, -32602);
        assert_eq!(error["message"], format!("{happened}; {hint}"), "{method} {params}");
        assert!(front.actions().is_empty());
    }
}

#[test]
fn a_leader_is_asked_for_what_it_may_have_and_has_not_listed() {
    let unlisted = RequestTimeouts { call: seconds(7), ..RequestTimeouts::default() };
    let unlisted = BTreeMap::from([("late__".to_owned(), unlisted)]);
    let timeouts = RequestTimeouts { unlisted, ..RequestTimeouts::default() };
    let known = KnownServers { timeouts: Arc::new([(0, timeouts)].into()), ..known(&[TOOL], true) };
    let mut front = fronted(known);
    let named = r#"{"name":"late__x"}"#;
    let prompt = r#"{"ref":{"type":"ref/prompt","name":"late__x"}}"#;
    for (method, params, limit) in
        [("tools/call", named, 7), ("prompts/get", named, 30), ("completion/complete", prompt, 30)]
    {
        ask(&mut front, 1, method, params);
        let (key, asked) = asked(&mut front);
        assert_eq!((asked.server, &*asked.params, asked.limit), (0, params, seconds(limit)), "{method}");
        front.mcp_session.answered(front.now, key, &answered(Era::Legacy, Ok(raw("{}"))), &mut front.effects);
        front.received();
    }
    // A URI does not tell whose it is.
    ask(&mut front, 2, "resources/read", r#"{"uri":"late__x"}"#);
    front.heard_fault(2, -32002);
    ask(&mut front, 3, "prompts/get", r#"{"name":"other__x"}"#);
    front.heard_fault(3, -32602);
}

#[test]
fn a_tool_that_a_leader_may_have_is_not_taken_for_a_prompt_of_the_same_name() {
    let unlisted = BTreeMap::from([("srv__h".to_owned(), RequestTimeouts::default())]);
    let leader = RequestTimeouts { unlisted, ..RequestTimeouts::default() };
    let mut front =
        fronted(KnownServers { timeouts: Arc::new([(1, leader)].into()), ..known(&[TOOL], true) });
    for (method, server, name) in [("tools/call", 1, "srv__hello"), ("prompts/get", 0, "hello")] {
        ask(&mut front, 1, method, r#"{"name":"srv__hello"}"#);
        let (key, asked) = asked(&mut front);
        assert_eq!((asked.server, &*asked.params), (server, &*format!(r#"{{"name":"{name}"}}"#)), "{method}");
        front.mcp_session.answered(front.now, key, &answered(Era::Legacy, Ok(raw("{}"))), &mut front.effects);
    }
}

#[test]
fn a_request_waits_for_a_server_that_may_have_its_subject() {
    let prompt = |name: &str| format!(r#"{{"ref":{{"type":"ref/prompt","name":"{name}"}}}}"#);
    let uri = r#"{"ref":{"type":"ref/resource","uri":"other:1"}}"#.to_owned();
    let named = |name: &str| format!(r#"{{"name":"{name}"}}"#);
    for (beginning, method, params, waits) in [
        ("late__", "tools/call", named("late__x"), true),
        ("late__", "tools/call", named("srv__x"), false),
        ("late__", "tools/call", named("srv__now"), false),
        ("", "tools/call", named("anything"), true),
        // The tools of unhang itself come before those of servers; its prompts do not, for it has none.
        ("", "tools/call", named("echo"), false),
        ("", "prompts/get", named("echo"), true),
        ("late__", "prompts/get", named("late__x"), true),
        ("late__", "prompts/get", named("srv__x"), false),
        ("", "prompts/get", named("srv__hello"), false),
        ("late__", "completion/complete", prompt("late__x"), true),
        ("late__", "completion/complete", prompt("srv__x"), false),
        ("late__", "completion/complete", uri, true),
        ("late__", "resources/read", r#"{"uri":"other:1"}"#.to_owned(), true),
        ("late__", "resources/read", r#"{"uri":"note:1"}"#.to_owned(), false),
        ("late__", "resources/read", "{}".to_owned(), false),
        ("late__", "resources/subscribe", r#"{"uri":"other:1"}"#.to_owned(), true),
        ("late__", "resources/subscribe", "{}".to_owned(), false),
        ("late__", "resources/unsubscribe", r#"{"uri":"other:1"}"#.to_owned(), true),
        ("late__", "resources/unsubscribe", r#"{"uri":"note:1"}"#.to_owned(), false),
        ("", "tools/list", named("x"), false),
    ] {
        let known = KnownServers {
            absent: absent(&[("late", beginning, None)]),
            has_lists: true,
            ..known(&[TOOL], false)
        };
        let mut front = fronted(known);
        ask(&mut front, 1, method, &params);
        let is_silent = front.received().is_empty() && front.actions().is_empty();
        assert_eq!(is_silent, waits, "{beginning} {method} {params}");
    }
}

#[test]
fn a_request_that_has_waited_in_vain_names_the_only_server_that_could_have_had_its_subject() {
    let (late, other) = (("late", "late__", None), ("other", "other__", None));
    let (both, failed) = (("other", "late__", None), ("failed", "late__", Some("no such file")));
    let (named, located) = (r#"{"name":"late__x"}"#, r#"{"uri":"late__x"}"#);
    for (servers, method, params, code, server) in [
        (&[late][..], "tools/call", named, -32602, "late"),
        (&[late, other], "tools/call", named, -32602, "late"),
        (&[late, both], "tools/call", named, -32602, "unhang"),
        (&[late, failed], "prompts/get", named, -32602, "late"),
        // A URI does not name its server.
        (&[("late", "", None)], "resources/read", located, -32002, ""),
    ] {
        let unsettled = KnownServers { absent: absent(servers), ..known(&[TOOL], false) };
        let mut front = fronted(unsettled);
        ask(&mut front, 1, method, params);
        front.wait(seconds(3));
        assert!(front.received().is_empty(), "{servers:?}");
        front.mcp_session.servers_changed(front.now, &known(&[TOOL], true), &mut front.effects);
        let error = front.heard_fault(1, code);
        if code == -32602 {
            assert_eq!(
                (&error["data"]["server"], &error["data"]["elapsedMs"]),
                (&json!(server), &json!(3_000)),
                "{error}"
            );
        }
    }
}

#[test]
fn a_template_is_completed_by_the_server_that_has_it_though_that_of_another_fits() {
    let having = |template: &str| {
        let template = raw(&format!(r#"{{"uriTemplate":"{template}"}}"#));
        ListedItems { templates: vec![template], ..ListedItems::default() }
    };
    let (one, two) = (having("note:{one}"), having("note:{two}"));
    let sources = [source(0, "one", &one), source(1, "two", &two)];
    let catalog = Arc::new(Catalog::new(&Style::default(), &[], &sources));
    let mut front = fronted(KnownServers { catalog, ..known(&[TOOL], true) });
    for (template, server) in [("note:{one}", 0), ("note:{two}", 1)] {
        let params = format!(r#"{{"ref":{{"type":"ref/resource","uri":"{template}"}}}}"#);
        ask(&mut front, 1, "completion/complete", &params);
        let (key, asked) = asked(&mut front);
        assert_eq!((asked.server, &*asked.params), (server, &*params));
        front.mcp_session.answered(front.now, key, &answered(Era::Legacy, Ok(raw("{}"))), &mut front.effects);
    }
}

#[test]
fn a_name_without_a_beginning_gets_the_failure_of_the_only_server() {
    let why = Some("`late` did not answer `initialize` within 2s");
    let failed =
        |beginning| KnownServers { absent: absent(&[("late", beginning, why)]), ..known(&[TOOL], true) };
    let alone = |known: KnownServers| KnownServers {
        timeouts: Arc::new([(0, RequestTimeouts::default())].into()),
        ..known
    };
    let with_other = |known: KnownServers| {
        let timeouts = [(0, RequestTimeouts::default()), (1, RequestTimeouts::default())];
        KnownServers { timeouts: Arc::new(timeouts.into()), ..known }
    };
    for (known, names_cause) in
        [(alone(failed("")), true), (alone(failed("late__")), false), (with_other(failed("")), false)]
    {
        let mut front = fronted(known);
        ask(&mut front, 1, "tools/call", r#"{"name":"quick"}"#);
        let error = front.heard_fault(1, -32602);
        let message = error["message"].as_str().unwrap_or_default();
        assert_eq!(message.contains("within 2s"), names_cause, "{error}");
    }
}
