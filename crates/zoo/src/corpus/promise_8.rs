//! Promise 8, Fair: one stuck call delays no other, and busy is not hung.

use std::time::Duration;

use serde_json::json;
use unhang_demo_servers::bounded_waits;

use super::client::CorpusClient;
use super::verdict::{Judged, demand};
use super::{BOTH, Case, NEITHER};

/// Calls beside one another.
const OTHERS: usize = 64;
/// Between two pings.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) const CASES: &[Case] = &[
    Case {
        name: "stuck-beside-others",
        demands: "The client gets 64 answers to other calls while one call is stuck.",
        ought: BOTH,
        judge: |trial| {
            trial.meet(&["never-answers", "stuck"], |client| {
                let stuck = client.call("stuck", &json!({}))?;
                let others = many(client, "echo")?;
                others.into_iter().try_for_each(|id| client.result(id).map(drop))?;
                let before = client.received().answers_before(&json!(stuck));
                // The handshake is one of them.
                demand(before > OTHERS, || "the others had to wait for it".to_owned())
            })
        },
    },
    Case {
        name: "death-beside-others",
        demands: "The client gets an answer to every call in flight when one call ends the server's process.",
        ought: NEITHER,
        judge: |trial| {
            trial.meet(&["well-behaved"], |client| {
                let mut calls = Vec::new();
                for _ in 0..8 {
                    calls.push(client.call("sleep", &json!({"ms": 500}))?);
                }
                calls.push(client.call("die", &json!({"code": 1}))?);
                calls.into_iter().try_for_each(|id| client.answer(id).map(drop))
            })
        },
    },
    Case {
        name: "timeout-spares-server",
        demands: "The server keeps running when one call takes too long.",
        ought: BOTH,
        judge: |trial| {
            trial.meet(&["well-behaved"], |client| {
                let first = client.text("pid", &json!({}))?;
                let slow = client.call("sleep", &json!({"ms": 60_000}))?;
                // Half the patience: whoever gives a call up in time has done so, and whoever does not cannot be blamed.
                let half = bounded_waits::now() + client.timeout() / 2;
                while bounded_waits::now() < half && client.received().answer(&json!(slow)).is_none() {
                    client.is_answered("ping", &json!({}))?;
                    bounded_waits::pause(PAUSE);
                }
                let second = client.text("pid", &json!({}))?;
                demand(first == second, || "it was started again".to_owned())
            })
        },
    },
    Case {
        name: "slow-writer",
        demands: "An answer that the server writes byte by byte over a second arrives complete.",
        ought: BOTH,
        judge: |trial| trial.meet(&["slow-writer"], |client| client.echo("hello")),
    },
];

/// Makes many calls at once.
fn many(client: &mut CorpusClient, tool: &str) -> Judged<Vec<u64>> {
    (0..OTHERS).map(|_| client.call(tool, &json!({"text": "hello"}))).collect()
}
