//! The named state on a real database.

use unhang_jobs::{
    record::{EndRecord, JobEnd, JobState},
    shared_jobs::DocumentName,
    store::{
        JobEntry, JobStore,
        suite::{StoreFixture, queued},
    },
};
use unhang_postgres::{DocumentChange, SharedOrders, StateDocuments, WorkerClaim};

use crate::server::TestDatabase;

fn name(owner: Option<&str>, field: &str) -> DocumentName {
    DocumentName { owner: owner.map(str::to_owned), field: field.parse().unwrap() }
}

fn change(owner: Option<&str>, field: &str, text: &str) -> DocumentChange {
    DocumentChange { name: name(owner, field), text: text.to_owned() }
}

#[test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
fn a_document_has_a_version_and_belongs_to_its_owner() {
    let database = TestDatabase::new();
    let mut store = database.connect();
    let mut documents = StateDocuments(&mut store);
    for (owner, text) in [(None, "1"), (Some(""), "2"), (Some("ann"), "3"), (None, "\"\\u0000 größe\"")] {
        assert!(documents.set(&change(owner, "mesh", text)).unwrap().unwrap().millis() > 0);
    }
    documents.set(&change(None, "B", "[]")).unwrap();
    let names = [
        name(Some("ann"), "mesh"),
        name(None, "missing"),
        name(None, "mesh"),
        name(Some(""), "mesh"),
        name(None, "mesh"),
    ];
    let found: Vec<_> = documents.get(&names).unwrap();
    let known: Vec<_> =
        found.iter().map(|found| found.as_ref().map(|found| (found.text.as_str(), found.version))).collect();
    let common = Some(("\"\\u0000 größe\"", 2));
    assert_eq!(known, [Some(("3", 1)), None, common, Some(("2", 1)), common]);
    let listed = |documents: &mut StateDocuments<'_>, owner| -> Vec<(String, u64)> {
        let listed = documents.list(owner).unwrap();
        listed.iter().map(|entry| (entry.field.to_string(), entry.bytes)).collect()
    };
    assert_eq!(listed(&mut documents, None), [("B".to_owned(), 2), ("mesh".to_owned(), 16)]);
    assert_eq!(listed(&mut documents, Some("ann")), [("mesh".to_owned(), 1)]);
    assert_eq!(listed(&mut documents, Some("bob")), []);
}

#[test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
fn a_result_changes_the_state_once_and_only_for_the_worker_that_has_the_job() {
    let database = TestDatabase::new();
    let mut store = database.connect();
    let orders = SharedOrders::default();
    let record = queued();
    let entry = JobEntry { record: &record, orders: Some(&orders) };
    assert_eq!(store.accept(&[entry]).unwrap(), [true]);
    let claimant = |token: &str| WorkerClaim { worker: "worker".to_owned(), token: token.to_owned() };
    assert_eq!(store.claim(&claimant("right"), None).unwrap(), Some(record.job_id));
    let mut ended = record.clone();
    ended.end(&EndRecord::without_run(JobEnd::Completed));
    let value = |store: &mut _| {
        let found = StateDocuments(store).get(&[name(None, "mesh")]).unwrap().remove(0);
        found.map(|found| (found.text, found.version))
    };
    let set = change(None, "mesh", "7");
    assert!(!StateDocuments(&mut store).finish(&ended, &claimant("wrong"), &set).unwrap());
    assert_eq!(value(&mut store), None);
    assert!(StateDocuments(&mut store).finish(&ended, &claimant("right"), &set).unwrap());
    assert!(!StateDocuments(&mut store).finish(&ended, &claimant("right"), &set).unwrap(), "a repetition");
    assert_eq!(value(&mut store), Some(("7".to_owned(), 1)));
    assert_eq!(store.get(record.job_id).unwrap().unwrap().record.status, JobState::Completed);
}
