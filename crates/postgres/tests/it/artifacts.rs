//! Files in an object store, and the rows that say who may read them.

use std::time::Duration;

use tempfile::TempDir;
use unhang_jobs::store::{
    JobEntry, JobStore as _,
    suite::{StoreFixture as _, queued},
};
use unhang_postgres::{
    ARTIFACT_MAX, LeaseLengths, LeaseRequest, PostgresStore, SharedFiles, SharedOrders, WorkerClaim,
    artifacts::{ArtifactLocation, ArtifactStore, ObjectAccess},
};

use crate::server::TestDatabase;

const LONG: Duration = Duration::from_secs(600);

/// Everything with more than four bytes is large.
fn files(folder: &TempDir) -> SharedFiles {
    let location = ArtifactLocation::parse(folder.path().to_str().unwrap()).unwrap();
    let artifacts = Some(ArtifactStore::new(&location, ObjectAccess::default()));
    SharedFiles { artifacts, inline: 4, largest: ARTIFACT_MAX }
}

fn submit(store: &mut PostgresStore) -> unhang_jobs::id::JobId {
    let record = queued();
    let orders = SharedOrders { is_repeatable: true, max_attempts: 5, ..SharedOrders::default() };
    assert_eq!(store.accept(&[JobEntry { record: &record, orders: Some(&orders) }]).unwrap(), [true]);
    record.job_id
}

fn lease(store: &mut PostgresStore, token: &str) {
    let claimant = WorkerClaim { worker: token.to_owned(), token: token.to_owned() };
    let lengths = LeaseLengths { repeatable: LONG, others: LONG };
    let request = LeaseRequest { claimant: &claimant, labels: &[], limit: None, lengths };
    store.lease(&request).unwrap().unwrap();
}

/// Promise 7: a former worker writes no file of the attempt that runs now, and its own file is read by nobody.
#[test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
fn a_late_file_of_a_former_worker_is_read_by_nobody() {
    let (database, folder) = (TestDatabase::new(), tempfile::tempdir().unwrap());
    let (mut store, files) = (database.connect(), files(&folder));
    let id = submit(&mut store);
    lease(&mut store, "former");
    assert!(files.put(&mut store, id, "former", "r.json", b"of the first".to_vec()).unwrap());
    assert_eq!(files.file(&mut store, id, "r.json").unwrap().unwrap(), b"of the first");
    assert!(store.give_back(id, "former", 1).unwrap());
    database.execute("UPDATE unhang.jobs SET not_before = NULL");
    lease(&mut store, "next");
    assert_eq!(files.file(&mut store, id, "r.json").unwrap(), None, "it is of an earlier attempt");
    assert!(!files.put(&mut store, id, "former", "r.json", b"too late".to_vec()).unwrap());
    assert!(files.put(&mut store, id, "next", "r.json", b"of the next".to_vec()).unwrap());
    assert!(!files.put(&mut store, id, "former", "r.json", b"too late".to_vec()).unwrap());
    assert_eq!(files.file(&mut store, id, "r.json").unwrap().unwrap(), b"of the next");
    assert!(files.put(&mut store, id, "next", "r.json", b"of the next".to_vec()).unwrap(), "repeated");
}

/// Promise 4: the database is not trusted.
#[test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
fn a_row_leads_to_nothing_but_an_object_of_its_job() {
    let (database, folder) = (TestDatabase::new(), tempfile::tempdir().unwrap());
    let (mut store, files) = (database.connect(), files(&folder));
    let id = submit(&mut store);
    lease(&mut store, "token");
    assert!(files.put(&mut store, id, "token", "r.json", b"content".to_vec()).unwrap());
    let secret = "name = '../../secret'";
    for (change, expect) in [
        ("bytes = 1000000000000", "cannot be read"),
        ("bytes = 3", "damaged"),
        ("digest = decode(repeat('ab', 32), 'hex')", "has no object"),
        ("location = '/etc'", "/etc"),
        (secret, "damaged"),
    ] {
        database.execute(&format!(
            "CREATE TABLE before AS SELECT * FROM unhang.artifacts; UPDATE unhang.artifacts SET {change}"
        ));
        let name = if change == secret { "../../secret" } else { "r.json" };
        let told = files.file(&mut store, id, name).unwrap_err().to_string();
        assert!(told.contains(expect), "{change}: {told}");
        database.execute(
            "DELETE FROM unhang.artifacts; INSERT INTO unhang.artifacts SELECT * FROM before; DROP TABLE before",
        );
    }
    assert_eq!(files.file(&mut store, id, "r.json").unwrap().unwrap(), b"content");
}

/// An id that somebody else has, and the id of a removed job: neither reads the files of the other.
#[test]
#[ignore = "needs PostgreSQL; cargo xtask ci --only examples"]
fn the_files_of_a_removed_job_are_none_of_a_later_one_with_its_id() {
    let (database, folder) = (TestDatabase::new(), tempfile::tempdir().unwrap());
    let (mut store, files) = (database.connect(), files(&folder));
    let id = submit(&mut store);
    lease(&mut store, "token");
    assert!(files.put(&mut store, id, "token", "r.json", b"content".to_vec()).unwrap());
    // One without the object store removes the job.
    database.execute("UPDATE unhang.jobs SET state = 'failed', completed_at = 0");
    assert!(SharedFiles::default().remove(&mut store, id).unwrap());
    let mut record = queued();
    record.job_id = id;
    let orders = SharedOrders { max_attempts: 5, ..SharedOrders::default() };
    assert_eq!(store.accept(&[JobEntry { record: &record, orders: Some(&orders) }]).unwrap(), [true]);
    lease(&mut store, "later");
    assert_eq!(files.file(&mut store, id, "r.json").unwrap(), None);
    files.sweep(&mut store).unwrap();
    assert!(files.put(&mut store, id, "later", "r.json", b"content".to_vec()).unwrap());
    files.sweep(&mut store).unwrap();
    assert_eq!(files.file(&mut store, id, "r.json").unwrap().unwrap(), b"content");
}
