//! What `/proc` says about processes: which there are, what they hold open, their peak of memory, their processor time.
//!
//! # Invariants
//!
//! - A process that has gone meanwhile has nothing.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::fd::BorrowedFd;
use rustix::process::Signal;

use crate::pinned_process::PinnedProcess;

/// A process that cannot be taken for a later one with the same number.
pub struct WatchedProcess {
    pid: u32,
    pinned: PinnedProcess,
    /// Whether it is the server itself, which no way adds.
    pub is_server: bool,
}

impl WatchedProcess {
    /// Finds the process that has this number now.
    pub fn open(pid: u32, server: &[String]) -> Option<Self> {
        let pinned = PinnedProcess::open(pid)?;
        Some(Self { pid, pinned, is_server: words(pid) == server })
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its name in the table of processes; `None` when it has gone.
    #[must_use]
    pub fn name(&self) -> Option<String> {
        Some(fs::read_to_string(format!("/proc/{}/comm", self.pid)).ok()?.trim_end().to_owned())
    }

    /// Its command line, the words separated by blanks.
    #[must_use]
    pub fn command_line(&self) -> String {
        words(self.pid).join(" ")
    }

    /// Its state as the kernel names it, such as `S (sleeping)` or `T (stopped)`; empty once it has gone.
    #[must_use]
    pub fn state(&self) -> String {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let state = status.lines().find_map(|line| line.strip_prefix("State:"));
        state.map_or_else(String::new, |state| state.trim().to_owned())
    }

    /// Waits until it has ended; false when it has not within the limit.
    pub fn wait(&self, limit: Duration) -> io::Result<bool> {
        self.pinned.wait(limit)
    }

    /// Kills it, if it is still there.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Sends it a signal, if it is still there.
    pub fn signal(&self, signal: Signal) {
        self.pinned.signal(signal);
    }

    /// A descriptor that polls as readable once the process has ended.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.pinned.as_fd()
    }

    /// Whether its first words after the program are these.
    #[must_use]
    pub fn begins_with(&self, expected: &[&str]) -> bool {
        words(self.pid)
            .get(1..)
            .is_some_and(|rest| rest.len() >= expected.len() && rest[..expected.len()] == *expected)
    }

    /// Its peak of resident memory in bytes.
    pub fn peak_memory(&self) -> Option<u64> {
        kilobytes(&fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?, "VmHWM:")
            .map(|kb| kb << 10)
    }

    /// The processor time of its threads; `None` where the kernel does not count it.
    pub fn processor_time(&self) -> Option<Duration> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid)).ok()?;
        let used = threads.flatten().map(|thread| {
            let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
            text.split_ascii_whitespace().next()?.parse().ok().map(Duration::from_nanos)
        });
        used.sum()
    }
}

/// Returns these processes, all below them, and those that name one of them as their owner because they have left its tree; the one that
/// runs the command `server` is marked.
pub fn tree(roots: &[u32], server: &[String]) -> Vec<WatchedProcess> {
    let table = table();
    let mut tree = roots.to_vec();
    let mut looked_at = 0;
    while let Some(&parent) = tree.get(looked_at) {
        let owner = format!("--owner={parent}");
        let is_of = |(pid, of): &&(u32, u32)| {
            *of == parent || words(*pid).get(1..).is_some_and(|words| words.contains(&owner))
        };
        let found: Vec<u32> = table.iter().filter(is_of).map(|(pid, _)| *pid).collect();
        tree.extend(found.into_iter().filter(|pid| !tree.contains(pid)).collect::<Vec<_>>());
        looked_at += 1;
    }
    tree.into_iter().filter_map(|pid| WatchedProcess::open(pid, server)).collect()
}

/// Returns all processes below this one by their parents, each behind its own parent.
#[must_use]
pub fn below(root: u32) -> Vec<WatchedProcess> {
    let table = table();
    let mut tree = vec![root];
    let mut looked_at = 0;
    while let Some(&parent) = tree.get(looked_at) {
        tree.extend(table.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        looked_at += 1;
    }
    tree.into_iter().skip(1).filter_map(|pid| WatchedProcess::open(pid, &[])).collect()
}

/// Returns the processes that carry this text, as a word of their command line or in their environment.
#[must_use]
pub fn marked(marker: &str) -> Vec<WatchedProcess> {
    let carries = |pid: u32| {
        let part = |file| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let is_in = |bytes: Vec<u8>| {
            bytes.split(|byte| matches!(byte, 0 | b'=')).any(|word| word == marker.as_bytes())
        };
        is_in(part("cmdline")) || is_in(part("environ"))
    };
    let found = pids().filter(|pid| carries(*pid)).filter_map(|pid| WatchedProcess::open(pid, &[]));
    // Looked at again through the descriptor's number, which by now cannot be another process's.
    found.filter(|process| carries(process.pid)).collect()
}

/// Returns the processes whose current folder is this one or below it.
pub fn standing_in(folder: &Path) -> Vec<WatchedProcess> {
    let stands =
        |pid: u32| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|current| current.starts_with(folder));
    let found = pids().filter(|pid| stands(*pid)).filter_map(|pid| WatchedProcess::open(pid, &[]));
    // As above.
    found.filter(|process| stands(process.pid)).collect()
}

/// How many processes, this one apart, have the pipe with this inode open.
#[must_use]
pub fn holders_of_pipe(inode: u64) -> usize {
    let link = format!("pipe:[{inode}]");
    let holds = |pid: &u32| {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        descriptors
            .filter_map(|entry| fs::read_link(entry.path()).ok())
            .any(|open| open.as_os_str() == &*link)
    };
    pids().filter(|pid| *pid != std::process::id()).filter(holds).count()
}

/// The resident memory of a process, in bytes.
pub fn resident_memory(pid: u32) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let resident = kilobytes(&status, "VmRSS:").ok_or(io::ErrorKind::InvalidData)?;
    Ok(resident << 10)
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Every process and its parent.
fn table() -> Vec<(u32, u32)> {
    pids()
        .filter_map(|pid| Some((pid, parent(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?)))
        .collect()
}

/// Reads the parent from a line of `stat`, whose second field may contain anything.
fn parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn words(pid: u32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = bytes.strip_suffix(b"\0").unwrap_or(&bytes).split(|byte| *byte == 0);
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

fn kilobytes(status: &str, field: &str) -> Option<u64> {
    let rest = status.lines().find_map(|line| line.strip_prefix(field))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        assert_eq!(parent("12 (a) b) S 7 12 12 0"), Some(7));
        assert_eq!(kilobytes("VmPeak:\t 99 kB\nVmHWM:\t    2048 kB\n", "VmHWM:"), Some(2048));
        assert_eq!(kilobytes("", "VmHWM:"), None);
    }

    #[test]
    fn a_process_is_among_those_below_itself_and_known_by_its_words() {
        let own = std::process::id();
        let found = tree(&[own], &words(own));
        assert!(found[0].pid == own && found[0].is_server);
        assert!(found[0].peak_memory().expect("a peak") > 0);
        assert!(!found[0].wait(Duration::ZERO).expect("a process"), "this one still runs");
        assert!(!tree(&[own], &["another".to_owned()])[0].is_server);
        let first = words(own).into_iter().nth(1);
        assert!(found[0].begins_with(&first.iter().map(String::as_str).collect::<Vec<_>>()));
        assert!(!found[0].begins_with(&["another"]));
    }
}
