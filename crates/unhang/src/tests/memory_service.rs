//! A job service that keeps everything in memory, and calls of the tools on it.

use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::sync::watch;
use unhang_core::config::ANSWER_CHARACTERS;
use unhang_jobs::{
    document::Field,
    engine::MachineLoad,
    id::JobId,
    progress::JobProgress,
    record::{EndReason, JobEnd, JobState},
    timestamp::JobTimestamp,
};
use unhang_tools::{
    job_report::{
        DocumentReport, JobKind, JobReport, ListReport, ListedReport, LogReport, ReportReader, ResultsReport,
        SystemReport, ToolNames, testing as samples,
    },
    service::{
        CallAnswer, Caller, JobFuture, JobService, JobServiceError, Located, LogRequest, ResultsExtent,
        SubmitRequest,
    },
    *,
};

use crate::settings::Settings;

/// That of the samples.
pub(super) const ID: &str = "abcdefgh2345";

/// What it was asked, and what it answers.
#[derive(Default)]
pub(super) struct RecordedRequests {
    pub(super) submitted: Vec<SubmitRequest>,
    pub(super) terminated: u32,
    pub(super) waits: Vec<Duration>,
    pub(super) pages: Vec<LogRequest>,
    pub(super) lists: Vec<(Option<JobState>, u32)>,
    pub(super) refuse: Option<String>,
    pub(super) results: Option<Value>,
    /// Of a call of a server's tool.
    pub(super) answer: Option<Value>,
    pub(super) jobs: usize,
    pub(super) value: Option<Value>,
    pub(super) log: String,
}

pub(super) struct MemoryService {
    asked: Mutex<RecordedRequests>,
    pub(super) state: watch::Sender<JobState>,
}

/// A job as the engine would have it, after a time that does not go on.
fn job(state: JobState) -> JobReport {
    let progress = || Some(JobProgress { fraction: Some(0.4), message: Some("loading".to_owned()) });
    let mut status = match state {
        JobState::Queued | JobState::Starting | JobState::Running => samples::status(|record| {
            record.status = state;
            record.started_at = (state != JobState::Queued).then_some(record.created_at);
        }),
        JobState::Completed => samples::ended(JobEnd::Completed, |ending| ending.exit_code = Some(0)),
        JobState::Failed => samples::ended(JobEnd::Failed, |ending| {
            *ending = ending.clone().because(EndReason::Timeout, "it ran longer than 30m");
        }),
        JobState::Cancelled => samples::ended(JobEnd::Cancelled, |ending| ending.signal = Some(15)),
        JobState::Lost => samples::ended(JobEnd::Lost, |_| {}),
    };
    (status.record.state_applied, status.progress) =
        ((state == JobState::Completed).then_some(true), progress());
    status.queue_position = (state == JobState::Queued).then_some(2);
    JobReport {
        elapsed_time_seconds: 12.346,
        ..JobReport::new(&status, ReportReader::Agent(ToolNames::default()))
    }
}

impl MemoryService {
    pub(super) fn new(state: JobState) -> Arc<MemoryService> {
        Arc::new(MemoryService { asked: Mutex::default(), state: watch::Sender::new(state) })
    }

    pub(super) fn asked(&self) -> MutexGuard<'_, RecordedRequests> {
        self.asked.lock().expect("no test panics with it")
    }

    pub(super) fn job(&self) -> JobReport {
        job(*self.state.borrow())
    }

    fn known(&self, id: JobId) -> Result<(), JobServiceError> {
        if id.as_str() == ID { Ok(()) } else { Err(JobServiceError(format!("there is no job {id}"))) }
    }
}

impl JobService for MemoryService {
    fn on_behalf(self: Arc<Self>, _caller: &Caller) -> Arc<dyn JobService> {
        self
    }

    fn knows(&self, id: JobId) -> JobFuture<'_, bool> {
        Box::pin(async move { Ok(id.as_str() == ID) })
    }

    fn answer(&self, _id: JobId, _extent: ResultsExtent) -> JobFuture<'_, Option<CallAnswer>> {
        let answer = self.asked().answer.clone();
        let answer = answer.map(|answer| CallAnswer::Result(answer.to_string()));
        Box::pin(async { Ok(answer) })
    }

    fn submit(&self, request: SubmitRequest) -> JobFuture<'_, JobReport> {
        let mut asked = self.asked();
        asked.submitted.push(request);
        let answer = asked.refuse.clone().map_or_else(|| Ok(self.job()), |why| Err(JobServiceError(why)));
        Box::pin(async move { answer })
    }

    fn status(&self, id: JobId, wait: Duration) -> JobFuture<'_, JobReport> {
        self.asked().waits.push(wait);
        Box::pin(async move {
            self.known(id)?;
            let mut states = self.state.subscribe();
            let _over = tokio::time::timeout(wait, states.wait_for(|state| state.is_final())).await;
            Ok(self.job())
        })
    }

    fn results(&self, id: JobId) -> JobFuture<'_, Located<ResultsReport>> {
        let results = self.asked().results.clone();
        let answer = self.asked().answer.clone();
        Box::pin(async move {
            self.known(id)?;
            let mut job = self.job();
            if answer.is_some() {
                let (stdout_tail, stderr_tail) = Default::default();
                job.kind = Some(JobKind::Call);
                let results_name = None;
                let report = ResultsReport {
                    job,
                    results: answer,
                    results_name,
                    error: None,
                    stdout_tail,
                    stderr_tail,
                    gone: Vec::new(),
                };
                return Ok(Located { report, path: Some("/data/jobs/x".into()) });
            }
            let error = (job.status == JobState::Failed).then(|| json!({ "kind": "overflow" }));
            let (stdout_tail, stderr_tail) = ("a".repeat(5000) + "the end", String::new());
            let results_name = Some("results.json".to_owned());
            let report = ResultsReport {
                job,
                results,
                results_name,
                error,
                stdout_tail,
                stderr_tail,
                gone: Vec::new(),
            };
            Ok(Located { report, path: Some("/data/jobs/x".into()) })
        })
    }

    fn logs(&self, id: JobId, page: LogRequest) -> JobFuture<'_, LogReport> {
        self.asked().pages.push(page);
        let log = self.asked().log.clone();
        Box::pin(async move {
            self.known(id)?;
            let end = log.len().min(page.max_bytes);
            let next_offset = page.offset + end as u64;
            Ok(LogReport {
                text: log[..end].to_owned(),
                offset: page.offset,
                next_offset,
                eof: false,
                dropped_before: 7,
            })
        })
    }

    fn list(&self, filter: Option<JobState>, limit: u32) -> JobFuture<'_, ListReport> {
        self.asked().lists.push((filter, limit));
        let jobs = vec![self.job(); self.asked().jobs];
        Box::pin(async move { Ok(ListReport { jobs, max_concurrent: 4 }) })
    }

    fn terminate(&self, id: JobId) -> JobFuture<'_, JobReport> {
        Box::pin(async move {
            self.known(id)?;
            self.asked().terminated += 1;
            if self.job().status.is_final() {
                return Err(JobServiceError(format!("job {id} has ended already: completed")));
            }
            self.state.send_replace(JobState::Cancelled);
            Ok(self.job())
        })
    }

    fn system(&self) -> JobFuture<'_, SystemReport> {
        let jobs = vec![self.job(); self.asked().jobs];
        let machine =
            MachineLoad { cpu_percent: Some(12.5), memory_mb: Some(2048), ..MachineLoad::default() };
        let system = SystemReport {
            running_jobs: 1,
            running_commands: 1,
            running_calls: 0,
            queued_jobs: 0,
            slots_in_use: 1,
            max_concurrent: 4,
            jobs,
            system: machine.into(),
            wait_reason: None,
            workers: Vec::new(),
            outlives: false,
            ends_with: vec!["the container ends with its first process, `sh`".to_owned()],
        };
        Box::pin(async move { Ok(system) })
    }

    fn get_state(&self, field: Field) -> JobFuture<'_, Located<DocumentReport>> {
        let value = self.asked().value.clone();
        Box::pin(async move {
            let value =
                value.ok_or_else(|| JobServiceError(format!("the state field `{field}` was never set")))?;
            let path = Some(Path::new("/data/state/x.json").to_owned());
            let report = DocumentReport { field, value, updated_at: JobTimestamp::from_millis(0) };
            Ok(Located { report, path })
        })
    }

    fn counts(&self) -> JobFuture<'_, Vec<(JobState, u64)>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn set_state(&self, _field: Field, value: Value) -> JobFuture<'_, JobTimestamp> {
        self.asked().value = Some(value);
        Box::pin(async { Ok(JobTimestamp::from_millis(0)) })
    }

    fn list_state(&self) -> JobFuture<'_, Vec<ListedReport>> {
        let entry = |number| ListedReport {
            field: format!("field_{number}").parse().expect("a name"),
            updated_at: JobTimestamp::from_millis(0),
            bytes: 12,
        };
        let entries = (0..self.asked().jobs).map(entry).collect();
        Box::pin(async move { Ok(entries) })
    }
}

pub(super) const FILE: &str = r#"
[tools.simulate]
description = "Simulates the digester."
command = ["python", "simulate.py", "--out={job_dir}", "--cod", "{args.cod}", ["--days", "{args.days}"]]
mode = "job"
input-schema = { properties = { cod = { type = "number" }, days = {} }, required = ["cod"] }
inputs = { "basis.json" = "basis_of_design" }
results = "results.json"
state = { field = "simulation_results", pointer = "/digester" }
timeout = "30m"

[tools.quick]
command = ["echo"]
"#;

pub(super) fn table(service: &Arc<MemoryService>) -> Table {
    let loaded = Settings::read(FILE, "unhang.toml", Path::new("/project"), &|_| None).expect("it is right");
    Table::new(loaded.settings.tools, &ModeOverrides::default(), Arc::clone(service) as _, JobTools::Listed)
        .expect("no name is taken")
}

/// Calls a tool; checks that its answer is what its definition promises.
pub(super) async fn call(service: &Arc<MemoryService>, tool: &str, arguments: Value) -> ToolAnswer {
    let (_open, cancellation) = Cancellation::new();
    cancellable(service, tool, arguments, cancellation).await
}

pub(super) async fn cancellable(
    service: &Arc<MemoryService>,
    tool: &str,
    arguments: Value,
    cancellation: Cancellation,
) -> ToolAnswer {
    let table = table(service);
    let definition =
        table.definitions().iter().find(|known| known.name == tool).cloned().expect("it is listed");
    let length = arguments.to_string().len();
    let Value::Object(arguments) = arguments else { panic!("no arguments") };
    let answer = table
        .call(ToolCall {
            tool: tool.to_owned(),
            arguments,
            length,
            caller: Caller::owner(),
            limit: Duration::from_secs(60),
            cancellation,
        })
        .await;
    let schema = definition.output_schema.expect("all have one");
    if let Some(structured) = &answer.structured {
        let promised = ArgumentSchema::new(schema).expect("it is a schema");
        assert_eq!(promised.check(&structured.clone().into()), Ok(()), "{tool}: {structured:?}");
        let length = Value::from(structured.clone()).to_string().chars().count();
        assert!(length <= ANSWER_CHARACTERS, "{tool} answers with {length} characters");
    } else {
        assert!(answer.is_error, "{tool} promises a structured answer");
    }
    assert!(answer.text.chars().count() <= ANSWER_CHARACTERS, "{tool}");
    answer
}

pub(super) fn fields(answer: &ToolAnswer) -> Value {
    assert!(!answer.is_error, "{}", answer.text);
    answer.structured.clone().expect("structured").into()
}

pub(super) fn keys(value: &Value) -> Vec<&str> {
    value.as_object().map_or(Vec::new(), |object| object.keys().map(String::as_str).collect())
}
