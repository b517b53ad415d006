//! What is known about the client: its era, its revision, and the health checks that fit them.

use serde_json::json;

use super::*;
use unhang_core::revision::Revision;

/// The part of a request's params in which a client without a handshake introduces itself.
pub(super) const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;

#[test]
fn a_client_that_falls_back_to_a_handshake_speaks_the_revision_of_the_handshake() {
    let mut guarded = Guarded::new(Limits::default());
    guarded.wrap_session = guarded.wrap_session.with_jobs();
    let client = |guarded: &Guarded| {
        let client = &guarded.wrap_session.client;
        (client.is_modern(), client.revision(), client.has_progress_messages(), client.allows_probes())
    };
    let probe = |guarded: &Guarded| -> Value {
        serde_json::from_slice(&guarded.wrap_session.client.probe(&Id::from(5))).unwrap()
    };
    assert_eq!(client(&guarded), (false, Revision::V2024November, false, false));
    assert_eq!(probe(&guarded), json!({"jsonrpc": "2.0", "id": 5, "method": "ping"}));
    guarded.client(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{{{META}}}}}"#));
    assert_eq!(client(&guarded), (true, Revision::V2026July, true, true));
    let discover = probe(&guarded);
    assert_eq!((&discover["id"], &discover["method"]), (&json!(5), &json!("server/discover")));
    let meta = &discover["params"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "unhang");
    guarded.server(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"unknown method"}}"#);
    guarded.received();
    guarded.client(INITIALIZE);
    assert_eq!(client(&guarded), (false, Revision::V2024November, false, false));
    guarded.server(
        r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}}"#,
    );
    let capabilities = guarded.received()[0]["result"]["capabilities"].clone();
    assert!(capabilities["tasks"].is_object(), "tasks are offered in this revision: {capabilities}");
    assert_eq!(client(&guarded), (false, Revision::V2025November, true, false));
    guarded.client(INITIALIZED);
    assert_eq!(client(&guarded), (false, Revision::V2025November, true, true));
    assert_eq!(probe(&guarded), json!({"jsonrpc": "2.0", "id": 5, "method": "ping"}));
}
