//! Requests about jobs, which the guard has answered in the server's place: which ones those are, and the books about them.
//!
//! Theory of operation. A local job server ([`front::LocalJobServer`](unhang_front::LocalJobServer)) is another server beside the guarded one, in the same process, which
//! knows jobs and nothing else. It is opened with the first line for it, and told the session first, if there is one.
//!
//! ```text
//! client ─ WrapSession::client_line ─ about jobs? ─ WrapEffects::to_job_server ─► the local job server
//! client ◄─ WrapSession::job_server_line ◄─ what it says ◄──────────────────────┘
//! ```
//!
//! # Invariants
//!
//! - The server never hears of what is asked at the local job server, and the local job server of nothing else.
//! - To the client both are one: an id is in flight once, what it withdraws is over, and the end of the session answers what is open.
//! - The local job server has limits of its own; where it cannot keep them, since the folder of jobs does not open, they end the wait here.

use std::time::Duration;

use unhang_bridge::{Splice, tasks};
use unhang_jobs::id::JobId;
use unhang_switches::stands;
use unhang_wire::{Body, Completion, Id, InFlight, Json, Message, Piece, read, text_member};

use super::{
    calls::Role,
    effects::WrapEffects,
    from_client::{WrapRequest, cancelled},
    wrap_session::WrapSession,
};
use unhang_core::{
    batch::BatchId,
    config::VERDICT_SLACK,
    fault::FaultKind,
    queue::Class,
    refusal::{self, Addressee, ErrorReport},
    units::in_words,
};
use unhang_front::job_of;

/// A request that the local job server has.
#[derive(Debug)]
pub(super) struct LocalRequest {
    method: Box<str>,
    role: Role,
    batch: Option<BatchId>,
    since: Duration,
}

/// What is known of the local job server.
#[derive(Debug)]
pub(super) struct LocalJobs {
    asked: InFlight<LocalRequest>,
    knows_the_session: bool,
    /// Of the handshake that it has not answered yet, which it does before anything else.
    handshake: Option<Id>,
}

impl Default for LocalJobs {
    fn default() -> Self {
        // It answers nothing late: what is over is withdrawn there.
        Self { asked: InFlight::new(0), knows_the_session: false, handshake: None }
    }
}

impl LocalJobs {
    pub(super) fn has(&self, client_id: &Id) -> bool {
        self.asked.contains(client_id) && stands("desk-ids-in-flight")
    }

    /// When the next request has waited for too long.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.asked.next_deadline().filter(|_| stands("desk-deadline"))
    }

    pub(super) fn len(&self) -> usize {
        self.asked.len()
    }

    /// Nobody waits for anything but what ends with the session.
    pub(super) fn is_idle(&self) -> bool {
        self.asked.iter().all(|(_, asked)| asked.role == Role::Listen)
    }

    /// Another session has begun.
    pub(super) fn forget_session(&mut self) {
        self.knows_the_session = false;
    }
}

impl WrapSession {
    /// Whether this is about jobs.
    pub(super) fn is_for_job_server(&self, method: &str, params: Option<Json<'_>>) -> bool {
        let (Some(offers), Some(params)) = (&self.offers, params) else { return false };
        let has_tasks = offers.has_tasks();
        let is_of_a_job = |id: Json<'_>| id.text().is_some_and(|id| names_a_job(&id));
        match method {
            "tools/call" => {
                params.member("name").and_then(Json::text).is_some_and(|name| offers.is_ours(&name))
            }
            "resources/read" => text_member(params, "uri").is_some_and(|uri| job_of(&uri).is_some()),
            // Who has not said what it has may have some: then what is named as no job of ours can be is its own.
            tasks::GET | tasks::RESULT | tasks::CANCEL | tasks::UPDATE => {
                has_tasks.map_or_else(|| params.member("taskId").is_some_and(is_of_a_job), |has| !has)
            }
            tasks::LIST => has_tasks == Some(false),
            "subscriptions/listen" => {
                has_tasks != Some(true) && params.member("notifications").is_some_and(is_about_jobs_alone)
            }
            _ => false,
        }
    }

    /// Has a request answered there.
    pub(super) fn ask_job_server(&mut self, request: &WrapRequest<'_>, effects: &mut impl WrapEffects) {
        self.learn_from(request);
        self.introduce_job_server(effects);
        let role = if request.method == "subscriptions/listen" { Role::Listen } else { Role::Other };
        let deadline = self.limit_of(request.method, role).map(|limit| self.now + limit + VERDICT_SLACK);
        let (method, since) = (request.method.into(), self.now);
        let asked = LocalRequest { method, role, batch: request.batch, since };
        // One that is in flight was refused.
        let _registered = self.local_jobs.asked.register(request.id.clone(), deadline, asked);
        self.tell_job_server(request.raw, effects);
    }

    fn tell_job_server(&mut self, line: &[u8], effects: &mut impl WrapEffects) {
        if let Some(offers) = &mut self.offers {
            effects.to_job_server(line, offers.names());
        }
    }

    /// Tells it the session, as it has come to be with the server.
    fn introduce_job_server(&mut self, effects: &mut impl WrapEffects) {
        if std::mem::replace(&mut self.local_jobs.knows_the_session, true) {
            return;
        }
        let id = self.own_id();
        let Some(opening) = self.client.session().opening(&id) else { return };
        let negotiated = || {
            let line = Json::new(&opening)?;
            let version = serde_json::Value::from(self.client.negotiated()?).to_string();
            let params = Splice::new(line.member("params")?).set("protocolVersion", version);
            Some(Splice::new(line).set("params", params.apply()?).apply()?.into_owned().into_bytes())
        };
        let opening = negotiated().unwrap_or(opening);
        self.local_jobs.handshake = Some(id);
        self.tell_job_server(&opening, effects);
        self.tell_job_server(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, effects);
    }

    /// The client withdraws what the local job server has; false, where it has not.
    pub(super) fn cancel_at_job_server(
        &mut self,
        client_id: &Id,
        raw: &[u8],
        effects: &mut impl WrapEffects,
    ) -> bool {
        let Some(asked) = self.local_jobs.asked.cancel(client_id) else { return false };
        self.tell_job_server(raw, effects);
        self.answers.send_nothing(asked.batch, effects);
        self.after_call(effects);
        true
    }

    /// The local job server has said this.
    pub fn job_server_line(
        &mut self,
        now: Duration,
        class: &Class,
        line: &[u8],
        effects: &mut impl WrapEffects,
    ) {
        self.now = now;
        for piece in read(line) {
            let Piece::Message(Message { body, .. }) = piece else { continue };
            match body {
                Body::Response { id, .. } => {
                    if self.local_jobs.handshake.take_if(|handshake| *handshake == id).is_some() {
                        // Nobody waits for that.
                    } else if let Completion::Matched(asked) = self.local_jobs.asked.complete(&id) {
                        self.answers.send(asked.batch, line, effects);
                        self.after_call(effects);
                    }
                }
                Body::Notification { .. } => self.tell_client(class.clone(), line, effects),
                Body::Request { method, .. } => {
                    tracing::warn!(
                        server = self.name,
                        "the local job server asked `{method}`, which nobody can answer"
                    );
                }
            }
        }
    }

    /// Why nothing is asked there now, if it is not.
    pub(super) fn refusal_of_job_server(&self, effects: &impl WrapEffects) -> Option<ErrorReport<'static>> {
        let waiting = effects.job_server_backlog();
        (waiting > self.limits.queue_bytes && stands("desk-backlog-bounded")).then(|| {
            let happened = format!("the folder of jobs is still being opened; {waiting} bytes wait for that");
            ErrorReport {
                kind: FaultKind::Overloaded,
                summary: happened,
                hint: "try again later, and look at its disk",
            }
        })
    }

    /// What has waited for too long is answered in its place, and is over.
    pub(super) fn expire_job_server_requests(&mut self, effects: &mut impl WrapEffects) {
        while let Some((id, asked)) = self.local_jobs.asked.expire(self.now) {
            self.tell_job_server(&cancelled(&id, "unhang: no answer in time"), effects);
            let waited = in_words(self.now.saturating_sub(asked.since));
            let happened =
                format!("the folder of jobs could not be asked about `{}` within {waited}", asked.method);
            let hint = "look at the disk that it is on (UNHANG_HOME), then try again";
            let error_report = ErrorReport { kind: FaultKind::Deadline, summary: happened, hint };
            self.refuse(Addressee::request(&id, &asked.method, asked.batch), error_report, effects);
            self.after_call(effects);
        }
    }

    /// The session ends: what the local job server has is answered in its place.
    pub(super) fn end_job_server_requests(&mut self, cause: &str, effects: &mut impl WrapEffects) {
        let asked = self.local_jobs.asked.take_all().into_iter();
        for (id, asked) in asked.filter(|_| stands("desk-answered-at-the-end")) {
            let error_report = refusal::ended(cause, &asked.method);
            self.refuse(Addressee::request(&id, &asked.method, asked.batch), error_report, effects);
        }
    }
}

/// Whether a job may be called so.
fn names_a_job(id: &str) -> bool {
    id.parse::<JobId>().is_ok()
}

/// Whether a subscription is about tasks of ours and nothing else.
fn is_about_jobs_alone(notifications: Json<'_>) -> bool {
    let (mut has_ours, mut has_others) = (false, false);
    notifications.each_member(|name, wanted| match name.text().as_deref() {
        Some("taskIds") => {
            wanted.each_element(|id| match id.text().is_some_and(|id| names_a_job(&id)) {
                true => has_ours = true,
                false => has_others = true,
            });
        }
        _ => has_others |= wanted.get() != "false" && wanted.get() != "[]",
    });
    has_ours && !has_others && stands("only-ours-to-the-desk")
}
