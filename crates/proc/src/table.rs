//! One look at the system's processes, as plain data.
//!
//! Invariants: an entry names a process by number *and* start time; the two together are never given out twice.

use std::collections::HashSet;

use rustix::process::Pid;

/// One process at the moment of the look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessEntry {
    pub(crate) pid: Pid,
    /// Number of the parent; 0 stands for no parent.
    pub(crate) parent: i32,
    pub(crate) session: i32,
    pub(crate) group: i32,
    /// Start time in the system's own unit; only equality means anything.
    pub(crate) start: u64,
    /// Whether it has ended, and only waits for its parent to take note.
    pub(crate) is_zombie: bool,
    /// Processor time of the process and of the children that it has reaped, in clock ticks.
    pub(crate) ticks: u64,
    /// Processor time of the children that it has reaped, in clock ticks.
    pub(crate) reaped_ticks: u64,
}

/// Lists all descendants of `root`, without `root` itself, parents before children.
pub(crate) fn descendants(table: &[ProcessEntry], root: Pid) -> Vec<ProcessEntry> {
    let mut found: Vec<ProcessEntry> = Vec::new();
    let mut parents = HashSet::from([root.as_raw_nonzero().get()]);
    loop {
        let before = found.len();
        for entry in table {
            let pid = entry.pid.as_raw_nonzero().get();
            if parents.contains(&entry.parent) && parents.insert(pid) {
                found.push(*entry);
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(pid: i32, parent: i32) -> ProcessEntry {
        let pid = Pid::from_raw(pid).unwrap();
        ProcessEntry {
            pid,
            parent,
            session: 1,
            group: 1,
            start: 1,
            is_zombie: false,
            ticks: 0,
            reaped_ticks: 0,
        }
    }

    #[test]
    fn descendants_are_found_in_any_order_of_numbers_and_without_their_root() {
        // Numbers wrap around, so that a child may have a lower one than its parent.
        let table = [entry(3, 9), entry(9, 5), entry(5, 1), entry(7, 1), entry(4, 3)];
        let found: Vec<i32> = descendants(&table, Pid::from_raw(5).unwrap())
            .iter()
            .map(|entry| entry.pid.as_raw_nonzero().get())
            .collect();
        assert_eq!(found, [9, 3, 4]);
        assert!(descendants(&table, Pid::from_raw(4).unwrap()).is_empty());
    }

    #[test]
    fn a_circle_ends() {
        let table = [entry(2, 3), entry(3, 2)];
        assert_eq!(descendants(&table, Pid::from_raw(2).unwrap()).len(), 1);
    }
}
