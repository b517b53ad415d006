//! Leases on a real database, by its clock.

use std::time::Duration;

use unhang_jobs::{
    id::JobId,
    record::{EndRecord, JobEnd, JobRecord, JobState},
    store::{
        JobEntry, JobStore,
        suite::{StoreFixture, queued},
    },
};
use unhang_postgres::{
    JobHeartbeat, LeaseLengths, LeaseRenewal, LeaseRequest, LeasedJob, PostgresStore, SharedOrders,
    SilentLease, WorkerClaim,
};

use crate::server::TestDatabase;

const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(50);

fn submit(store: &mut PostgresStore, orders: &SharedOrders) -> JobRecord {
    let record = queued();
    assert_eq!(store.accept(&[JobEntry { record: &record, orders: Some(orders) }]).unwrap(), [true]);
    record
}

fn repeatable(max_attempts: u32) -> SharedOrders {
    SharedOrders { is_repeatable: true, max_attempts, work: "run it".to_owned(), ..SharedOrders::default() }
}

fn claim(worker: &str, token: &str) -> WorkerClaim {
    WorkerClaim { worker: worker.to_owned(), token: token.to_owned() }
}

/// The same length for all jobs.
fn all(length: Duration) -> LeaseLengths {
    LeaseLengths { repeatable: length, others: length }
}

fn lease(store: &mut PostgresStore, claimant: &WorkerClaim, length: Duration) -> Option<LeasedJob> {
    store.lease(&LeaseRequest { claimant, labels: &[], limit: None, lengths: all(length) }).unwrap()
}

/// Sends the heartbeat of a job.
fn beat(store: &mut PostgresStore, id: JobId, token: &str) -> Vec<LeaseRenewal> {
    store.renew(&[JobHeartbeat { id, token, started_at: None, progress: None }]).unwrap()
}

/// Waits until the lease of this job is over.
fn expired(store: &mut PostgresStore, id: JobId) -> SilentLease {
    loop {
        let silent = store.silent(100).unwrap();
        if let Some(lease) = silent.into_iter().find(|lease| lease.id == id && lease.is_over) {
            return lease;
        }
    }
}

fn completed(record: &JobRecord) -> JobRecord {
    let mut record = record.clone();
    record.end(&EndRecord::without_run(JobEnd::Completed));
    record
}

#[test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
fn a_job_goes_to_a_worker_that_has_all_its_labels() {
    let database = TestDatabase::new();
    let mut store = database.connect();
    let labels = |labels: &[&str]| labels.iter().map(|label| (*label).to_owned()).collect::<Vec<_>>();
    let odd = ["gpu", "with \"quotes\", {braces} and \\", "größe"];
    let both = submit(&mut store, &SharedOrders { labels: labels(&odd), ..SharedOrders::default() });
    let one = submit(&mut store, &SharedOrders { labels: labels(&["gpu"]), ..SharedOrders::default() });
    let mut ask = |having: &[&str]| {
        let claimant = claim("worker", "token");
        let having = labels(having);
        let request = LeaseRequest { claimant: &claimant, labels: &having, limit: None, lengths: all(LONG) };
        store.lease(&request).unwrap().map(|leased| leased.job.record.job_id)
    };
    assert_eq!(ask(&[]), None);
    assert_eq!(ask(&["big", odd[1]]), None);
    assert_eq!(ask(&["gpu", "big"]), Some(one.job_id), "it passes by the one that it may not run");
    assert_eq!(ask(&["gpu", "big"]), None);
    assert_eq!(ask(&odd), Some(both.job_id));
}

#[test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
fn a_job_that_needs_one_of_several_labels_goes_to_a_worker_that_has_one() {
    let database = TestDatabase::new();
    let mut store = database.connect();
    let labels = |labels: &[&str]| labels.iter().map(|label| (*label).to_owned()).collect::<Vec<_>>();
    let orders = |all: &[&str], any: &[&str]| SharedOrders {
        labels: labels(all),
        any_label: labels(any),
        ..SharedOrders::default()
    };
    let first = submit(&mut store, &orders(&["gpu"], &["f:*", "f:a.*", "f:a.b"]));
    let second = submit(&mut store, &orders(&[], &["f:*", "f:c"]));
    let third = submit(&mut store, &orders(&[], &[]));
    let mut ask = |having: &[&str]| {
        let claimant = claim("worker", "token");
        let having = labels(having);
        let request = LeaseRequest { claimant: &claimant, labels: &having, limit: None, lengths: all(LONG) };
        store.lease(&request).unwrap().map(|leased| leased.job.record.job_id)
    };
    assert_eq!(ask(&["f:a.*"]), Some(third.job_id), "it passes by the ones that it may not run");
    assert_eq!(ask(&["gpu", "f:", "f", "f:a.b.*"]), None);
    assert_eq!(ask(&["f:a.*", "f:a.b"]), None, "one of several labels does not stand for all others");
    assert_eq!(ask(&["f:*"]), Some(second.job_id));
    assert_eq!(ask(&["gpu", "f:a.*"]), Some(first.job_id));
}

#[test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
fn a_heartbeat_keeps_a_job_and_brings_the_wish_to_cancel_it() {
    let database = TestDatabase::new();
    let mut store = database.connect();
    let record = submit(&mut store, &repeatable(3));
    let id = record.job_id;
    assert!(!store.want_cancel(id).unwrap(), "it waits, and is ended at once instead");
    let holder = claim("worker", "right");
    let leased = lease(&mut store, &holder, SHORT).unwrap();
    assert_eq!((leased.job.record.job_id, leased.work.as_str(), leased.length), (id, "run it", SHORT));
    let stale = expired(&mut store, id);
    let heartbeat = |id| JobHeartbeat { id, token: "right", started_at: None, progress: None };
    let renewed = store.renew(&[heartbeat(id), heartbeat(JobId::random().unwrap())]).unwrap();
    assert_eq!(renewed.iter().map(|one| (one.id, one.is_cancel_wanted)).collect::<Vec<_>>(), [(id, false)]);
    assert!(beat(&mut store, id, "wrong").is_empty());
    // A sweeper that looked before the heartbeat comes too late.
    assert!(!store.queue_again(&stale).unwrap());
    assert!(!store.end_lost(&stale, &completed(&record)).unwrap());
    assert!(store.want_cancel(id).unwrap());
    assert!(beat(&mut store, id, "right")[0].is_cancel_wanted);
    // A worker that starts anew finds its job, and so does one that did not learn of its claim.
    let found = store.leased("worker").unwrap();
    assert_eq!((found.len(), found[0].job.claimant.as_ref()), (1, Some(&holder)));
    assert!(store.leased("another").unwrap().is_empty());
    assert!(store.finish(&completed(&record), Some(&holder)).unwrap());
    assert!(beat(&mut store, id, "right").is_empty(), "it has ended");
}

#[test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
fn a_lost_worker_writes_nothing_about_a_job_that_is_anothers() {
    let database = TestDatabase::new();
    let mut store = database.connect();
    let record = submit(&mut store, &repeatable(2));
    let id = record.job_id;
    let (first, second) = (claim("one", "first"), claim("two", "second"));
    lease(&mut store, &first, SHORT).unwrap();
    let over = expired(&mut store, id);
    assert_eq!((over.worker.as_str(), over.claims, over.may_run_again), ("one", 1, true));
    assert!(over.silent_for >= SHORT);
    assert!(store.queue_again(&over).unwrap());
    assert!(!store.queue_again(&over).unwrap());
    assert!(!store.finish(&completed(&record), Some(&first)).unwrap(), "it waits for another worker");
    assert!(store.get(id).unwrap().unwrap().claimant.is_none());
    assert!(lease(&mut store, &second, SHORT).is_none(), "there is a pause before the next try");
    database.execute("UPDATE unhang.jobs SET not_before = now()");
    assert_eq!(lease(&mut store, &second, SHORT).unwrap().job.claims, 2);
    assert!(!store.finish(&completed(&record), Some(&first)).unwrap());
    assert!(beat(&mut store, id, "first").is_empty());
    let over = expired(&mut store, id);
    assert!(!over.may_run_again, "it was claimed twice");
    assert!(!store.queue_again(&over).unwrap());
    assert_eq!(
        store.get(id).unwrap().unwrap().record.status,
        JobState::Queued,
        "the record of an active job"
    );
}

#[test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
fn a_job_that_is_not_repeatable_never_runs_again_and_its_true_end_counts() {
    let database = TestDatabase::new();
    let mut store = database.connect();
    let record = submit(&mut store, &SharedOrders { max_attempts: 3, ..SharedOrders::default() });
    let id = record.job_id;
    let holder = claim("one", "first");
    lease(&mut store, &holder, SHORT).unwrap();
    let over = expired(&mut store, id);
    assert!(!over.may_run_again);
    assert!(!store.queue_again(&over).unwrap());
    let mut lost = record.clone();
    lost.end(&EndRecord::without_run(JobEnd::Lost));
    assert!(store.end_lost(&over, &lost).unwrap());
    assert_eq!(store.get(id).unwrap().unwrap().record.status, JobState::Lost);
    assert!(!store.finish(&completed(&record), Some(&claim("two", "other"))).unwrap());
    assert!(store.finish(&completed(&record), Some(&holder)).unwrap(), "its worker comes back with the end");
    assert_eq!(store.get(id).unwrap().unwrap().record.status, JobState::Completed);
}

/// A clock of the database that was set back leaves times of the future in the rows, and nobody waits for them.
#[test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
fn a_clock_that_was_set_back_keeps_no_job_waiting() {
    let database = TestDatabase::new();
    let mut store = database.connect();
    let record = submit(&mut store, &repeatable(3));
    let id = record.job_id;
    let step = |columns: &str| {
        let later = columns.split(' ').map(|column| format!("{column} = {column} + interval '1 hour'"));
        database.execute(&format!("UPDATE unhang.jobs SET {}", later.collect::<Vec<_>>().join(", ")));
    };
    lease(&mut store, &claim("one", "first"), SHORT).unwrap();
    step("heard_at lease_until");
    let over = expired(&mut store, id);
    assert_eq!((over.is_over, over.silent_for), (true, Duration::ZERO));
    assert!(store.queue_again(&over).unwrap());
    // A pause is five minutes at most.
    assert!(lease(&mut store, &claim("two", "second"), SHORT).is_none(), "the pause of a lost lease");
    step("not_before");
    assert!(lease(&mut store, &claim("two", "second"), SHORT).is_some());
    step("heard_at lease_until");
    let over = expired(&mut store, id);
    assert!(store.end_lost(&over, &completed(&record)).unwrap());
}
