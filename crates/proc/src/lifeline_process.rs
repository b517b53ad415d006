//! The lifeline as its owner sees it: a child, or a process that somebody else has started.
//!
//! Invariants: a child is signalled and its number is used only until it is reaped. The number of a stranger is used only while a look shows
//! the same start time, or while nobody else has it.

use rustix::process::{Pid, Signal};

use crate::{
    identity::Identity,
    spawn::{Exit, Process},
    table::ProcessEntry,
};

/// A lifeline.
#[derive(Debug)]
pub(crate) enum LifelineProcess {
    /// We started it and reap it.
    Child(Process),
    /// It was handed over to us. Its parent reaps it.
    Stranger(Identity),
}

impl LifelineProcess {
    /// Returns its number.
    pub(crate) fn pid(&self) -> u32 {
        match self {
            Self::Child(process) => process.pid(),
            Self::Stranger(identity) => identity.pid,
        }
    }

    /// Returns its number in the form that the process table uses; `None` if the table shows another process under it.
    pub(crate) fn number_in(&self, table: &[ProcessEntry]) -> Option<Pid> {
        match self {
            Self::Child(process) => Some(process.id()),
            Self::Stranger(identity) => {
                let number = Pid::from_raw(i32::try_from(identity.pid).ok()?)?;
                let is_anothers = |entry: &ProcessEntry| entry.pid == number && entry.start != identity.start;
                (!table.iter().any(is_anothers)).then_some(number)
            }
        }
    }

    /// Returns whether a process of its session may be of its tree: nobody there is older than the lifeline.
    pub(crate) fn may_have_started(&self, entry: &ProcessEntry) -> bool {
        match self {
            Self::Child(_) => true,
            Self::Stranger(identity) => entry.start >= identity.start,
        }
    }

    /// Returns whether it has ended, and reaps it if it is ours. Never waits.
    pub(crate) fn try_reap(&mut self) -> Option<Exit> {
        match self {
            Self::Child(process) => process.try_reap(),
            Self::Stranger(identity) => (!identity.is_alive()).then_some(Exit::Unknown),
        }
    }

    /// Sends it a signal, and never another process.
    pub(crate) fn signal(&self, signal: Signal) {
        match self {
            Self::Child(process) => process.signal(signal),
            // A process that has gone needs no signal.
            Self::Stranger(identity) => drop(identity.signal(signal)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        system,
        testing::{sleeper, wait_until},
    };

    #[test]
    fn a_stranger_is_known_by_its_start_and_its_end_is_seen() {
        let mut process = sleeper();
        let identity = Identity::of(process.pid()).unwrap();
        let mut lifeline = LifelineProcess::Stranger(identity);
        let mut another = LifelineProcess::Stranger(Identity { start: identity.start + 1, ..identity });
        let table = system::table();
        assert_eq!(lifeline.number_in(&table), Some(process.id()));
        assert_eq!(another.number_in(&table), None, "j_pid_reuse");
        let entry = table.iter().find(|entry| entry.pid == process.id()).unwrap();
        assert!(lifeline.may_have_started(entry) && !another.may_have_started(entry));
        another.signal(Signal::KILL);
        assert_eq!((lifeline.try_reap(), another.try_reap()), (None, Some(Exit::Unknown)));
        lifeline.signal(Signal::KILL);
        wait_until("its end is seen", || lifeline.try_reap().is_some());
        // It was left for its parent to reap, who is the test here.
        assert_eq!(process.try_reap(), Some(Exit::Signal(9)));
    }
}
