//! The client's requests, and how each is handled.
//!
//! Invariants
//! - Every request is answered, or begins a call that will be.
//! - A request belongs to the revision that it names itself, or else to that of the handshake. Without either it is refused, and the error
//!   says how to begin.
//! - `max-in-flight` bounds the calls, including withdrawn ones that have not ended yet.

use std::{sync::Arc, time::Duration};

use serde_json::Map;
use unhang_bridge::{
    Era,
    tasks::{self, Dialect},
};
use unhang_jobs::id::JobId;
use unhang_wire::{self as wire, Json};

use super::{
    answers::NAME,
    call_terms::{CallTerms, CallTiming},
    client_request::{
        CLIENT_CAPABILITIES, ClientRequest, MOST_ECHOED, capabilities, declares_capabilities, invalid_params,
    },
    effects::{CallKey, LineTarget, SessionAction, SessionEffects},
    followed::tasks_wanted,
    mcp_session::{McpSession, SessionPhase},
    owners::{NotAsked, RequestSubject, UnroutedRequest, is_of_nobody_yet, list_to_refresh, subject},
    parked_calls::{NotResumed, Resumed, own_state, unreadable_responses},
    promotion::PromotionReply,
    session_calls::{Awaited, CalledUpstream, SessionCall},
    subscriptions::{Filter, SUBSCRIBE, UNSUBSCRIBE, not_listening, resource},
    tasks::TaskAsked,
    time::heartbeat,
    urls::{self, Resumption},
};
use unhang_core::{
    clients,
    config::{LIST_PATIENCE, REQUEST_TIMEOUT},
    fault::FaultKind,
    queue::Class,
    refusal::{self, Addressee, ErrorReport},
    revision::Revision,
    wording::shortened,
};
use unhang_gateway::{Level, RequestTimeouts, ServerRequest, leader_lost, route::names::Owner};
use unhang_upstream::{
    client::{LISTEN, ServerList},
    http::headers::CallLimit,
};

impl McpSession {
    /// Handles a request, and makes sure that it is answered once.
    pub(super) fn request(&mut self, request: &ClientRequest<'_>, effects: &mut impl SessionEffects) {
        self.answers.requested(&request.method);
        if let Some(error_report) = self.refusal(request) {
            // The refusal does not belong to a trace: under a repeated id, the trace is the first request's.
            let first = self.answers.traces().set_aside(&request.id);
            self.answers.refuse_request(request, error_report, effects);
            return self.answers.traces().put_back(first);
        }
        self.answers.trace(request, self.client.revision());
        if request.method == "initialize" && self.requires_handshake {
            return self.initialize(request, effects);
        }
        let named = request.params.and_then(wire::request_version);
        match (named, self.client.revision()) {
            (Some(name), session) => match Revision::of_request(&name) {
                Some(revision) => self.stateless(request, revision, effects),
                // Some clients of a session name its revision with each request, too.
                None if session.is_some_and(|revision| revision.name() == name) => {
                    self.dispatch(request, session.unwrap_or(Revision::V2025November), effects);
                }
                None => {
                    let name = shortened(&name, MOST_ECHOED);
                    self.answers.refuse_version(&request.id, &name, request.route, effects);
                }
            },
            (None, Some(revision)) => self.dispatch(request, revision, effects),
            // A ping is harmless, and some clients send it before the handshake.
            (None, None) if request.method == "ping" && self.requires_handshake => {
                self.answers.answer(&request.id, Revision::V2025November, request.route, Map::new(), effects);
            }
            (None, None) => {
                let happened =
                    format!("`{}` names no revision, and the client made no handshake", request.method);
                let hint = "begin with `initialize`, or give each request params._meta with \
                            io.modelcontextprotocol/protocolVersion and /clientCapabilities";
                self.answers.refuse_request(request, invalid_params(happened, hint), effects);
            }
        }
    }

    /// Returns the reason why a request is refused. Returns `None` if it is accepted.
    fn refusal(&self, request: &ClientRequest<'_>) -> Option<ErrorReport<'static>> {
        if self.phase != SessionPhase::Running {
            return Some(refusal::ending());
        }
        if self.calls.contains(&request.id) {
            return Some(refusal::repeated_id(&request.id));
        }
        if request.route.batch.is_some() && request.method == "initialize" {
            return Some(refusal::handshake_in_batch());
        }
        let in_flight = self.calls.len();
        if in_flight >= self.limits.max_in_flight {
            return Some(refusal::overloaded(NAME, in_flight));
        }
        None
    }

    fn initialize(&mut self, request: &ClientRequest<'_>, effects: &mut impl SessionEffects) {
        let Some(asked) = request.text("protocolVersion") else {
            let happened = "`initialize` names no protocolVersion".to_owned();
            let hint = "name the newest revision that the client supports";
            return self.answers.refuse_request(request, invalid_params(happened, hint), effects);
        };
        let revision = Revision::negotiated(&asked);
        let name = request.client_name();
        self.answers.name_client(name.clone());
        self.client.shake_hands(revision, request, name);
        let (session, client) = (self.answers.session_name(), self.answers.client_name());
        tracing::info!(session, client, "a session of revision {} begins", revision.name());
        let capabilities = self.client.capabilities_of_session().unwrap_or("{}").into();
        self.actions.push_back(SessionAction::ClientSpeaks { era: Some(Era::Legacy), capabilities });
        let awaits_extensions = self.client.declares_extensions();
        self.introduce(request, revision, awaits_extensions, effects);
    }

    /// Handles a request that names its revision itself.
    fn stateless(
        &mut self,
        request: &ClientRequest<'_>,
        revision: Revision,
        effects: &mut impl SessionEffects,
    ) {
        self.answers.name_client(request.client_name());
        if !request.params.is_some_and(declares_capabilities) {
            let happened = format!("`{}` has no {CLIENT_CAPABILITIES} in params._meta", request.method);
            let hint = "give each request both members; an empty object is enough";
            return self.answers.refuse_request(request, invalid_params(happened, hint), effects);
        }
        // A client that only probes may go on with a handshake.
        let is_probe = request.method == "server/discover";
        if is_probe || self.client.begins_without_handshake() {
            let capabilities = request.params.and_then(capabilities).map_or("{}", Json::get).into();
            let era = Some(Era::Modern).filter(|_| !is_probe);
            self.actions.push_back(SessionAction::ClientSpeaks { era, capabilities });
        }
        self.dispatch(request, revision, effects);
    }

    pub(super) fn dispatch(
        &mut self,
        request: &ClientRequest<'_>,
        revision: Revision,
        effects: &mut impl SessionEffects,
    ) {
        if let Some((id, uri)) = self.jobs.read_by(request) {
            return self.read_job(request, revision, id, uri);
        }
        if is_of_nobody_yet(&self.session_catalog, request) {
            return self.wait_for_owner(request, revision, None);
        }
        if let unlisted @ Some(_) = list_to_refresh(&self.session_catalog, request) {
            return self.wait_for_owner(request, revision, unlisted);
        }
        let has_servers = self.session_catalog.servers().is_some();
        match &*request.method {
            "ping" if !revision.is_stateless() => {
                self.answers.answer(&request.id, revision, request.route, Map::new(), effects);
            }
            "server/discover" if revision.is_stateless() => {
                self.introduce(request, revision, true, effects);
            }
            "tools/list" => self.list(request, ServerList::Tools, revision, effects),
            "tools/call" => self.call(request, revision, effects),
            "prompts/list" if has_servers => {
                self.list(request, ServerList::Prompts, revision, effects);
            }
            "resources/list" if has_servers => {
                self.list(request, ServerList::Resources, revision, effects);
            }
            "resources/templates/list" if has_servers => {
                self.list(request, ServerList::ResourceTemplates, revision, effects);
            }
            "prompts/get" | "resources/read" | "completion/complete" if has_servers => {
                self.ask(request, revision, effects);
            }
            "skills/list" if self.session_catalog.may_have_skills() => {
                self.list(request, ServerList::Skills, revision, effects);
            }
            "skills/get" | "resources/directory/read" if self.session_catalog.has_skills() => {
                self.ask(request, revision, effects);
            }
            method if self.jobs.answer_tasks(method, revision) => self.task(request, revision, effects),
            method @ (SUBSCRIBE | UNSUBSCRIBE) if has_servers && !revision.is_stateless() => {
                self.subscription(request, method == SUBSCRIBE, revision, effects);
            }
            "logging/setLevel" if has_servers && !revision.is_stateless() => {
                self.set_level(request, revision, effects);
            }
            LISTEN if (has_servers || self.jobs.are_there) && revision.is_stateless() => {
                self.listen(request, revision, effects);
            }
            method => {
                let error_report = self.session_catalog.no_such_method(method, revision);
                self.answers.refuse_request(request, error_report, effects);
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
            let happened = "`logging/setLevel` does not name a known level".to_owned();
            let error_report =
                invalid_params(happened, "name a level from debug (most messages) to emergency");
            return self.answers.refuse_request(request, error_report, effects);
        };
        self.client.log_from(level);
        self.actions.push_back(SessionAction::Log(level));
        self.answers.answer(&request.id, revision, request.route, Map::new(), effects);
    }

    /// Answers a request for a list: once servers are known that still start, or once running servers were asked for changes.
    fn list(
        &mut self,
        request: &ClientRequest<'_>,
        list: ServerList,
        revision: Revision,
        effects: &mut impl SessionEffects,
    ) {
        if request.cursor().is_some() {
            let happened = format!("`{}` has a cursor that unhang never gave out", list.method());
            let hint = "ask without a cursor: the first page has all items";
            return self.answers.refuse_request(request, invalid_params(happened, hint), effects);
        }
        let (has_lists, key) = (self.session_catalog.has_lists(), self.calls.new_key());
        let awaited = if has_lists { Awaited::RefreshedList(list) } else { Awaited::List(list) };
        // The end of a refresh comes earlier than this limit.
        let limit = if has_lists { REQUEST_TIMEOUT } else { LIST_PATIENCE };
        let mut call = SessionCall::new((key, awaited), (revision, request.route), self.now, limit);
        call.promotion.promotion_reply = self.jobs.promotion_reply(request, revision);
        call.shows_views = self.client.shows_views(request, revision);
        if !has_lists {
            return self.calls.put_in_flight(request.id.clone(), call);
        }
        if !self.session_catalog.has_servers() {
            return self.answer_list(&request.id, list, &call, effects);
        }
        self.calls.begin(&request.id, call);
        self.actions.push_back(SessionAction::Refresh { key, list, wanted: None });
    }

    fn call(&mut self, request: &ClientRequest<'_>, revision: Revision, effects: &mut impl SessionEffects) {
        let name = request.text("name");
        let is_of_a_server =
            |name: &&String| request.owner.is_some() || self.session_catalog.is_of_a_server(name);
        if let Some(name) = name.as_ref().filter(is_of_a_server) {
            return match self.session_catalog.header_mismatch(name, request) {
                Some(error_report) => self.answers.refuse_request(request, error_report, effects),
                None => self.ask(request, revision, effects),
            };
        }
        let (tool, arguments) = match self.session_catalog.called(request, name) {
            Ok(called) => called,
            Err(error_report) => {
                return self.answers.refuse_request(request, error_report, effects);
            }
        };
        let promotion_reply = self.jobs.promotion_reply(request, revision);
        let is_job = self.session_catalog.is_job(&tool);
        if promotion_reply == PromotionReply::Task(Dialect::Core) && !is_job {
            return self.answers.refuse_raw(&request.id, request.route, &tasks::not_as_task(&tool), effects);
        }
        let limit = clients::call_limit(self.clock(request, revision), self.limits.call_timeout);
        let limit = limit.saturating_sub(request.waited);
        let key = self.calls.new_key();
        let awaited = Awaited::Tool(tool.clone());
        let mut call = SessionCall::new((key, awaited), (revision, request.route), self.now, limit);
        call.promotion.promotion_reply = promotion_reply;
        let beats = self.limits.promote_after.has_heartbeats();
        call.heartbeat = beats.then(|| heartbeat(self.now, request, revision, &tool, self.jobs)).flatten();
        self.calls.begin(&request.id, call);
        let length = request.params.map_or(0, |params| params.get().len());
        self.actions.push_back(SessionAction::Call { key, tool, arguments, length, limit });
    }

    /// Returns the time after which the client gives a call up, if that is known.
    fn clock(&self, request: &ClientRequest<'_>, revision: Revision) -> Option<Duration> {
        self.client.clock(request, revision, self.session_catalog.servers())
    }

    /// Asks the server that owns the subject of the request, or resumes a parked call.
    fn ask(&mut self, request: &ClientRequest<'_>, revision: Revision, effects: &mut impl SessionEffects) {
        let comes = request.params.filter(|_| revision.is_stateless());
        if let Some(error_report) = comes.and_then(|params| unreadable_responses(&request.method, params)) {
            return self.answers.refuse_request(request, error_report, effects);
        }
        let again = comes.and_then(urls::made_again);
        let first = match &again {
            None => None,
            Some(Resumption::Asked(params)) => Json::new(params.as_bytes()),
            Some(Resumption::Declined) => {
                let error_report = urls::declined(&request.method);
                return self.answers.refuse_request(request, error_report, effects);
            }
        };
        let request = &request.with_params(first.or(request.params));
        let Some(known) = self.session_catalog.servers() else { return };
        // The states of another gateway look like those of unhang, and are passed on to it.
        let is_ours = |state: &str| !known.follows || self.parked_calls.gave(state);
        let state = own_state(request.params).filter(|state| is_ours(state));
        if state.as_deref().is_some_and(|state| self.parked_calls.was_given_elsewhere(state)) {
            // Only the window that asks knows which server it was.
            let (summary, hint) = leader_lost(None, &request.method);
            let error_report = ErrorReport { kind: FaultKind::ServerExited, summary, hint };
            return self.answers.refuse_request(request, error_report, effects);
        }
        let comes_back = state.is_some();
        if let Some(params) = request.params.filter(|_| comes_back && revision.is_stateless()) {
            return self.come_back(request, params, revision, effects);
        }
        match subject(known, request) {
            Ok(subject) => self.ask_about(subject, request, revision, effects),
            Err(NotAsked::Resource(uri)) => {
                self.refuse_resource(request, &uri, revision, effects);
            }
            Err(NotAsked::Told(error_report)) => {
                self.answers.refuse_request(request, error_report, effects);
            }
        }
    }

    /// Asks a server about a subject that it owns.
    fn ask_about(
        &mut self,
        subject: RequestSubject,
        request: &ClientRequest<'_>,
        revision: Revision,
        effects: &mut impl SessionEffects,
    ) {
        let terms = self.terms(&subject, request, revision);
        let RequestSubject { method, owner, params, about, asked_for } = subject;
        if terms.promotion.is_refused() {
            return self.answers.refuse_raw(&request.id, request.route, &tasks::not_as_task(&about), effects);
        }
        let beats = terms.has_heartbeat;
        let heartbeat = beats.then(|| heartbeat(self.now, request, revision, &about, self.jobs)).flatten();
        let (may_be_a_job, token) = (terms.may_be_a_job(), request.params.and_then(wire::progress_token));
        let said = request.params.filter(|_| revision.is_stateless()).and_then(wire::client_name);
        let asked = ServerRequest {
            server: owner.server,
            method,
            params: terms.promotion.asked(params).into(),
            client: revision.era(),
            signature: self.client.signature_for(revision),
            wants_progress: token.is_some(),
            tool: (method == "tools/call").then_some(owner.name),
            may_wait: may_be_a_job || self.jobs.are_of_windows,
            wants_a_task: may_be_a_job && terms.promotion.wants_a_task(),
            limit: terms.asked_limit.saturating_add(terms.waited),
            waited: terms.waited,
            asked_for,
            fairness_key: self.fairness_key.saying(said.as_deref()),
            session: None,
            window_call: None,
            job_order: None,
            trace: self.answers.traces().trace_of(&request.id),
        };
        let introduced = request.introduced(method, revision);
        let level = introduced.as_ref().and_then(|introduced| introduced.log_from);
        if let Some(level) = level.filter(|_| self.jobs.are_of_windows) {
            // A window sends the log level of its client with each request.
            self.actions.push_back(SessionAction::Log(level));
        }
        let (key, joining) = (self.calls.new_key(), terms.joining);
        // A window hints at the names that its own client knows.
        let is_unlisted = request.owner.is_some() && !self.jobs.are_of_windows;
        let hint = is_unlisted.then(|| self.session_catalog.hint(method, &about)).flatten();
        let awaited = Awaited::Server { method, about, token, introduced };
        let mut call = SessionCall::new((key, awaited), (revision, request.route), self.now, terms.limit);
        (call.promotion, call.heartbeat, call.clock) = (terms.promotion, heartbeat, terms.clock);
        (call.server_outlasts_client, call.nearest_hint) = (terms.asked_limit > terms.limit, hint);
        let behind = self.session_catalog.servers().and_then(|known| known.behind(&asked));
        call.server = Some(CalledUpstream { index: asked.server, behind: behind.map(Into::into) });
        self.calls.begin(&request.id, call);
        self.actions.push_back(SessionAction::Ask { key, asked: Box::new(asked), may_be_a_job, joining });
    }

    /// Returns the terms on which a server gets this request.
    fn terms(&self, subject: &RequestSubject, request: &ClientRequest<'_>, revision: Revision) -> CallTerms {
        let usual = RequestTimeouts::default();
        let timeouts =
            self.session_catalog.servers().and_then(|known| known.timeouts.get(&subject.owner.server));
        let timeouts = timeouts.unwrap_or(&usual);
        if subject.method != "tools/call" {
            return CallTerms::of_request(timeouts, request.waited);
        }
        let timing = CallTiming {
            now: self.now,
            waited: request.waited,
            clock: self.clock(request, revision),
            window: self.client.window_limit,
        };
        let promotion_reply = self.jobs.promotion_reply(request, revision);
        CallTerms::of_call(&subject.owner.name, timeouts, promotion_reply, self.jobs, timing)
    }

    /// Refuses a resource that nobody has.
    fn refuse_resource(
        &mut self,
        request: &ClientRequest<'_>,
        uri: &str,
        revision: Revision,
        effects: &mut impl SessionEffects,
    ) {
        let names_all = self.jobs.names_all();
        self.answers.refuse_resource(&request.id, (uri, &names_all), revision, request.route, effects);
    }

    /// Resumes a parked call to which its client comes back.
    fn come_back(
        &mut self,
        request: &ClientRequest<'_>,
        params: Json<'_>,
        revision: Revision,
        effects: &mut impl SessionEffects,
    ) {
        let (id, method, how) = (&request.id, &*request.method, (revision, request.route));
        match self.parked_calls.come_back(self.now, method, params, how, &mut self.actions) {
            Ok(Resumed { call, answered: Some(answered) }) => {
                self.answers.pass_on(self.now, id, &call, &answered, effects);
            }
            Ok(Resumed { call, answered: None }) => self.calls.begin(id, call),
            Err(NotResumed::AskedAgain(result)) => {
                self.answers.answer_raw(id, request.route, &result, effects);
            }
            Err(NotResumed::Unknown(error_report)) => {
                self.answers.refuse(
                    request.route,
                    Addressee::request(id, method, None),
                    error_report,
                    effects,
                );
            }
        }
    }

    /// Keeps a request until its owner is known, or until servers were asked whether they have added its subject to the list `refreshed`.
    fn wait_for_owner(
        &mut self,
        request: &ClientRequest<'_>,
        revision: Revision,
        refreshed: Option<ServerList>,
    ) {
        // Every request that comes here has a named subject.
        let Some(mut ownerless) = UnroutedRequest::of(request, self.session_catalog.servers()) else {
            return;
        };
        let limit = match ownerless.method {
            "tools/call" => {
                let own = clients::call_limit(self.clock(request, revision), self.limits.call_timeout);
                self.client.window_limit.map_or(own, CallLimit::left)
            }
            _ => self.limits.request_timeout,
        };
        ownerless.awaits_refresh = refreshed.is_some();
        let ownerless_name = ownerless.about.clone();
        let awaited = Awaited::Owner(Box::new(ownerless));
        if let Some(list) = refreshed {
            let wanted = Some(ownerless_name);
            let key = self.begin(request, revision, awaited, limit);
            return self.actions.push_back(SessionAction::Refresh { key, list, wanted });
        }
        let awaited = (self.calls.new_key(), awaited);
        let call = SessionCall::new(awaited, (revision, request.route), self.now, limit);
        self.calls.put_in_flight(request.id.clone(), call);
    }

    /// Begins a call that waits for this and never becomes a job.
    fn begin(
        &mut self,
        request: &ClientRequest<'_>,
        revision: Revision,
        awaited: Awaited,
        limit: Duration,
    ) -> CallKey {
        let key = self.calls.new_key();
        let call = SessionCall::new((key, awaited), (revision, request.route), self.now, limit);
        self.calls.begin(&request.id, call);
        key
    }

    /// Asks for the result of a job, as a resource.
    fn read_job(&mut self, request: &ClientRequest<'_>, revision: Revision, id: JobId, uri: String) {
        let awaited = Awaited::Job(uri.into());
        let key = self.begin(request, revision, awaited, self.limits.request_timeout);
        self.actions.push_back(SessionAction::Task { key, asked: TaskAsked::Resource(id) });
    }

    /// Handles a request about a task.
    fn task(&mut self, request: &ClientRequest<'_>, revision: Revision, effects: &mut impl SessionEffects) {
        let is_declared = request.params.and_then(capabilities).is_some_and(tasks::declares);
        if revision.is_stateless() && !is_declared {
            let error = tasks::missing_capability();
            return self.answers.refuse_raw(&request.id, request.route, &error, effects);
        }
        let call_limit = || clients::call_limit(self.clock(request, revision), self.limits.call_timeout);
        let asked = match TaskAsked::by(request, call_limit) {
            Ok(asked) => asked,
            Err(error) => return self.answers.refuse_raw(&request.id, request.route, &error, effects),
        };
        let (method, limit) = asked.method_and_limit(self.limits.request_timeout);
        let key = self.begin(request, revision, Awaited::Task(method), limit);
        self.actions.push_back(SessionAction::Task { key, asked });
    }

    /// Begins a subscription of a client to changes.
    fn listen(&mut self, request: &ClientRequest<'_>, revision: Revision, effects: &mut impl SessionEffects) {
        let (id, route) = (&request.id, request.route);
        if !effects.takes_more(route.stream) {
            let to = Addressee::request(id, LISTEN, None);
            return self.answers.refuse(route, to, not_listening(), effects);
        }
        let tasks = if self.jobs.are_there { tasks_wanted(request.params) } else { Vec::new() };
        let catalog =
            self.session_catalog.servers().map(|known| Arc::clone(&known.catalog)).unwrap_or_default();
        let mut filter = Filter::of(request.params, &catalog, tasks);
        for resource in filter.resources() {
            self.watch_beside(resource.clone());
        }
        let told = filter.acknowledgement(id);
        let follow = |task: &JobId| {
            let key = self.calls.begin_beside(Some(id));
            self.actions.push_back(SessionAction::FollowTask { key, id: *task });
            key
        };
        let followed = filter.tasks().iter().map(follow).collect();
        filter.follow_by(followed);
        let awaited = (self.calls.new_key(), Awaited::Changes(filter));
        let call = SessionCall::new(awaited, (revision, route), self.now, Duration::MAX);
        self.calls.put_in_flight_for_ever(id.clone(), call);
        effects.to_client(LineTarget::Beside(route.stream), Class::Kept, told.as_bytes());
    }

    /// Subscribes a client of a session to a resource, or ends that.
    fn subscription(
        &mut self,
        request: &ClientRequest<'_>,
        begins: bool,
        revision: Revision,
        effects: &mut impl SessionEffects,
    ) {
        let Some(uri) = request.text("uri") else {
            let happened = format!("`{}` names no resource in params.uri", request.method);
            let error_report = invalid_params(happened, "give the URI of the resource there");
            return self.answers.refuse_request(request, error_report, effects);
        };
        match self.session_catalog.servers().and_then(|known| known.catalog.resource(&uri)) {
            Some(owner) if begins => self.subscribe(request, uri, owner, revision, effects),
            Some(owner) => {
                let resource = resource(owner);
                if self.watched.remove(&resource) {
                    self.actions.push_back(SessionAction::Unwatch(resource));
                }
                self.answers.answer(&request.id, revision, request.route, Map::new(), effects);
            }
            None => {
                self.refuse_resource(request, &uri, revision, effects);
            }
        }
    }

    /// Subscribes a client of a session to a resource of this server.
    fn subscribe(
        &mut self,
        request: &ClientRequest<'_>,
        uri: String,
        owner: Owner,
        revision: Revision,
        effects: &mut impl SessionEffects,
    ) {
        let timeouts = self.session_catalog.servers().and_then(|known| known.timeouts.get(&owner.server));
        let limit = timeouts.map_or(REQUEST_TIMEOUT, |timeouts| timeouts.request);
        let resource = resource(owner);
        if let Err(error_report) = self.watched.add(resource.clone(), uri.clone()) {
            let to = Addressee::request(&request.id, SUBSCRIBE, None);
            return self.answers.refuse(request.route, to, error_report, effects);
        }
        let awaited = Awaited::Server { method: SUBSCRIBE, about: uri, token: None, introduced: None };
        let key = self.begin(request, revision, awaited, limit);
        self.actions.push_back(SessionAction::Watch { key, resource, limit });
    }
}
