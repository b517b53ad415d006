//! Sends a request to a server once the server is ready and the request is admitted.
//!
//! Invariants
//!
//! - A request that a server has not had is not lost with that server: it waits for the next start, for as long as it may.
//! - While a request waits for a server to start, it holds no permit but that of the server itself.

use std::{borrow::Cow, pin::pin, sync::Arc};

use serde_json::value::RawValue;
use tokio::{sync::mpsc, time::Instant};
use unhang_bridge::{Era, params};
use unhang_proc::deadline::Deadline;
use unhang_wire::Json;

use super::{
    OfSession, ProgressSender, ServerAnswer, ServerRequest, SideMessage,
    admission_limits::{PermitRequest, ReadyPermits},
    backend::Backend,
    caller_errors::{TimeSpent, explained, named},
    eras::EraChoice,
    gateway_core::GatewayCore,
    instances::InstanceTurn,
    lifecycle::StartReason,
    owners,
    task_news::{CallStage, TaskNews},
    tasks::TaskPoller,
    verdicts, window_errors,
};
use unhang_upstream::{
    call_stream::CallStream,
    client::{CallOptions, Client, Error, RequestSignature, ServerInfo},
    http::headers::CallLimit,
    kept_request::SentSender,
};

/// Sends a request to a server once the server is ready and the request is admitted, and waits for the answer. It leaves out what the
/// request was asked for.
pub(super) async fn dispatch(
    backend: &Arc<Backend>,
    core: &Arc<GatewayCore>,
    request: &ServerRequest,
    (progress, sent): (Option<ProgressSender>, Option<SentSender>),
    asides: Option<mpsc::Sender<SideMessage>>,
    news: Option<TaskNews>,
) -> ServerAnswer {
    let now = Instant::now();
    let acquire = PermitRequest {
        fairness_key: &request.fairness_key,
        session: request.session,
        method: request.method,
        tool: request.tool.as_deref(),
        limit: request.limit,
        deadline: Deadline::after(request.limit.saturating_sub(request.waited)),
        since: now,
    };
    let mut dispatch = Dispatch {
        backend: Arc::clone(backend),
        core,
        request,
        acquire,
        asides,
        news,
        sent,
        since: now.checked_sub(request.waited).unwrap_or(now),
        spent: TimeSpent::default(),
        era: request.client,
        server_info: None,
    };
    let mut outcome = dispatch.run(progress).await;
    let Dispatch { backend, mut era, server_info, .. } = dispatch;
    if let Err(Error::Server(error)) = &mut outcome {
        let (client, is_told) = ((request.client, era_of_client(request)), backend.is_gateway());
        era = window_errors::told(error, client, (era, is_told));
    }
    ServerAnswer { era, server_info, outcome, asked_for: None }
}

/// Returns the era of the client. A window writes the requests of its client in the era of the window that leads, and tells by the session
/// that its client can be asked beside its calls, as clients of the handshake era are.
fn era_of_client(request: &ServerRequest) -> Era {
    match request.session {
        Some(OfSession { is_asked_beside: true, .. }) => Era::Legacy,
        _ => request.client,
    }
}

/// A request on its way to its server.
struct Dispatch<'a> {
    /// The backend that is asked: the addressed one, or its counterpart in the client's era.
    backend: Arc<Backend>,
    core: &'a Arc<GatewayCore>,
    request: &'a ServerRequest,
    acquire: PermitRequest<'a>,
    asides: Option<mpsc::Sender<SideMessage>>,
    news: Option<TaskNews>,
    sent: Option<SentSender>,
    /// When the request came.
    since: Instant,
    spent: TimeSpent,
    /// The server's era, once it is known; the client's era before that.
    era: Era,
    /// The server's name and version as JSON, if the result has to carry them and the server does not write them.
    server_info: Option<String>,
}

/// A ready server, and how the request goes to it.
struct ReadyServer<'a> {
    client: Client,
    session: Arc<ServerInfo>,
    /// The params in the server's era, if they differ.
    legacy: Option<Cow<'a, str>>,
    asides: Option<mpsc::Sender<SideMessage>>,
    signed: RequestSignature,
    /// When the server got the request.
    asked: Instant,
}

impl<'a> Dispatch<'a> {
    async fn run(&mut self, progress: Option<ProgressSender>) -> Result<Box<RawValue>, Error> {
        let addressed = Arc::clone(&self.backend);
        let mut use_of_addressed = Some(addressed.used());
        loop {
            let is_decided = addressed.eras.spoken().is_some();
            if is_decided {
                self.choose(&addressed).await;
            }
            let backend = Arc::clone(&self.backend);
            let _use = backend.used();
            if is_decided {
                drop(use_of_addressed.take());
            }
            // Permits come before anything else, so that the longest wait is not for something that grew old meanwhile.
            let waited = Instant::now();
            let turn = backend.admission.turn(&self.acquire).await;
            self.spent.in_line += waited.elapsed();
            let _turn = turn?;
            if !is_decided {
                // A server that has never been ready shows now which eras it speaks.
                self.ready().await?;
                if self.era != era_of_client(self.request) {
                    continue;
                }
                backend.eras.note_asked();
            }
            let mut instance = self.instance(&backend).await?.map(Box::new);
            let backend = Arc::clone(&self.backend);
            let _use_of_instance = backend.used();
            let (ready, _turns) = self.admitted().await?;
            if let Some(instance) = &mut instance {
                instance.asks(&ready.client);
            }
            let outcome = self.send(ready, progress).await;
            if let Some(instance) = instance.as_mut().filter(|_| is_of_server(&outcome)) {
                instance.answered();
            }
            return outcome;
        }
    }

    /// Waits for one of the instances of the server, if there can be several, and asks that one from now on.
    async fn instance(&mut self, first: &Arc<Backend>) -> Result<Option<InstanceTurn>, Error> {
        let Some(pool) = &first.instances else { return Ok(None) };
        self.comes_to(CallStage::InLine);
        let waited = Instant::now();
        let taking = pool.take(first, self.core, self.acquire.fairness_key);
        let turn = first.admission.instance_turn(&self.acquire, pool.most(), taking).await;
        self.spent.in_line += waited.elapsed();
        let turn = turn?;
        self.backend = Arc::clone(&turn.backend);
        Ok(Some(turn))
    }

    /// Chooses the backend that speaks the client's era, if there is one.
    async fn choose(&mut self, addressed: &Arc<Backend>) {
        let era = era_of_client(self.request);
        if let Some(known) = EraChoice(addressed).known_choice(era) {
            self.backend = known;
            return;
        }
        self.comes_to(CallStage::Starting);
        let wanted = Instant::now();
        // If the counterpart is not there in time, the request finds that out later.
        if let Ok(speaking) =
            self.acquire.deadline.timeout(EraChoice(addressed).speaking(era, self.core)).await
        {
            self.backend = speaking;
        }
        self.spent.starting += wanted.elapsed();
    }

    /// Waits until the server is ready and the request is admitted. Returns the permits that the request holds while it is with the server.
    async fn admitted(&mut self) -> Result<(Box<ReadyServer<'a>>, ReadyPermits), Error> {
        loop {
            let (client, session) = self.ready().await?;
            let legacy = self.translated()?;
            let (asides, signed) = self.signed();
            self.comes_to(CallStage::InLine);
            let wanted = Instant::now();
            let turns =
                self.backend.admission.turns_once_ready(self.era, &self.core.all, &self.acquire).await;
            let asked = Instant::now();
            self.spent.in_line += asked - wanted;
            let turns = turns?;
            self.backend.admission.in_time(&self.acquire)?;
            if client.is_usable() {
                let ready = ReadyServer { client, session, legacy, asides, signed, asked };
                return Ok((Box::new(ready), turns));
            }
            // The client has ended while this request waited, and never had it: the next client gets it instead.
        }
    }

    /// Waits until the server is ready, for as long as the request may, and learns the server's era.
    async fn ready(&mut self) -> Result<(Client, Arc<ServerInfo>), Error> {
        let (backend, PermitRequest { method, limit, deadline, .. }) = (&self.backend, self.acquire);
        // A server that is still starting has its own deadline, which may be later than the deadline of this caller.
        self.comes_to(CallStage::Starting);
        let wanted = Instant::now();
        let ready = deadline.timeout(backend.ready(StartReason::Request)).await;
        self.spent.starting += wanted.elapsed();
        let ready = ready.unwrap_or_else(|_| Err(verdicts::still_starting(backend.name(), method, limit)));
        let (client, session) = ready.map_err(|error| {
            backend.note(&error);
            named(error, method, self.since)
        })?;
        self.era = session.revision.era();
        let server_info = session.server_info.as_ref().filter(|_| self.is_translated());
        self.server_info = server_info.map(ToString::to_string);
        Ok((client, session))
    }

    /// Returns whether a client of today asks a server of the handshake era.
    fn is_translated(&self) -> bool {
        (self.request.client, self.era) == (Era::Modern, Era::Legacy)
    }

    /// Returns the params translated for a server of the handshake era, or `None` if they can go as they are.
    ///
    /// # Errors
    /// Fails with [`FaultKind::InvalidParams`](unhang_core::fault::FaultKind::InvalidParams) if the params answer a question that nobody
    /// has asked.
    fn translated(&self) -> Result<Option<Cow<'a, str>>, Error> {
        let params = &self.request.params;
        let legacy = Json::new(params.as_bytes())
            .filter(|_| self.is_translated())
            .and_then(|params| params::to_legacy(Some(params)));
        if legacy.is_some() && answers_nothing(params) {
            return Err(verdicts::no_such_question(self.backend.name(), self.request.method));
        }
        Ok(legacy)
    }

    /// Returns where the server's questions in the call go, and as whom the server is asked.
    fn signed(&self) -> (Option<mpsc::Sender<SideMessage>>, RequestSignature) {
        match (self.request.client, &self.request.signature) {
            // A client of the server's own era answers the server's questions in its own way.
            (Era::Modern, _) if self.era == Era::Modern => (self.asides.clone(), RequestSignature::Already),
            (Era::Legacy, Some(signature)) => {
                (self.asides.clone(), RequestSignature::By(Arc::clone(signature)))
            }
            (Era::Modern, _) => (self.asides.clone(), RequestSignature::ByUs),
            (Era::Legacy, None) => (None, RequestSignature::ByUs),
        }
    }

    /// Sends the request to the server and waits for the outcome. If the server goes on with the call as a task, that is the outcome of the
    /// task.
    async fn send(
        &mut self,
        ready: Box<ReadyServer<'a>>,
        progress: Option<ProgressSender>,
    ) -> Result<Box<RawValue>, Error> {
        let (backend, request) = (&self.backend, self.request);
        let ReadyServer { client, session, legacy, asides, signed, asked } = &*ready;
        let params = legacy.as_deref().unwrap_or(&request.params);
        let poller = request.tool.as_deref().and_then(|tool| {
            TaskPoller::of(backend, session, tool, params, signed, asides.as_ref(), request.may_wait)
        });
        let mut poller = poller.map(|poller| poller.asked_in(request.session));
        let as_task = poller.as_mut().and_then(|poller| match request.wants_a_task {
            true => poller.params(params).or_else(|| poller.declare(params)),
            false => poller.params(params),
        });
        let limit = request.limit;
        let call_limit =
            (request.method == "tools/call").then(|| CallLimit { limit, waited: self.since.elapsed() });
        let (timeout, headers) = match backend.is_gateway() {
            true => (owners::patience_for(limit), owners::headers(request, call_limit)),
            false => (limit, Vec::new()),
        };
        let mut options = CallOptions {
            timeout: Some(timeout),
            since: Some(self.since),
            progress,
            asides: asides.clone(),
            session: request.session,
            signed: poller.as_ref().map_or_else(|| signed.clone(), TaskPoller::signed),
            headers,
            sent: self.sent.clone(),
            stream: self.watched_stream(),
        };
        let trial = backend.trial();
        self.comes_to(if backend.is_gateway() { CallStage::Elsewhere } else { CallStage::Asked });
        let mut outcome = {
            let asking = pin!(client.ask(request.method, as_task.as_deref().unwrap_or(params), &options));
            backend.serial_work.over((backend, client), self.news.as_ref(), asking).await
        };
        if let Some(poller) = poller.as_mut().filter(|_| self.may_declare_tasks())
            && poller.lacks_declaration(&outcome)
        {
            let declaring = poller.declare(params);
            options.signed = poller.signed();
            outcome = client.ask(request.method, declaring.as_deref().unwrap_or(params), &options).await;
        }
        let outcome = outcome.map_err(|error| explained(error, self.spent, *asked));
        trial.ended(&outcome);
        match poller {
            Some(poller) => poller.told_to(self.news.take()).follow(outcome, self.acquire.deadline).await,
            None => outcome,
        }
    }

    /// Returns whether the gateway may declare tasks for the caller: one of the handshake era that can wait, which cannot declare them.
    fn may_declare_tasks(&self) -> bool {
        self.request.may_wait && era_of_client(self.request) == Era::Legacy && !self.backend.is_gateway()
    }

    /// Returns the stream of the answer, if somebody wants to know whether another process could resume it.
    fn watched_stream(&self) -> Option<CallStream> {
        let is_remote = self.request.method == "tools/call" && self.backend.outlives_us();
        let news = self.news.as_ref().filter(|_| is_remote)?;
        Some(news.watches(self.backend.name(), self.backend.identity()))
    }

    /// Tells the listener, if there is one, how far the call is.
    fn comes_to(&self, stage: CallStage) {
        if let Some(news) = &self.news {
            news.comes_to(stage);
        }
    }
}

/// Returns whether the server itself has answered, with a result or an error.
fn is_of_server(outcome: &Result<Box<RawValue>, Error>) -> bool {
    matches!(outcome, Ok(_) | Err(Error::Server(_)))
}

/// Returns whether params answer a question that nobody has asked: a server of the handshake era asks nothing by its results.
fn answers_nothing(params: &str) -> bool {
    let params = Json::new(params.as_bytes());
    let has = |member| params.is_some_and(|params| params.member(member).is_some());
    has("requestState") || has("inputResponses")
}
