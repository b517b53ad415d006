//! Ends a set of processes that may be growing while we look at it.
//!
//! A round stops everything in sight, looks again until nothing changes, and then kills. A stopped process cannot fork, so a tree that
//! forks all the time stands still before it is killed (processes.md 1.4).
//!
//! A look is not one moment: it lists the numbers first, and reads each process later. A process may start another one in between and end.
//! Then the look shows a dead parent, and no child. So one look never tells that nobody is left: the next one has to show the same.
//!
//! Invariants
//!
//! - A round does not wait. The caller repeats rounds until one finds no living process, with a limit of its own.
//! - A round kills what it has stopped, or lets it go on: a process that begins under another name is known by its own name a moment later.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use rustix::process::{Pid, Signal};

use crate::{system, table::ProcessEntry, tree::now};

/// How long a sweep goes on before it reports the processes that it could not kill. A faster fork bomb may win against a sweep, so it has
/// to have an end (processes.md 1.4).
pub const LIMIT: Duration = Duration::from_secs(2);
/// The pause between two rounds, in which the killed processes have time to die.
pub(crate) const PAUSE: Duration = Duration::from_millis(3);
/// The most looks in one round. Each costs a walk through the table. A process that the last look does not show is left to the next round.
const LOOKS: usize = 8;

/// Finds the processes that a sweep ends, in the order of the table.
pub(crate) type ProcessSelection<'a> = dyn Fn(&[ProcessEntry]) -> Vec<ProcessEntry> + 'a;

/// The processes that a sweep has met so far.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    met: HashSet<(Pid, u64)>,
}

impl Sweep {
    /// Notes which processes are alive before anything is killed, for the count.
    pub(crate) fn note(&mut self, entries: &[ProcessEntry]) {
        self.met
            .extend(entries.iter().filter(|entry| !entry.is_zombie).map(|entry| (entry.pid, entry.start)));
    }

    /// Stops and kills, in one round, the processes that `select` finds in the table. Returns how many were alive. If no two looks in a row
    /// were equal, it returns one at least.
    pub(crate) fn round(&mut self, select: &ProcessSelection<'_>) -> u32 {
        let mut stopped = HashMap::new();
        let mut shown = None;
        let mut entries = Vec::new();
        let mut is_settled = false;
        for _ in 0..LOOKS {
            entries = select(&system::table());
            let shows: Vec<_> =
                entries.iter().map(|entry| (entry.pid, entry.start, entry.is_zombie)).collect();
            entries.retain(|entry| !entry.is_zombie);
            for entry in &entries {
                stopped.entry((entry.pid, entry.start)).or_insert_with(|| {
                    system::signal(entry, Signal::STOP);
                    *entry
                });
            }
            is_settled = shown.as_ref() == Some(&shows);
            shown = Some(shows);
            if is_settled {
                break;
            }
        }
        self.note(&entries);
        for entry in &entries {
            system::signal(entry, Signal::KILL);
            stopped.remove(&(entry.pid, entry.start));
        }
        for spared in stopped.values() {
            system::signal(spared, Signal::CONT);
        }
        u32::try_from(entries.len()).unwrap_or(u32::MAX).max(u32::from(!is_settled))
    }

    /// Repeats rounds until `is_over` says that nobody is left, but until the time `until` at the latest. `is_over` is called after each
    /// round with the number of processes that were alive, and pauses. Returns how many are left.
    pub(crate) fn rounds(
        &mut self,
        until: Duration,
        select: &ProcessSelection<'_>,
        is_over: &mut dyn FnMut(u32) -> bool,
    ) -> u32 {
        loop {
            let alive = self.round(select);
            if is_over(alive) {
                return 0;
            }
            if now() >= until {
                return alive;
            }
        }
    }

    /// Returns how many different processes were met or are among `others`, not counting `except`.
    pub(crate) fn met(&self, except: &[Pid], others: &[Pid]) -> u32 {
        let mut met: HashSet<Pid> = self.met.iter().map(|(pid, _)| *pid).collect();
        met.extend(others);
        met.retain(|pid| !except.contains(pid));
        u32::try_from(met.len()).unwrap_or(u32::MAX)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;
    use crate::{
        spawn::Process,
        testing::{sleeper, wait_until},
    };

    /// A round over two processes, of which the second is born after the first look. `at_second_look` is called before
    /// that look. Returns how many were alive.
    fn round_over_a_growing_tree(at_second_look: impl Fn(&Process)) -> u32 {
        let tree = RefCell::new(vec![sleeper()]);
        let select = |table: &[ProcessEntry]| -> Vec<ProcessEntry> {
            let mut tree = tree.borrow_mut();
            let is_second_look = tree.len() == 2;
            if is_second_look {
                at_second_look(&tree[0]);
            }
            let is_seen = |entry: &&ProcessEntry| tree.iter().any(|process| process.id() == entry.pid);
            let seen = table.iter().filter(is_seen).copied().collect();
            if !is_second_look {
                tree.push(sleeper());
            }
            seen
        };
        let alive = Sweep::default().round(&select);
        for mut process in tree.into_inner() {
            process.signal(Signal::KILL);
            process.try_reap();
        }
        alive
    }

    /// A call holder has its own name some milliseconds after its start.
    #[test]
    fn what_is_spared_at_a_later_look_goes_on() {
        let process = sleeper();
        let looks = Cell::new(0);
        let is_stopped = || {
            let status = std::fs::read_to_string(format!("/proc/{}/stat", process.pid())).unwrap();
            status.contains(") T ")
        };
        let alive = Sweep::default().round(&|table| {
            looks.set(looks.get() + 1);
            if looks.get() > 1 {
                wait_until("it is stopped", is_stopped);
                return Vec::new();
            }
            table.iter().filter(|entry| entry.pid == process.id()).copied().collect()
        });
        wait_until("it goes on", || !is_stopped());
        assert_eq!((alive, looks.get()), (0, 3), "it is not in the last two looks");
        process.signal(Signal::KILL);
    }

    #[test]
    fn what_is_born_during_a_look_falls_in_the_same_round() {
        assert_eq!(round_over_a_growing_tree(|_| {}), 2);
    }

    /// The looks of one round, which show these processes; each look shows the last ones if there are no more.
    fn round_of_looks(looks: &[Vec<ProcessEntry>]) -> u32 {
        let next = Cell::new(0);
        Sweep::default().round(&|_| {
            let look = next.replace(next.get() + 1).min(looks.len() - 1);
            looks[look].clone()
        })
    }

    /// Its parent ended after the look had listed the numbers, and its own number is newer than the list.
    #[test]
    fn the_child_of_a_process_that_ended_during_a_look_is_found() {
        let mut parent = sleeper();
        let mut child = sleeper();
        let [before, born] = [&parent, &child].map(|process| system::look(process.id()).unwrap());
        parent.signal(Signal::KILL);
        wait_until("it ends", || system::look(parent.id()).is_some_and(|entry| entry.is_zombie));
        let ended = system::look(parent.id()).unwrap();
        assert_eq!(round_of_looks(&[vec![ended], vec![ended, born]]), 1, "its parent is not reaped");
        assert_eq!(round_of_looks(&[vec![], vec![born]]), 1, "its parent is reaped");
        assert_eq!(round_of_looks(&[vec![before], vec![ended], vec![ended, born]]), 1);
        wait_until("the child is killed", || child.try_reap().is_some());
        parent.try_reap();
        assert_eq!(round_of_looks(&[vec![]]), 0, "two looks that show nobody");
    }

    #[test]
    fn a_round_whose_looks_differ_is_not_the_last() {
        let mut process = sleeper();
        process.signal(Signal::KILL);
        wait_until("it ends", || system::look(process.id()).is_some_and(|entry| entry.is_zombie));
        let ended = system::look(process.id()).unwrap();
        let looks: Vec<_> = (0..LOOKS).map(|look| vec![ended; look % 2]).collect();
        assert_eq!(round_of_looks(&looks), 1);
        process.try_reap();
    }

    /// What is stopped gives birth no more, so that a look can be the last.
    #[test]
    fn what_was_seen_stands_still_at_the_next_look() {
        let stands_still = |process: &Process| {
            let status = std::fs::read_to_string(format!("/proc/{}/stat", process.pid())).unwrap();
            status.contains(") T ")
        };
        round_over_a_growing_tree(|process| wait_until("it is stopped", || stands_still(process)));
    }
}
