//! Promise 4, Isolated: no process of the server has the protocol's stdin or stdout.

use std::time::Duration;

use serde_json::json;
use unhang_demo_servers::{bounded_waits, processes};

use super::client::{CorpusClient, ProtocolStream};
use super::verdict::{Flaw, Judged, broken};
use super::{Case, NEITHER, ONLY_PUMP};

/// How often it is looked who has a stream, and for how long.
const LOOK: Duration = Duration::from_millis(20);
const LOOKS: Duration = Duration::from_secs(1);

pub(super) const CASES: &[Case] = &[
    Case {
        name: "own-input",
        demands: "Only one process has the client's stream while a child of the server reads the inherited stdin.",
        ought: ONLY_PUMP,
        judge: |trial| {
            trial.meet(&["stdin-thief"], |client| {
                client.call("echo", &json!({}))?;
                wait_for_thief(client)?;
                one_holder(client, ProtocolStream::Input)
            })
        },
    },
    Case {
        name: "stolen-input",
        demands: "The client gets an answer to a request that a child of the server has read.",
        ought: NEITHER,
        judge: |trial| {
            trial.meet(&["stdin-thief"], |client| {
                client.call("echo", &json!({}))?;
                wait_for_thief(client)?;
                client.is_answered("ping", &json!({})).map(drop)
            })
        },
    },
    Case {
        name: "own-output",
        demands: "Only one process has the client's stream while a child of the server holds the inherited stdout.",
        ought: ONLY_PUMP,
        judge: |trial| {
            trial.meet(&["leaves-grandchild"], |client| {
                client.echo("hello")?;
                one_holder(client, ProtocolStream::Output)
            })
        },
    },
];

/// Waits until the child that steals is there.
fn wait_for_thief(client: &CorpusClient) -> Judged {
    let end = bounded_waits::now() + client.timeout();
    let is_thief = |process: &processes::WatchedProcess| process.begins_with(&["zoo", "reads-one-line"]);
    while !processes::tree(&[client.pid()], &[]).iter().any(is_thief) {
        if bounded_waits::now() >= end {
            return Err(Flaw::Failed("the server has started no child".to_owned()));
        }
        bounded_waits::pause(LOOK);
    }
    Ok(())
}

/// Demands that one process, this one apart, has the stream. Looked at again and again, for between fork and exec any
/// process seems to have it.
fn one_holder(client: &CorpusClient, stream: ProtocolStream) -> Judged {
    let end = bounded_waits::now() + LOOKS;
    loop {
        match client.holders(stream)? {
            1 => return Ok(()),
            count if bounded_waits::now() >= end => return broken(format!("{count} processes have it")),
            _ => bounded_waits::pause(LOOK),
        }
    }
}
