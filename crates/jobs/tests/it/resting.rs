//! Engines that rest: they wake up for the calls that they hold, and look at everything else only now and then.

use std::{fs, time::Duration};

use tokio::time::timeout;
use unhang_jobs::{
    engine::{CallEnd, EngineOptions},
    questions::CallQuestion,
    record::{EndReason, JobState},
};

use crate::{
    calls::call,
    common::{Bench, open},
};

/// A resting engine looks at everything every 30 s, so only what wakes it up happens this soon.
const SOON: Duration = Duration::from_secs(10);

fn rests(options: &mut EngineOptions) {
    options.rests = true;
}

#[tokio::test]
async fn a_resting_engine_hears_at_once_that_its_call_is_to_end() {
    let bench = Bench::with(rests);
    let (other, _) = open(bench.folder.path(), |_| {});
    let (mut held, _) = bench.engine.adopt(call()).await.unwrap();
    let id = held.id();
    // Between the call and the wish, the engine comes to rest.
    assert!(timeout(Duration::from_secs(1), held.cancelled()).await.is_err(), "nobody wants it to end");
    let cancelling = tokio::spawn(async move { other.cancel(id).await });
    timeout(SOON, held.cancelled()).await.expect("the wish wakes it up");
    held.settle(CallEnd::Cancelled).await.unwrap();
    assert_eq!(cancelling.await.unwrap().unwrap().record.status, JobState::Cancelled);
}

#[tokio::test]
async fn a_resting_engine_finds_a_wish_in_a_folder_that_was_made_anew() {
    let bench = Bench::with(rests);
    let (mut held, _) = bench.engine.adopt(call()).await.unwrap();
    let folder = bench.job(held.id());
    assert!(timeout(Duration::from_secs(1), held.cancelled()).await.is_err(), "nobody wants it to end");
    fs::rename(&folder, bench.folder.path().join("aside")).unwrap();
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("cancel"), "").unwrap();
    timeout(SOON, held.cancelled()).await.expect("the folder in its place is watched too");
}

#[tokio::test]
async fn a_resting_engine_settles_a_call_that_is_let_go_of() {
    let bench = Bench::with(rests);
    let (held, _) = bench.engine.adopt(call()).await.unwrap();
    let id = held.id();
    drop(held);
    let status = timeout(SOON, bench.end(id)).await.expect("the drop wakes it up");
    let reason = status.record.ending.unwrap().reason;
    assert_eq!((status.record.status, reason), (JobState::Failed, Some(EndReason::UnhangEnded)));
}

#[tokio::test]
async fn a_resting_engine_says_when_a_reply_may_be_there() {
    let bench = Bench::with(rests);
    let (other, _) = open(bench.folder.path(), |_| {});
    let (held, _) = bench.engine.adopt(call()).await.unwrap();
    let (id, mut looks) = (held.id(), bench.engine.folder_looks());
    let question =
        CallQuestion { key: "question-1".to_owned(), method: "elicitation/create".to_owned(), params: None };
    let shown = || bench.engine.show_questions(id, vec![question.clone()]);
    assert_eq!(shown().await.unwrap(), []);
    let reply = r#"{"result":{}}"#;
    assert!(other.answer_question(id, question.key.clone(), reply.to_owned()).await.unwrap());
    let found = async {
        loop {
            looks.begin();
            let replies = shown().await.unwrap();
            if !replies.is_empty() {
                return replies;
            }
            looks.next().await;
        }
    };
    let replies = timeout(SOON, found).await.expect("the reply wakes it up");
    assert_eq!(replies, [(question.key.clone(), reply.to_owned())]);
}

#[tokio::test]
async fn a_resting_engine_is_not_woken_up_by_other_jobs() {
    let bench = Bench::with(rests);
    let (other, _) = open(bench.folder.path(), |_| {});
    let (held, _) = bench.engine.adopt(call()).await.unwrap();
    let mut looks = bench.engine.folder_looks();
    // The engine looks at the new call, and comes to rest.
    while timeout(Duration::from_millis(500), looks.next()).await.is_ok() {}
    let (busy, _) = other.adopt(call()).await.unwrap();
    busy.settle(CallEnd::Cancelled).await.unwrap();
    let woken = timeout(Duration::from_secs(1), looks.next()).await;
    assert!(woken.is_err(), "it woke up for the job of another process");
    drop(held);
}
