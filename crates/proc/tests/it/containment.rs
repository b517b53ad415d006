//! Promise 5: nothing is left behind, whatever the server's processes do and however the owner ends.
//!
//! The cases are those of processes.md 1.4, where the plain group kill failed in 120 of 140 runs, and a daemon with an empty
//! environment, which a search by environment would miss.

use crate::common::{DAEMON, Program, Run, assert_no_survivors, marked, marker, parent, script, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use unhang_proc::server::Tier;

/// Each says `ready` when what it leaves behind has started, and then waits for the end of its stdin, if it is polite.
pub(crate) const CASES: [(&str, &str); 8] = [
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
        // Long graces: a polite server that came too late would get SIGTERM, which takes its whole group along.
        let mut run = Run::patient(text, tier);
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

/// A process that owns a server.
struct Owner {
    program: Program,
    lifeline: u32,
}

impl Owner {
    fn start(text: &str, marker: &str, tier: Tier) -> Self {
        let spec = script(text, marker, tier);
        let mut arguments = vec!["owner".into(), tier.to_string().into(), spec.program];
        arguments.extend(spec.arguments);
        let mut program = Program::start(&arguments);
        let first = program.line_with("lifeline");
        let lifeline = first.rsplit(' ').next().unwrap().parse().unwrap();
        program.line_with("ready");
        Self { program, lifeline }
    }
}

async fn owner_killed(tier: Tier, signal: Signal) {
    for (name, text) in CASES {
        let marker = marker();
        let mut owner = Owner::start(text, &marker, tier);
        assert!(!marked(&marker).is_empty(), "{name}");
        owner.program.process.signal(signal);
        owner.program.ended().await;
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
        // Its watcher has not reaped it.
        kill_process(lifeline, signal).unwrap();
        let gone = owner.program.line_with("gone");
        assert!(gone.ends_with(" 0"), "{name}: {gone}");
        owner.program.ended().await;
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
async fn what_a_killed_lifeline_leaves_comes_to_its_watcher() {
    let marker = marker();
    let mut owner = Owner::start(DAEMON, &marker, Tier::Subreaper);
    // The owner can do nothing, and could not find the daemon: it has no parent any more, and a session of its own.
    owner.program.process.signal(Signal::STOP);
    kill_process(Pid::from_raw(i32::try_from(owner.lifeline).unwrap()).unwrap(), Signal::KILL).unwrap();
    wait_for(|| marked(&marker).len() == 1, || format!("{:?}", marked(&marker))).await;
    owner.program.process.signal(Signal::CONT);
    owner.program.line_with("gone");
    owner.program.ended().await;
    assert_eq!(marked(&marker), []);
}

/// The daemon is dead when the owner says so, though the watcher ends it and not the owner.
#[tokio::test]
async fn an_owner_waits_for_the_watcher_of_a_killed_lifeline() {
    let marker = marker();
    let mut owner = Owner::start(DAEMON, &marker, Tier::Subreaper);
    // The owner lets it go on.
    kill_process(parent(owner.lifeline), Signal::STOP).unwrap();
    kill_process(Pid::from_raw(i32::try_from(owner.lifeline).unwrap()).unwrap(), Signal::KILL).unwrap();
    owner.program.line_with("gone");
    let own_pid = owner.program.process.pid();
    let left: Vec<_> = marked(&marker).into_iter().filter(|(pid, _)| *pid != own_pid).collect();
    assert_eq!(left, []);
    owner.program.ended().await;
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
