//! The acts: one for each promise, the same for a bare connection and for unhang.

use std::{io, time::Duration};

use serde_json::json;
use unhang::{process::deadline::Deadline, units::in_words};
use unhang_demo_servers::processes::{self, WatchedProcess};

use super::{
    DemoRow, HalfResult, PATIENCE,
    durable::durable,
    home::mark,
    peer::{DemoPeer, PeerOutcome},
    slow::slow,
};

/// The number of other calls beside the stuck one.
const OTHERS: usize = 64;

/// The way to reach the same server.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum DemoRoute {
    Bare,
    Unhang,
}

impl DemoRoute {
    /// Connects to a faulty server. Behind unhang a call may take a second, so that the demonstration stays short.
    fn connect(self, faulty_server: &[&str]) -> io::Result<DemoPeer> {
        match self {
            DemoRoute::Bare => DemoPeer::start(&[&["zoo"], faulty_server].concat()),
            DemoRoute::Unhang => {
                let flags = [
                    "wrap",
                    "--call-timeout",
                    "1s",
                    "--request-timeout",
                    "1s",
                    "--",
                    "/proc/self/exe",
                    "zoo",
                ];
                DemoPeer::start(&[&flags, faulty_server].concat())
            }
        }
    }
}

/// Runs every act, in the order of the promises.
pub(super) async fn all() -> Vec<DemoRow> {
    macro_rules! act {
        ($promise:literal, $server:literal, $act:path) => {{
            let (bare, unhang) = tokio::join!($act(DemoRoute::Bare), $act(DemoRoute::Unhang));
            let failed = |error: io::Error| HalfResult::broken(format!("could not be shown: {error}"));
            DemoRow {
                promise: $promise,
                server: $server,
                bare: bare.unwrap_or_else(failed),
                unhang: unhang.unwrap_or_else(failed),
            }
        }};
    }
    vec![
        act!("1 Answered", "never answers one of its tools", answered),
        act!("1 Answered", "works for 90 s, and its client waits for 60 (here 3 and 2)", slow),
        act!("2 Clean wire", "logs to stdout, which is the protocol's", clean_wire),
        act!("3 Drained", "writes 1 MiB to stderr before it answers", drained),
        act!("4 Isolated", "starts a child that reads stdin, which is the protocol's", isolated),
        act!("5 Nothing left behind", "starts a daemon; then kill -9 in the middle of a call", nothing_left),
        act!("6 Restarted", "dies on every call", restarted),
        act!("7 Durable", "works for 1.6 s; then kill -9 in the middle of it", durable),
        act!("8 Fair", "is stuck in one call while 64 others come", fair),
    ]
}

pub(super) fn step_deadline() -> Deadline {
    Deadline::after(PATIENCE)
}

/// Describes an answer in a few words: its error, or that it came.
fn in_short(answer: &serde_json::Value, after: Duration) -> String {
    match answer["error"]["code"].as_i64() {
        Some(code) => format!(
            "error {code} ({}) after {}",
            answer["error"]["data"]["kind"].as_str().unwrap_or("?"),
            in_words(after)
        ),
        None => format!("answered after {}", in_words(after)),
    }
}

async fn answered(way: DemoRoute) -> io::Result<HalfResult> {
    let mut peer = way.connect(&["never-answers", "stuck"])?;
    peer.shake_hands(step_deadline()).await?;
    let id = peer.call("stuck", step_deadline()).await?;
    let seen = match peer.answer(id, step_deadline()).await {
        PeerOutcome::Answer(answer, after) => HalfResult::held(in_short(&answer, after)),
        PeerOutcome::Silence => HalfResult::broken(format!("hangs: nothing within {}", in_words(PATIENCE))),
        PeerOutcome::Ended => HalfResult::broken("the connection ended"),
    };
    peer.end().await;
    Ok(seen)
}

async fn clean_wire(way: DemoRoute) -> io::Result<HalfResult> {
    let mut peer = way.connect(&["stdout-noise"])?;
    peer.shake_hands(step_deadline()).await?;
    let id = peer.call("echo", step_deadline()).await?;
    let answered = matches!(peer.answer(id, step_deadline()).await, PeerOutcome::Answer(..));
    let text = format!("{} lines on the wire are no messages", peer.noise);
    let seen = HalfResult { text, held: peer.noise == 0 && answered };
    peer.end().await;
    Ok(seen)
}

async fn drained(way: DemoRoute) -> io::Result<HalfResult> {
    let mut peer = way.connect(&["stderr-flood", "1048576"])?;
    peer.shake_hands(step_deadline()).await?;
    let id = peer.call("echo", step_deadline()).await?;
    let seen = match peer.answer(id, step_deadline()).await {
        PeerOutcome::Answer(answer, after) => {
            HalfResult { text: in_short(&answer, after), held: answer.get("result").is_some() }
        }
        PeerOutcome::Silence => {
            HalfResult::broken(format!("hangs: stderr is full, nothing within {}", in_words(PATIENCE)))
        }
        PeerOutcome::Ended => HalfResult::broken("the connection ended"),
    };
    peer.end().await;
    Ok(seen)
}

/// Shows whether the server's child reads the client's stream. The guard cannot change which streams a server gives its own children, but
/// it keeps the client's stream from all of them.
async fn isolated(way: DemoRoute) -> io::Result<HalfResult> {
    let mut peer = way.connect(&["stdin-thief"])?;
    peer.shake_hands(step_deadline()).await?;
    let _theft = peer.call("echo", step_deadline()).await?;
    // The child has started once a second process has the stream open, or it never will.
    let short = Deadline::after(PATIENCE / 3);
    let mut holders = peer.holders_of_stdin()?;
    while holders < 2 && !short.is_past() {
        Deadline::after(Duration::from_millis(10)).sleep().await;
        holders = holders.max(peer.holders_of_stdin()?);
    }
    let victim = peer.request("ping", json!({}), step_deadline()).await?;
    let outcome = match peer.answer(victim, step_deadline()).await {
        PeerOutcome::Answer(answer, after) => format!("the next request: {}", in_short(&answer, after)),
        PeerOutcome::Silence => "the next request is stolen and hangs".to_owned(),
        PeerOutcome::Ended => "the connection ended".to_owned(),
    };
    peer.end().await;
    let held = holders == 1 && !outcome.contains("hangs");
    let who = if holders == 1 {
        "unhang alone has the client's stream".to_owned()
    } else {
        format!("{holders} processes have the client's stream")
    };
    Ok(HalfResult { text: format!("{who}; {outcome}"), held })
}

async fn nothing_left(way: DemoRoute) -> io::Result<HalfResult> {
    let marker = format!("{}{}", mark(), if way == DemoRoute::Bare { "bare" } else { "wrap" });
    let faulty_server = ["leaves-daemon", "--marker", &marker];
    // A bare server has a host, as it would have a client, so that the demonstration's own lifeline does not help it.
    let mut peer = match way {
        DemoRoute::Bare => DemoPeer::start(&[&["zoo", "hosts", "--"], &faulty_server[..]].concat())?,
        DemoRoute::Unhang => way.connect(&faulty_server)?,
    };
    peer.shake_hands(step_deadline()).await?;
    let _call = peer.call("echo", step_deadline()).await?;
    let victim: &[&str] = if way == DemoRoute::Bare { &["zoo", "leaves-daemon"] } else { &["wrap"] };
    processes::marked(&marker)
        .iter()
        .filter(|process| process.begins_with(victim))
        .for_each(WatchedProcess::kill);
    // The host and the lifelines do not belong to the server.
    let is_left =
        |process: &&WatchedProcess| process.begins_with(&["zoo"]) && !process.begins_with(&["zoo", "hosts"]);
    let left = || processes::marked(&marker).iter().filter(is_left).count();
    let (start, limit) = (tokio::time::Instant::now(), step_deadline());
    while left() > 0 && !limit.is_past() {
        Deadline::after(Duration::from_millis(10)).sleep().await;
    }
    let seen = match left() {
        0 => HalfResult::held(format!("nothing is left {} later", in_words(start.elapsed()))),
        1 => HalfResult::broken(format!("a process is left {} later", in_words(PATIENCE))),
        count => HalfResult::broken(format!("{count} processes are left {} later", in_words(PATIENCE))),
    };
    peer.end().await;
    Ok(seen)
}

async fn restarted(way: DemoRoute) -> io::Result<HalfResult> {
    let mut peer = way.connect(&["dies-every-call"])?;
    peer.shake_hands(step_deadline()).await?;
    let call = peer.call("echo", step_deadline()).await?;
    let first = match peer.answer(call, step_deadline()).await {
        PeerOutcome::Answer(answer, after) => in_short(&answer, after),
        PeerOutcome::Silence => "hangs".to_owned(),
        PeerOutcome::Ended => "the connection is lost".to_owned(),
    };
    let again = match peer.request("tools/list", json!({}), step_deadline()).await {
        Ok(id) => peer.answer(id, step_deadline()).await,
        Err(_) => PeerOutcome::Ended,
    };
    let seen = match again {
        PeerOutcome::Answer(answer, after) if answer.get("result").is_some() => HalfResult::held(format!(
            "{first}; back and in session: the next request {}",
            in_short(&answer, after)
        )),
        _ => HalfResult::broken(format!("{first}, and stays lost")),
    };
    peer.end().await;
    Ok(seen)
}

async fn fair(way: DemoRoute) -> io::Result<HalfResult> {
    let mut peer = way.connect(&["never-answers", "stuck"])?;
    peer.shake_hands(step_deadline()).await?;
    let stuck = peer.call("stuck", step_deadline()).await?;
    let mut others = Vec::new();
    for _ in 0..OTHERS {
        others.push(peer.call("echo", step_deadline()).await?);
    }
    let start = tokio::time::Instant::now();
    let mut answered = 0;
    for id in others {
        answered += usize::from(matches!(peer.answer(id, step_deadline()).await, PeerOutcome::Answer(..)));
    }
    let others = format!("{answered} of {OTHERS} after {}", in_words(start.elapsed()));
    let outcome = peer.answer(stuck, step_deadline()).await;
    let seen = match outcome {
        PeerOutcome::Answer(answer, after) => HalfResult {
            text: format!("{others}; the stuck one: {}", in_short(&answer, after)),
            held: answered == OTHERS,
        },
        _ => HalfResult::broken(format!("{others}; the stuck one hangs")),
    };
    peer.end().await;
    Ok(seen)
}
