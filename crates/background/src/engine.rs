//! The [`JobService`] of the real engine.
//!
//! Invariants: while a data folder cannot be used, every question gets that as its answer, and unhang still serves; a job's environment is
//! the one that the owner handed in, with the tool's own variables over it, and nothing else.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::Value;
use tokio::task::spawn_blocking;
use unhang_bridge::result;
use unhang_jobs::{
    self as jobs,
    document::Field,
    engine::{Engine, JobStatus},
    folder::FileName,
    id::JobId,
    record::{JobRecord, JobState, Patch},
    shared_jobs::WorkerSummary,
    store::JobOwnerFilter,
    submission::{InputSource, JobInput, STOP_GRACE, Submission},
    timestamp::JobTimestamp,
};
use unhang_proc::{deadline::Deadline, server::HolderCommand};
use unhang_wire::Json;

use super::{PromotedCalls, opening::Opening};
use unhang_core::{notices::Notices, revision::Revision};
use unhang_tools::{
    answer_text::{results, whole_results},
    job_report::{
        DocumentReport, JobReport, ListReport, ListedReport, LogReport, ReportReader, ResultsReport,
        SystemReport, ToolNames,
    },
    service::{
        CallAnswer, Caller, JobFuture, JobService, JobServiceError, Located, LogRequest, ResultsExtent,
        SubmitRequest,
    },
};

/// An engine, or the reason why it is missing, and everything that its jobs are given.
#[derive(Clone)]
pub struct EngineService {
    opening: Opening,
    environment: Arc<BTreeMap<OsString, OsString>>,
    /// The variables that jobs get besides, if their tools inherit the whole environment.
    rest: Arc<BTreeMap<OsString, OsString>>,
    caller: Caller,
    /// The state fields that all callers share.
    shared: Arc<BTreeSet<Field>>,
    /// The names by which the callers know the tools.
    names: ToolNames,
    /// The notice that is given when the first job is accepted.
    at_first_job: Arc<Mutex<Option<AtFirstJob>>>,
}

/// Gives a notice when the first job is accepted. It may look at the system.
type AtFirstJob = Box<dyn FnOnce() + Send>;

impl EngineService {
    /// Makes a service on this engine, whose jobs get these variables. If the engine could not be opened, every request gets that error.
    pub fn new(
        engine: Result<Engine, jobs::error::JobError>,
        environment: BTreeMap<OsString, OsString>,
    ) -> EngineService {
        Self::on(Opening::new(engine, None), environment)
    }

    /// Makes the same service, which opens the engine again for each request as long as it could not be opened. `open` may wait for the
    /// disk.
    pub fn reopening(
        engine: Result<Engine, jobs::error::JobError>,
        open: impl Fn() -> Result<Engine, jobs::error::JobError> + Send + Sync + 'static,
        environment: BTreeMap<OsString, OsString>,
    ) -> EngineService {
        Self::on(Opening::new(engine, Some(Box::new(open))), environment)
    }

    fn on(opening: Opening, environment: BTreeMap<OsString, OsString>) -> EngineService {
        let environment = Arc::new(environment);
        EngineService {
            opening,
            environment,
            rest: Arc::default(),
            caller: Caller::owner(),
            shared: Arc::default(),
            names: ToolNames::default(),
            at_first_job: Arc::default(),
        }
    }

    /// Returns the same service, whose calls of stdio servers go on in a call holder when this process has ended. `command` runs one,
    /// without its plan; without it, these calls end with this process.
    #[must_use]
    pub fn with_call_holder(self, command: Option<HolderCommand>) -> EngineService {
        if let Some(command) = command {
            self.opening.hold_by(command);
        }
        self
    }

    /// Returns the same service with the whole environment, for jobs of tools that inherit it.
    #[must_use]
    pub fn with_all(self, environment: BTreeMap<OsString, OsString>) -> EngineService {
        EngineService { rest: Arc::new(environment), ..self }
    }

    /// Returns the same service, in which all callers share these state fields. Any other field belongs to one caller, as jobs do.
    #[must_use]
    pub fn sharing_state(self, shared: BTreeSet<Field>) -> EngineService {
        EngineService { shared: shared.into(), ..self }
    }

    /// Returns the name of the caller that this field belongs to; `None` if the field is shared or the caller owns the data folder.
    fn holder(&self, field: &Field) -> Option<String> {
        self.caller.name().filter(|_| !self.shared.contains(field)).map(str::to_owned)
    }

    /// Returns the same service, which gives this notice once, as soon as a job is accepted, if `what` returns a text.
    #[must_use]
    pub fn telling_at_first_job(
        self,
        notices: Notices,
        what: impl FnOnce() -> Option<String> + Send + 'static,
    ) -> EngineService {
        let say = move || {
            if let Some(text) = what() {
                tracing::warn!("{text}");
                notices.say(&text);
            }
        };
        let at_first_job: Option<AtFirstJob> = Some(Box::new(say));
        EngineService { at_first_job: Arc::new(Mutex::new(at_first_job)), ..self }
    }

    /// Notes that a job was accepted, and gives the notice for the first one.
    fn accepted(&self) {
        let first = self.at_first_job.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(say) = first {
            // The closure looks at files.
            drop(spawn_blocking(say));
        }
    }

    /// Returns the same service for callers that know the tools by these names.
    #[must_use]
    pub fn called_by(self, names: ToolNames) -> EngineService {
        EngineService { names, ..self }
    }

    /// Waits until the data folder has been opened, and returns the [`PromotedCalls`] of its engine; `None` if it can no longer be opened.
    pub async fn until_opened(&self) -> Option<PromotedCalls> {
        Some(self.opening.until_opened().await?.told_with(self.names))
    }

    /// Returns the [`PromotedCalls`], if calls can become jobs at the moment; `None` otherwise.
    #[must_use]
    pub fn promoted(&self) -> Option<PromotedCalls> {
        Some(self.opening.promoted()?.told_with(self.names))
    }

    /// Returns the same service for this caller, which does not see the jobs of other callers.
    #[must_use]
    pub fn for_caller(self: Arc<Self>, caller: &Caller) -> Arc<EngineService> {
        if self.caller == *caller {
            return self;
        }
        Arc::new(EngineService { caller: caller.clone(), ..EngineService::clone(&self) })
    }

    /// Notes that a client has read the result of this job.
    async fn was_read(&self, job: &JobRecord) {
        if let Some(promoted) = self.opening.promoted() {
            promoted.joinable().was_read(job).await;
        }
    }

    /// Closes the engine. Jobs that already have a slot are still started before the program exits.
    pub async fn close(&self) {
        if let Some(engine) = self.opening.known()
            && let Err(error) = engine.close().await
        {
            tracing::warn!("{error}");
        }
    }

    /// Returns the engine. Opens the data folder again if it could not be opened before.
    ///
    /// # Errors
    /// Fails with the reason why the data folder cannot be opened.
    pub async fn engine(&self) -> Result<Engine, JobServiceError> {
        self.opening.engine().await
    }

    /// Returns the engine, if it has this job and the job belongs to the caller.
    async fn engine_with(&self, id: JobId) -> Result<Engine, JobServiceError> {
        let engine = self.engine().await?;
        let found = match engine.status(id).await {
            // The caller gets the same words as for a job that never existed.
            Ok(status) if !self.is_callers(&status) => Err(jobs::error::JobError::NoSuchJob(id)),
            found => found,
        };
        match found {
            Ok(_) => Ok(engine),
            Err(error @ (jobs::error::JobError::NoSuchJob(_) | jobs::error::JobError::Removed(_))) => {
                Err(JobServiceError(format!("{error}; {}", self.names.source_of_ids())))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn is_callers(&self, status: &JobStatus) -> bool {
        status.record.owner.as_deref() == self.caller.name()
    }

    /// Makes the report of a job for an agent.
    fn told(&self, status: &JobStatus) -> JobReport {
        JobReport::new(status, ReportReader::Agent(self.names))
    }

    fn whose(&self) -> JobOwnerFilter {
        JobOwnerFilter::Of(self.caller.name().map(str::to_owned))
    }

    /// Makes the submission of a request, for a job with this id.
    #[must_use]
    pub fn submission(&self, engine: &Engine, id: JobId, request: SubmitRequest) -> Submission {
        let folder = engine.new_work_folder(id);
        let mut private = match request.inherits_environment {
            true => BTreeMap::clone(&self.rest),
            false => BTreeMap::new(),
        };
        private.extend(request.environment.into_iter().map(|(name, value)| (name.into(), value.into())));
        let input = |(file, field): (FileName, _)| {
            let source = match self.holder(&field) {
                Some(_) => InputSource::OwnState(field),
                None => InputSource::State(field),
            };
            JobInput { file: file.into(), source }
        };
        let patch =
            request.state.map(|patch| Patch { is_shared: self.shared.contains(&patch.field), ..patch });
        Submission {
            id,
            name: request.tool.clone(),
            tool: Some(request.tool),
            owner: self.caller.name().map(str::to_owned),
            command: request.command.iter().map(|word| word.render(&folder, id.as_str())).collect(),
            folder: request.folder,
            environment: BTreeMap::clone(&self.environment).into_iter().collect(),
            private_environment: private.into_iter().collect(),
            inputs: request.inputs.into_iter().map(input).collect(),
            arguments: Some(request.arguments.into()),
            results: request.results,
            patch,
            timeout: request.timeout,
            stop_grace: STOP_GRACE,
            log_limit: request.log_limit,
            lease_until: None,
            placement: request.placement,
        }
    }
}

/// Returns the answer of a call as the server wrote it, but without the members that 2026-07-28 adds to a result: see the same in
/// [`ResultsReport::new`].
fn without_protocol(result: &str) -> String {
    // No method is named, since each method removes members of its own as well.
    let told = Json::new(result.as_bytes()).and_then(|raw| result::to_legacy("", raw));
    told.map_or_else(|| result.to_owned(), Cow::into_owned)
}

impl JobService for EngineService {
    fn on_behalf(self: Arc<Self>, caller: &Caller) -> Arc<dyn JobService> {
        self.for_caller(caller)
    }

    fn knows(&self, id: JobId) -> JobFuture<'_, bool> {
        Box::pin(async move {
            match self.engine().await?.status(id).await {
                Ok(status) => Ok(self.is_callers(&status)),
                Err(jobs::error::JobError::NoSuchJob(_)) => Ok(false),
                Err(error) => Err(error.into()),
            }
        })
    }

    fn answer(&self, id: JobId, extent: ResultsExtent) -> JobFuture<'_, Option<CallAnswer>> {
        Box::pin(async move {
            let engine = self.engine_with(id).await?;
            let record = engine.status(id).await?.record;
            if !record.status.is_final() {
                return Ok(None);
            }
            self.was_read(&record).await;
            if record.call.is_none() {
                let is_error = record.status != JobState::Completed;
                let found = self.results(id).await?;
                let revision = Revision::V2025November;
                let members = match extent {
                    ResultsExtent::Bounded => results(found, self.names).answer(is_error).to_json(revision),
                    ResultsExtent::Whole => whole_results(found).answer(is_error).whole(revision),
                };
                let result = Value::from(members).to_string();
                return Ok(Some(CallAnswer::Result(result)));
            }
            Ok(match engine.call_result(id).await? {
                Some(result) if extent == ResultsExtent::Whole => {
                    Some(CallAnswer::Result(without_protocol(&result)))
                }
                Some(result) => Some(CallAnswer::Result(result)),
                None => engine.call_error(id).await?.map(CallAnswer::Error),
            })
        })
    }

    fn submit(&self, request: SubmitRequest) -> JobFuture<'_, JobReport> {
        Box::pin(async move {
            let engine = self.engine().await?;
            let id = JobId::random()
                .map_err(|error| JobServiceError(format!("unhang cannot draw a job id: {error}")))?;
            let status = engine.submit(self.submission(&engine, id, request)).await?;
            self.accepted();
            Ok(self.told(&status))
        })
    }

    fn status(&self, id: JobId, wait: Duration) -> JobFuture<'_, JobReport> {
        Box::pin(async move {
            let engine = self.engine_with(id).await?;
            let status = engine.wait(id, Deadline::after(wait)).await?;
            Ok(self.told(&status).with_open_questions(&engine).await)
        })
    }

    fn results(&self, id: JobId) -> JobFuture<'_, Located<ResultsReport>> {
        Box::pin(async move {
            let engine = self.engine_with(id).await?;
            let results = engine.results(id).await?;
            let is_here = results.status.shared.is_none();
            let path = is_here.then(|| engine.work_folder(&results.status.record));
            if results.status.record.status.is_final() {
                self.was_read(&results.status.record).await;
            }
            let report = ResultsReport::new(results, ReportReader::Agent(self.names));
            Ok(Located { report, path })
        })
    }

    fn logs(&self, id: JobId, page: LogRequest) -> JobFuture<'_, LogReport> {
        Box::pin(async move {
            Ok(self.engine_with(id).await?.logs(id, page.stream, page.offset, page.max_bytes).await?.into())
        })
    }

    fn list(&self, filter: Option<JobState>, limit: u32) -> JobFuture<'_, ListReport> {
        Box::pin(async move {
            let engine = self.engine().await?;
            let jobs = engine
                .list(filter, self.whose(), limit)
                .await?
                .iter()
                .map(|status| self.told(status))
                .collect();
            Ok(ListReport { jobs, max_concurrent: engine.options().rules.max_concurrent })
        })
    }

    fn names(&self) -> ToolNames {
        self.names
    }

    fn retention(&self) -> Option<Duration> {
        self.opening.known().map(|engine| engine.options().retention)
    }

    fn terminate(&self, id: JobId) -> JobFuture<'_, JobReport> {
        Box::pin(async move { Ok(self.told(&self.engine_with(id).await?.cancel(id).await?)) })
    }

    fn system(&self) -> JobFuture<'_, SystemReport> {
        Box::pin(async move {
            let mut system = self.engine().await?.system().await?;
            system.jobs.retain(|job| job.record.owner.as_deref() == self.caller.name());
            Ok(SystemReport::new(system, ReportReader::Agent(self.names)))
        })
    }

    fn counts(&self) -> JobFuture<'_, Vec<(JobState, u64)>> {
        Box::pin(async move { Ok(self.engine().await?.counts().await?) })
    }

    fn workers(&self) -> JobFuture<'_, Vec<WorkerSummary>> {
        Box::pin(async move { Ok(self.engine().await?.workers().await?) })
    }

    fn get_state(&self, field: Field) -> JobFuture<'_, Located<DocumentReport>> {
        Box::pin(async move {
            let engine = self.engine().await?;
            let holder = self.holder(&field);
            let path = engine.document_path(holder.as_deref(), &field);
            let document = engine.document_of(holder, field.clone()).await?.ok_or_else(|| {
                JobServiceError(format!(
                    "the state field `{field}` was never set; list_state lists all fields"
                ))
            })?;
            Ok(Located { report: document.into(), path })
        })
    }

    fn set_state(&self, field: Field, value: Value) -> JobFuture<'_, JobTimestamp> {
        Box::pin(
            async move { Ok(self.engine().await?.set_document_of(self.holder(&field), field, value).await?) },
        )
    }

    fn list_state(&self) -> JobFuture<'_, Vec<ListedReport>> {
        Box::pin(async move {
            let engine = self.engine().await?;
            let mut listed = engine.documents().await?;
            if let Some(owner) = self.caller.name() {
                listed.retain(|document| self.shared.contains(&document.field));
                let own = engine.documents_of(Some(owner.to_owned())).await?;
                // A field that an owner had before it was shared cannot be reached by its name any more.
                listed.extend(own.into_iter().filter(|document| !self.shared.contains(&document.field)));
                listed.sort_unstable_by(|one, other| one.field.cmp(&other.field));
            }
            Ok(listed.into_iter().map(ListedReport::from).collect())
        })
    }
}
