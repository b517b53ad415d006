//! Whether the machine has room for another job (J-136).

use std::{
    fmt,
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use unhang_proc::{pressure, tree::now};
use unhang_switches::stands;

use crate::{folder::DataFolder, id::JobId};

/// When a job may start. Each job carries the rules that it was accepted under, so that a shim can hand over by them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// How many jobs may run at the same time, counted over all processes of the data folder (J-25).
    pub max_concurrent: u32,
    /// Per cent of the memory in use above which nothing starts.
    pub memory_limit: f64,
    /// Bytes that have to be free on the disk.
    pub disk_reserve: u64,
    /// How long the job is kept after its end at least, in milliseconds, where somebody has said so: another process with a shorter
    /// retention does not remove it earlier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_ms: Option<u64>,
}

impl Rules {
    /// Of two that count for one start the stricter.
    pub(crate) fn stricter(self, other: Rules) -> Rules {
        Rules {
            max_concurrent: self.max_concurrent.min(other.max_concurrent),
            memory_limit: self.memory_limit.min(other.memory_limit),
            disk_reserve: self.disk_reserve.max(other.disk_reserve),
            ..self
        }
    }

    /// What there is too little of for another job to start. What the system does not tell is taken for enough.
    pub(crate) fn lack(&self, data: &DataFolder, memory: &MemoryGauge) -> Option<RoomShortage> {
        if let Some(used) = memory.used_percent()
            && used > self.memory_limit
            && stands("memory-gate")
        {
            return Some(RoomShortage::Memory { used, limit: self.memory_limit });
        }
        let free = pressure::free_disk(data.path()).ok()?;
        (free < self.disk_reserve && stands("disk-gate")).then(|| RoomShortage::Disk {
            folder: data.path().to_owned(),
            free: free >> 20,
            reserve: self.disk_reserve >> 20,
        })
    }
}

/// What there is too little of for another job.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RoomShortage {
    /// Memory, in per cent.
    Memory {
        /// What is in use.
        used: f64,
        /// Above which nothing starts.
        limit: f64,
    },
    /// Space on the disk, in mebibytes.
    Disk {
        /// A folder on that disk.
        folder: PathBuf,
        /// What is free.
        free: u64,
        /// What has to be.
        reserve: u64,
    },
}

impl RoomShortage {
    /// Says what to do about it while these jobs run.
    pub(crate) fn remedy(&self, running: &[JobId]) -> String {
        let jobs = || running.iter().map(JobId::as_str).collect::<Vec<_>>().join(", ");
        let wait = || format!("wait for running jobs to end, or cancel one (running: {})", jobs());
        // Where none runs, no end of a job would help.
        match (self, running.is_empty()) {
            (RoomShortage::Memory { .. }, true) => {
                "no job runs, so end other programs that use memory, or raise memory-limit".to_owned()
            }
            (RoomShortage::Memory { .. }, false) => wait(),
            (RoomShortage::Disk { .. }, true) => "no job runs, so free some space on that disk".to_owned(),
            (RoomShortage::Disk { .. }, false) => format!("free some space on that disk, {}", wait()),
        }
    }
}

impl fmt::Display for RoomShortage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RoomShortage::Memory { used, limit } => {
                write!(
                    formatter,
                    "{used:.0} % of the memory is in use, and above {limit:.0} % nothing starts"
                )
            }
            RoomShortage::Disk { folder, free, reserve } => {
                let folder = folder.display();
                write!(formatter, "{free} MiB are free on the disk of {folder}, and a job needs {reserve}")
            }
        }
    }
}

/// How much of the memory is in use, looked at once for whoever asks within [`FRESH`]: a look reads a dozen files of the kernel and
/// takes up to a millisecond, a third of what a submit may take.
#[derive(Debug, Default)]
pub(crate) struct MemoryGauge(Mutex<Option<RoomLook>>);

/// How long a look at the memory counts; processes do not start in less.
const FRESH: Duration = Duration::from_millis(50);

/// When it was looked, and what the system said.
#[derive(Clone, Copy, Debug)]
struct RoomLook {
    at: Duration,
    used_percent: Option<f64>,
}

impl MemoryGauge {
    fn used_percent(&self) -> Option<f64> {
        self.read(now(), pressure::memory_used_percent)
    }

    fn read(&self, now: Duration, look: impl FnOnce() -> Option<f64>) -> Option<f64> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = last.filter(|last| now.saturating_sub(last.at) < FRESH);
        last.insert(fresh.unwrap_or_else(|| RoomLook { at: now, used_percent: look() })).used_percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_looked_at_once_for_a_moment() {
        let gauge = MemoryGauge::default();
        let begin = Duration::from_secs(7);
        assert_eq!(gauge.read(begin, || Some(1.0)), Some(1.0));
        assert_eq!(gauge.read(begin + FRESH - Duration::from_nanos(1), || Some(2.0)), Some(1.0));
        assert_eq!(gauge.read(begin + FRESH, || Some(3.0)), Some(3.0));
        assert_eq!(gauge.read(begin + 2 * FRESH, || None), None);
    }
}
