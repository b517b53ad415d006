//! Keeps a measurement on one processor.
//!
//! A call passes through three processes. The system places them on one processor or on several, and keeps that choice for as long as they
//! live. The choice changes the time of a call by up to a factor of eight, and neither side of a comparison has an influence on it.
//!
//! Invariant: processes that the thread starts meanwhile inherit its processor. The thread has its former processors back when the value is
//! dropped.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The time for which this thread has one processor.
pub(super) struct OneProcessor {
    before: CpuSet,
}

impl OneProcessor {
    /// Leaves this thread the last of its processors. Interrupts are most often on the first.
    ///
    /// # Errors
    /// Fails if the system does not let this thread choose.
    pub(super) fn enter() -> io::Result<Self> {
        let before = sched_getaffinity(None)?;
        let last = (0..CpuSet::MAX_CPU).rfind(|processor| before.is_set(*processor));
        let mut one = CpuSet::new();
        one.set(last.ok_or_else(|| io::Error::other("this thread has no processor"))?);
        sched_setaffinity(None, &one)?;
        Ok(Self { before })
    }
}

impl Drop for OneProcessor {
    fn drop(&mut self) {
        let _still_one_otherwise = sched_setaffinity(None, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_one_processor_and_then_all_of_its_own_again() {
        let before = sched_getaffinity(None).unwrap();
        let one = OneProcessor::enter().unwrap();
        assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        drop(one);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
