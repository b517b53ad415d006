//! How far a part is, for whoever watches, and the end of its time.
//!
//! # Invariants
//!
//! - On a terminal one line is rewritten; elsewhere a line comes now and then.
//! - A part whose time is over is told so at its next count.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::clock;

/// Between two rewritings of the line on a terminal.
const REWRITE: Duration = Duration::from_millis(500);
/// Between two lines elsewhere.
const LINE: Duration = Duration::from_secs(30);

/// One part's progress.
#[derive(Debug)]
pub(crate) struct PartProgress {
    name: &'static str,
    total: u64,
    done: AtomicU64,
    begin: Instant,
    end: Instant,
    finished: AtomicBool,
}

impl PartProgress {
    /// Does `work` while its progress is shown; it has until `end`.
    pub(crate) fn during<T>(
        name: &'static str,
        total: u64,
        end: Instant,
        work: impl FnOnce(&Self) -> T,
    ) -> T {
        let (done, finished) = (AtomicU64::new(0), AtomicBool::new(false));
        let progress = Self { name, total, done, begin: clock::now(), end, finished };
        thread::scope(|scope| {
            scope.spawn(|| progress.show());
            let outcome = work(&progress);
            progress.finished.store(true, Ordering::Relaxed);
            outcome
        })
    }

    /// Counts what is done; an error when there is no time for more.
    pub(crate) fn count(&self, done: u64) -> Result<(), String> {
        let done = self.done.fetch_add(done, Ordering::Relaxed) + done;
        if done < self.total && self.is_over() {
            return Err(format!(
                "the time of the soak was over after {done} of {} {}",
                self.total, self.name
            ));
        }
        Ok(())
    }

    pub(crate) fn is_over(&self) -> bool {
        clock::now() > self.end
    }

    fn show(&self) {
        let on_terminal = io::stderr().is_terminal();
        let interval = if on_terminal { REWRITE } else { LINE };
        while !clock::wait_until(interval, || self.finished.load(Ordering::Relaxed)) {
            let (done, seconds) = (self.done.load(Ordering::Relaxed), self.begin.elapsed().as_secs());
            let line = format!("{}: {done} of {}, {seconds} s", self.name, self.total);
            say(&if on_terminal { format!("\r{line:<60}") } else { format!("{line}\n") });
        }
        if on_terminal {
            say(&format!("\r{:60}\r", ""));
        }
    }
}

fn say(text: &str) {
    // Nobody can be told that stderr is gone.
    let _ = io::stderr().write_all(text.as_bytes());
}
