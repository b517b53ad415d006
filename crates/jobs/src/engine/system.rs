//! The state of the machine and of the engine (J-81, J-126).

use std::time::Duration;

use serde::Serialize;
use unhang_proc::{
    pressure::{self, CpuTimes, MemoryUse},
    shared_fate::ties,
};

use super::EngineState;
use crate::{
    error::JobError, record::JobState, shared_jobs::WorkerSummary, status::JobStatus, store::JobStore,
    wait::pause,
};

/// The time over which processor time is measured (J-81).
const SAMPLE: Duration = Duration::from_millis(100);

/// The state of the machine and of the engine.
#[derive(Clone, Debug)]
pub struct System {
    /// The jobs that have a slot or wait for one, in their order.
    pub jobs: Vec<JobStatus>,
    /// The number of jobs that have a slot.
    pub running: u32,
    /// The number of jobs that may have one.
    pub max_concurrent: u32,
    /// The load of the machine.
    pub machine: MachineLoad,
    /// Why no job starts, if none does.
    pub wait_reason: Option<String>,
    /// The workers of the store of many machines, if there is one.
    pub workers: Vec<WorkerSummary>,
    /// The things that would end the jobs when they end, besides the jobs themselves.
    pub ties: Vec<String>,
}

/// The load of the machine; a member is absent if the system does not tell it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct MachineLoad {
    /// The processor time of all processors over a tenth of a second, in per cent.
    pub cpu_percent: Option<f64>,
    /// The memory in use, in per cent.
    pub memory_percent: Option<f64>,
    /// The memory in use, in mebibytes (J-81).
    pub memory_mb: Option<u64>,
    /// The free space on the disk of the data folder, in mebibytes.
    pub disk_free_mb: Option<u64>,
}

pub(super) fn system(inner: &EngineState) -> Result<System, JobError> {
    let before = CpuTimes::read();
    pause(SAMPLE);
    let cpu_percent =
        before.zip(CpuTimes::read()).and_then(|(before, after)| pressure::cpu_percent(before, after));
    let open = inner.store().open_jobs()?;
    let memory = pressure::memory_used();
    Ok(System {
        running: u32::try_from(open.iter().filter(|job| job.is_active && job.record.call.is_none()).count())
            .unwrap_or(u32::MAX),
        jobs: open.iter().filter_map(|job| inner.status(job.record.job_id).ok()).collect(),
        max_concurrent: inner.options.rules.max_concurrent,
        machine: MachineLoad {
            cpu_percent,
            memory_percent: memory.map(MemoryUse::percent),
            memory_mb: memory.map(|memory| memory.used >> 20),
            disk_free_mb: pressure::free_disk(inner.data.path()).ok().map(|bytes| bytes >> 20),
        },
        workers: Vec::new(),
        ties: ties().iter().map(ToString::to_string).collect(),
        wait_reason: inner.lack().map(|lack| lack.to_string()),
    })
}

/// Returns how many jobs each state has, in the order of a job's life.
pub(super) fn counts(inner: &EngineState) -> Result<Vec<(JobState, u64)>, JobError> {
    let rows = inner.store().counts()?;
    let row = |state: JobState| rows.iter().find(|(known, _)| *known == state).map_or(0, |(_, count)| *count);
    // The table has one state for all jobs with a slot; the memory tells starting from running ones.
    let running = u64::try_from(inner.memory.running_count()).unwrap_or(u64::MAX);
    let active = row(JobState::Running);
    let count = |state: JobState| match state {
        JobState::Running => running.min(active),
        JobState::Starting => active.saturating_sub(running),
        other => row(other),
    };
    Ok(JobState::ALL.into_iter().map(|state| (state, count(state))).collect())
}
