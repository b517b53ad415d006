//! Promise 3, Drained: no pipe is left unread, and the two directions never wait for each other.

use std::process::Stdio;

use serde_json::json;

use super::client::{CorpusClient, Reads};
use super::verdict::Judged;
use super::{BOTH, Case, NEITHER, ONLY_BARE};

/// Bytes of a large message, far beyond what pipes hold.
const LARGE: usize = 2 << 20;
/// Requests of a client that does not read, and the bytes of each: more than pipes hold, less than any sane queue.
const UNREAD_REQUESTS: usize = 64;
const UNREAD_BYTES: usize = 8 << 10;

pub(super) const CASES: &[Case] = &[
    Case {
        name: "stderr-flood",
        demands: "The server can write 1 MiB to stderr while the client does not read stderr.",
        ought: NEITHER,
        judge: |trial| trial.meet(&["stderr-flood"], |client| client.echo("hello")),
    },
    Case {
        name: "stderr-heard",
        demands: "The server can write 1 MiB to stderr while the client reads stderr.",
        ought: ONLY_BARE,
        judge: |trial| {
            let mut client = trial.connect_with(&["stderr-flood"], Stdio::null())?;
            client.shake_hands()?;
            client.echo("hello")?;
            client.demand_clean_wire()
        },
    },
    Case {
        name: "stderr-giant-line",
        demands: "The server can write 200,000 bytes without a line end to stderr.",
        ought: NEITHER,
        judge: |trial| trial.meet(&["stderr-giant-line"], |client| client.echo("hello")),
    },
    Case {
        name: "long-last-words",
        demands: "A server that writes 1 MiB to stderr before it exits does exit, and the client gets an answer.",
        ought: NEITHER,
        judge: |trial| {
            trial.meet(&["stderr-flood-while-dying"], |client| {
                client.is_answered("tools/call", &json!({"name": "echo", "arguments": {}})).map(drop)
            })
        },
    },
    Case {
        name: "deaf-server",
        demands: "The client can write while the server does not read, and gets an answer to each call.",
        ought: NEITHER,
        // It reads the handshake, which has two messages.
        judge: |trial| trial.meet(&["stops-reading-after", "2"], large_call_is_answered),
    },
    Case {
        name: "unread-client",
        demands: "A client that pauses reading can keep writing, and then gets every answer.",
        ought: NEITHER,
        judge: |trial| trial.meet(&["notification-flood"], write_without_reading),
    },
    Case {
        name: "notification-flood",
        demands: "The client gets the answer after 10,000 notifications.",
        ought: BOTH,
        judge: |trial| trial.meet(&["notification-flood"], |client| client.echo("hello")),
    },
    Case {
        name: "large-messages",
        demands: "Large messages arrive complete in both directions.",
        ought: BOTH,
        judge: |trial| trial.meet(&["well-behaved"], |client| client.echo(&"x".repeat(LARGE))),
    },
];

fn large_call_is_answered(client: &mut CorpusClient) -> Judged {
    let arguments = json!({"text": "x".repeat(LARGE)});
    client.is_answered("tools/call", &json!({"name": "echo", "arguments": arguments})).map(drop)
}

/// The server floods the client, which for the time being only writes.
fn write_without_reading(client: &mut CorpusClient) -> Judged {
    let call = client.call("echo", &json!({"text": "hello"}))?;
    let padding = "x".repeat(UNREAD_BYTES);
    let mut ids = vec![call];
    for _ in 0..UNREAD_REQUESTS {
        let (id, request) = client.next_request("ping", &json!({"padding": padding}));
        client.send(format!("{request}\n").as_bytes(), Reads::NotNow)?;
        ids.push(id);
    }
    ids.into_iter().try_for_each(|id| client.answer(id).map(drop))
}
