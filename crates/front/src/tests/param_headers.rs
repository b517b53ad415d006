//! The headers of a call that repeat its arguments are compared with them (2026-07-28, SEP-2243).

use unhang_upstream::http::param_headers::ReceivedParamHeaders;

use super::{
    servers::{TOOL, ask, asked, known},
    *,
};

/// A tool that wants its argument in a header too.
const QUERY: &str = r#"{"name":"query","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}"#;

/// The params of a call that stands alone.
fn params(tool: &str) -> String {
    let meta = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    format!(r#"{{"name":"{tool}","arguments":{{"region":"SECRET"}},"_meta":{meta}}}"#)
}

/// A request that stands alone and brings these headers.
fn alone(is_settled: bool, headers: Option<&[(&str, &str)]>) -> TestSession {
    let tools: &[&str] = if is_settled { &[TOOL, QUERY] } else { &[TOOL] };
    let mut front = TestSession::new(Limits::default());
    front.mcp_session = front.mcp_session.for_one_request().with_servers(known(tools, is_settled));
    let received = headers.map(|headers| {
        ReceivedParamHeaders::among(headers.iter().map(|(name, value)| (*name, value.as_bytes())))
    });
    front.mcp_session.set_param_headers(received);
    front
}

#[track_caller]
fn assert_refused(front: &mut TestSession, why: &str) {
    let error = front.heard_fault(1, -32020);
    let message = error["message"].as_str().expect("a sentence");
    assert!(message.contains(why) && message.contains("list the tools again"), "{message}");
    assert!(!error.to_string().contains("SECRET"), "{error}");
    assert_eq!(front.actions(), [], "no server is asked");
}

#[test]
fn a_call_whose_headers_differ_from_its_arguments_is_refused() {
    for (headers, why) in [
        (&[][..], "the header mcp-param-region is missing, but the argument `region` has a value"),
        (
            &[("mcp-param-region", "SECRETS")],
            "the header mcp-param-region is not equal to the argument `region`",
        ),
    ] {
        let mut front = alone(true, Some(headers));
        ask(&mut front, 1, "tools/call", &params("srv__query"));
        assert_refused(&mut front, why);
    }
}

#[test]
fn a_call_is_made_if_its_headers_repeat_its_arguments_or_nothing_has_to_be_in_headers() {
    for (tool, headers) in [
        ("srv__query", Some(&[("mcp-param-region", "SECRET"), ("mcp-param-other", "x")][..])),
        ("srv__query", None),
        ("srv__now", Some(&[("mcp-param-region", "x")])),
        ("srv__now", Some(&[])),
    ] {
        let mut front = alone(true, headers);
        ask(&mut front, 1, "tools/call", &params(tool));
        assert_eq!(front.received(), Vec::<Value>::new(), "{tool} {headers:?}");
        asked(&mut front);
    }
    // A tool of unhang itself wants no headers.
    let mut front = alone(true, Some(&[("mcp-param-region", "x")]));
    ask(&mut front, 1, "tools/call", &params("echo"));
    assert_eq!(front.called().len(), 1);
}

#[test]
fn headers_are_compared_once_the_tool_is_known_and_no_answer_begins_before() {
    for (headers, is_unchecked) in [
        (Some(&[("mcp-param-region", "x")][..]), true),
        (Some(&[("mcp-param-region", "SECRET")]), true),
        (None, false),
    ] {
        let mut front = alone(false, headers);
        ask(&mut front, 1, "tools/call", &params("srv__query"));
        assert_eq!(front.mcp_session.may_get_a_status(ONLY_STREAM), is_unchecked);
        // Headers of a later message do not count for this one.
        front.mcp_session.set_param_headers(None);
        front.mcp_session.servers_changed(front.now, &known(&[TOOL, QUERY], true), &mut front.effects);
        assert!(!front.mcp_session.may_get_a_status(ONLY_STREAM));
        match headers {
            Some([(_, "x")]) => assert_refused(&mut front, "is not equal to the argument `region`"),
            _ => drop(asked(&mut front)),
        }
    }
    // Other requests have no such headers.
    let mut front = alone(false, Some(&[]));
    ask(&mut front, 1, "resources/read", &params("x").replace("name", "uri"));
    assert!(front.mcp_session.awaits(ONLY_STREAM) && !front.mcp_session.may_get_a_status(ONLY_STREAM));
}
