//! The session's effects in a running guard: the queues with their descriptors, the process, and the job bridge.
//!
//! Invariant: nothing here waits. Bytes that the kernel does not take stay in a queue.

use std::{io, os::fd::OwnedFd, sync::Arc, time::Duration};

use unhang_core::{
    config::TAIL_LINES,
    limits::Limits,
    queue::{Class, Queue},
    shell::{ToClient, gathered},
};
use unhang_jobs::id::JobId;
use unhang_proc::{drain::Tail, lossy::LossyWriter};
use unhang_tools::job_report::ToolNames;
use unhang_upstream::process::ServerProcess;
use unhang_wire::Id;

use super::{
    effects::{JobNews, WrapEffects},
    job_bridge::JobBridge,
};

/// The session's effects: both queues with the descriptors behind them.
pub(super) struct ProcessEffects {
    pub(super) to_client: ToClient,
    pub(super) process: Option<ServerProcess>,
    pub(super) to_server: Queue,
    /// The memory of the line that is being handled.
    pub(super) memory: Option<Arc<Vec<u8>>>,
    /// The most bytes that are gathered for the server.
    gathered: usize,
    pub(super) tail: Tail,
    pub(super) notices: LossyWriter,
    /// The bridge through which slow calls become jobs.
    pub(super) bridge: Option<JobBridge>,
    /// A sentence about jobs of earlier sessions, as far as it was looked for.
    pub(super) earlier_jobs: Option<String>,
}

impl ProcessEffects {
    /// Makes effects without a process, for a client that reads from this descriptor.
    ///
    /// # Errors
    /// Fails if the descriptor cannot be used at all.
    pub(super) fn new(
        client_output: OwnedFd,
        limits: &Limits,
        notices: LossyWriter,
        bridge: Option<JobBridge>,
    ) -> io::Result<ProcessEffects> {
        Ok(ProcessEffects {
            to_client: ToClient::new(client_output, limits.queue_bytes)?,
            process: None,
            to_server: Queue::new(usize::MAX),
            memory: None,
            gathered: gathered(limits.queue_bytes),
            tail: Tail::new(limits.stderr_tail),
            notices,
            bridge,
            earlier_jobs: None,
        })
    }

    /// Returns whether bytes wait for the server.
    pub(super) fn has_output_for_server(&self) -> bool {
        !self.to_server.is_empty() || self.process.as_ref().is_some_and(ServerProcess::has_backlog)
    }
}

impl WrapEffects for ProcessEffects {
    fn to_client(&mut self, class: Class, line: &[u8]) {
        self.to_client.send(class, line, self.memory.as_ref());
    }

    fn to_server(&mut self, line: &[u8]) {
        let input = self.process.as_mut().and_then(|process| process.server.input.as_mut());
        let full = line.len() + self.to_server.cost() > self.gathered;
        self.to_server.push(Class::Kept, line, input.filter(|_| full), self.memory.as_ref());
    }

    fn flush_server(&mut self) {
        if let Some(process) = &mut self.process {
            process.write_from(&mut self.to_server);
        }
    }

    fn client_backlog(&self) -> usize {
        self.to_client.backlog()
    }

    fn server_backlog(&self) -> usize {
        self.to_server.cost()
    }

    fn stderr_tail(&self) -> Vec<String> {
        self.tail.last_lines(TAIL_LINES)
    }

    fn stderr_age(&self) -> Option<Duration> {
        self.tail.age()
    }

    fn processor_time(&self) -> Option<Duration> {
        self.process.as_ref().and_then(|process| process.server.cpu_time())
    }

    fn show(&mut self, text: &str) {
        self.notices.send(format!("unhang: {text}\n").as_bytes());
    }

    fn to_job(&mut self, call: &Id, news: JobNews<'_>) {
        if let Some(bridge) = &mut self.bridge {
            bridge.tell(call, news);
        }
    }

    fn to_job_server(&mut self, line: &[u8], names: ToolNames) {
        if let Some(bridge) = &mut self.bridge {
            bridge.serve(line, names);
        }
    }

    fn job_server_backlog(&self) -> usize {
        self.bridge.as_ref().map_or(0, JobBridge::job_server_backlog)
    }

    fn earlier_jobs(&self) -> Option<&str> {
        self.earlier_jobs.as_deref()
    }

    fn same_call(&self, client: Option<&str>, params: &[u8]) -> Option<JobId> {
        self.bridge.as_ref()?.same_call(client, params)
    }
}
