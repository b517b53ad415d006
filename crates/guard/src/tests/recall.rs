//! Nothing is read of a client before the guard knows which calls of earlier sessions have ended.

use std::{fs, sync::mpsc, time::Duration};

use tokio::time::{Instant, advance, timeout};
use unhang_background::EngineService;
use unhang_core::limits::Limits;
use unhang_jobs::{error::JobError, folder::has_database};

use super::super::job_bridge::{BridgeEvent, JobBridge, UnopenedJobs};

/// Makes a bridge whose folder opens when the sender is dropped.
pub(crate) fn bridge(join_same_call: bool) -> (JobBridge, mpsc::SyncSender<()>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("unhang.db"), "").unwrap();
    assert!(has_database(folder.path()), "otherwise nothing is opened");
    let (opens, opened) = mpsc::sync_channel(1);
    let open = Box::new(move || {
        let _dropped = opened.recv();
        EngineService::new(Err(JobError::Closed), Default::default())
    });
    let jobs = UnopenedJobs { folder: folder.path().to_owned(), open };
    let limits = Limits { join_same_call, ..Limits::default() };
    (JobBridge::new(("srv".to_owned(), [0; 8]), limits, jobs), opens, folder)
}

#[tokio::test]
async fn the_first_calls_of_a_session_wait_for_the_calls_of_earlier_ones() {
    let (mut bridge, opens, _folder) = bridge(true);
    assert!(timeout(Duration::from_millis(50), bridge.event()).await.is_err(), "it is not open");
    bridge.give_up_recall();
    assert!(bridge.recall_until().is_some(), "there is time");
    drop(opens);
    assert!(matches!(bridge.event().await, BridgeEvent::Recalled));
    assert_eq!(bridge.recall_until(), None);
}

#[tokio::test(start_paused = true)]
async fn a_folder_that_does_not_open_keeps_no_client_waiting_for_long() {
    let (mut bridge, opens, _folder) = bridge(true);
    let limit = bridge.recall_until().expect("it is awaited") - Instant::now();
    advance(limit).await;
    bridge.give_up_recall();
    assert_eq!(bridge.recall_until(), None);
    // The folder opens all the same, and a call that is slow later becomes a job.
    drop(opens);
    assert!(matches!(bridge.event().await, BridgeEvent::Recalled));
}

#[tokio::test]
async fn nothing_is_opened_and_nobody_waits_if_no_call_may_join() {
    let (bridge, _opens, _folder) = bridge(false);
    assert_eq!(bridge.recall_until(), None);
}
