//! Relays between calls and their jobs: news of calls for jobs, and requests of jobs to the server.
//!
//! # Invariants
//!
//! - News for a job never waits for the job.
//! - Requests of jobs wait in a bounded queue.
//! - A relay belongs to one request, even if a later one has the same id.

use std::{
    collections::HashMap,
    future::ready,
    sync::{
        Arc, Mutex, PoisonError,
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

/// The most requests of jobs that may wait to be made. Each job has one at a time.
const MOST_FOLLOW_UPS: usize = 1024;

/// The sending ends for a job that waits for its call.
struct Relay {
    key: u64,
    answer: oneshot::Sender<ServerAnswer>,
    progress: watch::Sender<Option<Box<RawValue>>>,
    aside: mpsc::Sender<SideMessage>,
}

/// A further request to the server on behalf of a job, which is still to be made.
struct FollowUpRequest {
    params: Arc<str>,
    again: RepeatedRequest,
}

/// A request that is made once more.
pub(super) struct RepeatedRequest {
    relay: Relay,
    /// The id of the job's request before.
    before: Id,
    /// The place where the job's source learns the id of this one.
    last: Arc<Mutex<Id>>,
}

impl RepeatedRequest {
    /// Returns the id of the job's request before.
    pub(super) fn before(&self) -> &Id {
        &self.before
    }
}

/// An event of calls that are jobs.
pub(super) enum RelayEvent {
    /// Nobody waits for this call any more.
    Withdrawn(Id),
    /// A job makes one more request to the server.
    Asked(Arc<str>, RepeatedRequest),
}

/// The relays of calls, by their ids on the server's side.
pub(super) struct CallRelays {
    relays: HashMap<Id, Relay>,
    sender: BridgeSender,
    follow_ups: mpsc::Receiver<FollowUpRequest>,
}

impl CallRelays {
    /// Makes relays with a queue for this many requests of jobs.
    pub(super) fn new(most: usize) -> CallRelays {
        let (sender, follow_ups) = BridgeSender::new(most);
        CallRelays { relays: HashMap::new(), sender, follow_ups }
    }

    /// Returns whether no call waits with a relay.
    pub(super) fn is_empty(&self) -> bool {
        self.relays.is_empty()
    }

    /// Returns the source through which the job of this call asks for more.
    pub(super) fn source(&self, call: Id) -> JobRequests {
        JobRequests { sender: self.sender.clone(), last: Arc::new(Mutex::new(call)) }
    }

    /// Opens a relay for this call. Returns the receiving end for the job, and the key of the relay.
    pub(super) fn open(&mut self, call: Id) -> (PendingCall, u64) {
        let (pending_call, relay) = self.sender.open();
        let key = relay.key;
        self.relays.insert(call, relay);
        (pending_call, key)
    }

    /// Adds the relay of a job's own request, which was made under this id.
    pub(super) fn insert(&mut self, call: Id, again: RepeatedRequest) {
        *again.last.lock().unwrap_or_else(PoisonError::into_inner) = call.clone();
        self.relays.insert(call, again.relay);
    }

    /// Forgets the relay of this call, unless another call has its id by now.
    pub(super) fn forget(&mut self, call: &Id, relay: u64) {
        if self.relays.get(call).is_some_and(|known| known.key == relay) {
            self.relays.remove(call);
        }
    }

    /// Sends news to the job of a call.
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
                    // The job may not wait for it any more.
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
                    // If too many are on their way, this one is lost.
                    let _lossy = relay.aside.try_send(SideMessage::Logged(params));
                }
            }
        }
    }

    /// Waits for the next event. Cancel-safe.
    pub(super) async fn event(&mut self) -> RelayEvent {
        loop {
            tokio::select! {
                // A request that was withdrawn meanwhile is not made at all.
                Some(FollowUpRequest { params, again }) = self.follow_ups.recv() => if !again.relay.answer.is_closed() {
                    return RelayEvent::Asked(params, again);
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
    /// Rung when a job stops waiting.
    withdrawn: Arc<Notify>,
    last_key: Arc<AtomicU64>,
}

impl BridgeSender {
    /// Makes a queue for this many requests of jobs. Returns both ends.
    fn new(most: usize) -> (BridgeSender, mpsc::Receiver<FollowUpRequest>) {
        let (follow_ups, taken) = mpsc::channel(most.clamp(1, MOST_FOLLOW_UPS));
        (BridgeSender { follow_ups, withdrawn: Arc::default(), last_key: Arc::default() }, taken)
    }

    /// Makes the receiving end for a job, and the relay of its request.
    fn open(&self) -> (PendingCall, Relay) {
        let key = self.last_key.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        let (progress, seen) = watch::channel(None);
        let (aside, said) = mpsc::channel(ASIDES);
        let waiting = AwaitedAnswer { answered, is_over: false, withdrawn: Arc::clone(&self.withdrawn) };
        let answering = Box::pin(async move {
            // The whole value moves in, so that it is dropped when the wait ends.
            let mut waiting = waiting;
            let answered = (&mut waiting.answered).await;
            waiting.is_over = true;
            answered.unwrap_or_else(|_| unanswered(Error::Disposed))
        });
        (PendingCall { answering, seen, said }, Relay { key, answer, progress, aside })
    }
}

/// Makes an answer that says why there is none.
fn unanswered(why: Error) -> ServerAnswer {
    ServerAnswer { era: Era::Legacy, server_info: None, outcome: Err(why), asked_for: None }
}

/// An answer that a job waits for. If it is dropped before the answer came, it tells that the job no longer waits.
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

/// The requests of one job.
pub(super) struct JobRequests {
    sender: BridgeSender,
    /// The id of the last one that was made.
    last: Arc<Mutex<Id>>,
}

impl CallSource for JobRequests {
    fn ask(&mut self, params: Arc<str>) -> PendingCall {
        let (pending_call, relay) = self.sender.open();
        let before = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let again = RepeatedRequest { relay, before, last: Arc::clone(&self.last) };
        if self.sender.follow_ups.try_send(FollowUpRequest { params, again }).is_ok() {
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

/// Reads the outcome of a response. Returns `None` if the line is not a response.
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
        let (sender, mut follow_ups) = BridgeSender::new(2);
        let mut line = JobRequests { sender, last: Arc::new(Mutex::new(Id::Integer(1))) };
        let first = line.ask("1".into());
        let _second = line.ask("2".into());
        let third = line.ask("3".into()).answering.await;
        let refused = third.outcome.expect_err("there is no room").to_string();
        assert!(refused.contains("too many requests of jobs wait for the server"), "{refused}");
        let follow_up = follow_ups.recv().await.expect("the first");
        assert_eq!(&*follow_up.params, "1");
        drop(first);
        assert!(follow_up.again.relay.answer.is_closed(), "a job that stopped waiting is told of");
        let _fourth = line.ask("4".into());
        assert_eq!(&*follow_ups.recv().await.expect("the second").params, "2");
        assert_eq!(&*follow_ups.recv().await.expect("the fourth has its place").params, "4");
    }

    /// The event that is there already, if there is one.
    async fn event_now(relays: &mut CallRelays) -> Option<RelayEvent> {
        tokio::select! {
            biased;
            event = relays.event() => Some(event),
            () = ready(()) => None,
        }
    }

    async fn withdrawn_now(relays: &mut CallRelays) -> Option<Id> {
        match event_now(relays).await {
            Some(RelayEvent::Withdrawn(call)) => Some(call),
            Some(RelayEvent::Asked(params, _)) => panic!("{params} is asked"),
            None => None,
        }
    }

    #[tokio::test]
    async fn a_job_that_stops_waiting_withdraws_its_call_and_no_other() {
        let mut relays = CallRelays::new(2);
        let jobs: Vec<PendingCall> = (1..=3).map(|id| relays.open(Id::from(id)).0).collect();
        assert_eq!(withdrawn_now(&mut relays).await, None, "each job waits");
        let [first, second, third] = jobs.try_into().ok().expect("three");
        drop((first, third));
        let mut withdrawn = [withdrawn_now(&mut relays).await, withdrawn_now(&mut relays).await];
        withdrawn.sort_by_key(|id| id.as_ref().map(Id::to_json));
        assert_eq!(withdrawn, [Some(Id::from(1)), Some(Id::from(3))]);
        assert_eq!(withdrawn_now(&mut relays).await, None, "each is told once");
        relays.tell(
            "srv",
            &Id::from(2),
            JobNews::Answer(Era::Legacy, br#"{"jsonrpc":"2.0","id":2,"result":{}}"#),
        );
        let answer = second.answering.await;
        assert_eq!(answer.outcome.expect("a result").get(), "{}");
        assert_eq!(withdrawn_now(&mut relays).await, None, "a job that was answered has not withdrawn");
    }

    #[tokio::test]
    async fn a_relay_is_forgotten_by_its_key_and_not_with_a_later_call_of_the_same_id() {
        let mut relays = CallRelays::new(2);
        let (first, old) = relays.open(Id::from(1));
        let (mut second, new) = relays.open(Id::from(1));
        assert_ne!(old, new);
        assert!(first.answering.await.outcome.is_err(), "a later call has its place");
        relays.forget(&Id::from(1), old);
        relays.tell("srv", &Id::from(1), JobNews::Progress(b"{}"));
        assert!(second.seen.borrow_and_update().is_some(), "the later call keeps its relay");
        relays.forget(&Id::from(2), new);
        relays.forget(&Id::from(1), new);
        let ended = second.answering.await.outcome.expect_err("nobody can answer").to_string();
        assert_eq!(ended, Error::Disposed.to_string());
    }

    #[tokio::test]
    async fn news_of_a_call_reaches_its_job_as_what_it_is() {
        let result: &[u8] = br#"{"jsonrpc":"2.0","id":1,"result":{"a":1.0}}"#;
        let error = br#"{"jsonrpc":"2.0","id":1,"error":{"code":-5,"message":"broken"}}"#;
        for (line, era, expect) in
            [(result, Era::Modern, Ok(r#"{"a":1.0}"#)), (error, Era::Legacy, Err("broken"))]
        {
            let mut relays = CallRelays::new(2);
            let (mut job, _) = relays.open(Id::from(1));
            relays.tell("srv", &Id::from(2), JobNews::Progress(b"1"));
            relays.tell("srv", &Id::from(1), JobNews::Progress(b"{\"progress\":1}"));
            relays.tell("srv", &Id::from(1), JobNews::Progress(b"{\"progress\":2}"));
            let seen = job.seen.borrow_and_update().as_ref().map(|seen| seen.get().to_owned());
            assert_eq!(seen.as_deref(), Some(r#"{"progress":2}"#), "the newest");
            relays.tell("srv", &Id::from(1), JobNews::Log(b"{\"data\":"));
            relays.tell("srv", &Id::from(1), JobNews::Log(b"{\"data\":1}"));
            let Ok(SideMessage::Logged(said)) = job.said.try_recv() else { panic!("a log") };
            assert_eq!(said.get(), r#"{"data":1}"#, "only JSON is passed on");
            relays.tell("srv", &Id::from(1), JobNews::Answer(era, line));
            let answer = job.answering.await;
            assert_eq!(answer.era, era);
            match (answer.outcome, expect) {
                (Ok(result), Ok(expect)) => assert_eq!(result.get(), expect),
                (Err(error), Err(expect)) => assert!(error.to_string().contains(expect), "{error}"),
                (outcome, _) => panic!("{outcome:?}"),
            }
        }
    }

    #[tokio::test]
    async fn a_request_of_a_job_is_made_unless_the_job_has_stopped_waiting() {
        // A queue has room for one at least.
        for most in [0, 1] {
            let mut relays = CallRelays::new(most);
            let mut source = relays.source(Id::from(1));
            drop(source.ask("withdrawn".into()));
            assert!(event_now(&mut relays).await.is_none(), "nobody waits for it");
            let job = source.ask("wanted".into());
            let Some(RelayEvent::Asked(params, again)) = event_now(&mut relays).await else {
                panic!("it is to be made")
            };
            assert_eq!((&*params, again.before()), ("wanted", &Id::from(1)));
            relays.insert(Id::from(9), again);
            let _third = source.ask("third".into());
            let Some(RelayEvent::Asked(_, third)) = event_now(&mut relays).await else { panic!("one more") };
            assert_eq!(third.before(), &Id::from(9));
            let line = br#"{"jsonrpc":"2.0","id":9,"result":[]}"#;
            relays.tell("srv", &Id::from(9), JobNews::Answer(Era::Modern, line));
            assert_eq!(job.answering.await.outcome.expect("a result").get(), "[]");
        }
        let (sender, _follow_ups) = BridgeSender::new(usize::MAX);
        let mut source = JobRequests { sender, last: Arc::new(Mutex::new(Id::from(1))) };
        let waiting: Vec<PendingCall> = (0..MOST_FOLLOW_UPS).map(|_| source.ask("1".into())).collect();
        assert!(source.ask("1".into()).answering.await.outcome.is_err(), "{} wait", waiting.len());
    }
}
