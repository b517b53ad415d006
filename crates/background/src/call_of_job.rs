//! A call that this process follows as a job, from the moment when its client has the id until the job has ended or was left.
//!
//! Invariants
//!
//! - This process withdraws the call from its server before it waits for the disk.
//! - Hundreds of calls may be followed at the same time. So what only the end of a call needs is not part of the future that waits.

use super::{
    CallsEnd, FollowedJob, PromotedCalls, kept_calls::CallKeeping, running_call::RunningCall,
    shown_questions, stream_tickets, tickets,
};
use unhang_jobs::{
    engine::{CallEnd, HeldCall},
    record::{EndReason, repeat_advice},
};

/// A call that this process follows as a job.
pub(super) struct CallOfJob {
    pub calls: PromotedCalls,
    pub held: HeldCall,
    pub running_call: RunningCall,
    pub keeping: CallKeeping,
    pub followed: FollowedJob,
}

/// The event that ends the following of a call.
enum FollowingEnd {
    /// The call has ended.
    OfCall(CallEnd),
    /// This process lets go of all calls.
    OfAll(CallsEnd),
}

impl CallOfJob {
    /// Follows the call until its job has ended, or was left to another process.
    pub(super) async fn follow(mut self: Box<Self>) {
        let (calls, id) = (self.calls.clone(), self.held.id());
        if let Some(news) = self.running_call.source.news() {
            news.becomes_job();
            calls.news().insert(id, news.clone());
        }
        let end = self.end().await;
        Box::pin(self.settle(end)).await;
        calls.news().remove(&id);
    }

    /// Waits for the end of the call in this process, and notes on the way what the server tells.
    async fn end(&mut self) -> FollowingEnd {
        let Self { calls, held, running_call, keeping, followed } = self;
        let (id, shared) = (held.id(), &calls.shared);
        let mut ending = shared.ending.subscribe();
        tokio::select! {
            biased;
            Ok(ended) = async { ending.wait_for(Option::is_some).await.map(|ended| *ended) } => {
                FollowingEnd::OfAll(ended.unwrap_or(CallsEnd::UnhangEnds))
            }
            end = running_call.follow(held, &shared.inputs, followed) => FollowingEnd::OfCall(end),
            never = keeping.keep_each(calls, id, &followed.who) => match never {},
            never = shown_questions::show(&shared.engine, &shared.inputs, id) => match never {},
        }
    }

    /// Settles the job with the end of the call, or leaves the job to the process that goes on with the call.
    async fn settle(self: Box<Self>, end: FollowingEnd) {
        let end = match end {
            FollowingEnd::OfAll(_) if self.held.is_kept() => return self.leave_to_keeper().await,
            FollowingEnd::OfAll(why) => {
                if let Some(ticket) = tickets::to_be_left(&self.running_call, &self.followed) {
                    return self.calls.leave(self.held, self.running_call, ticket).await;
                }
                stream_tickets::lost_with_us(&self.running_call, why, self.followed.is_repeatable)
                    .unwrap_or_else(|| end_of_all(why, self.advice()))
            }
            FollowingEnd::OfCall(end) => end,
        };
        if self.keeping.is_left() && self.held.is_kept() {
            // The configuration has the server no more, and the server goes on for its jobs.
            return self.leave_to_keeper().await;
        }
        let Self { calls, held, running_call, .. } = *self;
        let id = held.id();
        calls.shared.inputs.forget(id);
        // Before the disk is waited for, so that the server hears at once that nobody waits for the call.
        drop(running_call);
        let outcome = match &end {
            CallEnd::Answered { is_error: false, .. } => "answered",
            CallEnd::Answered { is_error: true, .. } => "answered with an error",
            CallEnd::Failed { .. } => "failed",
            CallEnd::Lost { .. } => "lost",
            CallEnd::Cancelled => "cancelled",
        };
        let is_joined = matches!(end, CallEnd::Answered { is_error: false, .. });
        match held.settle_in_the_end(end).await {
            Ok(status) => tracing::info!(job = id.as_str(), "{outcome} after {:?}", status.elapsed()),
            Err(error) => {
                tracing::warn!(job = id.as_str(), "{outcome}, but unhang cannot store this end: {error}");
            }
        }
        calls.shared.joinable.own.ended(id, is_joined);
    }

    /// Leaves the call to the process that its keeper starts.
    async fn leave_to_keeper(self) {
        let Self { calls, held, running_call, keeping, .. } = self;
        let id = held.id();
        // An answer that comes before this process has let go of the server is the call holder's too, which has the job by then.
        calls.outlast(id, running_call, || keeping.leave());
        match held.leave_to_keeper().await {
            Ok(()) => tracing::info!(job = id.as_str(), "left to the call holder of its server"),
            Err(error) => {
                tracing::warn!(job = id.as_str(), "unhang cannot record that it leaves the job: {error}");
            }
        }
    }

    /// Returns the advice whether to call the tool again, if this process ends before the answer.
    fn advice(&self) -> &'static str {
        if self.running_call.source.sent().is_some_and(|sent| sent.borrow().is_none()) {
            return "the server had not got the call, so it is safe to call the tool again";
        }
        repeat_advice(self.followed.is_repeatable, self.held.is_unsent())
    }
}

/// Returns the end of a call that ends with unhang or with its client.
fn end_of_all(why: CallsEnd, advice: &str) -> CallEnd {
    let (reason, what) = match why {
        CallsEnd::ClientGone => (EndReason::ClientGone, "its client went away, and the server with it"),
        CallsEnd::UnhangEnds => (EndReason::UnhangEnded, "unhang was ended before the server had answered"),
    };
    CallEnd::Failed { reason, detail: format!("{what}; {advice}"), error: None }
}
