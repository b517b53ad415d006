//! What is told of jobs, from records as the engine keeps them.

use serde_json::json;

use unhang_proc::identity::Identity;

use super::{
    testing::{ended, status},
    *,
};
use unhang_jobs::{
    engine::{MachineLoad, System},
    progress::JobProgress,
    record::{CallRecord, EndRecord, Holder, JobEnd, JobState},
};

#[test]
fn the_names_are_those_of_the_contract_and_what_means_nothing_is_absent() {
    let mut queued = status(|_| {});
    queued.queue_position = Some(3);
    let mut report = serde_json::to_value(JobReport::new(&queued, ReportReader::Person)).unwrap();
    assert!(report["elapsed_time_seconds"].take().as_f64().unwrap() > 0.0);
    assert_eq!(
        report,
        json!({"job_id": "abcdefgh2345", "name": "simulate", "status": "queued",
            "created_at": "2026-03-30T12:00:00.000Z", "elapsed_time_seconds": null, "queue_position": 3,
            "next_steps": ["unhang job wait abcdefgh2345", "unhang job logs -f abcdefgh2345"]})
    );
    let mut failed = ended(JobEnd::Failed, |ending| ending.exit_code = Some(3));
    failed.progress = Some(JobProgress { fraction: Some(0.4), message: Some("cooling".to_owned()) });
    assert_eq!(
        serde_json::to_value(JobReport::new(&failed, ReportReader::Agent(ToolNames::default()))).unwrap(),
        json!({"job_id": "abcdefgh2345", "name": "simulate", "status": "failed",
            "created_at": "2026-03-30T12:00:00.000Z", "started_at": "2026-03-30T12:00:00.000Z",
            "completed_at": "2026-03-30T12:00:01.500Z", "elapsed_time_seconds": 1.5, "progress": 0.4,
            "progress_message": "cooling", "exit_code": 3,
            "next_steps": [
                "get_job_results(job_id=\"abcdefgh2345\") has the error and the end of the output",
                "get_job_logs(job_id=\"abcdefgh2345\", stream=\"stderr\") has all of stderr",
                "start it again once the cause is clear; unhang does not start it again by itself"]})
    );
    let mut completed = ended(JobEnd::Completed, |ending| ending.exit_code = Some(0));
    completed.progress = failed.progress;
    assert_eq!(JobReport::new(&completed, ReportReader::Person).progress, None, "it is done with everything");
}

#[test]
fn j_23_the_answer_to_a_submission_names_the_status_and_the_results_tool() {
    let mut queued = status(|_| {});
    queued.queue_position = Some(0);
    let accepted = Accepted::new(&JobReport::new(&queued, ReportReader::Agent(ToolNames::default())));
    assert_eq!(accepted.message, "job abcdefgh2345 is queued and starts next");
    assert!(accepted.next_steps[0].contains("get_job_status"), "{accepted:?}");
    assert!(accepted.next_steps[1].contains("get_job_results"), "{accepted:?}");
}

#[test]
fn a_summary_says_why_where_there_is_a_why() {
    let summary = |status: JobStatus| JobReport::new(&status, ReportReader::Person).summary();
    assert_eq!(summary(ended(JobEnd::Completed, |ending| ending.exit_code = Some(0))), "completed");
    assert_eq!(summary(ended(JobEnd::Cancelled, |ending| ending.signal = Some(15))), "cancelled");
    assert_eq!(summary(ended(JobEnd::Failed, |ending| ending.signal = Some(9))), "failed: signal 9");
    assert_eq!(summary(ended(JobEnd::Failed, |ending| ending.exit_code = Some(3))), "failed: exit code 3");
    let because = |ending: &mut EndRecord| {
        ending.exit_code = Some(0);
        *ending = ending.clone().because(EndReason::ResultsMissing, "results.json is missing");
    };
    assert_eq!(summary(ended(JobEnd::Failed, because)), "failed: results.json is missing");
    let mut waiting = status(|_| {});
    waiting.wait_reason = Some("95 % of the memory is in use".to_owned());
    assert_eq!(summary(waiting), "queued: 95 % of the memory is in use");
}

fn call() -> CallRecord {
    CallRecord {
        server: "files".to_owned(),
        tool: "index".to_owned(),
        is_repeatable: false,
        holder: Holder { boot_id: "b".to_owned(), process: Identity::own().unwrap().into() },
        ticket: None,
        keeper: None,
        lost_with_holder: None,
        is_unsent: false,
        lasting_key: None,
        is_passed_on: false,
    }
}

#[test]
fn the_results_of_a_job_do_not_point_to_themselves() {
    for (is_call, steps) in [(true, 0), (false, 2)] {
        let mut status = ended(JobEnd::Cancelled, |_| {});
        status.record.call = is_call.then(call);
        let results = Results {
            status,
            results: None,
            error: None,
            stdout_tail: String::new(),
            stderr_tail: String::new(),
            gone: Vec::new(),
        };
        let report = ResultsReport::new(results, ReportReader::Agent(ToolNames::default()));
        let told = report.job.next_steps;
        assert!(told.iter().all(|step| !step.contains("get_job_results")), "{told:?}");
        assert_eq!(told.len(), steps, "{told:?}");
    }
}

#[test]
fn the_machine_is_told_in_tenths_of_a_per_cent_and_ties_as_what_jobs_end_with() {
    let machine =
        MachineLoad { cpu_percent: Some(12.345), memory_percent: Some(99.96), ..MachineLoad::default() };
    let system = |ties: &[&str]| System {
        jobs: vec![
            status(|_| {}),
            status(|record| record.status = JobState::Running),
            status(|record| {
                record.status = JobState::Running;
                record.call = Some(call());
            }),
            status(|record| record.status = JobState::Completed),
        ],
        running: 2,
        max_concurrent: 2,
        machine,
        wait_reason: None,
        workers: Vec::new(),
        ties: ties.iter().map(|&tie| tie.to_owned()).collect(),
    };
    let mut free =
        serde_json::to_value(SystemReport::new(system(&[]), ReportReader::Agent(ToolNames::default())))
            .unwrap();
    let jobs = free["jobs"].take();
    assert_eq!(jobs.as_array().map(Vec::len), Some(3), "one has ended meanwhile: {jobs}");
    assert_eq!(jobs[0]["name"], "simulate");
    assert_eq!(
        free,
        json!({"running_jobs": 2, "running_commands": 1, "running_calls": 1, "queued_jobs": 1, "slots_in_use": 2,
            "max_concurrent": 2, "jobs": null, "outlives": true,
            "system": {"cpu_percent": 12.3, "memory_percent": 100.0}})
    );
    let tied = serde_json::to_value(SystemReport::new(
        system(&["a container"]),
        ReportReader::Agent(ToolNames::default()),
    ))
    .unwrap();
    assert_eq!((&tied["outlives"], &tied["ends_with"]), (&json!(false), &json!(["a container"])));
}
