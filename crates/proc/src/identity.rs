//! One process, named so that it cannot be taken for another.
//!
//! Invariants: the system gives a number out again, but never twice with the same start time while it runs. So number and start time name
//! one process of this boot. With the [`boot_id`] beside them they name one process for ever, in this container too.

use std::{ffi::CStr, io, time::Duration};

use rustix::process::{Pid, Signal, getpid};

use crate::{system, table::ProcessEntry};

/// A process, whether it still lives or not. A caller that writes it down writes the [`boot_id`] beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Its number.
    pub pid: u32,
    /// When it started, in the system's own unit; only equality means anything.
    pub start: u64,
}

impl Identity {
    /// Finds the process that has this number now; `None` if there is none.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        look(pid).map(Self::from)
    }

    /// Identifies this process; `None` if the system does not tell, as without /proc.
    #[must_use]
    pub fn own() -> Option<Self> {
        system::look(getpid()).map(Self::from)
    }

    /// Returns whether the process lives. A zombie, which has ended and waits for its parent to take note, does not.
    #[must_use]
    pub fn is_alive(self) -> bool {
        self.entry().is_some_and(|entry| !entry.is_zombie)
    }

    /// Sends the process a signal, and never another process that has its number by now. Returns `false` if it has gone, or if we may not
    /// signal it.
    #[must_use]
    pub fn signal(self, signal: Signal) -> bool {
        self.entry().is_some_and(|entry| system::signal(&entry, signal))
    }

    fn entry(self) -> Option<ProcessEntry> {
        look(self.pid).filter(|entry| entry.start == self.start)
    }
}

impl From<ProcessEntry> for Identity {
    fn from(entry: ProcessEntry) -> Self {
        Self { pid: entry.pid.as_raw_nonzero().get().unsigned_abs(), start: entry.start }
    }
}

fn look(pid: u32) -> Option<ProcessEntry> {
    system::look(i32::try_from(pid).ok().and_then(Pid::from_raw)?)
}

/// Returns a name of the period in which the numbers of processes mean the same. The text differs after each start of the system, and of
/// the container if we are in one. A container that is started again counts from one again. Its few numbers soon mean other processes,
/// though the system has not been started anew.
///
/// # Errors
/// Fails with the system's error if the system does not tell.
pub fn boot_id() -> io::Result<String> {
    let first = system::look(Pid::INIT).map_or(0, |first| first.start);
    Ok(format!("{}-{first}", system::boot_id()?))
}

/// Returns the part of a [`boot_id`] that is the same for all processes on this system, in whatever container they are. It changes with
/// each start of the system. Numbers of processes mean the same only if the whole texts are the same.
#[must_use]
pub fn kernel_boot(boot_id: &str) -> &str {
    boot_id.rsplit_once('-').map_or(boot_id, |(kernel, _)| kernel)
}

/// Returns whether two [`boot_id`]s are of the same start of the system, even in two containers.
#[must_use]
pub fn is_same_boot(one: &str, other: &str) -> bool {
    kernel_boot(one) == kernel_boot(other)
}

/// Returns the time since the system was started, its sleep included, by a clock that nobody sets; `None` if there is no such clock.
#[must_use]
pub fn since_boot() -> Option<Duration> {
    system::since_boot()
}

/// Lets this thread run soon after it was woken, also on a busy machine. In return its turns are short. A process or thread that it starts
/// from then on has turns as usual.
///
/// This is for a thread that sleeps nearly always and must not be late. In a measurement with ten others running on two processors, a
/// look at a log that grew by 1 GB a second came up to 60 ms late without this call. With it, the look came less than 20 ms late. A nice
/// value would need privileges.
pub fn ask_for_short_turns() {
    system::ask_for_turns(Some(SHORT_TURN));
}

/// Takes [`ask_for_short_turns`] back: if two threads have both asked, neither comes sooner.
pub fn ask_for_usual_turns() {
    system::ask_for_turns(None);
}

/// The shortest turn that the system offers.
const SHORT_TURN: Duration = Duration::from_micros(100);

/// Sets the name that `ps` and `pkill` see. The name is a convenience: if it cannot be set, the old one stays.
pub fn set_process_name(name: &CStr) {
    system::set_name(name);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{sleeper, wait_until};

    #[test]
    fn j_pid_reuse_another_start_time_is_another_process() {
        let own = Identity::own().unwrap();
        assert_eq!(Identity::of(std::process::id()), Some(own));
        assert!(own.is_alive());
        let other = Identity { start: own.start + 1, ..own };
        assert!(!other.is_alive());
        // A signal to ourselves would end the test.
        assert!(!other.signal(Signal::KILL));
    }

    #[test]
    fn a_number_that_nobody_has_is_nobody() {
        for pid in [0, u32::MAX, i32::MAX.unsigned_abs()] {
            assert_eq!(Identity::of(pid), None);
        }
    }

    #[test]
    fn who_has_ended_is_not_alive_and_who_was_reaped_has_gone() {
        let mut process = sleeper();
        let identity = Identity::of(process.pid()).unwrap();
        assert!(identity.is_alive());
        assert!(identity.signal(Signal::KILL));
        // Nobody reaps it meanwhile.
        wait_until("it ends", || !identity.is_alive());
        assert_eq!(Identity::of(process.pid()), Some(identity));
        wait_until("it is reaped", || process.try_reap().is_some());
        assert!(!identity.signal(Signal::KILL));
    }

    #[test]
    fn a_boot_has_one_name() {
        let id = boot_id().unwrap();
        assert_eq!(boot_id().unwrap(), id);
        assert!(id.len() >= 32 && id.trim() == id, "{id}");
    }

    #[test]
    fn f_04_containers_on_one_system_share_its_boot() {
        let own = boot_id().unwrap();
        let kernel = kernel_boot(&own);
        assert!(is_same_boot(&own, &format!("{kernel}-123456")));
        assert!(!is_same_boot(
            &own,
            &format!("{}-1", kernel.replace(|digit: char| digit.is_ascii_hexdigit(), "0"))
        ));
        assert!(is_same_boot("no-dash", "no-other") && !is_same_boot("one", "other"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_container_that_is_started_again_is_another_boot() {
        let first = Identity::of(1).unwrap();
        assert!(boot_id().unwrap().ends_with(&format!("-{}", first.start)));
    }
}
