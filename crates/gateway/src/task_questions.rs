//! The questions of one task of a server, as far as they have been put to the caller of the task.
//!
//! Invariants
//!
//! - A question is put once while the task lists it. Servers need not take an answer before the next look.
//! - A question that the task lists no more is withdrawn. If the task lists it again, it is asked again, unless it was answered.

use std::collections::HashMap;

use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinSet},
};
use unhang_bridge::tasks::Payload;
use unhang_wire::{Json, text_member};

use super::SideMessage;
use unhang_upstream::question::{self, Replied};

/// The questions of a task. Dropping it withdraws them.
#[derive(Default)]
pub(super) struct TaskQuestions {
    /// The questions that were put, by their names: the task that waits for the reply.
    put: HashMap<String, AbortHandle>,
    replies: JoinSet<(String, Replied)>,
}

impl TaskQuestions {
    /// Returns whether no question waits for a reply.
    pub(super) fn are_answered(&self) -> bool {
        self.replies.is_empty()
    }

    /// Waits for the next reply; `None` if a question was withdrawn instead. Must not be awaited while all are answered. Cancel-safe.
    pub(super) async fn next_reply(&mut self) -> Option<(String, Replied)> {
        self.replies.join_next().await?.ok()
    }

    /// Puts the questions that are new to the caller.
    pub(super) fn put(&mut self, asides: &mpsc::Sender<SideMessage>, listed: Vec<(String, String)>) {
        for (key, request) in listed {
            if self.put.contains_key(&key) {
                continue;
            }
            let request = Json::new(request.as_bytes()).unwrap_or(Json::EMPTY);
            let method = text_member(request, "method").unwrap_or_default();
            let params = request.member("params").and_then(|params| serde_json::from_str(params.get()).ok());
            let (asides, name) = (asides.clone(), key.clone());
            let waits =
                self.replies.spawn(async move { (name, question::ask(&asides, method, params).await) });
            self.put.insert(key, waits);
        }
    }

    /// Withdraws the open questions that this outcome of a look at the task does not list.
    pub(super) fn withdraw_unless_listed(&mut self, outcome: Option<&Payload>) {
        let listed = match outcome {
            Some(Payload::Input(listed)) => listed.as_slice(),
            _ => &[],
        };
        self.put.retain(|key, waits| {
            let stays = waits.is_finished() || listed.iter().any(|(name, _)| name == key);
            if !stays {
                waits.abort();
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(keys: &[&str]) -> Vec<(String, String)> {
        let asks = r#"{"method":"roots/list"}"#;
        keys.iter().map(|key| ((*key).to_owned(), asks.to_owned())).collect()
    }

    /// The next question that was put.
    async fn next(asked: &mut mpsc::Receiver<SideMessage>) -> question::OpenServerQuestion {
        match asked.recv().await {
            Some(SideMessage::Asked(question)) => *question,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_question_is_open_while_its_task_lists_it() {
        let (asides, mut asked) = mpsc::channel(4);
        let mut questions = TaskQuestions::default();
        let look = |questions: &mut TaskQuestions, keys: &[&str]| {
            let outcome = Payload::Input(listed(keys));
            questions.withdraw_unless_listed(Some(&outcome));
            questions.put(&asides, listed(keys));
        };
        look(&mut questions, &["a", "b"]);
        let (mut one, mut other) = (next(&mut asked).await, next(&mut asked).await);
        look(&mut questions, &["b"]);
        let (left, gone) = tokio::select! {
            () = one.over.wait() => (other, "the first"),
            () = other.over.wait() => (one, "the second"),
        };
        assert!(!left.reply.is_closed(), "{gone} alone");
        left.reply.send(Ok("{}".to_owned())).expect("it waits");
        // One of these is the end of the question that was withdrawn.
        let replies = [questions.next_reply().await, questions.next_reply().await];
        let replies: Vec<_> = replies.into_iter().flatten().collect();
        assert_eq!(replies, [("b".to_owned(), Ok("{}".to_owned()))]);
        look(&mut questions, &["a", "b"]);
        let again = next(&mut asked).await;
        assert!(asked.try_recv().is_err(), "what was answered is not asked again");
        questions.withdraw_unless_listed(None);
        assert!(questions.next_reply().await.is_none() && questions.are_answered());
        assert!(again.reply.is_closed());
    }
}
