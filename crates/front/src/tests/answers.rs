//! Answers as their clients hear them: counted, in the era of the client, and with the facts of an error.

use std::sync::{Arc, atomic::Ordering};

use unhang_bridge::Era;

use super::{
    servers::{TOOL, answered, ask, asked, fronted, known, raw},
    *,
};
use crate::{
    effects::{ErrorAnswer, SessionCounters},
    tally::FrontTally,
};
use unhang_core::fault::FaultKind;
use unhang_upstream::client::{Error, Failure, ServerError};

/// The members by which a request of 2026-07-28 introduces its client.
const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

/// The error in the last line, which is an answer.
fn error_of_the_last(front: &TestSession) -> Option<ErrorAnswer> {
    match front.effects.targets.last() {
        Some(LineTarget::Answer { error, .. }) => *error,
        other => panic!("{other:?}"),
    }
}

/// Returns the answer that the client gets when a server answers `resources/read`.
fn heard(era: Era, answer: &unhang_gateway::ServerAnswer) -> (Value, Option<ErrorAnswer>) {
    let mut front = fronted(known(&[TOOL], true));
    let params = if era == Era::Modern {
        format!(r#"{{"uri":"note:1",{META}}}"#)
    } else {
        r#"{"uri":"note:1"}"#.to_owned()
    };
    ask(&mut front, 1, "resources/read", &params);
    let (key, _) = asked(&mut front);
    front.mcp_session.answered(front.now, key, answer, &mut front.effects);
    let told = error_of_the_last(&front);
    (front.received().remove(0), told)
}

fn refusal(error: &str) -> Result<Box<serde_json::value::RawValue>, Error> {
    Err(Error::Server(Box::new(ServerError::read("srv", "resources/read", error))))
}

#[test]
fn a_session_counts_its_requests_by_how_they_end_and_all_sessions_together() {
    let mut front = fronted(known(&[TOOL], true));
    let tally = Arc::new(FrontTally::default());
    front.mcp_session = front.mcp_session.with_metrics(Arc::clone(&tally));
    let counters =
        |requests, answered, faults, withdrawn| SessionCounters { requests, answered, faults, withdrawn };
    assert_eq!(front.mcp_session.counters(), counters(1, 1, 0, 0), "the handshake");
    front.says(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    assert_eq!(front.mcp_session.counters(), counters(2, 2, 0, 0));
    front.says(r#"{"jsonrpc":"2.0","id":2,"method":"no/such"}"#);
    assert_eq!(front.mcp_session.counters(), counters(3, 2, 1, 0));
    front.says("garbage");
    assert_eq!(front.mcp_session.counters(), counters(3, 2, 2, 0), "it is no request");
    for (id, outcome) in [
        (3, Ok(raw("{}"))),
        (4, refusal(r#"{"code":7,"message":"m"}"#)),
        (5, Err(ended(FaultKind::ServerExited))),
    ] {
        ask(&mut front, id, "tools/call", r#"{"name":"srv__now"}"#);
        let (key, _) = asked(&mut front);
        front.mcp_session.answered(front.now, key, &answered(Era::Legacy, outcome), &mut front.effects);
    }
    assert_eq!(front.mcp_session.counters(), counters(6, 3, 4, 0));
    ask(&mut front, 6, "tools/call", r#"{"name":"srv__now"}"#);
    front.says(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":6}}"#);
    assert_eq!(front.mcp_session.counters(), counters(7, 3, 4, 1));
    // The handshake came before anybody counted them together.
    let all = [&tally.results, &tally.errors, &tally.withdrawn].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(all, [2, 4, 1]);
}

fn ended(kind: FaultKind) -> Error {
    Failure { kind, server: "srv".to_owned(), happened: "it is so".to_owned(), ..Failure::ended() }.into()
}

#[test]
fn a_client_is_known_by_the_name_that_it_gave_itself_last() {
    let mut front = TestSession::new(Limits::default());
    assert_eq!(front.mcp_session.client_name(), "");
    let info =
        r#""io.modelcontextprotocol/clientInfo":{"name":"two"},"io.modelcontextprotocol/protocolVersion""#;
    let alone = format!("{{{META}}}");
    let named = alone.replace(r#""io.modelcontextprotocol/protocolVersion""#, info);
    for (method, params, name) in [
        ("initialize", r#"{"protocolVersion":"2025-11-25","clientInfo":{"name":"one"}}"#, "one"),
        ("tools/list", "{}", "one"),
        ("tools/list", &named, "two"),
        ("tools/list", &alone, ""),
        ("initialize", r#"{"protocolVersion":"2025-11-25","clientInfo":{"name":"one"}}"#, "one"),
        ("initialize", r#"{"protocolVersion":"2025-11-25"}"#, ""),
    ] {
        ask(&mut front, 1, method, params);
        assert_eq!(front.mcp_session.client_name(), name, "{method} {params}");
    }
}

#[test]
fn a_session_has_a_name_in_the_log_unless_it_is_empty() {
    let mut front = TestSession::new(Limits::default());
    for name in [None, Some("s1"), Some("s2"), None] {
        front.mcp_session.set_session_name(name.unwrap_or_default());
        assert_eq!(front.mcp_session.answers.session_name(), name);
    }
}

#[test]
fn an_error_of_a_server_is_told_in_the_codes_of_the_clients_era() {
    use Era::{Legacy, Modern};
    let plain = r#"{"code":-32002,"message":"m"}"#;
    let about = r#"{"code":-32602,"message":"m","data":{"uri":"u"}}"#;
    let url = r#"{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url"}]}}"#;
    for (client, server, error, expect) in [
        (Modern, Legacy, plain, r#"{"code":-32602,"message":"m","data":{"uri":"note:1"}}"#),
        (Modern, Modern, plain, plain),
        (Legacy, Legacy, plain, plain),
        (Legacy, Modern, about, r#"{"code":-32002,"message":"m","data":{"uri":"u"}}"#),
        (Legacy, Legacy, about, about),
        (Modern, Modern, about, about),
        (Modern, Legacy, about, about),
        // The client has not said that it can open a URL.
        (Modern, Legacy, url, url),
        (Legacy, Legacy, url, url),
    ] {
        let mut answer = answered(server, refusal(error));
        answer.asked_for = Some(r#""note:1""#.to_owned());
        let (message, told) = heard(client, &answer);
        let expect: Value = serde_json::from_str(expect).expect("JSON");
        assert_eq!(message["error"], expect, "{client:?} {server:?}");
        let code = expect["code"].as_i64().and_then(|code| i32::try_from(code).ok()).expect("a code");
        assert_eq!(told, Some(ErrorAnswer { code, is_ours: false }), "the server has answered");
    }
}

#[test]
fn a_result_of_a_server_is_told_as_the_clients_era_knows_results() {
    use Era::{Legacy, Modern};
    let plain = r#"{"contents":[]}"#;
    let modern = r#"{"contents":[],"resultType":"complete","ttlMs":5,"cacheScope":"public"}"#;
    let input = r#"{"resultType":"input_required","inputRequests":{}}"#;
    let later = r#"{"contents":[],"resultType":"later"}"#;
    for (client, server, result, expect) in [
        (Legacy, Legacy, plain, Ok(plain)),
        (Modern, Modern, modern, Ok(modern)),
        (Legacy, Modern, modern, Ok(plain)),
        // A server of the handshake era knows no kinds of results, whatever it writes there.
        (Legacy, Legacy, later, Ok(later)),
        (Modern, Modern, input, Ok(input)),
        (Legacy, Modern, input, Err("a question")),
        (Modern, Modern, later, Err("not complete")),
        (Modern, Modern, r#"{"resultType":"task"}"#, Err("a task")),
        (Modern, Legacy, "[]", Err("not an object")),
        (Legacy, Legacy, "1", Err("not an object")),
    ] {
        let (message, told) = heard(client, &answered(server, Ok(raw(result))));
        match expect {
            Ok(expect) => {
                let expect: Value = serde_json::from_str(expect).expect("JSON");
                assert_eq!((&message["result"], told), (&expect, None), "{client:?} {server:?}");
            }
            Err(why) => {
                assert_eq!(told, Some(ErrorAnswer { code: -31007, is_ours: true }), "{message}");
                let text = message["error"]["message"].as_str().unwrap_or_default();
                assert!(text.starts_with("`note:1` answered `resources/read` with "), "{message}");
                assert!(text.contains(why) && text.ends_with("this is a fault of the server"), "{message}");
                assert_eq!(message["error"]["data"].get("limitMs"), None, "no limit has passed");
            }
        }
    }
    let (message, _) = heard(Modern, &answered(Legacy, Ok(raw(plain))));
    let expect = json!({
        "contents": [], "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
        "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "s", "version": "1" } },
    });
    assert_eq!(message["result"], expect);
}

#[test]
fn a_server_that_gives_no_answer_is_told_with_what_is_known_of_it() {
    for (error, code, server, text) in [
        (ended(FaultKind::ServerExited), -31002, "srv", "it is so; connect again"),
        (ended(FaultKind::Overloaded), -31005, "srv", "it is so; connect again"),
        (
            Error::Disposed,
            -31008,
            "unhang",
            "unhang cannot send the request to `note:1`: the MCP service is not available: it was disposed of; ask \
             again later",
        ),
    ] {
        let (message, told) = heard(Era::Legacy, &answered(Era::Legacy, Err(error)));
        let error = &message["error"];
        assert_eq!((&error["code"], &error["message"]), (&json!(code), &json!(text)));
        assert_eq!(error["data"]["server"], server, "{error}");
        assert_eq!(told, Some(ErrorAnswer { code, is_ours: true }));
    }
}

#[test]
fn a_resource_that_nobody_has_is_refused_in_the_codes_of_the_clients_era() {
    let long = format!("nobody:{}", "x".repeat(300));
    for (uri, cut) in [("nobody:1", "nobody:1"), (&long, &*long)] {
        for (meta, code) in [("", -32002), (META, -32602)] {
            let mut front = fronted(known(&[TOOL], true));
            let comma = if meta.is_empty() { "" } else { "," };
            ask(&mut front, 1, "resources/read", &format!(r#"{{"uri":"{uri}"{comma}{meta}}}"#));
            let error = front.heard_fault(1, code);
            let data = json!({ "uri": uri, "origin": "unhang", "kind": "resource_not_found" });
            assert_eq!(error["data"], data);
            let text = error["message"].as_str().unwrap_or_default();
            assert!(text.starts_with("there is no resource `nobody:"), "{text}");
            assert!(text.ends_with("; resources/list names all resources"), "{text}");
            assert_eq!(text.contains(cut), cut.len() < 200, "no more of it is repeated: {text}");
            assert_eq!(error_of_the_last(&front), Some(ErrorAnswer { code, is_ours: true }));
        }
    }
}

#[test]
fn what_is_withdrawn_is_answered_with_nothing_or_is_left_out_of_its_batch() {
    let call =
        |id| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo"}}}}"#);
    let cancel = |id| {
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
    };
    let mut front = TestSession::shaken(Limits::default(), "2025-03-26");
    front.says(&call(1));
    front.says(&cancel(1));
    assert_eq!((front.effects.unanswered, front.received().len()), (1, 0));
    // The batch waits for its other request.
    front.says(&format!("[{},{}]", call(2), call(3)));
    front.says(&cancel(2));
    assert_eq!((front.effects.unanswered, front.received().len()), (1, 0));
    front.says(&cancel(3));
    assert_eq!((front.effects.unanswered, front.received().len()), (2, 0), "nothing is left of it");
    front.says(&format!("[{},{}]", call(4), call(5)));
    let last = front.called().pop().expect("a call");
    front.ends(last, "x");
    front.says(&cancel(4));
    assert_eq!((front.effects.unanswered, front.received().len()), (2, 1));
    assert_eq!(error_of_the_last(&front), None, "a batch is no single error");
}

#[test]
fn a_message_that_is_too_long_is_refused_for_what_is_known_of_it() {
    let mut front = TestSession::shaken(Limits { max_message: 1000, ..Limits::default() }, "2025-11-25");
    let long = "x".repeat(1000);
    for (line, id, method) in [
        (
            format!(r#"{{"jsonrpc":"2.0","id":9,"method":"tools/call","params":"{long}"}}"#),
            json!(9),
            json!("tools/call"),
        ),
        // An answer or a notification is not answered under the id of a request.
        (format!(r#"{{"jsonrpc":"2.0","id":9,"result":"{long}"}}"#), Value::Null, Value::Null),
        (format!(r#"{{"text":"{long}"}}"#), Value::Null, Value::Null),
    ] {
        front.says(&line);
        let error = front.heard_fault(id, -31006);
        assert_eq!(error["data"]["method"], method, "{error}");
    }
}

#[test]
fn an_invalid_answer_in_a_batch_is_refused_beside_the_batch() {
    let mut front = TestSession::shaken(Limits::default(), "2025-03-26");
    let ping = |id| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
    let invalid = r#"{"jsonrpc":"2.0","id":7,"error":{}}"#;
    front.says(&format!("[{},{invalid},{}]", ping(1), ping(2)));
    let received = front.received();
    assert_eq!(received.len(), 2, "{received:?}");
    assert_eq!((&received[0]["id"], &received[0]["error"]["code"]), (&Value::Null, &json!(-32600)));
    let ids: Vec<_> = received[1].as_array().expect("a batch").iter().map(|answer| &answer["id"]).collect();
    assert_eq!(ids, [1, 2]);
}
