//! What the unit tests share: a data folder with its database, jobs and calls in it, and what was logged.

use std::{
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::json;
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
    subscriber::with_default,
};

use crate::{
    folder::DataFolder,
    id::JobId,
    record::{CallRecord, CallTicket, EndRecord, Holder, JobEnd, JobRecord, JobState, ProcessRecord},
    shims::this_process,
    store::{JobEntry, JobRow, JobStore, ShimStarter, SqliteStore, suite::queued},
    timestamp::JobTimestamp,
};

/// A process that has ended: no system gives out such a number.
pub(crate) const NOBODY: ProcessRecord = ProcessRecord { pid: u32::MAX >> 1, start: 1 };

/// Far more than any wait of a test takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A data folder, its database, and this process as the starter of supervisors.
pub(crate) struct TestFolder {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) data: DataFolder,
    pub(crate) store: SqliteStore,
    pub(crate) starter: ShimStarter,
}

impl TestFolder {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = DataFolder::open(folder.path()).unwrap();
        let (store, _) = SqliteStore::open(&data).unwrap();
        Self { folder, data, store, starter: this_process().unwrap() }
    }

    /// Inserts the job as it is, and makes its folder.
    pub(crate) fn accept(&mut self, record: &JobRecord) -> JobRow {
        accept(&self.data, &mut self.store, record)
    }

    /// Inserts a command and gives it a slot: this process is to start its supervisor.
    pub(crate) fn begin(&mut self) -> JobRow {
        let id = self.accept(&command()).record.job_id;
        let admitted = self.store.claim(&self.starter, None);
        assert_eq!(admitted.unwrap(), Some(id));
        self.get(id)
    }

    pub(crate) fn get(&mut self, id: JobId) -> JobRow {
        self.store.get(id).unwrap().unwrap()
    }
}

/// Inserts the job as it is, and makes its folder.
pub(crate) fn accept(data: &DataFolder, store: &mut SqliteStore, record: &JobRecord) -> JobRow {
    data.job(record.job_id).create().unwrap();
    assert_eq!(store.accept(&[JobEntry { record, orders: None }]).unwrap(), [true]);
    store.get(record.job_id).unwrap().unwrap()
}

/// A queued command, of which two may run at the same time.
pub(crate) fn command() -> JobRecord {
    let mut record = queued();
    record.rules.max_concurrent = 2;
    record
}

/// A command that ended so long ago.
pub(crate) fn ended(ago: Duration) -> JobRecord {
    let mut record = command();
    record.end(&EndRecord { completed_at: before_now(ago), ..EndRecord::without_run(JobEnd::Completed) });
    record
}

/// A call that this process of this boot holds.
pub(crate) fn call(boot_id: &str, process: ProcessRecord, ticket: Option<CallTicket>) -> JobRecord {
    let call = CallRecord {
        server: "srv".to_owned(),
        tool: "slow".to_owned(),
        is_repeatable: false,
        holder: Holder { boot_id: boot_id.to_owned(), process },
        ticket,
        keeper: None,
        lost_with_holder: None,
        is_unsent: false,
        lasting_key: None,
        is_passed_on: false,
    };
    JobRecord { call: Some(call), command: Vec::new(), status: JobState::Running, ..command() }
}

/// A ticket, of which the holder may have let go.
pub(crate) fn ticket(is_free: bool) -> CallTicket {
    CallTicket { kept_by: "srv-1".to_owned(), details: json!({}), is_free }
}

pub(crate) fn before_now(ago: Duration) -> JobTimestamp {
    JobTimestamp::from_millis(JobTimestamp::now().millis() - u64::try_from(ago.as_millis()).unwrap())
}

/// Does some work on this thread, and returns the messages that it logged.
pub(crate) fn logged<T>(work: impl FnOnce() -> T) -> (T, Vec<String>) {
    let log = TestLog::default();
    let outcome = with_default(log.clone(), work);
    let messages = log.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    (outcome, messages)
}

#[derive(Clone, Default)]
struct TestLog(Arc<Mutex<Vec<String>>>);

impl Visit for TestLog {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{value:?}"));
        }
    }
}

impl Subscriber for TestLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("unhang_jobs")
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
