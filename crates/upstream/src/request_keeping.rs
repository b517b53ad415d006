//! The requests of a client that are kept: those that became jobs, and those that are about to.
//!
//! ```text
//! SentRequest::keep ─ waiting ─ the server has got the request ─► ServerKeeping::ask ─ asked ─ Kept ─► KeptRequest, followed
//! KeptRequest dropped ─► ServerKeeping::ended          Stop, with requests followed ─► the server is left, and not stopped
//! ```
//!
//! Invariants
//!
//! - A request is in the plan after the server has got all of it: in its pipe, or in the journal.
//! - Each order has one reply, and a caller that has stopped waiting leaves nothing in the plan.

use unhang_proc::server::Server;
use unhang_wire::Id;

use super::{
    keeping::{KeptCall, KeptServer, NeededLine, PlanFacts, ServerKeeping},
    kept_request::{FollowedRequest, KeepCommand, KeepError},
    process::ServerProcess,
    upstream_session::UpstreamSession,
};
use unhang_core::queue::Queue;

/// The kept requests of one server. See the module's text.
#[derive(Debug, Default)]
pub(crate) struct RequestKeeping {
    server: ServerKeeping,
    waiting: Vec<KeepCommand>,
    /// The orders that the lifeline has not confirmed, with the ids under which the requests came into the plan.
    asked: Vec<(Id, KeepCommand)>,
    followed: Vec<FollowedRequest>,
}

impl RequestKeeping {
    /// Returns whether jobs wait for answers of the server, which its lifeline keeps.
    pub(crate) fn has_jobs(&self, process: Option<&ServerProcess>) -> bool {
        self.server.has_jobs(process)
    }

    /// Notes that bytes of the server were read.
    pub(crate) fn read(&mut self, count: usize) {
        self.server.read(count);
    }

    /// Notes a line that the server has just said, if it is needed once more should this process end. `held` bytes were read and not
    /// handled before it.
    pub(crate) fn note_line(&mut self, session: &UpstreamSession, held: usize) {
        if !self.server.notes_lines() {
            return;
        }
        let answers = self.server.answered(|id| session.awaits(id));
        let questions = session.open_questions().cloned().map(NeededLine::Question);
        answers.into_iter().chain(questions).for_each(|line| self.server.needs(line, held));
    }

    /// Takes new orders, forgets requests whose jobs have ended, and tells the journal what is processed. `held` are the bytes of the
    /// server that were read and are no line yet.
    pub(crate) fn tend(
        &mut self,
        session: &mut UpstreamSession,
        mut process: Option<&mut ServerProcess>,
        to_server: &mut Queue,
        held: &[u8],
    ) {
        self.waiting.append(&mut session.keep_commands);
        if !self.waiting.is_empty() {
            self.refuse_what_is_over(session);
            match process.as_deref_mut().filter(|process| !process.exited) {
                Some(process) => self.ask(session, process, to_server, held),
                None => self.waiting.drain(..).for_each(|command| command.refuse(KeepError::Over)),
            }
        }
        if session.take_new_roots()
            && let (Some(process), Some(server)) = (process.as_deref_mut(), kept_server(session))
        {
            self.server.renew(process, server);
        }
        for first in self.newly_settled() {
            self.server.ended(process.as_deref_mut(), &first);
        }
        self.server.processed(process, held.len(), |id| session.open_questions().any(|open| open == id));
    }

    /// Forgets the requests that are settled. Returns the first ids of the jobs that follow no other request.
    fn newly_settled(&mut self) -> Vec<Id> {
        let settled = self.followed.extract_if(.., FollowedRequest::is_settled);
        let mut firsts: Vec<Id> = settled.map(|request| request.first).collect();
        firsts.retain(|first| self.followed.iter().all(|known| known.first != *first));
        firsts
    }

    fn refuse_what_is_over(&mut self, session: &UpstreamSession) {
        self.waiting.retain(|command| !command.is_abandoned());
        for command in self.waiting.extract_if(.., |command| !session.awaits(&command.id)) {
            command.refuse(KeepError::Over);
        }
    }

    /// Asks the lifeline to keep the server for the requests that wait, once the server has got them.
    fn ask(
        &mut self,
        session: &UpstreamSession,
        process: &mut ServerProcess,
        to_server: &mut Queue,
        held: &[u8],
    ) {
        if !ServerKeeping::is_possible() {
            return self.waiting.drain(..).for_each(|command| command.refuse(KeepError::Impossible));
        }
        if let Err(error) = self.server.prepare(process, held) {
            let why = KeepError::Refused(error.to_string());
            return self.waiting.drain(..).for_each(|command| command.refuse(why.clone()));
        }
        process.write_from(to_server);
        if !to_server.is_empty() {
            // The journal is full, because the server does not read. The callers wait for a limited time.
            return;
        }
        for command in std::mem::take(&mut self.waiting) {
            let Some(facts) = facts(session, &command) else {
                command.refuse(KeepError::Over);
                continue;
            };
            let job = command.order.job;
            if let Some(first) = self.server.first_of(job).cloned() {
                // The plan has the request since before the server got it.
                self.server.resend_plan(process);
                self.asked.push((first, command));
                continue;
            }
            let client = session.session_of(&command.id).map(|session| session.key.number());
            let (id, who) = (command.id.clone(), command.order.who.clone());
            let call = KeptCall { job, id, token: None, who, client, is_sent: true, next: None };
            match self.server.ask(process, held, facts, call) {
                Ok(()) => self.asked.push((command.id.clone(), command)),
                Err(error) => command.refuse(KeepError::Refused(error.to_string())),
            }
        }
    }

    /// Gives the lifeline a request that takes the place of `before`, if that is in the plan. Call it before the request is written.
    pub(crate) fn asks_again(
        &mut self,
        process: Option<&mut ServerProcess>,
        to_server: &Queue,
        before: &Id,
        id: Id,
    ) {
        self.server.asks_again(process, to_server, before, id);
    }

    /// Notes that the lifeline has confirmed one plan.
    pub(crate) fn confirmed(&mut self, process: Option<&mut ServerProcess>) {
        match self.server.confirmed(process.as_deref()) {
            None => {}
            Some(Ok(keeper)) => {
                for (first, command) in std::mem::take(&mut self.asked) {
                    // A caller that has its answer already does not take the confirmation, and still has the request before.
                    self.followed.push(command.confirm(first, keeper.clone()));
                }
            }
            Some(Err(error)) => self.refuse(process, &error.to_string()),
        }
    }

    /// Notes that the lifeline has refused one plan.
    pub(crate) fn refused(&mut self, process: Option<&mut ServerProcess>, why: &str) {
        self.server.refused();
        self.refuse(process, why);
    }

    fn refuse(&mut self, mut process: Option<&mut ServerProcess>, why: &str) {
        for (first, command) in std::mem::take(&mut self.asked) {
            if self.followed.iter().all(|known| known.first != first) {
                self.server.ended(process.as_deref_mut(), &first);
            }
            command.refuse(KeepError::Refused(why.to_owned()));
        }
    }

    /// Notes that the server goes on for its jobs without this process.
    pub(crate) fn leave(&self) {
        self.followed.iter().for_each(FollowedRequest::leave);
    }

    /// Returns whether the request with this id is in the plan.
    pub(crate) fn has(&self, id: &Id) -> bool {
        self.server.has(id)
    }

    /// Takes a server that has ended. Its lifeline keeps its last words until the jobs that wait for them have ended.
    pub(crate) fn ended(&mut self, server: Server) {
        let orders = self.waiting.drain(..).chain(self.asked.drain(..).map(|(_, command)| command));
        orders.for_each(|command| command.refuse(KeepError::Over));
        self.server.process_changed();
        let followed = std::mem::take(&mut self.followed);
        if !followed.is_empty() {
            tokio::spawn(release_when_settled(server, followed));
        }
    }
}

/// Waits until all jobs have ended, and then lets the lifeline go. If this process ends before, or leaves one of them to the call holder, a
/// call holder says what the server said.
async fn release_when_settled(mut server: Server, followed: Vec<FollowedRequest>) {
    let mut is_left_to_holder = false;
    for mut request in followed {
        // Nothing is ever sent: the other end is dropped.
        let _over = (&mut request.settled).await;
        is_left_to_holder |= request.is_left_to_holder();
    }
    if !is_left_to_holder {
        server.release_kept();
    }
}

/// Returns what a call holder has to know besides the calls; `None` if the server is not ready.
fn facts(session: &UpstreamSession, command: &KeepCommand) -> Option<PlanFacts> {
    Some(PlanFacts {
        command: command.order.command.clone(),
        data_folder: command.order.data_folder.clone(),
        server: kept_server(session)?,
    })
}

/// Returns the facts about the server; `None` if it is not ready.
fn kept_server(session: &UpstreamSession) -> Option<KeptServer> {
    let revision = session.session.as_ref()?.revision;
    let mut server = KeptServer::new(session.name.clone(), revision, &session.limits);
    server.roots = session.kept_roots();
    Some(server)
}

#[cfg(test)]
mod tests {
    use super::{super::kept_request::tests::kept, *};

    /// The answer to the second request may come before the lifeline has confirmed the plan with it. Its caller is then gone.
    #[test]
    fn a_job_that_still_has_an_earlier_request_stays_in_the_plan() {
        let [(before, followed_before), (next, followed_next)] = [kept(), kept()];
        let followed = vec![followed_before, followed_next];
        let mut keeping = RequestKeeping { followed, ..RequestKeeping::default() };
        assert_eq!(keeping.newly_settled(), []);
        drop(next);
        assert_eq!(keeping.newly_settled(), [], "the end of the job is not on the disk");
        drop(before);
        assert_eq!(keeping.newly_settled(), [Id::Integer(1)]);
    }
}
