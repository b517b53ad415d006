//! What the owner of a server does when its lifeline is dead or does not answer: it ends the tree by itself.
//!
//! Whom it finds: the lifeline's descendants while the lifeline is there, everything in the lifeline's session (whose
//! number is safe, because the lifeline is our child and is reaped last), everything in the control group, and, after
//! [`adopt_orphans`], every child of ours that we did not start, for those are what dead lifelines left to us; but for shims of jobs.
//!
//! Invariants: a round does not wait. The lifeline is killed after its descendants, while they can still be told from
//! others, and reaped at the very end.

use std::{
    io,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::process::{Pid, Signal, WaitOptions, getpid, waitpid};
use unhang_switches::stands;

use crate::{
    spawn::{Process, is_ours},
    surroundings::name_of,
    sweep::Sweep,
    system::{self, control_group},
    table::{ProcessEntry, descendants},
};

/// Whether orphans come to us.
static ADOPTING: AtomicBool = AtomicBool::new(false);

/// Makes this process the parent of what a killed lifeline leaves behind, so that it can be found and ended.
///
/// It is a property of the whole process, for good, and therefore a decision of the program: once it is made, a child that
/// was not started by [`spawn`](crate::spawn::spawn) is taken for such an orphan, and killed in the next rescue.
///
/// # Errors
/// Where the system has no subreapers.
pub fn adopt_orphans() -> io::Result<()> {
    if stands("orphans-adopted") {
        system::become_subreaper()?;
    }
    ADOPTING.store(true, Ordering::Release);
    Ok(())
}

/// One rescue, made of rounds.
#[derive(Debug, Default)]
pub(crate) struct TreeRescue {
    sweep: Sweep,
    lifeline_killed: bool,
    alive: u32,
}

impl TreeRescue {
    /// Kills what is in sight. True when nothing is left and the lifeline itself has been reaped.
    pub(crate) fn round(&mut self, lifeline: &mut Process, group: Option<&PathBuf>) -> bool {
        let select = {
            let lifeline = lifeline.id();
            move |table: &[ProcessEntry]| remains(table, lifeline)
        };
        self.sweep.note(&select(&system::table()));
        if let Some(group) = group {
            // Where this fails the sweep is what there is.
            let _ = control_group::kill(group);
        }
        self.alive = self.sweep.round(select);
        reap_orphans();
        if self.alive > 0 {
            return false;
        }
        if !self.lifeline_killed {
            self.lifeline_killed = true;
            lifeline.signal(Signal::KILL);
            return false;
        }
        group.is_none_or(|group| control_group::remove(group)) && lifeline.try_reap().is_some()
    }

    /// The last act when time is up, whatever is left.
    pub(crate) fn give_up(&mut self, lifeline: &mut Process) {
        lifeline.signal(Signal::KILL);
        lifeline.try_reap();
    }

    /// Processes met, not counting the server itself; and those that were alive in the last round.
    pub(crate) fn counts(&self, server: Option<Pid>) -> (u32, u32) {
        (self.sweep.met(server.as_slice(), &[]), self.alive)
    }
}

/// Everything that belongs to the lifeline, except itself.
fn remains(table: &[ProcessEntry], lifeline: Pid) -> Vec<ProcessEntry> {
    let mut found = descendants(table, lifeline);
    let session = lifeline.as_raw_nonzero().get();
    if stands("session-swept") {
        found.extend(table.iter().filter(|entry| entry.session == session && entry.pid != lifeline));
    }
    for orphan in orphans(table) {
        found.push(orphan);
        found.extend(descendants(table, orphan.pid));
    }
    found.sort_unstable_by_key(|entry| entry.pid.as_raw_nonzero());
    found.dedup_by_key(|entry| entry.pid);
    found
}

/// Children of ours that we did not start.
pub(crate) fn orphans(table: &[ProcessEntry]) -> Vec<ProcessEntry> {
    if !ADOPTING.load(Ordering::Acquire) {
        return Vec::new();
    }
    let own = getpid().as_raw_nonzero().get();
    let is_strange = |pid| !is_ours(pid) || !stands("own-children-spared");
    let children = table.iter().filter(|entry| entry.parent == own && is_strange(entry.pid));
    children.filter(|entry| !holds_a_job(entry)).copied().collect()
}

/// Whether this may be the shim of a job or the watcher above one, which outlives whoever started it and is nobody's to end: the shim that ends a job starts the
/// next one, and leaves that to us.
fn holds_a_job(entry: &ProcessEntry) -> bool {
    let number = entry.pid.as_raw_nonzero().get();
    // It leads a session, and is known by its name; a zombie has ended.
    !entry.is_zombie
        && entry.session == number
        && name_of(number).is_some_and(|name| SHIM_NAMES.contains(&name.as_str()))
}

/// Those of these that hold jobs, and all that they hold.
pub(crate) fn of_jobs(table: &[ProcessEntry], among: &[ProcessEntry]) -> Vec<Pid> {
    let holders: Vec<Pid> = among.iter().filter(|entry| holds_a_job(entry)).map(|entry| entry.pid).collect();
    let held = holders.iter().flat_map(|holder| descendants(table, *holder)).map(|entry| entry.pid);
    held.chain(holders.iter().copied()).collect()
}

/// What the system shows as the names of a job's shim and of its watcher.
const SHIM_NAMES: [&str; 2] = ["mcp-job", "mcp-job-watch"];

/// Takes the exit status of what came to us, after [`adopt_orphans`], and has ended: for a program that starts what outlives its own
/// children. It looks at the table of processes, so that it is not for the runtime's threads.
pub fn reap_orphans() {
    for entry in orphans(&system::table()).iter().filter(|entry| entry.is_zombie && stands("orphans-reaped"))
    {
        // It is a zombie and our child, so this neither waits nor takes another's status.
        let _ = waitpid(Some(entry.pid), WaitOptions::NOHANG);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{shell, sleeper, wait_until};

    /// Orphans come to this whole program from then on; what other tests start is known as ours.
    #[test]
    fn an_orphan_that_has_ended_is_reaped() {
        adopt_orphans().unwrap();
        let mut parent = shell("sleep 3600 &");
        let session = parent.id().as_raw_nonzero().get();
        wait_until("its parent ends", || parent.try_reap().is_some());
        let left = || system::table().into_iter().find(|entry| entry.session == session);
        // The rescue of another test may have been first.
        if let Some(orphan) = left() {
            system::signal(&orphan, Signal::KILL);
        }
        wait_until("it ends", || left().is_none_or(|orphan| orphan.is_zombie));
        reap_orphans();
        assert_eq!(left(), None);
    }

    /// A rescue of one server must not end the lifeline of another.
    #[test]
    fn what_we_started_ourselves_is_no_orphan() {
        ADOPTING.store(true, Ordering::Release);
        let mut other = sleeper();
        let found = orphans(&system::table());
        other.signal(Signal::KILL);
        other.try_reap();
        assert!(found.iter().all(|entry| entry.pid != other.id()), "{found:?}");
    }
}
