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
        demands: "Calls of an honest server are answered with what it says, its errors included.",
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
        demands: "A call that the server never answers is answered.",
        ought: NEITHER,
        judge: |trial| trial.meet(&["never-answers", "stuck"], |client| call(client, "stuck")),
    },
    Case {
        name: "silent-handshake",
        demands: "An `initialize` that the server never answers is answered.",
        ought: NEITHER,
        judge: |trial| handshake(trial, "silent-at-start"),
    },
    Case {
        name: "dies-at-start",
        demands: "An `initialize` to a server that exits at once is answered.",
        ought: NEITHER,
        judge: |trial| handshake(trial, "dies-at-start"),
    },
    Case {
        name: "dies-in-call",
        demands: "A call in which the server dies is answered.",
        ought: NEITHER,
        judge: |trial| trial.meet(&["dies-every-call"], |client| call(client, "echo")),
    },
    Case {
        name: "half-an-answer",
        demands: "A call is answered though the server stops in the middle of its line.",
        ought: NEITHER,
        judge: |trial| trial.meet(&["half-line"], |client| call(client, "echo")),
    },
    Case {
        name: "closed-output",
        demands: "A call is answered though the server has closed its stdout and lives on.",
        ought: NEITHER,
        judge: |trial| trial.meet(&["closes-stdout"], |client| call(client, "echo")),
    },
    Case {
        name: "stopped-server",
        demands: "A call to a server stopped by SIGSTOP is answered.",
        ought: NEITHER,
        judge: |trial| trial.meet(&["stopped"], |client| call(client, "echo")),
    },
    Case {
        name: "wrong-id",
        demands: "A call that the server answers under an unknown id is answered under its own.",
        ought: NEITHER,
        judge: |trial| trial.meet(&["wrong-id"], |client| call(client, "echo")),
    },
    Case {
        name: "id-as-text",
        demands: "A call with a number for an id that comes back as text is answered under the number.",
        ought: NEITHER,
        judge: |trial| trial.meet(&["string-id"], |client| call(client, "echo")),
    },
    Case {
        name: "no-jsonrpc-member",
        demands: "A call is answered by a valid message though the server leaves `jsonrpc` out.",
        ought: NEITHER,
        judge: |trial| trial.meet(&["no-jsonrpc"], |client| call(client, "echo")),
    },
    Case {
        name: "two-answers",
        demands: "A call that the server answers twice is answered once.",
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
        demands: "A line that is no JSON is answered with an error, and what follows works.",
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
        demands: "A call right before the end of the client's stream is answered still.",
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
