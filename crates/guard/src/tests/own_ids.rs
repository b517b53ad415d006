//! Ids that the guard invents: none of them is in use by anybody else (promise 1).

use serde_json::json;

use super::*;

/// The ids of the guard's own pattern that somebody else uses. One is free in the middle, so that the next of two new ids has to be looked
/// for as well.
fn taken() -> Vec<Value> {
    (1..=40).filter(|number| *number != 20).map(|number| json!(format!("unhang-{number}"))).collect()
}

/// A session in which all these ids are in use: by requests of the client, by requests about jobs, or by questions of the server.
fn occupied(by: &str) -> Guarded {
    let mut guarded = Guarded::with_jobs(Limits::default());
    for id in taken() {
        let line =
            |method, params: Value| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        match by {
            "calls" => guarded.client(&line("subscriptions/listen", json!({})).to_string()),
            "jobs" => guarded.client(&line("tools/call", json!({"name": "unhang_list_jobs"})).to_string()),
            _ => guarded.server(&line("roots/list", json!({})).to_string()),
        }
    }
    guarded.said();
    guarded.received();
    guarded
}

fn cancel(id: u64) -> String {
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}).to_string()
}

#[test]
fn an_id_of_ours_is_never_one_that_a_call_a_question_or_a_request_about_jobs_has() {
    for by in ["calls", "questions", "jobs"] {
        let mut guarded = occupied(by);
        let id = guarded.wrap_session.register_for_job(guarded.now, "{}");
        guarded.wrap_session.send_or_hold(&id, &mut guarded.effects);
        assert!(!taken().contains(&json!(id.to_string().trim_matches('"'))), "of a job, {by}: {id}");

        // The client uses an id again whose answer may still come.
        let mut guarded = occupied(by);
        guarded.request(1, "prompts/get");
        guarded.client(&cancel(1));
        guarded.said();
        guarded.request(1, "prompts/get");
        let renamed = guarded.said()[0]["id"].clone();
        assert!(renamed != 1 && !taken().contains(&renamed), "of a request, {by}: {renamed}");

        // The server does the same.
        let mut guarded = occupied(by);
        let question = r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#;
        guarded.server(question);
        guarded.server(&cancel(1));
        guarded.received();
        guarded.server(question);
        let renamed = guarded.received()[0]["id"].clone();
        assert!(renamed != 1 && !taken().contains(&renamed), "of a question, {by}: {renamed}");

        // The next process is told the session again.
        let mut guarded = occupied(by);
        guarded.client(r#"{"jsonrpc":"2.0","id":50,"method":"logging/setLevel","params":{"level":"debug"}}"#);
        guarded.answer(50);
        guarded.said();
        guarded.dies();
        guarded.wait(seconds(1));
        let opening = guarded.said().remove(0);
        guarded.server(&json!({"jsonrpc": "2.0", "id": opening["id"], "result": {}}).to_string());
        let said = guarded.said();
        let level = said.iter().find(|message| message["method"] == "logging/setLevel").expect("the level");
        for id in [&opening["id"], &level["id"]] {
            assert!(id.is_string() && !taken().contains(id), "of the replay, {by}: {id}");
        }
    }
}

#[test]
fn a_cancel_of_the_server_reaches_the_client_unless_the_client_knows_another_question_by_that_id() {
    let mut guarded = Guarded::shaken(Limits::default());
    let question = r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#;
    guarded.server(question);
    guarded.server(&cancel(1));
    guarded.server(question);
    let renamed = guarded.received().remove(2)["id"].clone();
    let of = |id: &Value| json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    guarded.server(&of(&renamed).to_string());
    assert_eq!(guarded.received(), Vec::<Value>::new(), "the server does not know its question by that id");
    guarded.server(&of(&json!(99)).to_string());
    assert_eq!(guarded.received(), [of(&json!(99))], "the client may know what that means");
    guarded.server(&cancel(1));
    assert_eq!(guarded.received()[0]["params"]["requestId"], renamed);
}
