//! A look at the processes of this machine, to count what was left behind. Linux only, like what it shows.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// A process and its words.
pub(crate) struct Process {
    pid: i32,
    words: Vec<String>,
}

impl Process {
    /// Kills it at once, as a crash or an impatient client would.
    pub(crate) fn kill(&self) {
        if let Some(pid) = Pid::from_raw(self.pid) {
            let _gone_already = kill_process(pid, Signal::KILL);
        }
    }

    /// Whether its first words after the program are these.
    pub(crate) fn begins_with(&self, words: &[&str]) -> bool {
        self.words.get(1..).is_some_and(|rest| rest.len() >= words.len() && rest[..words.len()] == *words)
    }
}

/// The processes whose command line contains this word.
pub(crate) fn with_word(word: &str) -> Vec<Process> {
    pids().filter_map(process).filter(|process| process.words.iter().any(|own| own == word)).collect()
}

/// How many processes, this one apart, have the pipe with this inode open.
pub(crate) fn holders_of_pipe(inode: u64) -> usize {
    let link = format!("pipe:[{inode}]");
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    pids().filter(|pid| *pid != own && holds(*pid, &link)).count()
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn process(pid: i32) -> Option<Process> {
    let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words =
        words.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    Some(Process { pid, words })
}

fn holds(pid: i32, link: &str) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    descriptors.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|target| target.as_os_str() == link)
}
