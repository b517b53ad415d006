//! Answers of clients to questions, and what of them reaches the server.

use unhang_upstream::question::ReplyError;
use unhang_wire::{Line, SkippedMessage};

use super::{
    questions::{asks, calling, reply},
    *,
};

#[test]
fn an_error_of_the_client_reaches_the_server_whole() {
    let (mut front, key) = calling();
    asks(&mut front, key, 5, "elicitation/create", None);
    front.says(
        r#"{"jsonrpc":"2.0","id":"unhang-5","error":{"code":5000000000,"message":"no","data":{ "x":[1.0e0] }}}"#,
    );
    let data = Some(r#"{ "x":[1.0e0] }"#.into());
    assert_eq!(
        reply(&mut front),
        (5, Err(ReplyError { code: 5_000_000_000, message: "no".to_owned(), data }))
    );
}

#[test]
fn an_invalid_answer_of_a_client_is_an_error_for_the_server_at_once() {
    let (mut front, key) = calling();
    for (question, members) in [
        (5, r#","error":"no""#),
        (6, r#","error":{"code":"x","message":"no"}"#),
        (7, r#","error":{"code":-1}"#),
        (8, r#","error":{"message":"no"}"#),
        (9, ""),
        (10, r#","result":{},"error":{"code":1,"message":"no"}"#),
    ] {
        asks(&mut front, key, question, "elicitation/create", None);
        front.received();
        let line = format!(r#"{{"jsonrpc":"2.0","id":"unhang-{question}"{members}}}"#);
        front.says(&line);
        let (of, replied) = reply(&mut front);
        let error = replied.expect_err("invalid");
        assert!(of == question && error.code == -31007, "{line}: {error:?}");
        assert!(error.message.contains("`elicitation/create` with an invalid response"), "{line}: {error:?}");
        assert!(front.received().is_empty(), "the client has answered: {line}");
        // Once is enough.
        front.says(&line);
        assert!(
            front.actions().iter().all(|action| !matches!(action, SessionAction::Reply { .. })),
            "{line}"
        );
    }
}

/// Says a line that is over the limit.
fn says_too_much(front: &mut TestSession, line: &str) {
    let mut skipped = SkippedMessage::default();
    skipped.feed(line.as_bytes());
    let line = Line::Oversized(skipped.finish());
    front.mcp_session.client_line(front.now, ONLY_STREAM, line, &mut front.effects);
}

#[test]
fn an_oversized_answer_of_a_client_is_an_error_for_the_server_at_once() {
    let (mut front, key) = calling();
    for question in [5, 6] {
        asks(&mut front, key, question, "elicitation/create", None);
    }
    front.received();
    for (question, members) in [(5, r#""result":{"x":"yyy"}"#), (6, r#""error":{"code":1,"message":"yyy"}"#)]
    {
        let line = format!(r#"{{"jsonrpc":"2.0","id":"unhang-{question}",{members}}}"#);
        says_too_much(&mut front, &line);
        let (of, replied) = reply(&mut front);
        let error = replied.expect_err("it was not read");
        assert!(of == question && error.code == -31007, "{line}: {error:?}");
        assert!(error.message.contains("`elicitation/create` with a message over the limit of"), "{error:?}");
        assert!(front.received().is_empty(), "the client has answered: {line}");
    }
    // The session refuses an answer to a question that is not open, and a request.
    for line in
        [r#"{"jsonrpc":"2.0","id":"unhang-5","result":{}}"#, r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#]
    {
        says_too_much(&mut front, line);
        assert_eq!(front.received().remove(0)["error"]["code"], -31006, "{line}");
    }
    assert!(front.actions().is_empty());
}
