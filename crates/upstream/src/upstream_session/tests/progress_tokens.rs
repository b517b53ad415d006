//! The progress tokens that a server gets.

use serde_json::json;

use super::{super::*, calls_with, talking};

/// A server may read `2.0` as `2`, and then its progress would be that of another caller.
#[tokio::test]
async fn a_server_gets_no_progress_token_that_is_not_ours() {
    let (mut upstream_session, ..) = talking(0);
    for params in [r#"{"_meta":{"progressToken":2.0}}"#, r#"{"_me\u0074a":{"progress\u0054oken":[2]}}"#] {
        calls_with(&mut upstream_session, params, None);
        let Some(Outgoing::Request { line, .. }) = upstream_session.next_out() else { panic!("it is sent") };
        let sent: Value = serde_json::from_slice(&line).expect("JSON");
        assert_eq!(sent["params"]["_meta"], json!({}), "{params}");
    }
}
