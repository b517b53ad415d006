//! What the client says, and what becomes of it.
//!
//! Invariants
//! - A line that is no message is answered, and so is every request: real servers stay silent on garbage (contract 4).
//! - A request belongs to the revision that it names itself, else to the one of the handshake; without either it is refused
//!   in words that say how to begin.
//! - Calls are bounded by `max-in-flight`, those that were withdrawn and have not ended yet included.

use std::{borrow::Cow, sync::Arc, time::Duration};

use serde_json::{Map, Value, json};
use unhang_bridge::{
    params::{LOG_LEVEL, Signature},
    tasks::{self, Dialect},
};
use unhang_switches::stands;
use unhang_wire::{self as wire, Body, Id, Json, Line, Message, Piece, Shape, read};

use super::{
    answers::implementation,
    handover::{PromotionPlan, PromotionReply},
    mcp_session::{
        Awaited, CallKey, Introduced, McpSession, NAME, SessionAction, SessionCall, SessionEffects,
        SessionEnd, StreamKey, Way,
    },
    owners::{Subject, Unasked, missing, no_such, subject},
    parking::{digest, own_state},
    questions::replied,
    subscriptions::{SUBSCRIBE, UNSUBSCRIBE},
    urls::{self, Resumption},
};
use unhang_core::{
    clients,
    config::{LIST_LIFE, LIST_PATIENCE},
    fault::FaultKind,
    refusal::{self, Addressee, ErrorReport, gets_an_answer},
    revision::Revision,
    wording::shortened,
};
use unhang_gateway::{Joining, Level, RequestPatience, ServerRequest, leader_lost};
use unhang_tools::ToolListing;
use unhang_upstream::client::{LISTEN, ServerList};

/// The member of a request's `_meta` for what its client can do.
const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// How much of a name that the client sent is told back to it.
pub(super) const MOST_ECHOED: usize = 200;

/// A request as it came.
pub(super) struct ClientRequest<'a> {
    pub id: Id,
    /// At most [`MOST_ECHOED`] of it; no method that there is has a longer name.
    pub method: Cow<'a, str>,
    pub params: Option<Json<'a>>,
    pub way: Way,
    /// What of its limit is over.
    pub waited: Duration,
    /// The server that it has waited for.
    pub server: Option<&'a str>,
}

impl<'a> ClientRequest<'a> {
    pub(super) fn addressee(&'a self) -> Addressee<'a> {
        let Self { server, waited, .. } = *self;
        Addressee { server, waited, ..Addressee::request(&self.id, &self.method, self.way.batch) }
    }

    pub(super) fn text(&self, member: &str) -> Option<String> {
        wire::text_member(self.params?, member)
    }
}

/// Whether a request says what its client can do, as each has to that names its revision.
pub(super) fn declares_capabilities(params: Json<'_>) -> bool {
    capabilities(params).is_some()
}

fn text_in_meta(params: Json<'_>, member: &str) -> Option<String> {
    wire::text_member(params.member("_meta")?, member)
}

pub(super) fn capabilities(params: Json<'_>) -> Option<Json<'_>> {
    let capabilities = params.member("_meta")?.member(CLIENT_CAPABILITIES)?;
    capabilities.get().starts_with('{').then_some(capabilities)
}

pub(super) fn invalid_params(happened: String, hint: &str) -> ErrorReport<'_> {
    ErrorReport { kind: FaultKind::InvalidParams, summary: happened, hint }
}

impl McpSession {
    /// A line came from the client, on this stream.
    pub fn client_line(
        &mut self,
        now: Duration,
        stream: StreamKey,
        line: Line<'_>,
        effects: &mut impl SessionEffects,
    ) {
        self.now = now;
        let way = Way { stream, batch: None };
        match line {
            Line::Whole(bytes) => {
                for piece in read(bytes) {
                    self.piece(piece, way, effects);
                }
            }
            Line::Oversized(oversized) => {
                let (id, method) = (oversized.id.as_ref(), oversized.method.as_deref());
                let to = match oversized.shape {
                    Shape::Request => Addressee { id, method, ..Addressee::nobody() },
                    Shape::Response | Shape::Unknown => Addressee::nobody(),
                };
                self.answers.refuse(
                    way,
                    to,
                    refusal::oversized(&oversized, self.limits.max_message),
                    effects,
                );
            }
        }
    }

    fn piece(&mut self, piece: Piece<'_>, way: Way, effects: &mut impl SessionEffects) {
        match piece {
            Piece::Message(Message { body, .. }) => match body {
                Body::Request { id, method, params, .. } => {
                    let method = shortened(&method, MOST_ECHOED);
                    let (waited, server) = (Duration::ZERO, None);
                    self.request(&ClientRequest { id, method, params, way, waited, server }, effects);
                }
                Body::Notification { method, params } => self.notification(&method, params, effects),
                Body::Response { id, outcome, .. } => self.client_answered(&id, replied(outcome)),
            },
            Piece::Batch(pieces) => self.batch(pieces, way, effects),
            Piece::Invalid(_) | Piece::Junk(_) if !stands("front-answers-garbage") => {}
            Piece::Invalid(invalid) => {
                let to = Addressee::of_invalid(&invalid, way.batch);
                // An answer that is none is not counted among those of a batch.
                let way = Way { batch: to.batch, ..way };
                self.answers.refuse(way, to, refusal::invalid(&invalid), effects);
            }
            Piece::Junk(bytes) => {
                self.answers.refuse(way, Addressee::nobody(), refusal::junk(bytes), effects);
            }
        }
    }

    fn batch(&mut self, pieces: Vec<Piece<'_>>, way: Way, effects: &mut impl SessionEffects) {
        if !self.session.is_some_and(Revision::has_batches) && stands("front-batch-by-revision") {
            return self.answers.refuse(way, Addressee::nobody(), refusal::foreign_batch(), effects);
        }
        let answers = pieces.iter().filter(|piece| gets_an_answer(piece)).count();
        let batch = (answers > 0).then(|| self.answers.open_batch(answers));
        for piece in pieces {
            self.piece(piece, Way { batch, ..way }, effects);
        }
    }

    fn notification(&mut self, method: &str, params: Option<Json<'_>>, effects: &mut impl SessionEffects) {
        if method == "notifications/cancelled"
            && let Some(id) = params.and_then(wire::cancelled_request)
            && let Some(call) = self.calls.cancel(&id)
        {
            self.answers.withdrawn(&id);
            self.abandon(call.key, effects);
            self.unwatch_after(&call);
            self.follow_no_more(&call, effects);
            self.answers.answer_nothing(call.way, effects);
            self.check_drained(effects);
        }
    }

    fn request(&mut self, request: &ClientRequest<'_>, effects: &mut impl SessionEffects) {
        self.answers.requested(&request.method);
        if let Some(error_report) = self.refusal(request) {
            // Not of a trace: under a repeated id the first request is.
            let first = self.answers.traces().set_aside(&request.id);
            self.answers.refuse(request.way, request.addressee(), error_report, effects);
            return self.answers.traces().put_back(first);
        }
        self.answers.trace(request, self.session);
        if request.method == "initialize" && self.shakes_hands {
            return self.initialize(request, effects);
        }
        let named = request.params.and_then(wire::request_version);
        match (named, self.session) {
            (Some(name), session) => match Revision::of_request(&name) {
                Some(revision) => self.stateless(request, revision, effects),
                // Some clients of a session name its revision with each request too.
                None if session.is_some_and(|revision| revision.name() == name) => {
                    self.dispatch(request, session.unwrap_or(Revision::V2025November), effects);
                }
                None => {
                    let name = shortened(&name, MOST_ECHOED);
                    self.answers.refuse_version(&request.id, &name, request.way, effects);
                }
            },
            (None, Some(revision)) => self.dispatch(request, revision, effects),
            // Harmless, and some clients ask before they shake hands.
            (None, None) if request.method == "ping" && self.shakes_hands => {
                self.answers.answer(&request.id, Revision::V2025November, request.way, Map::new(), effects);
            }
            (None, None) => {
                let happened = format!("`{}` names no revision, and there was no handshake", request.method);
                let hint = "begin with `initialize`, or give each request params._meta with \
                            io.modelcontextprotocol/protocolVersion and /clientCapabilities";
                self.answers.refuse(
                    request.way,
                    request.addressee(),
                    invalid_params(happened, hint),
                    effects,
                );
            }
        }
    }

    /// Why a request is not taken, if it is not.
    fn refusal(&self, request: &ClientRequest<'_>) -> Option<ErrorReport<'static>> {
        if self.end != SessionEnd::None && stands("front-refuses-while-ending") {
            return Some(refusal::ending());
        }
        if self.calls.contains(&request.id) && stands("front-refuses-a-repeated-id") {
            return Some(refusal::repeated_id(&request.id));
        }
        if request.way.batch.is_some() && request.method == "initialize" {
            return Some(refusal::handshake_in_batch());
        }
        // Lists that wait have nobody who works for them, and what was withdrawn may still be worked for.
        let in_flight = self.running.len().max(self.calls.len());
        if in_flight >= self.limits.max_in_flight && stands("front-max-in-flight") {
            return Some(refusal::overloaded(NAME, in_flight));
        }
        None
    }

    /// Whose request it is, by the client's own name for itself.
    fn notice_client(&mut self, request: &ClientRequest<'_>) {
        let name = request.params.and_then(wire::client_name);
        self.answers.name_client(name.map(|name| shortened(&name, MOST_ECHOED).into()));
    }

    fn initialize(&mut self, request: &ClientRequest<'_>, effects: &mut impl SessionEffects) {
        let Some(asked) = request.text("protocolVersion") else {
            let happened = "`initialize` names no protocolVersion".to_owned();
            let hint = "name the newest revision that the client speaks";
            return self.answers.refuse(
                request.way,
                request.addressee(),
                invalid_params(happened, hint),
                effects,
            );
        };
        let revision = Revision::negotiated(&asked);
        self.session = Some(revision);
        self.notice_client(request);
        let said = |member, nothing: &str| {
            let said = request.params.and_then(|params| params.member(member));
            said.filter(|said| said.get().starts_with('{')).map_or(nothing, Json::get).to_owned()
        };
        self.signature = Some(Arc::new(Signature {
            revision: Revision::V2026July.name(),
            client_info: said("clientInfo", r#"{"name":"unknown","version":"0"}"#),
            client_capabilities: said("capabilities", "{}"),
            log_level: None,
        }));
        let (session, client) = (self.answers.session_name(), self.answers.client_name());
        tracing::info!(session, client, "a session of revision {} begins", revision.name());
        let version =
            request.params.and_then(wire::client_info).and_then(|info| wire::text_member(info, "version"));
        let version = version.map(|version| shortened(&version, MOST_ECHOED).into());
        self.session_client = client.map(|name| (name.into(), version));
        let mut result = Map::new();
        result.insert("protocolVersion".to_owned(), revision.name().into());
        result.insert("serverInfo".to_owned(), implementation());
        self.introduce(revision, &mut result);
        self.answers.answer(&request.id, revision, request.way, result, effects);
    }

    /// What both handshakes say of us.
    fn introduce(&self, revision: Revision, result: &mut Map<String, Value>) {
        let mut capabilities = match &self.servers {
            None if !self.tools_change => json!({ "tools": {} }),
            None => json!({ "tools": { "listChanged": true } }),
            // Those that come later have prompts and resources for sessions that begin later.
            Some(known) if known.patience.is_empty() => json!({ "tools": { "listChanged": true } }),
            Some(_) => json!({
                "tools": { "listChanged": true },
                "prompts": { "listChanged": true },
                "resources": { "listChanged": true, "subscribe": true },
                "completions": {},
                "logging": {},
            }),
        };
        self.offer_tasks(revision, &mut capabilities);
        result.insert("capabilities".to_owned(), capabilities);
        if let Some(instructions) = &self.instructions {
            result.insert("instructions".to_owned(), (&**instructions).into());
        }
    }

    /// A request that names its revision itself.
    fn stateless(
        &mut self,
        request: &ClientRequest<'_>,
        revision: Revision,
        effects: &mut impl SessionEffects,
    ) {
        self.notice_client(request);
        if !request.params.is_some_and(declares_capabilities) {
            let happened = format!("`{}` has no {CLIENT_CAPABILITIES} in params._meta", request.method);
            let hint = "give each request both members; an empty object will do";
            return self.answers.refuse(
                request.way,
                request.addressee(),
                invalid_params(happened, hint),
                effects,
            );
        }
        self.dispatch(request, revision, effects);
    }

    pub(super) fn dispatch(
        &mut self,
        request: &ClientRequest<'_>,
        revision: Revision,
        effects: &mut impl SessionEffects,
    ) {
        if let Some((id, uri)) = self.job_read(request) {
            return self.read_job(request, revision, id, uri);
        }
        if self.is_of_nobody_yet(request) {
            return self.wait_for_owner(request, revision);
        }
        match &*request.method {
            "ping" if !revision.is_stateless() => {
                self.answers.answer(&request.id, revision, request.way, Map::new(), effects);
            }
            "server/discover" if revision.is_stateless() => {
                let mut result = cacheable();
                result.insert("supportedVersions".to_owned(), Revision::stateless().into());
                self.introduce(revision, &mut result);
                self.answers.answer(&request.id, revision, request.way, result, effects);
            }
            "tools/list" => self.list(request, ServerList::Tools, revision, effects),
            "tools/call" => self.call(request, revision, effects),
            "prompts/list" if self.servers.is_some() => {
                self.list(request, ServerList::Prompts, revision, effects);
            }
            "resources/list" if self.servers.is_some() => {
                self.list(request, ServerList::Resources, revision, effects);
            }
            "resources/templates/list" if self.servers.is_some() => {
                self.list(request, ServerList::ResourceTemplates, revision, effects);
            }
            "prompts/get" | "resources/read" | "completion/complete" if self.servers.is_some() => {
                self.ask(request, revision, effects);
            }
            method if self.is_about_tasks(method, revision) => self.task(request, revision, effects),
            method @ (SUBSCRIBE | UNSUBSCRIBE) if self.servers.is_some() && !revision.is_stateless() => {
                self.subscription(request, method == SUBSCRIBE, revision, effects);
            }
            "logging/setLevel" if self.servers.is_some() && !revision.is_stateless() => {
                self.set_level(request, revision, effects);
            }
            LISTEN if (self.servers.is_some() || self.jobs.are_there) && revision.is_stateless() => {
                self.listen(&request.id, request.params, (revision, request.way), effects);
            }
            method => {
                let happened =
                    format!("there is no method `{method}` in the revision {} here", revision.name());
                let hint = match self.servers {
                    None => "there are tools/list and tools/call",
                    Some(_) => "there are those of tools, prompts, resources and completions",
                };
                let error_report = ErrorReport { kind: FaultKind::MethodNotFound, summary: happened, hint };
                self.answers.refuse(request.way, request.addressee(), error_report, effects);
            }
        }
    }

    fn set_level(
        &mut self,
        request: &ClientRequest<'_>,
        revision: Revision,
        effects: &mut impl SessionEffects,
    ) {
        let Some(level) = request.text("level").as_deref().and_then(Level::named) else {
            let happened = "`logging/setLevel` names no level that there is".to_owned();
            let error_report = invalid_params(happened, "name one from debug, which says most, to emergency");
            return self.answers.refuse(request.way, request.addressee(), error_report, effects);
        };
        self.log_from = Some(level);
        if let Some(signature) = &mut self.signature {
            Arc::make_mut(signature).log_level = Some(level.name().to_owned());
        }
        self.actions.push_back(SessionAction::Log(level));
        self.answers.answer(&request.id, revision, request.way, Map::new(), effects);
    }

    fn list(
        &mut self,
        request: &ClientRequest<'_>,
        list: ServerList,
        revision: Revision,
        effects: &mut impl SessionEffects,
    ) {
        let cursor = request.params.and_then(|params| params.member("cursor"));
        if cursor.is_some_and(|cursor| cursor.get() != "null") {
            let happened =
                format!("`{}` was asked for a page with a cursor that was never given out", list.method());
            let hint = "everything is on the first page, which has no cursor";
            return self.answers.refuse(
                request.way,
                request.addressee(),
                invalid_params(happened, hint),
                effects,
            );
        }
        let awaited = (self.new_key(), Awaited::List(list));
        let mut call = SessionCall::new(awaited, (revision, request.way), self.now, LIST_PATIENCE);
        call.hand_over.promotion_reply = self.promotion_reply(request, revision);
        if self.servers.as_ref().is_none_or(|known| known.has_lists) || !stands("list-waits-for-servers") {
            return self.answer_list(&request.id, list, &call, effects);
        }
        self.put_in_flight(request.id.clone(), call);
    }

    fn call(&mut self, request: &ClientRequest<'_>, revision: Revision, effects: &mut impl SessionEffects) {
        let name = request.text("name");
        let is_servers = |name: &String| {
            let is_ours = self.tools.iter().any(|tool| tool.name == *name);
            !is_ours && self.servers.as_ref().is_some_and(|known| known.tool(name).is_some())
        };
        if name.as_ref().is_some_and(is_servers) {
            return self.ask(request, revision, effects);
        }
        let (tool, arguments) = match self.called(request, name) {
            Ok(called) => called,
            Err(error_report) => {
                return self.answers.refuse(request.way, request.addressee(), error_report, effects);
            }
        };
        let promotion_reply = self.promotion_reply(request, revision);
        let is_job = self.tools.iter().any(|known| known.name == tool && known.is_job);
        if promotion_reply == PromotionReply::Task(Dialect::Core) && !is_job {
            return self.answers.refuse_raw(&request.id, request.way, &tasks::not_as_task(&tool), effects);
        }
        let limit = clients::call_limit(self.clock(request, revision), self.limits.call_timeout);
        let limit = limit.saturating_sub(request.waited);
        let key = self.new_key();
        let awaited = Awaited::Tool(tool.clone());
        let mut call = SessionCall::new((key, awaited), (revision, request.way), self.now, limit);
        call.hand_over.promotion_reply = promotion_reply;
        let beats = self.limits.promote_after.has_heartbeats();
        call.heartbeat = beats.then(|| self.heartbeat(request, revision, &tool)).flatten();
        self.begin(&request.id, call);
        let length = request.params.map_or(0, |params| params.get().len());
        self.actions.push_back(SessionAction::Call { key, tool, arguments, length });
    }

    /// Puts a request in flight for which somebody works.
    pub(super) fn begin(&mut self, id: &Id, call: SessionCall) {
        self.running.insert(call.key, Some(id.clone()));
        self.put_in_flight(id.clone(), call);
    }

    pub(super) fn put_in_flight(&mut self, id: Id, call: SessionCall) {
        // It is free: a repeated id was refused, and none is remembered.
        let _registered = self.calls.register(id, Some(call.next_moment()), call);
    }

    pub(super) fn new_key(&mut self) -> CallKey {
        self.next_key += 1;
        self.next_key
    }

    /// After how long the client gives a call up, where that is known.
    pub(super) fn clock(&self, request: &ClientRequest<'_>, revision: Revision) -> Option<Duration> {
        let call = |name: &str, version: Option<&str>| match &self.servers {
            Some(known) => known.clocks.call(name, version),
            None => clients::call_clock(name, version),
        };
        if revision.is_stateless() {
            let info = wire::client_info(request.params?)?;
            return call(&wire::text_member(info, "name")?, wire::text_member(info, "version").as_deref());
        }
        let (name, version) = self.session_client.as_ref()?;
        call(name, version.as_deref())
    }

    /// Asks the server whose it is.
    fn ask(&mut self, request: &ClientRequest<'_>, revision: Revision, effects: &mut impl SessionEffects) {
        let again = request.params.filter(|_| revision.is_stateless()).and_then(urls::made_again);
        let first = match &again {
            None => None,
            Some(Resumption::Asked(params)) => Json::new(params.as_bytes()),
            Some(Resumption::Declined) => {
                let happened = format!("`{}` needs a URL to be opened, and nobody has", request.method);
                let hint = "make the request anew, without requestState and inputResponses";
                let error_report = ErrorReport { kind: FaultKind::Cancelled, summary: happened, hint };
                return self.answers.refuse(request.way, request.addressee(), error_report, effects);
            }
        };
        let request = &ClientRequest {
            id: request.id.clone(),
            method: request.method.clone(),
            params: first.or(request.params),
            ..*request
        };
        let Some(known) = &self.servers else { return };
        // Another gateway's states look as ours do, and are its own affair.
        let is_ours = |state: &str| !known.follows || self.parking.gave(state);
        let state = own_state(request.params).filter(|state| is_ours(state));
        if state.as_deref().is_some_and(|state| self.parking.was_given_elsewhere(state)) {
            // Whose it was is known to the window that asks.
            let (happened, hint) = leader_lost(None, &request.method);
            let error_report = ErrorReport { kind: FaultKind::ServerExited, summary: happened, hint };
            return self.answers.refuse(request.way, request.addressee(), error_report, effects);
        }
        let comes_back = state.is_some();
        if let Some(params) = request.params.filter(|_| comes_back && revision.is_stateless()) {
            return self.come_back(&request.id, &request.method, params, (revision, request.way), effects);
        }
        let Subject { method, owner, params, about, asked_for } = match subject(known, request) {
            Ok(subject) => subject,
            Err(Unasked::Resource(uri)) => {
                return self.answers.refuse_resource(&request.id, &uri, revision, request.way, effects);
            }
            Err(Unasked::Told(error_report)) => {
                return self.answers.refuse(request.way, request.addressee(), error_report, effects);
            }
        };
        let usual = RequestPatience::default();
        let patience = known.patience.get(&owner.server).unwrap_or(&usual);
        let (limit, clock) = match method {
            "tools/call" => {
                let (clock, most) = (self.clock(request, revision), patience.of_call(&owner.name));
                let limit = clients::call_limit(clock, most);
                (limit, clock.filter(|_| limit < most))
            }
            _ => (patience.request, None),
        };
        let limit = limit.saturating_sub(request.waited);
        let job_limit = patience.of_job(&owner.name);
        let hand_over = match method {
            "tools/call" => {
                let promotion = patience.of_promotion(&owner.name);
                // As a job it would have ended already.
                self.hand_over(request, revision, promotion, limit.min(job_limit))
            }
            _ => PromotionPlan::never(),
        };
        if hand_over.is_refused() {
            return self.answers.refuse_raw(&request.id, request.way, &tasks::not_as_task(&about), effects);
        }
        let beats = method == "tools/call" && patience.has_heartbeat(&owner.name);
        let heartbeat = beats.then(|| self.heartbeat(request, revision, &about)).flatten();
        // What may become a job is given the time for that; until then the limit is ours to keep.
        let may_be_a_job = hand_over.at.is_some();
        let joining = if may_be_a_job { patience.of_joining(&owner.name) } else { Joining::Never };
        let window = self.window_limit.filter(|_| method == "tools/call");
        let waited = request.waited + window.map(|window| window.waited).unwrap_or_default();
        let asked_limit = match method {
            "tools/call" if may_be_a_job => job_limit,
            // Whoever serves their clients knows when to stop, and says so.
            "tools/call" if self.jobs.are_of_windows => {
                window.map_or(job_limit.max(limit), |window| window.limit.saturating_sub(waited))
            }
            _ => limit,
        };
        let token = request.params.and_then(wire::progress_token);
        let said = request.params.filter(|_| revision.is_stateless()).and_then(wire::client_name);
        let fairness_key = self.fairness_key.saying(said.as_deref());
        let asked = ServerRequest {
            server: owner.server,
            method,
            params: hand_over.asked(params).into(),
            client: revision.era(),
            signature: self.signature.clone().filter(|_| !revision.is_stateless()),
            wants_progress: token.is_some(),
            tool: (method == "tools/call").then_some(owner.name),
            may_wait: may_be_a_job || self.jobs.are_of_windows,
            limit: asked_limit.saturating_add(waited),
            waited,
            asked_for,
            fairness_key,
            session: None,
            trace: self.answers.traces().trace_of(&request.id),
        };
        let key = self.new_key();
        let introduced = request.params.filter(|_| revision.is_stateless()).map(|params| Introduced {
            offers: capabilities(params).map_or("{}", Json::get).into(),
            digest: digest(method, params),
            log_from: text_in_meta(params, LOG_LEVEL).as_deref().and_then(Level::named),
        });
        let level = introduced.as_ref().and_then(|introduced| introduced.log_from);
        if let Some(level) = level.filter(|_| self.jobs.are_of_windows) {
            // What a window's client has set once comes with each of its requests.
            self.actions.push_back(SessionAction::Log(level));
        }
        let awaited = Awaited::Server { method, about, token, introduced };
        // Where windows ask, whoever serves their clients knows when to stop.
        let limit = if self.jobs.are_of_windows { asked_limit } else { limit };
        let mut call = SessionCall::new((key, awaited), (revision, request.way), self.now, limit);
        (call.hand_over, call.heartbeat, call.clock) = (hand_over, heartbeat, clock);
        call.server = Some(asked.server);
        self.begin(&request.id, call);
        self.actions.push_back(SessionAction::Ask { key, asked, may_be_a_job, joining });
    }

    /// The tool and the arguments of a `tools/call`, or what is wrong with them.
    fn called(
        &self,
        request: &ClientRequest<'_>,
        name: Option<String>,
    ) -> Result<(String, Map<String, Value>), ErrorReport<'static>> {
        let Some(name) = name else {
            return Err(invalid_params("`tools/call` names no tool".to_owned(), "give params.name"));
        };
        if self.tools.iter().all(|tool| tool.name != name) {
            if let Some(error_report) = self.servers.as_ref().and_then(|known| missing(known, "tool", &name))
            {
                return Err(error_report);
            }
            let own = self.tools.iter().filter(|tool| tool.listing != ToolListing::Nowhere);
            let own = own.map(|tool| tool.name.as_str());
            let others = self.servers.iter().flat_map(|known| known.catalog.tool_names());
            return Err(no_such("tool", "tools/list names all of them", &name, own.chain(others)));
        }
        let arguments = request.params.and_then(|params| params.member("arguments"));
        let arguments = match arguments.filter(|arguments| arguments.get() != "null") {
            None => Map::new(),
            Some(arguments) => serde_json::from_str(arguments.get()).map_err(|error| {
                let happened = format!("the arguments of `{name}` cannot be read: {error}");
                invalid_params(happened, "give params.arguments as an object, or leave it out")
            })?,
        };
        Ok((name, arguments))
    }
}

/// The members of what a client of a stateless revision may keep for a while.
fn cacheable() -> Map<String, Value> {
    let mut result = Map::new();
    let life = u64::try_from(LIST_LIFE.as_millis()).unwrap_or(u64::MAX);
    result.insert("ttlMs".to_owned(), life.into());
    result.insert("cacheScope".to_owned(), "private".into());
    result
}
