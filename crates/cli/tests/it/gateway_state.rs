//! Whose the named state is: its caller's, as jobs are, but for what the file shares.

use serde_json::{Value, json};

use crate::{
    callers::{Calls, Session},
    gateway_access::{ONE, TWO, closed},
    gateway_http::finish,
    harness::{Sandbox, run_to_end},
};

/// Tools that leave a value in a field and begin with one, without servers.
const TOOLS: &str = r#"
[state]
shared = ["plant"]

[tools.keep]
command = ["sh", "-c", "printf %s \"$1\" > \"$2/results.json\"", "keep", "{args.value}", "{job_dir}"]
input-schema = { type = "object", properties = { value = { type = "integer" } }, required = ["value"] }
results = "results.json"
state = { field = "result" }

[tools.build]
command = ["sh", "-c", "cp \"$1/basis.json\" \"$1/results.json\"", "build", "{job_dir}"]
inputs = { "basis.json" = "result" }
results = "results.json"
state = { field = "plant" }
"#;

/// What a field holds for whoever asks; null where it was never set.
fn value(session: &mut Session, field: &str) -> Value {
    session.result("get_state", json!({ "field": field }))["structuredContent"]["value"].clone()
}

/// The fields that there are for whoever asks.
fn fields(session: &mut Session) -> Vec<String> {
    let listed = session.result("list_state", json!({}))["structuredContent"].to_string();
    ["plant", "result"].into_iter().filter(|field| listed.contains(field)).map(str::to_owned).collect()
}

/// What `unhang state` prints.
fn typed(sandbox: &Sandbox, arguments: &[&str]) -> (i32, String) {
    let mut command = sandbox.unhang();
    command.args(["state"]).args(arguments);
    let (code, told, _) = run_to_end(command);
    (code, told.trim().to_owned())
}

#[test]
fn f_14_state_is_its_callers_but_for_what_the_file_shares() {
    let sandbox = Sandbox::with_jobs();
    let (process, web) = closed(&sandbox, "127.0.0.1:0", TOOLS, "");
    let [mut one, mut other] = [ONE, TWO].map(|token| Session::begin(&web.with_token(token), "client"));
    assert_eq!(one.result("keep", json!({ "value": 7 }))["isError"], Value::Null);
    assert_eq!(value(&mut one, "result"), 7);
    assert_eq!(fields(&mut one), ["result"]);
    // To anybody else there is no such field, whatever is asked about it.
    assert_eq!(value(&mut other, "result"), Value::Null);
    assert_eq!(fields(&mut other), Vec::<String>::new());
    let refused = other.result("build", json!({}));
    assert!(refused["isError"] == true && refused.to_string().contains("`result`"), "{refused}");
    assert_eq!(typed(&sandbox, &["get", "result"]).0, 6);
    // What they set is theirs, and so is what their jobs leave and begin with.
    other.result("set_state", json!({ "field": "result", "value": 8 }));
    assert_eq!([value(&mut one, "result"), value(&mut other, "result")], [7, 8]);
    assert_eq!(other.result("keep", json!({ "value": 9 }))["isError"], Value::Null);
    assert_eq!(typed(&sandbox, &["set", "result", "1"]).0, 0);
    assert_eq!([value(&mut one, "result"), value(&mut other, "result")], [7, 9]);
    assert_eq!(typed(&sandbox, &["get", "result"]), (0, "1".to_owned()));
    // What is shared is everybody's.
    for (session, expect) in [(&mut one, "7"), (&mut other, "9")] {
        assert_eq!(session.result("build", json!({}))["isError"], Value::Null);
        assert_eq!(typed(&sandbox, &["get", "plant"]), (0, expect.to_owned()));
    }
    assert_eq!(typed(&sandbox, &["set", "plant", "5"]).0, 0);
    assert_eq!([value(&mut one, "plant"), value(&mut other, "plant")], [5, 5]);
    assert_eq!(fields(&mut one), ["plant", "result"]);
    // They are theirs in the next run, too.
    finish(process, &sandbox);
    let (process, web) = closed(&sandbox, "127.0.0.1:0", TOOLS, "");
    let [mut one, mut other] = [ONE, TWO].map(|token| Session::begin(&web.with_token(token), "client"));
    assert_eq!([value(&mut one, "result"), value(&mut other, "result")], [7, 9]);
    finish(process, &sandbox);
}
