//! Promise 5, Nothing left behind: however it ends, everything that was started for the server ends too.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use super::case_run::WrapperTrial;
use super::verdict::{Judged, demand};
use super::{BOTH, Case, NEITHER, ONLY_BARE};

/// Longer than the line of processes goes on whose last one stays.
const LINE: Duration = Duration::from_millis(2500);

/// How a session ends.
#[derive(Clone, Copy)]
enum End {
    /// The client closes its stream.
    Closed,
    /// What the client has started gets a signal.
    By(Signal),
}

pub(super) const CASES: &[Case] = &[
    Case {
        name: "honest-end",
        demands: "Every process ends when the client closes its stream, and the exit code is 0.",
        ought: BOTH,
        judge: |trial| {
            trial.meet(&["well-behaved"], |client| {
                client.echo("hello")?;
                client.close();
                let status = client.exit()?;
                demand(status.success(), || status.to_string())
            })?;
            trial.demand_nothing_left()
        },
    },
    Case {
        name: "leaves-grandchild",
        demands: "A child that holds the server's stdout ends with the server and does not delay its end.",
        ought: NEITHER,
        judge: |trial| ends(trial, "leaves-grandchild", End::Closed),
    },
    Case {
        name: "leaves-daemon",
        demands: "A daemon ends with the server that started it.",
        ought: NEITHER,
        judge: |trial| ends(trial, "leaves-daemon", End::Closed),
    },
    Case {
        name: "leaves-clean-daemon",
        demands: "A daemon with an empty environment ends with the server that started it.",
        ought: NEITHER,
        judge: |trial| ends(trial, "leaves-daemon-empty-env", End::Closed),
    },
    Case {
        name: "leaves-generations",
        demands: "Three generations of processes, each in its own session, end with the server.",
        ought: NEITHER,
        judge: |trial| ends(trial, "leaves-three-sessions", End::Closed),
    },
    Case {
        name: "forks-forever",
        demands: "A chain of processes that fork every 2 ms, each in its own session, ends with the server.",
        ought: NEITHER,
        judge: |trial| {
            talk_and_end(trial, "forks-forever", End::Closed)?;
            trial.demand_nothing_left_for(LINE)
        },
    },
    Case {
        name: "deaf-to-the-end",
        demands: "A server ends although it ignores the end of its stdin.",
        ought: NEITHER,
        judge: |trial| ends(trial, "ignores-stdin-close", End::Closed),
    },
    Case {
        name: "deaf-to-everything",
        demands: "A server ends although it ignores every signal that a process can ignore.",
        ought: NEITHER,
        judge: |trial| ends(trial, "ignores-everything", End::Closed),
    },
    Case {
        name: "stopped-at-the-end",
        demands: "A server ends although SIGSTOP has stopped it.",
        ought: NEITHER,
        judge: |trial| {
            let mut client = trial.session(&["stopped"])?;
            client.close();
            client.exit()?;
            trial.demand_nothing_left()
        },
    },
    Case {
        name: "terminated",
        demands: "A SIGTERM to the process that the client started also ends a daemon of the server.",
        ought: NEITHER,
        judge: |trial| ends(trial, "leaves-daemon", End::By(Signal::TERM)),
    },
    Case {
        name: "killed",
        demands: "A SIGKILL to the process that the client started also ends a daemon of the server.",
        ought: NEITHER,
        judge: |trial| ends(trial, "leaves-daemon", End::By(Signal::KILL)),
    },
    Case {
        name: "killed-while-deaf",
        demands: "A SIGKILL to the process that the client started also ends a server that ignores all other signals.",
        ought: ONLY_BARE,
        judge: |trial| ends(trial, "ignores-everything", End::By(Signal::KILL)),
    },
];

/// A session that ends in this way, after which nothing may be left.
fn ends(trial: &WrapperTrial<'_>, faulty_server: &str, end: End) -> Judged {
    talk_and_end(trial, faulty_server, end)?;
    trial.demand_nothing_left()
}

/// A session that ends in this way.
fn talk_and_end(trial: &WrapperTrial<'_>, faulty_server: &str, end: End) -> Judged {
    let mut client = trial.session(&[faulty_server])?;
    client.is_answered("tools/call", &json!({"name": "echo", "arguments": {"text": "hello"}}))?;
    match end {
        End::Closed => client.close(),
        End::By(signal) => client.signal(signal),
    }
    client.exit()?;
    client.demand_clean_wire()
}
