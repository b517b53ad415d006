//! What is promised of answers, and what they have.

use serde_json::Value;
use unhang_jobs::record::{EndReason, JobEnd};

use crate::{
    answer_text,
    job_report::{JobKind, JobReport, ReportReader, ToolNames, testing as samples},
    schemas,
};

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().map_or(Vec::new(), |object| object.keys().map(String::as_str).collect())
}

#[test]
fn each_member_of_a_status_is_in_its_schema() {
    let failed = samples::ended(JobEnd::Failed, |ending| {
        *ending = ending.clone().because(EndReason::Timeout, "it ran longer than 30m");
    });
    let mut everything = JobReport::new(&failed, ReportReader::Agent(ToolNames::default()));
    everything.kind = Some(JobKind::Call);
    (everything.progress, everything.progress_message) = (Some(0.5), Some("loading".to_owned()));
    everything.queue_position = Some(1);
    everything.open_questions = Some(1);
    everything.wait_reason = Some("no memory".to_owned());
    everything.worker = Some("vm-1".to_owned());
    (everything.exit_code, everything.signal) = (Some(1), Some(9));
    (everything.state_applied, everything.state_reason) = (Some(false), Some("no such member".to_owned()));
    let told = answer_text::status(&everything).answer(false);
    let schema = schemas::status();
    let told = Value::from(told.structured.expect("structured"));
    assert_eq!(keys(&told), keys(&schema["properties"]));
}
