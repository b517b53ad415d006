//! Many things of one kind, some of them at the same time.
//!
//! # Invariants
//!
//! - After a few that went wrong, or when the time is over, no further one begins.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::progress::PartProgress;

/// How many may go wrong before the part ends.
const ENOUGH: usize = 5;

/// Does one thing for each number, so many at once; returns a sentence for each that went wrong.
pub(crate) fn side_by_side(
    numbers: Range<u64>,
    at_once: usize,
    progress: &PartProgress,
    perform: impl Fn(u64) -> Result<(), String> + Sync,
) -> Vec<String> {
    let (next, broken) = (AtomicU64::new(numbers.start), Mutex::new(Vec::new()));
    let lock = || broken.lock().unwrap_or_else(PoisonError::into_inner);
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= numbers.end || lock().len() >= ENOUGH {
                return;
            }
            let outcome = perform(number);
            let counted = progress.count(1);
            lock().extend(outcome.err());
            if let Err(over) = counted {
                lock().push(over);
                return;
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(work);
        }
    });
    broken.into_inner().unwrap_or_else(PoisonError::into_inner)
}
