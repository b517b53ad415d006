//! The work of a supervisor's watcher once the supervisor has ended. After an ordinary end it does nothing. Otherwise it does at once what
//! the next unhang on the data folder would do, so that no job waits for that.
//!
//! Theory of operation. The supervisor forks before it does anything ([`unhang_proc::watch`]); the original waits. If the supervisor is
//! killed, all processes below it come to the watcher. It judges the job like any other process ([`judge_as`]), with these orphans as part
//! of the rest. Then it looks after the other jobs that have a slot, since the supervisor may have given one away and not started it. It
//! also fills free slots.
//!
//! Invariants
//!
//! - A supervisor that is killed before it wrote down the end of its job has started no other supervisor, so all orphans are of its job.
//!   After that nobody is ended here: the orphans are supervisors.
//! - If another process judges the job at the same time and settles it, the watcher still ends the orphans.
//! - A watcher that is killed too leaves all of this to the next unhang.

use std::{process::ExitCode, time::Duration};

use unhang_proc::{give_back_code, survivors::end_orphans, watch::WatchedCopy};

use super::{Shim, ShimError};
use crate::{
    folder::EXIT,
    judge::{JobFinding, Judge, judge_as},
    record::{EndReason, EndRecord, JobEnd},
    room::ROOM_LOOK,
    shims,
    store::{JobAdmission, JobRow, JobStore, SqliteStore, StoreError},
    wait::{WaitLimit, pause},
};

/// The time for which the job is looked at while another process has it: a sweep, and the time that a starter is believed.
const LIMIT: Duration = Duration::from_secs(10);

/// The time between the death of the supervisor and the reaction of the watcher.
const RESPITE: Duration = Duration::from_millis(200);

/// The pause between two looks at the job.
const LOOK: Duration = Duration::from_millis(20);

impl Shim<'_> {
    /// Waits for the supervisor to end, and takes its place if it did not see the job to its end.
    pub(super) fn watch(&self, shim: WatchedCopy) -> ExitCode {
        // The code is needed again only if the supervisor is killed.
        give_back_code();
        if shim.wait().is_success() {
            return ExitCode::SUCCESS;
        }
        // A kill of everything here, as by a lifeline, ends the watcher too. It shall not come in the middle of a file.
        pause(RESPITE);
        let limit = WaitLimit::after(LIMIT);
        loop {
            match self.take_its_place(&limit) {
                Ok(()) => return ExitCode::SUCCESS,
                // The job depends on the disk; its leftover processes do not.
                Err(error) => {
                    self.end_what_it_left(None);
                    if limit.is_over() && !is_for_lack_of_room(&*error) {
                        return ExitCode::FAILURE;
                    }
                }
            }
            pause(ROOM_LOOK);
        }
    }

    fn take_its_place(&self, limit: &WaitLimit) -> Result<(), ShimError> {
        if !self.data.database().exists() {
            // Somebody removed the database, and does not want another in its place.
            self.end_what_it_left(None);
            return Ok(());
        }
        let (mut store, _) = SqliteStore::open(&self.data)?;
        let starter = shims::this_process()?;
        let admission = self.admission(&mut store, &starter)?;
        let own = |store: &mut SqliteStore| store.get(self.id);
        let mut job = own(&mut store)?;
        while let Some(open) = job.as_ref().filter(|job| job.is_active)
            && !self.look_after(Judge::Watcher, &mut store, open, &admission)?
            && !limit.is_over()
        {
            pause(LOOK);
            job = own(&mut store)?;
        }
        self.end_what_it_left(own(&mut store)?.as_ref());
        for other in store.open_jobs()? {
            let is_shims = other.is_active && other.record.call.is_none() && other.record.job_id != self.id;
            if is_shims {
                // Trouble with one job does not keep the next one back.
                let _ = self.look_after(Judge::Passer, &mut store, &other, &admission);
            }
        }
        let admitted = store.admit(&admission)?;
        self.start(&mut store, admitted, &admission);
        self.wait_with_the_queue(&mut store, &admission)
    }

    /// Judges a job and acts on the finding. Returns false if another process has the job.
    fn look_after(
        &self,
        judge: Judge,
        store: &mut SqliteStore,
        job: &JobRow,
        admission: &JobAdmission<'_>,
    ) -> Result<bool, StoreError> {
        match judge_as(judge, &self.data, store, job, admission)? {
            JobFinding::Alive => return Ok(false),
            JobFinding::StartIt => self.start(store, vec![job.record.job_id], admission),
            JobFinding::Settled(settled) => self.start(store, settled.admitted, admission),
        }
        Ok(true)
    }

    /// Ends processes that another process which settled the job has not found.
    fn end_what_it_left(&self, job: Option<&JobRow>) {
        if !self.has_ended_itself(job) {
            let _ = end_orphans();
        }
    }

    /// Returns whether the supervisor saw the job to its end, so that its later children are supervisors. If the folder is gone, the job
    /// was removed, and only ended jobs are removed.
    fn has_ended_itself(&self, job: Option<&JobRow>) -> bool {
        let ending = match job {
            Some(job) if job.is_active => return false,
            Some(job) => job.record.ending.clone(),
            None if !self.folder.is_there() => return true,
            None => self.folder.read::<EndRecord>(EXIT).ok().flatten(),
        };
        ending.is_some_and(|ending| {
            ending.outcome != JobEnd::Lost && ending.reason != Some(EndReason::ShimKilled)
        })
    }
}

fn is_for_lack_of_room(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<StoreError>().is_some_and(StoreError::is_for_lack_of_room)
}
