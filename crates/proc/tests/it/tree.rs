//! A tree that is held as the shim of a job holds it: with the null device for stdin, and output straight into a file.

use rustix::process::Signal;
use unhang_proc::{lock::is_held, server::Tier};

use crate::{
    common::{Shim, assert_no_survivors},
    containment::CASES,
};

/// Some of the scripts end by themselves, for their stdin is at its end, and the others are stopped.
async fn nothing_is_left(tier: Tier) {
    for (name, text) in CASES {
        let mut shim = Shim::start(text, tier);
        shim.ready().await;
        shim.program.process.signal(Signal::TERM);
        let gone = shim.program.line_with("gone");
        assert!(gone.ends_with(" 0"), "{name}: {gone}");
        shim.program.ended().await;
        assert_no_survivors(&shim.marker).await;
        assert!(shim.group.is_none_or(|group| !group.exists()), "{name}");
    }
}

#[tokio::test]
async fn nothing_is_left_of_a_tree_with_a_control_group() {
    nothing_is_left(Tier::ControlGroup).await;
}

#[tokio::test]
async fn nothing_is_left_of_a_tree_with_a_subreaper() {
    nothing_is_left(Tier::Subreaper).await;
}

#[tokio::test]
async fn the_exit_code_is_that_of_the_root_and_its_output_is_in_the_file() {
    let script = "cat; echo UNHANG_TEST_JOB=$UNHANG_TEST_JOB; sleep $1 & exit 7";
    let mut shim = Shim::start(script, Tier::Subreaper);
    assert_eq!(shim.tier, "subreaper");
    assert_eq!(shim.program.line_with("exited"), "exited exit code 7");
    assert_eq!(shim.program.line_with("gone"), "gone 1 0");
    assert_eq!(shim.output().trim_end(), shim.cookie);
    shim.program.ended().await;
    assert!(!is_held(&shim.lock()).unwrap());
}

#[tokio::test]
async fn a_stop_gives_the_root_time_to_end() {
    let mut shim = Shim::start(
        "trap 'echo stopped; exit 4' TERM; echo ready; while :; do sleep 0.05; done",
        Tier::Subreaper,
    );
    shim.ready().await;
    shim.program.process.signal(Signal::TERM);
    assert_eq!(shim.program.line_with("exited"), "exited exit code 4");
    shim.program.ended().await;
    assert!(shim.output().ends_with("stopped\n"));
}

#[tokio::test]
async fn the_root_dies_with_who_holds_it_and_the_lock_is_free() {
    let mut shim = Shim::start("echo ready; exec sleep $1", Tier::Subreaper);
    shim.ready().await;
    assert!(is_held(&shim.lock()).unwrap() && shim.identity.is_alive());
    shim.program.process.signal(Signal::KILL);
    shim.program.ended().await;
    assert!(!shim.identity.is_alive());
    assert!(!is_held(&shim.lock()).unwrap());
    assert_no_survivors(&shim.marker).await;
}
