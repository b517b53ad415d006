//! A lock lives exactly as long as its holder.

use rustix::process::Signal;
use unhang_proc::{identity::Identity, lock::is_held};

use crate::common::{Program, assert_no_survivors, marked, marker, wait_for};

#[tokio::test]
async fn a_killed_holder_lets_go_though_its_child_lives() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lock");
    let marker = marker();
    let arguments = ["hold".into(), path.clone().into(), marker.clone().into()];
    let mut holder = Program::start(&arguments);
    holder.line_with("held");
    assert!(is_held(&path).unwrap());
    holder.process.signal(Signal::KILL);
    holder.ended().await;
    wait_for(|| !is_held(&path).unwrap(), || "it is held".to_owned()).await;
    let child = marked(&marker);
    assert_eq!(child.len(), 1, "{child:?}");
    assert!(Identity::of(child[0].0).unwrap().signal(Signal::KILL));
    assert_no_survivors(&marker).await;
}
