//! Reports of the machine and the jobs (J-81, J-126).

use serde::Serialize;

use super::{JobReport, ReportReader};
use unhang_jobs::{
    engine::{JobStatus, MachineLoad, System},
    record::JobState,
    shared_jobs::WorkerSummary,
};

/// The status of the machine and the jobs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SystemReport {
    /// The number of `jobs` that run, commands and calls.
    pub running_jobs: usize,
    /// The number of those that are commands.
    pub running_commands: usize,
    /// The number of those that are calls of servers' tools, which need no slot.
    pub running_calls: usize,
    /// The number of `jobs` that wait for a slot.
    pub queued_jobs: usize,
    /// The slots that commands have, those of other callers included.
    pub slots_in_use: u32,
    /// The number of slots.
    pub max_concurrent: u32,
    /// The jobs that have not ended.
    pub jobs: Vec<JobReport>,
    /// The load of the machine.
    pub system: MachineReport,
    /// Why nothing is started at the moment, if nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_reason: Option<String>,
    /// The workers, if machines share their jobs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerSummary>,
    /// Whether jobs outlive this program, as far as the system shows.
    pub outlives: bool,
    /// The things whose end ends the jobs too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ends_with: Vec<String>,
}

/// The load of the machine; a value is absent if the system does not tell it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MachineReport {
    /// Processor time of all processors, in per cent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_percent: Option<f64>,
    /// Memory in use, in per cent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_percent: Option<f64>,
    /// The same in mebibytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    /// Free space on the disk of the data folder, in mebibytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_free_mb: Option<u64>,
}

impl SystemReport {
    /// Makes the report of the machine and the jobs.
    #[must_use]
    pub fn new(system: System, reader: ReportReader) -> Self {
        let System { mut jobs, running, max_concurrent, machine, wait_reason, workers, ties } = system;
        // A job may have ended since the jobs were looked up.
        jobs.retain(|job| !job.record.status.is_final());
        let is_queued = |job: &&JobStatus| job.record.status == JobState::Queued;
        let queued_jobs = jobs.iter().filter(is_queued).count();
        let is_call = |job: &&JobStatus| job.record.call.is_some();
        let running_calls = jobs.iter().filter(|job| !is_queued(job)).filter(is_call).count();
        let running_jobs = jobs.len() - queued_jobs;
        Self {
            running_jobs,
            running_commands: running_jobs - running_calls,
            running_calls,
            queued_jobs,
            slots_in_use: running,
            max_concurrent,
            jobs: jobs.iter().map(|status| JobReport::new(status, reader)).collect(),
            system: machine.into(),
            wait_reason,
            workers,
            outlives: ties.is_empty(),
            ends_with: ties,
        }
    }
}

impl From<MachineLoad> for MachineReport {
    fn from(machine: MachineLoad) -> Self {
        let MachineLoad { cpu_percent, memory_percent, memory_mb, disk_free_mb } = machine;
        // A sample of a tenth of a second does not support further digits.
        let rounded = |percent: f64| (percent * 10.0).round() / 10.0;
        Self {
            cpu_percent: cpu_percent.map(rounded),
            memory_percent: memory_percent.map(rounded),
            memory_mb,
            disk_free_mb,
        }
    }
}
