//! What a lifeline holds, what it does by itself, and what its owner does without it.

use std::{collections::HashSet, fs, os::fd::OwnedFd, path::Path};

use crate::common::{DAEMON, Run, assert_no_survivors, marked, marker, parent, script, wait_for};
use rustix::{
    io::{FdFlags, fcntl_setfd},
    process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit},
};
use unhang_proc::server::{Exit, ServerSpec, Tier};

/// What the process has open.
fn open(pid: u32) -> HashSet<String> {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    links.filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.to_str()?.to_owned())).collect()
}

/// Number of the lifeline, which its watcher has not reaped.
fn lifeline(run: &Run) -> Pid {
    Pid::from_raw(i32::try_from(run.server.lifeline_pid()).unwrap()).unwrap()
}

/// Who is alive at the very moment at which the tree is said to have gone.
async fn alive_when_gone(run: &mut Run) -> Vec<(u32, String)> {
    run.until("gone", |run| run.swept.is_some()).await;
    marked(&run.marker)
}

#[tokio::test]
async fn when_a_server_is_said_to_run_its_lifeline_holds_nothing_of_it() {
    let marker = marker();
    let spec = script("echo ready; cat >/dev/null", &marker, Tier::Subreaper);
    let mut run = Run::of(&ServerSpec { folder: Some("/usr".into()), ..spec }, marker);
    run.until("started", |run| run.tier.is_some()).await;
    let lifeline = run.server.lifeline_pid();
    let shared: Vec<_> = open(run.server.pid().unwrap()).intersection(&open(lifeline)).cloned().collect();
    assert!(!shared.iter().any(|what| what.starts_with("pipe:")), "{shared:?}");
    assert_eq!(fs::read_link(format!("/proc/{lifeline}/cwd")).unwrap(), Path::new("/"));
    assert_eq!(fs::read_to_string(format!("/proc/{lifeline}/comm")).unwrap(), "mcp-lifeline\n");
    run.server.begin_stop();
    run.gone().await;
}

/// Clients end a server by walking down from its number.
#[tokio::test]
async fn neither_lifeline_nor_watcher_is_below_the_owner() {
    let mut run = Run::new("echo ready; cat >/dev/null", Tier::Subreaper);
    run.ready().await;
    let own = Pid::from_raw(i32::try_from(std::process::id()).unwrap());
    let lifeline = run.server.lifeline_pid();
    let watcher = parent(lifeline).as_raw_nonzero().get().unsigned_abs();
    assert_eq!(fs::read_to_string(format!("/proc/{watcher}/comm")).unwrap(), "mcp-line-watch\n");
    // The process that we have started ends at once, and is reaped here.
    run.until("reaped", |_| parent(watcher) != own.unwrap()).await;
    let mut above = watcher;
    while above > 1 {
        let next = parent(above);
        assert_ne!(Some(next), own);
        above = next.as_raw_nonzero().get().unsigned_abs();
    }
    run.server.begin_stop();
    run.gone().await;
}

/// The end of a pipe is seen only if nobody else holds it, and nobody may keep a folder or the link.
#[tokio::test]
async fn when_a_server_is_said_to_run_its_watcher_holds_nothing_of_it() {
    let marker = marker();
    let spec = script("echo ready; cat >/dev/null", &marker, Tier::Subreaper);
    let mut run = Run::of(&ServerSpec { folder: Some("/usr".into()), ..spec }, marker);
    run.until("started", |run| run.tier.is_some()).await;
    let watcher = parent(run.server.lifeline_pid()).as_raw_nonzero().get().unsigned_abs();
    // The watcher has a socket, where it is asked to start supervisors, and a handle of the lifeline. The lifeline has neither.
    let (sockets, others): (Vec<_>, Vec<_>) =
        open(watcher).into_iter().partition(|name| name.starts_with("socket:"));
    assert_eq!(sockets.len(), 1, "{sockets:?}");
    assert!(
        others.iter().all(|name| ["/dev/null", "anon_inode:[pidfd]"].contains(&name.as_str())),
        "{others:?}"
    );
    assert!(open(run.server.lifeline_pid()).is_disjoint(&sockets.into_iter().collect()));
    assert_eq!(fs::read_link(format!("/proc/{watcher}/cwd")).unwrap(), Path::new("/"));
    run.server.begin_stop();
    run.gone().await;
}

#[tokio::test]
async fn a_lifeline_whose_watcher_is_killed_goes_on() {
    let mut run = Run::new("echo ready; cat >/dev/null", Tier::Subreaper);
    run.ready().await;
    kill_process(parent(run.server.lifeline_pid()), Signal::KILL).unwrap();
    run.server.begin_stop();
    run.gone().await;
    assert_eq!(run.exit, Some(Exit::Code(0)));
}

/// A stop signal is meant for the lifeline, which knows what is to be done.
#[tokio::test]
async fn a_terminated_watcher_stays() {
    let mut run = Run::new("echo ready; cat >/dev/null", Tier::Subreaper);
    run.ready().await;
    let watcher = parent(run.server.lifeline_pid());
    kill_process(watcher, Signal::TERM).unwrap();
    run.server.begin_stop();
    assert_eq!(parent(run.server.lifeline_pid()), watcher);
    run.gone().await;
}

/// Whoever got it could keep the owner from hearing of the lifeline's end.
#[tokio::test]
async fn a_server_does_not_get_the_link_between_lifeline_and_owner() {
    let mut run = Run::new("echo ready; cat >/dev/null", Tier::Subreaper);
    run.ready().await;
    let shared: Vec<_> =
        open(run.server.pid().unwrap()).intersection(&open(run.server.lifeline_pid())).cloned().collect();
    assert!(!shared.iter().any(|what| what.starts_with("socket:")), "{shared:?}");
    run.server.begin_stop();
    run.gone().await;
}

/// What whoever started us left open for our children is the server's business, and ends with it.
#[tokio::test]
async fn what_all_our_children_inherit_is_held_by_the_server_and_not_by_its_lifeline() {
    let (reader, _writer): (OwnedFd, OwnedFd) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    fcntl_setfd(&reader, FdFlags::empty()).unwrap();
    let mut run = Run::new("echo ready; cat >/dev/null", Tier::Subreaper);
    fcntl_setfd(&reader, FdFlags::CLOEXEC).unwrap();
    run.until("started", |run| run.tier.is_some()).await;
    let number = std::os::fd::AsRawFd::as_raw_fd(&reader);
    let pipe = fs::read_link(format!("/proc/self/fd/{number}")).unwrap().to_str().unwrap().to_owned();
    assert!(open(run.server.pid().unwrap()).contains(&pipe));
    assert!(!open(run.server.lifeline_pid()).contains(&pipe));
    run.server.begin_stop();
    run.gone().await;
}

#[tokio::test]
async fn nobody_lives_when_the_tree_is_said_to_have_gone() {
    let mut run = Run::new(DAEMON, Tier::Subreaper);
    run.ready().await;
    run.server.begin_stop();
    assert_eq!(alive_when_gone(&mut run).await, []);
    assert_eq!(run.swept.map(|swept| (swept.leaked, swept.unkilled)), Some((1, 0)));
}

/// A lifeline that can open nothing more is blind, which stands for whatever it cannot kill. Its own end is all that it can do
/// for its server then.
#[tokio::test]
async fn a_sweep_that_cannot_succeed_ends_in_time() {
    let mut run = Run::new("trap '' TERM; echo ready; while :; do sleep 0.05; done", Tier::Subreaper);
    run.ready().await;
    let standard_streams = Rlimit { current: Some(3), maximum: Some(3) };
    prlimit(Some(lifeline(&run)), Resource::Nofile, standard_streams).unwrap();
    let Run { server, marker, .. } = run;
    drop(server);
    assert_no_survivors(&marker).await;
}

#[tokio::test]
async fn a_terminated_lifeline_gives_its_server_time_to_end() {
    let mut run =
        Run::patient("trap 'exit 4' TERM; echo ready; while :; do sleep 0.05; done", Tier::Subreaper);
    run.ready().await;
    kill_process(lifeline(&run), Signal::TERM).unwrap();
    run.gone().await;
    assert_eq!(run.exit, Some(Exit::Code(4)));
}

#[tokio::test]
async fn a_kill_is_done_by_the_lifeline_at_once() {
    let mut run = Run::patient("trap '' TERM; echo ready; while :; do sleep $1; done", Tier::Subreaper);
    run.ready().await;
    run.server.kill_now();
    run.gone().await;
    // Whom the owner has to kill by itself, when its patience is over, ends with nobody to say how.
    assert_eq!(run.exit, Some(Exit::Signal(9)));
}

/// The owner may be dead or stopped when the lifeline is killed.
#[tokio::test]
async fn a_server_dies_with_its_lifeline_though_its_owner_does_nothing() {
    let mut run = Run::new("trap '' TERM; echo ready; while :; do sleep 0.05; done", Tier::Subreaper);
    run.ready().await;
    kill_process(lifeline(&run), Signal::KILL).unwrap();
    assert_no_survivors(&run.marker).await;
    run.gone().await;
}

/// Nobody gets the orphans if the watcher is killed too, so they are known by their session alone.
#[tokio::test]
async fn without_lifeline_and_watcher_the_session_is_swept_and_the_end_is_told_once() {
    let mut run = Run::new("sleep $1 & echo ready; cat >/dev/null", Tier::Subreaper);
    run.ready().await;
    kill_process(parent(run.server.lifeline_pid()), Signal::KILL).unwrap();
    kill_process(lifeline(&run), Signal::KILL).unwrap();
    // Until its parents have ended it could be found by them.
    wait_for(|| marked(&run.marker).len() == 1, || format!("{:?}", marked(&run.marker))).await;
    assert_eq!(alive_when_gone(&mut run).await, []);
    assert_eq!(run.exit, Some(Exit::Unknown));
}

/// A server that works by short-lived helpers is as busy as one that works by itself.
#[tokio::test]
async fn the_time_of_helpers_that_have_ended_counts() {
    let burn = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; echo ready $$ $0";
    let mut run = Run::new(&format!("(sh -c '{burn}' $1 &) ; cat >/dev/null"), Tier::Subreaper);
    run.ready().await;
    run.until("its number", |run| run.output.ends_with(b"\n")).await;
    let output = String::from_utf8(run.output.clone()).unwrap();
    let helper = Path::new("/proc").join(output.split_whitespace().nth(1).unwrap());
    wait_for(|| !helper.exists(), || "the helper is not reaped".to_owned()).await;
    let time = run.server.cpu_time().unwrap();
    assert!(time > std::time::Duration::from_millis(50), "{time:?}");
    run.server.begin_stop();
    run.gone().await;
}
