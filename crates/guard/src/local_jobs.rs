//! Requests about jobs, which the guard has answered in place of the server: how they are recognised, and which are open.
//!
//! Theory of operation. A local job server ([`front::LocalJobServer`](unhang_front::LocalJobServer)) is another server beside the guarded
//! one, in the same process. It knows jobs and nothing else. The first line for it opens it. If there is a session, it is told that first.
//!
//! ```text
//! client ─ WrapSession::client_line ─ about jobs? ─ WrapEffects::to_job_server ─► the local job server
//! client ◄─ WrapSession::job_server_line ◄─ what it says ◄──────────────────────┘
//! ```
//!
//! # Invariants
//!
//! - The server never gets a request for the local job server, and the local job server gets no others.
//! - To the client both are one server: an id is in flight once, a withdrawn request is over, and the end of the session answers open
//!   requests.
//! - The local job server has limits of its own. It cannot keep them if the folder of jobs does not open. Then the limits here end the
//!   wait.

use std::time::Duration;

use unhang_bridge::{Splice, tasks};
use unhang_jobs::id::JobId;
use unhang_wire::{Completion, Id, InFlight, Json, compose, text_member};

use super::{
    added_capabilities::AddedCapabilities,
    calls::Role,
    client_profile::ClientProfile,
    effects::WrapEffects,
    wrap_request::{UndecidedRequest, WrapRequest},
};
use unhang_core::{
    batch::BatchId,
    config::VERDICT_SLACK,
    fault::FaultKind,
    refusal::{self, Addressee, ErrorReport},
    units::in_words,
};
use unhang_front::job_of;

/// A request that the local job server has.
#[derive(Debug)]
pub(super) struct LocalRequest {
    method: Box<str>,
    role: Role,
    pub(super) batch: Option<BatchId>,
    since: Duration,
    /// Whether it has waited for the server's list of tools and for nothing else.
    is_undecided: bool,
}

/// The known facts about the local job server.
#[derive(Debug)]
pub(super) struct LocalJobs {
    asked: InFlight<LocalRequest>,
    knows_the_session: bool,
    /// The id of the handshake that it has not answered yet. It answers that before anything else.
    handshake: Option<Id>,
    /// Requests in [`LocalJobs::asked`] that nobody has yet, in order.
    undecided: Vec<UndecidedRequest>,
}

impl Default for LocalJobs {
    fn default() -> Self {
        // It gives no late answers: a request that is over is withdrawn there.
        Self { asked: InFlight::new(0), knows_the_session: false, handshake: None, undecided: Vec::new() }
    }
}

impl LocalRequest {
    /// Returns the addressee of an answer in place of the local job server's.
    pub(super) fn addressee<'a>(&'a self, client_id: &'a Id) -> Addressee<'a> {
        Addressee::request(client_id, &self.method, self.batch)
    }

    /// Words the error of a request whose deadline has passed.
    pub(super) fn deadline(&self, now: Duration, server: &str) -> ErrorReport<'static> {
        let waited = in_words(now.saturating_sub(self.since));
        if self.is_undecided {
            let happened = format!(
                "`{server}` did not answer `tools/list` within {waited}; unhang awaits that, to know whether the server has a tool of the \
                 name that `{}` has",
                self.method
            );
            let hint =
                "list the tools before the first call, or raise --call-timeout if the server needs longer";
            return ErrorReport { kind: FaultKind::Deadline, summary: happened, hint };
        }
        let happened = format!("unhang could not read the data folder for `{}` within {waited}", self.method);
        let hint = "check the disk that it is on (UNHANG_HOME), then try again";
        ErrorReport { kind: FaultKind::Deadline, summary: happened, hint }
    }

    /// Words the error of a request at the end of the session.
    pub(super) fn session_ended(&self, cause: &str) -> ErrorReport<'static> {
        refusal::ended(cause, &self.method)
    }
}

impl LocalJobs {
    pub(super) fn has(&self, client_id: &Id) -> bool {
        self.asked.contains(client_id)
    }

    /// Returns when the next request has waited for too long.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.asked.next_deadline()
    }

    pub(super) fn len(&self) -> usize {
        self.asked.len()
    }

    /// Returns whether only requests are open that end with the session.
    pub(super) fn is_idle(&self) -> bool {
        self.asked.iter().all(|(_, asked)| asked.role == Role::Listen)
    }

    /// Notes that another session has begun.
    pub(super) fn forget_session(&mut self) {
        self.knows_the_session = false;
    }

    /// Returns why a request is refused while `waiting` bytes wait for the job server, or `None` if it is taken.
    pub(super) fn refusal(&self, waiting: usize, limit: usize) -> Option<ErrorReport<'static>> {
        let waiting = waiting + self.undecided.iter().map(UndecidedRequest::bytes).sum::<usize>();
        (waiting > limit).then(|| {
            let happened = format!("unhang is still opening the data folder; {waiting} bytes wait for that");
            ErrorReport {
                kind: FaultKind::Overloaded,
                summary: happened,
                hint: "try again later, and check its disk",
            }
        })
    }

    /// Returns whether the local job server still has to be told the session. From then on it counts as told.
    pub(super) fn take_introduction(&mut self) -> bool {
        !std::mem::replace(&mut self.knows_the_session, true)
    }

    /// Tells the local job server the session as the server knows it, with a handshake under this id.
    pub(super) fn introduce(
        &mut self,
        handshake: Id,
        client: &ClientProfile,
        added_capabilities: &mut AddedCapabilities,
        effects: &mut impl WrapEffects,
    ) {
        let Some(opening) = client.session().opening(&handshake) else { return };
        let negotiated = || {
            let line = Json::new(&opening)?;
            let version = serde_json::Value::from(client.negotiated()?).to_string();
            let params = Splice::new(line.member("params")?).set("protocolVersion", version);
            Some(Splice::new(line).set("params", params.apply()?).apply()?.into_owned().into_bytes())
        };
        let opening = negotiated().unwrap_or(opening);
        self.handshake = Some(handshake);
        effects.to_job_server(&opening, added_capabilities.names());
        effects.to_job_server(
            br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            added_capabilities.names(),
        );
    }

    /// Sends a request to the local job server, which has to answer it within `limit`.
    pub(super) fn ask(
        &mut self,
        request: &WrapRequest<'_>,
        limit: Option<Duration>,
        added_capabilities: &mut AddedCapabilities,
        effects: &mut impl WrapEffects,
    ) {
        self.register(request, limit);
        effects.to_job_server(request.raw, added_capabilities.names());
    }

    /// Keeps a request until the names of our tools are known.
    pub(super) fn hold(&mut self, request: &WrapRequest<'_>, limit: Option<Duration>) {
        self.register(request, limit);
        self.undecided.push(UndecidedRequest::new(request));
    }

    fn register(&mut self, request: &WrapRequest<'_>, limit: Option<Duration>) {
        let (role, method, since) = (role_of(&request.method), (*request.method).into(), request.since);
        let asked = LocalRequest { method, role, batch: request.batch, since, is_undecided: false };
        let deadline = limit.map(|limit| since + limit + VERDICT_SLACK);
        // A request whose id is in flight was refused before.
        let _registered = self.asked.register(request.id.clone(), deadline, asked);
    }

    /// Takes the requests that nobody has yet, for another look at who answers them.
    pub(super) fn take_undecided(&mut self) -> Vec<UndecidedRequest> {
        let undecided = std::mem::take(&mut self.undecided);
        for request in &undecided {
            self.asked.cancel(&request.id);
        }
        undecided
    }

    /// Forgets the line of a request that is over. Returns whether nobody had it yet.
    fn forget_undecided(&mut self, id: &Id) -> bool {
        let position = self.undecided.iter().position(|undecided| undecided.id == *id);
        position.map(|position| self.undecided.remove(position)).is_some()
    }

    /// Ends a request that the client withdraws with the line `raw`. Returns `None` if the local job server does not have it.
    pub(super) fn withdraw(
        &mut self,
        client_id: &Id,
        raw: &[u8],
        added_capabilities: Option<&mut AddedCapabilities>,
        effects: &mut impl WrapEffects,
    ) -> Option<LocalRequest> {
        let asked = self.asked.cancel(client_id)?;
        if !self.forget_undecided(client_id)
            && let Some(added_capabilities) = added_capabilities
        {
            effects.to_job_server(raw, added_capabilities.names());
        }
        Some(asked)
    }

    /// Ends the request that this answer is for, and returns its batch. Returns `None` for the answer to the handshake, which nobody waits
    /// for.
    pub(super) fn answered(&mut self, id: &Id) -> Option<Option<BatchId>> {
        if self.handshake.take_if(|handshake| handshake == id).is_some() {
            return None;
        }
        let Completion::Matched(asked) = self.asked.complete(id) else { return None };
        Some(asked.batch)
    }

    /// Ends the next request that has waited for too long, and withdraws it at the local job server.
    pub(super) fn expire(
        &mut self,
        now: Duration,
        added_capabilities: Option<&mut AddedCapabilities>,
        effects: &mut impl WrapEffects,
    ) -> Option<(Id, LocalRequest)> {
        let (id, mut asked) = self.asked.expire(now)?;
        asked.is_undecided = self.forget_undecided(&id);
        if !asked.is_undecided
            && let Some(added_capabilities) = added_capabilities
        {
            effects.to_job_server(
                &compose::cancelled(&id, "unhang: no answer in time"),
                added_capabilities.names(),
            );
        }
        Some((id, asked))
    }

    /// Ends all requests at the end of the session. The caller answers them in place of the local job server.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = (Id, LocalRequest)> + use<> {
        self.undecided.clear();
        self.asked.take_all().into_iter()
    }
}

impl AddedCapabilities {
    /// Returns whether a request is about jobs, so that the local job server answers it.
    pub(super) fn is_about_jobs(&self, method: &str, params: Json<'_>) -> bool {
        let has_tasks = self.has_tasks();
        let is_of_a_job = |id: Json<'_>| id.text().is_some_and(|id| names_a_job(&id));
        match method {
            "tools/call" => self.is_call_of_ours(params),
            "resources/read" => text_member(params, "uri").is_some_and(|uri| job_of(&uri).is_some()),
            // A server that has not told its features may have tasks. Then a task whose id cannot be one of our jobs is its own.
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
}

/// Returns the role of a request that the local job server answers.
pub(super) fn role_of(method: &str) -> Role {
    if method == "subscriptions/listen" { Role::Listen } else { Role::Other }
}

/// Returns whether this can be the id of a job.
fn names_a_job(id: &str) -> bool {
    id.parse::<JobId>().is_ok()
}

/// Returns whether a subscription is about tasks of ours and nothing else.
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
    has_ours && !has_others
}
