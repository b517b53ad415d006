//! Jobs of calls in the loop of a guard: how they begin, outlive this process, and end.
//!
//! Invariants
//!
//! - The client hears of a job after the job is on the disk and the lifeline has its plan. A job whose call waits for a server that is down
//!   has no keeper until the server has the call.
//! - A server with jobs is left, and not stopped, when the session ends.

use unhang_background::PromotedCalls;
use unhang_core::units::in_words;
use unhang_proc::server::{Server, SweptTree};
use unhang_tools::service::JobServiceError;
use unhang_upstream::keeping::{KEEP_LIMIT, KeptCall, KeptServer, NeededLine, PlanFacts, ServerKeeping};
use unhang_wire::Id;

use super::{
    super::{
        effects::WrapEffects,
        job_bridge::{Adopted, BridgeEvent},
        process_effects::ProcessEffects,
        relays::RepeatedRequest,
        session_phase::WrapPhase,
    },
    GuardLoop,
};

/// A job whose client was told of it while its call waited for the server.
pub(super) struct UnsentJob {
    call: KeptCall,
    facts: PlanFacts,
    calls: PromotedCalls,
    /// Whether the lifeline was asked to keep the server for it.
    is_asked: bool,
}

/// A server that has ended before its last jobs were settled. Its lifeline keeps what it has said.
pub(super) struct DepartedServer {
    server: Server,
    /// The first ids of the calls.
    unsettled: Vec<Id>,
}

impl GuardLoop {
    /// Has the lifeline keep the server for a job, so that its client can be told of the job.
    pub(super) fn keep(&mut self, adopted: Box<Adopted>) {
        let command = self.call_holder.clone().filter(|_| ServerKeeping::is_possible());
        let Some(command) = command else {
            self.promote(*adopted);
            return;
        };
        let Some(known) = self.wrap_session.calls.ordered(&adopted.call, adopted.order) else {
            // It was answered meanwhile, and that answer is in no journal. A call holder would wait for another one.
            self.promote(*adopted);
            return;
        };
        let call = adopted.kept_call(known.token.clone(), known.sent);
        let (data_folder, server) = (adopted.data_folder.clone(), self.kept_server());
        let facts = PlanFacts { command, data_folder, server };
        let process = self.effects.process.as_mut().filter(|process| !process.exited);
        let Some(process) = process.filter(|_| !self.wrap_session.is_held_back(&adopted.call)) else {
            let calls = adopted.calls.clone();
            if self.promote(*adopted) {
                self.unsent.push(UnsentJob { call, facts, calls, is_asked: false });
            }
            return;
        };
        match self.keeping.ask(process, self.server_lines.held(), facts, call) {
            Ok(()) => self.unkept.push(*adopted),
            Err(error) => self.refuse_job(*adopted, &JobServiceError(error.to_string())),
        }
    }

    /// Returns the facts about the server for a call holder.
    fn kept_server(&self) -> KeptServer {
        let client = &self.wrap_session.client;
        let mut server = KeptServer::new(self.name.clone(), client.revision(), &self.limits);
        server.roots.all = client.roots().and_then(|roots| serde_json::from_str(roots).ok());
        server
    }

    /// Gives the lifeline the client's roots if they have changed.
    pub(super) fn renew_plan(&mut self) {
        if self.wrap_session.client.take_new_roots() && self.keeping.has_jobs(self.effects.process.as_ref()) {
            let server = self.kept_server();
            if let Some(process) = &mut self.effects.process {
                self.keeping.renew(process, server);
            }
        }
    }

    /// Notes in the plan which calls the server has got meanwhile. They became jobs before their server was asked.
    pub(super) fn note_sent_calls(&mut self) {
        // A line that still waits here is lost if this process is killed.
        if self.effects.to_server.is_empty() {
            let is_sent = |id: &Id| self.wrap_session.calls.get(id).is_none_or(|call| call.sent);
            self.keeping.sent(self.effects.process.as_mut(), is_sent);
        }
    }

    /// Has the lifeline keep the server for the jobs whose calls the server has got meanwhile.
    pub(super) fn keep_sent_jobs(&mut self) {
        if self.unsent.is_empty() {
            return;
        }
        let calls = &self.wrap_session.calls;
        self.unsent.retain(|job| calls.contains(&job.call.id));
        let server = self.kept_server();
        let Some(process) = self.effects.process.as_mut().filter(|process| !process.exited) else { return };
        for job in &mut self.unsent {
            if job.is_asked || !self.wrap_session.calls.get(&job.call.id).is_some_and(|call| call.sent) {
                continue;
            }
            let facts = PlanFacts { server: server.clone(), ..job.facts.clone() };
            job.is_asked = true;
            let call = KeptCall { is_sent: true, ..job.call.clone() };
            if let Err(error) = self.keeping.ask(process, self.server_lines.held(), facts, call) {
                warn_of_end(job, &error.to_string());
            }
        }
    }

    /// Notes that the lifeline keeps the server for the jobs that it was asked for.
    pub(super) fn lifeline_keeps(&mut self) {
        match self.keeping.confirmed(self.effects.process.as_ref()) {
            None => {}
            Some(Ok(keeper)) => {
                let Some(bridge) = &mut self.effects.bridge else { return };
                for adopted in std::mem::take(&mut self.unkept) {
                    bridge.name_keeper(adopted.into(), keeper.clone());
                }
                for job in self.unsent.extract_if(.., |job| job.is_asked) {
                    bridge.name_late_keeper(&job.calls, job.call.job, keeper.clone());
                }
            }
            Some(Err(error)) => self.refuse_kept(&error.to_string()),
        }
    }

    /// Notes that the lifeline does not keep the server for the jobs that it was asked for.
    pub(super) fn lifeline_refuses(&mut self, why: &str) {
        self.keeping.refused();
        self.refuse_kept(why);
    }

    /// Refuses the jobs for which the lifeline was asked and has not answered in time.
    pub(super) fn refuse_late(&mut self) {
        if self.keeping.is_late() {
            let limit = in_words(KEEP_LIMIT);
            self.refuse_kept(&format!(
                "its lifeline, which has to keep its pipes, did not answer within {limit}"
            ));
        }
    }

    /// Makes calls again of the jobs that the lifeline has not confirmed.
    pub(super) fn refuse_kept(&mut self, why: &str) {
        for job in self.unsent.extract_if(.., |job| job.is_asked) {
            warn_of_end(&job, why);
            self.keeping.ended(self.effects.process.as_mut(), &job.call.id);
        }
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

    /// Tells the client of a job. Returns false if the client does not wait any more.
    pub(super) fn promote(&mut self, adopted: Adopted) -> bool {
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
        is_told
    }

    /// Returns whether the server goes on for its jobs when this process ends.
    pub(super) fn leaves_server(&self) -> bool {
        matches!(self.wrap_session.phase, WrapPhase::Stopping { .. })
            && self.keeping.has_jobs(self.effects.process.as_ref())
    }

    /// Stops the server. If it has jobs, they end with it, and its last words stay in the journal until they have ended.
    pub(super) fn stop_server(&mut self) {
        let has_jobs = self.keeping.has_jobs(self.effects.process.as_ref());
        match &mut self.effects.process {
            Some(process) if has_jobs => process.server.begin_stop_kept(),
            Some(process) => process.server.begin_stop(),
            None => {}
        }
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
        if let Some(process) = self.effects.process.take()
            && process.exited
        {
            // Everything of it was read. If this process ends before all ends are on the disk, a call holder says what the server said.
            let unsettled = self.keeping.unsettled();
            self.departed.push(DepartedServer { server: process.server, unsettled });
            self.release_departed(None);
        }
        self.keeping.process_changed();
        self.refuse_kept("the server has ended");
    }

    /// Releases the servers that have ended and whose answers are all settled, now that the job of this call has ended.
    fn release_departed(&mut self, ended: Option<&Id>) {
        for departed in &mut self.departed {
            departed.unsettled.retain(|call| Some(call) != ended);
        }
        for mut departed in self.departed.extract_if(.., |departed| departed.unsettled.is_empty()) {
            departed.server.release_kept();
        }
    }

    /// Notes a line that the server has just said, if it is needed once more should this process end. `held` bytes were read and not
    /// handled before it.
    pub(super) fn note_needed_line(&mut self, held: usize) {
        if !self.keeping.notes_lines() {
            return;
        }
        let answers = self.keeping.answered(|call| self.wrap_session.calls.contains(call));
        let questions = self.wrap_session.questions.server_ids().cloned().map(NeededLine::Question);
        answers.into_iter().chain(questions).for_each(|line| self.keeping.needs(line, held));
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
            BridgeEvent::Kept(adopted) => {
                self.promote(*adopted);
            }
            BridgeEvent::NotKept(adopted, why) => self.refuse_job(*adopted, &why),
            BridgeEvent::Ended(call) => {
                self.release_departed(Some(&call));
                self.keeping.ended(self.effects.process.as_mut(), &call);
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
            // The loop looks what it may read, and what was said.
            BridgeEvent::Said | BridgeEvent::Recalled => {}
            BridgeEvent::Withdrawn(call) => {
                self.wrap_session.job_withdrawn(now, &call, &mut self.effects);
            }
            BridgeEvent::Asked(params, again) => self.ask_again(&params, again),
        }
    }

    /// Makes one more request to the server on behalf of a job.
    fn ask_again(&mut self, params: &str, again: RepeatedRequest) {
        let call = self.wrap_session.register_for_job(self.now(), params);
        if !self.wrap_session.is_held_back(&call) {
            let ProcessEffects { process, to_server, .. } = &mut self.effects;
            self.keeping.asks_again(process.as_mut(), to_server, again.before(), call.clone());
        }
        self.wrap_session.send_or_hold(&call, &mut self.effects);
        if let Some(bridge) = &mut self.effects.bridge {
            bridge.asked(call, again);
        }
    }
}

/// Says in the log that a job ends with this process.
fn warn_of_end(job: &UnsentJob, why: &str) {
    tracing::warn!(
        job = job.call.job.as_str(),
        "the job ends with unhang, since nothing would outlive it: {why}"
    );
}
