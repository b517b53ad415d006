//! Requests about jobs, which have an answer and never reach the server.

use serde_json::json;

use super::*;

const ASKED: &str =
    r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"unhang_list_jobs","arguments":{}}}"#;

impl Guarded {
    /// What the local job server was told since the last look, after it has heard of the session.
    pub(super) fn asked_of_the_job_server(&mut self) -> Vec<Value> {
        self.effects.local_jobs.drain(..).map(|line| serde_json::from_str(&line).unwrap()).collect()
    }

    pub(super) fn job_server_says(&mut self, line: &str) {
        self.wrap_session.job_server_line(self.now, &Class::Kept, line.as_bytes(), &mut self.effects);
    }
}

#[test]
fn what_is_about_jobs_is_asked_at_the_job_server_and_nothing_else() {
    let mut guarded = Guarded::with_jobs(Limits::default());
    guarded.client(ASKED);
    assert_eq!(guarded.said(), Vec::<Value>::new());
    let told = guarded.asked_of_the_job_server();
    assert_eq!(
        (&told[0]["method"], &told[0]["params"]["protocolVersion"]),
        (&json!("initialize"), &json!("2025-11-25"))
    );
    assert_eq!((&told[1]["method"], &told[2]["id"]), (&json!("notifications/initialized"), &json!(7)));
    // Its answer to the handshake is nobody's.
    guarded.job_server_says(&json!({"jsonrpc":"2.0","id":told[0]["id"],"result":{}}).to_string());
    assert!(guarded.received().is_empty());
    guarded.job_server_says(r#"{"jsonrpc":"2.0","id":7,"result":{"content":[]}}"#);
    assert_eq!(guarded.received(), [json!({"jsonrpc":"2.0","id":7,"result":{"content":[]}})]);
    for (method, params) in [
        ("tasks/get", json!({"taskId": "abcdefgh2345"})),
        ("tasks/list", json!({})),
        ("tasks/result", json!({"taskId": "whatever"})),
        ("resources/read", json!({"uri": "job://abcdefgh2345"})),
        ("tools/call", json!({"name": "unhang_get_job_results"})),
    ] {
        guarded.client(&json!({"jsonrpc":"2.0","id":method,"method":method,"params":params}).to_string());
        assert_eq!((guarded.said().len(), guarded.asked_of_the_job_server().len()), (0, 1), "{method}");
    }
    for (method, params) in [
        ("tools/call", json!({"name": "list_jobs"})),
        ("tools/call", json!({"name": "unhang_other"})),
        ("resources/read", json!({"uri": "job://else"})),
        ("resources/read", json!({"uri": "file:///x"})),
        ("tools/list", json!({})),
    ] {
        guarded.client(
            &json!({"jsonrpc":"2.0","id":params.to_string(),"method":method,"params":params}).to_string(),
        );
        assert_eq!(
            (guarded.said().len(), guarded.asked_of_the_job_server().len()),
            (1, 0),
            "{method} {params}"
        );
    }
}

#[test]
fn where_nobody_keeps_jobs_nothing_is_asked_there() {
    let mut guarded = Guarded::shaken(Limits::default());
    guarded.client(ASKED);
    assert_eq!((guarded.said().len(), guarded.asked_of_the_job_server().len()), (1, 0));
}

#[test]
fn a_client_without_a_handshake_asks_about_its_tasks_there_and_about_others_its_server() {
    let (mut guarded, listen) = (Guarded::with_jobs(Limits::default()), "subscriptions/listen");
    guarded.wrap_session.client.forget_session();
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"});
    let mut id = 100;
    let mut to_job_server = |guarded: &mut Guarded, method: &str, mut params: Value| {
        params["_meta"] = meta.clone();
        id += 1;
        guarded.client(&json!({"jsonrpc":"2.0","id":id,"method":method,"params":params}).to_string());
        let (server, local_jobs) = (guarded.said().len(), guarded.asked_of_the_job_server().len());
        assert_eq!(server + local_jobs, 1, "{method}");
        local_jobs == 1
    };
    guarded.wrap_session.added_capabilities = Some(Box::default());
    assert!(to_job_server(&mut guarded, "tasks/get", json!({"taskId": "abcdefgh2345"})));
    assert!(
        !to_job_server(&mut guarded, "tasks/get", json!({"taskId": "2b0e5a4c-task-of-theirs"})),
        "it may have some"
    );
    assert!(to_job_server(
        &mut guarded,
        listen,
        json!({"notifications": {"taskIds": ["abcdefgh2345"], "toolsListChanged": false}})
    ));
    for others in [
        json!({"taskIds": ["abcdefgh2345"], "toolsListChanged": true}),
        json!({"taskIds": ["abcdefgh2345", "theirs"]}),
        json!({"taskIds": []}),
    ] {
        assert!(!to_job_server(&mut guarded, listen, json!({"notifications": others})));
    }
}

#[test]
fn a_request_at_the_job_server_is_in_flight_like_any_other() {
    let mut guarded = Guarded::with_jobs(Limits { max_in_flight: 2, ..Limits::default() });
    guarded.client(ASKED);
    // Under its id there is no other.
    guarded.client(ASKED);
    guarded.heard_fault(7, -32600);
    guarded.call(7);
    guarded.heard_fault(7, -32600);
    guarded.call(1);
    guarded.call(2);
    guarded.heard_fault(2, -31005);
    guarded.asked_of_the_job_server();
    // Withdrawn it is over, there and here.
    guarded.client(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#);
    assert_eq!(guarded.asked_of_the_job_server()[0]["params"]["requestId"], 7);
    assert!(guarded.said().iter().all(|said| said["method"] == "tools/call"), "the server never heard of it");
    guarded.job_server_says(r#"{"jsonrpc":"2.0","id":7,"result":{"content":[]}}"#);
    assert!(guarded.received().is_empty());
}

#[test]
fn the_end_of_the_session_waits_for_the_job_server_and_answers_what_it_does_not() {
    let mut guarded = Guarded::with_jobs(Limits::default());
    guarded.client(ASKED);
    guarded.ends();
    assert_eq!(guarded.actions(), [], "it is waited for");
    guarded.job_server_says(r#"{"jsonrpc":"2.0","id":7,"result":{"content":[]}}"#);
    assert_eq!((guarded.received().len(), guarded.actions()), (1, vec![WrapAction::StopServer]));
    let mut guarded = Guarded::with_jobs(Limits::default());
    guarded.client(ASKED);
    guarded.ends();
    guarded.wait(seconds(5));
    guarded.heard_fault(7, -31008);
}

#[test]
fn what_the_job_server_answers_stands_in_its_batch() {
    let (mut guarded, _) = Guarded::introduced(Limits::default(), "2025-03-26", r#"{"tools":{}}"#);
    guarded.client(&format!(
        r#"[{ASKED},{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"t"}}}}]"#
    ));
    guarded.job_server_says(r#"{"jsonrpc":"2.0","id":7,"result":{"content":[]}}"#);
    assert!(guarded.received().is_empty());
    guarded.answer(1);
    let received = guarded.received();
    assert_eq!((received.len(), received[0].as_array().map(Vec::len)), (1, Some(2)), "{received:?}");
}

#[test]
fn the_job_server_is_asked_while_the_server_does_not_read() {
    let mut guarded = Guarded::with_jobs(Limits::default());
    guarded.effects.server_backlog = usize::MAX;
    guarded.call(1);
    guarded.heard_fault(1, -31005);
    guarded.client(ASKED);
    assert!(guarded.received().is_empty());
    assert_eq!(guarded.asked_of_the_job_server().len(), 3);
}

#[test]
fn a_job_server_that_does_not_open_keeps_nobody_waiting_and_nothing_piles_up_for_it() {
    let mut guarded = Guarded::with_jobs(Limits { call_timeout: seconds(20), ..Limits::default() });
    guarded.client(ASKED);
    guarded.asked_of_the_job_server();
    guarded.wait(seconds(20));
    assert!(guarded.received().is_empty(), "it has a limit of its own");
    guarded.wait(seconds(1));
    let error = guarded.heard_fault(7, -31001);
    assert!(error["message"].as_str().is_some_and(|text| text.contains("data folder")), "{error}");
    assert_eq!(guarded.asked_of_the_job_server()[0]["params"]["requestId"], 7, "nobody waits there either");
    // The id is free.
    guarded.client(ASKED);
    assert_eq!((guarded.received().len(), guarded.asked_of_the_job_server().len()), (0, 1));
    guarded.job_server_says(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
    guarded.received();
    guarded.effects.job_server_backlog = usize::MAX;
    guarded.client(ASKED);
    guarded.heard_fault(7, -31005);
}

/// A question of the local job server.
const QUESTION: &str =
    r#"{"jsonrpc":"2.0","id":"unhang-1","method":"elicitation/create","params":{"message":"who"}}"#;

impl Guarded {
    /// The id under which the client gets the only question.
    #[track_caller]
    fn asked_of_the_client(&mut self) -> Value {
        let received = self.received();
        assert_eq!(
            (received.len(), &received[0]["method"]),
            (1, &json!("elicitation/create")),
            "{received:?}"
        );
        received[0]["id"].clone()
    }
}

#[test]
fn a_question_of_the_job_server_and_one_of_the_server_have_ids_of_their_own_and_each_gets_its_answer() {
    let mut guarded = Guarded::with_jobs(Limits::default());
    guarded.server(QUESTION);
    let theirs = guarded.asked_of_the_client();
    guarded.job_server_says(QUESTION);
    let of_a_job = guarded.asked_of_the_client();
    guarded.job_server_says(&QUESTION.replace("unhang-1", "unhang-9"));
    let of_another = guarded.asked_of_the_client();
    // The server takes the id under which the client knows a question of the job server.
    guarded.server(&QUESTION.replace("unhang-1", of_a_job.as_str().unwrap()));
    let last = guarded.asked_of_the_client();
    let ids = [&theirs, &of_a_job, &of_another, &last];
    assert!((1..4).all(|index| !ids[..index].contains(&ids[index])), "{ids:?}");
    for id in ids {
        let meta = json!({"io.modelcontextprotocol/related-task": {"taskId": "abcdefgh2345"}});
        guarded.client(&json!({"jsonrpc":"2.0","id":id,"result":{"for":id,"_meta":meta}}).to_string());
    }
    let said = guarded.said();
    let of_server: Vec<_> = said.iter().map(|said| (&said["id"], &said["result"]["for"])).collect();
    assert_eq!(of_server, [(&json!("unhang-1"), &theirs), (&of_a_job, &last)]);
    let told = guarded.asked_of_the_job_server();
    let answer = |id: &str, of: &Value| json!({"jsonrpc":"2.0","id":id,"result":{"for":of}});
    assert_eq!(told, [answer("unhang-1", &of_a_job), answer("unhang-9", &of_another)], "without the task");
}

#[test]
fn a_question_of_the_job_server_ends_by_its_own_word_and_outlives_the_server() {
    let mut guarded = Guarded::with_jobs(Limits { max_message: 1000, max_in_flight: 2, ..Limits::default() });
    guarded.job_server_says(QUESTION);
    let id = guarded.asked_of_the_client();
    guarded.dies();
    assert!(guarded.received().iter().all(|heard| heard["method"] != "notifications/cancelled"));
    shake_again(&mut guarded);
    guarded.said();
    let cancelled =
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"unhang-1"}}"#;
    // The server has asked nothing under that id.
    guarded.job_server_says(cancelled);
    assert_eq!(guarded.received()[0]["params"]["requestId"], id);
    guarded.job_server_says(cancelled);
    guarded.client(&json!({"jsonrpc":"2.0","id":id,"result":{}}).to_string());
    assert_eq!(
        (guarded.received(), guarded.asked_of_the_job_server(), guarded.said()),
        (vec![], vec![], vec![])
    );
    // An answer that cannot be read is an error for the one who has asked.
    guarded.job_server_says(QUESTION);
    let id = guarded.asked_of_the_client();
    guarded.client(&json!({"jsonrpc":"2.0","id":id,"result":{"x":"x".repeat(2000)}}).to_string());
    let told = guarded.asked_of_the_job_server();
    assert_eq!((&told[0]["id"], &told[0]["error"]["code"]), (&json!("unhang-1"), &json!(-31006)), "{told:?}");
    // They have a limit, and one too many waits.
    for count in 1..=3 {
        guarded.job_server_says(&QUESTION.replace("unhang-1", &format!("unhang-{count}")));
    }
    assert_eq!((guarded.received().len(), guarded.asked_of_the_job_server().len()), (2, 0));
}
