//! The check whether the machine has room for another job (J-136), and the wait of an end that finds no room on the disk.
//!
//! Invariant: nobody gives up an end because the disk is full. A supervisor and the holder of a call both try again after `ROOM_LOOK`.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use unhang_proc::{pressure, tree::now};

use crate::{
    folder::{DataFolder, FileError},
    id::JobId,
    wait::pause,
};

/// The time between two tries of a write that found no room on the disk.
pub(crate) const ROOM_LOOK: Duration = Duration::from_secs(1);

/// The most free bytes of a disk that counts as full.
const NO_ROOM: u64 = 64 << 10;

/// Returns whether the disk of this folder is full.
pub(crate) fn is_full(folder: &Path) -> bool {
    pressure::free_disk(folder).is_ok_and(|free| free < NO_ROOM)
}

/// Does work that takes room on the disk, and tries again as long as there is no room.
pub(crate) fn with_room<T>(mut work: impl FnMut() -> Result<T, FileError>) -> Result<T, FileError> {
    loop {
        match work() {
            Err(error) if error.is_for_lack_of_room() => pause(ROOM_LOOK),
            done => return done,
        }
    }
}

/// The conditions under which a job may start. Each job carries the rules under which it was accepted, so that a supervisor can hand over
/// by them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// The number of jobs that may run at the same time, counted over all processes of the data folder (J-25).
    pub max_concurrent: u32,
    /// The share of memory in use, in per cent, above which nothing starts.
    pub memory_limit: f64,
    /// The bytes that have to be free on the disk.
    pub disk_reserve: u64,
    /// The time after its end for which the job is kept at least, in milliseconds, if somebody has set it. Another process with a shorter
    /// retention does not remove it earlier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_ms: Option<u64>,
}

impl Rules {
    /// Returns the stricter of two rules that both count for one start.
    pub(crate) fn stricter(self, other: Rules) -> Rules {
        Rules {
            max_concurrent: self.max_concurrent.min(other.max_concurrent),
            memory_limit: self.memory_limit.min(other.memory_limit),
            disk_reserve: self.disk_reserve.max(other.disk_reserve),
            ..self
        }
    }

    /// Returns the resource that is too scarce for another job to start; `None` if there is enough. A value that the system does not tell
    /// counts as enough.
    pub(crate) fn lack(&self, data: &DataFolder, memory: &MemoryGauge) -> Option<RoomShortage> {
        if let Some(used) = memory.used_percent()
            && used > self.memory_limit
        {
            return Some(RoomShortage::Memory { used, limit: self.memory_limit });
        }
        let free = pressure::free_disk(data.path()).ok()?;
        (free < self.disk_reserve).then(|| RoomShortage::Disk {
            folder: data.path().to_owned(),
            free: free >> 20,
            reserve: self.disk_reserve >> 20,
        })
    }
}

/// A resource that is too scarce for another job.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RoomShortage {
    /// Memory, in per cent.
    Memory {
        /// The share that is in use.
        used: f64,
        /// The share above which nothing starts.
        limit: f64,
    },
    /// Space on the disk, in mebibytes.
    Disk {
        /// A folder on that disk.
        folder: PathBuf,
        /// The free space.
        free: u64,
        /// The space that has to be free.
        reserve: u64,
    },
}

impl RoomShortage {
    /// Returns advice for a person while these jobs run.
    pub(crate) fn remedy(&self, running: &[JobId]) -> String {
        let jobs = || running.iter().map(JobId::as_str).collect::<Vec<_>>().join(", ");
        let wait = || format!("wait for running jobs to end, or cancel one (running: {})", jobs());
        // If no job runs, waiting for the end of one would not help.
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
                    "{used:.0} % of the memory is in use, and above {limit:.0} % unhang starts no job"
                )
            }
            RoomShortage::Disk { folder, free, reserve } => {
                let folder = folder.display();
                write!(formatter, "{free} MiB are free on the disk of {folder}, and a job needs {reserve}")
            }
        }
    }
}

/// The share of memory in use, read once for all callers within [`FRESH`]. A look reads a dozen files of the kernel and takes up to a
/// millisecond, a third of the time that a submission may take.
#[derive(Debug, Default)]
pub(crate) struct MemoryGauge(Mutex<Option<RoomLook>>);

/// The time for which a look at the memory counts; processes do not start in less.
const FRESH: Duration = Duration::from_millis(50);

/// The time of a look, and the system's answer.
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
