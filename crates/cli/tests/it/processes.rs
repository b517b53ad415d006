//! What `/proc` says about the processes of a test: who they are, what they hold open, who their children are.
//!
//! Invariants: only looks; a process that has gone meanwhile has nothing.

use std::{
    fs,
    os::fd::{AsFd, AsRawFd},
    path::Path,
};

use crate::harness::{Client, PATIENCE, wait_until};

/// One line of the process table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) pid: i32,
    pub(crate) name: String,
    pub(crate) is_zombie: bool,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    pub(crate) session: i32,
    /// The time of its start, in the system's unit.
    pub(crate) start: u64,
}

/// The entry of a process, if it is there.
pub(crate) fn entry(pid: i32) -> Option<Entry> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (head, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    let mut number = || fields.next()?.parse().ok();
    Some(Entry {
        pid,
        name: head.split_once('(')?.1.to_owned(),
        is_zombie: matches!(state, "Z" | "X"),
        parent: number()?,
        group: number()?,
        session: number()?,
        // Fifteen fields lie between the session and the start.
        start: fields.nth(15)?.parse().ok()?,
    })
}

/// The numbers of all processes.
fn pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").expect("/proc");
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Children of a process, zombies included.
pub(crate) fn children(pid: i32) -> Vec<Entry> {
    pids().filter_map(entry).filter(|entry| entry.parent == pid).collect()
}

/// The processes that have this argument, in order.
pub(crate) fn all_with(argument: &str) -> Vec<i32> {
    let mut found: Vec<i32> =
        pids().filter(|pid| command_line(*pid).iter().any(|word| word == argument)).collect();
    found.sort_unstable();
    found
}

/// The lifeline of a guard, which is not below it and names it in its command line. Waits until it is there.
#[track_caller]
pub(crate) fn lifeline(guard: &Client) -> i32 {
    let mut found = None;
    wait_until("a lifeline", PATIENCE, || {
        found = lifelines(guard.pid()).first().copied();
        found.is_some()
    });
    found.expect("it was found")
}

/// The living lifelines of a guard or gateway.
pub(crate) fn lifelines(owner: i32) -> Vec<i32> {
    let owner = format!("--owner={owner}");
    let all = pids().filter_map(entry).filter(|entry| entry.name == "mcp-lifeline" && !entry.is_zombie);
    all.map(|entry| entry.pid).filter(|pid| command_line(*pid).contains(&owner)).collect()
}

/// What a process has open, as `number, what it is`: `0, pipe:[123]`.
pub(crate) fn descriptors(pid: i32) -> Vec<(i32, String)> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            Some((number, fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned()))
        })
        .collect()
}

/// Whether a process has something open, by any number.
pub(crate) fn holds(pid: i32, what: &str) -> bool {
    descriptors(pid).iter().any(|(_, open)| open == what)
}

/// What one of our own descriptors is, in the words of [`descriptors`].
pub(crate) fn identity(descriptor: &impl AsFd) -> String {
    let number = descriptor.as_fd().as_raw_fd();
    fs::read_link(format!("/proc/self/fd/{number}"))
        .expect("an open descriptor")
        .to_string_lossy()
        .into_owned()
}

/// The words of a process's command line.
pub(crate) fn command_line(pid: i32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = bytes.strip_suffix(b"\0").unwrap_or(&bytes).split(|byte| *byte == 0);
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// Bytes that a process has read so far, from anything.
pub(crate) fn bytes_read(pid: i32) -> u64 {
    traffic(pid, "rchar: ")
}

/// How often a process has written so far, or tried to.
pub(crate) fn writes(pid: i32) -> u64 {
    traffic(pid, "syscw: ")
}

fn traffic(pid: i32, what: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(what));
    line.and_then(|count| count.parse().ok()).unwrap_or_default()
}

/// Control groups that a lifeline made and did not remove, anywhere in the v2 hierarchy.
pub(crate) fn control_groups(lifeline: i32) -> Vec<String> {
    fn walk(folder: &Path, wanted: &str, depth: usize, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if entry.file_name().to_string_lossy().contains(wanted) {
                found.push(entry.path().display().to_string());
            }
            if depth > 0 {
                walk(&entry.path(), wanted, depth - 1, found);
            }
        }
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut found = Vec::new();
    for mount in mounts.lines().filter(|line| line.split(' ').nth(2) == Some("cgroup2")) {
        let point = mount.split(' ').nth(1).expect("a mount point");
        walk(Path::new(point), &format!("lifeline-{lifeline}-"), 6, &mut found);
    }
    found
}
