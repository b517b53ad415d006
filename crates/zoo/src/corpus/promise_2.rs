//! Promise 2, Clean wire: only whole, valid, one-line messages reach the client, and those unchanged.

use std::collections::BTreeMap;

use serde_json::json;
use serde_json::value::RawValue;

use super::case_run::WrapperTrial;
use super::client::{CorpusClient, Reads};
use super::verdict::{Flaw, Judged, broken, demand};
use super::{BOTH, Case, NEITHER};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "log-lines",
        demands: "The client gets the answers of a server that logs to stdout, and no log line.",
        ought: NEITHER,
        judge: |trial| trial.meet(&["stdout-noise"], |client| client.echo("hello")),
    },
    Case {
        name: "json-log-lines",
        demands: "The client gets the answer after 8,000 JSON log lines on stdout, and no log line.",
        ought: NEITHER,
        judge: |trial| trial.meet(&["json-logs"], |client| client.echo("hello")),
    },
    Case {
        name: "glued-text",
        demands: "The client does not get text that stands before a message on the same line.",
        ought: NEITHER,
        judge: |trial| answered_cleanly(trial, "glued-text"),
    },
    Case {
        name: "two-on-a-line",
        demands: "The client gets an answer, and never two messages on one line.",
        ought: NEITHER,
        judge: |trial| answered_cleanly(trial, "many-on-a-line"),
    },
    Case {
        name: "invalid-utf8",
        demands: "The client gets an answer, and no bytes that are not UTF-8.",
        ought: NEITHER,
        judge: |trial| answered_cleanly(trial, "invalid-utf8"),
    },
    Case {
        name: "byte-order-mark",
        demands: "The client gets an answer to the handshake, and no byte order mark.",
        ought: NEITHER,
        judge: |trial| answered_cleanly(trial, "crlf"),
    },
    Case {
        name: "result-and-error",
        demands: "The client gets an answer with either a result or an error, never with both.",
        ought: NEITHER,
        judge: |trial| answered_cleanly(trial, "both-outcomes"),
    },
    Case {
        name: "array-answer",
        demands: "The client gets an answer, and no array if its protocol revision has none.",
        ought: NEITHER,
        judge: |trial| answered_cleanly(trial, "batch-answers"),
    },
    Case {
        name: "giant-line",
        demands: "The client gets the answer after a line of 80 MiB that is not a message, and not the line.",
        ought: NEITHER,
        judge: |trial| answered_cleanly(trial, "giant-line-no-newline"),
    },
    Case {
        name: "payload-bytes",
        demands: "Parameters and results arrive byte for byte.",
        ought: BOTH,
        judge: payload_bytes,
    },
    Case {
        name: "server-error",
        demands: "The client gets a server's error with its code, message and data.",
        ought: BOTH,
        judge: |trial| {
            trial.meet(&["server-error"], |client| {
                let answer = client.is_answered("tools/call", &json!({"name": "echo", "arguments": {}}))?;
                let error = json!({"code": -32603, "message": "Internal error",
                    "data": {"detail": "the database is locked", "retryable": false}});
                demand(answer["error"] == error, || "another error came".to_owned())
            })
        },
    },
    Case {
        name: "progress",
        demands: "The client gets progress before the answer.",
        ought: BOTH,
        judge: |trial| {
            trial.meet(&["well-behaved"], |client| {
                let params =
                    json!({"name": "sleep", "arguments": {"ms": 300}, "_meta": {"progressToken": "p"}});
                client.is_answered("tools/call", &params)?;
                let is_progress = |message: &serde_json::Value| message["params"]["progressToken"] == "p";
                demand(client.received().asked().any(is_progress), || "no progress came".to_owned())
            })
        },
    },
    Case {
        name: "questions",
        demands: "The client gets the server's requests, and the server gets the client's answers.",
        ought: BOTH,
        judge: |trial| {
            trial.meet(&["requests-to-client"], |client| {
                let call = client.call("echo", &json!({}))?;
                client.wait_for("questions", |received| (received.asked().count() >= 4).then_some(()))?;
                let ids: Vec<_> = client.received().asked().map(|question| question["id"].clone()).collect();
                for id in ids {
                    client.say(&json!({"jsonrpc": "2.0", "id": id, "result": {}}))?;
                }
                client.result(call).map(drop)
            })
        },
    },
];

/// A session in which one call must be answered, in whichever way, and no line may be anything but a message.
fn answered_cleanly(trial: &WrapperTrial<'_>, faulty_server: &str) -> Judged {
    let mut client = trial.connect(&[faulty_server])?;
    let talk = |client: &mut CorpusClient| {
        client.shake_hands()?;
        client.is_answered("tools/call", &json!({"name": "echo", "arguments": {"text": "hello"}})).map(drop)
    };
    // What is wrong with a line says more than the silence that follows from it.
    let judged = talk(&mut client);
    client.demand_clean_wire()?;
    judged
}

/// Parameters as no serialiser would write them.
const ODD_PARAMS: &str = r#"{ "name":"echo" ,"arguments":{"text":"caf\u00e9 \/ caf","n":1.50e2,"n":0.0,"big":123456789012345678901234567890,"x":null}}"#;
/// The id of the call with them.
const ODD_ID: u64 = 4711;

/// What went in and what came out is compared with what a recorder between contender and server has seen.
fn payload_bytes(trial: &WrapperTrial<'_>) -> Judged {
    let (sent, answered) = (trial.file("from-client")?, trial.file("from-server")?);
    let recorder = ["tee", &sent, &answered, "--", trial.program(), "zoo", "well-behaved"];
    trial.meet(&recorder, |client| {
        let line =
            format!(r#"{{"jsonrpc":"2.0","id":{ODD_ID},"method":"tools/call","params":{ODD_PARAMS}}}"#);
        client.send(format!("{line}\n").as_bytes(), Reads::Always)?;
        client.answer(ODD_ID)?;
        let arrived = client.received().answer_line(&json!(ODD_ID)).unwrap_or_default();
        let reached = std::fs::read(&sent)?;
        let is_call = |line: &&[u8]| member(line, "method").as_deref() == Some("\"tools/call\"");
        let Some(call) = reached.split(|byte| *byte == b'\n').find(is_call) else {
            return broken("the call did not reach the server");
        };
        demand(member(call, "params").as_deref() == Some(ODD_PARAMS), || "changed parameters".to_owned())?;
        let said = std::fs::read(&answered)?;
        let id = member(call, "id").ok_or_else(|| Flaw::Broken("a call without its id".to_owned()))?;
        let is_answer = |line: &&[u8]| member(line, "id").as_ref() == Some(&id);
        let answer = said.split(|byte| *byte == b'\n').find(is_answer).unwrap_or_default();
        let result =
            member(answer, "result").ok_or_else(|| Flaw::Failed("the server gave no result".to_owned()))?;
        demand(member(arrived, "result") == Some(result), || "a changed result".to_owned())
    })
}

/// A member of a message as it is written.
fn member(line: &[u8], name: &str) -> Option<String> {
    let mut members: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(line).ok()?;
    members.remove(name).map(|value| value.get().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_found_as_it_is_written() {
        let line = format!(r#"{{"id":1, "params" : {ODD_PARAMS}}}"#);
        assert_eq!(member(line.as_bytes(), "params").as_deref(), Some(ODD_PARAMS));
        assert_eq!(member(line.as_bytes(), "result"), None);
        assert_eq!(member(b"no message", "id"), None);
    }
}
