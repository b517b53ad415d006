//! The lifeline as its owner sees it: a child until it has left our chain of parents, and a stranger from then on, or from the beginning if
//! it was handed over to us.
//!
//! Invariants: a child is signalled and its number is used only until it is reaped. The number of a stranger is used only while a look shows
//! the same start time, or while nobody else has it.

use rustix::process::{Pid, Signal, WaitOptions, getpid, waitpid};

use crate::{
    identity::Identity,
    spawn::{Exit, Process},
    system,
    table::ProcessEntry,
};

/// A lifeline that is no child of its owner, and the process above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DetachedLifeline {
    pub(crate) lifeline: Identity,
    /// The process that ends what a killed lifeline leaves, and ends after the lifeline.
    pub(crate) watcher: Option<Identity>,
}

/// A lifeline.
#[derive(Debug)]
pub(crate) enum LifelineProcess {
    /// We started it and reap it.
    Child(Process),
    /// It has left our chain of parents, or was handed over to us. Its parent reaps it.
    Stranger(DetachedLifeline),
}

impl LifelineProcess {
    /// Returns its number.
    pub(crate) fn pid(&self) -> u32 {
        match self {
            Self::Child(process) => process.pid(),
            Self::Stranger(DetachedLifeline { lifeline, .. }) => lifeline.pid,
        }
    }

    /// Returns what tells it and its watcher from all other processes. Nothing is told of a child that has ended.
    pub(crate) fn identities(&self) -> Vec<Identity> {
        match self {
            Self::Child(process) => Identity::of(process.pid()).into_iter().collect(),
            Self::Stranger(DetachedLifeline { lifeline, watcher }) => {
                [*lifeline].into_iter().chain(*watcher).collect()
            }
        }
    }

    /// Returns its number in the form that the process table uses; `None` if the table shows another process under it.
    pub(crate) fn number_in(&self, table: &[ProcessEntry]) -> Option<Pid> {
        match self {
            Self::Child(process) => Some(process.id()),
            Self::Stranger(DetachedLifeline { lifeline, .. }) => {
                let number = Pid::from_raw(i32::try_from(lifeline.pid).ok()?)?;
                let is_anothers = |entry: &ProcessEntry| entry.pid == number && entry.start != lifeline.start;
                (!table.iter().any(is_anothers)).then_some(number)
            }
        }
    }

    /// Returns whether a process of its session may be of its tree: nobody there is older than the lifeline.
    pub(crate) fn may_have_started(&self, entry: &ProcessEntry) -> bool {
        match self {
            Self::Child(_) => true,
            Self::Stranger(DetachedLifeline { lifeline, .. }) => entry.start >= lifeline.start,
        }
    }

    /// Returns whether it has ended, with its watcher, and reaps them if they are ours. Never waits.
    pub(crate) fn try_reap(&mut self) -> Option<Exit> {
        match self {
            Self::Child(process) => process.try_reap(),
            Self::Stranger(DetachedLifeline { lifeline, watcher }) => {
                let mut all = [*lifeline].into_iter().chain(*watcher);
                all.all(has_ended).then_some(Exit::Unknown)
            }
        }
    }

    /// Sends it a signal, and never another process.
    pub(crate) fn signal(&self, signal: Signal) {
        match self {
            Self::Child(process) => process.signal(signal),
            // A process that has gone needs no signal.
            Self::Stranger(DetachedLifeline { lifeline, .. }) => drop(lifeline.signal(signal)),
        }
    }

    /// Kills it. Its watcher, which ends what a killed lifeline leaves, goes on if somebody has stopped it.
    pub(crate) fn kill(&self) {
        self.signal(Signal::KILL);
        self.signal_watcher(Signal::CONT);
    }

    /// Kills it and its watcher.
    pub(crate) fn kill_with_watcher(&self) {
        self.signal(Signal::KILL);
        self.signal_watcher(Signal::KILL);
    }

    fn signal_watcher(&self, signal: Signal) {
        if let Self::Stranger(DetachedLifeline { watcher: Some(watcher), .. }) = self {
            let _ = watcher.signal(signal);
        }
    }
}

/// Returns whether a process has ended, and reaps it if it has come to us: the first process of a container is the parent of every orphan.
fn has_ended(identity: Identity) -> bool {
    let number = i32::try_from(identity.pid).ok().and_then(Pid::from_raw);
    let entry = number.and_then(system::look).filter(|entry| entry.start == identity.start);
    let Some(entry) = entry else { return true };
    if entry.is_zombie && entry.parent == getpid().as_raw_nonzero().get() {
        // It is a zombie and our child, so this neither waits nor takes another's status.
        let _ = waitpid(Some(entry.pid), WaitOptions::NOHANG);
    }
    entry.is_zombie
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{sleeper, wait_until};

    fn stranger(lifeline: Identity) -> LifelineProcess {
        LifelineProcess::Stranger(DetachedLifeline { lifeline, watcher: None })
    }

    #[test]
    fn a_stranger_is_known_by_its_start_and_its_end_is_seen() {
        let mut process = sleeper();
        let identity = Identity::of(process.pid()).unwrap();
        let mut lifeline = stranger(identity);
        let mut another = stranger(Identity { start: identity.start + 1, ..identity });
        let table = system::table();
        assert_eq!(lifeline.number_in(&table), Some(process.id()));
        assert_eq!(another.number_in(&table), None, "j_pid_reuse");
        let entry = table.iter().find(|entry| entry.pid == process.id()).unwrap();
        assert!(lifeline.may_have_started(entry) && !another.may_have_started(entry));
        another.signal(Signal::KILL);
        assert_eq!((lifeline.try_reap(), another.try_reap()), (None, Some(Exit::Unknown)));
        lifeline.signal(Signal::KILL);
        wait_until("its end is seen", || lifeline.try_reap().is_some());
        // It was reaped by its parent, who is the test here, as if it had come to us.
        assert_eq!(system::look(process.id()), None);
        assert_eq!(process.try_reap(), Some(Exit::Unknown));
    }

    #[test]
    fn a_lifeline_whose_watcher_still_ends_what_it_left_has_not_gone() {
        let [mut process, mut above] = [(); 2].map(|()| sleeper());
        let [identity, watcher] = [&process, &above].map(|process| Identity::of(process.pid()).unwrap());
        let detached = DetachedLifeline { lifeline: identity, watcher: Some(watcher) };
        let mut lifeline = LifelineProcess::Stranger(detached);
        lifeline.signal(Signal::KILL);
        wait_until("the lifeline ends", || process.try_reap().is_some());
        assert_eq!(lifeline.try_reap(), None);
        lifeline.kill_with_watcher();
        wait_until("both have ended", || lifeline.try_reap().is_some());
        above.try_reap();
    }
}
