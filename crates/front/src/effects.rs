//! The interface between a session and its owner: the effects that it may have at once, and the actions that it leaves to the owner.
//!
//! Invariant: nothing here may wait. Work that takes time is a [`SessionAction`], and its outcome is told to the session as an event.

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value};
use unhang_bridge::Era;
use unhang_jobs::id::JobId;

use super::{asking::PromotionOrder, tasks::TaskAsked};
use unhang_core::{batch::BatchId, queue::Class};
use unhang_gateway::{JoinPolicy, Level, Replied, ServerRequest};
use unhang_upstream::client::ServerList;

/// Names a unit of input that the client sends and gets answered as a whole, such as a POST. Over pipes one stream carries everything.
pub type StreamKey = u64;

/// The stream of a session that has only one.
pub const ONLY_STREAM: StreamKey = 0;

/// An answer that is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorAnswer {
    /// Its code.
    pub code: i32,
    /// Whether unhang refuses the request. Otherwise the error is a server's, and counts as an ordinary answer.
    pub is_ours: bool,
}

/// The place where a line belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineTarget {
    /// The line answers input of this stream.
    Answer {
        /// The stream.
        stream: StreamKey,
        /// The error in the line, if the line is a single error.
        error: Option<ErrorAnswer>,
    },
    /// The line goes beside the answer, while input of this stream is worked on.
    Beside(StreamKey),
    /// The line is about the session.
    Session,
}

/// The way of an answer back: on the stream of its request, and in its batch if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplyRoute {
    pub stream: StreamKey,
    pub batch: Option<BatchId>,
}

/// The effects that a session may have at once. None of these methods may wait.
pub trait SessionEffects {
    /// Sends one line (without its ending) to the client.
    fn to_client(&mut self, to: LineTarget, class: Class, line: &[u8]);
    /// Notes that input of this stream gets no answer any more, because the client has withdrawn it.
    fn nothing_to_client(&mut self, stream: StreamKey);
    /// Returns whether something can be said beside the answer to input of this stream.
    fn takes_more(&self, stream: StreamKey) -> bool;
    /// Returns the bytes that wait for the client.
    fn client_backlog(&self) -> usize;
}

/// Names a call while it runs. The call can run longer than its request waits, so that the request's id can be in use again.
pub type CallKey = u64;

/// A resource of a server: the index of the server, and the URI by which the server knows it.
pub type Resource = (usize, Arc<str>);

/// Names a question that a server has asked.
pub type QuestionKey = u64;

/// The subject of a server's question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuestionSubject {
    /// The question is about this call.
    Call(CallKey),
    /// The question is about this call, or another call of the session to the same server.
    OneOfSeveral(CallKey),
    /// The question is about no call. Only the client of this session can be meant.
    Session,
}

/// The work that the owner of a session has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionAction {
    /// Call a tool, then report with [`McpSession::ended`](super::mcp_session::McpSession::ended).
    Call {
        /// The key of the call.
        key: CallKey,
        /// The tool's name, one of the listed names.
        tool: String,
        /// The arguments of the call.
        arguments: Map<String, Value>,
        /// The length of the arguments as JSON.
        length: usize,
        /// How long the call may take from now on.
        limit: Duration,
    },
    /// Ask a server, then report with [`McpSession::answered`](super::mcp_session::McpSession::answered).
    Ask {
        /// The key of the call.
        key: CallKey,
        /// The request to the server.
        asked: Box<ServerRequest>,
        /// Whether the call may become a job.
        may_be_a_job: bool,
        /// Whether the call joins the job that the same call has become.
        joining: JoinPolicy,
    },
    /// Ask servers whether they have changed this list, then report with
    /// [`McpSession::refreshed`](super::mcp_session::McpSession::refreshed).
    Refresh {
        /// The key of the call.
        key: CallKey,
        /// The list.
        list: ServerList,
        /// The name that nobody lists, if the request is about one.
        wanted: Option<String>,
    },
    /// Watch a resource, then report with [`McpSession::watched`](super::mcp_session::McpSession::watched).
    Watch {
        /// The key of the call.
        key: CallKey,
        /// The resource.
        resource: Resource,
        /// How long the request may take.
        limit: Duration,
    },
    /// Stop watching the resource.
    Unwatch(Resource),
    /// Tell the servers of the client.
    ClientSpeaks {
        /// The era of the client; `None` for a client that has only asked for the discovery, and may go on with a handshake.
        era: Option<Era>,
        /// The client's capabilities, as JSON.
        capabilities: Box<str>,
    },
    /// Note that the client has ended its handshake, and can be asked something outside calls.
    HandshakeOver,
    /// Tell servers that the client's roots have changed.
    RootsChanged,
    /// Have servers log from this level on.
    Log(Level),
    /// Pass on the reply to a question that a server has asked.
    Reply {
        /// The question.
        question: QuestionKey,
        /// The client's answer, or the reason why there is none.
        replied: Replied,
    },
    /// Leave a question, which may be about another call: it moves there, or is declined.
    Leave(QuestionKey),
    /// Make a job of a request to a server, then report with [`McpSession::promoted`](super::mcp_session::McpSession::promoted), unless the
    /// request is answered before.
    Promote {
        /// The call.
        key: CallKey,
        /// The facts about the call that its job needs.
        order: PromotionOrder,
    },
    /// Look a task up, then report with [`McpSession::task_told`](super::mcp_session::McpSession::task_told).
    Task {
        /// The key of the call.
        key: CallKey,
        /// The question about the task.
        asked: TaskAsked,
    },
    /// Report each change of this task with [`McpSession::task_changed`](super::mcp_session::McpSession::task_changed), until the task has
    /// ended.
    FollowTask {
        /// The key of the call.
        key: CallKey,
        /// The task.
        id: JobId,
    },
    /// End this call soon: its answer is not needed any more.
    Cancel(CallKey),
    /// Deliver the lines that wait for the client, then end with this exit code.
    Exit(u8),
}

/// The counters of a session, shown at its end.
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
