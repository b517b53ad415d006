//! How an engine works: what whoever opens it says, and the defaults.

use std::{path::PathBuf, thread, time::Duration};

use crate::{limits::ToldLimits, room::Rules, shims::ShimCommand};

/// How an engine works.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The data folder; it is made where it is missing.
    pub folder: PathBuf,
    /// How our own binary is run as a shim; see [`shim::run_if_asked`](crate::shim::run_if_asked).
    pub shim: ShimCommand,
    /// When a job may start.
    pub rules: Rules,
    /// Whether queued jobs start by the limit that each of them was accepted with, instead of by that in `rules`. For programs
    /// that come and go: one that only looks must not let more run than whoever accepted them wanted.
    pub keeps_recorded_limits: bool,
    /// Whether somebody said how many jobs may run, so that it counts for all who have the folder open meanwhile.
    pub max_concurrent_was_said: bool,
    /// How long an ended job is kept, since its end. Jobs whose own rules say longer stay longer.
    pub retention: Duration,
    /// Whether somebody said how long, so that it counts for all who were not told; see [`Engine::open`](super::Engine::open).
    pub retention_was_said: bool,
}

impl EngineOptions {
    /// The defaults, with the number of jobs that fits this machine.
    #[must_use]
    pub fn new(folder: PathBuf, shim: ShimCommand) -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Self {
            folder,
            shim,
            rules: Rules {
                max_concurrent: u32::try_from(processors / 2).unwrap_or(u32::MAX).max(2),
                memory_limit: 90.0,
                disk_reserve: 64 << 20,
                retention_ms: None,
            },
            keeps_recorded_limits: false,
            max_concurrent_was_said: false,
            retention: Duration::from_secs(7 * 24 * 60 * 60),
            retention_was_said: false,
        }
    }

    /// What others hear of these for as long as the folder is open. A program that comes and goes says it with each job.
    pub(super) fn told(&self) -> ToldLimits {
        let (is_told, millis) = (!self.keeps_recorded_limits, self.retention.as_millis());
        ToldLimits {
            max_concurrent: (is_told && self.max_concurrent_was_said).then_some(self.rules.max_concurrent),
            retention_ms: (is_told && self.retention_was_said)
                .then(|| u64::try_from(millis).unwrap_or(u64::MAX)),
        }
    }
}
