//! What the jobs share: where they leave things, how they wait, how they count themselves.
//!
//! # Invariants
//!
//! - A job finds its folder in `UNHANG_JOB_DIR`; without one it works where it is, so that its vice shows anywhere.
//! - Every wait ends by [`crate::BOUND`].

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use unhang_demo_servers::{bounded_waits, pipe};

/// The file that a job's result is expected in.
pub(crate) const RESULT: &str = "results.json";

/// Where a job leaves its result.
pub(crate) fn folder() -> PathBuf {
    std::env::var_os("UNHANG_JOB_DIR").map_or_else(|| PathBuf::from("."), PathBuf::from)
}

/// Leaves a file there.
pub(crate) fn leave(name: &str, content: &[u8]) -> io::Result<()> {
    fs::write(folder().join(name), content)
}

/// Prints a line, and has it written when it returns.
pub(crate) fn tell(text: &str) -> io::Result<()> {
    pipe::send_line(text)
}

/// Waits for what somebody else does.
pub(crate) fn wait_until(mut condition: impl FnMut() -> bool) {
    let end = bounded_waits::now() + bounded_waits::BOUND;
    while !condition() && bounded_waits::now() < end {
        bounded_waits::pause(Duration::from_millis(5));
    }
}

/// Adds a line to a file that many write at once, where there is one.
pub(crate) fn count(file: Option<&str>, line: &str) -> io::Result<()> {
    let Some(file) = file else { return Ok(()) };
    OpenOptions::new().append(true).create(true).open(file)?.write_all(format!("{line}\n").as_bytes())
}
