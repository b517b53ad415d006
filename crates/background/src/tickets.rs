//! Calls whose answers other processes can have: the ticket that is kept for them, and how they take the calls up. The server goes on with
//! such a call as a task of its own, or the stream of its answer can be resumed ([`super::stream_tickets`]).
//!
//! ```text
//! Source ─ TaskNews ─ ticket ─► the job's record ─ the process is killed, or ends and leaves it ─► nobody's
//! nobody's ─ PromotedCalls::take_up_left, in whichever process has the server ─► a job that is followed as every other
//! ```
//!
//! Invariants
//!
//! - Only a process that has the very server of the call takes the call up.
//! - A job that was taken up belongs to its caller, has the rest of its time, and ends in the same ways as any other.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};
use unhang_jobs::{
    engine::{HeldCall, JobStatus},
    record::CallTicket,
    timestamp::JobTimestamp,
};
use unhang_proc::deadline::Deadline;

use super::{
    CallSource, FollowedJob, PendingCall, PromotedCalls, RunningCall, WhoIsAsked, answer_never_comes,
    stream_tickets::{self, StreamSource},
};
use unhang_core::fault::FaultKind;
use unhang_gateway::{AnswerOutlook, KnownTask, MayRead, ServerTask, Servers, TaskNews, has_room};
use unhang_upstream::{call_stream::StreamPoint, client::Failure, question::ASIDES};

/// The time between two looks for calls that nobody waits for any more.
const LOOK: Duration = Duration::from_secs(1);

/// The facts that a process needs to take a call up.
#[derive(Serialize, Deserialize)]
struct Details {
    #[serde(flatten)]
    way: AnswerWay,
    /// The capabilities of the clients that follow the job as a task; `None` if nobody does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    followers: Option<Value>,
}

/// The way in which the answer can be had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AnswerWay {
    /// The server goes on with the call as this task.
    Task(ServerTask),
    /// The stream of the answer can be resumed from here.
    Stream(StreamPoint),
}

/// Makes the ticket with which a call can be taken up that goes on as this task.
pub(super) fn ticket(known: &KnownTask, who: &WhoIsAsked) -> Option<CallTicket> {
    ticket_for(AnswerWay::Task(known.task.clone()), known.kept_by.clone(), who)
}

/// Makes the ticket with which a call can be taken up whose answer can be had in this way.
pub(super) fn ticket_for(way: AnswerWay, kept_by: String, who: &WhoIsAsked) -> Option<CallTicket> {
    let followers = match who {
        WhoIsAsked::Nobody => None,
        // Without room for the capabilities, the job asks no client.
        WhoIsAsked::Followers(capabilities) if !has_room(capabilities.len()) => None,
        WhoIsAsked::Followers(capabilities) => serde_json::from_str(capabilities).ok(),
    };
    let details = serde_json::to_value(Details { way, followers }).ok()?;
    Some(CallTicket { kept_by, details, is_free: false })
}

/// Returns the point from which the stream of the answer can be resumed; `None` if the ticket is of another kind.
pub(super) fn stream_of(ticket: &CallTicket) -> Option<StreamPoint> {
    match Details::deserialize(&ticket.details).ok()?.way {
        AnswerWay::Stream(point) => Some(point),
        AnswerWay::Task(_) => None,
    }
}

impl Details {
    fn who(&self) -> WhoIsAsked {
        match &self.followers {
            Some(capabilities) => WhoIsAsked::Followers(capabilities.to_string().into()),
            None => WhoIsAsked::Nobody,
        }
    }
}

/// The source of a call that was taken up. Its answer comes from the task.
struct TakenUp(TaskNews);

impl CallSource for TakenUp {
    /// Fails at once: the call itself cannot be made once more, and a task has no reason to want that.
    fn ask(&mut self, _params: Arc<str>) -> PendingCall {
        answer_never_comes(Failure {
            kind: FaultKind::BadResponse,
            method: Some("tools/call".to_owned()),
            happened: "the task of this call has ended with a question".to_owned(),
            hint: "this is a fault of the server".to_owned(),
            ..Failure::ended()
        })
    }

    fn news(&self) -> Option<&TaskNews> {
        Some(&self.0)
    }
}

impl PromotedCalls {
    /// Takes up every call that nobody waits for any more, if its server goes on with it and can be asked here. Goes on to look for such
    /// calls.
    ///
    /// `holder_of` finds a server by its name and by the text that tells it from others of that name. Must be called in a runtime.
    pub fn take_up_left(
        &self,
        holder_of: impl Fn(&str, &str) -> Option<(Servers, usize)> + Send + Sync + 'static,
    ) {
        let calls = self.clone();
        // Unhang waits for this task at its end, so that a call that is just being taken up is let go of in order.
        self.tasks().spawn(async move {
            let mut ending = calls.shared.ending.subscribe();
            loop {
                for left in calls.shared.engine.left_calls() {
                    if ending.borrow().is_some() {
                        return;
                    }
                    calls.take_up_one(&left, &holder_of).await;
                }
                tokio::select! {
                    _ends = ending.wait_for(Option::is_some) => return,
                    () = sleep(LOOK) => {}
                }
            }
        });
    }

    async fn take_up_one(
        &self,
        left: &JobStatus,
        holder_of: &(impl Fn(&str, &str) -> Option<(Servers, usize)> + Sync),
    ) {
        let id = left.record.job_id;
        let Some(call) = &left.record.call else { return };
        let Some(ticket) = &call.ticket else { return };
        let Some((servers, server_index)) = holder_of(&call.server, &ticket.kept_by) else { return };
        // A newer unhang may have written details that only a newer unhang understands.
        let Ok(details) = Details::deserialize(&ticket.details) else { return };
        // The job's owner may not be an operator any more, and this place cannot tell.
        let servers = match left.record.owner {
            Some(_) => servers.for_session_of(None, MayRead::never()),
            None => servers,
        };
        let is_repeatable = call.is_repeatable;
        let (held, status) = match self.shared.engine.take_up(id).await {
            Ok(Some(taken)) => taken,
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(job = id.as_str(), "unhang cannot continue the job yet: {error}");
                return;
            }
        };
        let how = match &details.way {
            AnswerWay::Task(_) => "keeps as a task",
            AnswerWay::Stream(_) => "answers on a stream",
        };
        tracing::info!(job = id.as_str(), "unhang continues the job, which `{}` {how}", call.server);
        let kept = FollowedJob {
            who: details.who(),
            session: None,
            is_repeatable,
            roots: None,
            is_of_call_holder: false,
        };
        let left_of_it = status.time_left(JobTimestamp::now()).unwrap_or_default();
        let (asides, said) = mpsc::channel(ASIDES);
        let news = TaskNews::new();
        match details.way {
            AnswerWay::Task(task) => {
                let deadline = Deadline::after(left_of_it);
                let answering = servers.take_up(server_index, &task, deadline, asides, &news);
                let seen = watch::channel(None).1;
                // The session's own instances live as long as the call does.
                let answering = Box::pin(async move {
                    let _servers = servers;
                    answering.await
                });
                let way = PendingCall { answering, seen, said };
                let running_call = RunningCall { params: "{}".into(), way, source: Box::new(TakenUp(news)) };
                let _end = self.go_on(held, running_call, kept);
            }
            AnswerWay::Stream(point) => {
                let limit = status.record.timeout().unwrap_or_default();
                let times = (limit.saturating_sub(left_of_it), limit);
                match servers.resume_stream(server_index, point.clone(), times, asides, &news) {
                    Some(resumed) => {
                        let way = PendingCall { answering: resumed.answering, seen: resumed.seen, said };
                        let source = Box::new(StreamSource::new(news.clone(), servers));
                        let running_call = RunningCall { params: "{}".into(), way, source };
                        let end = self.go_on(held, running_call, kept);
                        self.end_session_after(end, (resumed.client, point, news));
                    }
                    None => stream_tickets::cannot_resume(held, &call.server, is_repeatable).await,
                }
            }
        }
    }

    /// Leaves a call to the process that takes it up, if its server goes on with it without this process.
    pub(super) async fn leave(&self, held: HeldCall, running_call: RunningCall, ticket: CallTicket) {
        let id = held.id();
        let news = running_call.source.news().inspect(|news| news.leave());
        if news.is_some_and(|news| news.known().is_some()) {
            // Dropping the call stops this process from polling the task.
            drop(running_call);
            self.shared.inputs.forget(id);
        } else {
            self.outlast(id, running_call, || {});
        }
        match held.leave(ticket).await {
            Ok(()) => {
                tracing::info!(job = id.as_str(), "left to the next unhang process that uses its server");
            }
            // The older ticket is on the disk already.
            Err(error) => {
                tracing::warn!(job = id.as_str(), "unhang cannot record that it leaves the job: {error}");
            }
        }
    }
}

/// Returns the ticket of a call that is to go on after unhang has ended; `None` if its server does not go on with it.
pub(super) fn to_be_left(running_call: &RunningCall, kept: &FollowedJob) -> Option<CallTicket> {
    let news = running_call.source.news()?;
    match news.known() {
        Some(known) => known.outlives_us.then(|| ticket(&known, &kept.who)).flatten(),
        None => stream_tickets::ticket(&news.outlook(), &kept.who),
    }
}

/// Returns what is known of the answer of a call at the moment of its adoption: its ticket, or why the answer is lost with this process.
pub(super) fn at_adoption(news: Option<&TaskNews>) -> (Option<CallTicket>, Option<String>) {
    let Some(news) = news else { return (None, None) };
    if let Some(known) = news.known() {
        return (ticket(&known, &WhoIsAsked::Nobody), None);
    }
    match news.outlook() {
        AnswerOutlook::Lost(why) => (None, Some(why)),
        outlook => (stream_tickets::ticket(&outlook, &WhoIsAsked::Nobody), None),
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, path::Path};

    use serde_json::json;
    use tokio::time::timeout;
    use unhang_jobs::{
        engine::{Engine, EngineOptions},
        id::JobId,
        record::{EndReason, JobState},
        shims::ShimCommand,
    };

    use super::*;
    use crate::{CallsEnd, Promotable};
    use unhang_tools::service::Caller;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// A server that never answers, and goes on with the call as a task.
    struct TaskNewsSource(TaskNews);

    impl CallSource for TaskNewsSource {
        fn ask(&mut self, _params: Arc<str>) -> PendingCall {
            let ((_, seen), (_, said)) = (watch::channel(None), mpsc::channel(1));
            PendingCall { answering: Box::pin(pending()), seen, said }
        }

        fn news(&self) -> Option<&TaskNews> {
            Some(&self.0)
        }
    }

    fn engine(folder: &Path) -> Engine {
        let shim = ShimCommand { program: "/nowhere".into(), arguments: Vec::new() };
        Engine::open(EngineOptions::new(folder.to_owned(), shim)).expect("it opens").0
    }

    fn known(outlives_us: bool, doing: &str) -> KnownTask {
        let task = json!({ "id": "7", "dialect": "core" });
        KnownTask {
            task: serde_json::from_value(task).expect("a task"),
            kept_by: "srv-1".to_owned(),
            outlives_us,
            doing: Some(doing.to_owned()),
        }
    }

    /// A call that is a job, whose server has said nothing yet.
    async fn job(calls: &PromotedCalls) -> (JobId, TaskNews) {
        let call = Promotable {
            name: "srv__slow".to_owned(),
            server: "srv".to_owned(),
            tool: "slow".to_owned(),
            is_repeatable: false,
            arguments: None,
            elapsed: Duration::ZERO,
            limit: Duration::from_secs(7200),
            same: None,
            is_unsent: false,
        };
        let promoted = calls.adopt(&Caller::owner(), call).await.expect("a job");
        let (id, news) = (promoted.held.id(), TaskNews::new());
        let mut source = Box::new(TaskNewsSource(news.clone()));
        let running_call = RunningCall { params: "{}".into(), way: source.ask("{}".into()), source };
        calls.keep(promoted, running_call, WhoIsAsked::Followers(r#"{"roots":{}}"#.into()), None);
        (id, news)
    }

    async fn until_noted(engine: &Engine, id: JobId) -> Details {
        let mut changes = engine.changes();
        let noted = async {
            loop {
                let call = engine.status(id).await.expect("it is there").record.call;
                if let Some(ticket) = call.and_then(|call| call.ticket) {
                    return Details::deserialize(&ticket.details).expect("ours");
                }
                changes.changed().await.expect("the engine is there");
            }
        };
        timeout(PATIENCE, noted).await.expect("it is noted")
    }

    #[tokio::test]
    async fn a_task_that_becomes_known_while_its_job_is_followed_is_noted() {
        let folder = tempfile::tempdir().expect("a folder");
        let engine = engine(folder.path());
        let calls = PromotedCalls::new(engine.clone());
        let (id, news) = job(&calls).await;
        // It is followed by now.
        tokio::task::yield_now().await;
        news.begun(known(true, "step 1"));
        let details = until_noted(&engine, id).await;
        let AnswerWay::Task(task) = &details.way else { panic!("{:?}", details.way) };
        assert_eq!(task.id, "7");
        assert_eq!(details.who(), WhoIsAsked::Followers(r#"{"roots":{}}"#.into()));
        calls.end(CallsEnd::UnhangEnds).await;
        let left = engine.left_calls();
        assert_eq!(left.len(), 1, "it is left to somebody else");
        assert!(news.is_left() && left[0].record.status == JobState::Running);
        let log = std::fs::read_to_string(engine.job_folder(id).join("stdout.log")).expect("a log");
        assert_eq!(log, "step 1\n");
    }

    #[tokio::test]
    async fn the_report_of_a_job_says_what_the_task_of_its_server_is_doing() {
        let folder = tempfile::tempdir().expect("a folder");
        let engine = engine(folder.path());
        let calls = PromotedCalls::new(engine.clone());
        let (id, news) = job(&calls).await;
        let mut changes = engine.changes();
        for step in ["step 1", "step 2"] {
            news.begun(known(false, step));
            let told = async {
                loop {
                    let progress = engine.status(id).await.expect("it is there").progress;
                    if progress.as_ref().and_then(|progress| progress.message.as_deref()) == Some(step) {
                        return progress.and_then(|progress| progress.fraction);
                    }
                    changes.changed().await.expect("the engine is there");
                }
            };
            assert_eq!(timeout(PATIENCE, told).await.expect("it is told"), None, "{step}");
        }
        calls.end(CallsEnd::ClientGone).await;
    }

    #[tokio::test]
    async fn a_task_that_ends_with_us_ends_as_a_job_that_says_so() {
        let folder = tempfile::tempdir().expect("a folder");
        let engine = engine(folder.path());
        let calls = PromotedCalls::new(engine.clone());
        let (id, news) = job(&calls).await;
        news.begun(known(false, "step 1"));
        until_noted(&engine, id).await;
        calls.end(CallsEnd::ClientGone).await;
        let record = engine.status(id).await.expect("it is there").record;
        assert_eq!(record.ending.and_then(|ending| ending.reason), Some(EndReason::ClientGone));
        assert!(!news.is_left() && engine.left_calls().is_empty());
    }

    #[test]
    fn what_is_kept_of_a_call_is_what_it_was() {
        let kept = ticket(&known(true, ""), &WhoIsAsked::Nobody).expect("a ticket");
        let details = Details::deserialize(&kept.details).expect("ours");
        assert_eq!(details.who(), WhoIsAsked::Nobody);
        let long = json!({ "x": "y".repeat(8 << 10) }).to_string();
        let kept_of_many = ticket(&known(true, ""), &WhoIsAsked::Followers(long.into())).expect("one");
        assert!(
            kept_of_many.details.to_string().len() < 200,
            "of what a client says so much is kept at most"
        );
        let point = json!({ "revision": "2025-11-25", "request": 4, "last_event": "7" });
        let of_stream = json!({ "stream": point, "same": "of an older unhang", "newer": 1 });
        let kept = CallTicket { kept_by: "srv-1".to_owned(), details: of_stream, is_free: false };
        assert_eq!(
            stream_of(&kept).map(|point| (point.request, point.last_event)),
            Some((4, "7".to_owned()))
        );
        for unknown in [json!({}), json!({ "other": {} }), json!({ "stream": { "request": 4 } })] {
            assert!(Details::deserialize(&unknown).is_err(), "it is left alone: {unknown}");
        }
    }
}
