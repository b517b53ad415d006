//! Whether the machine has room for another job (J-136).

use serde::{Deserialize, Serialize};
use unhang_proc::pressure;
use unhang_switches::stands;

use crate::folder::DataFolder;

/// When a job may start. Each job carries the rules that it was accepted under, so that a shim can hand over by them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// How many jobs may run at the same time, counted over all processes of the data folder (J-25).
    pub max_concurrent: u32,
    /// Per cent of the memory in use above which nothing starts.
    pub memory_limit: f64,
    /// Bytes that have to be free on the disk.
    pub disk_reserve: u64,
}

impl Rules {
    /// What there is too little of for another job to start. What the system does not tell is taken for enough.
    pub(crate) fn lack(&self, data: &DataFolder) -> Option<String> {
        if let Some(used) = pressure::memory_used_percent()
            && used > self.memory_limit
            && stands("memory-gate")
        {
            let limit = self.memory_limit;
            return Some(format!(
                "{used:.0} % of the memory is in use, and above {limit:.0} % nothing starts"
            ));
        }
        let free = pressure::free_disk(data.path()).ok()?;
        (free < self.disk_reserve && stands("disk-gate")).then(|| {
            let (free, reserve) = (free >> 20, self.disk_reserve >> 20);
            format!("{free} MiB are free on the disk of {}, and a job needs {reserve}", data.path().display())
        })
    }
}
