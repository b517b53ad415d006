//! What a front needs of whoever runs jobs: answers to what clients ask of tasks, and a place for calls that become some.

use std::{sync::Arc, time::Duration};

use unhang_jobs::{id::JobId, record::JobState};

use super::tasks::{JobsBehind, TaskAsked, TaskTold, TasksTold};
use crate::{
    promoted::PromotedCalls,
    tools::service::{Caller, JobError, JobService},
};

/// Jobs behind a front. Clones are the same.
#[derive(Clone)]
pub struct Jobs {
    /// Runs them.
    pub service: Arc<dyn JobService>,
    /// Calls that become some; none do where this says nothing.
    pub promoted: Option<PromotedCalls>,
    /// Whoever comes is told from others, so that there can be lists for each.
    pub tells_callers_apart: bool,
}

impl Jobs {
    /// The same for this caller.
    pub(super) fn on_behalf(&self, caller: &Caller) -> Self {
        Self { service: Arc::clone(&self.service).on_behalf(caller), ..self.clone() }
    }

    /// What this caller sees of them.
    pub(super) fn seen_by(&self, caller: &Caller) -> JobsBehind {
        JobsBehind {
            are_there: true,
            promotes: self.promoted.is_some(),
            tells_callers_apart: self.tells_callers_apart || caller.name().is_some(),
            are_of_windows: false,
            ttl: self.service.retention(),
        }
    }

    /// What is known of what is asked.
    pub(super) async fn told(&self, asked: TaskAsked) -> TasksTold {
        if let Some(id) = asked.about() {
            match self.service.knows(id) {
                Ok(true) => {}
                Ok(false) => return TasksTold::Unknown(id),
                Err(JobError(why)) => return TasksTold::Failed(why),
            }
        }
        let told = match asked {
            TaskAsked::Get(id) | TaskAsked::Update(id, _) => self.one(id, Duration::ZERO).await.map(one),
            TaskAsked::Result(id, wait) => self
                .one(id, wait)
                .await
                .map(|told| if told.report.status.is_final() { one(told) } else { TasksTold::NotYet }),
            TaskAsked::Cancel(id) => self.cancel(id).await,
            TaskAsked::List => {
                self.service.list(None, MOST_LISTED).await.map(|list| TasksTold::All(list.jobs))
            }
        };
        told.unwrap_or_else(|JobError(why)| TasksTold::Failed(why))
    }

    async fn one(&self, id: JobId, wait: Duration) -> Result<TaskTold, JobError> {
        let report = self.service.status(id, wait).await?;
        let answer = if report.status.is_final() { self.service.answer(id).await? } else { None };
        Ok(TaskTold { report, answer })
    }

    async fn cancel(&self, id: JobId) -> Result<TasksTold, JobError> {
        let before = self.one(id, Duration::ZERO).await?;
        if before.report.status.is_final() {
            return Ok(TasksTold::HasEnded(Box::new(before)));
        }
        match self.service.terminate(id).await {
            Ok(_) => self.one(id, Duration::ZERO).await.map(one),
            Err(why) => {
                let after = self.one(id, Duration::ZERO).await?;
                match after.report.status {
                    // It was quicker.
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

fn one(told: TaskTold) -> TasksTold {
    TasksTold::One(Box::new(told))
}

/// Tasks of a list; the newest.
const MOST_LISTED: u32 = 100;
