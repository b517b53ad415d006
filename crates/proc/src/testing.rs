//! What the unit tests share: a process to stand for another, and waiting with a limit.
//!
//! Invariants: no wait is without a limit, and none depends on how fast the machine is.

use std::{path::Path, time::Duration};

use tokio::time::Instant;

use crate::{
    pipe::wait,
    spawn::{Launch, Process, spawn},
};

/// Far more than any of these waits takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// A process that does nothing.
pub(crate) fn sleeper() -> Process {
    let arguments = ["-c", "exec sleep 3600"].map(Into::into);
    spawn(Launch::new(Path::new("/bin/sh"), &arguments)).unwrap()
}

/// Waits for a condition that nobody can tell us of.
pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < until, "in vain: {what}");
        wait(&mut [], Some(Duration::from_millis(1)));
    }
}
