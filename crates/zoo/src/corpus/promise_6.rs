//! Promise 6, Restarted: a dead server comes back in its session, and one that keeps failing is left alone.

use std::time::Duration;

use serde_json::{Value, json};
use unhang_demo_servers::bounded_waits;

use super::case_run::WrapperTrial;
use super::client::CorpusClient;
use super::verdict::{Flaw, Judged, broken, demand};
use super::{BOTH, Case, NEITHER};

/// Requests to a server that cannot start again.
const REQUESTS: usize = 20;
/// Starts of it that are still sane.
const MOST_STARTS: usize = 15;
/// How often a call is made again.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) const CASES: &[Case] = &[
    Case {
        name: "dies-idle",
        demands: "A server that exits between two calls runs again shortly after.",
        ought: NEITHER,
        judge: |trial| {
            trial.meet(&["dies-idle", "100"], |client| {
                let first = client.text("pid", &json!({}))?;
                soon(client, |client| Ok(client.text("pid", &json!({}))? != first))
            })
        },
    },
    Case {
        name: "back-after-death",
        demands: "The next request gets a result after a call has ended the server's process.",
        ought: NEITHER,
        judge: |trial| {
            trial.meet(&["dies-every-call"], |client| {
                client.is_answered("tools/call", &json!({"name": "echo", "arguments": {}}))?;
                let list = client.request("tools/list", &json!({}))?;
                client.result(list).map(drop)
            })
        },
    },
    Case {
        name: "leaves-after-each",
        demands: "A server that exits with code 0 after each answer runs again shortly after, three times in a row.",
        ought: NEITHER,
        judge: |trial| {
            trial.meet(&["exits-zero-after-each-answer"], |client| {
                (0..3).try_for_each(|_| soon(client, |client| client.echo("hello").map(|()| true)))
            })
        },
    },
    Case {
        name: "session-replayed",
        demands: "A restarted server gets the handshake and the log level of the client again.",
        ought: NEITHER,
        judge: |trial| {
            trial.meet(&["well-behaved"], |client| {
                let level = client.request("logging/setLevel", &json!({"level": "warning"}))?;
                client.result(level)?;
                client.is_answered("tools/call", &json!({"name": "die", "arguments": {"code": 1}}))?;
                let state = client.text("state", &json!({}))?;
                let state: Value =
                    serde_json::from_str(&state).map_err(|error| Flaw::Broken(error.to_string()))?;
                demand(state["initialized"] == true, || "no handshake was made".to_owned())?;
                demand(state["level"] == "warning", || "the log level is lost".to_owned())
            })
        },
    },
    Case {
        name: "fenced-off",
        demands: "The client gets an answer when the server cannot start again, and the attempts to start it end.",
        ought: NEITHER,
        judge: fenced_off,
    },
    Case {
        name: "left-alone",
        demands: "A healthy server stays the same process from call to call.",
        ought: BOTH,
        judge: |trial| {
            trial.meet(&["well-behaved"], |client| {
                let first = client.text("pid", &json!({}))?;
                client.is_answered("tools/call", &json!({"name": "fail", "arguments": {"text": "no"}}))?;
                let second = client.text("pid", &json!({}))?;
                demand(first == second, || "it was started again".to_owned())
            })
        },
    },
];

/// Calls until it is as it shall be. A call that meets a death may get an error, but it must get an answer.
fn soon(client: &mut CorpusClient, mut call: impl FnMut(&mut CorpusClient) -> Judged<bool>) -> Judged {
    let end = bounded_waits::now() + client.timeout();
    loop {
        match call(client) {
            Ok(true) => return Ok(()),
            Err(Flaw::Broken(reason)) if bounded_waits::now() >= end || client.is_lost() => {
                return broken(reason);
            }
            Err(failed @ Flaw::Failed(_)) => return Err(failed),
            Ok(false) if bounded_waits::now() >= end => return broken("the server has not died"),
            _ => bounded_waits::pause(PAUSE),
        }
    }
}

fn fenced_off(trial: &WrapperTrial<'_>) -> Judged {
    let count_file = trial.file("starts")?;
    trial.meet(&["restarts-broken", "--count-file", &count_file], |client| {
        client.is_answered("tools/call", &json!({"name": "die", "arguments": {"code": 1}}))?;
        for _ in 0..REQUESTS {
            client.is_answered("tools/list", &json!({}))?;
        }
        let starts = std::fs::read_to_string(&count_file)?.lines().count();
        demand(starts <= MOST_STARTS, || format!("{starts} starts"))
    })
}
