//! Promise 5: nothing is left behind, whatever the server's processes do and however the owner ends.
//!
//! The cases are those of processes.md 1.4, where the plain group kill failed in 120 of 140 runs, and a daemon with an empty
//! environment, which a search by environment would miss.

use std::{
    io::{BufRead, BufReader},
    os::fd::OwnedFd,
};

use crate::common::{DAEMON, PATIENCE, Run, assert_no_survivors, fixture, marked, marker, script, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use unhang_proc::{
    server::Tier,
    spawn::{Launch, Process, Stream, spawn},
};

/// Each says `ready` when what it leaves behind has started, and then waits for the end of its stdin, if it is polite.
const CASES: [(&str, &str); 8] = [
    ("background child", "sleep $1 & echo ready; cat >/dev/null"),
    ("child in a session of its own", "setsid sleep $1 & echo ready; cat >/dev/null"),
    ("daemon by double fork", "(setsid sh -c \"sleep $1 & exit\" &) ; echo ready; cat >/dev/null"),
    ("nohup with closed descriptors", "nohup sleep $1 <&- >&- 2>&- & echo ready; cat >/dev/null"),
    (
        "three nested sessions",
        "setsid sh -c 'setsid sh -c \"setsid sleep $1 & sleep $1\" sh '$1' & sleep '$1 sh $1 & echo ready; cat >/dev/null",
    ),
    ("ignores TERM, HUP and INT", "trap '' TERM HUP INT; sleep $1 & echo ready; while :; do sleep $1; done"),
    ("new session every 2 ms", "echo ready; while :; do setsid sleep $1 & sleep 0.002; done"),
    ("daemon with an empty environment", "(env -i setsid sleep $1 &) ; echo ready; cat >/dev/null"),
];

async fn stopped(tier: Tier) {
    for (name, text) in CASES {
        let mut run = Run::new(text, tier);
        run.ready().await;
        assert!(run.tier.unwrap() >= tier, "{name}");
        run.server.begin_stop();
        let swept = run.gone().await;
        assert!(swept.leaked > 0 && swept.unkilled == 0, "{name}: {swept:?}");
    }
}

#[tokio::test]
async fn a_stop_leaves_nothing_with_a_control_group() {
    stopped(Tier::ControlGroup).await;
}

#[tokio::test]
async fn a_stop_leaves_nothing_with_a_subreaper() {
    stopped(Tier::Subreaper).await;
}

#[tokio::test]
async fn a_kill_leaves_nothing() {
    for (name, text) in CASES {
        let mut run = Run::new(text, Tier::Subreaper);
        run.ready().await;
        run.server.kill_now();
        assert_eq!(run.gone().await.unkilled, 0, "{name}");
    }
}

/// A process that owns a server, and what it says.
struct Owner {
    process: Process,
    lines: BufReader<std::fs::File>,
    lifeline: u32,
}

impl Owner {
    fn start(text: &str, marker: &str, tier: Tier) -> Self {
        let spec = script(text, marker, tier);
        let mut arguments = vec!["owner".into(), tier.to_string().into(), spec.program];
        arguments.extend(spec.arguments);
        let (reader, writer): (OwnedFd, OwnedFd) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let program = fixture();
        let launch = Launch { output: Stream::Descriptor(writer), ..Launch::new(&program, &arguments) };
        let process = spawn(launch).unwrap();
        let mut owner = Self { process, lines: BufReader::new(reader.into()), lifeline: 0 };
        let first = owner.line_with("lifeline");
        owner.lifeline = first.rsplit(' ').next().unwrap().parse().unwrap();
        owner.line_with("ready");
        owner
    }

    /// The next line that begins with the word.
    fn line_with(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "the owner ended before it said {word}");
            if line.starts_with(word) {
                return line.trim_end().to_owned();
            }
        }
    }

    async fn ended(&mut self) {
        // Between two looks: a child can only be waited for without a limit, and this has one.
        let reaped = async {
            while self.process.try_reap().is_none() {
                tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, reaped).await.expect("the process ends");
    }
}

async fn owner_killed(tier: Tier, signal: Signal) {
    for (name, text) in CASES {
        let marker = marker();
        let mut owner = Owner::start(text, &marker, tier);
        assert!(!marked(&marker).is_empty(), "{name}");
        owner.process.signal(signal);
        owner.ended().await;
        assert_no_survivors(&marker).await;
    }
}

#[tokio::test]
async fn a_sigkilled_owner_leaves_nothing_with_a_control_group() {
    owner_killed(Tier::ControlGroup, Signal::KILL).await;
}

#[tokio::test]
async fn a_sigkilled_owner_leaves_nothing_with_a_subreaper() {
    owner_killed(Tier::Subreaper, Signal::KILL).await;
}

#[tokio::test]
async fn a_terminated_owner_leaves_nothing_with_a_control_group() {
    owner_killed(Tier::ControlGroup, Signal::TERM).await;
}

#[tokio::test]
async fn a_terminated_owner_leaves_nothing_with_a_subreaper() {
    owner_killed(Tier::Subreaper, Signal::TERM).await;
}

async fn lifeline_signalled(tier: Tier, signal: Signal) {
    for (name, text) in CASES {
        let marker = marker();
        let mut owner = Owner::start(text, &marker, tier);
        let lifeline = Pid::from_raw(i32::try_from(owner.lifeline).unwrap()).unwrap();
        // It is the owner's unreaped child, and the owner lives.
        kill_process(lifeline, signal).unwrap();
        let gone = owner.line_with("gone");
        assert!(gone.ends_with(" 0"), "{name}: {gone}");
        owner.ended().await;
        assert_no_survivors(&marker).await;
    }
}

#[tokio::test]
async fn a_sigkilled_lifeline_leaves_nothing_with_a_control_group() {
    lifeline_signalled(Tier::ControlGroup, Signal::KILL).await;
}

#[tokio::test]
async fn a_sigkilled_lifeline_leaves_nothing_with_a_subreaper() {
    lifeline_signalled(Tier::Subreaper, Signal::KILL).await;
}

#[tokio::test]
async fn what_a_killed_lifeline_leaves_comes_to_its_owner() {
    let marker = marker();
    let mut owner = Owner::start(DAEMON, &marker, Tier::Subreaper);
    // The owner looks when the server has ended too, and the daemon has no parent any more that it could be found by.
    owner.process.signal(Signal::STOP);
    kill_process(Pid::from_raw(i32::try_from(owner.lifeline).unwrap()).unwrap(), Signal::KILL).unwrap();
    wait_for(|| marked(&marker).len() == 2, || format!("{:?}", marked(&marker))).await;
    owner.process.signal(Signal::CONT);
    owner.line_with("gone");
    owner.ended().await;
    // Nobody is given time: they were to be dead when the owner said so.
    assert_eq!(marked(&marker), []);
}

#[tokio::test]
async fn a_terminated_lifeline_climbs_the_ladder_itself() {
    lifeline_signalled(Tier::Subreaper, Signal::TERM).await;
}

#[tokio::test]
async fn a_stopped_lifeline_does_not_delay_the_stop_beyond_its_limit() {
    for tier in [Tier::ControlGroup, Tier::Subreaper] {
        let mut run = Run::new("setsid sleep $1 & echo ready; cat >/dev/null", tier);
        run.ready().await;
        let lifeline = Pid::from_raw(i32::try_from(run.server.lifeline_pid()).unwrap()).unwrap();
        kill_process(lifeline, Signal::STOP).unwrap();
        let begun = tokio::time::Instant::now();
        run.server.begin_stop();
        let swept = run.gone().await;
        assert_eq!(swept.unkilled, 0);
        assert!(begun.elapsed() < std::time::Duration::from_secs(6), "{:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn a_dropped_server_is_ended_by_its_lifeline() {
    let mut run =
        Run::new("trap '' TERM; setsid sleep $1 & echo ready; while :; do sleep $1; done", Tier::Subreaper);
    run.ready().await;
    let Run { server, marker, .. } = run;
    drop(server);
    assert_no_survivors(&marker).await;
}
