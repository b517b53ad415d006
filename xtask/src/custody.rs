//! Keeps whatever a verb starts in one tree, so that nothing of it can be left unseen.
//!
//! # Theory of operation
//!
//! The program starts itself once more, and the inner process does the work. The outer one is a subreaper: who loses its parent
//! becomes its child, whatever session, group or environment that process has. So what descends from the outer process and not
//! from the inner one has lost those who started it, and is left over once they are done. The outer one reaps, passes a request
//! to stop on, and ends all that is left when the inner one has ended, by itself or by a signal.
//!
//! # Invariants
//!
//! - Only descendants of the outer process are signalled. Elsewhere than on Linux there is no subreaper, and what has lost its
//!   parent is not found.
//! - The exit code is that of the work, or 128 and the signal that ended it.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::process::{self, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use signal_hook::{flag, low_level::pipe};

use crate::failure::ChoreFailure;
use crate::leftovers::{self, MarkedProcess};
use crate::{clock, run};

/// The first argument of the inner process.
pub(crate) const INNER: &str = "kept";

/// What asks the outer process to stop. One that the terminal sends reaches the inner one too.
const STOPS: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];

/// How long what is about to end by itself may take to, on a busy machine, before it is called left over.
const SETTLED: Duration = Duration::from_secs(5);

/// How long after SIGKILL processes may take to be gone.
const GONE: Duration = Duration::from_secs(10);

/// Lets the inner process do what the arguments say, and leaves nothing of it.
pub(crate) fn keep(arguments: impl Iterator<Item = String>) -> Result<ExitCode, ChoreFailure> {
    let failed = |error: io::Error| ChoreFailure::io("cannot keep what is started together", &error);
    become_subreaper().map_err(failed)?;
    let (mut events, event) = UnixStream::pair().map_err(failed)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in STOPS {
        flag::register(signal.as_raw(), Arc::clone(&stop)).map_err(failed)?;
    }
    for signal in STOPS.into_iter().chain([Signal::CHILD]) {
        let event = event.try_clone().map_err(failed)?;
        pipe::register(signal.as_raw(), event).map_err(failed)?;
    }
    let inner = run::this_program(INNER, arguments)?;
    let status = loop {
        events.read(&mut [0; 64]).map_err(failed)?;
        if let Some(status) = reap(inner.id()) {
            break status;
        }
        if stop.swap(false, Ordering::Relaxed) {
            signal(inner.id(), Signal::TERM);
        }
    };
    end(|| {
        reap(inner.id());
        leftovers::descendants(process::id())
    });
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    Ok(code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

#[cfg(target_os = "linux")]
fn become_subreaper() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

#[cfg(not(target_os = "linux"))]
fn become_subreaper() -> io::Result<()> {
    Ok(())
}

/// Takes the status of every child that has ended, and returns that of one of them.
fn reap(of: u32) -> Option<WaitStatus> {
    let mut found = None;
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if pid.as_raw_nonzero().get().unsigned_abs() == of {
            found = Some(status);
        }
    }
    found
}

/// Fails if something has outlived what started it, names that, and ends it.
pub(crate) fn demand_nothing_left() -> Result<(), ChoreFailure> {
    let mut left = Vec::new();
    let is_clean = clock::wait_until(SETTLED, || {
        left = orphans();
        left.is_empty()
    });
    if is_clean {
        return Ok(());
    }
    end(orphans);
    let named: Vec<_> = left.iter().map(|process| format!("{} {}", process.pid, process.command)).collect();
    Err(ChoreFailure::new(format!("left behind: {}", named.join("; "))))
}

/// Ends what has outlived what started it, where that was to be expected.
pub(crate) fn end_the_rest() {
    end(orphans);
}

/// What descends from the outer process and not from this one.
fn orphans() -> Vec<MarkedProcess> {
    let own = process::id();
    let kept = leftovers::descendants(own);
    let is_kept = |pid: u32| pid == own || kept.iter().any(|process| process.pid == pid);
    let all = leftovers::parent(own).map(leftovers::descendants).unwrap_or_default();
    all.into_iter().filter(|process| !is_kept(process.pid)).collect()
}

/// Kills processes until there are none.
fn end(mut left: impl FnMut() -> Vec<MarkedProcess>) {
    clock::wait_until(GONE, || {
        let left = left();
        left.iter().for_each(|process| signal(process.pid, Signal::KILL));
        left.is_empty()
    });
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It may have gone meanwhile.
        let _ = kill_process(pid, signal);
    }
}
