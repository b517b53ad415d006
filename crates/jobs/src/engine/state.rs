//! The state that the threads and the callers of one engine share.
//!
//! Invariant: the lock of the store is held for one short transaction at a time, on threads that may wait for the disk.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{
    disk::DiskThreads, held_calls::Calls, memory::Memory, options::EngineOptions, presence::FolderPresence,
    shared::SharedAccess,
};
use crate::{
    error::JobError,
    folder::DataFolder,
    id::JobId,
    limits,
    room::{MemoryGauge, RoomShortage},
    shims,
    status::JobStatus,
    store::{JobAdmission, JobStore, ShimStarter, SqliteStore},
};

/// The state of an engine.
#[derive(Debug)]
pub(crate) struct EngineState {
    pub(super) options: EngineOptions,
    pub(super) data: DataFolder,
    pub(super) memory: Memory,
    pub(super) presence: FolderPresence,
    pub(super) starter: ShimStarter,
    pub(super) gauge: MemoryGauge,
    /// The calls that this process holds.
    pub(super) calls: Calls,
    /// The connection for rare questions; held for one short transaction at a time.
    store: Mutex<SqliteStore>,
    pub(super) disk: DiskThreads,
    /// The store of many machines, if there is one.
    pub(super) shared: Option<SharedAccess>,
}

impl EngineState {
    pub(super) fn new(
        options: EngineOptions,
        data: DataFolder,
        starter: ShimStarter,
        store: SqliteStore,
    ) -> Self {
        Self {
            memory: Memory::new(),
            presence: FolderPresence::default(),
            starter,
            gauge: MemoryGauge::default(),
            calls: Calls::new(options.rests),
            shared: options.shared.clone().map(SharedAccess::new),
            options,
            store: Mutex::new(store),
            disk: DiskThreads::new(data.path().to_owned()),
            data,
        }
    }

    pub(super) fn store(&self) -> MutexGuard<'_, SqliteStore> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn admission(&self) -> JobAdmission<'_> {
        JobAdmission { starter: &self.starter, limit: self.own_limit(), is_open: self.lack().is_none() }
    }

    /// Returns the resource that is too scarce for another job to start; `None` if there is enough.
    pub(super) fn lack(&self) -> Option<RoomShortage> {
        self.options.rules.lack(&self.data, &self.gauge)
    }

    /// Returns the limit by which queued jobs start, besides each job's own: the least that is set by any process that has the folder open.
    pub(super) fn own_limit(&self) -> Option<u32> {
        let own = (!self.options.keeps_recorded_limits).then_some(self.options.rules.max_concurrent);
        own.into_iter().chain(limits::of_all(&self.data).max_concurrent).min()
    }

    /// Returns the longest retention that the processes which have the folder open have told.
    pub(super) fn retention_of_others(&self) -> Duration {
        limits::of_all(&self.data).retention()
    }

    /// Returns the jobs that have a slot.
    pub(super) fn running(&self) -> Vec<JobId> {
        self.memory.with_slot()
    }

    pub(super) fn start_shims(&self, admitted: &[JobId]) {
        for &id in admitted {
            if let Err(error) = shims::start(&self.options.shim, &self.data, id) {
                // The maintenance thread sees that no supervisor has the job, and tries again.
                tracing::warn!("the supervisor of job {id} could not be started: {error}");
            }
        }
    }

    /// Notes a trouble with one job's folder with that job alone, so that the others go on. Returns any other error.
    pub(super) fn tell_trouble(&self, id: JobId, looked: Result<(), JobError>) -> Result<(), JobError> {
        let trouble = match looked {
            Err(error) if error.is_of_files() => Some(error.to_string()),
            looked => looked.map(|()| None)?,
        };
        self.note_trouble(id, trouble);
        Ok(())
    }

    /// Notes what is wrong with a job's folder, or that nothing is.
    pub(super) fn note_trouble(&self, id: JobId, trouble: Option<String>) {
        if self.memory.set_trouble(id, trouble.clone())
            && let Some(trouble) = trouble
        {
            tracing::warn!("unhang cannot supervise job {id}: {trouble}");
        }
    }

    /// Returns the status of a job from memory, or else from the database. May wait for the disk.
    pub(super) fn status(&self, id: JobId) -> Result<JobStatus, JobError> {
        if let Some(status) = self.memory.status(id) {
            return Ok(status);
        }
        let job = self.store().get(id)?;
        let job = job.ok_or(JobError::NoSuchJob(id))?;
        if !job.record.status.is_final() {
            // Another process accepted the job a moment ago; from now on this process follows it too.
            self.memory.update([job]);
            return self.memory.status(id).ok_or(JobError::NoSuchJob(id));
        }
        Ok(JobStatus::of(job.record))
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;
    use crate::{
        engine::tests::TestEngine,
        folder::FileError,
        limits::{ToldLimits, announce},
        record::JobState,
        testing::{PATIENCE, command, ended, logged},
        wait::{WaitLimit, look_until},
    };

    #[test]
    fn a_scarce_resource_keeps_jobs_from_starting() {
        for (memory_limit, disk_reserve, words) in [
            (100.0, 0, None),
            (-1.0, 0, Some("of the memory is in use")),
            (100.0, u64::MAX, Some("MiB are free")),
        ] {
            let test = TestEngine::new(|options| {
                (options.rules.memory_limit, options.rules.disk_reserve) = (memory_limit, disk_reserve);
            });
            let lack = test.inner.lack().map(|lack| lack.to_string());
            assert_eq!(lack.is_some(), words.is_some(), "{lack:?}");
            assert!(lack.unwrap_or_default().contains(words.unwrap_or_default()), "{words:?}");
            assert_eq!(test.inner.admission().is_open, words.is_none());
        }
    }

    #[test]
    fn f_05_of_the_limits_of_all_processes_the_least_and_of_the_retentions_the_longest_holds() {
        for (keeps_recorded_limits, told, limit) in [
            (false, None, Some(3)),
            (false, Some(2), Some(2)),
            (false, Some(5), Some(3)),
            (true, None, None),
            (true, Some(5), Some(5)),
        ] {
            let test = TestEngine::new(|options| {
                options.keeps_recorded_limits = keeps_recorded_limits;
                options.rules.max_concurrent = 3;
            });
            assert_eq!(test.inner.retention_of_others(), Duration::ZERO);
            let limits = |retention_ms| ToldLimits { max_concurrent: told, retention_ms: Some(retention_ms) };
            let _others =
                [2000, 1500].map(|retention| announce(&test.inner.data, limits(retention)).unwrap().unwrap());
            assert_eq!(test.inner.own_limit(), limit, "{keeps_recorded_limits}, {told:?}");
            assert_eq!(test.inner.admission().limit, limit);
            assert_eq!(test.inner.retention_of_others(), Duration::from_secs(2));
        }
    }

    #[test]
    fn a_status_comes_from_memory_or_else_from_the_database() {
        let mut test = TestEngine::new(|_| {});
        let (open, end) = (test.accept(&command()), test.accept(&ended(Duration::ZERO)));
        assert_eq!(test.inner.status(end).unwrap().record.status, JobState::Completed);
        assert!(test.inner.memory.status(end).is_none(), "it is read from the disk each time");
        assert_eq!(test.inner.status(open).unwrap().queue_position, Some(0));
        assert!(test.inner.memory.status(open).is_some(), "from now on it is followed");
        assert!(test.inner.running().is_empty());
        assert_eq!(test.store.claim(&test.inner.starter, None).unwrap(), Some(open));
        test.inner.memory.update(test.store.get(open).unwrap());
        assert_eq!(test.inner.running(), [open]);
        let unknown = JobId::random().unwrap();
        assert!(matches!(test.inner.status(unknown), Err(JobError::NoSuchJob(id)) if id == unknown));
    }

    #[test]
    fn a_trouble_with_the_files_of_a_job_is_told_once_with_that_job_and_any_other_error_is_returned() {
        let mut test = TestEngine::new(|_| {});
        let id = test.accept(&command());
        let reason = || test.inner.status(id).unwrap().wait_reason;
        let files =
            || FileError::system("cannot read", test.folder.path(), ErrorKind::PermissionDenied.into());
        let (told, messages) =
            logged(|| [1, 2].map(|_| test.inner.tell_trouble(id, Err(files().into())).is_ok()));
        assert_eq!(told, [true, true]);
        assert!(reason().unwrap().starts_with("cannot read"));
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert!(messages[0].starts_with(&format!("unhang cannot supervise job {id}: cannot read")));
        let other = test.inner.tell_trouble(id, Err(JobError::Closed));
        assert!(matches!(other, Err(JobError::Closed)), "{other:?}");
        assert!(reason().is_some(), "the other error says nothing about the files");
        let (told, messages) = logged(|| test.inner.tell_trouble(id, Ok(())).is_ok());
        assert_eq!((told, reason(), messages), (true, None, Vec::new()));
    }

    #[test]
    fn a_supervisor_is_started_in_the_folder_of_its_job_and_the_next_one_though_it_fails() {
        let mut test = TestEngine::new(|options| {
            let arguments = ["-c", "echo $0 > told; mv told started"].map(Into::into).to_vec();
            options.shim = shims::ShimCommand { program: "/bin/sh".into(), arguments };
        });
        let (nowhere, id) = (JobId::random().unwrap(), test.accept(&command()));
        let ((), messages) = logged(|| test.inner.start_shims(&[nowhere, id]));
        assert!(messages.len() == 1 && messages[0].contains(nowhere.as_str()), "{messages:?}");
        let folder = test.inner.data.job(id);
        let started = || Ok::<_, ()>(folder.text("started", 100));
        let started = look_until(WaitLimit::after(PATIENCE), Duration::from_millis(1), started).unwrap();
        assert_eq!(started, Some(format!("{id}\n")));
    }
}
