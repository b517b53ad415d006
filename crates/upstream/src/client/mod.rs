//! The client: any MCP server, asked from Rust, with an end to every wait.
//!
//! A [`Client`] stands for one server. It starts the server at once and runs the handshake in the background; every request waits for that
//! first.
//! A [`ServerPool`] holds several servers by name. It starts each one at its first request, and keeps one connection however many calls
//! run.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use unhang_core::limits::Limits;
//! # use unhang_proc::server::ServerSpec;
//! # use unhang_upstream::client::{self, Client, ClientSpec, Endpoint, RequestOptions, DecliningListener};
//! # async fn example(server: ServerSpec) -> Result<(), client::Error> {
//! let client = Client::start(ClientSpec {
//!     name: "time".to_owned(),
//!     endpoint: Endpoint::Stdio(server),
//!     limits: Limits::default(),
//!     listener: Arc::new(DecliningListener),
//! });
//! let result = client.call_tool("get_current_time", serde_json::Map::new(), &RequestOptions::default()).await?;
//! println!("{}", result.get());
//! client.dispose().await;
//! # Ok(())
//! # }
//! ```
//!
//! Invariants
//!
//! - Every wait ends: by an answer, an error or a limit (L-62). Dropping a wait withdraws the request.
//! - Answers are matched by id alone, so calls run side by side and never get each other's answers.
//! - [`Client::dispose`] and [`ServerPool::dispose`] end by themselves, in time, however often and wherever they are called (C-47 to C-61).
//! - Results are the server's bytes, unchanged.

mod background;
pub mod in_words;
mod job_resource;
mod lists;
mod mirrors;
mod pool;
mod resumed;
mod resumed_stream;
mod subscription;

use std::{borrow::Cow, collections::BTreeMap, future::pending, sync::Arc, time::Duration};

use serde_json::{
    Map, Value, json,
    value::{RawValue, to_raw_value},
};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use unhang_bridge::Splice;
use unhang_proc::{deadline::Deadline, server::ServerSpec};
use unhang_wire::Json;

use self::mirrors::Mirrors;
pub use self::{
    job_resource::JobResource,
    pool::{DisposeOutcome, ServerPool},
    resumed::{ResumedAnswer, ResumedServer},
    resumed_stream::{ResumedClient, ResumedOutcome, ResumedStream},
    subscription::{Subscription, Topics},
};
pub use unhang_net::http::Address;

use crate::{
    ActorRequest, Mailbox, UpstreamHandle,
    call_stream::CallStream,
    handshake::{HEADER_MISMATCH, Introduction},
    http,
    kept_request::SentSender,
    question::{self, OfSession, STATE, SideMessageSender},
    stdio,
    upstream_session::UpstreamConfig,
};
pub use crate::{LISTEN, ProgressSender, RequestSignature};
pub use crate::{
    handshake::ServerInfo,
    http::HttpServer,
    listener::{DecliningListener, ListenerAnswer, ServerListener, declined},
    question::ReplyError,
    resumed_request::ResumedRequest,
};
use unhang_core::{
    config::{INPUT_ROUNDS, STOP_SLACK},
    fault::FaultKind,
    limits::Limits,
    units::in_words,
};
pub use unhang_core::{
    error::{Background, Error, Failure, ServerError, UnfinishedCall},
    list::ServerList,
};

/// The way to reach a server.
#[derive(Clone, Debug)]
pub enum Endpoint {
    /// A command that speaks over its stdin and stdout.
    Stdio(ServerSpec),
    /// A server behind a URL, over HTTP.
    Http(HttpServer),
}

/// The description of a server, from which [`Client::start`] makes a client.
#[derive(Clone)]
pub struct ClientSpec {
    /// The server's name in errors and logs.
    pub name: String,
    /// The way to reach it.
    pub endpoint: Endpoint,
    /// The server's limits.
    pub limits: Limits,
    /// The listener that hears the server's notifications and answers its questions.
    pub listener: Arc<dyn ServerListener>,
}

/// The options of one request.
#[derive(Clone, Debug, Default)]
pub struct RequestOptions {
    /// The timeout; `None` takes it from the server's limits (L-20).
    pub timeout: Option<Duration>,
    /// The moment from which the timeout counts; `None` counts from when the server is ready.
    pub since: Option<Instant>,
    /// Receives the newest progress, as the server sent it. Without it the client asks the server for no progress.
    pub progress: Option<ProgressSender>,
    /// Receives the job with which the server goes on in the background, while the client follows that job to its end.
    pub background: Option<watch::Sender<Option<UnfinishedCall>>>,
}

/// The options of a request that may be made on somebody else's behalf.
#[derive(Clone, Debug, Default)]
pub struct CallOptions {
    /// As in [`RequestOptions`].
    pub timeout: Option<Duration>,
    /// As in [`RequestOptions`].
    pub since: Option<Instant>,
    /// As in [`RequestOptions`].
    pub progress: Option<ProgressSender>,
    /// Hears and answers the server's messages and questions during the request. Without it the listener does.
    pub asides: Option<SideMessageSender>,
    /// The session that asks, if there is one.
    pub session: Option<OfSession>,
    /// The identity under which a stateless server is asked.
    pub signed: RequestSignature,
    /// Further headers for a stateless server over HTTP.
    pub headers: Vec<(String, String)>,
    /// Receives the request once a process of the server has been sent it.
    pub sent: Option<SentSender>,
    /// Hears of the stream of the answer, if the server is reached over HTTP.
    pub stream: Option<CallStream>,
}

impl From<&RequestOptions> for CallOptions {
    fn from(options: &RequestOptions) -> Self {
        let RequestOptions { timeout, since, progress, background: _ } = options.clone();
        CallOptions { timeout, since, progress, ..CallOptions::default() }
    }
}

/// One server. Clones stand for the same server; when the last one is dropped, the server is ended.
#[derive(Clone)]
pub struct Client {
    name: Arc<str>,
    limits: Limits,
    listener: Arc<dyn ServerListener>,
    link: UpstreamHandle,
    /// The tools' arguments that are sent as headers as well, if the server is reached over HTTP.
    mirrors: Option<Arc<Mirrors>>,
    /// Notified when a subscription has broken off: another server process may be there by now.
    doubted: Arc<Notify>,
}

impl Client {
    /// Starts the server and returns at once. Must be called in a runtime.
    #[must_use]
    pub fn start(spec: ClientSpec) -> Self {
        Self::start_knowing(spec, false)
    }

    /// Starts the server as [`start`](Self::start) does. `is_legacy` says that the server was found to know handshakes alone.
    pub fn start_knowing(spec: ClientSpec, is_legacy: bool) -> Self {
        let ClientSpec { name, endpoint, limits, listener } = spec;
        let mirrors = match &endpoint {
            Endpoint::Http(server) => Some(Arc::new(Mirrors::new(server.address.socket.is_some()))),
            Endpoint::Stdio(_) => None,
        };
        let (client, config, mailbox) = Self::with_actor(name, limits, listener, mirrors, is_legacy);
        match endpoint {
            Endpoint::Stdio(server) => drop(tokio::spawn(stdio::live(server, config, mailbox))),
            Endpoint::Http(server) => drop(tokio::spawn(http::live(server, config, mailbox))),
        }
        client
    }

    /// Makes a client, and what its actor needs.
    fn with_actor(
        name: String,
        limits: Limits,
        listener: Arc<dyn ServerListener>,
        mirrors: Option<Arc<Mirrors>>,
        is_legacy: bool,
    ) -> (Client, UpstreamConfig, Mailbox) {
        let (link, mailbox) = crate::link();
        let introduction = Introduction::new(&introduced(), &listener.capabilities().into());
        let client = Client {
            name: name.as_str().into(),
            limits: limits.clone(),
            listener: listener.clone(),
            link,
            mirrors,
            doubted: Arc::default(),
        };
        (client, UpstreamConfig { name, limits, introduction, listener, is_legacy }, mailbox)
    }

    /// Returns the server's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the server's limits.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Waits until the server has answered the handshake (L-12), and returns what it said of itself.
    ///
    /// # Errors
    /// Fails with the reason why the server will not be ready.
    pub async fn ready(&self) -> Result<Arc<ServerInfo>, Error> {
        self.link.ready().await
    }

    /// Returns whether the server can be asked, now or when it is ready.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.link.is_usable()
    }

    /// Tells the server that the client's roots have changed, once it is ready, if its revision has such a notification. Several changes may
    /// be told as one.
    pub fn roots_changed(&self) {
        self.link.roots_changed();
    }

    /// Waits until the server has answered the handshake, or has failed to. The future gives true if it has answered, and holds no handle.
    pub fn opened(&self) -> impl Future<Output = bool> + Send + use<> {
        self.link.opened()
    }

    /// Waits until the server can be asked nothing any more. The future holds no handle.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        self.link.ended()
    }

    /// Waits until the server and everything that belongs to it has ended. The future holds no handle.
    pub fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
        self.link.gone()
    }

    /// Returns why the server cannot be asked any more; `None` while it can.
    pub fn why_over(&self) -> Option<Failure> {
        self.link.why_over()
    }

    /// Sends the server any request. If a request for input comes back instead of a result, the listener answers it, and the client repeats
    /// the request with that answer (2026-07-28).
    ///
    /// # Errors
    /// Fails with the server's error, or with the reason why there is no answer.
    pub async fn request(
        &self,
        method: &str,
        params: Map<String, Value>,
        options: &RequestOptions,
    ) -> Result<Box<RawValue>, Error> {
        self.ask(method, &Value::from(params).to_string(), &options.into()).await
    }

    /// Sends a request whose params are JSON already. They go out unchanged, except for what the server has to be told with every request.
    pub async fn ask(
        &self,
        method: &str,
        params: &str,
        manner: &CallOptions,
    ) -> Result<Box<RawValue>, Error> {
        let limit = manner.timeout.unwrap_or(match method {
            "tools/call" => self.limits.call_timeout,
            _ => self.limits.request_timeout,
        });
        let session = self.ready().await?;
        let since = manner.since.unwrap_or_else(Instant::now);
        let deadline = Deadline::after(limit.saturating_sub(since.elapsed()));
        let mut asked = Cow::Borrowed(params);
        let mut rounds = 0;
        while rounds < INPUT_ROUNDS {
            let result = self.attempt(&session, method, &asked, (since, limit), manner).await?;
            if matches!(manner.signed, RequestSignature::Already) {
                return Ok(result);
            }
            // Only a stateless server asks for the same request again.
            let input_requests =
                session.revision.is_stateless().then(|| InputRequest::read(&result)).flatten();
            let Some(input_request) = input_requests else { return Ok(result) };
            let is_ours = input_request.is_of_unhang();
            // An older server behind another unhang asks as often as it likes, as it does without one.
            rounds += usize::from(!is_ours);
            let InputRequest { input_requests, request_state } = input_request;
            let doubted = async {
                match is_ours {
                    true => self.doubted.notified().await,
                    false => pending().await,
                }
            };
            let inputs = async {
                tokio::select! {
                    inputs = self.inputs(method, input_requests, manner.asides.as_ref()) => inputs,
                    // The repeated request shows whether the call is still there.
                    () = doubted => Ok("{}".to_owned()),
                }
            };
            let inputs = deadline.timeout(inputs).await.map_err(|_| self.unanswered(method, limit))??;
            let again = Splice::new(Json::new(params.as_bytes()).unwrap_or(Json::EMPTY))
                .set("inputResponses", inputs);
            let again = match request_state {
                Some(state) => again.set("requestState", state.to_string()),
                None => again,
            };
            // The params are an object.
            asked = again.apply().unwrap_or_default();
        }
        let happened = format!(
            "`{}` asked for more input {INPUT_ROUNDS} times before it answered `{method}`",
            self.name
        );
        Err(self.failure(FaultKind::BadResponse, method, happened, "this is a fault of the server"))
    }

    /// Sends one of the requests that an answer may take. The limit counts from `since`, and is one for all of them.
    async fn attempt(
        &self,
        session: &ServerInfo,
        method: &str,
        params: &str,
        (since, limit): (Instant, Duration),
        manner: &CallOptions,
    ) -> Result<Box<RawValue>, Error> {
        let deadline = Deadline::after(limit.saturating_sub(since.elapsed()));
        let request = |mut mirrored: Vec<(String, String)>| {
            let CallOptions { progress, asides, session, signed, headers, sent, stream, .. } = manner.clone();
            mirrored.extend(headers);
            let (method, params) = (method.into(), params.to_owned());
            self.link.request(ActorRequest {
                method,
                params,
                since,
                limit,
                progress,
                asides,
                session,
                signed,
                mirrored,
                sent,
                stream,
            })
        };
        let Some(mirrors) = self.mirrors.as_ref().filter(|_| session.revision.is_stateless()) else {
            return request(Vec::new()).await;
        };
        let mirrored = mirrors.of_request(self, method, params, deadline).await?;
        let outcome = request(mirrored.clone()).await;
        let is_mismatch = matches!(&outcome, Err(Error::Server(error)) if error.code == HEADER_MISMATCH && method == "tools/call");
        if !is_mismatch {
            return outcome;
        }
        // The tool may have changed since it was listed; the server carried nothing out then. The leading window also passes on this code of
        // an older server, which may have carried the call out. With the same headers, that is the reason.
        mirrors.forget();
        let changed = mirrors.of_request(self, method, params, deadline).await?;
        if changed == mirrored && mirrors.are_of_leader { outcome } else { request(changed).await }
    }

    /// Collects the answers to the questions that a server asks before it answers, as a JSON object.
    async fn inputs(
        &self,
        method: &str,
        input_requests: Map<String, Value>,
        asides: Option<&SideMessageSender>,
    ) -> Result<String, Error> {
        let mut inputs = BTreeMap::new();
        for (key, request) in input_requests {
            let asked = request["method"].as_str().unwrap_or_default().to_owned();
            let params = to_raw_value(&request["params"]).ok();
            let answer = match asides {
                Some(asides) => {
                    question::ask(asides, asked.clone(), params).await.map_err(|error| error.message)
                }
                None => {
                    let answer = self.listener.asked(asked.clone(), params).await;
                    answer.map(|answer| answer.to_string()).map_err(|error| error.message)
                }
            };
            let answer = answer.map(RawValue::from_string);
            match answer {
                Ok(Ok(answer)) => drop(inputs.insert(key, answer)),
                other => {
                    let why = match other {
                        Err(why) => why,
                        Ok(_) => "the answer to its question is not JSON".to_owned(),
                    };
                    let happened =
                        format!("`{}` asks for `{asked}` before it answers `{method}`, and {why}", self.name);
                    let hint = "call it from a client that can answer";
                    return Err(self.failure(FaultKind::Cancelled, method, happened, hint));
                }
            }
        }
        Ok(serde_json::to_string(&inputs).unwrap_or_default())
    }

    /// Makes the error for a question of the server that got no answer in the time that the request had.
    fn unanswered(&self, method: &str, limit: Duration) -> Error {
        let happened = format!(
            "`{}` asked for input before it answered `{method}`, and got none within {}",
            self.name,
            in_words(limit)
        );
        self.failure(FaultKind::Deadline, method, happened, "answer sooner, or raise --call-timeout")
    }

    fn failure(&self, kind: FaultKind, method: &str, happened: String, hint: &str) -> Error {
        let method = Some(method.to_owned());
        let hint = hint.to_owned();
        Failure { kind, server: self.name.to_string(), method, happened, hint, ..Failure::ended() }.into()
    }

    /// Calls a tool, and returns its result as received, even if it says `isError`.
    ///
    /// # Errors
    /// Fails as [`Client::request`] does.
    pub async fn call_tool(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        options: &RequestOptions,
    ) -> Result<Box<RawValue>, Error> {
        self.request("tools/call", object(json!({ "name": tool, "arguments": arguments })), options).await
    }

    /// Reads a resource.
    ///
    /// # Errors
    /// Fails as [`Client::request`] does.
    pub async fn read_resource(&self, uri: &str, options: &RequestOptions) -> Result<Box<RawValue>, Error> {
        self.request("resources/read", object(json!({ "uri": uri })), options).await
    }

    /// Gets a prompt.
    ///
    /// # Errors
    /// Fails as [`Client::request`] does.
    pub async fn get_prompt(
        &self,
        prompt: &str,
        arguments: Map<String, Value>,
        options: &RequestOptions,
    ) -> Result<Box<RawValue>, Error> {
        self.request("prompts/get", object(json!({ "name": prompt, "arguments": arguments })), options).await
    }

    /// Asks how an argument of a prompt or of a resource template could go on. `reference` is `{"type": "ref/prompt", "name": ...}` or
    /// `{"type": "ref/resource", "uri": ...}`.
    ///
    /// # Errors
    /// Fails as [`Client::request`] does.
    pub async fn complete(
        &self,
        reference: Value,
        argument: &str,
        begun: &str,
        options: &RequestOptions,
    ) -> Result<Box<RawValue>, Error> {
        let argument = json!({ "name": argument, "value": begun });
        self.request(
            "completion/complete",
            object(json!({ "ref": reference, "argument": argument })),
            options,
        )
        .await
    }

    /// Subscribes to changes from now on.
    ///
    /// # Errors
    /// Fails as [`Client::request`] does; also if the server does not acknowledge the subscription in time.
    pub async fn subscribe(&self, topics: Topics, options: &RequestOptions) -> Result<Subscription, Error> {
        Subscription::begin(self, topics, options).await
    }

    /// Asks for a sign of life, and returns how long it took. Sends `ping`, or `server/discover` to a stateless server, which has no
    /// `ping`.
    ///
    /// # Errors
    /// Fails as [`Client::request`] does.
    pub async fn ping(&self, options: &RequestOptions) -> Result<Duration, Error> {
        let session = self.ready().await?;
        let method = if session.revision.is_stateless() { "server/discover" } else { "ping" };
        let begin = Instant::now();
        self.request(method, Map::new(), options).await?;
        Ok(begin.elapsed())
    }

    /// Ends the server, and waits for that within its limits. Returns true when everything that belongs to it has gone; otherwise its
    /// lifeline goes on without this process. May be called any number of times.
    pub async fn dispose(&self) -> bool {
        self.dispose_by(Deadline::after(self.limits.stop_limit() + STOP_SLACK)).await
    }

    /// Ends the server as [`dispose`](Self::dispose) does, and waits for that until the deadline.
    pub async fn dispose_by(&self, deadline: Deadline) -> bool {
        self.link.stop(deadline).await
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Client")
            .field("name", &self.name)
            .field("link", &self.link)
            .finish_non_exhaustive()
    }
}

/// A result that asks for input instead of being one (protocol.md 1.3).
struct InputRequest {
    input_requests: Map<String, Value>,
    request_state: Option<Value>,
}

impl InputRequest {
    fn read(result: &RawValue) -> Option<Self> {
        // The search is cheap, and nearly no result contains this.
        memchr::memmem::find(result.get().as_bytes(), b"input_required")?;
        let mut members: Map<String, Value> = serde_json::from_str(result.get()).ok()?;
        if members.get("resultType")?.as_str()? != "input_required" {
            return None;
        }
        let input_requests = match members.remove("inputRequests") {
            Some(Value::Object(requests)) => requests,
            _ => Map::new(),
        };
        Some(Self { input_requests, request_state: members.remove("requestState") })
    }

    /// Returns whether the request comes from an unhang gateway. Only a gateway repeats the question for which a request came back.
    fn is_of_unhang(&self) -> bool {
        self.request_state.as_ref().and_then(Value::as_str).is_some_and(|state| state.starts_with(STATE))
    }
}

/// Returns the name and version of unhang, for a server.
fn introduced() -> Value {
    json!({ "name": "unhang", "version": env!("CARGO_PKG_VERSION") })
}

/// Returns the members of a value that is written as an object.
fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}
