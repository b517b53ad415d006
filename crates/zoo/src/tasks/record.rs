//! One task: what happened to it from outside, and what it has come to since, which follows from that and the time.
//!
//! # Invariants
//!
//! - A task that has ended stays as it ended.
//! - An answer counts once, and only to what is asked at that moment.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::plan::{self, FailingTool, TaskTool, UserQuestion};

/// What is known of a task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TaskEntry {
    pub(crate) id: String,
    pub(crate) tool: String,
    pub(crate) arguments: Value,
    /// What the client answered, by the keys of the questions.
    answers: Value,
    /// All times are in milliseconds since 1970.
    pub(crate) created: u64,
    /// When the last answer came.
    answered: Option<u64>,
    cancelled: Option<u64>,
    /// In milliseconds from the creation; `None` for ever.
    pub(crate) ttl: Option<u64>,
    /// How often it was asked for.
    #[serde(skip)]
    pub(crate) polls: u64,
}

/// What has become of a task.
#[derive(Clone, Debug)]
pub(crate) enum TaskStage {
    Working,
    /// It waits for the answers to these.
    Asking(Vec<&'static UserQuestion>),
    Completed(Value),
    Failed(FailingTool),
    Cancelled,
}

impl TaskStage {
    /// The word for it in both dialects.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Asking(_) => "input_required",
            Self::Completed(_) => "completed",
            Self::Failed(_) => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    pub(crate) fn is_final(&self) -> bool {
        !matches!(self, Self::Working | Self::Asking(_))
    }

    /// What a person is told.
    pub(crate) fn sentence(&self) -> &'static str {
        match self {
            Self::Working => "It is being worked on",
            Self::Asking(_) => "It waits for an answer",
            Self::Completed(_) => "It is done",
            Self::Failed(_) => "It broke",
            Self::Cancelled => "It was cancelled",
        }
    }
}

impl TaskEntry {
    pub(crate) fn new(
        id: String,
        plan: &TaskTool,
        arguments: Value,
        answers: Value,
        created: u64,
        ttl: Option<u64>,
    ) -> Self {
        let tool = plan.tool.to_owned();
        Self { id, tool, arguments, answers, created, answered: None, cancelled: None, ttl, polls: 0 }
    }

    /// Whether it has not been forgotten.
    pub(crate) fn lives_at(&self, now: u64) -> bool {
        self.ttl.is_none_or(|ttl| now < self.created.saturating_add(ttl))
    }

    /// Returns what has become of it.
    pub(crate) fn stage_at(&self, now: u64) -> TaskStage {
        self.look_at(now).0
    }

    /// Returns when that became of it, or when an answer came last.
    pub(crate) fn updated_at(&self, now: u64) -> u64 {
        self.look_at(now).1
    }

    fn look_at(&self, now: u64) -> (TaskStage, u64) {
        if let Some(cancelled) = self.cancelled {
            return (TaskStage::Cancelled, cancelled);
        }
        // A file of another version may name a tool that there is not any more.
        let Some(plan) = plan::find(&self.tool) else { return (TaskStage::Cancelled, self.created) };
        // Every task begins as one that works.
        let asks = self.created.saturating_add(plan.work(&self.arguments).max(1));
        if now < asks {
            return (TaskStage::Working, self.created);
        }
        let open = plan.open(&self.answers);
        let answered = self.answered.unwrap_or(asks).max(asks);
        if !open.is_empty() {
            return (TaskStage::Asking(open), answered);
        }
        let ends = answered.saturating_add(plan.afterwards());
        if now < ends {
            return (TaskStage::Working, answered);
        }
        match plan.end(&self.arguments, &self.answers) {
            Ok(result) => (TaskStage::Completed(result), ends),
            Err(broken) => (TaskStage::Failed(broken), ends),
        }
    }

    pub(super) fn take(&mut self, answers: &Value, now: u64) {
        let TaskStage::Asking(open) = self.stage_at(now) else { return };
        for question in open {
            let answer = &answers[question.key];
            if answer.is_object() {
                self.answers[question.key] = answer.clone();
                self.answered = Some(now);
            }
        }
    }

    pub(super) fn cancel(&mut self, now: u64) {
        if !self.stage_at(now).is_final() {
            self.cancelled = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn task(tool: &str, arguments: Value) -> TaskEntry {
        let plan = plan::find(tool).expect("it is there");
        TaskEntry::new("1".to_owned(), plan, arguments, json!({}), 1000, Some(60_000))
    }

    fn word(task: &TaskEntry, now: u64) -> (&'static str, u64) {
        (task.stage_at(now).word(), task.updated_at(now))
    }

    #[test]
    fn work_ends_in_its_time() {
        let mut slow = task("slow_compute", json!({"seconds": 2, "label": "x"}));
        assert_eq!(word(&slow, 2999), ("working", 1000));
        assert_eq!(word(&slow, 9000), ("completed", 3000));
        slow.cancel(9000);
        assert_eq!(word(&slow, 9000), ("completed", 3000), "what has ended is not cancelled");
        assert!(slow.lives_at(60_999) && !slow.lives_at(61_000));
        let broken = task("protocol_error_job", json!({}));
        assert_eq!(word(&broken, 2000), ("failed", 2000));
    }

    #[test]
    fn questions_are_answered_in_part_once_and_when_they_are_asked() {
        let mut asking = task("multi_input", json!({}));
        let (first, second) = (json!({"first": {"action": "accept"}}), json!({"second": {}, "third": {}}));
        asking.take(&first, 1500);
        assert_eq!(word(&asking, 1500), ("working", 1000), "nothing was asked yet");
        assert_eq!(word(&asking, 2000), ("input_required", 2000));
        asking.take(&first, 3000);
        asking.take(&first, 3500);
        let TaskStage::Asking(open) = asking.stage_at(3500) else { panic!("{asking:?}") };
        assert_eq!((open.len(), open[0].key, asking.updated_at(3500)), (1, "second", 3000));
        asking.take(&second, 4000);
        assert_eq!(word(&asking, 4199), ("working", 4000));
        assert_eq!(word(&asking, 4200), ("completed", 4200));
    }

    #[test]
    fn what_is_cancelled_stays_cancelled() {
        let mut slow = task("slow_compute", json!({}));
        slow.cancel(1500);
        slow.cancel(1600);
        assert_eq!(word(&slow, 9000), ("cancelled", 1500));
    }
}
