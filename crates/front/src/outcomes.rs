//! What comes of calls, and what servers say meanwhile: to whoever waits for it, and to nobody else.
//!
//! # Invariants
//!
//! - What comes for a call goes by its key, so it reaches nobody who came later under the same id.
//! - What a server tells beside an answer reaches the client only while it waits for that answer.

use std::time::Duration;

use serde_json::value::RawValue;
use unhang_bridge::Splice;
use unhang_switches::stands;
use unhang_wire::{Json, one_line, text_member};

use super::{
    handover::PromotionReply,
    mcp_session::{
        Awaited, CallKey, McpSession, QuestionKey, QuestionSubject, SessionAction, SessionEffects, To,
    },
};
use unhang_core::{fault::FaultKind, queue::Class};
use unhang_gateway::{KnownServers, Level, ServerAnswer};
use unhang_tools::ToolAnswer;

impl McpSession {
    /// A call has come to its end.
    pub fn ended(
        &mut self,
        now: Duration,
        key: CallKey,
        answer: &ToolAnswer,
        effects: &mut impl SessionEffects,
    ) {
        self.now = now;
        let id = self.over(key, effects);
        if let Some(id) = id
            && let Some(call) = self.calls.cancel(&id)
        {
            match &answer.job {
                Some(job) if call.hand_over.promotion_reply != PromotionReply::Words => {
                    self.hand_over_as(&id, &call, job, effects);
                }
                _ => {
                    let result = answer.to_json(call.revision);
                    self.answers.answer(&id, call.revision, call.way, result, effects);
                }
            }
        }
        self.check_drained(effects);
        self.check_stopped();
    }

    /// A server has answered, or will not.
    pub fn answered(
        &mut self,
        now: Duration,
        key: CallKey,
        answered: &ServerAnswer,
        effects: &mut impl SessionEffects,
    ) {
        self.now = now;
        if self.answered_meanwhile(key, answered) {
            self.running.remove(&key);
            return;
        }
        // As long as it is known what is asked.
        let late = self.with_why_it_was_late(key, answered);
        let answered = late.as_ref().unwrap_or(answered);
        let id = self.over(key, effects);
        if let Some(id) = id
            && let Some(call) = self.calls.cancel(&id)
        {
            self.answers.pass_on(self.now, &id, &call, answered, effects);
        }
        self.check_drained(effects);
        self.check_stopped();
    }

    /// A request to a server that nobody waited for any more has come to its end.
    pub fn forgotten(&mut self, now: Duration, key: CallKey, effects: &mut impl SessionEffects) {
        self.now = now;
        self.over(key, effects);
        self.check_drained(effects);
        self.check_stopped();
    }

    /// A server has told how far it is with a call.
    pub fn progressed(
        &mut self,
        now: Duration,
        key: CallKey,
        params: &RawValue,
        effects: &mut impl SessionEffects,
    ) {
        self.now = now;
        let id = self.running.get(&key).and_then(Option::as_ref);
        let Some(call) = id.and_then(|id| self.calls.get_mut(id)) else { return };
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
            effects.to_client(To::Beside(call.way.stream), class, &one_line(line.as_bytes()));
        }
    }

    /// A server logs something while it works on a call.
    pub fn logged(
        &mut self,
        now: Duration,
        key: CallKey,
        params: &RawValue,
        effects: &mut impl SessionEffects,
    ) {
        self.now = now;
        let id = self.running.get(&key).and_then(Option::as_ref);
        let Some(call) = id.and_then(|id| self.calls.get(id)) else { return };
        let level = Json::new(params.get().as_bytes()).and_then(|params| text_member(params, "level"));
        let Some(level) = level.as_deref().and_then(Level::named) else { return };
        // A session that has not said what it wants to hear hears all; a request that stands alone says it for itself. A window does it
        // for its own client.
        let said = match call.revision.is_stateless() {
            true => call.awaited.introduced().and_then(|introduced| introduced.log_from),
            false => self.log_from,
        };
        let hears_all = !call.revision.is_stateless() || self.jobs.are_of_windows;
        let from = said.or(hears_all.then_some(Level::Debug));
        if from.is_some_and(|from| level >= from) || !stands("logs-as-asked") {
            let line = format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{params}}}"#);
            effects.to_client(To::Beside(call.way.stream), Class::Log, &one_line(line.as_bytes()));
        }
    }

    /// A server asks something about a call.
    pub fn asked(
        &mut self,
        now: Duration,
        about: QuestionSubject,
        question: QuestionKey,
        asked: (&str, Option<&RawValue>),
        effects: &mut impl SessionEffects,
    ) {
        self.now = now;
        if let Err(why) = self.ask_client(about, question, asked, effects) {
            let replied =
                Err((FaultKind::MethodNotFound.code(), format!("`{}` is declined: {why}", asked.0)));
            self.actions.push_back(SessionAction::Reply { question, replied });
        }
    }

    /// Something else is known of the servers.
    pub fn servers_changed(
        &mut self,
        now: Duration,
        known: &KnownServers,
        effects: &mut impl SessionEffects,
    ) {
        self.now = now;
        let Some(before) = self.servers.replace(known.clone()) else { return };
        self.tell_of_changes(&before, effects);
        self.follow_resources();
        self.resume_owned(effects);
        if known.has_lists {
            let lists = self.calls.iter().filter(|(_, call)| matches!(call.awaited, Awaited::List(_)));
            for id in lists.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
                if let Some(call) = self.calls.cancel(&id)
                    && let Awaited::List(list) = call.awaited
                {
                    self.answer_list(&id, list, &call, effects);
                }
            }
            self.check_drained(effects);
        }
    }
}
