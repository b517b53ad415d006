//! Calls whose servers keep the answer: left by whoever waited, taken up by somebody else.

use serde_json::json;
use unhang_jobs::{
    engine::{CallEnd, JobStatus},
    id::JobId,
    record::{CallTicket, EndReason, JobState},
};

use crate::{
    calls::call,
    common::{Bench, Helper, until},
};

const ANSWER: &str = r#"{"content":[]}"#;

/// A call that another process holds, with a ticket, and that may take so many seconds.
fn held_elsewhere(bench: &Bench, seconds: &str) -> (Helper, JobId) {
    let mut holder = Helper::once(bench, &["hold-ticket", seconds]);
    let id = holder.line().parse().unwrap();
    (holder, id)
}

fn left(bench: &Bench) -> Vec<JobId> {
    bench.engine.left_calls().iter().map(|status| status.record.job_id).collect()
}

async fn until_left(bench: &Bench, id: JobId) {
    until("it is nobody's", || left(bench).contains(&id).then_some(())).await;
}

fn detail(status: &JobStatus) -> &str {
    status.record.ending.as_ref().and_then(|ending| ending.detail.as_deref()).unwrap()
}

#[tokio::test]
async fn a_call_whose_server_keeps_the_answer_is_taken_up_by_one() {
    let bench = Bench::new();
    let (holder, id) = held_elsewhere(&bench, "7200");
    assert_eq!(bench.engine.status(id).await.unwrap().record.status, JobState::Running);
    assert!(
        left(&bench).is_empty() && bench.engine.take_up(id).await.unwrap().is_none(),
        "somebody holds it"
    );
    holder.kill().await;
    until_left(&bench, id).await;
    // It has been looked at when this one is open.
    let bench = bench.reopen();
    assert_eq!(bench.engine.status(id).await.unwrap().record.status, JobState::Running, "it is not given up");
    assert_eq!(left(&bench), [id]);
    let (held, status) = bench.engine.take_up(id).await.unwrap().expect("it is nobody's");
    let ticket = status.record.call.unwrap().ticket.unwrap();
    assert_eq!((ticket.kept_by.as_str(), &ticket.details["task"]), ("srv-1", &json!("number 7")));
    assert!(bench.engine.take_up(id).await.unwrap().is_none(), "it is ours");
    assert!(left(&bench).is_empty());
    held.settle(CallEnd::Answered { result: ANSWER.to_owned().into(), is_error: false }).await.unwrap();
    let bench = bench.reopen();
    assert_eq!(bench.engine.call_result(id).await.unwrap().as_deref(), Some(ANSWER));
    assert!(bench.engine.take_up(id).await.unwrap().is_none(), "it has ended");
    let record = bench.engine.status(id).await.unwrap().record;
    assert_eq!(record.call.unwrap().ticket, None, "there is nothing to be had with it");
}

#[tokio::test]
async fn a_call_that_nobody_takes_up_has_failed_when_its_time_is_over() {
    let bench = Bench::new();
    let (holder, id) = held_elsewhere(&bench, "1");
    holder.kill().await;
    let status = bench.end(id).await;
    assert_eq!(status.record.status, JobState::Failed);
    assert_eq!(status.record.ending.as_ref().unwrap().reason, Some(EndReason::Timeout));
    for words in ["no process with this server asked for it", "`srv`", "check before you repeat it"] {
        assert!(detail(&status).contains(words), "{}", detail(&status));
    }
    assert!(left(&bench).is_empty() && bench.engine.take_up(id).await.unwrap().is_none());
}

#[tokio::test]
async fn a_call_that_nobody_has_taken_up_yet_can_be_cancelled() {
    let bench = Bench::new();
    let (holder, id) = held_elsewhere(&bench, "7200");
    holder.kill().await;
    until_left(&bench, id).await;
    assert_eq!(bench.engine.cancel(id).await.unwrap().record.status, JobState::Cancelled);
    assert!(bench.engine.take_up(id).await.unwrap().is_none());
}

#[tokio::test]
async fn whoever_leaves_a_call_leaves_it_to_anybody() {
    let bench = Bench::new();
    let ticket = CallTicket { kept_by: "srv-1".to_owned(), details: json!({ "task": 1 }), is_free: false };
    let (held, _) = bench.engine.adopt(call()).await.unwrap();
    let id = held.id();
    held.note(ticket.clone()).await.unwrap();
    assert!(left(&bench).is_empty());
    // One that comes late changes nothing.
    let late = held.note(CallTicket { details: json!({ "task": 2 }), ..ticket.clone() });
    held.leave(ticket).await.unwrap();
    late.await.unwrap();
    assert_eq!(left(&bench), [id], "though the process lives");
    let bench = bench.reopen();
    let (held, status) = bench.engine.take_up(id).await.unwrap().expect("it is nobody's");
    assert_eq!(status.record.call.unwrap().ticket.unwrap().details["task"], 1);
    assert_eq!(status.record.owner.as_deref(), Some("somebody"));
    held.settle(CallEnd::Cancelled).await.unwrap();
}
