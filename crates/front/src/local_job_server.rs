//! A front without descriptors, for jobs alone. Its owner carries the lines of its session, and decides which lines are for it.
//!
//! Invariants: it has no servers, and its owner takes its messages in their order.

use std::{future::pending, sync::Arc};

use tokio::time::sleep_until;
use unhang_wire::Line;

use super::{
    effects::{LineTarget, ONLY_STREAM, SessionEffects, StreamKey},
    jobs::SessionJobs,
    session_context::SessionContext,
    session_runtime::SessionRuntime,
};
use unhang_background::EngineService;
use unhang_core::{limits::Limits, queue::Class};
use unhang_gateway::FairnessKey;
use unhang_tools::{Table, Toolbox, job_report::ToolNames, toolbox::NoTools};

/// The messages to the client, each with its class in the queue.
#[derive(Default)]
struct QueuedMessage(Vec<(Class, Vec<u8>)>);

impl SessionEffects for QueuedMessage {
    fn to_client(&mut self, _only_one: LineTarget, class: Class, line: &[u8]) {
        self.0.push((class, line.to_vec()));
    }

    fn nothing_to_client(&mut self, _only_one: StreamKey) {}

    fn takes_more(&self, _only_one: StreamKey) -> bool {
        true
    }

    fn client_backlog(&self) -> usize {
        0
    }
}

/// See the module's text.
pub struct LocalJobServer {
    work: SessionRuntime,
    said: QueuedMessage,
}

impl LocalJobServer {
    /// Makes a server that answers about the jobs of this service, with tools of these names.
    pub fn new(limits: Limits, service: EngineService, names: ToolNames) -> LocalJobServer {
        let service = Arc::new(service);
        let toolbox: Arc<dyn Toolbox> = match Table::of_jobs(names, service.clone()) {
            Ok(table) => Arc::new(table),
            Err(why) => {
                tracing::error!("unhang cannot offer its tools for jobs: {why}");
                Arc::new(NoTools)
            }
        };
        // Only one client is at the other end.
        let jobs = SessionJobs { service, tells_callers_apart: true };
        let context = SessionContext::new(toolbox, None, None).with_jobs(Some(jobs));
        let mut work = SessionRuntime::new(limits, &context, FairnessKey::new("stdio"), None);
        work.mcp_session.jobs.alone = Some(names);
        LocalJobServer { work, said: QueuedMessage::default() }
    }

    /// Passes a line from the client to the session.
    pub fn hear(&mut self, line: &[u8]) {
        let now = self.work.now();
        self.work.mcp_session.client_line(now, ONLY_STREAM, Line::Whole(line), &mut self.said);
        self.act();
    }

    /// Waits for the next event, and carries out the actions that follow. Cancel-safe.
    pub async fn work(&mut self) {
        let tick = self.work.next_tick();
        let ticks = async {
            match tick {
                Some(tick) => sleep_until(tick).await,
                None => pending().await,
            }
        };
        tokio::select! {
            event = self.work.event() => self.work.take(event, &mut self.said),
            () = ticks => {
                let now = self.work.now();
                self.work.mcp_session.tick(now, &mut self.said);
            }
        }
        self.act();
    }

    fn act(&mut self) {
        // The server ends with its owner, and has no exit code.
        let _none = self.work.act();
    }

    /// Takes the messages since the last call.
    pub fn said(&mut self) -> Vec<(Class, Vec<u8>)> {
        std::mem::take(&mut self.said.0)
    }
}
