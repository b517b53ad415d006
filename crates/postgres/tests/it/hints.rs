//! Hints of a real database, and their absence behind a pooler.

use std::time::Duration;

use tokio::{sync::mpsc::channel, time::timeout};
use unhang_jobs::{
    shared_jobs::{Placement, SharedJob, SharedJobs},
    shared_work::SharedWork,
    store::suite::{StoreFixture, queued},
};
use unhang_postgres::{
    ListenerEnd, PasswordSources, PostgresJobs, StoreAddress, StoreHint, listen_for_hints,
};

use crate::{pooled::PooledDatabase, server::TestDatabase};

/// For what a test waits for; the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

fn address(url: &str) -> StoreAddress {
    StoreAddress::parse(url, &PasswordSources::default()).unwrap()
}

/// Does this with a store, on a thread that may block, and drops the store.
async fn with_jobs<T: Send + 'static>(
    url: &str,
    work: impl FnOnce(&PostgresJobs) -> T + Send + 'static,
) -> T {
    let jobs = PostgresJobs::new(address(url));
    tokio::task::spawn_blocking(move || work(&jobs)).await.unwrap()
}

#[tokio::test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
async fn whoever_listens_is_told_of_jobs_and_wishes_and_of_the_end_of_the_connection() {
    let database = tokio::task::spawn_blocking(TestDatabase::new).await.unwrap();
    let url = database.url();
    let (begun, mut begins) = channel(1);
    let (hinted, mut hints) = channel(8);
    let listened = address(&url);
    let listener = tokio::spawn(async move {
        listen_for_hints(&listened, || begun.try_send(()).unwrap(), |hint| hinted.try_send(hint).unwrap())
            .await
    });
    timeout(PATIENCE, begins.recv()).await.expect("hints arrive").expect("it begins");
    let job = SharedJob {
        record: queued(),
        work: SharedWork::Command(vec!["true".into()]),
        placement: Placement::default(),
        inputs: Vec::new(),
    };
    let id = job.record.job_id;
    // The program ends right after the submission, and its hint goes out all the same.
    assert!(with_jobs(&url, move |jobs| jobs.submit(&job)).await.unwrap());
    assert_eq!(timeout(PATIENCE, hints.recv()).await.expect("a hint"), Some(StoreHint::Job));
    with_jobs(&url, move |jobs| jobs.cancel(id)).await.unwrap();
    assert_eq!(timeout(PATIENCE, hints.recv()).await.expect("a hint"), Some(StoreHint::Cancel));
    tokio::task::spawn_blocking(move || {
        database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%LISTEN unhang'",
        );
    })
    .await
    .unwrap();
    let end = timeout(PATIENCE, listener).await.expect("it ends").unwrap();
    assert!(matches!(end, ListenerEnd::Broken(_)), "{end:?}");
}

#[tokio::test]
#[ignore = "needs PgBouncer; cargo xtask ci --only examples"]
async fn a_pooler_that_shares_sessions_is_not_relied_on_for_hints() {
    let database = tokio::task::spawn_blocking(PooledDatabase::new).await.unwrap();
    let listening = address(&database.url());
    let begun = || panic!("nobody may rely on hints here");
    let end = timeout(PATIENCE, listen_for_hints(&listening, begun, |_| {})).await.expect("it ends");
    assert!(matches!(end, ListenerEnd::NotPassedOn { .. }), "{end:?}");
    assert!(end.to_string().contains("pooler") && !end.to_string().contains("correct"), "{end}");
    tokio::task::spawn_blocking(move || drop(database)).await.unwrap();
}
