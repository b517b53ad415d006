//! A front without descriptors, for jobs alone: somebody else carries the lines of its session, and decides which are for it.
//!
//! Invariants: it has no servers; what it says is taken by whoever asks for it, in its order.

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

/// What has been said, each with what it is to the queue to the client.
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
    /// Answers about the jobs of this service, to whoever calls the tools by these names.
    pub fn new(limits: Limits, service: EngineService, names: ToolNames) -> LocalJobServer {
        let service = Arc::new(service);
        let toolbox: Arc<dyn Toolbox> = match Table::of_jobs(names, service.clone()) {
            Ok(table) => Arc::new(table),
            Err(why) => {
                tracing::error!("there are no tools about jobs: {why}");
                Arc::new(NoTools)
            }
        };
        // One client alone is at the other end.
        let jobs = SessionJobs { service, tells_callers_apart: true };
        let context = SessionContext::new(toolbox, None, None).with_jobs(Some(jobs));
        let mut work = SessionRuntime::new(limits, &context, FairnessKey::new("stdio"), None);
        work.mcp_session.jobs.alone = Some(names);
        LocalJobServer { work, said: QueuedMessage::default() }
    }

    /// The client has said this.
    pub fn hear(&mut self, line: &[u8]) {
        let now = self.work.now();
        self.work.mcp_session.client_line(now, ONLY_STREAM, Line::Whole(line), &mut self.said);
        self.act();
    }

    /// Waits for something to happen, and does what it asks for. Cancel-safe.
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
        // It ends with whoever carries its lines, and has no exit code.
        let _none = self.work.act();
    }

    /// What it has said since the last look.
    pub fn said(&mut self) -> Vec<(Class, Vec<u8>)> {
        std::mem::take(&mut self.said.0)
    }
}
