//! The options of an engine, and their defaults.

use std::{path::PathBuf, sync::Arc, thread, time::Duration};

use crate::{limits::ToldLimits, room::Rules, shared_jobs::SharedJobs, shims::ShimCommand};

/// The options of an engine.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// The data folder; it is made if it is missing.
    pub folder: PathBuf,
    /// The command that runs unhang's own binary as a supervisor; see [`shim::run_if_asked`](crate::shim::run_if_asked).
    pub shim: ShimCommand,
    /// The conditions under which a job may start.
    pub rules: Rules,
    /// Whether queued jobs start by the limit with which each of them was accepted, instead of by that in `rules`. For programs that come
    /// and go: a program that only looks must not let more jobs run than the program that accepted them.
    pub keeps_recorded_limits: bool,
    /// Whether a person set the number of jobs that may run. If so, it counts for all processes that have the folder open meanwhile.
    pub max_concurrent_was_said: bool,
    /// Whether the engine rests between the events of the calls that it holds. For a process that waits for hours and has to stay small: it
    /// learns of other jobs only now and then, and has no memory for code that it does not use.
    pub rests: bool,
    /// The time after its end for which a job is kept. Jobs whose own rules say longer stay longer.
    pub retention: Duration,
    /// Whether a person set the retention. If so, it counts for all processes without a set one; see [`Engine::open`](super::Engine::open).
    pub retention_was_said: bool,
    /// The store of many machines to which jobs are submitted. `None` if jobs run on this machine.
    pub shared: Option<Arc<dyn SharedJobs>>,
}

impl EngineOptions {
    /// Makes the default options, with the number of jobs that fits this machine.
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
            rests: false,
            retention: Duration::from_secs(7 * 24 * 60 * 60),
            retention_was_said: false,
            shared: None,
        }
    }

    /// Returns the limits that other processes hear of as long as this one has the folder open. A program that comes and goes tells none:
    /// it records them with each job.
    pub(super) fn told(&self) -> ToldLimits {
        let (is_told, millis) = (!self.keeps_recorded_limits, self.retention.as_millis());
        ToldLimits {
            max_concurrent: (is_told && self.max_concurrent_was_said).then_some(self.rules.max_concurrent),
            retention_ms: (is_told && self.retention_was_said)
                .then(|| u64::try_from(millis).unwrap_or(u64::MAX)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f_05_only_a_limit_that_was_said_to_a_program_that_stays_is_told_to_others() {
        let shim = ShimCommand { program: "/nowhere".into(), arguments: Vec::new() };
        let defaults = EngineOptions::new("/data".into(), shim);
        let rules = Rules { max_concurrent: 7, ..defaults.rules };
        let retention = Duration::from_millis(1500);
        for (
            keeps_recorded_limits,
            max_concurrent_was_said,
            retention_was_said,
            max_concurrent,
            retention_ms,
        ) in [
            (false, false, false, None, None),
            (false, true, false, Some(7), None),
            (false, false, true, None, Some(1500)),
            (false, true, true, Some(7), Some(1500)),
            (true, true, true, None, None),
            (true, false, false, None, None),
        ] {
            let options = EngineOptions {
                rules,
                retention,
                keeps_recorded_limits,
                max_concurrent_was_said,
                retention_was_said,
                ..defaults.clone()
            };
            assert_eq!(options.told(), ToldLimits { max_concurrent, retention_ms }, "{options:?}");
        }
        let endless = EngineOptions { retention: Duration::MAX, retention_was_said: true, ..defaults };
        assert_eq!(endless.told().retention_ms, Some(u64::MAX));
    }
}
