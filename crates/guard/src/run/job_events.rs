//! Jobs of calls in the loop of a guard: how they begin, outlive this process, and end.
//!
//! Invariants
//!
//! - The client hears of a job after the job is on the disk and the lifeline has its plan.
//! - A server with jobs is left, and not stopped, when the session ends.

use unhang_background::call_holder::KeptServer;
use unhang_proc::server::SweptTree;
use unhang_tools::service::JobServiceError;
use unhang_wire::Id;

use super::{
    super::{
        job_bridge::{Adopted, BridgeEvent},
        server_keeping::NeededLine,
        session_phase::WrapPhase,
    },
    GuardLoop,
};

impl GuardLoop {
    /// Has the lifeline keep the server for a job, so that its client can be told of the job.
    pub(super) fn keep(&mut self, adopted: Box<Adopted>) {
        let process = self.effects.process.as_mut().filter(|process| !process.exited);
        let Some(process) = process.filter(|_| self.keeping.is_possible()) else {
            return self.promote(*adopted);
        };
        let token = self.wrap_session.calls.get(&adopted.call).and_then(|call| call.token.clone());
        let server = KeptServer::new(self.name.clone(), self.wrap_session.client.revision(), &self.limits);
        let plan = (adopted.data_folder.clone(), server, adopted.kept_call(token));
        match self.keeping.ask(process, self.server_lines.held(), plan) {
            Ok(()) => self.unkept.push(*adopted),
            Err(error) => self.refuse_job(*adopted, &JobServiceError(error.to_string())),
        }
    }

    /// Notes that the lifeline keeps the server for the jobs that it was asked for.
    pub(super) fn lifeline_keeps(&mut self) {
        match self.keeping.answered(self.effects.process.as_ref()) {
            None => {}
            Some(Ok(keeper)) => {
                let Some(bridge) = &mut self.effects.bridge else { return };
                for adopted in std::mem::take(&mut self.unkept) {
                    bridge.name_keeper(adopted.into(), keeper.clone());
                }
            }
            Some(Err(error)) => self.refuse_kept(&error.to_string()),
        }
    }

    /// Makes calls again of the jobs that the lifeline has not confirmed.
    pub(super) fn refuse_kept(&mut self, why: &str) {
        for adopted in std::mem::take(&mut self.unkept) {
            self.refuse_job(adopted, &JobServiceError(why.to_owned()));
        }
    }

    /// Makes a call again of a job that would end with this process.
    pub(super) fn refuse_job(&mut self, adopted: Adopted, why: &JobServiceError) {
        tracing::warn!(
            server = self.name,
            "call {} cannot become a job, since nothing would outlive unhang: {why}",
            adopted.call
        );
        self.keeping.ended(self.effects.process.as_mut(), &adopted.call);
        let call = (&adopted.call, adopted.order);
        self.wrap_session.not_promoted(self.now(), call, why, &mut self.effects);
        if let Some(bridge) = &mut self.effects.bridge {
            bridge.adopted(adopted, false);
        }
    }

    /// Tells the client of a job.
    pub(super) fn promote(&mut self, adopted: Adopted) {
        let now = self.now();
        let call = (&adopted.call, adopted.order);
        let told = (adopted.job(), &*adopted.result);
        let is_told = self.wrap_session.promoted(now, call, told, &mut self.effects);
        if !is_told {
            self.keeping.ended(self.effects.process.as_mut(), &adopted.call);
        }
        if let Some(bridge) = &mut self.effects.bridge {
            bridge.adopted(adopted, is_told);
        }
    }

    /// Returns whether the server goes on for its jobs when this process ends.
    pub(super) fn leaves_server(&self) -> bool {
        matches!(self.wrap_session.phase, WrapPhase::Stopping { .. })
            && self.keeping.has_jobs(self.effects.process.as_ref())
    }

    /// Leaves the server to the call holder, which the lifeline starts. Whole lines that wait for the server go with it.
    pub(super) fn leave_server(&mut self) {
        self.effects.flush_server();
        tracing::info!(server = self.name, "unhang leaves it to a call holder, which goes on with its jobs");
        self.lose_process();
        self.wrap_session.server_gone(self.now(), SweptTree::default(), &mut self.effects);
    }

    /// Lets go of the process, which has ended or goes on without this one.
    pub(super) fn lose_process(&mut self) {
        if let Some(mut process) = self.effects.process.take()
            && process.exited
        {
            // Everything of it was read.
            process.server.release_kept();
        }
        self.keeping.process_changed();
        self.refuse_kept("the server has ended");
    }

    /// Notes a line that the server has just said, if it is needed once more should this process end. `held` bytes were read and not
    /// handled before it.
    pub(super) fn note_needed_line(&mut self, held: usize) {
        let answered = std::mem::take(&mut self.effects.answered_jobs);
        if !self.keeping.notes_lines() {
            return;
        }
        let answers = answered.into_iter().map(NeededLine::Answer);
        let questions = self.wrap_session.questions.server_ids().cloned().map(NeededLine::Question);
        answers.chain(questions).for_each(|line| self.keeping.needs(line, held));
    }

    /// Tells the journal of the server's output how far this process needs it no more.
    pub(super) fn note_processed(&mut self) {
        let (held, questions) = (self.server_lines.held().len(), &self.wrap_session.questions);
        let is_open = |id: &Id| questions.server_ids().any(|open| open == id);
        self.keeping.processed(self.effects.process.as_mut(), held, is_open);
    }

    /// Handles an event of the job bridge.
    pub(super) fn job_event(&mut self, event: BridgeEvent) {
        let now = self.now();
        match event {
            BridgeEvent::Adopted(adopted) => self.keep(adopted),
            BridgeEvent::Kept(adopted) => self.promote(*adopted),
            BridgeEvent::NotKept(adopted, why) => self.refuse_job(*adopted, &why),
            BridgeEvent::Ended(call) => {
                self.keeping.ended(self.effects.process.as_mut(), &call);
                self.note_processed();
            }
            BridgeEvent::Refused(call, order, why) => {
                tracing::warn!(server = self.name, "call {call} cannot become a job: {why}");
                self.wrap_session.not_promoted(now, (&call, order), &why, &mut self.effects);
            }
            BridgeEvent::Over(call, order, job) => {
                if self.wrap_session.waits_for_a_job(&call, order)
                    && let Some(bridge) = &mut self.effects.bridge
                {
                    bridge.read(call, order, job);
                }
            }
            BridgeEvent::Joined(call, order, outcome) => {
                self.wrap_session.joined(now, (&call, order), outcome, &mut self.effects);
            }
            BridgeEvent::Said => {}
            BridgeEvent::Withdrawn(call) => {
                self.wrap_session.job_withdrawn(now, &call, &mut self.effects);
            }
            BridgeEvent::Asked(params, again) => {
                let call = self.wrap_session.ask_for_job(now, &params, &mut self.effects);
                if let Some(bridge) = &mut self.effects.bridge {
                    bridge.asked(call, again);
                }
            }
        }
    }
}
