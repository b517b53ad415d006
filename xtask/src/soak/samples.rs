//! What a process holds at a moment, and whether that stayed flat over a run.
//!
//! # Invariants
//!
//! - A sample is the least of several looks: a process that lists `/proc` has a descriptor more for a moment, while what
//!   is lost stays.
//! - Medians of the first tenth after the warm-up and of the last tenth are compared, so one odd sample decides nothing.
//! - The tolerances are here and nowhere else.

use std::fs;
use std::time::Duration;

use crate::{clock, leftovers};

/// How long is looked for one sample.
const LOOKING: Duration = Duration::from_millis(100);
/// Samples that are compared at least, where there are few.
const FEWEST: usize = 3;
/// The share of samples, in per cent, during which a process may still grow to its working size.
const WARM_UP: usize = 20;
/// By how much memory may grow: the allocator's own noise, which is what a leak of twenty bytes a call comes to.
const MEMORY_PERCENT: u64 = 15;
const MEMORY_KIB: u64 = 512;
/// By how much descriptors, threads and children may differ between two quiet moments.
const COUNT_TOLERANCE: u64 = 1;

/// What one process holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ProcessSample {
    /// Resident memory in KiB.
    pub(crate) memory: u64,
    pub(crate) descriptors: u64,
    pub(crate) threads: u64,
    /// Those that have ended and are not waited for included.
    pub(crate) children: u64,
}

impl ProcessSample {
    /// Looks at a process for a moment and takes the least; `None` when it has gone.
    pub(crate) fn take(pid: u32) -> Option<Self> {
        let mut least = Self::look(pid)?;
        clock::wait_until(LOOKING, || {
            if let Some(look) = Self::look(pid) {
                least = least.least(look);
            }
            false
        });
        Some(least)
    }

    fn least(self, other: Self) -> Self {
        Self {
            memory: self.memory.min(other.memory),
            descriptors: self.descriptors.min(other.descriptors),
            threads: self.threads.min(other.threads),
            children: self.children.min(other.children),
        }
    }

    fn look(pid: u32) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |name: &str| {
            let rest = status.lines().find_map(|line| line.strip_prefix(name))?;
            rest.split_ascii_whitespace().next()?.parse().ok()
        };
        Some(Self {
            memory: field("VmRSS:")?,
            descriptors: descriptors(pid)?,
            threads: field("Threads:")?,
            children: leftovers::children(pid).len() as u64,
        })
    }
}

/// How many descriptors a process has open.
pub(crate) fn descriptors(pid: u32) -> Option<u64> {
    fs::read_dir(format!("/proc/{pid}/fd")).ok().map(|entries| entries.count() as u64)
}

/// The samples of one process, or of those that follow each other in one part.
#[derive(Debug, Default, Clone)]
pub(crate) struct Series(Vec<ProcessSample>);

impl Series {
    pub(crate) fn add(&mut self, sample: Option<ProcessSample>) {
        self.0.extend(sample);
    }

    /// The medians of the first tenth after the warm-up and of the last tenth; `None` with too few samples.
    pub(crate) fn ends(&self) -> Option<(ProcessSample, ProcessSample)> {
        let tenth = self.0.len().div_ceil(10).max(FEWEST);
        let warm = self.0.get(self.0.len() * WARM_UP / 100..)?;
        let (first, last) = (warm.get(..tenth)?, warm.get(warm.len().checked_sub(tenth)?..)?);
        Some((median(first), median(last)))
    }

    /// Demands that `who` holds as much at the end as in the beginning.
    pub(crate) fn demand_flat(&self, who: &str) -> Result<(), String> {
        let (first, last) = self.ends().ok_or_else(|| format!("{who}: there are no samples"))?;
        let memory_limit = first.memory + first.memory * MEMORY_PERCENT / 100 + MEMORY_KIB;
        for (what, first, last, limit) in [
            ("memory in KiB", first.memory, last.memory, memory_limit),
            ("descriptors", first.descriptors, last.descriptors, first.descriptors + COUNT_TOLERANCE),
            ("threads", first.threads, last.threads, first.threads + COUNT_TOLERANCE),
            ("children", first.children, last.children, first.children + COUNT_TOLERANCE),
        ] {
            if last > limit {
                return Err(format!("{who}: {what} grew from {first} to {last}, over {limit}"));
            }
        }
        Ok(())
    }
}

fn median(samples: &[ProcessSample]) -> ProcessSample {
    let middle = |field: fn(&ProcessSample) -> u64| {
        let mut values: Vec<_> = samples.iter().map(field).collect();
        values.sort_unstable();
        values[values.len() / 2]
    };
    ProcessSample {
        memory: middle(|sample| sample.memory),
        descriptors: middle(|sample| sample.descriptors),
        threads: middle(|sample| sample.threads),
        children: middle(|sample| sample.children),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(count: u64, sample: impl Fn(u64) -> ProcessSample) -> Series {
        Series((0..count).map(sample).collect())
    }

    #[test]
    fn growth_in_the_warm_up_and_one_odd_sample_are_no_leak() {
        let warming = |number| ProcessSample {
            memory: 4000 + 100 * u64::min(number, 20),
            descriptors: 9,
            ..ProcessSample::default()
        };
        let mut flat = series(100, warming);
        flat.0[95].descriptors = 40;
        let mut few = series(10, warming);
        few.0[9].descriptors = 40;
        few.demand_flat("it").expect("flat");
        flat.demand_flat("it").expect("flat");
    }

    #[test]
    fn a_leak_of_each_kind_is_told() {
        for (what, sample) in [
            (
                "memory",
                (|number| ProcessSample { memory: 4000 + 100 * number, ..ProcessSample::default() })
                    as fn(u64) -> ProcessSample,
            ),
            ("descriptors", |number| ProcessSample { descriptors: 9 + number, ..ProcessSample::default() }),
            ("threads", |number| ProcessSample { threads: 3 + number, ..ProcessSample::default() }),
            ("children", |number| ProcessSample { children: 1 + number, ..ProcessSample::default() }),
        ] {
            for count in [20, 100] {
                let told = series(count * 2, sample).demand_flat("it").expect_err("it leaks");
                assert!(told.contains(what), "{told}");
            }
        }
    }

    #[test]
    fn this_process_can_be_looked_at() {
        let sample = ProcessSample::take(std::process::id()).expect("it runs");
        assert!(sample.memory > 0 && sample.descriptors > 2 && sample.threads > 0);
    }
}
