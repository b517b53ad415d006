//! What became of a job that was given to a shim, judged from what is on the disk and from what lives.
//!
//! Theory of operation. A job goes through these steps, and each leaves something behind that the next reader can see:
//!
//! ```text
//! row `starting` ─ shim spawned ─ lock taken ─ run.json ─ work spawned ─ run.json with the work ─ exit.json ─ lock free
//! ```
//!
//! Whoever judges looks at the lock first, then at `run.json`, then at `exit.json`: the shim writes in the other order, so
//! what is seen can be old and still never wrong.
//!
//! Invariants
//!
//! - An `exit.json` is the truth, whoever lives (X-07). Without one, nothing is ever taken for completed.
//! - What may have run is never started again: `run.json` is written before the work is spawned, and what was given to a shim
//!   before a reboot is taken for begun.
//! - A pid says nothing without the boot and the start time that belong to it. A process of another container on this system has the boot
//!   in common with us and its numbers not, so that the lock alone tells whether it lives.

use unhang_proc::identity::is_same_boot;
use unhang_switches::stands;

use crate::record::RunRecord;

/// What can be seen of a job that was given to a shim.
#[derive(Clone, Debug)]
pub struct JobEvidence<'a> {
    /// Whether somebody holds the job's lock: the shim does, as long as it lives.
    pub is_locked: bool,
    /// `run.json`, if it is there.
    pub run: Option<&'a RunRecord>,
    /// Whether `exit.json` is there.
    pub has_exit: bool,
    /// Whether the process that was to start the shim may still be about to do so.
    pub starter_lives: bool,
    /// Whether the job was given out before the system was started: `run.json` may have gone with the power.
    pub is_of_another_boot: bool,
    /// This boot.
    pub boot_id: &'a str,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobVerdict {
    /// Nobody has begun with it, and nobody is about to: it may be started.
    NeverStarted,
    /// Somebody is about to begin.
    Starting,
    /// It runs.
    Running,
    /// It has ended, as `exit.json` says.
    Ended,
    /// Nobody will ever know.
    Lost(LossReason),
}

/// Why nobody will ever know how a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// Its shim was killed.
    ShimKilled,
    /// The machine was started anew.
    Reboot,
}

impl JobEvidence<'_> {
    /// Judges.
    pub fn verdict(&self) -> JobVerdict {
        if self.has_exit {
            return JobVerdict::Ended;
        }
        match self.run {
            None if self.is_locked || self.starter_lives => JobVerdict::Starting,
            None if self.is_of_another_boot && stands("begun-before-a-reboot") => {
                JobVerdict::Lost(LossReason::Reboot)
            }
            None => JobVerdict::NeverStarted,
            Some(run) if self.is_locked && run.work.is_none() => JobVerdict::Starting,
            Some(_) if self.is_locked => JobVerdict::Running,
            Some(run) if !is_same_boot(&run.boot_id, self.boot_id) => JobVerdict::Lost(LossReason::Reboot),
            Some(_) if stands("killed-shim-is-lost") => JobVerdict::Lost(LossReason::ShimKilled),
            Some(_) => JobVerdict::Ended,
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
