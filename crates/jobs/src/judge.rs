//! Finds out what became of a job that has a slot, and does what follows from it.
//!
//! Invariants
//!
//! - Nothing is written about a job without its lock, which its shim holds for as long as it lives.
//! - What a killed shim left behind is ended before its job is called lost.
//! - A job whose shim does not come up is given up after a few tries, so that it cannot hold a slot for ever.

use std::{io, time::Duration};

use unhang_proc::{
    identity::{Identity, is_same_boot},
    lock::Lock,
    survivors::{self, DeadShim},
    tree::SweptTree,
};
use unhang_switches::stands;

use crate::{
    folder::{CANCEL, DataFolder, EXIT, FileError, JobFolder, LOCK, RUN},
    id::JobId,
    judge_call::judge_call,
    record::{EndReason, EndRecord, JobEnd, RunRecord},
    settle::{JobAdmission, Settled, settle, write_ending},
    store::{self, JobRow, ShimStarter, Store, StoreError},
    timestamp::JobTimestamp,
    verdict::{JobEvidence, JobVerdict, LossReason},
};

/// How often a shim is started for a job before it is given up.
const MOST_STARTS: u32 = 5;

/// How long a process that was to start a shim is believed to be about to. A fork takes a millisecond; where it took longer
/// and there are two shims in the end, the second one finds the lock taken or the job begun.
const START_LIMIT: Duration = Duration::from_secs(2);

/// What is to be done after a look at a job.
#[derive(Debug)]
pub(crate) enum JobFinding {
    /// A shim has it, or is about to.
    Alive,
    /// The caller has to start a shim for it.
    StartIt,
    /// It has ended; the row says so now.
    Settled(Settled),
}

/// Who judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judge {
    /// Somebody who comes by.
    Passer,
    /// The watcher of the job's shim, to whom the orphans of that came.
    Watcher,
}

/// Looks at a job, and settles it if it has ended.
pub(crate) fn judge(
    data: &DataFolder,
    store: &mut Store,
    job: &JobRow,
    admission: &JobAdmission<'_>,
) -> Result<JobFinding, StoreError> {
    judge_as(Judge::Passer, data, store, job, admission)
}

/// The same for one who may know more.
pub(crate) fn judge_as(
    judge: Judge,
    data: &DataFolder,
    store: &mut Store,
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
            // Whatever has it cannot write down how it ends.
            let SweptTree { leaked, unkilled } = end_survivors(judge, id, None);
            let ending = EndRecord::without_run(JobEnd::Lost).because(EndReason::RecordDamaged, detail);
            let ending = EndRecord { leaked, unkilled, ..ending };
            return settle(data, store, id, &ending, admission).map(JobFinding::Settled);
        }
        // Somebody has put it there while a shim held what lay there before, or before one came.
        Err(error) if error.is_of_another_kind() => match folder.read::<RunRecord>(RUN) {
            Ok(Some(run)) if is_alive(&run, admission.starter) => return Ok(JobFinding::Alive),
            _ => (None, Some(error.to_string())),
        },
        Err(error) => return Err(error.into()),
    };
    let ending = match look(&folder, job, admission.starter)? {
        // Its lock was removed from beneath a shim that lives and will note how the work ends.
        FolderFinding::Lost(Some(run), _) if is_alive(&run, admission.starter) => {
            return Ok(JobFinding::Alive);
        }
        FolderFinding::Starting => return Ok(JobFinding::Alive),
        FolderFinding::NeverStarted if job.starts < MOST_STARTS => {
            drop(lock);
            let starter = job.starter.as_ref();
            let is_ours =
                store.write(|transaction| store::take_over(transaction, id, starter, admission.starter))?;
            return Ok(if is_ours { JobFinding::StartIt } else { JobFinding::Alive });
        }
        FolderFinding::NeverStarted => EndRecord::without_run(JobEnd::Failed).because(
            EndReason::StartFailed,
            format!(
                "its supervisor did not come up in {MOST_STARTS} tries; {}",
                no_lock.as_deref().unwrap_or("the system may be out of processes or memory")
            ),
        ),
        FolderFinding::Ended(ending) => ending,
        FolderFinding::Lost(run, ending) => {
            let here = &admission.starter.boot_id;
            let swept = match &run {
                Some(run) if run.boot_id == *here || !stands("survivors-of-this-boot-only") => {
                    end_survivors(judge, id, Some(run))
                }
                // The numbers of another boot, or of another container, are those of strangers.
                Some(run) if !is_same_boot(&run.boot_id, here) => SweptTree::default(),
                Some(_) | None => end_survivors(judge, id, None),
            };
            EndRecord { leaked: swept.leaked, unkilled: swept.unkilled, ..ending }
        }
    };
    let ending = write_ending(data, id, &ending)?;
    settle(data, store, id, &ending, admission).map(JobFinding::Settled)
}

/// What came of the try to take a job's lock.
enum LockAttempt {
    Ours(Lock),
    Others,
    /// There is no folder that it could lie in. Says so.
    NoFolder(String),
}

fn take_lock(folder: &JobFolder) -> Result<LockAttempt, FileError> {
    if folder.is_something_else() {
        return Ok(LockAttempt::NoFolder(format!(
            "something else lies in the place of its folder {}",
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

/// Whether the shim that has taken the job lives, as far as can be seen without its lock.
fn is_alive(run: &RunRecord, this: &ShimStarter) -> bool {
    run.boot_id == this.boot_id && Identity::from(run.shim).is_alive()
}

/// What the folder of a job says whose lock is free.
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
            // Half an end is none: it is put aside so that the true one, which nobody knows, can be written.
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
        starter_lives: job.starter.as_ref().is_some_and(|starter| is_about_to(starter, this)),
        is_of_another_boot: job
            .starter
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
            // Whoever stopped the server has meant no job, and looks for somebody who has killed a supervisor.
            let detail = "nobody saw how it ended: the command that had started its server ended everything that the server had started, the \
                          supervisor of the job too";
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
            "its supervisor was killed, so that nobody saw how it ended; what it left behind was ended",
        ),
        LossReason::Reboot => (EndReason::Reboot, "the machine was started anew while it ran"),
    };
    EndRecord::without_run(JobEnd::Lost).because(reason, detail)
}

/// Whether somebody may still be about to start the shim. Of one in another container nobody here can tell whether it lives.
fn is_about_to(starter: &ShimStarter, this: &ShimStarter) -> bool {
    let may_live = match starter.boot_id == this.boot_id {
        true => Identity::from(starter.process).is_alive(),
        false => is_same_boot(&starter.boot_id, &this.boot_id),
    };
    may_live && JobTimestamp::now().since(starter.since) < START_LIMIT
}

/// Ends what a dead shim left.
fn end_survivors(judge: Judge, id: JobId, run: Option<&RunRecord>) -> SweptTree {
    if !stands("survivors-of-a-shim-ended") {
        return SweptTree::default();
    }
    let cookie = format!("UNHANG_JOB_ID={id}");
    survivors::end(&DeadShim {
        shim: run.map(|run| run.shim.into()),
        group: run.and_then(|run| run.control_group.as_deref()),
        cookie: cookie.as_ref(),
        spared: &[],
        with_orphans: judge == Judge::Watcher,
    })
}
