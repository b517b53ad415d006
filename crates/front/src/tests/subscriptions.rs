//! Who hears of what has changed, as far as the session knows of it.

use std::sync::Arc;

use unhang_gateway::{KnownAnnouncements, KnownServers};

use super::{
    servers::{TOOL, known, known_at},
    *,
};

const OTHER: &str = r#"{"name":"later","inputSchema":{"type":"object"}}"#;

fn listens(front: &mut TestSession, id: &str, filter: &str) {
    front.says(&format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"subscriptions/listen","params":{{"notifications":{filter},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
    ));
}

fn subscription(message: &Value) -> &Value {
    let of = |holder: &str| &message[holder]["_meta"]["io.modelcontextprotocol/subscriptionId"];
    if message["params"].is_null() { of("result") } else { of("params") }
}

fn fronted() -> TestSession {
    let mut front = TestSession::new(Limits::default());
    front.mcp_session = front.mcp_session.with_servers(known(&[TOOL], true));
    front
}

#[test]
fn a_subscription_hears_what_it_asked_for_under_its_own_id() {
    let mut front = fronted();
    listens(&mut front, "1", r#"{"toolsListChanged":true,"resourceSubscriptions":[]}"#);
    listens(&mut front, r#""two""#, r#"{"promptsListChanged":true,"toolsListChanged":false}"#);
    let acknowledged = front.received();
    for (message, id, filter) in [
        (&acknowledged[0], json!(1), json!({ "toolsListChanged": true })),
        (&acknowledged[1], json!("two"), json!({ "promptsListChanged": true })),
    ] {
        assert_eq!(message["method"], "notifications/subscriptions/acknowledged");
        assert_eq!((subscription(message), &message["params"]["notifications"]), (&id, &filter));
    }
    front.mcp_session.servers_changed(front.now, &known(&[TOOL, OTHER], true), &mut front.effects);
    let told = front.received();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["method"], "notifications/tools/list_changed");
    assert_eq!(subscription(&told[0]), &json!(1));
    // Who has heard enough hears nothing more, not even an answer.
    front.says(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    front.mcp_session.servers_changed(front.now, &known(&[TOOL], true), &mut front.effects);
    assert!(front.received().is_empty());
    // It has no limit.
    front.wait(seconds(100_000));
    assert!(front.received().is_empty());
}

#[test]
fn a_subscription_ends_with_us_and_by_a_result() {
    for end in [
        McpSession::client_end as fn(&mut McpSession, Duration, &mut RecordedClient),
        |mcp_session, now, effects| {
            mcp_session.stop(now, 0, "of a test", effects);
        },
    ] {
        let mut front = fronted();
        listens(&mut front, "7", "{}");
        front.received();
        end(&mut front.mcp_session, front.now, &mut front.effects);
        let last = front.received().remove(0);
        assert_eq!((&last["id"], &last["result"]["resultType"]), (&json!(7), &json!("complete")), "{last}");
        assert_eq!(subscription(&last), &json!(7));
        assert!(front.actions().contains(&SessionAction::Exit(0)), "it keeps nobody waiting");
    }
}

/// A session that hears of a resource.
fn subscribed() -> (TestSession, CallKey) {
    let mut front = TestSession::shaken(Limits::default(), "2025-11-25");
    front.mcp_session = front.mcp_session.with_servers(known(&[TOOL], true));
    front.says(r#"{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"note:1"}}"#);
    match &front.actions()[..] {
        [SessionAction::Watch { key, resource: (0, uri), .. }] if &**uri == "note:1" => (front, *key),
        other => panic!("{other:?}"),
    }
}

fn updated(front: &mut TestSession, uri: &str) -> Vec<Value> {
    front.mcp_session.updated(front.now, &(0, uri.into()), &mut front.effects);
    front.received()
}

#[test]
fn a_session_hears_of_the_resources_that_it_has_subscribed_to() {
    let (mut front, key) = subscribed();
    assert!(front.received().is_empty(), "it is answered when the server has");
    front.mcp_session.watched(front.now, key, &(0, "note:1".into()), Ok(()), &mut front.effects);
    assert_eq!(front.received()[0], json!({ "jsonrpc": "2.0", "id": 1, "result": {} }));
    let told = updated(&mut front, "note:1");
    assert_eq!(
        (&told[0]["method"], &told[0]["params"]),
        (&json!("notifications/resources/updated"), &json!({ "uri": "note:1" }))
    );
    assert_eq!(updated(&mut front, "note:1/part")[0]["params"]["uri"], "note:1/part");
    for other in ["note:12", "note:2", "other:1"] {
        assert!(updated(&mut front, other).is_empty(), "{other}");
    }
    front.says(r#"{"jsonrpc":"2.0","id":2,"method":"resources/unsubscribe","params":{"uri":"note:1"}}"#);
    assert_eq!(front.received()[0]["result"], json!({}));
    assert!(matches!(&front.actions()[..], [SessionAction::Unwatch((0, _))]));
    assert!(updated(&mut front, "note:1").is_empty());
}

#[test]
fn a_subscription_that_comes_to_nothing_is_an_error() {
    let (mut front, key) = subscribed();
    let error = unhang_upstream::client::Error::Disposed;
    front.mcp_session.watched(front.now, key, &(0, "note:1".into()), Err(error), &mut front.effects);
    assert!(front.received()[0]["error"]["message"].is_string());
    assert!(updated(&mut front, "note:1").is_empty());
    front.says(r#"{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"elsewhere:1"}}"#);
    front.heard_fault(2, -32002);
    front.says(r#"{"jsonrpc":"2.0","id":3,"method":"resources/subscribe","params":{}}"#);
    front.heard_fault(3, -32602);
}

#[test]
fn a_subscription_without_a_session_hears_of_resources_too() {
    let mut front = fronted();
    listens(&mut front, "1", r#"{"resourceSubscriptions":["note:1","elsewhere:1"]}"#);
    assert_eq!(
        front.received()[0]["params"]["notifications"],
        json!({ "resourceSubscriptions": ["note:1"] })
    );
    assert!(matches!(&front.actions()[..], [SessionAction::Watch { resource: (0, _), .. }]));
    let told = updated(&mut front, "note:1");
    assert_eq!((subscription(&told[0]), &told[0]["params"]["uri"]), (&json!(1), &json!("note:1")));
    front.says(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    assert!(front.actions().iter().any(|action| matches!(action, SessionAction::Unwatch((0, _)))));
    assert!(updated(&mut front, "note:1").is_empty());
}

#[test]
fn subscriptions_of_a_session_are_bounded() {
    let (mut front, _) = subscribed();
    // It hears of one already.
    for number in 1..unhang_core::config::MAX_SUBSCRIPTIONS {
        let resource = (0, number.to_string().into());
        assert!(front.mcp_session.watched.add(resource, number.to_string()).is_ok(), "there is room");
    }
    front.says(r#"{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"note:2"}}"#);
    front.heard_fault(2, -31005);
}

#[test]
fn what_is_watched_is_watched_where_it_has_gone() {
    let (mut front, key) = subscribed();
    front.mcp_session.watched(front.now, key, &(0, "note:1".into()), Ok(()), &mut front.effects);
    listens(&mut front, "9", r#"{"resourceSubscriptions":["note:1"]}"#);
    front.received();
    front.actions();
    // The server that has it is another one, or none for a while.
    let mut elsewhere = known(&[TOOL], true);
    elsewhere.catalog = Arc::default();
    front.mcp_session.servers_changed(front.now, &elsewhere, &mut front.effects);
    assert!(front.actions().is_empty(), "nobody else has it");
    front.mcp_session.servers_changed(front.now, &known_at(4, &[TOOL], true), &mut front.effects);
    match &front.actions()[..] {
        [SessionAction::Unwatch((0, _)), SessionAction::Watch { resource: (4, uri), .. }] => {
            assert_eq!(&**uri, "note:1");
        }
        other => panic!("once for all that watch it: {other:?}"),
    }
    front.received();
    front.mcp_session.updated(front.now, &(4, "note:1".into()), &mut front.effects);
    assert_eq!(front.received().len(), 2, "the session and its subscription");
    assert!(updated(&mut front, "note:1").is_empty(), "what the other says is not about it");
}

#[test]
fn other_tools_of_ours_are_told_of_where_they_differ() {
    let mut front = TestSession::shaken(Limits::default(), "2025-11-25");
    front.mcp_session = front.mcp_session.with_servers(known(&[TOOL], true));
    listens(&mut front, "9", r#"{"toolsListChanged":true}"#);
    front.received();
    front.mcp_session.tools_changed(front.now, [echo()].into(), &mut front.effects);
    assert!(front.received().is_empty(), "they are the same");
    front.mcp_session.tools_changed(front.now, [].into(), &mut front.effects);
    let told = front.received();
    assert_eq!(told.len(), 2, "the session and its subscription: {told:?}");
    assert!(told.iter().all(|message| message["method"] == "notifications/tools/list_changed"));
}

fn unwatched(front: &mut TestSession) -> Vec<String> {
    let unwatched = |action| match action {
        SessionAction::Unwatch((0, uri)) => Some(uri.to_string()),
        _ => None,
    };
    front.actions().into_iter().filter_map(unwatched).collect()
}

#[test]
fn a_resource_is_watched_for_as_long_as_any_part_of_the_session_watches_it() {
    let cancel = |front: &mut TestSession, id: &str| {
        front.says(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        ));
        unwatched(front)
    };
    let mut front = fronted();
    listens(&mut front, "1", r#"{"resourceSubscriptions":["note:1","srv+note:7"]}"#);
    listens(&mut front, "2", r#"{"resourceSubscriptions":["note:1"]}"#);
    listens(&mut front, "3", r#"{"resourceSubscriptions":["srv+note:8"]}"#);
    listens(&mut front, "4", r#"{"toolsListChanged":true}"#);
    front.actions();
    assert_eq!(cancel(&mut front, "4"), [] as [&str; 0]);
    assert_eq!(cancel(&mut front, "1"), ["note:7"], "the other is watched by another");
    assert_eq!(cancel(&mut front, "2"), ["note:1"]);
    assert_eq!(cancel(&mut front, "3"), ["note:8"]);
    // The session itself is such a part as well.
    let (mut front, _) = subscribed();
    listens(&mut front, "9", r#"{"resourceSubscriptions":["note:1","srv+note:7"]}"#);
    front.actions();
    assert_eq!(cancel(&mut front, "9"), ["note:7"]);
    front.says(r#"{"jsonrpc":"2.0","id":2,"method":"resources/unsubscribe","params":{"uri":"note:1"}}"#);
    assert_eq!(unwatched(&mut front), ["note:1"]);
    front.says(r#"{"jsonrpc":"2.0","id":3,"method":"resources/unsubscribe","params":{"uri":"note:1"}}"#);
    assert_eq!(unwatched(&mut front), [] as [&str; 0], "once is enough");
}

#[test]
fn a_subscription_asks_for_what_there_is_and_for_no_more_than_it_may() {
    let listened = |filter: &str| {
        let mut front = fronted();
        listens(&mut front, "1", filter);
        front.received().remove(0)["params"]["notifications"].clone()
    };
    for (filter, expect) in [
        ("{}", json!({})),
        ("[]", json!({})),
        (r#"{"toolsListChanged":1,"promptsListChanged":"true","resourceSubscriptions":true}"#, json!({})),
        (
            r#"{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"other":true}"#,
            json!({ "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true }),
        ),
        (
            r#"{"resourceSubscriptions":["note:1",1,"elsewhere:1","srv+note:7"]}"#,
            json!({ "resourceSubscriptions": ["note:1", "srv+note:7"] }),
        ),
    ] {
        assert_eq!(listened(filter), expect, "{filter}");
    }
    let most = unhang_core::config::MAX_SUBSCRIPTIONS;
    let uris: Vec<String> = (0..=most).map(|number| format!("srv+note:{number}")).collect();
    let told = listened(&json!({ "resourceSubscriptions": uris }).to_string());
    assert_eq!(told["resourceSubscriptions"].as_array().map(Vec::len), Some(most));
}

#[test]
fn a_change_is_told_of_the_lists_that_have_changed_to_those_that_asked_for_them() {
    let mut front = fronted();
    for (id, list) in [("1", "toolsListChanged"), ("2", "promptsListChanged"), ("3", "resourcesListChanged")]
    {
        listens(&mut front, id, &format!(r#"{{"{list}":true}}"#));
    }
    front.received();
    let told = |front: &mut TestSession, known| {
        front.mcp_session.servers_changed(front.now, &known, &mut front.effects);
        let heard = |message: &Value| (subscription(message).clone(), message["method"].clone());
        front.received().iter().map(heard).collect::<Vec<_>>()
    };
    assert_eq!(told(&mut front, known(&[TOOL], true)), [], "nothing has changed");
    let of = |id: u32, list: &str| (json!(id), json!(format!("notifications/{list}/list_changed")));
    assert_eq!(told(&mut front, known(&[TOOL, OTHER], true)), [of(1, "tools")]);
    let mut nothing = known(&[TOOL, OTHER], true);
    nothing.catalog = Arc::default();
    let expect = [of(1, "tools"), of(2, "prompts"), of(3, "resources")];
    assert_eq!(told(&mut front, nothing), expect);
}

#[test]
fn what_a_server_announces_is_told_although_the_list_is_the_same() {
    let announced = |tools, prompts, resources| KnownServers {
        announced: KnownAnnouncements::of_one(tools, prompts, resources),
        ..known(&[TOOL], true)
    };
    let mut front = TestSession::shaken(Limits::default(), "2025-11-25");
    front.mcp_session = front.mcp_session.with_servers(announced(7, 7, 7));
    for (id, list) in [("1", "toolsListChanged"), ("2", "promptsListChanged"), ("3", "resourcesListChanged")]
    {
        listens(&mut front, id, &format!(r#"{{"{list}":true}}"#));
    }
    front.received();
    let mut told = |now| {
        front.mcp_session.servers_changed(front.now, &now, &mut front.effects);
        let heard = |message: &Value| {
            let method = message["method"].as_str().expect("a notification");
            assert!(method.ends_with("/list_changed"), "{message}");
            (subscription(message).as_u64(), method.to_owned())
        };
        front.received().iter().map(heard).collect::<Vec<_>>()
    };
    let of = |id: u64, list: &str| {
        let method = format!("notifications/{list}/list_changed");
        [(None, method.clone()), (Some(id), method)]
    };
    assert_eq!(told(announced(7, 7, 7)), [], "nothing was announced since");
    assert_eq!(told(announced(8, 7, 7)), of(1, "tools"), "the session and its subscription");
    assert_eq!(told(announced(8, 8, 9)), [of(2, "prompts"), of(3, "resources")].concat());
    let mut both = known(&[TOOL, OTHER], true);
    both.announced = KnownAnnouncements::of_one(9, 8, 9);
    assert_eq!(told(both), of(1, "tools"), "once, though the list differs too");
}

#[test]
fn a_change_of_a_part_of_a_resource_is_told_in_the_name_of_the_client() {
    let mut front = fronted();
    listens(&mut front, "1", r#"{"resourceSubscriptions":["srv+note:7","srv+note:a/"]}"#);
    front.received();
    for (server, uri, expect) in [
        (0, "note:7", Some("srv+note:7")),
        (0, "note:7/part", Some("srv+note:7/part")),
        (0, "note:a/", Some("srv+note:a/")),
        (0, "note:a/b", Some("srv+note:a/b")),
        (0, "note:77", None),
        (0, "note:", None),
        (1, "note:7", None),
    ] {
        front.mcp_session.updated(front.now, &(server, uri.into()), &mut front.effects);
        let told: Vec<_> = front.received().iter().map(|message| message["params"]["uri"].clone()).collect();
        assert_eq!(told, Vec::from_iter(expect), "{server} {uri}");
    }
}
