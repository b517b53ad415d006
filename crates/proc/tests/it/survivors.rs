//! What a killed shim leaves is found by somebody who never was its parent.

use std::{ffi::OsStr, fs};

use rustix::process::Signal;
use unhang_proc::{
    identity::Identity,
    server::{SweptTree, Tier},
    survivors::{self, DeadShim},
};

use crate::common::{Shim, assert_no_survivors, marked, wait_for};

/// Kills the shim of the script and waits until nothing but `survivors` processes is left of it.
async fn killed(script: &str, tier: Tier, survivors: usize) -> Shim {
    let mut shim = Shim::start(script, tier);
    shim.ready().await;
    let sleepers = || {
        let mut left = marked(&shim.marker);
        left.retain(|(pid, _)| *pid != shim.identity.pid);
        left.len() == survivors + 1 && left.iter().all(|(_, line)| line.starts_with("sleep"))
    };
    wait_for(sleepers, || format!("{:?}", marked(&shim.marker))).await;
    let started: Vec<u32> = marked(&shim.marker).iter().map(|(pid, _)| *pid).collect();
    shim.program.process.signal(Signal::KILL);
    shim.program.ended().await;
    // A process that is killed loses its command line first, and counts as alive for a moment more.
    let alive = || started.iter().filter(|pid| is_alive(**pid)).count();
    wait_for(|| alive() == survivors, || format!("{:?}", marked(&shim.marker))).await;
    shim
}

/// Returns whether a process exists and has not ended. A zombie has ended.
fn is_alive(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    status.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with(['Z', 'X']))
}

/// Ends what is left, which takes as long as it takes, and leaves nobody.
fn end(shim: &Shim, spared: &[Identity]) -> SweptTree {
    let cookie = OsStr::new(&shim.cookie);
    survivors::end(&DeadShim {
        shim: Some(shim.identity),
        group: shim.group.as_deref(),
        cookie,
        spared,
        with_orphans: false,
    })
}

/// Everything is dead at the moment at which that is said.
async fn all_are_ended(script: &str, tier: Tier, survivors: usize) {
    let shim = killed(script, tier, survivors).await;
    let swept = end(&shim, &[]);
    assert_eq!(marked(&shim.marker), [], "{script}");
    assert_eq!((swept.leaked as usize, swept.unkilled), (survivors, 0), "{script}");
    assert!(shim.group.is_none_or(|group| !group.exists()));
}

#[tokio::test]
async fn a_session_mate_without_the_cookie_is_ended() {
    all_are_ended("env -i sleep $1 & echo ready; exec sleep $1", Tier::Subreaper, 1).await;
}

#[tokio::test]
async fn who_left_the_session_is_ended() {
    all_are_ended("setsid sleep $1 & echo ready; exec sleep $1", Tier::Subreaper, 1).await;
}

#[tokio::test]
async fn a_daemon_by_double_fork_is_ended() {
    let script = "(setsid sh -c \"sleep $1 & exit\" &) ; echo ready; exec sleep $1";
    all_are_ended(script, Tier::Subreaper, 1).await;
}

#[tokio::test]
async fn a_descendant_without_the_cookie_is_ended_with_its_parent() {
    let script = "setsid sh -c 'env -i setsid sleep $0 & echo ready; exec sleep $0' $1 & exec sleep $1";
    all_are_ended(script, Tier::Subreaper, 2).await;
}

/// Where there are no control groups this is the one that gets away, and so it is not left there.
#[tokio::test]
async fn a_daemon_with_an_empty_environment_is_ended_in_its_control_group() {
    let script = "(env -i setsid sleep $1 &) ; sleep $1 & echo ready; exec sleep $1";
    let shim = killed(script, Tier::ControlGroup, 2).await;
    let swept = end(&shim, &[]);
    if shim.group.is_some() {
        assert_eq!((swept.leaked, swept.unkilled), (2, 0));
        assert_eq!(marked(&shim.marker), []);
    }
    for (pid, _) in marked(&shim.marker) {
        let _ = Identity::of(pid).is_some_and(|left| left.signal(Signal::KILL));
    }
    assert_no_survivors(&shim.marker).await;
}

#[tokio::test]
async fn who_is_spared_lives_and_its_control_group_stays() {
    let shim = killed("sleep $1 & sleep $1 & echo ready; exec sleep $1", Tier::ControlGroup, 2).await;
    let spared = Identity::of(marked(&shim.marker)[0].0).unwrap();
    assert_eq!(end(&shim, &[spared]), SweptTree { leaked: 1, unkilled: 0 });
    let left: Vec<u32> = marked(&shim.marker).iter().map(|(pid, _)| *pid).collect();
    assert_eq!(left, [spared.pid]);
    assert_eq!(end(&shim, &[]), SweptTree { leaked: 1, unkilled: 0 });
    assert_eq!(marked(&shim.marker), []);
}
