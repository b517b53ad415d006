//! The edge of the session: its view of the world, its effects on it, and its orders to its owner.

use std::time::Duration;

use unhang_core::queue::Class;
use unhang_jobs::id::JobId;
use unhang_tools::job_report::ToolNames;
use unhang_wire::Id;

use super::promotion::{Join, Promote};

/// The session's view of the world and its effects on it. None of these methods may wait.
pub trait WrapEffects {
    /// Sends one line (without its ending) to the client.
    fn to_client(&mut self, class: Class, line: &[u8]);
    /// Sends one line (without its ending) to the server.
    fn to_server(&mut self, line: &[u8]);
    /// Writes the lines for the server that were gathered, so that none of them leaves after a later line for the client.
    fn flush_server(&mut self);
    /// Counts the bytes that wait for the client.
    fn client_backlog(&self) -> usize;
    /// Counts the bytes that wait for the server.
    fn server_backlog(&self) -> usize;
    /// Returns the server's last lines on stderr, at most [`TAIL_LINES`](unhang_core::config::TAIL_LINES).
    fn stderr_tail(&self) -> Vec<String>;

    /// Returns how old the last of these lines is, if that is known.
    fn stderr_age(&self) -> Option<Duration> {
        None
    }
    /// Returns the processor time that the server's processes have used so far, if it can be read.
    fn processor_time(&self) -> Option<Duration>;
    /// Shows a text to the person in front of the client.
    fn show(&mut self, text: &str);
    /// Sends news to the job that this call has become. `call` is its id on the server's side.
    fn to_job(&mut self, call: &Id, news: JobNews<'_>);
    /// Sends one line (without its ending) to the local job server. The first line opens it. Its tools have these names.
    fn to_job_server(&mut self, line: &[u8], names: ToolNames);
    /// Counts the bytes that wait for the local job server.
    fn job_server_backlog(&self) -> usize;
    /// Returns the job that a call of this client with these params has become before, if there is one.
    fn same_call(&self, client: Option<&str>, params: &[u8]) -> Option<JobId>;

    /// Returns a sentence about jobs of earlier sessions for which an older process of the server works.
    fn earlier_jobs(&self) -> Option<&str> {
        None
    }
}

/// News for a job about its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobNews<'a> {
    /// The last news: the response of the server, or one in its place, with its era.
    Answer(unhang_bridge::Era, &'a [u8]),
    /// The `params` of a `notifications/progress`.
    Progress(&'a [u8]),
    /// The `params` of a `notifications/message`.
    Log(&'a [u8]),
}

/// An order to the owner of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WrapAction {
    /// Start the server, then call [`server_spawned`](super::wrap_session::WrapSession::server_spawned) or [`start_failed`](super::wrap_session::WrapSession::start_failed).
    StartServer,
    /// Stop the server in stages. Its end is reported as any other.
    StopServer,
    /// Make a job of a call, then call [`promoted`](super::wrap_session::WrapSession::promoted).
    Promote(Box<Promote>),
    /// Have a call answered by the job that it has become before, then call [`joined`](super::wrap_session::WrapSession::joined).
    Join(Box<Join>),
    /// Deliver the lines that wait for the client, then end with this code.
    Exit(u8),
}
