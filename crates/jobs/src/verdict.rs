//! The state of a job that was given to a supervisor, judged from the disk and from living processes.
//!
//! Theory of operation. A job goes through these steps, and each leaves something behind that the next reader can see:
//!
//! ```text
//! row `starting` ─ supervisor spawned ─ lock taken ─ run.json ─ work spawned ─ run.json with the work ─ exit.json ─ lock free
//! ```
//!
//! A judge looks at the lock first, then at `run.json`, then at `exit.json`. The supervisor writes in the other order, so that the judge
//! may see an old state and still never a wrong one.
//!
//! Invariants
//!
//! - An `exit.json` is the truth, whichever process lives (X-07). Without one, no job is ever taken for completed.
//! - A job that may have run is never started again: `run.json` is written before the work is spawned, and a job that was given to a
//!   supervisor before a reboot is taken for begun.
//! - A pid says nothing without the boot and the start time that belong to it. A process of another container on this system shares the
//!   boot with this one, but not its process ids. So the lock alone tells whether it lives.

use unhang_proc::identity::is_same_boot;

use crate::record::RunRecord;

/// The visible facts about a job that was given to a supervisor.
#[derive(Clone, Debug)]
pub struct JobEvidence<'a> {
    /// Whether a process holds the job's lock: the supervisor does, as long as it lives.
    pub is_locked: bool,
    /// The content of `run.json`, if it exists.
    pub run: Option<&'a RunRecord>,
    /// Whether `exit.json` exists.
    pub has_exit: bool,
    /// Whether the process that was to start the supervisor may still be about to do so.
    pub starter_lives: bool,
    /// Whether the job was given out before the system was started: `run.json` may have gone with the power.
    pub is_of_another_boot: bool,
    /// The id of this boot.
    pub boot_id: &'a str,
}

/// The judged state of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobVerdict {
    /// No supervisor has begun with the job, and none is about to: it may be started.
    NeverStarted,
    /// A supervisor is about to begin.
    Starting,
    /// The job runs.
    Running,
    /// The job has ended, as `exit.json` says.
    Ended,
    /// The end of the job will never be known.
    Lost(LossReason),
}

/// The reason why the end of a job will never be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// The job's supervisor was killed.
    ShimKilled,
    /// The machine was started anew.
    Reboot,
}

impl JobEvidence<'_> {
    /// Judges the job by the evidence.
    pub fn verdict(&self) -> JobVerdict {
        if self.has_exit {
            return JobVerdict::Ended;
        }
        match self.run {
            None if self.is_locked || self.starter_lives => JobVerdict::Starting,
            None if self.is_of_another_boot => JobVerdict::Lost(LossReason::Reboot),
            None => JobVerdict::NeverStarted,
            Some(run) if self.is_locked && run.work.is_none() => JobVerdict::Starting,
            Some(_) if self.is_locked => JobVerdict::Running,
            Some(run) if !is_same_boot(&run.boot_id, self.boot_id) => JobVerdict::Lost(LossReason::Reboot),
            Some(_) => JobVerdict::Lost(LossReason::ShimKilled),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{record::ProcessRecord, timestamp::JobTimestamp};

    const BOOT: &str = "6b2c";

    fn run(boot_id: &str, work: bool) -> RunRecord {
        let identity = ProcessRecord { pid: 7, start: 70 };
        RunRecord {
            format: 1,
            boot_id: boot_id.into(),
            shim: identity,
            work: work.then_some(identity),
            control_group: None,
            lifeline: None,
            started_at: JobTimestamp::now(),
        }
    }

    /// (locked, run.json, exit.json, starter lives) and what follows.
    #[test]
    fn x_07_every_crash_point_is_decided() {
        let (begun, running, before) = (run(BOOT, false), run(BOOT, true), run("0000", true));
        let cases = [
            // The starter died before it spawned the shim, or the shim before it had the lock.
            (false, None, false, false, JobVerdict::NeverStarted),
            (false, None, false, true, JobVerdict::Starting),
            (true, None, false, false, JobVerdict::Starting),
            (true, Some(&begun), false, false, JobVerdict::Starting),
            (true, Some(&running), false, false, JobVerdict::Running),
            // The shim died: before the spawn, or after it, which nobody can tell apart.
            (false, Some(&begun), false, true, JobVerdict::Lost(LossReason::ShimKilled)),
            (false, Some(&running), false, false, JobVerdict::Lost(LossReason::ShimKilled)),
            (false, Some(&before), false, false, JobVerdict::Lost(LossReason::Reboot)),
            // The work has ended, the shim may still be handing over.
            (true, Some(&running), true, false, JobVerdict::Ended),
            (false, Some(&running), true, false, JobVerdict::Ended),
            (false, Some(&before), true, false, JobVerdict::Ended),
            // A job that could not be started has an end and no run.
            (false, None, true, false, JobVerdict::Ended),
        ];
        for (is_locked, run, has_exit, starter_lives, expected) in cases {
            let is_of_another_boot = false;
            let evidence =
                JobEvidence { is_locked, run, has_exit, starter_lives, is_of_another_boot, boot_id: BOOT };
            assert_eq!(evidence.verdict(), expected, "{evidence:?}");
        }
    }

    #[test]
    fn f_04_another_container_is_no_reboot_and_its_lock_says_whether_it_lives() {
        let (theirs, before) = (run("6b2c-4711", true), run("0000-4711", true));
        let verdict = |run, is_locked| {
            let evidence = JobEvidence {
                is_locked,
                run: Some(run),
                has_exit: false,
                starter_lives: false,
                is_of_another_boot: false,
                boot_id: "6b2c-12",
            };
            evidence.verdict()
        };
        assert_eq!(verdict(&theirs, true), JobVerdict::Running);
        assert_eq!(verdict(&theirs, false), JobVerdict::Lost(LossReason::ShimKilled));
        assert_eq!(verdict(&before, false), JobVerdict::Lost(LossReason::Reboot));
    }

    /// A shim writes that it has the job before it starts the work, but a power failure may take that with it.
    #[test]
    fn what_was_given_out_before_a_reboot_may_have_run() {
        let given_out = |has_exit| JobEvidence {
            is_locked: false,
            run: None,
            has_exit,
            starter_lives: false,
            is_of_another_boot: true,
            boot_id: BOOT,
        };
        assert_eq!(given_out(false).verdict(), JobVerdict::Lost(LossReason::Reboot));
        assert_eq!(given_out(true).verdict(), JobVerdict::Ended);
    }
}
