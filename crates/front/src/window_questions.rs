//! Questions that the leading window has put to other windows, until their replies come.
//!
//! Theory of operation. A request of another window stands alone, and has a session of its own here. That session puts a question on the
//! stream of its answer. The reply is a post of its own, and names the question alone. If the request ends first, its session leaves the
//! question, which moves to the stream of another call of the same window. It keeps its key.
//!
//! Invariants
//!
//! - A reply reaches the question that it names, beside whichever call the question is put, or nobody.
//! - Nothing is kept of a question that has been left.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, oneshot},
    time::timeout,
};

use super::{effects::QuestionKey, questions::replied};
use unhang_gateway::Replied;
use unhang_upstream::question::read_window_question_id;
use unhang_wire::{self as wire, Body, Message, Piece};

/// How long a reply waits for its question, which may be on the way from one call to another.
const MOVING: Duration = Duration::from_secs(1);

/// The questions that are put to windows now; see the module's text.
#[derive(Debug, Default)]
pub(super) struct WindowQuestions {
    open: Mutex<HashMap<QuestionKey, oneshot::Sender<Replied>>>,
    /// Rung when a question is put beside a call.
    put: Notify,
}

/// A question that is put beside a call. Dropping it leaves the question.
#[derive(Debug)]
pub(super) struct CarriedQuestion {
    questions: Arc<WindowQuestions>,
    key: QuestionKey,
}

impl Drop for CarriedQuestion {
    fn drop(&mut self) {
        self.questions.open().remove(&self.key);
    }
}

impl CarriedQuestion {
    /// Returns whether no reply has come.
    pub(super) fn is_open(&self) -> bool {
        self.questions.open().contains_key(&self.key)
    }

    /// Replies to the question, if nobody has done so.
    pub(super) fn reply(&self, replied: Replied) {
        if let Some(reply) = self.questions.open().remove(&self.key) {
            // The server may have gone meanwhile.
            let _gone = reply.send(replied);
        }
    }
}

/// The way of a reply to the party that has asked.
pub(super) enum ReplyWay {
    /// The reply is a message of this session.
    Here(oneshot::Sender<Replied>),
    /// The reply is a post of a window, which names the question.
    OfWindow(CarriedQuestion),
}

impl ReplyWay {
    /// Returns whether no reply has come.
    pub(super) fn is_open(&self) -> bool {
        match self {
            Self::Here(_) => true,
            Self::OfWindow(carried) => carried.is_open(),
        }
    }

    pub(super) fn reply(self, replied: Replied) {
        match self {
            // The server may have gone meanwhile.
            Self::Here(reply) => drop(reply.send(replied)),
            Self::OfWindow(carried) => carried.reply(replied),
        }
    }
}

impl WindowQuestions {
    fn open(&self) -> MutexGuard<'_, HashMap<QuestionKey, oneshot::Sender<Replied>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the question of this key, whose reply is sent to `reply`.
    pub(super) fn carry(
        self: &Arc<Self>,
        key: QuestionKey,
        reply: oneshot::Sender<Replied>,
    ) -> CarriedQuestion {
        self.open().insert(key, reply);
        self.put.notify_waiters();
        CarriedQuestion { questions: Arc::clone(self), key }
    }

    /// Passes on the reply to the question of this key. Drops it if there is no such question within [`MOVING`].
    pub(super) async fn replied(&self, key: QuestionKey, replied: Replied) {
        let found = async {
            loop {
                // Before the look, so that no question is missed.
                let put = self.put.notified();
                if let Some(reply) = self.open().remove(&key) {
                    return reply;
                }
                put.await;
            }
        };
        if let Ok(reply) = timeout(MOVING, found).await {
            // The server may have gone meanwhile.
            let _gone = reply.send(replied);
        }
    }
}

/// Reads a post that replies to a question. Returns `None` for any other post.
pub(super) fn read_reply(body: &[u8]) -> Option<(QuestionKey, Replied)> {
    let mut pieces = wire::read(body);
    match (pieces.next(), pieces.next()) {
        (Some(Piece::Message(Message { body: Body::Response { id, outcome, .. }, .. })), None) => {
            let (key, _) = read_window_question_id(&id)?;
            Some((key, replied(outcome)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(number: u32) -> Replied {
        Ok(format!("{{\"x\":{number}}}"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_reply_finds_its_question_beside_another_call_than_before() {
        let questions = Arc::new(WindowQuestions::default());
        let (reply, left) = oneshot::channel();
        drop(questions.carry(7, reply));
        assert!(left.await.is_err(), "the call has ended");
        let (reply, other) = oneshot::channel();
        let _other = questions.carry(8, reply);
        let late = {
            let questions = Arc::clone(&questions);
            async move { questions.replied(7, result(7)).await }
        };
        let moves = async {
            tokio::time::sleep(MOVING / 2).await;
            let (reply, replied) = oneshot::channel();
            let carried = questions.carry(7, reply);
            let replied = replied.await;
            drop(carried);
            replied
        };
        let ((), moved) = tokio::join!(late, moves);
        assert_eq!(moved, Ok(result(7)));
        questions.replied(7, result(9)).await;
        questions.replied(8, result(8)).await;
        assert_eq!(other.await, Ok(result(8)), "it is for its own question alone");
        assert!(questions.open().is_empty());
    }

    #[test]
    fn a_reply_is_told_from_every_other_post() {
        let id = unhang_upstream::question::window_question_id(7, true);
        let reply = format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":{{"x":7}}}}"#);
        assert_eq!(read_reply(reply.as_bytes()), Some((7, result(7))));
        let refused = format!(r#"{{"jsonrpc":"2.0","id":"{id}","error":{{"code":-1,"message":"no"}}}}"#);
        assert_eq!(read_reply(refused.as_bytes()), Some((7, Err((-1, "no".to_owned()).into()))));
        for other in [
            r#"{"jsonrpc":"2.0","id":"unhang-7","result":{}}"#.to_owned(),
            format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"tools/list"}}"#),
            format!("[{reply}]"),
            format!("{reply}\n{reply}"),
            "garbage".to_owned(),
        ] {
            assert_eq!(read_reply(other.as_bytes()), None, "{other}");
        }
    }
}
