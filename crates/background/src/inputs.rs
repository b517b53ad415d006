//! Questions that servers ask about calls that are jobs, until a client that follows the task answers them.
//!
//! Invariants
//!
//! - The name of a question is unique within its task, whichever processes have had the task. A question gets one answer: the client's, or the word that the client gives none.
//! - Questions end with their task, or when their server withdraws them.
//! - A task has at most [`INPUT_LIMIT`] open questions; further ones are declined.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde_json::value::RawValue;
use tokio::sync::{oneshot, watch};
use unhang_bridge::tasks::INPUT_LIMIT;
use unhang_jobs::id::JobId;

use unhang_gateway::Replied;

/// The length of the word of a process in the names of its questions.
const WORD: usize = 6;

/// A question of a server that is not answered yet.
#[derive(Clone, Debug)]
pub struct OpenInput {
    /// The question's name.
    pub key: String,
    /// The method of the server's request.
    pub method: String,
    /// The params of the request, as the server wrote them.
    pub params: Option<Box<RawValue>>,
}

#[derive(Debug, Default)]
struct OfOne {
    /// The number of questions that the task has ever asked.
    count: u64,
    open: Vec<(OpenInput, oneshot::Sender<Replied>)>,
}

/// The open questions of all tasks.
#[derive(Debug)]
pub(crate) struct Inputs {
    /// The word that tells the questions of this process from those of an earlier one.
    word: Box<str>,
    tasks: Mutex<HashMap<JobId, OfOne>>,
    changes: watch::Sender<u64>,
}

impl Default for Inputs {
    fn default() -> Self {
        // Without a random source, the names may be those of an earlier process.
        let word = JobId::random().map_or_else(|_| "0".into(), |drawn| drawn.as_str()[..WORD].into());
        Self { word, tasks: Mutex::default(), changes: watch::Sender::new(0) }
    }
}

impl Inputs {
    fn tasks(&self) -> MutexGuard<'_, HashMap<JobId, OfOne>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a receiver that wakes up whenever a question is asked or answered.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Adds a question about a task. Drops `reply`, which declines the question, if the task has too many of them.
    pub(super) fn ask(
        &self,
        id: JobId,
        method: String,
        params: Option<Box<RawValue>>,
        reply: oneshot::Sender<Replied>,
    ) {
        {
            let mut tasks = self.tasks();
            let task = tasks.entry(id).or_default();
            // Servers that asked may have gone.
            task.open.retain(|(_, reply)| !reply.is_closed());
            if task.open.len() >= INPUT_LIMIT {
                return;
            }
            task.count += 1;
            let input = OpenInput { key: format!("question-{}-{}", self.word, task.count), method, params };
            task.open.push((input, reply));
        }
        self.changed();
    }

    /// Returns the questions that a task waits for.
    pub(super) fn open(&self, id: JobId) -> Vec<OpenInput> {
        let tasks = self.tasks();
        let open = tasks.get(&id).map(|task| task.open.as_slice()).unwrap_or_default();
        open.iter().filter(|(_, reply)| !reply.is_closed()).map(|(input, _)| input.clone()).collect()
    }

    /// Gives an answer to the server that asked. Returns whether the task had an open question of this name.
    pub(super) fn answer(&self, id: JobId, key: &str, replied: Replied) -> bool {
        let found = {
            let mut tasks = self.tasks();
            let open = tasks.get_mut(&id).map(|task| &mut task.open);
            open.and_then(|open| {
                let index = open.iter().position(|(input, _)| input.key == key)?;
                Some(open.remove(index))
            })
        };
        let Some((_, reply)) = found else { return false };
        // The server may have gone meanwhile.
        let _gone = reply.send(replied);
        self.changed();
        true
    }

    /// Forgets the questions of a task that their server has withdrawn.
    pub(super) fn forget_withdrawn(&self, id: JobId) {
        let mut tasks = self.tasks();
        let Some(task) = tasks.get_mut(&id) else { return };
        let before = task.open.len();
        task.open.retain(|(_, reply)| !reply.is_closed());
        let is_changed = task.open.len() < before;
        drop(tasks);
        if is_changed {
            self.changed();
        }
    }

    /// Drops the questions of a task that has ended.
    pub(super) fn forget(&self, id: JobId) {
        if self.tasks().remove(&id).is_some() {
            self.changed();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_question_is_answered_once_and_by_its_name() {
        let (inputs, id) = (Inputs::default(), JobId::random().unwrap());
        let ask = || {
            let (reply, replied) = oneshot::channel();
            inputs.ask(id, "elicitation/create".to_owned(), None, reply);
            replied
        };
        let (mut first, second) = (ask(), ask());
        let keys = || inputs.open(id).into_iter().map(|input| input.key).collect::<Vec<_>>();
        let name = |count: u32| format!("question-{}-{count}", inputs.word);
        assert_eq!(keys(), [name(1), name(2)]);
        assert!(!inputs.answer(id, &name(3), Ok("{}".to_owned())));
        assert!(inputs.answer(id, &name(2), Ok("{}".to_owned())));
        assert!(!inputs.answer(id, &name(2), Ok("{}".to_owned())), "once");
        assert_eq!(second.await.unwrap(), Ok("{}".to_owned()));
        assert_eq!(keys(), [name(1)]);
        let _third = ask();
        assert_eq!(keys(), [name(1), name(3)], "a name is not given twice");
        inputs.forget(id);
        assert_eq!(first.try_recv(), Err(oneshot::error::TryRecvError::Closed), "it ends with its task");
    }

    #[tokio::test]
    async fn so_many_are_open_at_most() {
        let (inputs, id) = (Inputs::default(), JobId::random().unwrap());
        let replies: Vec<_> = (0..=INPUT_LIMIT)
            .map(|_| {
                let (reply, replied) = oneshot::channel();
                inputs.ask(id, "roots/list".to_owned(), None, reply);
                replied
            })
            .collect();
        assert_eq!(inputs.open(id).len(), INPUT_LIMIT);
        assert!(replies.into_iter().next_back().unwrap().await.is_err(), "declined");
    }
}
