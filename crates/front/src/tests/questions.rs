//! What servers ask and say about calls, as far as the session knows of it.

use serde_json::value::RawValue;
use unhang_bridge::Era;
use unhang_wire::Line;

use super::{
    servers::{TOOL, answered, known, raw},
    *,
};
use unhang_core::fault::FaultKind;
use unhang_gateway::{KnownServers, Replied};
use unhang_upstream::{
    client::{Error, Failure, ServerError},
    question::window_question_id,
};

/// A call of a server's tool in flight, of a client that can be asked for input.
pub(super) fn calling() -> (TestSession, CallKey) {
    let mut front = TestSession::shaken(Limits::default(), "2025-11-25");
    front.mcp_session = front.mcp_session.with_servers(known(&[TOOL], true));
    front.declare_capabilities(r#"{"elicitation":{}}"#);
    front.says(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"srv__now"}}"#);
    let key = match &front.actions()[..] {
        [SessionAction::Ask { key, .. }] => *key,
        other => panic!("{other:?}"),
    };
    (front, key)
}

pub(super) fn asks(
    front: &mut TestSession,
    key: CallKey,
    question: u64,
    method: &str,
    params: Option<&RawValue>,
) {
    front.mcp_session.asked(
        front.now,
        QuestionSubject::Call(key),
        question,
        (method, params),
        &mut front.effects,
    );
}

/// What became of the one question that has an answer now.
#[track_caller]
pub(super) fn reply(front: &mut TestSession) -> (u64, Replied) {
    let replies: Vec<_> = front
        .actions()
        .into_iter()
        .filter_map(|action| match action {
            SessionAction::Reply { question, replied } => Some((question, replied)),
            _ => None,
        })
        .collect();
    match &replies[..] {
        [reply] => reply.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_is_asked_in_the_servers_words_and_answers_in_its_own() {
    let (mut front, key) = calling();
    let params = raw(r#"{ "message":"?", "x":1.0e0 }"#);
    asks(&mut front, key, 5, "elicitation/create", Some(&params));
    let line = front.effects.received.pop().expect("a question");
    assert_eq!(
        line,
        r#"{"jsonrpc":"2.0","id":"unhang-5","method":"elicitation/create","params":{ "message":"?", "x":1.0e0 }}"#
    );
    front.says(r#"{"jsonrpc":"2.0","id":"unhang-5","result":{ "action":"accept","y":2.0e0 }}"#);
    assert_eq!(reply(&mut front), (5, Ok(r#"{ "action":"accept","y":2.0e0 }"#.to_owned())));
    // Once is enough, and what nobody has asked is heard by nobody.
    front.says(r#"{"jsonrpc":"2.0","id":"unhang-5","result":{}}"#);
    front.says(r#"{"jsonrpc":"2.0","id":"unhang-6","result":{}}"#);
    assert_eq!((front.actions(), front.received().len()), (vec![], 0));
    asks(&mut front, key, 6, "elicitation/create", None);
    front.says(r#"{"jsonrpc":"2.0","id":"unhang-6","error":{"code":-1,"message":"no"}}"#);
    assert_eq!(reply(&mut front), (6, Err((-1, "no".to_owned()).into())));
}

#[test]
fn a_client_is_asked_nothing_that_it_has_not_offered() {
    let (mut front, key) = calling();
    let (not_offered, not_known) =
        ("the client that made the call does not offer it", "MCP has no such request to a client");
    for (number, method, why) in [
        (0, "sampling/createMessage", not_offered),
        (1, "roots/list", not_offered),
        (2, "ping", not_known),
        (3, "no/such", not_known),
    ] {
        asks(&mut front, key, number, method, None);
        let refusal = Err((-32601, format!("`{method}` is declined: {why}")).into());
        assert_eq!(reply(&mut front), (number, refusal));
    }
    front.effects.takes_only_answers = true;
    asks(&mut front, key, 4, "elicitation/create", None);
    let why = "the client that made the call accepts only the answer";
    let refusal = Err((-32601, format!("`elicitation/create` is declined: {why}")).into());
    assert_eq!(reply(&mut front), (4, refusal));
    front.effects.takes_only_answers = false;
    asks(&mut front, key + 1, 9, "elicitation/create", None);
    let (_, replied) = reply(&mut front);
    assert!(replied.expect_err("no such call").message.contains("no longer waits"));
    assert!(front.received().is_empty());
}

#[test]
fn a_question_ends_with_its_call() {
    // Withdrawn by the client, too late, answered by the server all the same, and at the end.
    for way in 0..4 {
        let (mut front, key) = calling();
        asks(&mut front, key, 5, "elicitation/create", None);
        front.received();
        match way {
            0 => {
                front
                    .says(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
            }
            1 => front.wait(seconds(61)),
            2 => front.mcp_session.abandoned(front.now, key, &mut front.effects),
            _ => front.mcp_session.stop(front.now, 0, "of a test", &mut front.effects),
        }
        let (question, replied) = reply(&mut front);
        assert_eq!((question, replied.expect_err("it is over").code), (5, -31009), "{way}");
        let told = front.received().remove(0);
        assert_eq!(
            (&told["method"], &told["params"]["requestId"]),
            (&json!("notifications/cancelled"), &json!("unhang-5")),
            "{way}"
        );
        front.says(r#"{"jsonrpc":"2.0","id":"unhang-5","result":{}}"#);
        assert!(front.actions().iter().all(|action| !matches!(action, SessionAction::Reply { .. })), "{way}");
    }
}

#[test]
fn a_question_stays_open_when_its_server_has_answered_the_call_and_still_waits() {
    let (mut front, key) = calling();
    asks(&mut front, key, 5, "elicitation/create", None);
    asks(&mut front, key, 6, "elicitation/create", None);
    front.received();
    let answer = answered(Era::Legacy, Ok(raw(r#"{"content":[]}"#)));
    front.mcp_session.answered(front.now, key, &answer, &mut front.effects);
    assert_eq!(front.received().remove(0)["id"], 1);
    assert_eq!((front.actions(), front.received().len()), (vec![], 0), "they stay");
    front.says(r#"{"jsonrpc":"2.0","id":"unhang-5","result":{"action":"cancel"}}"#);
    assert_eq!(reply(&mut front), (5, Ok(r#"{"action":"cancel"}"#.to_owned())));
    front.mcp_session.question_withdrawn(front.now, 6, &mut front.effects);
    assert_eq!(front.received().remove(0)["params"]["requestId"], "unhang-6");
}

/// Another call of the server, and its key.
fn calls_again(front: &mut TestSession, id: u32) -> CallKey {
    front.says(&format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"srv__now"}}}}"#
    ));
    match &front.actions()[..] {
        [SessionAction::Ask { key, .. }] => *key,
        other => panic!("{other:?}"),
    }
}

fn asks_about_several(front: &mut TestSession, key: CallKey, question: u64) {
    let about = QuestionSubject::OneOfSeveral(key);
    front.mcp_session.asked(front.now, about, question, ("elicitation/create", None), &mut front.effects);
    assert_eq!(front.received().remove(0)["method"], "elicitation/create");
}

#[test]
fn f_54_a_question_about_one_of_several_calls_ends_with_the_last_of_them() {
    let (mut front, first) = calling();
    let second = calls_again(&mut front, 2);
    asks_about_several(&mut front, second, 5);
    asks_about_several(&mut front, second, 6);
    let later = calls_again(&mut front, 3);
    // It has an answer, or is withdrawn: the question may be about the other one.
    let answer = answered(Era::Legacy, Ok(raw(r#"{"content":[]}"#)));
    front.mcp_session.answered(front.now, second, &answer, &mut front.effects);
    assert_eq!(front.received().remove(0)["id"], 2);
    assert_eq!((front.actions(), front.received().len()), (vec![], 0), "it stays");
    front.says(r#"{"jsonrpc":"2.0","id":"unhang-5","result":{}}"#);
    assert_eq!(reply(&mut front).0, 5);
    front.says(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    let (question, replied) = reply(&mut front);
    assert_eq!((question, replied.expect_err("it is over").code), (6, -31009));
    assert_eq!(front.received().remove(0)["params"]["requestId"], "unhang-6");
    // What was called later was not there when it was asked.
    assert!(first < second && second < later);
    front.mcp_session.answered(front.now, later, &answer, &mut front.effects);
    assert_eq!(front.received().remove(0)["id"], 3);
}

#[test]
fn f_54_a_question_about_one_call_ends_with_it_though_there_are_others() {
    let (mut front, _) = calling();
    let second = calls_again(&mut front, 2);
    asks(&mut front, second, 5, "elicitation/create", None);
    front.received();
    front.says(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#);
    assert_eq!(reply(&mut front).0, 5);
}

/// What the client hears when a server logs at each of these levels.
fn logged(front: &mut TestSession, key: CallKey, levels: &[&str]) -> Vec<Value> {
    for level in levels {
        let params = raw(&format!(r#"{{"level":"{level}","data":1.0e0}}"#));
        front.mcp_session.logged(front.now, key, &params, &mut front.effects);
    }
    let received = front.received();
    assert!(received.iter().all(|message| message["method"] == "notifications/message"), "{received:?}");
    received.iter().map(|message| message["params"]["level"].clone()).collect()
}

#[test]
fn a_session_hears_what_is_logged_from_the_level_on_that_it_has_named() {
    let (mut front, key) = calling();
    let levels = ["debug", "warning", "emergency", "no such level"];
    assert_eq!(logged(&mut front, key, &levels), ["debug", "warning", "emergency"]);
    front.says(r#"{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"warning"}}"#);
    assert_eq!(front.received()[0]["result"], json!({}));
    assert_eq!(front.actions(), [SessionAction::Log(unhang_gateway::Level::Warning)]);
    assert_eq!(logged(&mut front, key, &levels), ["warning", "emergency"]);
    assert!(logged(&mut front, key + 1, &levels).is_empty(), "of no call that anybody waits for");
    front.says(r#"{"jsonrpc":"2.0","id":3,"method":"logging/setLevel","params":{"level":"loud"}}"#);
    front.heard_fault(3, -32602);
}

#[test]
fn a_request_that_stands_alone_hears_what_is_logged_if_it_says_so() {
    for (level, expect) in [("", vec![]), (r#","io.modelcontextprotocol/logLevel":"error""#, vec!["error"])] {
        let mut front = TestSession::new(Limits::default());
        front.mcp_session = front.mcp_session.with_servers(known(&[TOOL], true));
        front.says(&modern(1, "{}", "").replace(
            r#""io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}"#,
            &format!(r#""io.modelcontextprotocol/clientCapabilities":{{}}{level}"#),
        ));
        let key = match &front.actions()[..] {
            [SessionAction::Ask { key, .. }] => *key,
            other => panic!("{other:?}"),
        };
        assert_eq!(logged(&mut front, key, &["warning", "error"]), expect);
    }
}

/// A call of a client of 2026-07-28, which has no session, and hears of progress under the id of the request.
fn modern(id: u32, arguments: &str, more: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"srv__now","arguments":{arguments}{more},"_meta":{{"progressToken":{id},"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{"elicitation":{{}}}}}}}}}}"#
    )
}

/// A call that is parked, what its client is asked, and the state under which it comes back.
fn parked() -> (TestSession, CallKey, Value, String) {
    let mut front = TestSession::new(Limits::default());
    front.mcp_session = front.mcp_session.with_servers(known(&[TOOL], true));
    front.mcp_session.set_state_secret("secret".to_owned());
    front.says(&modern(1, "{}", ""));
    let key = match &front.actions()[..] {
        [SessionAction::Ask { key, .. }] => *key,
        other => panic!("{other:?}"),
    };
    asks(&mut front, key, 5, "elicitation/create", Some(&raw(r#"{"message":"?"}"#)));
    let result = front.received().remove(0)["result"].clone();
    assert_eq!(result["resultType"], "input_required", "{result}");
    let state = result["requestState"].as_str().expect("a state").to_owned();
    (front, key, result["inputRequests"].clone(), state)
}

fn with(state: &str, responses: &str) -> String {
    format!(r#","requestState":"{state}","inputResponses":{responses}"#)
}

#[test]
fn a_client_without_a_session_is_asked_by_the_answer_and_comes_back_to_its_call() {
    let (mut front, key, requests, state) = parked();
    assert_eq!(
        requests["question-5"],
        json!({ "method": "elicitation/create", "params": { "message": "?" } })
    );
    assert!(front.mcp_session.has_parked());
    // Without the answer it is asked once more, under another state.
    front.says(&modern(2, "{}", &with(&state, "{}")));
    let again = front.received().remove(0)["result"].clone();
    assert_eq!((&again["inputRequests"], &again["resultType"]), (&requests, &json!("input_required")));
    let next = again["requestState"].as_str().expect("a state").to_owned();
    front.says(&modern(3, "{}", &with(&state, r#"{"question-5":{}}"#)));
    front.heard_fault(3, -32602);
    // What the server wants to know meanwhile is asked along with it, in its own words: what has no params has none.
    asks(&mut front, key, 6, "elicitation/create", None);
    front.says(&modern(4, "{}", &with(&next, r#"{"question-5":{ "action":"accept" }}"#)));
    assert_eq!(reply(&mut front), (5, Ok(r#"{ "action":"accept" }"#.to_owned())));
    let line = &front.effects.received[0];
    assert!(line.contains(r#""inputRequests":{"question-6":{"method":"elicitation/create"}}"#), "{line}");
    let last = front.received().remove(0)["result"].clone();
    let asked: Vec<&String> = last["inputRequests"].as_object().expect("requests").keys().collect();
    assert_eq!(asked, ["question-6"]);
    let state = last["requestState"].as_str().expect("a state").to_owned();
    front.says(&modern(5, "{}", &with(&state, r#"{"question-6":{}}"#)));
    assert_eq!((reply(&mut front).0, front.received().len(), front.mcp_session.has_parked()), (6, 0, false));
    // From here on it is a call as any other, whose progress is that of the last request.
    front.mcp_session.progressed(
        front.now,
        key,
        &raw(r#"{"progressToken":"ours","progress":1}"#),
        &mut front.effects,
    );
    assert_eq!(front.received().remove(0)["params"], json!({ "progressToken": 5, "progress": 1 }));
    let answer = answered(Era::Legacy, Ok(raw(r#"{"content":[]}"#)));
    front.mcp_session.answered(front.now, key, &answer, &mut front.effects);
    let told = front.received().remove(0);
    assert_eq!((&told["id"], &told["result"]["resultType"]), (&json!(5), &json!("complete")));
}

#[test]
fn a_response_that_is_not_an_object_reaches_no_server_and_leaves_its_question_open() {
    let (mut front, _, _, state) = parked();
    let not_read = [
        (r#"{"question-5":"yes"}"#, "`question-5`"),
        (r#"{"question-5":{},"other":null}"#, "`other`"),
        (r#"{"question-5":[{}]}"#, "`question-5`"),
        (r#"[{"question-5":{}}]"#, "`inputResponses` of `tools/call` is not an object"),
    ];
    for (id, (responses, named)) in (2..).zip(not_read) {
        front.says(&modern(id, "{}", &with(&state, responses)));
        let error = front.heard_fault(id, -32602);
        assert!(error["message"].as_str().is_some_and(|why| why.contains(named)), "{error}");
        assert!(front.actions().is_empty() && front.mcp_session.has_parked(), "{responses}");
    }
    front.says(&modern(9, "{}", &with(&state, r#"{"question-5":{}}"#)));
    assert_eq!(reply(&mut front), (5, Ok("{}".to_owned())));
    // A request that comes back because of a URL, or to the leading window.
    for (id, state) in [(10, "unhang-again"), (11, "unhang.other.1")] {
        front.says(&modern(id, "{}", &with(state, r#"{"url-1":true}"#)));
        let error = front.heard_fault(id, -32602);
        assert!(error["message"].as_str().is_some_and(|why| why.contains("`url-1`")), "{error}");
    }
}

#[test]
fn a_state_is_good_for_its_own_request_alone() {
    let (mut front, _, _, state) = parked();
    let responses = r#"{"question-5":{}}"#;
    let cut = &state[..state.len() - 1];
    let guessed = state.replace("secret", "other");
    for (id, state, arguments) in [(2, cut, "{}"), (3, &guessed, "{}"), (4, &state, r#"{"other":1}"#)] {
        front.says(&modern(id, arguments, &with(state, responses)));
        front.heard_fault(id, -32602);
        assert!(front.actions().is_empty());
    }
    front.says(&modern(5, "{}", &with(&state, responses)));
    assert_eq!(reply(&mut front).0, 5);
}

#[test]
fn a_url_that_has_to_be_opened_first_is_asked_for_by_the_answer() {
    let says = |id: u64, capabilities: &str, more: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"srv__now","arguments":{{}}{more},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{capabilities}}}}}}}"#
        )
    };
    let wanted = r#"{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url","url":"u","message":"?","elicitationId":"e"}]}}"#;
    let mut front = TestSession::new(Limits::default());
    front.mcp_session = front.mcp_session.with_servers(known(&[TOOL], true));
    let mut ask = |id, capabilities, more: &str| {
        front.says(&says(id, capabilities, more));
        let asked = match &front.actions()[..] {
            [SessionAction::Ask { key, asked, .. }] => Some((*key, asked.params.clone())),
            _ => None,
        };
        if let Some((key, _)) = &asked {
            let error = ServerError::read("srv", "tools/call", wanted);
            let outcome = Err(Error::Server(Box::new(error)));
            front.mcp_session.answered(front.now, *key, &answered(Era::Legacy, outcome), &mut front.effects);
        }
        (asked.map(|(_, params)| params), front.received().remove(0))
    };
    let (first, asked) = ask(1, r#"{"elicitation":{"url":{}}}"#, "");
    let result = &asked["result"];
    assert_eq!(result["resultType"], "input_required", "{asked}");
    let params = json!({ "mode": "url", "url": "u", "message": "?" });
    assert_eq!(result["inputRequests"]["url-1"], json!({ "method": "elicitation/create", "params": params }));
    // The request comes back whole, and the server gets what it got at first.
    let state = result["requestState"].as_str().expect("a state").to_owned();
    let (second, asked) =
        ask(2, r#"{"elicitation":{"url":{}}}"#, &with(&state, r#"{"url-1":{"action":"accept"}}"#));
    assert_eq!((&second, &asked["result"]["resultType"]), (&first, &json!("input_required")));
    let (none, refused) =
        ask(3, r#"{"elicitation":{"url":{}}}"#, &with(&state, r#"{"url-1":{"action":"decline"}}"#));
    assert_eq!((none, &refused["error"]["code"]), (None, &json!(-31009)), "{refused}");
    // Whoever takes no URLs gets the error.
    let (_, told) = ask(4, r#"{"elicitation":{}}"#, "");
    assert_eq!(told["error"]["code"], -32042, "{told}");
}

#[test]
fn the_state_of_another_gateway_goes_back_to_it() {
    let mut front = TestSession::new(Limits::default());
    front.mcp_session =
        front.mcp_session.with_servers(KnownServers { follows: true, ..known(&[TOOL], true) });
    front.mcp_session.set_state_secret("secret".to_owned());
    front.says(&modern(1, "{}", &with("unhang.other.1", "{}")));
    match &front.actions()[..] {
        [SessionAction::Ask { asked, .. }] => {
            assert!(asked.params.contains(r#""requestState":"unhang.other.1""#), "{}", asked.params);
        }
        other => panic!("{other:?}"),
    }
    front.says(&modern(2, "{}", &with("unhang.secret.1", "{}")));
    front.heard_fault(2, -32602);
}

#[test]
fn a_call_to_which_nobody_comes_back_ends_with_its_limit() {
    let (mut front, key, _, _) = parked();
    front.wait(seconds(61));
    let actions = front.actions();
    assert!(actions.contains(&SessionAction::Cancel(key)), "{actions:?}");
    assert!(matches!(actions[0], SessionAction::Reply { question: 5, replied: Err(_) }), "{actions:?}");
    assert!(!front.mcp_session.has_parked());
    // What the server has answered meanwhile waits for the client, for as long.
    let (mut front, key, _, state) = parked();
    let answer = answered(Era::Legacy, Ok(raw(r#"{"content":[]}"#)));
    front.mcp_session.answered(front.now, key, &answer, &mut front.effects);
    assert!(front.received().is_empty());
    front.says(&modern(2, "{}", &with(&state, "{}")));
    assert_eq!(front.received()[0]["result"]["resultType"], "complete");
}

#[test]
fn a_timeout_of_a_server_says_whose_clock_or_which_question_made_it_so_early() {
    let failure = |kind| -> Error {
        let failure =
            Failure { kind, happened: "it is so".to_owned(), hint: "do so".to_owned(), ..Failure::ended() };
        failure.into()
    };
    let cut_short = "it is so; unhang cancelled the call just before the timeout of";
    let asked = "`srv__now` needs the client's answer to `elicitation/create`, which did not come within";
    let in_time = "answer the question in time, or raise call-timeout";
    for (client, is_asked, kind, expect) in [
        ("nobody", false, FaultKind::Deadline, "it is so; do so".to_owned()),
        ("langflow", false, FaultKind::Deadline, format!("{cut_short} langflow (30s)")),
        ("langflow", false, FaultKind::ServerExited, "it is so; do so".to_owned()),
        ("langflow", true, FaultKind::ServerExited, "it is so; do so".to_owned()),
        ("langflow", true, FaultKind::Deadline, format!("{asked} 28.5s; {in_time}")),
        ("nobody", true, FaultKind::Deadline, format!("{asked} 1m; {in_time}")),
    ] {
        let mut front = TestSession::new(Limits::default());
        front.mcp_session = front.mcp_session.with_servers(known(&[TOOL], true));
        front.says(&format!(
            r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"2025-11-25","capabilities":{{"elicitation":{{}}}},"clientInfo":{{"name":"{client}"}}}}}}"#
        ));
        let key = calls_again(&mut front, 1);
        if is_asked {
            asks(&mut front, key, 5, "elicitation/create", None);
        }
        front.received();
        let answer = answered(Era::Legacy, Err(failure(kind)));
        front.mcp_session.answered(front.now, key, &answer, &mut front.effects);
        let error = front.received().pop().expect("an answer")["error"].clone();
        assert_eq!(
            (&error["code"], &error["message"]),
            (&json!(kind.code()), &json!(expect)),
            "{client} {is_asked}"
        );
    }
    // If nobody says anything, the session itself says so.
    let (mut front, key) = calling();
    asks(&mut front, key, 5, "elicitation/create", None);
    front.received();
    front.wait(seconds(61));
    let last = front.received().pop().expect("an error");
    assert_eq!(last["error"]["message"], format!("{asked} 1m; {in_time}"));
}

#[test]
fn f_54_a_question_that_outlives_its_call_ends_on_the_stream_of_another() {
    const OTHER_STREAM: u64 = 7;
    let (mut front, _) = calling();
    let line = br#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"srv__now"}}"#;
    front.mcp_session.client_line(front.now, OTHER_STREAM, Line::Whole(line), &mut front.effects);
    let SessionAction::Ask { key: second, .. } = front.actions().remove(0) else { panic!("it is asked") };
    asks_about_several(&mut front, second, 5);
    assert_eq!(front.effects.targets.last(), Some(&LineTarget::Beside(OTHER_STREAM)));
    let answer = answered(Era::Legacy, Ok(raw("{}")));
    front.mcp_session.answered(front.now, second, &answer, &mut front.effects);
    front.received();
    front.says(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    assert_eq!(front.received()[0]["method"], "notifications/cancelled");
    assert_eq!(front.effects.targets.last(), Some(&LineTarget::Beside(ONLY_STREAM)), "the call's stream");
}

/// A call of a window whose client is asked beside its calls, and that this window has put a question beside.
fn asked_window(about: fn(CallKey) -> QuestionSubject) -> (TestSession, CallKey) {
    let mut front = TestSession::new(Limits::default());
    front.mcp_session = front.mcp_session.with_servers(known(&[TOOL], true));
    front.mcp_session.set_state_secret("secret".to_owned());
    front.mcp_session.client.is_asked_beside = true;
    front.says(&modern(1, "{}", ""));
    let key = match &front.actions()[..] {
        [SessionAction::Ask { key, .. }] => *key,
        other => panic!("{other:?}"),
    };
    let asked = ("elicitation/create", None);
    front.mcp_session.asked(front.now, about(key), 5, asked, &mut front.effects);
    (front, key)
}

#[test]
fn a_window_is_asked_beside_its_call_under_the_key_of_the_question() {
    for (about, is_of_several) in [
        (QuestionSubject::Call as fn(CallKey) -> QuestionSubject, false),
        (QuestionSubject::OneOfSeveral, true),
    ] {
        let (mut front, _) = asked_window(about);
        let asked = front.received().remove(0);
        assert_eq!(asked["id"], window_question_id(5, is_of_several), "{asked}");
        assert_eq!(asked["method"], "elicitation/create");
        assert!(!front.mcp_session.has_parked(), "its call goes on");
    }
}

#[test]
fn a_question_to_a_window_is_left_with_its_call_and_declined_when_unhang_ends() {
    let (mut front, key) = asked_window(QuestionSubject::OneOfSeveral);
    front.received();
    let answer = answered(Era::Legacy, Ok(raw("{}")));
    front.mcp_session.answered(front.now, key, &answer, &mut front.effects);
    assert_eq!(front.actions(), [SessionAction::Leave(5)]);
    let received = front.received();
    assert!(received.len() == 1 && received[0]["id"] == 1, "the window goes on asking: {received:?}");

    let (mut front, key) = asked_window(QuestionSubject::OneOfSeveral);
    front.received();
    front.mcp_session.drain(front.now, "of a test", &mut front.effects);
    let (question, replied) = reply(&mut front);
    assert!(question == 5 && replied.is_err_and(|error| error.message.contains("unhang is ending")));
    assert_eq!(front.received()[0]["params"]["requestId"], window_question_id(5, true));
    let asked = ("elicitation/create", None);
    let about = QuestionSubject::OneOfSeveral(key);
    front.mcp_session.asked(front.now, about, 6, asked, &mut front.effects);
    assert_eq!((reply(&mut front).0, front.received().len()), (6, 0), "nobody is asked any more");
}

#[test]
fn a_question_that_its_server_withdraws_is_withdrawn_from_the_client() {
    let (mut front, key) = calling();
    for question in [5, 6] {
        asks(&mut front, key, question, "elicitation/create", None);
    }
    front.received();
    front.mcp_session.question_withdrawn(front.now, 5, &mut front.effects);
    let withdrawn = front.received();
    assert_eq!(withdrawn.len(), 1, "{withdrawn:?}");
    assert_eq!(withdrawn[0]["method"], "notifications/cancelled");
    assert_eq!(withdrawn[0]["params"]["requestId"], "unhang-5");
    front.says(r#"{"jsonrpc":"2.0","id":"unhang-5","result":{}}"#);
    assert!(front.actions().is_empty(), "nobody waits for it");
    front.says(r#"{"jsonrpc":"2.0","id":"unhang-6","result":{}}"#);
    assert_eq!(reply(&mut front).0, 6);
    front.mcp_session.question_withdrawn(front.now, 6, &mut front.effects);
    assert!(front.received().is_empty(), "it has been answered");
}

#[test]
fn a_client_that_comes_back_with_an_answer_to_a_withdrawn_question_goes_on_with_its_call() {
    let (mut front, _, _, state) = parked();
    front.mcp_session.question_withdrawn(front.now, 5, &mut front.effects);
    front.says(&modern(2, "{}", &with(&state, r#"{"question-5":{}}"#)));
    assert!(front.actions().is_empty() && front.received().is_empty(), "its call goes on");
    assert!(!front.mcp_session.has_parked());
    // It is not asked once more either.
    let (mut front, _, _, state) = parked();
    front.mcp_session.question_withdrawn(front.now, 5, &mut front.effects);
    front.says(&modern(2, "{}", &with(&state, "{}")));
    assert!(front.received().is_empty() && !front.mcp_session.has_parked());
}
