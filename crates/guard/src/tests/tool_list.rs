//! A client that calls before it lists, and a server whose tools have names that ours may have.

use serde_json::json;

use super::*;

const STATUS: &str = "unhang_get_job_status";

/// A session whose client has listed no tools.
fn unlisted() -> Guarded {
    Guarded::unlisted(Limits::default(), "2025-11-25", r#"{"tools":{}}"#).0
}

impl Guarded {
    fn calls_tool(&mut self, id: u64, name: &str) -> String {
        let line = json!({"jsonrpc":"2.0","id":id,"method":"tools/call","params":{"name":name}}).to_string();
        self.client(&line);
        line
    }

    /// The guard's own request for a page, which is the only line for the server. Returns its id.
    #[track_caller]
    fn asked_for_page(&mut self, cursor: &Value) -> Value {
        let said = self.said();
        assert_eq!((said.len(), &said[0]["method"]), (1, &json!("tools/list")), "{said:?}");
        assert_eq!(&said[0]["params"]["cursor"], cursor);
        said[0]["id"].clone()
    }

    fn lists(&mut self, id: &Value, result: &Value) {
        self.server(&json!({"jsonrpc":"2.0","id":id,"result":result}).to_string());
    }

    /// The tool that this guard answers, in the requests that the local job server has had since the last look.
    fn asked_of_ours(&mut self) -> Vec<Value> {
        let asked = self.asked_of_the_job_server().into_iter();
        asked
            .filter(|asked| asked["method"] == "tools/call")
            .map(|asked| asked["params"]["name"].clone())
            .collect()
    }
}

#[test]
fn a_call_before_any_list_goes_to_the_server_if_the_tool_is_its_own() {
    let mut guarded = unlisted();
    let call = guarded.calls_tool(1, STATUS);
    let first = guarded.asked_for_page(&Value::Null);
    guarded.lists(&first, &json!({"tools": [{"name": "a"}], "nextCursor": "2"}));
    let second = guarded.asked_for_page(&json!("2"));
    assert_ne!(first, second);
    guarded.lists(&second, &json!({"tools": [{"name": STATUS}]}));
    assert_eq!(guarded.effects.server, [call], "the server's own tool, byte for byte");
    assert_eq!((guarded.asked_of_ours(), guarded.received()), (vec![], vec![]));
    guarded.said();
    guarded.calls_tool(2, "unhang2_get_job_status");
    assert_eq!(guarded.said(), Vec::<Value>::new(), "the list is asked for once");
    assert_eq!(guarded.asked_of_ours(), ["unhang2_get_job_status"]);
    guarded.answer(1);
    assert_eq!(guarded.received()[0]["id"], 1);
}

#[test]
fn a_call_before_any_list_is_answered_here_if_the_server_has_no_such_tool() {
    for answer in [
        json!({"result": {"tools": [{"name": "a"}]}}),
        json!({"result": {}}),
        json!({"error": {"code": -32601, "message": "no such method"}}),
        json!({"result": 1, "error": 2}),
        json!({"id": null, "error": 2}),
    ] {
        let mut guarded = unlisted();
        guarded.calls_tool(1, STATUS);
        let mut line = json!({"jsonrpc": "2.0", "id": guarded.asked_for_page(&Value::Null)});
        assert_eq!(guarded.asked_of_ours(), Vec::<Value>::new());
        line.as_object_mut().unwrap().extend(answer.as_object().unwrap().clone());
        guarded.server(&line.to_string());
        assert_eq!(guarded.asked_of_ours(), [STATUS], "{answer}");
        guarded.job_server_says(r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#);
        assert_eq!(guarded.received(), [json!({"jsonrpc":"2.0","id":1,"result":{"content":[]}})]);
    }
}

#[test]
fn a_server_that_does_not_list_its_tools_keeps_nobody_waiting() {
    let mut guarded = unlisted();
    guarded.calls_tool(1, STATUS);
    let page = guarded.asked_for_page(&Value::Null);
    guarded.wait(Duration::from_millis(4900));
    assert_eq!(guarded.asked_of_ours(), Vec::<Value>::new());
    guarded.wait(Duration::from_millis(100));
    assert_eq!(guarded.asked_of_ours(), [STATUS]);
    guarded.lists(&page, &json!({"tools": []}));
    assert_eq!(
        (guarded.asked_of_ours(), guarded.received()),
        (vec![], vec![]),
        "its late answer is nobody's"
    );
    // The call has less time than that.
    let limits = Limits { call_timeout: seconds(2), ..Limits::default() };
    let mut guarded = Guarded::unlisted(limits, "2025-11-25", r#"{"tools":{}}"#).0;
    guarded.calls_tool(1, STATUS);
    guarded.wait(seconds(3));
    let fault = guarded.heard_fault(1, -31001);
    let told = fault["message"].as_str().unwrap();
    assert!(told.contains("`srv` did not answer `tools/list`") && !told.contains("disk"), "{told}");
    // A server that has gone lists nothing.
    let mut guarded = unlisted();
    guarded.calls_tool(1, STATUS);
    guarded.dies();
    assert_eq!(guarded.asked_of_ours(), [STATUS]);
}

#[test]
fn a_list_of_many_pages_without_end_is_given_up() {
    let mut guarded = unlisted();
    guarded.calls_tool(1, STATUS);
    for page in 0..unhang_core::config::LIST_PAGES {
        let id = guarded.asked_for_page(&if page == 0 { Value::Null } else { json!("next") });
        guarded.lists(&id, &json!({"tools": [], "nextCursor": "next"}));
    }
    assert_eq!((guarded.said(), guarded.asked_of_ours()), (vec![], vec![json!(STATUS)]));
}

#[test]
fn a_request_that_waits_for_the_list_is_in_flight_like_any_other() {
    // Withdrawn, it is over and went nowhere.
    let mut guarded = unlisted();
    guarded.calls_tool(1, STATUS);
    let page = guarded.asked_for_page(&Value::Null);
    guarded.calls_tool(1, "a");
    guarded.heard_fault(1, -32600);
    guarded.client(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    guarded.lists(&page, &json!({"tools": []}));
    assert_eq!((guarded.said(), guarded.received()), (vec![], vec![]));
    assert_eq!(guarded.asked_of_the_job_server(), Vec::<Value>::new());
    // The client closes its stdin, and has its answer all the same.
    let mut guarded = unlisted();
    guarded.calls_tool(1, STATUS);
    let page = guarded.asked_for_page(&Value::Null);
    guarded.ends();
    assert_eq!(guarded.actions(), []);
    guarded.lists(&page, &json!({"tools": [{"name": STATUS}]}));
    guarded.answer(1);
    assert_eq!(
        (guarded.received()[0]["id"].clone(), guarded.actions()),
        (json!(1), vec![WrapAction::StopServer])
    );
    // The session ends.
    let mut guarded = unlisted();
    guarded.calls_tool(1, STATUS);
    guarded.wrap_session.stop(guarded.now, exit::DONE, "a signal came", &mut guarded.effects);
    guarded.heard_fault(1, -31008);
    // A list that is too long.
    let limits = Limits { max_message: 300, ..Limits::default() };
    let mut guarded = Guarded::unlisted(limits, "2025-11-25", r#"{"tools":{}}"#).0;
    guarded.calls_tool(1, STATUS);
    let page = guarded.asked_for_page(&Value::Null);
    guarded.lists(&page, &json!({"tools": [{"name": "a".repeat(300)}]}));
    assert_eq!(guarded.asked_of_ours(), [STATUS]);
    // Lines that wait are bounded.
    let mut guarded =
        Guarded::unlisted(Limits { queue_bytes: 50, ..Limits::default() }, "2025-11-25", r#"{"tools":{}}"#).0;
    guarded.calls_tool(1, STATUS);
    guarded.calls_tool(2, STATUS);
    guarded.heard_fault(2, -31005);
}

#[test]
fn the_time_that_a_call_waits_for_the_list_is_part_of_its_limit() {
    let mut guarded = unlisted();
    guarded.calls_tool(1, STATUS);
    let page = guarded.asked_for_page(&Value::Null);
    guarded.wait(seconds(3));
    guarded.lists(&page, &json!({"tools": [{"name": STATUS}]}));
    guarded.wait(seconds(44));
    assert_eq!(guarded.actions(), [], "a call that the server answers at once makes no job");
    guarded.wait(seconds(1));
    assert_eq!(guarded.order().elapsed, seconds(48));
    guarded.wait(seconds(252));
    guarded.heard_fault(1, -31001);
    // There is not so much time.
    let limits = Limits { call_timeout: seconds(47), ..Limits::default() };
    let mut guarded = Guarded::unlisted(limits, "2025-11-25", r#"{"tools":{}}"#).0;
    guarded.calls_tool(1, STATUS);
    let page = guarded.asked_for_page(&Value::Null);
    guarded.wait(seconds(3));
    guarded.lists(&page, &json!({"tools": [{"name": STATUS}]}));
    guarded.wait(seconds(42));
    assert_eq!(guarded.order().elapsed, seconds(45));
}

#[test]
fn a_job_of_a_call_before_any_list_names_tools_that_the_server_does_not_have() {
    let mut guarded = unlisted();
    guarded.call(1);
    let said = guarded.said();
    assert_eq!(
        (&said[0]["method"], &said[1]["method"], said.len()),
        (&json!("tools/list"), &json!("tools/call"), 2),
        "a server that works on one request at a time lists its tools first"
    );
    guarded.lists(&said[0]["id"], &json!({"tools": [{"name": STATUS}]}));
    guarded.call(2);
    assert_eq!(guarded.said().len(), 1);
    guarded.wait(seconds(45));
    let order = guarded.wrap_session.next_action();
    assert!(matches!(order, Some(WrapAction::Promote(promote)) if promote.names.prefix == "unhang2_"));
}

#[test]
fn a_call_whose_time_has_come_waits_for_the_list_a_little() {
    let task = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","task":{}}}"#;
    let mut guarded = unlisted();
    guarded.client(task);
    let page = guarded.asked_for_page(&Value::Null);
    guarded.wait(seconds(1));
    assert_eq!(guarded.actions(), []);
    guarded.lists(&page, &json!({"tools": [{"name": STATUS}]}));
    assert_eq!(guarded.order().names.prefix, "unhang2_");
    // The list does not come.
    let mut guarded = unlisted();
    guarded.client(task);
    guarded.wait(Duration::from_millis(4900));
    assert_eq!(guarded.actions(), []);
    guarded.wait(Duration::from_millis(100));
    assert_eq!(guarded.order().names.prefix, "unhang_");
    // The call would end before the list comes.
    let limits = Limits { call_timeout: seconds(6), ..Limits::default() };
    let mut guarded = Guarded::unlisted(limits, "2025-11-25", r#"{"tools":{}}"#).0;
    guarded.client(task);
    guarded.wait(Duration::ZERO);
    assert_eq!(guarded.order().names.prefix, "unhang_");
    // A call that was answered meanwhile, and another one of its id.
    let limits =
        Limits { promote_after: unhang_core::promotion::Promotion::After(seconds(1)), ..Limits::default() };
    let mut guarded = Guarded::unlisted(limits, "2025-11-25", r#"{"tools":{}}"#).0;
    guarded.call(1);
    let said = guarded.said();
    guarded.wait(seconds(2));
    guarded.answer(1);
    guarded.call(1);
    guarded.lists(&said[0]["id"], &json!({"tools": []}));
    assert_eq!(guarded.actions(), [], "its time has not come");
}

#[test]
fn a_call_for_a_server_that_is_down_is_behind_the_list() {
    let mut guarded = unlisted();
    guarded.dies();
    guarded.call(1);
    assert_eq!(guarded.said(), Vec::<Value>::new());
    shake_again(&mut guarded);
    let methods: Vec<Value> = guarded.said().iter().map(|said| said["method"].clone()).collect();
    assert_eq!(methods, ["notifications/initialized", "tools/list", "tools/call"]);
}

#[test]
fn nobody_is_asked_for_tools_without_need() {
    // The client has listed them.
    let mut guarded = unlisted();
    guarded.tools_are_listed();
    guarded.call(1);
    guarded.calls_tool(2, STATUS);
    assert_eq!(guarded.said().len(), 1);
    // Not before the handshake is done.
    let mut guarded = Guarded::new(Limits::default());
    guarded.wrap_session = guarded.wrap_session.with_jobs();
    guarded.client(INITIALIZE);
    guarded.call(1);
    assert!(guarded.said().iter().all(|said| said["method"] != "tools/list"));
    // No calls become jobs.
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.call(1);
    guarded.calls_tool(2, STATUS);
    assert_eq!(guarded.said().len(), 2);
}

#[test]
fn a_server_without_handshakes_is_asked_as_its_client_asks() {
    let mut guarded = Guarded::new(Limits::default());
    guarded.wrap_session = guarded.wrap_session.with_jobs();
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"});
    guarded.client(
        &json!({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":meta}}).to_string(),
    );
    let said = guarded.said();
    assert_eq!((&said[0]["method"], &said[1]["method"]), (&json!("tools/list"), &json!("tools/call")));
    let meta = &said[0]["params"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "unhang");
    // A server that is still starting has its start deadline, and the call has its own.
    guarded.calls_tool(2, STATUS);
    guarded.wait(seconds(44));
    assert_eq!(guarded.asked_of_ours(), Vec::<Value>::new());
    // It has answered, so it is there.
    guarded.answer(1);
    guarded.wait(Duration::from_millis(4900));
    assert_eq!(guarded.asked_of_ours(), Vec::<Value>::new());
    guarded.wait(Duration::from_millis(100));
    assert_eq!(guarded.asked_of_ours(), [STATUS]);
}
