//! What a session sees of the world, says to its client, and has its owner do.
//!
//! Invariant: nothing here may wait. What takes time is a [`SessionAction`], and what comes of it is told to the session as an event.

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value};
use unhang_jobs::id::JobId;

use super::tasks::TaskAsked;
use unhang_core::{batch::BatchId, queue::Class};
use unhang_gateway::{JoinPolicy, Level, Replied, ServerRequest};

/// Names what a client says at once and is answered at once: a POST. Over pipes there is one stream for everything.
pub type StreamKey = u64;

/// The stream of a session that has no other.
pub const ONLY_STREAM: StreamKey = 0;

/// An answer that is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorAnswer {
    /// Its code.
    pub code: i32,
    /// Whether we refuse what was asked. Otherwise a server does, and to us it is an answer like any other.
    pub is_ours: bool,
}

/// Where a line belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineTarget {
    /// It answers what came on this stream.
    Answer {
        /// The stream.
        stream: StreamKey,
        /// The error that it is, where it is one and stands alone.
        error: Option<ErrorAnswer>,
    },
    /// It tells something beside, while what came on this stream is worked on.
    Beside(StreamKey),
    /// It is about the session.
    Session,
}

/// How an answer goes back: on the stream on which it was asked for, in its batch where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplyRoute {
    pub stream: StreamKey,
    pub batch: Option<BatchId>,
}

/// What the session sees of the world and may do to it. None of these may wait.
pub trait SessionEffects {
    /// Sends one line (without its ending) to the client.
    fn to_client(&mut self, to: LineTarget, class: Class, line: &[u8]);
    /// What came on this stream gets no answer any more: the client has withdrawn it.
    fn nothing_to_client(&mut self, stream: StreamKey);
    /// Whether something can be said beside the answer to what came on this stream.
    fn takes_more(&self, stream: StreamKey) -> bool;
    /// Bytes that wait for the client.
    fn client_backlog(&self) -> usize;
}

/// Names a call while it runs, which can be longer than its request waits: an id can be in use again by then.
pub type CallKey = u64;

/// A resource of a server, as the server calls it: its place and the URI.
pub type Resource = (usize, Arc<str>);

/// Names a question that a server has asked.
pub type QuestionKey = u64;

/// What a question of a server is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuestionSubject {
    /// This call.
    Call(CallKey),
    /// This call, or another one of the session that the same server has.
    OneOfSeveral(CallKey),
}

/// What the owner has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionAction {
    /// Call a tool, then say [`McpSession::ended`](super::mcp_session::McpSession::ended).
    Call {
        /// What to call it by.
        key: CallKey,
        /// The tool's name, one of those that are listed.
        tool: String,
        /// What it is called with.
        arguments: Map<String, Value>,
        /// How long that was, as JSON.
        length: usize,
        /// How long the call may take from now on.
        limit: Duration,
    },
    /// Ask a server, then say [`McpSession::answered`](super::mcp_session::McpSession::answered).
    Ask {
        /// What to call it by.
        key: CallKey,
        /// What it is asked.
        asked: ServerRequest,
        /// Whether it may become a job.
        may_be_a_job: bool,
        /// Whether it joins the job that the same call has become.
        joining: JoinPolicy,
    },
    /// Hear of a resource, then say [`McpSession::watched`](super::mcp_session::McpSession::watched).
    Watch {
        /// What to call it by.
        key: CallKey,
        /// Which one.
        resource: Resource,
        /// How long it may take.
        limit: Duration,
    },
    /// Hear of it no more.
    Unwatch(Resource),
    /// Have servers log from this level on.
    Log(Level),
    /// This came of a question that a server has asked.
    Reply {
        /// The question.
        question: QuestionKey,
        /// What the client answered, or why there is no answer.
        replied: Replied,
    },
    /// Make a job of what a server is asked, then say [`McpSession::promoted`](super::mcp_session::McpSession::promoted), unless it is
    /// answered before.
    Promote {
        /// The call.
        key: CallKey,
        /// What its client calls the tool.
        name: String,
        /// For how long it has been asked.
        elapsed: Duration,
    },
    /// Ask for what is known of a task, then say [`McpSession::task_told`](super::mcp_session::McpSession::task_told).
    Task {
        /// What to call it by.
        key: CallKey,
        /// What is asked.
        asked: TaskAsked,
    },
    /// Say [`McpSession::task_changed`](super::mcp_session::McpSession::task_changed) whenever this task is another than it was, until it has
    /// ended.
    FollowTask {
        /// What to call it by.
        key: CallKey,
        /// The task.
        id: JobId,
    },
    /// Nobody waits for this call any more: it is to come to its end soon.
    Cancel(CallKey),
    /// Deliver what waits for the client, then end with this code.
    Exit(u8),
}

/// What was counted in the life of a front; shown at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionCounters {
    /// Requests of the client.
    pub requests: u64,
    /// Requests that were answered with a result.
    pub answered: u64,
    /// Lines and requests that were answered with an error.
    pub faults: u64,
    /// Requests that the client withdrew.
    pub withdrawn: u64,
}
