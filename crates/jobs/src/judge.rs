//! Finds out the state of a job that has a slot, and acts on it.
//!
//! Invariants
//!
//! - Nothing is written about a job without its lock, which its supervisor holds for as long as it lives.
//! - The processes that a killed supervisor left behind are ended before its job is called lost.
//! - A job whose supervisor does not come up is given up after a few tries, so that it cannot hold a slot for ever.

use std::{io, time::Duration};

use unhang_proc::{
    identity::{Identity, is_same_boot},
    lock::Lock,
    survivors::{self, DeadShim},
    tree::SweptTree,
};

use crate::{
    folder::{CANCEL, DataFolder, EXIT, FileError, JobFolder, LOCK, RUN},
    id::JobId,
    judge_call::judge_call,
    record::{EndReason, EndRecord, JobEnd, RunRecord},
    settle::{Settled, settle, write_ending},
    store::{JobAdmission, JobRow, ShimStarter, SqliteStore, StoreError},
    timestamp::JobTimestamp,
    verdict::{JobEvidence, JobVerdict, LossReason},
    work_lease::{MARK, WorkLease},
};

/// The number of times that a supervisor is started for a job before the job is given up.
const MOST_STARTS: u32 = 5;

/// The time for which a process is believed to be about to start a supervisor. A fork takes a millisecond. If it takes longer and there are
/// two supervisors in the end, the second one finds the lock taken or the job begun.
const START_LIMIT: Duration = Duration::from_secs(2);

/// The result of a look at a job.
#[derive(Debug)]
pub(crate) enum JobFinding {
    /// A supervisor has the job, or is about to.
    Alive,
    /// The caller has to start a supervisor for the job.
    StartIt,
    /// The job has ended; the row says so now.
    Settled(Settled),
}

/// The party that judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judge {
    /// Any process that looks at the job.
    Passer,
    /// The watcher of the job's supervisor, which inherited the supervisor's orphans.
    Watcher,
}

/// Looks at a job, and settles it if it has ended.
pub(crate) fn judge(
    data: &DataFolder,
    store: &mut SqliteStore,
    job: &JobRow,
    admission: &JobAdmission<'_>,
) -> Result<JobFinding, StoreError> {
    judge_as(Judge::Passer, data, store, job, admission)
}

/// Does the same as [`judge`] for a judge that may know more.
pub(crate) fn judge_as(
    judge: Judge,
    data: &DataFolder,
    store: &mut SqliteStore,
    job: &JobRow,
    admission: &JobAdmission<'_>,
) -> Result<JobFinding, StoreError> {
    if let Some(call) = &job.record.call {
        return judge_call(data, store, job, call, admission);
    }
    let (id, folder) = (job.record.job_id, data.job(job.record.job_id));
    let (lock, no_lock) = match take_lock(&folder) {
        Ok(LockAttempt::Ours(lock)) => (Some(lock), None),
        Ok(LockAttempt::Others) => return Ok(JobFinding::Alive),
        Ok(LockAttempt::NoFolder(detail)) => {
            // A process that may still run the job cannot write down how it ends.
            let SweptTree { leaked, unkilled } = end_survivors(judge, &folder, id, None);
            let ending = EndRecord::without_run(JobEnd::Lost).because(EndReason::RecordDamaged, detail);
            let ending = EndRecord { leaked, unkilled, ..ending };
            return settle(data, store, id, &ending, admission).map(JobFinding::Settled);
        }
        // Another thing was put in the lock's place while a supervisor held the lock, or before one came.
        Err(error) if error.is_of_another_kind() => match folder.read::<RunRecord>(RUN) {
            Ok(Some(run)) if is_alive(&run, admission.starter) => return Ok(JobFinding::Alive),
            _ => (None, Some(error.to_string())),
        },
        Err(error) => return Err(error.into()),
    };
    let ending = match look(&folder, job, admission.starter)? {
        // The lock was removed although its supervisor lives. The supervisor will note how the work ends.
        FolderFinding::Lost(Some(run), _) if is_alive(&run, admission.starter) => {
            return Ok(JobFinding::Alive);
        }
        FolderFinding::Starting => return Ok(JobFinding::Alive),
        FolderFinding::NeverStarted if job.claims < MOST_STARTS => {
            drop(lock);
            let starter = job.claimant.as_ref();
            let is_ours = store.take_over(id, starter, admission.starter)?;
            return Ok(if is_ours { JobFinding::StartIt } else { JobFinding::Alive });
        }
        FolderFinding::NeverStarted => EndRecord::without_run(JobEnd::Failed).because(
            EndReason::StartFailed,
            format!(
                "its supervisor did not start in {MOST_STARTS} tries; {}",
                no_lock.as_deref().unwrap_or("the system may be out of processes or memory")
            ),
        ),
        FolderFinding::Ended(ending) => ending,
        FolderFinding::Lost(run, ending) => {
            let here = &admission.starter.boot_id;
            let swept = match &run {
                Some(run) if run.boot_id == *here => end_survivors(judge, &folder, id, Some(run)),
                // The process ids of another boot, or of another container, belong to other processes here.
                Some(run) if !is_same_boot(&run.boot_id, here) => SweptTree::default(),
                Some(_) | None => end_survivors(judge, &folder, id, None),
            };
            EndRecord { leaked: swept.leaked, unkilled: swept.unkilled, ..ending }
        }
    };
    let ending = write_ending(data, id, &ending)?;
    settle(data, store, id, &ending, admission).map(JobFinding::Settled)
}

/// The result of the try to take a job's lock.
enum LockAttempt {
    Ours(Lock),
    Others,
    /// The folder of the lock is missing. The text says so.
    NoFolder(String),
}

fn take_lock(folder: &JobFolder) -> Result<LockAttempt, FileError> {
    if folder.is_something_else() {
        return Ok(LockAttempt::NoFolder(format!(
            "something other than its folder is at the path {}",
            folder.path().display()
        )));
    }
    let path = folder.file(LOCK);
    let taken = match Lock::try_take(&path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            folder.reclaim();
            Lock::try_take(&path)
        }
        taken => taken,
    };
    match taken {
        Ok(Some(lock)) => Ok(LockAttempt::Ours(lock)),
        Ok(None) => Ok(LockAttempt::Others),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(LockAttempt::NoFolder(format!("its folder {} is gone", folder.path().display())))
        }
        Err(error) => Err(FileError::system("cannot lock", &path, error)),
    }
}

/// Returns whether the supervisor that has taken the job lives, as far as can be seen without its lock.
fn is_alive(run: &RunRecord, this: &ShimStarter) -> bool {
    run.boot_id == this.boot_id && Identity::from(run.shim).is_alive()
}

/// The findings in the folder of a job whose lock is free.
enum FolderFinding {
    Starting,
    NeverStarted,
    Ended(EndRecord),
    Lost(Option<RunRecord>, EndRecord),
}

fn look(folder: &JobFolder, job: &JobRow, this: &ShimStarter) -> Result<FolderFinding, FileError> {
    let damaged = |error: FileError| {
        EndRecord::without_run(JobEnd::Lost).because(EndReason::RecordDamaged, error.to_string())
    };
    let run: Result<Option<RunRecord>, FileError> = folder.read(RUN);
    let exit = match folder.read::<EndRecord>(EXIT) {
        Err(error @ FileError::Damaged { .. }) => {
            // A damaged record is put aside, so that the end can be written anew. The true end is unknown.
            folder.put_aside(EXIT)?;
            return Ok(FolderFinding::Lost(run.ok().flatten(), damaged(error)));
        }
        read => read?,
    };
    let run = match run {
        Err(error @ FileError::Damaged { .. }) if exit.is_none() => {
            return Ok(FolderFinding::Lost(None, damaged(error)));
        }
        Err(error @ FileError::System { .. }) => return Err(error),
        read => read.ok().flatten(),
    };
    let is_unwanted = folder.has(CANCEL);
    if is_unwanted && run.is_none() && exit.is_none() {
        return Ok(FolderFinding::Ended(EndRecord::without_run(JobEnd::Cancelled)));
    }
    let evidence = JobEvidence {
        is_locked: false,
        run: run.as_ref(),
        has_exit: exit.is_some(),
        starter_lives: job.claimant.as_ref().is_some_and(|starter| is_about_to(starter, this)),
        is_of_another_boot: job
            .claimant
            .as_ref()
            .is_some_and(|starter| !is_same_boot(&starter.boot_id, &this.boot_id)),
        boot_id: &this.boot_id,
    };
    let started_at = run.as_ref().map(|run| run.started_at);
    Ok(match (evidence.verdict(), exit) {
        (JobVerdict::Ended, Some(ending)) => FolderFinding::Ended(ending),
        (JobVerdict::Starting | JobVerdict::Running, _) => FolderFinding::Starting,
        (JobVerdict::NeverStarted, _) => FolderFinding::NeverStarted,
        (JobVerdict::Lost(LossReason::ShimKilled), _) if is_unwanted => {
            let detail = "it was cancelled, and its supervisor had to be killed for it";
            let ending = EndRecord::without_run(JobEnd::Cancelled).because(EndReason::ShimKilled, detail);
            FolderFinding::Lost(run, EndRecord { started_at, ..ending })
        }
        (JobVerdict::Lost(LossReason::ShimKilled), _)
            if run.as_ref().is_some_and(|run| run.has_ended_with_its_server(&this.boot_id)) =>
        {
            // The person who stopped the server had no job in mind, and would look for somebody who killed a supervisor.
            let detail = "unhang did not see how it ended: the command that had started its server ended \
                everything that the server had started, including the supervisor of the job";
            let ending = EndRecord::without_run(JobEnd::Lost).because(EndReason::ShimKilled, detail);
            FolderFinding::Lost(run, EndRecord { started_at, ..ending })
        }
        (JobVerdict::Lost(loss), _) => FolderFinding::Lost(run, EndRecord { started_at, ..lost(loss) }),
        (JobVerdict::Ended, None) => FolderFinding::Lost(run, lost(LossReason::ShimKilled)),
    })
}

fn lost(loss: LossReason) -> EndRecord {
    let (reason, detail) = match loss {
        LossReason::ShimKilled => (
            EndReason::ShimKilled,
            "its supervisor was killed, so unhang did not see how it ended; unhang ended the processes \
             that it left",
        ),
        LossReason::Reboot => (EndReason::Reboot, "the machine was restarted while it ran"),
    };
    EndRecord::without_run(JobEnd::Lost).because(reason, detail)
}

/// Returns whether a process may still be about to start the supervisor. Nobody here can tell whether a process in another container lives.
fn is_about_to(starter: &ShimStarter, this: &ShimStarter) -> bool {
    let may_live = match starter.boot_id == this.boot_id {
        true => Identity::from(starter.process).is_alive(),
        false => is_same_boot(&starter.boot_id, &this.boot_id),
    };
    may_live && JobTimestamp::now().since(starter.since) < START_LIMIT
}

/// Ends the processes that a dead supervisor left.
fn end_survivors(judge: Judge, folder: &JobFolder, id: JobId, run: Option<&RunRecord>) -> SweptTree {
    // Another worker of this machine may run another attempt of the job.
    let cookie = WorkLease::mark(folder)
        .map_or_else(|| format!("UNHANG_JOB_ID={id}"), |mark| format!("{MARK}={mark}"));
    survivors::end(&DeadShim {
        shim: run.map(|run| run.shim.into()),
        group: run.and_then(|run| run.control_group.as_deref()),
        cookie: cookie.as_ref(),
        spared: &[],
        with_orphans: judge == Judge::Watcher,
    })
}

#[cfg(test)]
mod tests;
