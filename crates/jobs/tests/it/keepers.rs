//! Calls that outlive the process that waited for the answer, under a keeper.

use std::{ffi::OsString, fs, sync::Arc, time::Duration};

use rustix::process::Signal;
use serde_json::json;
use unhang_jobs::{
    engine::{Adoption, CallEnd, Engine, HeldCall, JobStatus},
    error::JobError,
    id::JobId,
    record::{CallTicket, EndReason, Holder, JobState},
    store::JobOwnerFilter,
};
use unhang_proc::{deadline::Deadline, identity::Identity};

use crate::{
    calls::call,
    common::{Bench, Helper, PATIENCE, fixture, open, until},
};

const ANSWER: &str = r#"{"content":[]}"#;

/// A process that stands by.
struct Keeper {
    helper: Helper,
    pid: String,
    identity: Holder,
}

impl Keeper {
    fn start() -> Self {
        let mut helper = Helper::start(&["stand-by".into()]);
        let pid = helper.line();
        let process = Identity::of(pid.parse().unwrap()).unwrap();
        Self { helper, pid, identity: Holder::here(process).unwrap() }
    }
}

/// A call that another process holds, with this keeper.
fn held_elsewhere(bench: &Bench, keeper: &Keeper) -> (Helper, JobId) {
    let mut owner = Helper::once(bench, &["hold-kept", &keeper.pid]);
    let id = owner.line().parse().unwrap();
    (owner, id)
}

/// A process that resumes the call, as a keeper would start it.
fn resumed_elsewhere(bench: &Bench, id: JobId, keeper: &Keeper) -> Helper {
    Helper::once(bench, &["resume", id.as_str(), &keeper.pid])
}

async fn resume(engine: &Engine, id: JobId, keeper: &Keeper) -> Option<(HeldCall, JobStatus)> {
    engine.resume(id, &keeper.identity, Deadline::after(PATIENCE)).await.unwrap()
}

fn reason(status: &JobStatus) -> Option<EndReason> {
    status.record.ending.as_ref().and_then(|ending| ending.reason)
}

fn answered() -> CallEnd {
    CallEnd::Answered { result: ANSWER.to_owned().into(), is_error: false }
}

#[tokio::test]
async fn a_kept_call_outlives_the_process_that_waited_for_it() {
    let bench = Bench::new();
    let keeper = Keeper::start();
    let (owner, id) = held_elsewhere(&bench, &keeper);
    // A line of the log that is not on the disk yet is lost with its process.
    until("its first line", || (bench.stdout_if_any(id)? == "begun\n").then_some(())).await;
    owner.kill().await;
    // A whole round has looked at it when this one is open.
    let bench = bench.reopen();
    let running = bench.engine.list(Some(JobState::Running), JobOwnerFilter::Anybodys, 10).await.unwrap();
    assert_eq!(running.iter().map(|status| status.record.job_id).collect::<Vec<_>>(), [id]);
    assert!(
        bench.engine.left_calls().is_empty() && bench.engine.take_up(id).await.unwrap().is_none(),
        "it is the keeper's"
    );
    let mut next = resumed_elsewhere(&bench, id, &keeper);
    assert_eq!(next.line(), "resumed");
    bench.seen(id, "its progress", |status| status.progress.and_then(|progress| progress.fraction)).await;
    next.kill().await;
    // The keeper starts another one.
    let bench = bench.reopen();
    let (mut held, status) = resume(&bench.engine, id, &keeper).await.expect("it goes on");
    assert_eq!(status.record.status, JobState::Running);
    let ticket = status.record.call.as_ref().and_then(|call| call.ticket.as_ref());
    assert!(ticket.is_some(), "an older unhang leaves the call alone");
    let left = status.time_left(status.record.created_at).unwrap();
    assert_eq!(left, Duration::from_secs(7200 - 48), "the time goes on from its start");
    held.log("answered");
    held.settle(answered()).await.unwrap();
    assert_eq!(bench.stdout(id), "begun\nprogress: 75%\nanswered\n");
    let bench = bench.reopen();
    assert_eq!(bench.engine.call_result(id).await.unwrap().as_deref(), Some(ANSWER));
    let record = bench.engine.status(id).await.unwrap().record;
    assert_eq!(record.status, JobState::Completed);
    let call = record.call.unwrap();
    assert_eq!((call.ticket, call.keeper), (None, None));
    assert!(resume(&bench.engine, id, &keeper).await.is_none(), "it has ended");
}

#[tokio::test]
async fn a_call_has_failed_when_its_keeper_has_gone_too() {
    let bench = Bench::new();
    let keeper = Keeper::start();
    let (owner, id) = held_elsewhere(&bench, &keeper);
    keeper.helper.kill().await;
    let bench = bench.reopen();
    assert_eq!(bench.engine.status(id).await.unwrap().record.status, JobState::Running, "it is held");
    owner.kill().await;
    let status = bench.end(id).await;
    assert_eq!((status.record.status, reason(&status)), (JobState::Failed, Some(EndReason::UnhangEnded)));
    let detail = status.record.ending.unwrap().detail.unwrap();
    for words in ["`srv`", "and so did the process that stood by for it", "check before you repeat it"] {
        assert!(detail.contains(words), "{detail}");
    }
}

#[tokio::test]
async fn what_a_killed_holder_had_begun_to_write_of_the_answer_is_removed() {
    for goes_on in [true, false] {
        let bench = Bench::new();
        let keeper = Keeper::start();
        let (owner, id) = held_elsewhere(&bench, &keeper);
        let work = bench.work(id).await;
        let begun = work.join(format!(".results.json.{}", JobId::random().unwrap()));
        fs::write(&begun, "half of it").unwrap();
        owner.kill().await;
        if goes_on {
            let (held, _) = resume(&bench.engine, id, &keeper).await.expect("it goes on");
            held.settle(answered()).await.unwrap();
            assert!(work.join("results.json").exists());
        } else {
            keeper.helper.kill().await;
            bench.end(id).await;
        }
        assert!(!begun.exists(), "goes on: {goes_on}");
    }
}

/// Owner and keeper are killed at the same moment, two engines look, and one of them resumes the call.
#[tokio::test]
async fn a_call_is_either_resumed_or_settled_however_many_look_at_it() {
    let bench = Bench::new();
    let (other, _) = open(bench.folder.path(), |_| {});
    for _ in 0..12 {
        let keeper = Keeper::start();
        let (owner, id) = held_elsewhere(&bench, &keeper);
        owner.signal(Signal::KILL);
        keeper.helper.signal(Signal::KILL);
        let resumed = resume(&bench.engine, id, &keeper).await;
        let is_resumed = resumed.is_some();
        let expected = match resumed {
            Some((held, status)) => {
                assert_eq!(status.record.status, JobState::Running);
                held.settle(answered()).await.unwrap().record.status
            }
            None => JobState::Failed,
        };
        for engine in [&bench.engine, &other] {
            let status = engine.wait(id, Deadline::after(PATIENCE)).await.unwrap().record.status;
            assert_eq!(status, expected, "resumed: {is_resumed}");
        }
        assert_eq!(expected, if is_resumed { JobState::Completed } else { JobState::Failed });
    }
}

#[tokio::test]
async fn of_two_that_resume_a_call_one_holds_it() {
    let bench = Bench::new();
    let (other, _) = open(bench.folder.path(), |_| {});
    let keeper = Keeper::start();
    let (owner, id) = held_elsewhere(&bench, &keeper);
    owner.kill().await;
    let soon = || Deadline::after(Duration::from_millis(500));
    let (one, two) = tokio::join!(
        bench.engine.resume(id, &keeper.identity, soon()),
        other.resume(id, &keeper.identity, soon())
    );
    let (held, refused) = match (one, two) {
        (Ok(Some((held, _))), Err(refused)) | (Err(refused), Ok(Some((held, _)))) => (held, refused),
        outcomes => panic!("one of them holds it: {outcomes:?}"),
    };
    assert!(matches!(refused, JobError::StillHeld { .. }), "{refused}");
    held.settle(answered()).await.unwrap();
    assert_eq!(bench.end(id).await.record.status, JobState::Completed);
}

#[tokio::test]
async fn a_call_is_resumed_when_its_holder_has_gone_and_not_before() {
    let bench = Bench::new();
    let keeper = Keeper::start();
    let (owner, id) = held_elsewhere(&bench, &keeper);
    let soon = Deadline::after(Duration::from_millis(50));
    let refused = bench.engine.resume(id, &keeper.identity, soon).await.unwrap_err();
    assert!(matches!(refused, JobError::StillHeld { id: of, .. } if of == id), "{refused}");
    let engine = bench.engine.clone();
    let identity = keeper.identity.clone();
    let resuming =
        tokio::spawn(async move { engine.resume(id, &identity, Deadline::after(PATIENCE)).await.unwrap() });
    tokio::task::yield_now().await;
    let mark = bench.job(id).join("unheld");
    fs::write(&mark, "").unwrap();
    owner.kill().await;
    let (held, _) = resuming.await.unwrap().expect("it goes on");
    assert!(!mark.exists(), "the next keeper has its whole time");
    held.settle(answered()).await.unwrap();
}

#[tokio::test]
async fn a_call_is_resumed_for_its_own_keeper_alone() {
    let bench = Bench::new();
    let (keeper, another) = (Keeper::start(), Keeper::start());
    let (held, _) = bench.engine.adopt(call()).await.unwrap();
    let id = held.id();
    let soon = || Deadline::after(Duration::ZERO);
    let refused = bench.engine.resume(id, &keeper.identity, soon()).await.unwrap_err().to_string();
    assert!(
        refused.contains(&format!("is not kept by process {}, nor by any other", keeper.pid)),
        "{refused}"
    );
    let mark = bench.job(id).join("unheld");
    fs::write(&mark, "").unwrap();
    held.kept_by(keeper.identity.clone()).await.unwrap();
    assert!(!mark.exists(), "the keeper has its whole time");
    // A living holder replaces a keeper.
    held.kept_by(another.identity.clone()).await.unwrap();
    let refused = bench.engine.resume(id, &keeper.identity, soon()).await.unwrap_err().to_string();
    let words = format!("is kept by process {} and not by process {}", another.pid, keeper.pid);
    assert!(refused.contains(&words), "{refused}");
    let gone = keeper.identity.clone();
    keeper.helper.kill().await;
    let refused = held.kept_by(gone).await.unwrap_err();
    assert!(matches!(refused, JobError::KeeperGone { .. }), "{refused}");
    let late = held.kept_by(another.identity.clone());
    held.settle(answered()).await.unwrap();
    let refused = late.await.unwrap_err();
    assert!(matches!(refused, JobError::NotHeld(_)), "{refused}");

    let adoption = Adoption { timeout: None, ..call() };
    let (held, _) = bench.engine.adopt(adoption).await.unwrap();
    let refused = held.kept_by(another.identity.clone()).await.unwrap_err();
    assert!(matches!(refused, JobError::NoTimeLimit(_)), "{refused}");
    let id = held.id();
    let refused = held.leave_to_keeper().await.unwrap_err().to_string();
    assert!(refused.contains("no process that stands by"), "{refused}");
    assert_eq!(reason(&bench.end(id).await), Some(EndReason::UnhangEnded));
}

#[tokio::test]
async fn whoever_resumed_a_call_hears_that_it_is_to_end() {
    let bench = Bench::new();
    let keeper = Keeper::start();
    let (owner, id) = held_elsewhere(&bench, &keeper);
    owner.kill().await;
    let mut next = resumed_elsewhere(&bench, id, &keeper);
    assert_eq!(next.line(), "resumed");
    assert_eq!(bench.engine.cancel(id).await.unwrap().record.status, JobState::Cancelled);
    assert_eq!(next.line(), "done");
}

/// Nobody holds the call when it is to end.
#[tokio::test]
async fn a_wish_waits_for_whoever_resumes_the_call() {
    let bench = Bench::new();
    let keeper = Keeper::start();
    let (owner, id) = held_elsewhere(&bench, &keeper);
    owner.kill().await;
    let engine = bench.engine.clone();
    let cancelling = tokio::spawn(async move { engine.cancel(id).await });
    until("the wish lies in its folder", || bench.job(id).join("cancel").exists().then_some(())).await;
    // A whole round of another engine.
    let (other, _) = open(bench.folder.path(), |_| {});
    assert_eq!(other.status(id).await.unwrap().record.status, JobState::Running, "its server works on it");
    let mut next = resumed_elsewhere(&bench, id, &keeper);
    assert_eq!(next.line(), "resumed");
    assert_eq!(next.line(), "done");
    assert_eq!(cancelling.await.unwrap().unwrap().record.status, JobState::Cancelled);
}

#[tokio::test]
async fn an_owner_that_ends_in_order_leaves_the_call_to_its_keeper() {
    let bench = Bench::new();
    let keeper = Keeper::start();
    let mut owner = Helper::once(&bench, &["leave-kept", &keeper.pid]);
    let id: JobId = owner.line().parse().unwrap();
    assert_eq!(owner.line(), "left");
    let bench = bench.reopen();
    assert_eq!(bench.engine.status(id).await.unwrap().record.status, JobState::Running);
    // The owner lives.
    let (held, _) = resume(&bench.engine, id, &keeper).await.expect("it was left");
    assert!(!owner.has_ended());
    assert_eq!(bench.stdout(id), "begun\n");
    held.settle(answered()).await.unwrap();
    assert_eq!(bench.end(id).await.record.status, JobState::Completed);
}

#[tokio::test]
async fn a_kept_call_whose_server_keeps_the_answer_too_is_its_keepers_first() {
    let bench = Bench::new();
    let keeper = Keeper::start();
    let (held, _) = bench.engine.adopt(call()).await.unwrap();
    let id = held.id();
    held.kept_by(keeper.identity.clone()).await.unwrap();
    let ticket = CallTicket { kept_by: "srv-1".to_owned(), details: json!({}), is_free: false };
    held.note(ticket).await.unwrap();
    held.leave_to_keeper().await.unwrap();
    assert!(bench.engine.left_calls().is_empty() && bench.engine.take_up(id).await.unwrap().is_none());
    keeper.helper.kill().await;
    let (held, _) = bench.engine.take_up(id).await.unwrap().expect("the keeper has gone");
    held.settle(answered()).await.unwrap();
}

/// As by a panic of whoever held it.
#[tokio::test]
async fn a_kept_call_that_is_let_go_of_is_left_to_its_keeper_unless_the_answer_came() {
    let bench = Bench::new();
    let keeper = Keeper::start();
    let (held, _) = bench.engine.adopt(call()).await.unwrap();
    let id = held.id();
    held.kept_by(keeper.identity.clone()).await.unwrap();
    drop(held);
    let (mut held, status) = resume(&bench.engine, id, &keeper).await.expect("it was left");
    assert_eq!(status.record.status, JobState::Running);
    // Something lies where the result goes.
    let result = bench.work(id).await.join("results.json");
    fs::create_dir_all(result.join("full")).unwrap();
    held.try_settle(&Arc::new(answered())).await.unwrap_err();
    assert_eq!(bench.engine.status(id).await.unwrap().record.status, JobState::Running, "it is held");
    drop(held);
    assert_eq!(reason(&bench.end(id).await), Some(EndReason::UnhangEnded));
}

/// Starts the fixture with this action, in a mount namespace of its own, with a disk of its own.
fn on_small_disk(bench: &Bench, action: &str) -> Helper {
    const SCRIPT: &str = r#"mount -t tmpfs -o size=8m,mode=700 none "$1" && exec "$2" once "$1" 1 none "$3""#;
    let mut arguments: Vec<OsString> =
        ["--mount", "--map-root-user", "sh", "-c", SCRIPT, "sh"].map(OsString::from).into();
    let folder = bench.folder.path().join("disk");
    fs::create_dir(&folder).unwrap();
    arguments.extend([folder.into(), fixture().into(), action.into()]);
    Helper::start_program("/usr/bin/unshare".as_ref(), &arguments)
}

/// The file of a long result and its copy do not find room together.
#[tokio::test]
async fn a_long_result_in_a_file_is_stored_in_the_room_of_that_file() {
    let bench = Bench::new();
    let mut holder = on_small_disk(&bench, "settle-in-its-own-room");
    assert_eq!(holder.next_line().as_deref(), Some("completed"), "mounting takes root or user namespaces");
    assert_eq!([(); 2].map(|()| holder.line()), ["whole", "done"]);
}

#[tokio::test]
async fn an_end_that_finds_no_room_waits_for_it() {
    let bench = Bench::new();
    let mut holder = on_small_disk(&bench, "settle-on-full-disk");
    for _ in 0..2 {
        let told = holder.next_line().expect("mounting takes root or user namespaces");
        for words in ["has ended, and its end cannot be recorded", "make room on the disk"] {
            assert!(told.contains(words), "{told}");
        }
    }
    assert_eq!([(); 4].map(|()| holder.line()), ["running", "completed", ANSWER, "done"]);
}
