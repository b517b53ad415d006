//! What hears of the calls that are jobs, or are to become some, and what jobs want of the server.
//!
//! # Invariants
//!
//! - What is told of a job never waits for it.
//! - Requests of jobs wait in a bounded queue.
//! - A relay is that of one request, also where a later one has the same id.

use std::{
    collections::HashMap,
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use serde_json::value::RawValue;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use unhang_bridge::Era;
use unhang_wire::{Body, Id, Message, Piece, ResponseOutcome, read};

use super::effects::JobNews;
use unhang_background::{CallSource, PendingCall};
use unhang_core::fault::FaultKind;
use unhang_gateway::{ServerAnswer, SideMessage};
use unhang_upstream::{
    client::{Error, Failure, ServerError},
    question::ASIDES,
};

/// Requests of jobs that may wait to be made. Each job has one at a time.
const MOST_FOLLOW_UPS: usize = 1024;

/// What a job hears of its call by.
struct Relay {
    key: u64,
    answer: oneshot::Sender<ServerAnswer>,
    progress: watch::Sender<Option<Box<RawValue>>>,
    aside: mpsc::Sender<SideMessage>,
}

/// A further request to the server on behalf of a job, which is to be made.
struct FollowUpRequest {
    params: Arc<str>,
    relay: Relay,
}

/// What hears of a request that was made once more.
pub(super) struct RepeatedRequest(Relay);

/// What has happened about calls that are jobs.
pub(super) enum RelayEvent {
    /// Nobody waits for this call any more.
    Withdrawn(Id),
    /// The server is to be asked this, on behalf of a job.
    Asked(Arc<str>, RepeatedRequest),
}

/// What hears of calls, by their ids on the server's side.
pub(super) struct CallRelays {
    relays: HashMap<Id, Relay>,
    sender: BridgeSender,
    follow_ups: mpsc::Receiver<FollowUpRequest>,
}

impl CallRelays {
    /// Makes relays with a queue in which so many requests of jobs can wait.
    pub(super) fn new(most: usize) -> CallRelays {
        let (sender, follow_ups) = BridgeSender::new(most);
        CallRelays { relays: HashMap::new(), sender, follow_ups }
    }

    /// Returns the way on which a job asks for more.
    pub(super) fn source(&self) -> BridgeSender {
        self.sender.clone()
    }

    /// Has a job hear of this call. Gives what it waits for, and the key of what hears of it.
    pub(super) fn open(&mut self, call: Id) -> (PendingCall, u64) {
        let (pending_call, relay) = self.sender.open();
        let key = relay.key;
        self.relays.insert(call, relay);
        (pending_call, key)
    }

    /// Has a job hear of a request of its own, which was made and goes by this id.
    pub(super) fn insert(&mut self, call: Id, again: RepeatedRequest) {
        self.relays.insert(call, again.0);
    }

    /// Forgets what hears of this call, unless another has its id by now.
    pub(super) fn forget(&mut self, call: &Id, relay: u64) {
        if self.relays.get(call).is_some_and(|known| known.key == relay) {
            self.relays.remove(call);
        }
    }

    /// Tells a job of its call.
    pub(super) fn tell(&mut self, server: &str, call: &Id, news: JobNews<'_>) {
        let raw = |params: &[u8]| {
            let text = String::from_utf8(params.to_vec()).ok()?;
            RawValue::from_string(text).ok()
        };
        match news {
            JobNews::Answer(era, line) => {
                if let Some(relay) = self.relays.remove(call)
                    && let Some(outcome) = outcome(server, line)
                {
                    // Nobody may wait for it any more.
                    let _gone =
                        relay.answer.send(ServerAnswer { era, server_info: None, outcome, asked_for: None });
                }
            }
            JobNews::Progress(params) => {
                if let Some(relay) = self.relays.get(call) {
                    relay.progress.send_replace(raw(params));
                }
            }
            JobNews::Log(params) => {
                if let (Some(relay), Some(params)) = (self.relays.get(call), raw(params)) {
                    // Where there are too many on their way it is lost.
                    let _lossy = relay.aside.try_send(SideMessage::Logged(params));
                }
            }
        }
    }

    /// Waits for something to happen. Cancel-safe.
    pub(super) async fn event(&mut self) -> RelayEvent {
        loop {
            tokio::select! {
                // What was withdrawn meanwhile is not asked at all.
                Some(FollowUpRequest { params, relay }) = self.follow_ups.recv() => if !relay.answer.is_closed() {
                    return RelayEvent::Asked(params, RepeatedRequest(relay));
                },
                () = self.sender.withdrawn.notified() => {
                    let call = self.relays.iter().find(|(_, relay)| relay.answer.is_closed());
                    if let Some(call) = call.map(|(call, _)| call.clone()) {
                        self.relays.remove(&call);
                        // There may be others.
                        self.sender.withdrawn.notify_one();
                        return RelayEvent::Withdrawn(call);
                    }
                }
            }
        }
    }
}

/// The way from jobs to the server.
#[derive(Clone)]
pub(super) struct BridgeSender {
    follow_ups: mpsc::Sender<FollowUpRequest>,
    /// Rung when somebody waits no more.
    withdrawn: Arc<Notify>,
    last_key: Arc<AtomicU64>,
}

impl BridgeSender {
    /// Makes a queue in which so many requests of jobs can wait, and its other end.
    fn new(most: usize) -> (BridgeSender, mpsc::Receiver<FollowUpRequest>) {
        let (follow_ups, taken) = mpsc::channel(most.clamp(1, MOST_FOLLOW_UPS));
        (BridgeSender { follow_ups, withdrawn: Arc::default(), last_key: Arc::default() }, taken)
    }

    /// Makes what a job waits for, and what hears of its request.
    fn open(&self) -> (PendingCall, Relay) {
        let key = self.last_key.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        let (progress, seen) = watch::channel(None);
        let (aside, said) = mpsc::channel(ASIDES);
        let waiting = AwaitedAnswer { answered, is_over: false, withdrawn: Arc::clone(&self.withdrawn) };
        let answering = Box::pin(async move {
            // All of it moves in, so that its end is that of the wait.
            let mut waiting = waiting;
            let answered = (&mut waiting.answered).await;
            waiting.is_over = true;
            answered.unwrap_or_else(|_| unanswered(Error::Disposed))
        });
        (PendingCall { answering, seen, said }, Relay { key, answer, progress, aside })
    }
}

/// Says that there is no answer, for this reason.
fn unanswered(why: Error) -> ServerAnswer {
    ServerAnswer { era: Era::Legacy, server_info: None, outcome: Err(why), asked_for: None }
}

/// An answer that a job waits for. Dropped before it came, it tells that nobody waits any more.
struct AwaitedAnswer {
    answered: oneshot::Receiver<ServerAnswer>,
    is_over: bool,
    withdrawn: Arc<Notify>,
}

impl Drop for AwaitedAnswer {
    fn drop(&mut self) {
        if !self.is_over {
            self.answered.close();
            self.withdrawn.notify_one();
        }
    }
}

impl CallSource for BridgeSender {
    fn ask(&mut self, params: Arc<str>) -> PendingCall {
        let (pending_call, relay) = self.open();
        if self.follow_ups.try_send(FollowUpRequest { params, relay }).is_ok() {
            return pending_call;
        }
        let failure = Failure {
            kind: FaultKind::Overloaded,
            happened: "too many requests of jobs wait for the server".to_owned(),
            hint: "make the call again when some of them have ended".to_owned(),
            ..Failure::ended()
        };
        PendingCall { answering: Box::pin(ready(unanswered(failure.into()))), ..pending_call }
    }
}

/// Returns what a response says; nothing where it is none.
fn outcome(server: &str, line: &[u8]) -> Option<Result<Box<RawValue>, Error>> {
    let piece = read(line).next()?;
    let Piece::Message(Message { body: Body::Response { outcome, .. }, .. }) = piece else { return None };
    Some(match outcome {
        ResponseOutcome::Result(result) => Ok(RawValue::from_string(result.get().to_owned()).ok()?),
        ResponseOutcome::Error(error) => {
            Err(Error::Server(ServerError::read(server, "tools/call", error.get()).into()))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn f_58_requests_of_jobs_wait_in_a_bounded_queue() {
        let (mut line, mut follow_ups) = BridgeSender::new(2);
        let first = line.ask("1".into());
        let _second = line.ask("2".into());
        let third = line.ask("3".into()).answering.await;
        let refused = third.outcome.expect_err("there is no room").to_string();
        assert!(refused.contains("too many requests of jobs wait for the server"), "{refused}");
        let follow_up = follow_ups.recv().await.expect("the first");
        assert_eq!(&*follow_up.params, "1");
        drop(first);
        assert!(follow_up.relay.answer.is_closed(), "a job that stopped waiting is told of");
        let _fourth = line.ask("4".into());
        assert_eq!(&*follow_ups.recv().await.expect("the second").params, "2");
        assert_eq!(&*follow_ups.recv().await.expect("the fourth has its place").params, "4");
    }
}
