//! Finds what a run left behind, by a marker in the environment that every process of the run inherits, and that those
//! which clear their environment may be given as an argument.
//!
//! A process group is not enough: unhang and its servers open sessions of their own. The marker is in `/proc/PID/environ`
//! or `/proc/PID/cmdline` for as long as the process lives; elsewhere than on Linux nothing is found.
//!
//! # Invariants
//!
//! - A marker is used once, so nothing that another run started is ever taken for ours.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// The variable whose value is the marker.
pub(crate) const VARIABLE: &str = "UNHANG_XTASK_RUN";

/// The value of [`VARIABLE`] for one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Marker(String);

/// A process that carries a marker.
#[derive(Debug, Clone)]
pub(crate) struct MarkedProcess {
    pub(crate) pid: u32,
    /// The command line, its items separated by blanks.
    pub(crate) command: String,
}

impl Marker {
    /// Makes one that no other run has.
    pub(crate) fn unique() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        Self(format!("{}-{number}-{since:x}", std::process::id()))
    }

    pub(crate) fn value(&self) -> &str {
        &self.0
    }

    /// Returns the living processes that carry this marker. A zombie has no environment and does not count.
    pub(crate) fn processes(&self) -> Vec<MarkedProcess> {
        let marker = format!("{VARIABLE}={}", self.0);
        others(|pid| has(pid, "environ", &marker) || has(pid, "cmdline", &self.0))
    }
}

/// Returns the living processes with this variable in their environment, given as `NAME=VALUE`.
pub(crate) fn with_variable(variable: &str) -> Vec<MarkedProcess> {
    others(|pid| has(pid, "environ", variable))
}

/// Returns the living processes that work in this folder or below it.
pub(crate) fn working_below(folder: &Path) -> Vec<MarkedProcess> {
    others(|pid| {
        fs::read_link(format!("/proc/{pid}/cwd"))
            .is_ok_and(|working_folder| working_folder.starts_with(folder))
    })
}

/// Whether one of the items that `/proc` has of a process is this one.
fn has(pid: u32, file: &str, expected: &str) -> bool {
    // A process that ends while we look has neither environment nor arguments any more.
    let items = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    items.split(|byte| *byte == 0).any(|item| item == expected.as_bytes())
}

fn others(filter: impl Fn(u32) -> bool) -> Vec<MarkedProcess> {
    let own = std::process::id();
    let pids = pids().into_iter().filter(|pid| *pid != own && filter(*pid));
    pids.map(|pid| MarkedProcess { pid, command: command_line(pid) }).collect()
}

/// Returns the parent of a process, `None` when it has gone.
pub(crate) fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// Whether a process has been stopped by a signal.
pub(crate) fn is_stopped(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:\tT"))
}

/// Returns the processes whose parent this is, those that have ended and are not waited for yet included.
pub(crate) fn children(of: u32) -> Vec<MarkedProcess> {
    let all = pids().into_iter().filter(|pid| parent(*pid) == Some(of));
    all.map(|pid| MarkedProcess { pid, command: command_line(pid) }).collect()
}

/// Returns the living lifelines of a guard, which are not below it and name it in their command lines.
pub(crate) fn lifelines(of: u32) -> Vec<MarkedProcess> {
    let owner = format!(" --owner={of} ");
    let is_named = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_end() == "mcp-lifeline")
    };
    let all =
        pids().into_iter().filter(is_named).map(|pid| MarkedProcess { pid, command: command_line(pid) });
    all.filter(|process| process.command.contains(&owner)).collect()
}

/// Returns the living processes that this one has started, and those that they have, and so on. A zombie has no command line
/// and does not count.
pub(crate) fn descendants(of: u32) -> Vec<MarkedProcess> {
    let parents: Vec<(u32, u32)> = pids().into_iter().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut found = vec![of];
    let mut next = 0;
    while let Some(&one) = found.get(next) {
        found.extend(parents.iter().filter(|(_, parent)| *parent == one).map(|(pid, _)| *pid));
        next += 1;
    }
    let all = found.into_iter().skip(1).map(|pid| MarkedProcess { pid, command: command_line(pid) });
    all.filter(|process| !process.command.is_empty()).collect()
}

fn pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ").trim_end().to_owned()
}
