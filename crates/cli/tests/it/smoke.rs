//! The shortest way through: a well-behaved server behind the guard.

use serde_json::json;

use crate::harness::Sandbox;

#[test]
fn a_call_goes_through_and_everything_ends() {
    let sandbox = Sandbox::new();
    let mut client = sandbox.wrap(&[], &["well-behaved"]);
    client.initialize();
    assert_eq!(client.tool_text("echo", json!({"text": "hello"})), "hello");
    client.finish();
}
