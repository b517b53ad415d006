//! What a line from the guard says, read strictly: the soak's own reading of JSON-RPC, which shares nothing with the
//! guard's.
//!
//! # Invariants
//!
//! - Whatever is not exactly a JSON-RPC 2.0 message, or an array of answers, is an error with its reason.
//! - Payloads are not parsed, so a deep or large result costs nothing and is no reason to complain.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

/// The code that belongs to each kind of error of unhang's own (docs/guide/wrap.md).
const KINDS: &[(&str, i64)] = &[
    ("deadline", -31001),
    ("server_exited", -31002),
    ("start_failed", -31003),
    ("breaker_open", -31004),
    ("overloaded", -31005),
    ("too_large", -31006),
    ("bad_response", -31007),
    ("shutting_down", -31008),
    ("parse_error", -32700),
    ("invalid_request", -32600),
];

/// How a request was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AnswerOutcome {
    /// By the server, with a result.
    Result,
    /// By the server, with an error.
    ServerError,
    /// By unhang, with an error of this kind.
    Fault(String),
}

/// One message from the guard. Ids and tokens are in their JSON form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    Answer {
        id: String,
        outcome: AnswerOutcome,
    },
    /// An error that belongs to no id, as garbage gets it.
    Nameless {
        kind: String,
    },
    /// A request of the server.
    Ask {
        id: String,
        method: String,
    },
    Notification {
        method: String,
        /// Of progress.
        token: Option<String>,
    },
}

/// Reads one line, without its line feed.
pub(crate) fn read(line: &[u8]) -> Result<Vec<Said>, String> {
    let text = std::str::from_utf8(line).map_err(|error| format!("no UTF-8: {error}"))?;
    if !text.starts_with('[') {
        return message(text).map(|said| vec![said]);
    }
    let elements: Vec<&RawValue> = serde_json::from_str(text).map_err(|error| format!("no JSON: {error}"))?;
    if elements.is_empty() {
        return Err("an empty array".to_owned());
    }
    let said: Vec<_> =
        elements.into_iter().map(|element| message(element.get())).collect::<Result<_, _>>()?;
    let answers = said.iter().all(|said| matches!(said, Said::Answer { .. } | Said::Nameless { .. }));
    if answers { Ok(said) } else { Err("an array of more than answers".to_owned()) }
}

fn message(text: &str) -> Result<Said, String> {
    let members: BTreeMap<String, &RawValue> =
        serde_json::from_str(text).map_err(|error| format!("no JSON object: {error}"))?;
    let member = |name: &str| members.get(name).map(|value| value.get());
    if member("jsonrpc") != Some(r#""2.0""#) {
        return Err("no `jsonrpc` of \"2.0\"".to_owned());
    }
    let id = member("id").map(canonical).transpose()?;
    let Some(method) = member("method") else {
        return answer(id, member("result"), member("error"));
    };
    if member("result").is_some() || member("error").is_some() {
        return Err("both a method and an outcome".to_owned());
    }
    let method: String =
        serde_json::from_str(method).map_err(|error| format!("a method that is no text: {error}"))?;
    Ok(match id {
        Some(id) if id == "null" => return Err("a request with the id null".to_owned()),
        Some(id) => Said::Ask { id, method },
        None => {
            let is_progress = method == "notifications/progress";
            let token = member("params").filter(|_| is_progress).and_then(progress_token);
            Said::Notification { method, token }
        }
    })
}

fn answer(id: Option<String>, result: Option<&str>, error: Option<&str>) -> Result<Said, String> {
    let id = id.ok_or("neither a method nor an id")?;
    let outcome = match (result, error) {
        (Some(_), None) => AnswerOutcome::Result,
        (None, Some(error)) => outcome(error)?,
        (Some(_), Some(_)) => return Err("both a result and an error".to_owned()),
        (None, None) => return Err("neither a result nor an error".to_owned()),
    };
    match (id.as_str(), outcome) {
        ("null", AnswerOutcome::Fault(kind)) => Ok(Said::Nameless { kind }),
        ("null", _) => Err("an answer of the server with the id null".to_owned()),
        (_, outcome) => Ok(Said::Answer { id, outcome }),
    }
}

fn outcome(error: &str) -> Result<AnswerOutcome, String> {
    let error: Value =
        serde_json::from_str(error).map_err(|error| format!("an unreadable error: {error}"))?;
    let code = error["code"].as_i64().ok_or("an error without a code")?;
    if !error["message"].is_string() {
        return Err("an error without a message".to_owned());
    }
    if error["data"]["origin"] != "unhang" {
        return Ok(AnswerOutcome::ServerError);
    }
    let kind = error["data"]["kind"].as_str().unwrap_or_default();
    if !KINDS.contains(&(kind, code)) {
        return Err(format!("an error of unhang with the code {code} and the kind `{kind}`"));
    }
    Ok(AnswerOutcome::Fault(kind.to_owned()))
}

/// The form in which ids are compared.
fn canonical(id: &str) -> Result<String, String> {
    let id: Value = serde_json::from_str(id).map_err(|error| format!("an unreadable id: {error}"))?;
    if id.is_string() || id.is_number() || id.is_null() {
        Ok(id.to_string())
    } else {
        Err(format!("the id {id}"))
    }
}

fn progress_token(params: &str) -> Option<String> {
    let params: Value = serde_json::from_str(params).ok()?;
    Some(params["progressToken"].to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_message_is_known() {
        let one = |text: &str| read(text.as_bytes()).expect("valid").remove(0);
        let id = || "7".to_owned();
        let answer = |outcome| Said::Answer { id: id(), outcome };
        assert_eq!(one(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#), answer(AnswerOutcome::Result));
        assert_eq!(
            one(r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"x"}}"#),
            answer(AnswerOutcome::ServerError)
        );
        let data = r#"{"origin":"unhang","kind":"deadline"}"#;
        assert_eq!(
            one(&format!(
                r#"{{"jsonrpc":"2.0","id":7,"error":{{"code":-31001,"message":"x","data":{data}}}}}"#
            )),
            answer(AnswerOutcome::Fault("deadline".to_owned()))
        );
        assert_eq!(
            one(r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#),
            Said::Ask { id: id(), method: "ping".to_owned() }
        );
        assert_eq!(
            one(r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7}}"#),
            Said::Notification { method: "notifications/progress".to_owned(), token: Some(id()) }
        );
        let two = r#"[{"jsonrpc":"2.0","id":1,"result":1},{"jsonrpc":"2.0","id":2,"result":2}]"#;
        assert_eq!(read(two.as_bytes()).map(|said| said.len()), Ok(2));
    }

    #[test]
    fn a_result_may_be_deeper_than_a_parser_allows() {
        let deep =
            format!(r#"{{"jsonrpc":"2.0","id":7,"result":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
        assert!(read(deep.as_bytes()).is_ok());
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for line in [
            "",
            "starting up",
            "[]",
            "null",
            r#"{"id":7,"result":{}}"#,
            r#"{"jsonrpc":"2.0"}"#,
            r#"{"jsonrpc":"2.0","id":7}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":1,"message":"x"}}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{}}{"jsonrpc":"2.0","id":8,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":null,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":[7],"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-31002,"message":"x","data":{"origin":"unhang","kind":"deadline"}}}"#,
            r#"[{"jsonrpc":"2.0","id":1,"result":1},{"jsonrpc":"2.0","method":"x"}]"#,
        ] {
            assert!(read(line.as_bytes()).is_err(), "{line}");
        }
        assert!(read(b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":\"\xE9\"}").is_err());
    }
}
