//! Promise 1, Answered: each request gets exactly one response, with its own id, in time.

use serde_json::json;

use super::case_run::WrapperTrial;
use super::client::{CorpusClient, Reads};
use super::received::Received;
use super::verdict::{Judged, demand};
use super::{BOTH, Case, NEITHER};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "honest-call",
        demands: "The client gets each answer of an honest server, errors included.",
        ought: BOTH,
        judge: |trial| {
            trial.meet(&["well-behaved"], |client| {
                client.echo("hello")?;
                let refused =
                    client.is_answered("tools/call", &json!({"name": "unknown", "arguments": {}}))?;
                demand(refused["error"]["code"] == -32602, || "another error came".to_owned())
            })
        },
    },
    Case {
        name: "stuck-call",
        demands: "The client gets an answer to a call that the server never answers.",
        ought: NEITHER,
        judge: |trial| trial.meet(&["never-answers", "stuck"], |client| call(client, "stuck")),
    },
    Case {
        name: "silent-handshake",
        demands: "The client gets an answer to an `initialize` that the server never answers.",
        ought: NEITHER,
        judge: |trial| handshake(trial, "silent-at-start"),
    },
    Case {
        name: "dies-at-start",
        demands: "The client gets an answer to its `initialize` when the server exits at once.",
        ought: NEITHER,
        judge: |trial| handshake(trial, "dies-at-start"),
    },
    Case {
        name: "dies-in-call",
        demands: "The client gets an answer to a call that ends the server's process.",
        ought: NEITHER,
        judge: |trial| trial.meet(&["dies-every-call"], |client| call(client, "echo")),
    },
    Case {
        name: "half-an-answer",
        demands: "The client gets an answer when the server writes only half a line.",
        ought: NEITHER,
        judge: |trial| trial.meet(&["half-line"], |client| call(client, "echo")),
    },
    Case {
        name: "closed-output",
        demands: "The client gets an answer when the server closes its stdout and keeps running.",
        ought: NEITHER,
        judge: |trial| trial.meet(&["closes-stdout"], |client| call(client, "echo")),
    },
    Case {
        name: "stopped-server",
        demands: "The client gets an answer when SIGSTOP has stopped the server.",
        ought: NEITHER,
        judge: |trial| trial.meet(&["stopped"], |client| call(client, "echo")),
    },
    Case {
        name: "wrong-id",
        demands: "The client gets an answer with the id of its call when the server answers with an unknown id.",
        ought: NEITHER,
        judge: |trial| trial.meet(&["wrong-id"], |client| call(client, "echo")),
    },
    Case {
        name: "id-as-text",
        demands: "The client gets the number that it sent as id when the server returns the id as text.",
        ought: NEITHER,
        judge: |trial| trial.meet(&["string-id"], |client| call(client, "echo")),
    },
    Case {
        name: "no-jsonrpc-member",
        demands: "The client gets a valid message when the server omits `jsonrpc`.",
        ought: NEITHER,
        judge: |trial| trial.meet(&["no-jsonrpc"], |client| call(client, "echo")),
    },
    Case {
        name: "two-answers",
        demands: "The client gets one answer to a call that the server answers twice.",
        ought: NEITHER,
        judge: |trial| {
            trial.meet(&["answers-twice"], |client| {
                call(client, "echo")?;
                // The second answer comes before this one, or never.
                client.is_answered("ping", &json!({})).map(drop)
            })
        },
    },
    Case {
        name: "unreadable-request",
        demands: "The client gets an error for a line that is not JSON, and its next calls work.",
        ought: NEITHER,
        judge: |trial| {
            trial.meet(&["well-behaved"], |client| {
                client.send(b"{\"jsonrpc\":\"2.0\",\"id\":99,\"method\n", Reads::Always)?;
                // The id may have been made out or not.
                let ids = [json!(null), json!(99)];
                let is_refused = |received: &Received| {
                    let answers = ids.iter().filter_map(|id| received.answer(id));
                    answers.map(|answer| &answer["error"]).find(|error| error.is_object()).map(drop)
                };
                client.wait_for("error", is_refused)?;
                client.echo("hello")
            })
        },
    },
    Case {
        name: "call-before-the-end",
        demands: "The client gets the answer to a call that it sends just before it closes its stream.",
        ought: BOTH,
        judge: |trial| {
            trial.meet(&["well-behaved"], |client| {
                let id = client.call("sleep", &json!({"ms": 300}))?;
                client.close();
                client.result(id).map(drop)
            })
        },
    },
];

/// A call that must be answered, in whichever way.
fn call(client: &mut CorpusClient, tool: &str) -> Judged {
    client.is_answered("tools/call", &json!({"name": tool, "arguments": {"text": "hello"}})).map(drop)
}

fn handshake(trial: &WrapperTrial<'_>, faulty_server: &str) -> Judged {
    let mut client = trial.connect(&[faulty_server])?;
    let id = client.introduce()?;
    client.answer(id)?;
    client.demand_clean_wire()
}
