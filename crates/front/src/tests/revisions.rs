//! What each revision hears, line by line.

use super::*;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Says each line and compares what is heard at once; a call is answered with `hi`.
#[track_caller]
fn conversation(front: &mut TestSession, talk: &[(&str, &str)]) {
    for (says, hears) in talk {
        front.says(says);
        for key in front.called() {
            front.ends(key, "hi");
        }
        let received = front.effects.received.drain(..).collect::<Vec<_>>().join("\n");
        let hears = hears.replace("VERSION", VERSION);
        assert_eq!(received, hears, "after {says}");
    }
}

const LIST: &str = r#"{"jsonrpc":"2.0","id":"l","method":"tools/list"}"#;
const CALL: &str =
    r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{}}}"#;
const PING: &str = r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#;
const PONG: &str = r#"{"jsonrpc":"2.0","id":3,"result":{}}"#;

fn initialize(version: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{{}},"clientInfo":{{"name":"c","version":"1"}}}}}}"#
    )
}

fn initialized(version: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"result":{{"capabilities":{{"tools":{{}}}},"instructions":"Call echo.","protocolVersion":"{version}","serverInfo":{{"name":"unhang","version":"VERSION"}}}}}}"#
    )
}

const ANNOTATIONS: &str = r#""annotations":{"destructiveHint":false,"idempotentHint":false,"openWorldHint":false,"readOnlyHint":true},"#;

#[test]
fn the_first_revision() {
    let mut front = TestSession::new(Limits::default());
    conversation(
        &mut front,
        &[
            (&initialize("2024-11-05"), &initialized("2024-11-05")),
            (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, ""),
            (
                LIST,
                r#"{"jsonrpc":"2.0","id":"l","result":{"tools":[{"description":"Echoes","inputSchema":{"type":"object"},"name":"echo"}]}}"#,
            ),
            (CALL, r#"{"jsonrpc":"2.0","id":2,"result":{"content":[{"text":"hi","type":"text"}]}}"#),
            (PING, PONG),
        ],
    );
    front.says(&format!("[{PING}]"));
    front.heard_fault(Value::Null, -32600);
}

#[test]
fn the_revision_with_batches() {
    let mut front = TestSession::new(Limits::default());
    let list = format!(
        r#"{{"jsonrpc":"2.0","id":"l","result":{{"tools":[{{{ANNOTATIONS}"description":"Echoes","inputSchema":{{"type":"object"}},"name":"echo"}}]}}}}"#
    );
    let call = r#"{"jsonrpc":"2.0","id":2,"result":{"content":[{"text":"hi","type":"text"}]}}"#;
    conversation(
        &mut front,
        &[
            (&initialize("2025-03-26"), &initialized("2025-03-26")),
            (LIST, &list),
            (&format!("[{CALL},{PING}]"), &format!("[{PONG},{call}]")),
            (r#"[{"jsonrpc":"2.0","method":"notifications/initialized"}]"#, ""),
        ],
    );
    front.says(&format!("[{},{PING}]", initialize("2025-03-26")));
    let received = front.received();
    assert_eq!(
        (received.len(), &received[0][0]["error"]["code"], &received[0][1]["id"]),
        (1, &json!(-32600), &json!(3))
    );
}

#[test]
fn the_revisions_with_structured_results() {
    for version in ["2025-06-18", "2025-11-25"] {
        let mut front = TestSession::new(Limits::default());
        let list = format!(
            r#"{{"jsonrpc":"2.0","id":"l","result":{{"tools":[{{{ANNOTATIONS}"description":"Echoes","inputSchema":{{"type":"object"}},"name":"echo","outputSchema":{{"type":"object"}}}}]}}}}"#
        );
        conversation(
            &mut front,
            &[
                (&initialize(version), &initialized(version)),
                (LIST, &list),
                (
                    CALL,
                    r#"{"jsonrpc":"2.0","id":2,"result":{"content":[{"text":"hi","type":"text"}],"structuredContent":{"said":"hi"}}}"#,
                ),
                (PING, PONG),
            ],
        );
        front.says(&format!("[{PING}]"));
        front.heard_fault(Value::Null, -32600);
        front.says(r#"{"jsonrpc":"2.0","id":4,"method":"server/discover"}"#);
        front.heard_fault(4, -32601);
    }
}

fn stateless(id: u32, method: &str, params: &str, version: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}"_meta":{{"io.modelcontextprotocol/protocolVersion":"{version}","io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
    )
}

#[test]
fn the_stateless_revision() {
    let meta = r#""_meta":{"io.modelcontextprotocol/serverInfo":{"name":"unhang","version":"VERSION"}},"#;
    let discovered = format!(
        r#"{{"jsonrpc":"2.0","id":1,"result":{{{meta}"cacheScope":"private","capabilities":{{"tools":{{}}}},"instructions":"Call echo.","resultType":"complete","supportedVersions":["2026-07-28"],"ttlMs":60000}}}}"#
    );
    let listed = format!(
        r#"{{"jsonrpc":"2.0","id":2,"result":{{{meta}"cacheScope":"private","resultType":"complete","tools":[{{{ANNOTATIONS}"description":"Echoes","inputSchema":{{"type":"object"}},"name":"echo","outputSchema":{{"type":"object"}}}}],"ttlMs":60000}}}}"#
    );
    let called = format!(
        r#"{{"jsonrpc":"2.0","id":3,"result":{{{meta}"content":[{{"text":"hi","type":"text"}}],"resultType":"complete","structuredContent":{{"said":"hi"}}}}}}"#
    );
    let version = "2026-07-28";
    let talk = [
        (stateless(1, "server/discover", "", version), discovered),
        (stateless(2, "tools/list", "", version), listed),
        (stateless(3, "tools/call", r#""name":"echo","#, version), called),
    ];
    let talk: Vec<_> = talk.iter().map(|(says, hears)| (&**says, &**hears)).collect();
    let mut front = TestSession::new(Limits::default());
    conversation(&mut front, &talk);
    // The same in the middle of a session: both may be served at once.
    let mut front = TestSession::shaken(Limits::default(), "2024-11-05");
    conversation(&mut front, &talk);
    conversation(&mut front, &[(PING, PONG)]);

    front.says(&stateless(4, "ping", "", version));
    front.heard_fault(4, -32601);
    front.says(&format!("[{}]", stateless(5, "server/discover", "", version)));
    front.heard_fault(Value::Null, -32600);
    for unknown in ["2027-01-01", "2025-11-25", ""] {
        front.says(&stateless(6, "tools/list", "", unknown));
        let fault = front.heard_fault(6, -32022);
        assert_eq!(fault["data"]["supported"], json!([version]));
        assert_eq!(fault["data"]["requested"], unknown);
    }
}

#[test]
fn a_request_that_belongs_to_no_revision_is_told_how_to_begin() {
    let mut front = TestSession::new(Limits::default());
    for method in ["tools/list", "tools/call", "server/discover", "nonsense"] {
        front.says(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#));
        let fault = front.heard_fault(1, -32602);
        assert!(fault["message"].as_str().is_some_and(|text| text.contains("`initialize`")), "{fault}");
    }
    let no_capabilities = stateless(2, "tools/list", "", "2026-07-28").replace("clientCapabilities", "other");
    front.says(&no_capabilities);
    front.heard_fault(2, -32602);
    front.says(r#"{"jsonrpc":"2.0","id":3,"method":"initialize","params":{}}"#);
    front.heard_fault(3, -32602);
    conversation(&mut front, &[(PING, PONG), (&initialize("2031-01-01"), &initialized("2025-11-25"))]);
    // A client that names the revision of its session with each request is in that session.
    conversation(&mut front, &[(&stateless(3, "ping", "", "2025-11-25"), PONG)]);
}
