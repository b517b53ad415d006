//! What stands beside the jobs: what nobody can do for less, and what servers do by hand.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use unhang_demo_servers::bounded_waits;

use super::{TOGETHER, go_on};
use crate::child_processes::{self, ChildStreams};
use crate::load::per_second;

/// As much as a job's order has.
const FILE_BYTES: usize = 1024;

/// Makes one small file durable, with its name, and returns how long that took.
pub(super) fn durable_file(folder: &Path) -> io::Result<Duration> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    go_on()?;
    let path = folder.join(COUNT.fetch_add(1, Ordering::Relaxed).to_string());
    let begin = bounded_waits::now();
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(&[b'x'; FILE_BYTES])?;
    file.sync_all()?;
    File::open(folder)?.sync_all()?;
    Ok(begin.elapsed())
}

/// Starts so many processes that do nothing, a few at a time, and returns how many ended in a second.
pub(super) fn by_hand(count: usize) -> io::Result<f64> {
    let begin = bounded_waits::now();
    let mut running = VecDeque::new();
    for _ in 0..count {
        go_on()?;
        if running.len() >= TOGETHER
            && let Some(mut first) = running.pop_front()
        {
            child_processes::wait(&mut first)?;
        }
        let streams = ChildStreams { stdin: Stdio::null(), stdout: Stdio::null(), stderr: Stdio::null() };
        running.push_back(child_processes::start_with("true", &[], streams, true)?);
    }
    running.iter_mut().try_for_each(child_processes::wait)?;
    Ok(per_second(count, begin.elapsed()))
}
