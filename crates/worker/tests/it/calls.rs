//! Slow calls of servers in the store: they are seen from another engine, stay on their machine, and get their true ends.
//!
//! The engine that holds a call is another one than the engine that looks at it through the store. Each has a data folder of its own.

use std::time::Duration;

use unhang_jobs::{
    engine::{Adoption, CallEnd, Engine, EngineOptions, HeldCall},
    error::JobError,
    id::JobId,
    log::LogStream,
    progress::JobProgress,
    questions::CallQuestion,
    record::{CallTicket, EndReason, JobState},
    shims::ShimCommand,
    store::JobOwnerFilter,
};
use unhang_proc::lock::Lock;
use unhang_worker::CallMirror;

use crate::common::{Cluster, LONG, until};

/// The answer of a server, with a number that a `Value` cannot have.
const ANSWER: &str = r#"{"content":[],"structuredContent":{"big":123456789012345678901234567890}}"#;

/// A lease that ends in the course of a test.
const SHORT: Duration = Duration::from_secs(2);

/// A machine with calls.
struct Machine {
    engine: Engine,
    folder: std::path::PathBuf,
}

impl Machine {
    fn new(cluster: &Cluster) -> Self {
        let folder = cluster.path("machine");
        let mut options = EngineOptions::new(folder.clone(), ShimCommand::this_program());
        options.shared = cluster.engine.options().shared.clone();
        Self { engine: Engine::open(options).unwrap().0, folder }
    }

    async fn call(&self, ticket: Option<CallTicket>) -> (JobId, HeldCall) {
        let id = JobId::random().unwrap();
        let adoption = Adoption {
            id,
            name: "srv__slow".to_owned(),
            owner: Some("ann".to_owned()),
            server: "srv".to_owned(),
            tool: "slow".to_owned(),
            is_repeatable: true,
            arguments: None,
            elapsed: Duration::from_secs(1),
            timeout: None,
            ticket,
            lost_with_holder: None,
            is_unsent: false,
            lasting_key: None,
        };
        (id, self.engine.adopt(adoption).await.unwrap().0)
    }

    fn mirror(&self, cluster: &Cluster, lease: Duration) -> CallMirror {
        CallMirror::with_lease(self.engine.clone(), cluster.address(), lease).unwrap()
    }

    fn note(&self, id: JobId) -> std::path::PathBuf {
        self.folder.join("calls").join(format!("{id}.json"))
    }

    async fn told(&self, id: JobId) {
        until("everything is told", || (!self.note(id).exists()).then_some(())).await;
    }
}

fn answered(result: &str) -> CallEnd {
    CallEnd::Answered { result: result.to_owned().into(), is_error: false }
}

/// Waits until the store has a call.
async fn in_store(cluster: &Cluster, id: JobId) {
    let look = || match cluster.ask(|store| unhang_jobs::store::JobStore::get(store, id)) {
        Ok(found) => found.map(drop),
        Err(_) => None,
    };
    until("the store has the call", look).await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
async fn a_call_is_seen_elsewhere_with_its_log_its_progress_and_the_answer_of_its_server() {
    let cluster = Cluster::new("calls");
    let machine = Machine::new(&cluster);
    let details = serde_json::json!({ "session": "secret-7" });
    let ticket = CallTicket { kept_by: "srv-1".to_owned(), details, is_free: false };
    let (id, mut call) = machine.call(Some(ticket)).await;
    let _mirror = machine.mirror(&cluster, LONG);
    in_store(&cluster, id).await;
    let seen = cluster.engine.status(id).await.unwrap();
    assert_eq!((seen.record.status, seen.record.owner.as_deref()), (JobState::Running, Some("ann")));
    let sight = seen.shared.expect("it is in the store");
    assert!(sight.worker.is_some_and(|name| name.len() > 12) && sight.silent_for.is_none());
    let shown = seen.record.call.expect("a call");
    assert_eq!((shown.server.as_str(), shown.ticket), ("srv", None), "a ticket can hold a secret");

    call.log("part 1");
    call.progress(Some(JobProgress { fraction: Some(0.25), message: None }), "a quarter");
    cluster
        .seen(id, "its progress", |seen| seen.progress.as_ref()?.fraction.filter(|done| *done == 0.25))
        .await;
    let log = || async { cluster.engine.logs(id, LogStream::Stdout, 0, 4096).await.unwrap().text };
    while !log().await.contains("a quarter") {
        // Between two looks: the store tells nobody of a change.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // A question cannot be answered from here, and the status says where it can.
    let question =
        CallQuestion { key: "q".to_owned(), method: "elicitation/create".to_owned(), params: None };
    machine.engine.show_questions(id, vec![question]).await.unwrap();
    let words = |seen: &unhang_jobs::engine::JobStatus| seen.progress.clone()?.message;
    let told = cluster.seen(id, "that it asks", words).await;
    assert!(told.starts_with("it waits for an answer") && told.contains("on its machine"), "{told}");
    assert!(!cluster.engine.answer_question(id, "q".to_owned(), "{}".to_owned()).await.unwrap_or(false));

    call.settle(answered(ANSWER)).await.unwrap();
    assert_eq!(cluster.end(id).await.record.status, JobState::Completed);
    assert_eq!(cluster.engine.call_result(id).await.unwrap().as_deref(), Some(ANSWER));
    assert_eq!(cluster.engine.call_error(id).await.unwrap(), None);
    let results = cluster.engine.results(id).await.unwrap();
    assert_eq!(results.results, Some(ANSWER.into()), "a number beyond 64 bits stays, as JSON in a text");
    assert!(results.stdout_tail.contains("part 1"), "{results:?}");
    machine.told(id).await;
    assert!(!cluster.engine.own_calls().contains(&id));
}

#[tokio::test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
async fn a_call_of_this_machine_is_shown_as_it_is_here_and_once() {
    let mut cluster = Cluster::new("own-calls");
    let machine = Machine::new(&cluster);
    let (id, call) = machine.call(None).await;
    let mirror = machine.mirror(&cluster, LONG);
    in_store(&cluster, id).await;
    let listed = async |state| {
        let all = machine.engine.list(state, JobOwnerFilter::Anybodys, 10).await.unwrap();
        all.iter().map(|job| (job.record.job_id, job.shared.is_none())).collect::<Vec<_>>()
    };
    let count = async |wanted: JobState| {
        let counts = machine.engine.counts().await.unwrap();
        counts.iter().find(|(state, _)| *state == wanted).map(|(_, count)| *count)
    };
    assert_eq!(listed(None).await, [(id, true)]);
    assert_eq!(machine.engine.system().await.unwrap().jobs.len(), 1);
    assert_eq!(count(JobState::Running).await, Some(1));
    // Nobody tells the store of the end, and the list here has it all the same.
    drop(mirror);
    until("the folder is free", || {
        let lock = machine.folder.join("calls/lock");
        (!unhang_proc::lock::is_held(&lock).unwrap()).then_some(())
    })
    .await;
    call.settle(answered("{}")).await.unwrap();
    assert_eq!(cluster.engine.status(id).await.unwrap().record.status, JobState::Running);
    assert_eq!(listed(Some(JobState::Running)).await, []);
    assert_eq!(listed(Some(JobState::Completed)).await, [(id, true)]);
    assert!(machine.engine.system().await.unwrap().jobs.is_empty());
    // It cannot be removed before its end is told.
    let refused = machine.engine.remove(id).await;
    assert!(matches!(refused, Err(JobError::NotInStore(_))), "{refused:?}");
    let mirror = machine.mirror(&cluster, LONG);
    machine.told(id).await;
    assert_eq!(cluster.end(id).await.record.status, JobState::Completed);
    assert_eq!(count(JobState::Completed).await, Some(1), "it is counted once");
    // Without the store, everything about it is here.
    cluster.server.stop(unhang_zoo::private_postgres::ServerEnd::Killed);
    assert_eq!(machine.engine.status(id).await.unwrap().record.status, JobState::Completed);
    assert_eq!(machine.engine.call_result(id).await.unwrap().as_deref(), Some("{}"));
    cluster.server.resume().unwrap();
    machine.engine.remove(id).await.unwrap();
    let gone = cluster.engine.status(id).await;
    assert!(matches!(gone, Err(JobError::NoSuchJob(_))), "it is gone everywhere: {gone:?}");

    // What another machine has removed does not come back, and what ends at once is there.
    let (id, call) = machine.call(None).await;
    call.settle(answered("{}")).await.unwrap();
    in_store(&cluster, id).await;
    cluster.end(id).await;
    machine.told(id).await;
    cluster.engine.remove(id).await.unwrap();
    drop(mirror);
    let (other, _call) = machine.call(None).await;
    let _mirror = machine.mirror(&cluster, LONG);
    in_store(&cluster, other).await;
    assert!(matches!(cluster.engine.status(id).await, Err(JobError::NoSuchJob(_))));
    assert_eq!(machine.engine.status(id).await.unwrap().record.status, JobState::Completed);
}

#[tokio::test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
async fn a_call_of_a_silent_machine_is_lost_and_gets_its_true_end_all_the_same() {
    let cluster = Cluster::new("lost-calls");
    let machine = Machine::new(&cluster);
    let (id, call) = machine.call(None).await;
    let mirror = machine.mirror(&cluster, SHORT);
    in_store(&cluster, id).await;
    let worker = cluster.worker("sweeper", 4, SHORT, SHORT);
    // Heartbeats keep it for longer than its lease.
    tokio::time::sleep(2 * SHORT).await;
    assert_eq!(cluster.engine.status(id).await.unwrap().record.status, JobState::Running);
    drop(mirror);
    let lost = cluster.end(id).await.record;
    let ending = lost.ending.expect("an end");
    assert_eq!((lost.status, ending.reason), (JobState::Lost, Some(EndReason::WorkerLost)));
    assert!(ending.detail.is_some_and(|detail| detail.contains("of its machine")));
    assert_eq!(machine.engine.status(id).await.unwrap().record.status, JobState::Running, "it goes on");
    let _mirror = machine.mirror(&cluster, SHORT);
    call.settle(answered(ANSWER)).await.unwrap();
    cluster.seen(id, "its true end", |seen| (seen.record.status == JobState::Completed).then_some(())).await;
    assert_eq!(cluster.engine.call_result(id).await.unwrap().as_deref(), Some(ANSWER));
    worker.stop().await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
async fn a_wish_to_cancel_reaches_a_call_through_the_store_and_no_worker_gets_the_call() {
    let cluster = Cluster::new("cancelled-calls");
    let machine = Machine::new(&cluster);
    let (id, mut call) = machine.call(None).await;
    let _mirror = machine.mirror(&cluster, Duration::from_secs(12));
    in_store(&cluster, id).await;
    let worker = cluster.worker("worker", 4, Duration::from_secs(6), LONG);
    // The worker looks for work all the time, and takes this.
    let done = cluster.submit("true", |_| {}).await;
    assert_eq!(cluster.end(done).await.record.status, JobState::Completed);
    assert_eq!(cluster.engine.status(id).await.unwrap().record.status, JobState::Running);
    let ended = tokio::spawn(async move {
        call.cancelled().await;
        call.settle(CallEnd::Cancelled).await.unwrap();
    });
    assert_eq!(cluster.engine.cancel(id).await.unwrap().record.status, JobState::Cancelled);
    ended.await.unwrap();
    worker.stop().await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
async fn an_ended_call_stays_on_its_machine_until_the_store_has_its_end() {
    let cluster = Cluster::new("untold-call");
    let machine = Machine::new(&cluster);
    let (id, call) = machine.call(None).await;
    let mirror = machine.mirror(&cluster, LONG);
    in_store(&cluster, id).await;
    drop(mirror);
    let lock = machine.folder.join("calls/lock");
    until("nobody tells the store any more", || Lock::try_take(&lock).unwrap().map(drop)).await;
    call.settle(answered(ANSWER)).await.unwrap();

    let pruned = machine.engine.prune(Duration::ZERO).await.unwrap();
    assert_eq!(pruned.jobs, [], "its end is nowhere else");
    let refused = machine.engine.remove(id).await;
    assert!(matches!(refused, Err(JobError::NotInStore(job)) if job == id), "{refused:?}");
    assert_eq!(machine.engine.call_result(id).await.unwrap().as_deref(), Some(ANSWER));

    let _mirror = machine.mirror(&cluster, LONG);
    machine.told(id).await;
    assert_eq!(cluster.engine.call_result(id).await.unwrap().as_deref(), Some(ANSWER));
    assert_eq!(machine.engine.prune(Duration::ZERO).await.unwrap().jobs, [id]);
}
