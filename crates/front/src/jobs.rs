//! The interface of the front to the job service: answers to requests about tasks, and the keeper of calls that become jobs.

use std::{
    borrow::Cow, collections::HashMap, convert::Infallible, future::pending, sync::Arc, time::Duration,
};

use serde_json::value::RawValue;
use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinSet},
    time::{sleep, timeout},
};
use unhang_bridge::{question::is_offered, tasks};
use unhang_jobs::{id::JobId, record::JobState};
use unhang_wire::Json;

use super::{
    effects::CallKey,
    tasks::{JobCapabilities, TaskAsked, TaskTold, TasksTold},
};
use unhang_background::{EngineService, OpenInput, PromotedCalls};
use unhang_core::config::TASK_LOOK_PATIENCE;
use unhang_gateway::{OpenServerQuestion, SideMessage};
use unhang_tools::{
    job_report::JobReport,
    service::{Caller, JobService, JobServiceError, ResultsExtent},
};

/// The pause between two looks at the task of a server for a client that waits for the result.
const LOOK_PAUSE: Duration = Duration::from_millis(500);

/// The way to ask the client of a request beside the answer to it.
pub(super) struct QuestionSender {
    /// The request.
    pub key: CallKey,
    /// The channel for the questions.
    pub beside: mpsc::Sender<(CallKey, SideMessage)>,
    /// The capabilities of the client, as JSON.
    pub offered: Box<str>,
}

/// The jobs behind a front. Clones share one service.
#[derive(Clone)]
pub struct SessionJobs {
    /// The service that runs the jobs.
    pub service: Arc<EngineService>,
    /// Whether callers are told apart, so that each can have a list of its own.
    pub tells_callers_apart: bool,
}

impl SessionJobs {
    /// Returns the keeper of calls as jobs. If there is none, no call becomes a job.
    pub(super) fn promoted(&self) -> Option<PromotedCalls> {
        self.service.promoted()
    }

    /// Returns the same jobs as this caller may use them.
    pub(super) fn on_behalf(&self, caller: &Caller) -> Self {
        Self { service: Arc::clone(&self.service).for_caller(caller), ..self.clone() }
    }

    /// Returns the abilities of the jobs for this caller.
    pub(super) fn seen_by(&self, caller: &Caller) -> JobCapabilities {
        JobCapabilities {
            are_there: true,
            promotes: self.promoted().is_some(),
            tells_callers_apart: self.tells_callers_apart || caller.name().is_some(),
            are_of_windows: false,
            ttl: self.service.retention(),
            alone: None,
        }
    }

    /// Carries out a request about tasks, and returns its outcome.
    pub(super) async fn told(&self, asked: TaskAsked, beside: QuestionSender) -> TasksTold {
        if let Some(id) = asked.about() {
            match self.service.knows(id).await {
                Ok(true) => {}
                Ok(false) => return TasksTold::Unknown(id),
                Err(JobServiceError(why)) => return TasksTold::Failed(why),
            }
        }
        let told = match asked {
            TaskAsked::Get(id) => self.looked_at(id).await.map(one),
            TaskAsked::Resource(id) => {
                self.of_extent(id, Duration::ZERO, ResultsExtent::Whole).await.map(one)
            }
            TaskAsked::Update(id, responses) => {
                self.update(id, responses).await;
                self.one(id, Duration::ZERO).await.map(one)
            }
            TaskAsked::Result(id, wait) => {
                let told = tokio::select! {
                    told = self.one(id, wait) => told,
                    never = self.ask_beside(id, beside) => match never {},
                    never = self.look_now_and_then(id) => match never {},
                };
                told.map(|told| if told.report.status.is_final() { one(told) } else { TasksTold::NotYet })
            }
            TaskAsked::Cancel(id) => self.cancel(id).await,
            TaskAsked::List(after) => {
                self.service.list(None, MOST_LISTED).await.map(|list| page(list.jobs, after))
            }
        };
        told.unwrap_or_else(|JobServiceError(why)| TasksTold::Failed(why))
    }

    /// Returns the state of a task after a look at the task of the server, if the server continues it as one and answers in time.
    async fn looked_at(&self, id: JobId) -> Result<TaskTold, JobServiceError> {
        let promoted = self.promoted();
        let look = async {
            match &promoted {
                Some(promoted) => promoted.look(id).await,
                None => false,
            }
        };
        // A server that does not answer in time delays nobody any longer.
        let has_ended = timeout(TASK_LOOK_PATIENCE, look).await.unwrap_or_default();
        let wait = if has_ended { TASK_LOOK_PATIENCE } else { Duration::ZERO };
        self.one(id, wait).await
    }

    /// Has the task of the server looked at for a client that waits for the result.
    async fn look_now_and_then(&self, id: JobId) -> Infallible {
        loop {
            if let Some(promoted) = self.promoted() {
                promoted.look(id).await;
            }
            sleep(LOOK_PAUSE).await;
        }
    }

    /// Returns the current state of a task.
    pub(super) async fn look(&self, id: JobId) -> Result<TaskTold, JobServiceError> {
        self.one(id, Duration::ZERO).await
    }

    async fn one(&self, id: JobId, wait: Duration) -> Result<TaskTold, JobServiceError> {
        self.of_extent(id, wait, ResultsExtent::Bounded).await
    }

    async fn of_extent(
        &self,
        id: JobId,
        wait: Duration,
        extent: ResultsExtent,
    ) -> Result<TaskTold, JobServiceError> {
        let report = self.service.status(id, wait).await?;
        let answer = if report.status.is_final() { self.service.answer(id, extent).await? } else { None };
        let inputs = match self.promoted().filter(|_| !report.status.is_final()) {
            Some(promoted) => promoted.open_inputs(id).await,
            None => Vec::new(),
        };
        Ok(TaskTold { report, answer, inputs })
    }

    /// Passes on answers to the questions of a task. An unknown name is skipped: the question may have been answered before.
    async fn update(&self, id: JobId, responses: Vec<(String, String)>) {
        let Some(promoted) = self.promoted() else { return };
        for (key, response) in responses {
            if !promoted.answer_input(id, &key, Ok(response)).await {
                tracing::info!(
                    job = id.as_str(),
                    "a client answered `{key}`, which is not an open question of the job"
                );
            }
        }
    }

    /// Asks the task's open questions to a client that waits for its result, beside that request (2025-11-25).
    async fn ask_beside(
        &self,
        id: JobId,
        QuestionSender { key, beside, offered }: QuestionSender,
    ) -> Infallible {
        let Some(promoted) = self.promoted() else { return pending().await };
        let mut changes = promoted.input_changes();
        let (mut asked, mut replies) = (HashMap::<String, Option<AbortHandle>>::new(), JoinSet::new());
        loop {
            changes.mark_unchanged();
            let open = promoted.open_inputs(id).await;
            // The session withdraws closed questions from its client.
            let is_over = |name: &String| open.iter().all(|input| input.key != *name);
            for (_, task) in asked.extract_if(|name, _| is_over(name)) {
                task.inspect(AbortHandle::abort);
            }
            for OpenInput { key: name, method, params } in open {
                if asked.contains_key(&name) {
                    continue;
                }
                if !is_offered(
                    Json::new(offered.as_bytes()).unwrap_or(Json::EMPTY),
                    (&method, params.as_deref()),
                ) {
                    // It waits for a client that can be asked.
                    continue;
                }
                let params = params.as_deref().and_then(|params| Json::new(params.get().as_bytes()));
                let params = RawValue::from_string(tasks::related(params, id.as_str())).ok();
                let (question, awaited) = OpenServerQuestion::about_one(method, params);
                // If too many questions are on their way, this one is asked with the next request.
                let is_asked = beside.try_send((key, question.into())).is_ok();
                let given = name.clone();
                let task = is_asked.then(|| replies.spawn(async move { (given, awaited.reply().await) }));
                asked.insert(name, task);
            }
            tokio::select! {
                Some(Ok((name, Some(replied)))) = replies.join_next() => {
                    // The question may have been answered elsewhere meanwhile.
                    let _known = promoted.answer_input(id, &name, replied.map(unrelated)).await;
                }
                () = promoted.inputs_changed(id, &mut changes) => {}
            }
        }
    }

    async fn cancel(&self, id: JobId) -> Result<TasksTold, JobServiceError> {
        let before = self.one(id, Duration::ZERO).await?;
        if before.report.status.is_final() {
            return Ok(TasksTold::HasEnded(Box::new(before)));
        }
        match self.service.terminate(id).await {
            Ok(_) => self.one(id, Duration::ZERO).await.map(one),
            Err(why) => {
                let after = self.one(id, Duration::ZERO).await?;
                match after.report.status {
                    // The job has ended before it could be cancelled.
                    status if status.is_final() && status != JobState::Cancelled => {
                        Ok(TasksTold::HasEnded(Box::new(after)))
                    }
                    status if status.is_final() => Ok(one(after)),
                    _ => Err(why),
                }
            }
        }
    }
}

/// Returns a client's answer without the task, of which the server has not heard.
fn unrelated(answer: String) -> String {
    let without = Json::new(answer.as_bytes()).and_then(tasks::unrelated).map(Cow::into_owned);
    without.unwrap_or(answer)
}

fn one(told: TaskTold) -> TasksTold {
    TasksTold::One(Box::new(told))
}

/// The most tasks that can be listed: the newest.
const MOST_LISTED: u32 = 1000;

/// The tasks on one page of a list.
const PAGE: usize = 100;

/// Returns the page of tasks after this one.
fn page(all: Vec<JobReport>, after: Option<JobId>) -> TasksTold {
    let begin = match after {
        None => 0,
        Some(after) => match all.iter().position(|job| job.job_id == after) {
            Some(index) => index + 1,
            None => return TasksTold::NoSuchPage,
        },
    };
    let mut rest = all;
    let mut tasks = rest.split_off(begin);
    let has_more = tasks.len() > PAGE;
    tasks.truncate(PAGE);
    TasksTold::All(tasks, has_more)
}

#[cfg(test)]
mod tests {
    use super::*;
    use unhang_tools::job_report::{ReportReader, ToolNames, testing::status};

    #[test]
    fn a_list_has_pages_and_each_task_is_on_one() {
        let all: Vec<JobReport> = (0..250)
            .map(|_| status(|record| record.job_id = JobId::random().unwrap()))
            .map(|status| JobReport::new(&status, ReportReader::Agent(ToolNames::default())))
            .collect();
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let TasksTold::All(tasks, has_more) = page(all.clone(), after) else { panic!("a page") };
            after = tasks.last().map(|task| task.job_id);
            seen.extend(tasks.into_iter().map(|task| task.job_id));
            if !has_more {
                break;
            }
        }
        assert_eq!(seen, all.iter().map(|job| job.job_id).collect::<Vec<_>>());
        let gone = JobId::random().unwrap();
        assert!(matches!(page(all, Some(gone)), TasksTold::NoSuchPage));
    }
}
