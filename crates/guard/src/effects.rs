//! The edge of the session: what it sees of the world and may do to it, and what it asks its owner to do.

use std::time::Duration;

use unhang_core::queue::Class;
use unhang_jobs::id::JobId;
use unhang_tools::job_report::ToolNames;
use unhang_wire::Id;

use super::promotion::{Join, Promote};

/// What the session sees of the world and may do to it. None of these may wait.
pub trait WrapEffects {
    /// Sends one line (without its ending) to the client.
    fn to_client(&mut self, class: Class, line: &[u8]);
    /// Sends one line (without its ending) to the server.
    fn to_server(&mut self, line: &[u8]);
    /// Counts the bytes that wait for the client.
    fn client_backlog(&self) -> usize;
    /// Counts the bytes that wait for the server.
    fn server_backlog(&self) -> usize;
    /// Returns the server's last lines on stderr, at most [`TAIL_LINES`](unhang_core::config::TAIL_LINES).
    fn stderr_tail(&self) -> Vec<String>;

    /// Tells how old the last of them is, where that is known.
    fn stderr_age(&self) -> Option<Duration> {
        None
    }
    /// Returns the processor time used by the server's processes so far, where that can be read.
    fn processor_time(&self) -> Option<Duration>;
    /// Tells the person in front of the client something.
    fn show(&mut self, text: &str);
    /// Tells whoever keeps the job that this call has become, by its id on the server's side.
    fn to_job(&mut self, call: &Id, news: JobNews<'_>);
    /// Sends one line (without its ending) to the local job server, which is opened with the first; its tools are called by these names.
    fn to_job_server(&mut self, line: &[u8], names: ToolNames);
    /// Counts the bytes that wait for the local job server.
    fn job_server_backlog(&self) -> usize;
    /// Returns the job that a call of this client with these params has become before.
    fn same_call(&self, client: Option<&str>, params: &[u8]) -> Option<JobId>;
}

/// What the bridge of a job hears of its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobNews<'a> {
    /// The response, of the server or in its place, and of which era; the last there is.
    Answer(unhang_bridge::Era, &'a [u8]),
    /// The `params` of a `notifications/progress`.
    Progress(&'a [u8]),
    /// The `params` of a `notifications/message`.
    Log(&'a [u8]),
}

/// What the owner has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WrapAction {
    /// Start the server, then call [`server_spawned`](super::wrap_session::WrapSession::server_spawned) or [`start_failed`](super::wrap_session::WrapSession::start_failed).
    StartServer,
    /// Stop the server by the ladder; its end is reported as any other.
    StopServer,
    /// Make a job of a call, then say [`promoted`](super::wrap_session::WrapSession::promoted).
    Promote(Box<Promote>),
    /// Have a call answered by the job that it has become before, then say [`joined`](super::wrap_session::WrapSession::joined).
    Join(Box<Join>),
    /// Deliver what waits for the client, then end with this code.
    Exit(u8),
}
