//! Ends the processes that a dead supervisor of a job held (see [`tree`](crate::tree)). The caller never was their parent, and may come
//! long after. The code calls the supervisor a shim.
//!
//! Invariants
//! - This process, its ancestors and the processes that the caller spares are never ended.
//! - A process is signalled only by pidfd and start time. A control group is killed only if it is the kernel's, has the name that the
//!   supervisor gave it, and holds no spared process.
//! - It ends within [`SWEEP_LIMIT`] and reports what is left.
//!
//! It finds these processes, each with all its descendants:
//! - Everything in the supervisor's control group, if it had one.
//! - Everything in the supervisor's session. The session's number is that of the supervisor, and the kernel gives it to nobody else as long
//!   as one process is in the session. If a *living* process has the number and is not the supervisor, then the session had ended before. A
//!   process in a session of that number is then unrelated. One case remains, all between the supervisor's death and this look. Everybody
//!   had gone; an unrelated process got the number, made a session, left a process in it and has ended itself. So the look should not be
//!   put off. It must never be about a supervisor of another [boot](crate::identity::boot_id), of which nothing is left anyway.
//! - Every orphan that came to us, if the caller says that these can only be the supervisor's: the caller is then its
//!   [watcher](crate::watch). None of them gets away.
//! - Every process of our user that was started with the cookie in its environment. A process can give its descendants another environment,
//!   so this is the last resort. Without a control group, a process gets away that changed its environment, left the session and has lost
//!   its parents.

use std::{collections::HashSet, ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use rustix::process::{Pid, getpid};

use crate::{
    identity::Identity,
    pipe::wait,
    rescue::{orphans, reap_orphans},
    sweep::{self, Sweep},
    system::{self, control_group},
    table::{ProcessEntry, descendants},
    tree::{SWEEP_LIMIT, SweptTree, now},
};

/// A dead supervisor of a job, and the facts that are known of the processes that it held.
#[derive(Clone, Copy, Debug)]
pub struct DeadShim<'a> {
    /// The supervisor, which led a session of its own. The caller has to know that it is dead, and of this boot; a living one is ended with
    /// the rest. `None` if nobody knows any more which it was: then the cookie alone finds processes.
    pub shim: Option<Identity>,
    /// The folder of its control group, if it had one.
    pub group: Option<&'a Path>,
    /// The variable that it put into the environment of its tree, and that nobody else has: `NAME=value`. A text of another form finds
    /// nothing.
    pub cookie: &'a OsStr,
    /// Processes that are left alone, whatever they belong to. That does not spare the processes that they started.
    pub spared: &'a [Identity],
    /// Whether the [orphans that came to us](crate::adopt_orphans) are all its own.
    pub with_orphans: bool,
}

/// Ends everything that is left, and reports what that was. The sweep takes milliseconds, and [`SWEEP_LIMIT`] if a process cannot be
/// killed. It belongs on a thread on which nobody else waits: it sleeps, and looks into processes that the kernel may hold up.
#[must_use]
pub fn end(remains: &DeadShim<'_>) -> SweptTree {
    let until = now() + SWEEP_LIMIT;
    let group =
        remains.group.zip(remains.shim).filter(|(group, shim)| control_group::is_made_by(group, *shim));
    let group = group.map(|(group, _)| group);
    let select = |table: &[ProcessEntry]| {
        let members = group.map(control_group::members).unwrap_or_default();
        remains.found(table, &members)
    };
    let mut sweep = Sweep::default();
    let table = system::table();
    sweep.note(&select(&table));
    // A group with a spared process is left, and the others in it are ended one by one.
    let emptied = group.filter(|group| !remains.shelters(group, &table));
    if let Some(group) = emptied {
        // If this fails, the sweep still ends the processes one by one.
        let _ = control_group::kill(group);
    }
    let unkilled = sweep.rounds(until, &select, &mut |alive| {
        reap_orphans();
        let is_over = alive == 0 && emptied.is_none_or(control_group::remove);
        if !is_over {
            wait(&mut [], Some(sweep::PAUSE));
        }
        is_over
    });
    SweptTree { leaked: sweep.met(&[], &[]), unkilled }
}

/// Ends all orphans that came to us, if there is nothing else to go by.
#[must_use]
pub fn end_orphans() -> SweptTree {
    end(&DeadShim { shim: None, group: None, cookie: OsStr::new(""), spared: &[], with_orphans: true })
}

impl DeadShim<'_> {
    /// Finds every process that is to be ended.
    fn found(&self, table: &[ProcessEntry], members: &HashSet<Pid>) -> Vec<ProcessEntry> {
        self.found_among(table, members, |pid| has_cookie(pid, self.cookie))
    }

    fn found_among(
        &self,
        table: &[ProcessEntry],
        members: &HashSet<Pid>,
        has_cookie: impl Fn(Pid) -> bool,
    ) -> Vec<ProcessEntry> {
        let session = self.session(table);
        // The table is without the protected processes, so no chain of parents leads through them either.
        let table = self.without_protected(table);
        let orphans = if self.with_orphans { orphans(&table) } else { Vec::new() };
        let is_found = |entry: &&ProcessEntry| {
            members.contains(&entry.pid)
                || orphans.iter().any(|orphan| orphan.pid == entry.pid)
                || (session == Some(entry.session) && self.may_have_started(entry))
                || has_cookie(entry.pid)
        };
        let mut found: Vec<ProcessEntry> = table.iter().filter(is_found).copied().collect();
        let roots: Vec<Pid> = found.iter().map(|entry| entry.pid).collect();
        for root in roots {
            found.extend(descendants(&table, root));
        }
        found.sort_unstable_by_key(|entry| entry.pid.as_raw_nonzero());
        found.dedup_by_key(|entry| entry.pid);
        found
    }

    fn may_have_started(&self, entry: &ProcessEntry) -> bool {
        self.shim.is_none_or(|shim| entry.start >= shim.start)
    }

    /// Returns the number of the supervisor's session; `None` if it was given out again.
    fn session(&self, table: &[ProcessEntry]) -> Option<i32> {
        let shim = self.shim?;
        let number = i32::try_from(shim.pid).ok().and_then(Pid::from_raw)?;
        let is_anothers = |entry: &ProcessEntry| entry.pid == number && entry.start != shim.start;
        if table.iter().any(is_anothers) {
            return None;
        }
        Some(number.as_raw_nonzero().get())
    }

    /// Returns the table without this process, its ancestors, and the spared processes.
    fn without_protected(&self, table: &[ProcessEntry]) -> Vec<ProcessEntry> {
        let mut protected = HashSet::from([getpid()]);
        let mut child = getpid();
        while let Some(entry) = table.iter().find(|entry| entry.pid == child)
            && let Some(parent) = Pid::from_raw(entry.parent)
            && protected.insert(parent)
        {
            child = parent;
        }
        let is_spared = |entry: &ProcessEntry| {
            protected.contains(&entry.pid) || self.spared.contains(&Identity::from(*entry))
        };
        table.iter().filter(|entry| !is_spared(entry)).copied().collect()
    }

    /// Returns whether the group holds a process that is not to be ended.
    fn shelters(&self, group: &Path, table: &[ProcessEntry]) -> bool {
        let to_end: HashSet<Pid> = self.without_protected(table).iter().map(|entry| entry.pid).collect();
        let is_known = |pid: &&Pid| table.iter().any(|entry| entry.pid == **pid);
        control_group::members(group).iter().filter(is_known).any(|pid| !to_end.contains(pid))
    }
}

/// Returns whether the environment that a process was started with has the cookie as one whole variable.
fn has_cookie(pid: Pid, cookie: &OsStr) -> bool {
    let cookie = cookie.as_bytes();
    // An empty cookie would be found behind the last variable of every process.
    let end_of_name = cookie.iter().position(|&byte| byte == b'=');
    let is_real = end_of_name.is_some_and(|end| 0 < end && end + 1 < cookie.len());
    if !is_real {
        return false;
    }
    system::environment(pid)
        .is_some_and(|environment| environment.split(|&byte| byte == 0).any(|entry| entry == cookie))
}

#[cfg(test)]
mod tests {
    use rustix::process::Signal;

    use super::*;
    use crate::{
        spawn::{Environment, Launch, spawn},
        testing::{sleeper, wait_until},
    };

    const SHIM: Identity = Identity { pid: 100, start: 50 };

    fn entry(pid: i32, parent: i32, session: i32, start: u64) -> ProcessEntry {
        let pid = Pid::from_raw(pid).unwrap();
        ProcessEntry { pid, parent, session, group: 1, start, is_zombie: false, ticks: 0, reaped_ticks: 0 }
    }

    /// Numbers of those who are found, where these are in the group and have the cookie.
    fn found(table: &[ProcessEntry], members: &[i32], marked: &[i32], spared: &[Identity]) -> Vec<i32> {
        let remains = DeadShim {
            shim: Some(SHIM),
            group: None,
            cookie: OsStr::new("A=B"),
            spared,
            with_orphans: false,
        };
        let members = members.iter().copied().filter_map(Pid::from_raw).collect();
        let has_cookie = |pid: Pid| marked.contains(&pid.as_raw_nonzero().get());
        let found = remains.found_among(table, &members, has_cookie);
        found.iter().map(|entry| entry.pid.as_raw_nonzero().get()).collect()
    }

    #[test]
    fn everything_is_found_by_group_session_or_cookie_and_with_its_descendants() {
        let table = [
            entry(1, 0, 1, 1),
            entry(101, 1, 101, 60),
            entry(102, 1, 100, 50),
            entry(103, 1, 103, 60),
            entry(99, 103, 99, 70),
            entry(104, 99, 104, 70),
            entry(105, 1, 105, 60),
        ];
        assert_eq!(found(&table, &[101], &[103], &[]), [99, 101, 102, 103, 104]);
        assert_eq!(found(&table, &[], &[], &[]), [102]);
    }

    #[test]
    fn j_pid_reuse_a_session_whose_number_was_given_out_again_is_another() {
        let table = [entry(100, 1, 100, 80), entry(101, 100, 100, 90), entry(102, 1, 100, 90)];
        assert_eq!(found(&table, &[], &[], &[]), []);
        // Also where it was given to somebody who is to be spared, such as ourselves.
        assert_eq!(found(&table, &[], &[], &[Identity { pid: 100, start: 80 }]), []);
        // The shim itself may still be there.
        let table = [entry(100, 1, 100, 50), entry(101, 100, 100, 90)];
        assert_eq!(found(&table, &[], &[], &[]), [100, 101]);
    }

    #[test]
    fn who_is_older_than_the_shim_was_not_started_by_it() {
        assert_eq!(found(&[entry(101, 1, 100, 49), entry(102, 1, 100, 50)], &[], &[], &[]), [102]);
    }

    #[test]
    fn who_started_us_is_never_found() {
        let own = getpid().as_raw_nonzero().get();
        let (parent, grandparent, child) = (own + 1, own + 2, own + 3);
        let table = [
            entry(grandparent, 1, 100, 60),
            entry(parent, grandparent, 100, 60),
            entry(own, parent, 100, 60),
            entry(child, own, 9, 60),
        ];
        let all = [own, parent, grandparent];
        assert_eq!(found(&table, &all, &all, &[]), []);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn f_96_orphans_are_found_where_they_can_only_be_of_that_shim() {
        crate::adopt_orphans().unwrap();
        // Numbers that the kernel gives to nobody.
        const ORPHAN: i32 = 5_000_001;
        const DESCENDANT: i32 = 5_000_002;
        let own = getpid().as_raw_nonzero().get();
        let process = sleeper();
        let started = process.pid().cast_signed();
        let table = [
            entry(own, 1, 7, 1),
            entry(ORPHAN, own, ORPHAN, 60),
            entry(DESCENDANT, ORPHAN, DESCENDANT, 60),
            entry(started, own, started, 60),
        ];
        let found = |with_orphans| {
            let remains = DeadShim {
                shim: Some(SHIM),
                group: None,
                cookie: OsStr::new("A=B"),
                spared: &[],
                with_orphans,
            };
            let found = remains.found_among(&table, &HashSet::new(), |_| false);
            found.iter().map(|entry| entry.pid.as_raw_nonzero().get()).collect::<Vec<_>>()
        };
        assert_eq!(found(false), []);
        assert_eq!(found(true), [ORPHAN, DESCENDANT], "what we started is none, and descendants come along");
        process.signal(Signal::KILL);
    }

    #[test]
    fn who_is_spared_is_not_found_and_not_walked_through() {
        let table = [entry(101, 1, 100, 60), entry(102, 101, 9, 60), entry(103, 101, 100, 60)];
        let spared = Identity { pid: 101, start: 60 };
        assert_eq!(found(&table, &[101], &[101], &[spared]), [103]);
        assert_eq!(found(&table, &[101], &[101], &[Identity { start: 61, ..spared }]), [101, 102, 103]);
    }

    /// Whether a process with the variable `UNHANG_TEST=one` is found by the cookie.
    fn is_found_by(cookie: &str) -> bool {
        let environment = Environment::Exactly(vec![("UNHANG_TEST".into(), "one".into())]);
        let arguments = ["3600".into()];
        let launch = Launch { environment: &environment, ..Launch::new(Path::new("/bin/sleep"), &arguments) };
        let mut process = spawn(launch).unwrap();
        let is_found = has_cookie(process.id(), OsStr::new(cookie));
        process.signal(Signal::KILL);
        wait_until("it ends", || process.try_reap().is_some());
        is_found
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_cookie_is_one_whole_variable() {
        assert!(is_found_by("UNHANG_TEST=one"));
        for other in ["UNHANG_TEST=on", "UNHANG_TEST=one1", "NHANG_TEST=one"] {
            assert!(!is_found_by(other), "{other}");
        }
    }

    #[test]
    fn what_is_no_cookie_finds_nobody() {
        for other in ["", "=", "UNHANG_TEST", "UNHANG_TEST=", "=one"] {
            assert!(!is_found_by(other), "{other}");
        }
    }
}
