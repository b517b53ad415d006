//! The outcomes of calls, and what servers say meanwhile: each goes to the request that waits for it, and to no other.
//!
//! # Invariants
//!
//! - The outcome of a call goes by its key, so that it reaches no later request under the same id.
//! - A server's messages beside an answer reach the client only while it waits for that answer.

use std::{sync::Arc, time::Duration};

use serde_json::value::RawValue;
use unhang_bridge::{Era, Splice, tasks};
use unhang_wire::{Id, Json, one_line, text_member};

use super::{
    client_request::ClientRequest,
    effects::{CallKey, LineTarget, QuestionKey, QuestionSubject, Resource, SessionAction, SessionEffects},
    followed,
    mcp_session::{McpSession, SessionPhase},
    owners::is_of_nobody_yet,
    parked_calls::{ENDING, InputRequiredAnswer},
    promotion::PromotionReply,
    questions::AskedParams,
    session_calls::{Awaited, SessionCall},
    subscriptions::ListListeners,
    tasks::{TaskTold, TasksTold},
};
use unhang_background::WhoIsAsked;
use unhang_core::{config::REQUEST_TIMEOUT, fault::FaultKind, queue::Class, revision::Revision};
use unhang_gateway::{KnownServers, Level, ServerAnswer, route::names::Owner};
use unhang_tools::{Definition, ToolAnswer, job_report::JobReport};
use unhang_upstream::{
    client::Error,
    question::{ELICITATION_COMPLETE, TASK_BEGUN},
};

/// The time that making a job of a call may take. A question about the task of its server waits for the job no longer.
const ADOPTION_PATIENCE: Duration = Duration::from_secs(5);

/// The time that a window may take to make the job of a call. The leader does not hear when the job is there.
const WINDOW_ADOPTION: Duration = Duration::from_secs(1);

impl McpSession {
    /// Handles the end of a tool call.
    pub fn ended(
        &mut self,
        now: Duration,
        key: CallKey,
        answer: &ToolAnswer,
        effects: &mut impl SessionEffects,
    ) {
        self.now = now;
        let id = self.end_call(key, effects);
        if let Some(id) = id
            && let Some(call) = self.calls.take(&id)
        {
            match &answer.job {
                Some(job) if call.promotion.promotion_reply != PromotionReply::Words => {
                    let result = call.promoted_answer(job, self.jobs.ttl);
                    self.answers.answer_raw(&id, call.route, &result, effects);
                }
                _ => {
                    let result = answer.to_json(call.revision);
                    self.answers.answer(&id, call.revision, call.route, result, effects);
                }
            }
        }
        self.stop_if_drained(effects);
        self.finish_if_stopped();
    }

    /// Handles the answer of a server, or its failure to answer.
    pub fn answered(
        &mut self,
        now: Duration,
        key: CallKey,
        answered: &ServerAnswer,
        effects: &mut impl SessionEffects,
    ) {
        self.now = now;
        if self.parked_calls.answered_meanwhile(key, answered) {
            self.calls.end(key);
            return;
        }
        // This comes first, while the questions about the call are still known.
        let client = self.answers.client_name();
        let late = self.calls.by_key(key);
        let late = late.and_then(|call| self.questions.with_why_it_was_late(call, answered, client));
        let answered = late.as_ref().unwrap_or(answered);
        if answered.is_of_server() && matches!(self.phase, SessionPhase::Running) {
            self.questions.outlive(key, &self.calls);
        }
        let id = self.end_call(key, effects);
        if let Some(id) = id
            && let Some(call) = self.calls.take(&id)
        {
            self.answers.pass_on(self.now, &id, &call, answered, effects);
        }
        self.stop_if_drained(effects);
        self.finish_if_stopped();
    }

    /// Notes the end of a request to a server whose answer was not needed any more.
    pub fn abandoned(&mut self, now: Duration, key: CallKey, effects: &mut impl SessionEffects) {
        self.now = now;
        self.end_call(key, effects);
        self.stop_if_drained(effects);
        self.finish_if_stopped();
    }

    /// Passes on a server's progress with a call.
    pub fn progressed(
        &mut self,
        now: Duration,
        key: CallKey,
        params: &RawValue,
        effects: &mut impl SessionEffects,
    ) {
        self.now = now;
        let Some(call) = self.calls.by_key_mut(key) else { return };
        let Awaited::Server { token: Some(token), .. } = &call.awaited else { return };
        let Some(params) = Json::new(params.get().as_bytes()) else { return };
        let raised = call.heartbeat.as_mut().and_then(|heartbeat| heartbeat.server_said(now, params));
        let told = Splice::new(params).set("progressToken", token.to_json());
        let told = match raised {
            Some(raised) => told.set("progress", raised),
            None => told,
        };
        if let Some(params) = told.apply() {
            let line = format!(r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{params}}}"#);
            let class = Class::Progress(token.clone());
            effects.to_client(LineTarget::Beside(call.route.stream), class, &one_line(line.as_bytes()));
        }
    }

    /// Passes on a log message of a server that works on a call.
    pub fn logged(
        &mut self,
        now: Duration,
        key: CallKey,
        params: &RawValue,
        effects: &mut impl SessionEffects,
    ) {
        self.now = now;
        let Some(call) = self.calls.by_key(key) else { return };
        let level = Json::new(params.get().as_bytes()).and_then(|params| text_member(params, "level"));
        let Some(level) = level.as_deref().and_then(Level::named) else { return };
        if self.client.hears(call, level, self.jobs.are_of_windows) {
            let line = format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{params}}}"#);
            effects.to_client(LineTarget::Beside(call.route.stream), Class::Log, &one_line(line.as_bytes()));
        }
    }

    /// Passes on that a person has done what a server had a URL opened for: beside this call, or outside calls.
    pub fn elicitation_over(
        &mut self,
        now: Duration,
        key: Option<CallKey>,
        params: &RawValue,
        effects: &mut impl SessionEffects,
    ) {
        self.now = now;
        let (revision, to) = match key {
            None => (self.client.revision(), LineTarget::Session),
            Some(key) => {
                let Some(call) = self.calls.by_key(key) else { return };
                (Some(call.revision), LineTarget::Beside(call.route.stream))
            }
        };
        // A window filters for its own client.
        if self.jobs.are_of_windows || revision.is_some_and(Revision::has_elicitation_ids) {
            let line = format!(r#"{{"jsonrpc":"2.0","method":"{ELICITATION_COMPLETE}","params":{params}}}"#);
            effects.to_client(to, Class::Kept, &one_line(line.as_bytes()));
        }
    }

    /// Notes that the server continues a call as a task. A client that has declared tasks gets a task for it at once.
    pub fn task_begun(&mut self, now: Duration, key: CallKey, effects: &mut impl SessionEffects) {
        self.now = now;
        let Some(call) = self.calls.by_key_mut(key) else { return };
        if self.jobs.are_of_windows {
            if !self.client.is_asked_beside {
                // A question would be the answer to the call, before the window has a job that can be asked.
                call.becomes_task_until = now + WINDOW_ADOPTION;
            }
            // The window that asks makes the job, and its client gets the task.
            let line = format!(r#"{{"jsonrpc":"2.0","method":"{TASK_BEGUN}"}}"#);
            let (to, class) = (LineTarget::Beside(call.route.stream), Class::Kept);
            return effects.to_client(to, class, &one_line(line.as_bytes()));
        }
        if !self.makes_no_jobs && call.promotion.takes_server_tasks {
            call.promotion.at = Some(now);
            call.becomes_task_until = now + ADOPTION_PATIENCE;
            self.actions.extend(call.promote_where_due(now, &self.questions, &self.client));
            self.calls.look_again(key);
        }
    }

    /// Handles a question of a server about a call. If the client cannot be asked, the question is declined.
    pub fn asked(
        &mut self,
        now: Duration,
        about: QuestionSubject,
        question: QuestionKey,
        asked: (&str, Option<&RawValue>),
        effects: &mut impl SessionEffects,
    ) {
        self.now = now;
        if let QuestionSubject::OneOfSeveral(key) = about
            && self.calls.by_key(key).is_none()
            && self.parked_calls.call(key).is_none()
        {
            // Another of these calls may carry it.
            return self.actions.push_back(SessionAction::Leave(question));
        }
        if self.will_be_a_task(about, asked) {
            // The question comes again, and is about the task then.
            return self.actions.push_back(SessionAction::Leave(question));
        }
        let own = self.without_server_task(about, asked.1);
        let asked = (asked.0, own.as_deref().or(asked.1));
        if let Err(why) = self.ask_client(about, question, asked, effects) {
            let replied =
                Err((FaultKind::MethodNotFound.code(), format!("`{}` is declined: {why}", asked.0)).into());
            self.actions.push_back(SessionAction::Reply { question, replied });
        }
    }

    /// Returns whether this is a question about the task of a server, and a job is being made of the call.
    fn will_be_a_task(&self, about: QuestionSubject, (_, params): AskedParams<'_>) -> bool {
        let QuestionSubject::Call(key) = about else { return false };
        let params = params.and_then(|params| Json::new(params.get().as_bytes()));
        params.and_then(tasks::related_to).is_some()
            && !self.makes_no_jobs
            && self.calls.by_key(key).is_some_and(|call| {
                self.now < call.becomes_task_until
                    && call.not_promoted.is_none()
                    && self.questions.about(call).is_none()
            })
    }

    /// Returns the params of a question about a call without the server's name for its task, which the client does not know.
    fn without_server_task(
        &self,
        about: QuestionSubject,
        params: Option<&RawValue>,
    ) -> Option<Box<RawValue>> {
        let QuestionSubject::Call(key) = about else { return None };
        let call = self.calls.by_key(key).or_else(|| self.parked_calls.call(key))?;
        // A window translates the name for its own client.
        if self.jobs.are_of_windows || !matches!(call.awaited, Awaited::Server { .. }) {
            return None;
        }
        let without = tasks::unrelated(Json::new(params?.get().as_bytes())?)?;
        RawValue::from_string(without.into_owned()).ok()
    }

    /// Returns the capabilities of the client that made this request, as JSON.
    pub(super) fn offered_to(&self, key: CallKey) -> Box<str> {
        let call = self.calls.by_key(key);
        call.and_then(|call| self.client.capabilities_for(call)).unwrap_or("{}").into()
    }

    /// Asks the client on behalf of a server.
    ///
    /// # Errors
    /// Fails with the reason why the client is not asked.
    fn ask_client(
        &mut self,
        about: QuestionSubject,
        question: QuestionKey,
        asked: AskedParams<'_>,
        effects: &mut impl SessionEffects,
    ) -> Result<(), &'static str> {
        let is_ending = !matches!(self.phase, SessionPhase::Running);
        let (QuestionSubject::Call(key) | QuestionSubject::OneOfSeveral(key)) = about else {
            self.client.can_be_asked(None, asked)?;
            if is_ending {
                return Err(ENDING);
            }
            self.questions.ask_session(question, asked, effects);
            return Ok(());
        };
        let call = self.calls.by_key(key).or_else(|| self.parked_calls.call(key));
        let call = call.ok_or("the caller no longer waits for the call")?;
        self.client.can_be_asked(Some(call), asked)?;
        let is_of_several = matches!(about, QuestionSubject::OneOfSeveral(_));
        if !call.revision.is_stateless() {
            let newest = is_of_several.then(|| self.calls.newest());
            return self.questions.ask(call, question, asked, newest, effects);
        }
        if self.client.is_asked_beside {
            if is_ending {
                return Err(ENDING);
            }
            return self.questions.ask_window(call, question, asked, is_of_several, effects);
        }
        let parked =
            self.parked_calls.park((key, is_of_several), question, asked, is_ending, &mut self.calls)?;
        if let Some(InputRequiredAnswer { id, route, result }) = parked {
            self.answers.answer_raw(&id, route, &result, effects);
        }
        Ok(())
    }

    /// Withdraws a question that its server does not need answered any more.
    pub fn question_withdrawn(
        &mut self,
        now: Duration,
        question: QuestionKey,
        effects: &mut impl SessionEffects,
    ) {
        self.now = now;
        self.questions.withdraw(question, effects);
        self.parked_calls.withdraw(question);
    }

    /// Returns whether the client is being asked something about this call, beside the call or by its answer.
    pub(super) fn is_asked(&self, key: CallKey) -> bool {
        self.calls.by_key(key).is_some_and(|call| self.questions.about(call).is_some())
            || self.parked_calls.call(key).is_some()
    }

    /// Notes why no job could be made of this call: its client hears it if the call fails. Returns whether the call still has a waiting
    /// client.
    pub(super) fn not_promoted(&mut self, key: CallKey, why: String) -> bool {
        match self.calls.by_key_mut(key) {
            Some(call) => {
                call.not_promoted = Some(why.into());
                true
            }
            None => self.parked_calls.call(key).is_some(),
        }
    }

    /// Returns whether a client still waits for this call, or comes back to it.
    pub(super) fn is_awaited(&self, key: CallKey) -> bool {
        self.calls.by_key(key).is_some() || self.parked_calls.call(key).is_some()
    }

    /// Returns whether this call goes on as a call, although there is a job of it by now.
    pub(super) fn stays_a_call(&self, key: CallKey) -> bool {
        self.is_asked(key) || (self.makes_no_jobs && self.calls.by_key(key).is_some())
    }

    /// Returns whether the client of this call has asked for a task (2025-11-25).
    pub(super) fn wants_a_task(&self, key: CallKey) -> bool {
        self.calls.by_key(key).is_some_and(SessionCall::wants_a_task)
    }

    /// Handles a call that is now a job, on the disk: its client gets the job as the answer. Returns who can be asked about the job from
    /// now on. Returns `None` if the client does not wait any more.
    pub fn promoted(
        &mut self,
        now: Duration,
        key: CallKey,
        report: &JobReport,
        effects: &mut impl SessionEffects,
    ) -> Option<WhoIsAsked> {
        self.now = now;
        let id = self.end_call(key, effects);
        let call = id.as_ref().and_then(|id| self.calls.take(id));
        if let (Some(id), Some(call)) = (&id, &call) {
            tracing::info!(
                session = self.answers.session_name(),
                client = self.answers.client_name(),
                job = report.job_id.as_str(),
                "`{}` continues as a job",
                call.awaited.name()
            );
            self.answers.answer_raw(id, call.route, &call.promoted_answer(report, self.jobs.ttl), effects);
        }
        self.stop_if_drained(effects);
        self.finish_if_stopped();
        call.map(|call| self.client.who_is_asked(&call))
    }

    /// Handles a call of a window that gets this error: it is a job of this process now, or cannot become one. Returns whether the window
    /// still waits.
    pub(super) fn refused(
        &mut self,
        now: Duration,
        key: CallKey,
        error: &str,
        effects: &mut impl SessionEffects,
    ) -> bool {
        self.now = now;
        let id = self.end_call(key, effects);
        let call = id.as_ref().and_then(|id| self.calls.take(id));
        if let (Some(id), Some(call)) = (&id, &call) {
            self.answers.refuse_raw(id, call.route, error, effects);
        }
        self.stop_if_drained(effects);
        self.finish_if_stopped();
        call.is_some()
    }

    /// Handles the outcome of a request about tasks.
    pub fn task_told(
        &mut self,
        now: Duration,
        key: CallKey,
        told: &TasksTold,
        effects: &mut impl SessionEffects,
    ) {
        self.now = now;
        let id = self.end_call(key, effects);
        if let Some(id) = id
            && let Some(call) = self.calls.take(&id)
        {
            if let (Awaited::Job(uri), TasksTold::Unknown(_)) = (&call.awaited, told) {
                self.answers.refuse_resource(
                    &id,
                    (uri, &self.jobs.names_all()),
                    call.revision,
                    call.route,
                    effects,
                );
                return self.stop_if_drained(effects);
            }
            match told.answer(&call, self.jobs.ttl) {
                Ok(result) => self.answers.answer_raw(&id, call.route, &result, effects),
                Err(error) => self.answers.refuse_raw(&id, call.route, &error, effects),
            }
        }
        self.stop_if_drained(effects);
        self.finish_if_stopped();
    }

    /// Notifies a subscription of a changed task.
    pub fn task_changed(
        &mut self,
        now: Duration,
        key: CallKey,
        told: &TaskTold,
        effects: &mut impl SessionEffects,
    ) {
        self.now = now;
        let Some((id, call)) = self.calls.id_of(key).zip(self.calls.by_key(key)) else { return };
        let (class, line) = followed::notification(told, id, self.jobs.ttl);
        effects.to_client(LineTarget::Beside(call.route.stream), class, &one_line(line.as_bytes()));
    }

    /// Handles the outcome of a request to watch a resource: the server reports changes from now on, or the reason why it does not.
    pub fn watched(
        &mut self,
        now: Duration,
        key: CallKey,
        resource: &Resource,
        outcome: Result<(), Error>,
        effects: &mut impl SessionEffects,
    ) {
        self.now = now;
        if outcome.is_err() {
            self.watched.remove(resource);
        }
        let outcome = outcome.map(|()| RawValue::from_string("{}".to_owned()).unwrap_or_default());
        let answered = ServerAnswer { era: Era::Legacy, server_info: None, outcome, asked_for: None };
        self.answered(now, key, &answered, effects);
    }

    /// Notifies every subscriber of a changed resource.
    pub fn updated(&mut self, now: Duration, changed: &Resource, effects: &mut impl SessionEffects) {
        self.now = now;
        self.watched.tell_of_update(changed, &self.calls, effects);
    }

    /// Replaces the own tools, and notifies the clients if they differ.
    pub fn tools_changed(
        &mut self,
        now: Duration,
        tools: Arc<[Definition]>,
        effects: &mut impl SessionEffects,
    ) {
        self.now = now;
        if self.session_catalog.change_tools(tools) {
            self.listeners().tell_of_tools(effects);
        }
    }

    fn listeners(&self) -> ListListeners<'_> {
        ListListeners { has_session: self.client.revision().is_some(), calls: &self.calls }
    }

    /// Handles a change in what is known of the servers: notifies the client, and goes on with requests that waited for it.
    pub fn servers_changed(
        &mut self,
        now: Duration,
        known: &KnownServers,
        effects: &mut impl SessionEffects,
    ) {
        self.now = now;
        let Some(before) = self.session_catalog.update_servers(known) else { return };
        self.listeners().tell_of_servers(&before, known, effects);
        for (before, now) in self.watched.follow(&known.catalog, &mut self.calls) {
            self.actions.push_back(SessionAction::Unwatch(before));
            self.watch_beside(now);
        }
        self.resume_owned(effects);
        if known.has_lists {
            let waits = |awaited: &Awaited| matches!(awaited, Awaited::List(_) | Awaited::Introduction(_));
            for id in self.calls.ids_of(waits) {
                if let Some(call) = self.calls.take(&id) {
                    self.answer_from_lists(&id, &call, effects);
                }
            }
            self.stop_if_drained(effects);
        }
    }

    /// Answers the request that waited for servers to be asked whether they have changed a list. `owner` is the server that may
    /// have the subject of the request although no server lists it.
    pub fn refreshed(
        &mut self,
        now: Duration,
        key: CallKey,
        owner: Option<Owner>,
        effects: &mut impl SessionEffects,
    ) {
        self.now = now;
        let id = self.end_call(key, effects);
        if let Some(id) = id
            && let Some(call) = self.calls.take(&id)
        {
            match &call.awaited {
                Awaited::Owner(ownerless) => {
                    let waited = now.saturating_sub(call.since);
                    let request = ClientRequest { owner, ..ownerless.request(id, call.route, waited) };
                    self.dispatch(&request, call.revision, effects);
                }
                _ => _ = self.answer_from_lists(&id, &call, effects),
            }
        }
        self.stop_if_drained(effects);
        self.finish_if_stopped();
    }

    /// Starts to watch a resource without a request of the client that waits for the outcome.
    pub(super) fn watch_beside(&mut self, resource: Resource) {
        let key = self.calls.begin_beside(None);
        self.actions.push_back(SessionAction::Watch { key, resource, limit: REQUEST_TIMEOUT });
    }

    /// Goes on with requests whose servers are known now, or with all of them once no more servers are awaited.
    fn resume_owned(&mut self, effects: &mut impl SessionEffects) {
        let waiting = self.calls.iter().filter(|(_, call)| matches!(call.awaited, Awaited::Owner(_)));
        let mut waiting: Vec<(CallKey, Id)> = waiting.map(|(id, call)| (call.key, id.clone())).collect();
        // The order is that of their arrival, so that the last one waits longest, or is refused.
        waiting.sort_unstable_by_key(|(key, _)| *key);
        for (_, id) in waiting {
            let Some(call) = self.calls.take(&id) else { continue };
            let Awaited::Owner(ownerless) = &call.awaited else { continue };
            let waited = self.now.saturating_sub(call.since);
            let request = ownerless.request(id.clone(), call.route, waited);
            if ownerless.awaits_refresh || is_of_nobody_yet(&self.session_catalog, &request) {
                self.calls.put_in_flight(id, call);
            } else {
                self.dispatch(&request, call.revision, effects);
            }
        }
    }
}
