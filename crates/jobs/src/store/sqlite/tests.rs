use std::{sync::mpsc, thread, time::Duration};

use super::{changes, files, queries, turn, *};
use crate::{
    id::JobId,
    launch::LaunchFiles,
    record::{EndRecord, JobEnd, JobRecord, JobState},
    room::Rules,
    settle,
    store::{JobEntry, JobStore, suite::StoreFixture},
    submission::{PreparedSubmission, Submission},
    timestamp::JobTimestamp,
};

crate::store_suite!(TestStore);

impl StoreFixture for TestStore {
    type Store = SqliteStore;

    fn new() -> Self {
        TestStore::new()
    }

    fn connect(&self) -> SqliteStore {
        SqliteStore::open(&self.data).unwrap().0
    }

    fn orders() -> Option<LaunchFiles> {
        None
    }

    fn claimant(&self, number: u32) -> ShimStarter {
        ShimStarter { since: JobTimestamp::from_millis(number.into()), ..self.starter.clone() }
    }
}

/// A data folder, its database, and who starts shims.
struct TestStore {
    _folder: tempfile::TempDir,
    data: DataFolder,
    store: SqliteStore,
    starter: ShimStarter,
    rules: Rules,
}

impl TestStore {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = DataFolder::open(folder.path()).unwrap();
        let (store, _) = SqliteStore::open(&data).unwrap();
        let rules = Rules { max_concurrent: 2, memory_limit: 100.0, disk_reserve: 0, retention_ms: None };
        Self { _folder: folder, data, store, starter: crate::shims::this_process().unwrap(), rules }
    }

    fn accept(&mut self, change: impl FnOnce(&mut Submission)) -> JobRecord {
        let mut submission = Submission::new(vec!["true".into()], "/".into()).unwrap();
        change(&mut submission);
        let PreparedSubmission { record, files, mark, .. } =
            submission.prepare(&self.data, self.rules, "this boot").unwrap();
        mark.unwrap().remove();
        let entry = JobEntry { record: &record, orders: files.as_ref() };
        assert_eq!(self.store.accept(&[entry]).unwrap(), [true]);
        record
    }

    /// One of a process with these limits.
    fn accept_by(&mut self, max_concurrent: u32, retention_ms: Option<u64>) -> JobRecord {
        self.rules = Rules { max_concurrent, retention_ms, ..self.rules };
        self.accept(|_| {})
    }

    fn admit(&mut self, limit: Option<u32>) -> Option<JobId> {
        self.store.claim(&self.starter, limit).unwrap()
    }

    fn get(&mut self, id: JobId) -> JobRow {
        self.store.get(id).unwrap().unwrap()
    }

    fn settle(&mut self, id: JobId, outcome: JobEnd) {
        let admission = JobAdmission { starter: &self.starter, limit: None, is_open: false };
        let ending = EndRecord::without_run(outcome);
        settle::settle(&self.data, &mut self.store, id, &ending, &admission).unwrap();
    }
}

#[test]
fn slots_are_given_in_order_and_counted() {
    let mut test_store = TestStore::new();
    let ids: Vec<JobId> = (0..4).map(|_| test_store.accept(|_| {}).job_id).collect();
    assert_eq!(test_store.admit(Some(1)), Some(ids[0]));
    assert_eq!(test_store.admit(Some(1)), None);
    // The limit that the job brought with it.
    assert_eq!(test_store.admit(None), Some(ids[1]));
    assert_eq!(test_store.admit(None), None);
    test_store.settle(ids[0], JobEnd::Failed);
    assert_eq!(test_store.admit(None), Some(ids[2]));
}

#[test]
fn f_05_of_different_limits_the_strictest_holds() {
    let mut test_store = TestStore::new();
    let limited = |test_store: &mut TestStore, limit: u32| test_store.accept_by(limit, None).job_id;
    let (one, other, third) =
        (limited(&mut test_store, 1), limited(&mut test_store, 3), limited(&mut test_store, 3));
    assert_eq!(test_store.admit(Some(3)), Some(one));
    assert_eq!(test_store.admit(Some(3)), None, "the one that runs was accepted to run alone");
    test_store.settle(one, JobEnd::Failed);
    assert_eq!(test_store.admit(Some(3)), Some(other));
    assert_eq!(test_store.admit(Some(1)), None);
    assert_eq!(test_store.admit(None), Some(third));
}

#[test]
fn one_of_two_takes_a_job_over() {
    let mut test_store = TestStore::new();
    let id = test_store.accept(|_| {}).job_id;
    test_store.admit(None);
    let seen = test_store.get(id).claimant;
    let mut take = |starter: &ShimStarter| test_store.store.take_over(id, seen.as_ref(), starter).unwrap();
    let other = ShimStarter { since: JobTimestamp::from_millis(1), ..crate::shims::this_process().unwrap() };
    assert!(take(&other));
    assert!(!take(&other));
}

/// What was read in a transaction is still true when it writes.
#[test]
fn a_transaction_that_reads_first_is_not_overtaken() {
    let mut test_store = TestStore::new();
    let mut other = SqliteStore::open(&test_store.data).unwrap().0;
    // It is the database's own lock that this is about.
    other.turns = WriteQueue::nowhere();
    let (done, is_done) = mpsc::sync_channel(1);
    let mut writer = None;
    test_store
        .store
        .write(|transaction| {
            queries::counters(transaction)?;
            writer = Some(thread::spawn(move || {
                let written = other.write(|transaction| changes::count_up(transaction, "removals"));
                done.send(()).ok();
                written
            }));
            // It is done only if nothing kept it from that.
            is_done.recv_timeout(Duration::from_millis(200)).ok();
            changes::count_up(transaction, "revision")
        })
        .unwrap();
    writer.unwrap().join().unwrap().unwrap();
}

/// The writer of job A dies when its document may be written and the row does not say so yet. Then somebody sets the same
/// document, and only then A is settled by another.
#[test]
fn j_48_a_patch_is_applied_once_and_before_what_was_set_later() {
    let mut test_store = TestStore::new();
    let field: crate::document::Field = "answer".parse().unwrap();
    let record = test_store.accept(|job| {
        job.results = Some(crate::folder::FileName::new("results.json").unwrap());
        job.patch = Some(crate::record::Patch { field: field.clone(), pointer: None, is_shared: false });
    });
    let id = record.job_id;
    test_store.admit(None);
    let work = test_store.data.job(id).work(record.format);
    work.create_if_missing().unwrap();
    std::fs::write(work.file("results.json"), "1").unwrap();
    test_store.store.note_patch(&record, true).unwrap();
    settle::set_document(&test_store.data, || &mut test_store.store, None, &field, &serde_json::json!(2))
        .unwrap();
    test_store.settle(id, JobEnd::Completed);
    let document = crate::document::Documents::of(&test_store.data).get(&field).unwrap().unwrap();
    assert_eq!(document.value, serde_json::json!(2));
    assert_eq!(test_store.get(id).record.state_applied, Some(true));
}

#[test]
fn what_was_written_about_an_end_stays() {
    let mut test_store = TestStore::new();
    let id = test_store.accept(|_| {}).job_id;
    let first = EndRecord::without_run(JobEnd::Completed);
    settle::write_ending(&test_store.data, id, &first).unwrap();
    let kept = settle::write_ending(&test_store.data, id, &EndRecord::without_run(JobEnd::Lost)).unwrap();
    assert_eq!(kept, first);
}

/// What they need may have gone with the power, and has to be looked at first.
#[test]
fn in_a_new_boot_no_job_gets_a_slot_before_the_files_were_looked_at() {
    let mut test_store = TestStore::new();
    let id = test_store.accept(|_| {}).job_id;
    test_store.store.write(|transaction| files::note(transaction, "another")).unwrap();
    assert_eq!(test_store.admit(None), None);
    let folder = test_store.data.job(id);
    std::fs::remove_dir_all(folder.path()).unwrap();
    std::fs::write(folder.path(), "in the way").unwrap();
    let restored = restore_files(&mut test_store.store, &test_store.starter.boot_id).unwrap();
    assert!(matches!(&restored[..], [(without, Some(_))] if *without == id), "{restored:?}");
    assert_eq!(test_store.admit(None), None);
    // It keeps no other from its turn.
    let other = test_store.accept(|_| {}).job_id;
    assert_eq!(test_store.admit(None), Some(other));
    std::fs::remove_file(folder.path()).unwrap();
    assert_eq!(restore_files(&mut test_store.store, &test_store.starter.boot_id).unwrap(), [(id, None)]);
    assert_eq!(test_store.admit(None), Some(id));
}

/// The first version had no files beside the rows.
#[test]
fn a_database_of_the_first_version_is_brought_up_to_date() {
    let mut test_store = TestStore::new();
    let old = test_store.accept(|_| {}).job_id;
    test_store
        .store
        .write(|transaction| {
            transaction.execute_batch(
                "DROP TABLE launch_files; DROP TABLE boots; ALTER TABLE jobs DROP COLUMN is_call;
                 ALTER TABLE jobs DROP COLUMN owner;",
            )?;
            transaction.pragma_update(None, "user_version", 1)
        })
        .unwrap();
    test_store.store = SqliteStore::open(&test_store.data).unwrap().0;
    let new = test_store.accept(|_| {}).job_id;
    assert_eq!([test_store.admit(None), test_store.admit(None)], [Some(old), Some(new)]);
}

/// The second had no calls.
#[test]
fn a_database_of_the_second_version_is_brought_up_to_date() {
    let mut test_store = TestStore::new();
    let old = test_store.accept(|_| {}).job_id;
    test_store
        .store
        .write(|transaction| {
            transaction
                .execute_batch("ALTER TABLE jobs DROP COLUMN is_call; ALTER TABLE jobs DROP COLUMN owner;")?;
            transaction.pragma_update(None, "user_version", 2)
        })
        .unwrap();
    test_store.store = SqliteStore::open(&test_store.data).unwrap().0;
    let new = test_store.accept(|_| {}).job_id;
    assert_eq!([test_store.admit(None), test_store.admit(None)], [Some(old), Some(new)]);
}

/// What a job is told may be secret, and so is gone with its end: from the database as from its folder.
#[test]
fn what_a_job_needed_to_start_is_written_over_at_its_end() {
    let mut test_store = TestStore::new();
    let id = test_store
        .accept(|job| job.environment = vec![("KEY".into(), "a-secret-that-nobody-guesses".into())])
        .job_id;
    let is_there = |test_store: &TestStore| {
        test_store
            .store
            .connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
            .expect("nobody else is connected");
        let bytes = std::fs::read(test_store.data.database()).unwrap();
        String::from_utf8_lossy(&bytes).contains("a-secret-that-nobody-guesses")
    };
    assert!(is_there(&test_store));
    test_store.settle(id, JobEnd::Cancelled);
    assert!(!is_there(&test_store));
}

#[test]
fn a_database_of_a_later_version_is_not_touched() {
    let mut test_store = TestStore::new();
    test_store.store.write(|transaction| transaction.pragma_update(None, "user_version", 99)).unwrap();
    let error = SqliteStore::open(&test_store.data).unwrap_err().to_string();
    assert!(error.contains("format 99") && error.contains("newer unhang"), "{error}");
}

/// Promise 8: of several servers none is passed by again and again.
#[test]
fn a_writer_waits_for_its_turn() {
    let mut test_store = TestStore::new();
    let others = WriteQueue::of(&test_store.data).wait(turn::LIMIT);
    let (inside, is_inside) = mpsc::sync_channel(1);
    let writer = thread::spawn(move || test_store.store.write(|_| Ok(inside.send(()))).unwrap());
    let early = is_inside.recv_timeout(Duration::from_secs(1));
    assert_eq!(early, Err(mpsc::RecvTimeoutError::Timeout));
    drop(others);
    is_inside.recv_timeout(turn::LIMIT).unwrap();
    writer.join().unwrap().unwrap();
}

/// What happens between the look at the folders and the new table.
#[test]
fn a_table_that_is_made_anew_has_what_was_accepted_and_what_has_ended_meanwhile() {
    let mut test_store = TestStore::new();
    let (ends, goes) = (test_store.accept(|_| {}), test_store.accept(|_| {}));
    let _slots = (test_store.admit(None), test_store.admit(None));
    test_store.settle(goes.job_id, JobEnd::Completed);
    let found = rebuild::scan(&test_store.data).unwrap();
    let accepted = test_store.accept(|_| {});
    test_store.settle(ends.job_id, JobEnd::Failed);
    test_store.store.remove(goes.job_id).unwrap();
    std::fs::remove_dir_all(test_store.data.job(goes.job_id).path()).unwrap();
    // A call has no files that say what it is, before its record is copied.
    let call = test_store.accept(|_| {});
    std::fs::remove_file(test_store.data.job(call.job_id).path().join("launch.json")).unwrap();
    let data = test_store.data.clone();
    test_store.store.rebuild_from(&data, found).unwrap();
    assert_eq!(test_store.get(accepted.job_id).record.status, JobState::Queued);
    assert_eq!(test_store.get(call.job_id).record.status, JobState::Queued);
    assert_eq!(test_store.get(ends.job_id).record.status, JobState::Failed);
    assert!(test_store.store.get(goes.job_id).unwrap().is_none());
}

#[test]
fn a_transaction_waits_for_the_disk_unless_it_need_not_survive_a_power_failure() {
    const NORMAL: i64 = 1;
    const FULL: i64 = 2;
    let TestStore { _folder, mut store, .. } = TestStore::new();
    let level = |transaction: &Transaction<'_>| {
        transaction.pragma_query_value(None, "synchronous", |level| level.get::<_, i64>(0))
    };
    assert_eq!(store.write(level).unwrap(), FULL);
    assert_eq!(store.write_surviving(Durability::Memory, level).unwrap(), NORMAL);
    assert_eq!(store.write(level).unwrap(), FULL, "the next one waits again");
}
