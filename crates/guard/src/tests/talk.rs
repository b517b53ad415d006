//! What passes, what is answered here, and what is kept from whom.

use super::*;

#[test]
fn messages_pass_unchanged_both_ways() {
    let mut guarded = Guarded::new(Limits::default());
    let strange =
        r#"{"id":"a\u0062","method":"x/y","params":{"z":1.50,"a":[1e3]},"jsonrpc":"2.0","extra":true}"#;
    guarded.client(strange);
    assert_eq!(guarded.effects.server, [strange]);
    let answer = r#"{ "result" : {"big":12345678901234567890,"dup":1,"dup":2}, "id":"ab","jsonrpc":"2.0"}"#;
    guarded.server(answer);
    assert_eq!(guarded.effects.client, [(Class::Kept, answer.to_owned())]);
    assert_eq!(guarded.wrap_session.in_flight(), 0);
}

#[test]
fn promise_1_garbage_is_answered_here_and_never_forwarded() {
    let mut guarded = Guarded::shaken(Limits::default());
    let cases: &[(&str, Value, i32)] = &[
        ("garbage", Value::Null, -32700),
        (r#"{"jsonrpc":"2.0","id":5,"method":"#, 5.into(), -32700),
        ("42", Value::Null, -32600),
        (r#"{"some":"object"}"#, Value::Null, -32600),
        (r#"{"jsonrpc":"1.0","id":3,"method":"ping"}"#, 3.into(), -32600),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, Value::Null, -32600),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, 1.5.into(), -32600),
        (r#"{"jsonrpc":"2.0","id":7,"method":7}"#, 7.into(), -32600),
        (r#"[{"jsonrpc":"2.0","id":8,"method":"ping"}]"#, Value::Null, -32600),
    ];
    for (line, id, code) in cases {
        guarded.client(line);
        guarded.heard_fault(id.clone(), *code);
        assert!(guarded.said().is_empty(), "{line}");
    }
}

#[test]
fn a_repeated_id_is_refused_while_it_is_in_flight() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.call(1);
    guarded.call(1);
    assert_eq!(guarded.said().len(), 1);
    guarded.heard_fault(1, -32600);
    guarded.answer(1);
    assert_eq!(guarded.received().len(), 1);
    guarded.call(1);
    guarded.answer(1);
    assert_eq!(guarded.received().len(), 1, "after the answer the id may be used again");
}

#[test]
fn promise_1_a_call_ends_at_its_deadline_and_a_late_answer_goes_nowhere() {
    let mut guarded = Guarded::shaken(Limits { call_timeout: seconds(5), ..Limits::default() });
    guarded.call(1);
    guarded.wait(seconds(4));
    assert!(guarded.received().is_empty());
    guarded.wait(seconds(1));
    let error = guarded.heard_fault(1, -31001);
    assert_eq!(error["data"]["limitMs"], 5000);
    assert_eq!(guarded.said().last().unwrap()["method"], "notifications/cancelled");
    guarded.answer(1);
    assert!(guarded.received().is_empty());
    assert_eq!(guarded.wrap_session.counters().late_answers, 1);
}

#[test]
fn a_reused_id_whose_late_answer_may_still_come_is_renamed() {
    let mut guarded = Guarded::shaken(Limits { call_timeout: seconds(5), ..Limits::default() });
    guarded.call(1);
    guarded.wait(seconds(5));
    guarded.received();
    guarded.said();
    guarded.call(1);
    let wire_id = guarded.said()[0]["id"].clone();
    assert_ne!(wire_id, 1);
    guarded.answer(1);
    assert!(guarded.received().is_empty(), "that was the late answer to the first");
    guarded.server(&format!(r#"{{"jsonrpc":"2.0","id":{wire_id},"result":{{"second":true}}}}"#));
    let received = guarded.received();
    assert_eq!((&received[0]["id"], &received[0]["result"]["second"]), (&1.into(), &true.into()));
    assert_eq!(guarded.wrap_session.calls.renamed(), 0);
}

#[test]
fn g_06_a_client_with_a_known_clock_hears_from_us_first() {
    let initialize = INITIALIZE.replace(r#""name":"test""#, r#""name":"cline""#);
    let mut guarded = Guarded::shaken_as(Limits::default(), &initialize, "2025-11-25");
    guarded.call(1);
    guarded.wait(seconds(57));
    let error = guarded.heard_fault(1, -31001);
    assert!(error["message"].as_str().unwrap().contains("cline"), "{error}");
}

#[test]
fn the_start_deadline_covers_whatever_is_asked_first() {
    let mut guarded = Guarded::new(Limits::default());
    guarded.request(1, "server/discover");
    guarded.wait(seconds(54));
    assert!(guarded.received().is_empty(), "30 s is for servers that have started");
    guarded.wait(seconds(1));
    guarded.heard_fault(1, -31001);
}

#[test]
fn an_initialize_that_expires_is_neither_cancelled_nor_is_its_server_killed() {
    let mut guarded = Guarded::new(Limits::default());
    guarded.client(INITIALIZE);
    guarded.said();
    guarded.wait(seconds(55));
    guarded.heard_fault(0, -31001);
    assert!(guarded.said().is_empty() && guarded.actions().is_empty());
    guarded.ends();
    guarded.dies();
    assert_eq!(guarded.actions(), [WrapAction::StopServer, WrapAction::Exit(exit::DEADLINE)]);
}

#[test]
fn after_a_cancel_the_caller_gets_nothing_more() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded
        .client(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":"p"}}}"#);
    guarded.client(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    assert_eq!(guarded.said().len(), 2);
    guarded.server(
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}"#,
    );
    guarded.answer(1);
    assert!(guarded.received().is_empty());
    guarded.wait(seconds(3600));
    assert!(guarded.received().iter().all(|message| message.get("id").is_none()));
}

#[test]
fn promise_2_only_messages_reach_the_client() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.call(1);
    for line in [
        "Listening on stdio",
        r#"{"level":"info","msg":"json log"}"#,
        "[]",
        r#"{"jsonrpc":"2.0","id":99,"result":{}}"#,
    ] {
        guarded.server(line);
    }
    assert!(guarded.received().is_empty());
    assert_eq!(guarded.wrap_session.counters().junk, 4);
    assert_eq!(guarded.effects.shown.len(), 4, "what was filtered is shown");
    guarded.server(r#"loading... {"jsonrpc":"2.0","id":1,"result":{}}"#);
    assert_eq!(guarded.received()[0]["id"], 1, "a message behind text is recovered");
}

#[test]
fn x_13_an_answer_goes_to_the_request_with_its_id_and_to_no_other() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.call(1);
    guarded.call(2);
    guarded.server(r#"{"jsonrpc":"2.0","id":"3","result":{}}"#);
    assert!(guarded.received().is_empty(), "nobody waits for this one");
    guarded.server(r#"{"jsonrpc":"2.0","id":"2","result":{}}"#);
    guarded.answer(1);
    let received = guarded.received();
    assert_eq!(
        (&received[0]["id"], &received[1]["id"]),
        (&2.into(), &1.into()),
        "a changed type is put right"
    );
    assert_eq!(guarded.wrap_session.counters().repaired_ids, 1);
}

#[test]
fn an_invalid_answer_is_an_error_for_whoever_waits() {
    for line in [
        r#"{"jsonrpc":"2.0","id":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"m"}}"#,
        r#"{"jsonrpc":"1.0","id":1,"result":{}}"#,
        r#"{"id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":"text"}"#,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#,
    ] {
        let mut guarded = Guarded::shaken(Limits::default());
        guarded.call(1);
        guarded.server(line);
        let error = guarded.heard_fault(1, -31007);
        assert!(error["data"]["junk"][0].is_string(), "{line}");
        guarded.answer(1);
        assert!(guarded.received().is_empty(), "answered once: {line}");
    }
}

#[test]
fn a_result_under_null_replaces_no_answer() {
    // Empty, it is none that a tool could have; with something in it, the right one has a moment to come.
    for (stray, moment) in [("{}", seconds(10)), (r#"{"content":[]}"#, Duration::from_millis(900))] {
        let mut guarded = Guarded::shaken(Limits::default());
        guarded.call(1);
        guarded.server(&format!(r#"{{"jsonrpc":"2.0","id":null,"result":{stray}}}"#));
        guarded.wait(moment);
        assert!(guarded.received().is_empty(), "{stray}");
        guarded.answer(1);
        assert_eq!(guarded.received()[0]["result"], serde_json::json!({}), "{stray}");
    }
}

#[test]
fn a_result_under_null_is_told_where_no_better_answer_comes() {
    let mut guarded = Guarded::shaken(Limits::default());
    for (id, method, result) in [(1, "tools/call", r#"{"content":[]}"#), (2, "ping", "{}")] {
        guarded.request(id, method);
        guarded.server(&format!(r#"{{"jsonrpc":"2.0","id":null,"result":{result}}}"#));
        guarded.wait(seconds(1));
        let error = guarded.heard_fault(id, -31007);
        assert!(error["message"].as_str().unwrap().contains("neither a string nor an integer"), "{error}");
        guarded.answer(id);
        assert!(guarded.received().is_empty(), "answered once");
    }
}

#[test]
fn a_message_over_the_limit_is_an_error_for_whoever_waits() {
    let mut guarded = Guarded::shaken(Limits { max_message: 1000, ..Limits::default() });
    guarded.call(1);
    let huge = "x".repeat(2000);
    guarded.server(&format!(r#"{{"jsonrpc":"2.0","result":{{"text":"{huge}"}},"id":1}}"#));
    guarded.heard_fault(1, -31006);
    guarded
        .client(&format!(r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"text":"{huge}"}}}}"#));
    guarded.heard_fault(2, -31006);
    guarded.call(3);
    guarded.answer(3);
    assert_eq!(guarded.received()[0]["id"], 3, "the stream goes on");
}

#[test]
fn bounds_are_answered() {
    let mut guarded = Guarded::shaken(Limits { max_in_flight: 2, ..Limits::default() });
    (1..=3).for_each(|id| guarded.call(id));
    guarded.heard_fault(3, -31005);
    guarded.answer(1);
    guarded.received();
    guarded.effects.server_backlog = 17 << 20;
    guarded.call(4);
    let error = guarded.heard_fault(4, -31005);
    assert!(error["message"].as_str().unwrap().contains("does not read"), "{error}");
}

#[test]
fn promise_3_a_client_that_does_not_read_holds_the_server_back() {
    let mut guarded = Guarded::shaken(Limits::default());
    assert!(
        guarded.wrap_session.reads_server(&guarded.effects)
            && guarded.wrap_session.reads_client(&guarded.effects)
    );
    guarded.effects.client_backlog = 17 << 20;
    assert!(
        !guarded.wrap_session.reads_server(&guarded.effects)
            && guarded.wrap_session.reads_client(&guarded.effects)
    );
    guarded.effects.client_backlog = 33 << 20;
    assert!(!guarded.wrap_session.reads_client(&guarded.effects));
}

#[test]
fn requests_of_the_server_reach_the_client_and_its_answers_come_back() {
    let mut guarded = Guarded::shaken(Limits::default());
    let ask = r#"{"jsonrpc":"2.0","id":0,"method":"elicitation/create","params":{}}"#;
    guarded.server(ask);
    assert_eq!(guarded.effects.client[0].1, ask);
    let answer = r#"{"jsonrpc":"2.0","id":0,"result":{"action":"decline"}}"#;
    guarded.client(answer);
    assert_eq!(guarded.effects.server, [answer]);
    guarded.client(answer);
    assert_eq!(guarded.effects.server.len(), 1, "an answer that nobody waits for is dropped");
}

#[test]
fn a_question_of_a_dead_server_is_withdrawn_and_its_answer_goes_nowhere() {
    let mut guarded = Guarded::shaken(Limits::default());
    let ask = r#"{"jsonrpc":"2.0","id":0,"method":"roots/list"}"#;
    guarded.server(ask);
    guarded.dies();
    let received = guarded.received();
    assert_eq!(received[1]["method"], "notifications/cancelled");
    shake_again(&mut guarded);
    guarded.said();
    guarded.server(ask);
    let renamed = guarded.received()[0]["id"].clone();
    assert_ne!(renamed, 0, "the client still owes an answer to the first");
    guarded.client(r#"{"jsonrpc":"2.0","id":0,"result":{"roots":["old"]}}"#);
    assert!(guarded.said().is_empty());
    guarded.client(&format!(r#"{{"jsonrpc":"2.0","id":{renamed},"result":{{"roots":["new"]}}}}"#));
    let said = guarded.said();
    assert_eq!((&said[0]["id"], &said[0]["result"]["roots"][0]), (&0.into(), &"new".into()));
}

#[test]
fn an_invalid_answer_of_the_client_is_an_error_for_the_server() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.server(r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#);
    guarded.client(r#"{"jsonrpc":"2.0","id":"q"}"#);
    let said = guarded.said();
    assert_eq!((&said[0]["id"], &said[0]["error"]["code"]), (&"q".into(), &(-31007).into()));
}

#[test]
fn batches_of_2025_03_26_are_split_and_answered_as_one_array() {
    let initialize = INITIALIZE.replace("2025-11-25", "2025-03-26");
    let mut guarded = Guarded::shaken_as(Limits::default(), &initialize, "2025-03-26");
    guarded.client(
        r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/x"},{"bad":1},{"jsonrpc":"2.0","id":2,"method":"ping"}]"#,
    );
    assert_eq!(guarded.said().len(), 3);
    guarded.answer(2);
    assert!(guarded.received().is_empty());
    guarded.server(r#"[{"jsonrpc":"2.0","id":1,"result":{}}]"#);
    let received = guarded.received();
    let mut ids: Vec<_> =
        received[0].as_array().unwrap().iter().map(|answer| answer["id"].to_string()).collect();
    ids.sort();
    assert_eq!((received.len(), ids), (1, vec!["1".to_owned(), "2".to_owned(), "null".to_owned()]));
}

#[test]
fn g_13_quiet_keeps_notifications_back_while_a_call_runs() {
    let mut guarded = Guarded::shaken(Limits { quiet: true, ..Limits::default() });
    guarded.call(1);
    for method in ["message", "tools/list_changed", "tools/list_changed", "resources/updated"] {
        guarded.server(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/{method}","params":{{}}}}"#));
    }
    assert!(guarded.received().is_empty());
    guarded.answer(1);
    let methods: Vec<_> = guarded.received().iter().map(|message| message["method"].clone()).collect();
    assert_eq!(
        methods,
        [Value::Null, "notifications/tools/list_changed".into(), "notifications/resources/updated".into()]
    );
}
