//! Calls of servers' tools that have become jobs.

use std::{fs, time::Duration};

use serde_json::json;
use tokio::time::timeout;
use unhang_jobs::{
    engine::{Adoption, CallEnd, JobStatus},
    id::JobId,
    log::LogStream,
    progress::JobProgress,
    record::{EndReason, JobState},
};

use crate::common::{Bench, Helper, PATIENCE, until};

const ANSWER: &str = r#"{"content":[{"type":"text","text":"whole"}], "vendor": 1.50}"#;

pub(crate) fn call() -> Adoption {
    Adoption {
        id: JobId::random().unwrap(),
        name: "srv__slow".to_owned(),
        owner: Some("somebody".to_owned()),
        server: "srv".to_owned(),
        tool: "slow".to_owned(),
        is_repeatable: true,
        arguments: Some(r#"{"seconds":90}"#.to_owned()),
        elapsed: Duration::from_secs(48),
        timeout: Some(Duration::from_secs(7200)),
        ticket: None,
        lost_with_holder: None,
        is_unsent: false,
        lasting_key: None,
    }
}

fn reason(status: &JobStatus) -> Option<EndReason> {
    status.record.ending.as_ref().and_then(|ending| ending.reason)
}

#[tokio::test]
async fn a_call_is_followed_and_its_answer_kept_as_it_was() {
    let bench = Bench::new();
    let (mut held, adopted) = bench.engine.adopt(call()).await.unwrap();
    let id = held.id();
    assert_eq!(adopted.record.status, JobState::Running);
    assert!(adopted.elapsed() >= Duration::from_secs(48), "it runs for longer than it is a job");
    held.log("half of it\nis done");
    held.progress(Some(JobProgress { fraction: Some(0.5), message: None }), "progress: 50%");
    assert_eq!(
        bench.engine.status(id).await.unwrap().progress.and_then(|progress| progress.fraction),
        Some(0.5)
    );

    let answered = CallEnd::Answered { result: ANSWER.to_owned().into(), is_error: false };
    assert_eq!(held.settle(answered).await.unwrap().record.status, JobState::Completed);
    assert_eq!(bench.engine.call_result(id).await.unwrap().as_deref(), Some(ANSWER));
    let results = bench.engine.results(id).await.unwrap();
    assert_eq!(results.results.unwrap()["vendor"], json!(1.5));
    let log = bench.engine.logs(id, LogStream::Stdout, 0, 1000).await.unwrap();
    assert_eq!((log.text.as_str(), log.eof), ("half of it is done\nprogress: 50%\n", true));

    let bench = bench.reopen();
    let record = bench.engine.status(id).await.unwrap().record;
    assert_eq!((record.status, record.owner.as_deref()), (JobState::Completed, Some("somebody")));
    assert_eq!(record.call.unwrap().tool, "slow");
}

#[tokio::test]
async fn a_tool_that_says_that_it_failed_has_failed_and_its_answer_is_kept() {
    let bench = Bench::new();
    let (held, _) = bench.engine.adopt(call()).await.unwrap();
    let id = held.id();
    let status =
        held.settle(CallEnd::Answered { result: ANSWER.to_owned().into(), is_error: true }).await.unwrap();
    assert_eq!((status.record.status, reason(&status)), (JobState::Failed, Some(EndReason::ToolError)));
    assert_eq!(bench.engine.call_result(id).await.unwrap().as_deref(), Some(ANSWER));

    let (held, _) = bench.engine.adopt(call()).await.unwrap();
    let id = held.id();
    let error = r#"{"code":-31002,"message":"it ended"}"#.to_owned();
    let end = CallEnd::Failed {
        reason: EndReason::ServerExited,
        detail: "it ended".to_owned(),
        error: Some(error.clone()),
    };
    let status = held.settle(end).await.unwrap();
    assert_eq!((status.record.status, reason(&status)), (JobState::Failed, Some(EndReason::ServerExited)));
    assert_eq!(bench.engine.call_error(id).await.unwrap(), Some(error));
    assert_eq!(bench.engine.results(id).await.unwrap().error.unwrap()["code"], -31002);
}

#[tokio::test]
async fn an_answer_that_is_beyond_our_numbers_and_levels_can_be_read() {
    let bench = Bench::new();
    let deep = format!("{{\"deep\":{}{}}}", "[".repeat(200), "]".repeat(200));
    let large = r#"{"number":123456789012345678901234567890,"small":1e999}"#;
    for answer in [large, r#"{"half":"\ud800"}"#, &deep] {
        let (held, _) = bench.engine.adopt(call()).await.unwrap();
        let id = held.id();
        held.settle(CallEnd::Answered { result: answer.to_owned().into(), is_error: false }).await.unwrap();
        assert_eq!(bench.engine.results(id).await.unwrap().results, Some(json!(answer)));
        assert_eq!(bench.engine.call_result(id).await.unwrap().as_deref(), Some(answer));
        // What somebody else has broken is told.
        fs::write(bench.work(id).await.join("results.json"), &answer[..9]).unwrap();
        assert!(bench.engine.results(id).await.unwrap_err().to_string().contains("is damaged"));
    }
}

/// As by a panic of whoever held it.
#[tokio::test]
async fn a_call_that_is_let_go_of_has_failed() {
    let bench = Bench::new();
    let (held, _) = bench.engine.adopt(call()).await.unwrap();
    let id = held.id();
    drop(held);
    let status = bench.end(id).await;
    assert_eq!((status.record.status, reason(&status)), (JobState::Failed, Some(EndReason::UnhangEnded)));
}

#[tokio::test]
async fn a_call_has_failed_when_the_process_that_waited_for_it_was_killed() {
    let bench = Bench::new();
    let mut holder = Helper::once(&bench, &["hold"]);
    let id: JobId = holder.line().parse().unwrap();
    assert_eq!(bench.engine.status(id).await.unwrap().record.status, JobState::Running);
    let bench = bench.reopen();
    assert_eq!(bench.engine.status(id).await.unwrap().record.status, JobState::Running, "somebody holds it");
    holder.kill().await;
    let status = bench.end(id).await;
    assert_eq!((status.record.status, reason(&status)), (JobState::Failed, Some(EndReason::UnhangEnded)));
    let detail = status.record.ending.unwrap().detail.unwrap();
    assert!(detail.contains("check before you repeat it"), "{detail}");
}

#[tokio::test]
async fn whoever_holds_a_call_hears_that_it_is_to_end() {
    let bench = Bench::new();
    let (mut held, _) = bench.engine.adopt(call()).await.unwrap();
    let id = held.id();
    let engine = bench.engine.clone();
    let cancelling = tokio::spawn(async move { engine.cancel(id).await });
    timeout(PATIENCE, held.cancelled()).await.unwrap();
    held.settle(CallEnd::Cancelled).await.unwrap();
    assert_eq!(cancelling.await.unwrap().unwrap().record.status, JobState::Cancelled);

    // One that another process holds.
    let mut holder = Helper::once(&bench, &["hold"]);
    let id: JobId = holder.line().parse().unwrap();
    assert_eq!(bench.engine.cancel(id).await.unwrap().record.status, JobState::Cancelled);
    assert_eq!(holder.line(), "done");
}

#[tokio::test]
async fn calls_take_no_slot() {
    let bench = Bench::with(|options| options.rules.max_concurrent = 1);
    let (held, _) = bench.engine.adopt(call()).await.unwrap();
    let (also, _) = bench.engine.adopt(call()).await.unwrap();
    assert_eq!(bench.run("exit 0").await.record.status, JobState::Completed);
    let system = bench.engine.system().await.unwrap();
    assert_eq!((system.running, system.jobs.len()), (0, 2));
    drop((held, also));
}

#[tokio::test]
async fn a_database_that_is_made_anew_knows_calls_that_are_waited_for() {
    let bench = Bench::new();
    let (held, _) = bench.engine.adopt(call()).await.unwrap();
    let id = held.id();
    until("its record lies in its folder", || {
        fs::exists(bench.job(id).join("job.json")).unwrap().then_some(())
    })
    .await;
    bench.engine.rebuild().await.unwrap();
    assert_eq!(bench.engine.status(id).await.unwrap().record.status, JobState::Running);
    held.settle(CallEnd::Answered { result: ANSWER.to_owned().into(), is_error: false }).await.unwrap();
    assert_eq!(bench.end(id).await.record.status, JobState::Completed);
}
