//! Ends a server's tree from its owner, if the lifeline is dead or does not answer.
//!
//! A rescue finds the lifeline's descendants while the lifeline is there, and everything in the control group. It finds everything in the
//! lifeline's session, unless the number has been given out again. What has left all three comes to the lifeline's watcher when the lifeline
//! is killed, and the watcher ends it at the same time. A rescue waits for the watcher.
//!
//! The watcher itself, and the first process of a container, look for orphans ([`adopt_orphans`]): every child of theirs that they did not
//! start. The supervisors of jobs, the holders of servers, and lifelines with their watchers are exempt.
//!
//! Invariants: a round does not wait. The lifeline is killed after its descendants, while they can still be told from others, and the rescue
//! ends when the lifeline has ended.

use std::{
    io,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::process::{Pid, WaitOptions, getpid, waitpid};

use crate::{
    lifeline_process::LifelineProcess,
    spawn::is_ours,
    surroundings::{LIFELINE_NAME, WATCHER_NAME, first_argument, name_of},
    sweep::Sweep,
    system::{self, control_group},
    table::{ProcessEntry, descendants},
};

/// Whether orphans become our children.
static ADOPTING: AtomicBool = AtomicBool::new(false);

/// Makes this process the parent of the orphans below it, so that they can be found, reaped and ended.
///
/// This is a property of the whole process, for good, and therefore a decision of the program. Once it is made, a child that was not
/// started by [`spawn`](crate::spawn::spawn) is taken for such an orphan, and killed in the next rescue. It is for watchers, and for a program
/// that is the first process of a container, where orphans come anyway. Lifelines would come back to any other owner of servers, and end
/// with it when its tree is killed.
///
/// # Errors
/// Fails if the system has no subreapers.
pub fn adopt_orphans() -> io::Result<()> {
    system::become_subreaper()?;
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
    /// Kills every process in sight. Returns `true` if nothing is left and the lifeline itself has been reaped.
    pub(crate) fn round(&mut self, lifeline: &mut LifelineProcess, group: Option<&PathBuf>) -> bool {
        let select = |table: &[ProcessEntry]| remains(table, lifeline);
        self.sweep.note(&select(&system::table()));
        if let Some(group) = group {
            // If this fails, the sweep still ends the processes one by one.
            let _ = control_group::kill(group);
        }
        self.alive = self.sweep.round(&select);
        reap_orphans();
        if self.alive > 0 {
            return false;
        }
        if !self.lifeline_killed {
            self.lifeline_killed = true;
            lifeline.kill();
            return false;
        }
        group.is_none_or(|group| control_group::remove(group)) && lifeline.try_reap().is_some()
    }

    /// Kills the lifeline when time is up, whatever is left.
    pub(crate) fn give_up(&mut self, lifeline: &mut LifelineProcess) {
        lifeline.kill_with_watcher();
        lifeline.try_reap();
    }

    /// Returns how many processes were met, not counting the server itself, and how many were alive in the last round.
    pub(crate) fn counts(&self, server: Option<Pid>) -> (u32, u32) {
        (self.sweep.met(server.as_slice(), &[]), self.alive)
    }
}

/// Finds every process that belongs to the lifeline, except the lifeline itself.
fn remains(table: &[ProcessEntry], lifeline: &LifelineProcess) -> Vec<ProcessEntry> {
    let mut found = Vec::new();
    if let Some(number) = lifeline.number_in(table) {
        found.extend(descendants(table, number));
        let session = number.as_raw_nonzero().get();
        let is_member = |entry: &&ProcessEntry| entry.session == session && lifeline.may_have_started(entry);
        found.extend(table.iter().filter(is_member).filter(|entry| entry.pid != number));
    }
    for orphan in orphans(table) {
        found.push(orphan);
        found.extend(descendants(table, orphan.pid));
    }
    found.sort_unstable_by_key(|entry| entry.pid.as_raw_nonzero());
    found.dedup_by_key(|entry| entry.pid);
    found
}

/// Finds the children of ours that we did not start, except those that hold jobs or servers; none before [`adopt_orphans`].
pub(crate) fn orphans(table: &[ProcessEntry]) -> Vec<ProcessEntry> {
    if !ADOPTING.load(Ordering::Acquire) {
        return Vec::new();
    }
    let own = getpid().as_raw_nonzero().get();
    let is_strange = |pid| !is_ours(pid);
    let children = table.iter().filter(|entry| entry.parent == own && is_strange(entry.pid));
    children.filter(|entry| !holds_a_job(entry) && !is_led_by(entry, &LIFELINES)).copied().collect()
}

/// Returns whether this may be the supervisor of a job, the watcher above one, or the holder of a server. All of them outlive the process that started them, and nobody
/// here may end them. The supervisor that ends a job starts the next one, and leaves that to us.
fn holds_a_job(entry: &ProcessEntry) -> bool {
    is_led_by(entry, &SHIM_NAMES)
}

/// Returns whether a process leads a session and has one of these names, or will have it in a moment: its first argument is the name. A
/// zombie has ended.
fn is_led_by(entry: &ProcessEntry, names: &[&str]) -> bool {
    let number = entry.pid.as_raw_nonzero().get();
    !entry.is_zombie
        && entry.session == number
        && [name_of(number), first_argument(number)]
            .iter()
            .flatten()
            .any(|name| names.contains(&name.as_str()))
}

/// Returns those of `among` that hold jobs, and all their descendants.
pub(crate) fn of_jobs(table: &[ProcessEntry], among: &[ProcessEntry]) -> Vec<Pid> {
    let holders: Vec<Pid> = among.iter().filter(|entry| holds_a_job(entry)).map(|entry| entry.pid).collect();
    let held = holders.iter().flat_map(|holder| descendants(table, *holder)).map(|entry| entry.pid);
    held.chain(holders.iter().copied()).collect()
}

/// The name of a job's supervisor in the process list, and the hidden first argument of our own binary that makes one.
pub const SUPERVISOR_NAME: &str = "mcp-job";

/// The names of a job's supervisor, of its watcher and of a [holder](crate::server::HOLDER_NAME), as the system shows them.
const SHIM_NAMES: [&str; 3] = [SUPERVISOR_NAME, "mcp-job-watch", "mcp-call-holder"];

/// The names of a lifeline and of its watcher. Each ends by itself after its owner.
const LIFELINES: [&str; 2] = [LIFELINE_NAME, WATCHER_NAME];

/// Reaps the orphans that came to us after [`adopt_orphans`] and have ended. It is for a program that starts processes which outlive its
/// own children. It reads the table of processes, so it does not belong on the runtime's threads.
pub fn reap_orphans() {
    for entry in orphans(&system::table()).iter().filter(|entry| entry.is_zombie) {
        // The process is a zombie and our child, so this neither waits nor takes another's status.
        let _ = waitpid(Some(entry.pid), WaitOptions::NOHANG);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rustix::{
        fs::{CWD, FileType, Mode, mknodat},
        process::Signal,
    };

    use super::*;
    use crate::{
        spawn::{Launch, SignalGroup, spawn},
        testing::{shell, sleeper, wait_until},
    };

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

    /// A call holder or a supervisor names itself some milliseconds after its start.
    #[test]
    fn a_holder_or_supervisor_is_known_before_it_has_its_name() {
        let folder = tempfile::tempdir().unwrap();
        for (name, is_one) in [("mcp-call-holder", true), ("mcp-job", true), ("server", false)] {
            let pipe = folder.path().join(name);
            mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
            let arguments = [name.into()];
            let mut process = spawn(Launch {
                folder: Some(folder.path()),
                signal_group: SignalGroup::OwnSession,
                ..Launch::new(Path::new("/bin/cat"), &arguments)
            })
            .unwrap();
            let entry = || system::look(process.id()).filter(holds_a_job);
            assert_eq!(entry().is_some(), is_one, "{name}");
            process.signal(Signal::KILL);
            wait_until("it ends", || process.try_reap().is_some());
        }
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
