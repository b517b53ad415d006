//! The state of an engine for its unit tests, and what the engine does while its disk hangs.

use std::{
    fs::File,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::sync_channel,
    },
    thread,
    time::{Duration, SystemTime},
};

use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

use super::{Engine, EngineOptions, EngineState};
use crate::{
    error::JobError,
    id::JobId,
    record::JobRecord,
    shims::ShimCommand,
    store::{JobStore, SqliteStore},
    testing::{TestFolder, accept},
};

/// Longer than anything here may take, so that what waits for the disk is seen to have waited.
const HANG: Duration = Duration::from_secs(20);

/// The state of an engine without threads, and a second connection to its database.
pub(super) struct TestEngine {
    pub(super) folder: tempfile::TempDir,
    pub(super) inner: EngineState,
    pub(super) store: SqliteStore,
}

impl TestEngine {
    pub(super) fn new(change: impl FnOnce(&mut EngineOptions)) -> Self {
        let test = TestFolder::new();
        let shim = ShimCommand { program: "/nowhere".into(), arguments: Vec::new() };
        let mut options = EngineOptions::new(test.folder.path().to_owned(), shim);
        (options.rules.memory_limit, options.rules.disk_reserve) = (100.0, 0);
        change(&mut options);
        let (store, _) = SqliteStore::open(&test.data).unwrap();
        let inner = EngineState::new(options, test.data, test.starter, test.store);
        Self { folder: test.folder, inner, store }
    }

    /// Inserts the job as it is, and makes its folder.
    pub(super) fn accept(&mut self, record: &JobRecord) -> JobId {
        accept(&self.inner.data, &mut self.store, record);
        record.job_id
    }

    pub(super) fn has(&mut self, id: JobId) -> bool {
        self.store.get(id).unwrap().is_some()
    }

    /// Makes the folder of a job that was never accepted, so old that nobody can be about to accept it.
    pub(super) fn orphan(&self) -> JobId {
        let id = JobId::random().unwrap();
        self.inner.data.job(id).create().unwrap();
        let old = SystemTime::now() - Duration::from_secs(2 * 60 * 60);
        File::open(self.inner.data.job(id).path()).unwrap().set_modified(old).unwrap();
        id
    }
}

fn engine(folder: &tempfile::TempDir) -> Engine {
    let shim = ShimCommand { program: "/nowhere".into(), arguments: Vec::new() };
    Engine::open(EngineOptions::new(folder.path().to_owned(), shim)).unwrap().0
}

#[tokio::test]
async fn f_30_a_look_for_a_job_that_is_not_known_by_heart_holds_up_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(&folder);
    let id = JobId::random().unwrap();
    let (held, is_held) = sync_channel(0);
    let (release, released) = sync_channel::<()>(0);
    let holder = engine.clone();
    // As long as the disk takes for somebody else.
    let holder = thread::spawn(move || {
        let _store = holder.inner.store();
        held.send(()).unwrap();
        let _let_go_or_too_late = released.recv_timeout(HANG);
    });
    is_held.recv().unwrap();
    let begin = Instant::now();
    let mut asked = Box::pin(engine.status(id));
    assert!(timeout(Duration::from_millis(100), &mut asked).await.is_err(), "it has to wait");
    assert!(begin.elapsed() < HANG / 2, "and this thread had to wait with it: {:?}", begin.elapsed());
    release.send(()).unwrap();
    assert!(matches!(asked.await, Err(JobError::NoSuchJob(_))));
    holder.join().unwrap();
}

#[tokio::test]
async fn f_30_a_disk_that_hangs_is_waited_for_as_long_as_the_limit_and_by_a_bounded_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(&folder);
    let (permits, hanging) = (Arc::new(Semaphore::new(1)), Arc::new(AtomicUsize::new(0)));
    let (release, released) = sync_channel::<()>(0);
    let mut released = Some(released);
    for _ in 0..3 {
        let (released, hanging) = (released.take(), Arc::clone(&hanging));
        let late = engine.inner.disk.within(Duration::from_millis(50), &permits, move || {
            hanging.fetch_add(1, Ordering::Relaxed);
            let _over = released.map(|released| released.recv());
            Ok(())
        });
        let error = late.await.unwrap_err().to_string();
        assert!(error.contains("has not answered") && error.contains("its disk hangs"), "{error}");
    }
    assert_eq!(hanging.load(Ordering::Relaxed), 1, "the others found no place");
    drop(release);
    engine.inner.disk.within(HANG, &permits, || Ok(())).await.unwrap();
}
