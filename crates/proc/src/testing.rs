//! What the unit tests share: a process to stand for another, and waiting with a limit.
//!
//! Invariants: no wait is without a limit, and none depends on how fast the machine is.

use std::{path::Path, sync::mpsc::sync_channel, thread, time::Duration};

use tokio::time::Instant;

use crate::{
    pipe::wait,
    spawn::{Launch, Process, spawn},
};

/// Far more than any of these waits takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A shell with this script, in a session of its own.
pub(crate) fn shell(script: &str) -> Process {
    let arguments = ["-c", script].map(Into::into);
    spawn(Launch::new(Path::new("/bin/sh"), &arguments)).unwrap()
}

/// A process that does nothing.
pub(crate) fn sleeper() -> Process {
    shell("exec sleep 3600")
}

/// What the work comes to. It is done where nobody is held up by it, because a system call that waits cannot be cancelled.
pub(crate) fn without_hanging<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, outcome) = sync_channel(1);
    thread::spawn(move || done.send(work()));
    outcome.recv_timeout(PATIENCE).expect("it hangs, or has failed")
}

/// Waits for a condition that nobody can tell us of.
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < until, "in vain: {what}");
        wait(&mut [], Some(Duration::from_millis(1)));
    }
}
