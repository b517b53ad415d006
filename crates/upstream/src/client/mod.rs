//! The client: any MCP server, asked from Rust, with an end to every wait.
//!
//! A [`Client`] is one server. It is started at once and shaken hands with in the background; every request waits for that first.
//! A [`ServerPool`] is several by name, each started when it is first asked, with one connection however many calls run.
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
//! - Every wait ends: by an answer, an error or a limit (L-62). Dropping it withdraws the request.
//! - Answers are matched by id alone, so calls run side by side and never meet each other's answers.
//! - [`Client::dispose`] and [`ServerPool::dispose`] end by themselves, in time, however often and wherever they are called (C-47 to C-61).
//! - Results are what the server wrote, byte for byte.

mod background;
pub mod in_words;
mod job_resource;
mod lists;
mod mirrors;
mod pool;
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
use unhang_switches::stands;
use unhang_wire::Json;

use self::mirrors::Mirrors;
pub use self::{
    job_resource::JobResource,
    pool::{DisposeOutcome, ServerPool},
    subscription::{Subscription, Topics},
};
pub use unhang_net::http::Address;

use crate::{
    ActorRequest, UpstreamHandle,
    handshake::{HEADER_MISMATCH, Introduction},
    http,
    question::{self, OfSession, STATE, SideMessageSender},
    stdio,
    upstream_session::UpstreamConfig,
};
pub use crate::{LISTEN, ProgressSender, RequestSignature};
pub use crate::{
    handshake::ServerInfo,
    http::HttpServer,
    listener::{DecliningListener, ListenerAnswer, ServerListener, declined},
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

/// How a server is reached.
#[derive(Clone, Debug)]
pub enum Endpoint {
    /// A command that speaks over its stdin and stdout.
    Stdio(ServerSpec),
    /// A server somewhere, over HTTP.
    Http(HttpServer),
}

/// What a client needs.
#[derive(Clone)]
pub struct ClientSpec {
    /// What the server is called in errors and logs.
    pub name: String,
    /// How it is reached.
    pub endpoint: Endpoint,
    /// Its limits.
    pub limits: Limits,
    /// Who hears its notifications and answers its questions.
    pub listener: Arc<dyn ServerListener>,
}

/// How one request is made.
#[derive(Clone, Debug, Default)]
pub struct RequestOptions {
    /// How long it may take; the server's limits say it where this does not (L-20).
    pub timeout: Option<Duration>,
    /// From when on that counts; from when the server is ready, where this says nothing.
    pub since: Option<Instant>,
    /// Where its newest progress is put, as received. Without it the server is not asked for any.
    pub progress: Option<ProgressSender>,
    /// Where it is put what the server goes on with in the background while that is followed to its end, as a job of ours.
    pub background: Option<watch::Sender<Option<UnfinishedCall>>>,
}

/// How a request is made, also for somebody else.
#[derive(Clone, Debug, Default)]
pub struct CallOptions {
    /// As in [`RequestOptions`].
    pub timeout: Option<Duration>,
    /// As in [`RequestOptions`].
    pub since: Option<Instant>,
    /// As in [`RequestOptions`].
    pub progress: Option<ProgressSender>,
    /// Who hears and answers what the server says and asks beside; the listener where there is nobody.
    pub asides: Option<SideMessageSender>,
    /// The session that asks, where it is one.
    pub session: Option<OfSession>,
    /// As whom a stateless server is asked.
    pub signed: RequestSignature,
    /// What a stateless server over HTTP is told in headers besides.
    pub headers: Vec<(String, String)>,
}

impl From<&RequestOptions> for CallOptions {
    fn from(options: &RequestOptions) -> Self {
        let RequestOptions { timeout, since, progress, background: _ } = options.clone();
        CallOptions { timeout, since, progress, ..CallOptions::default() }
    }
}

/// One server. Clones are the same server; when all have gone, it is ended.
#[derive(Clone)]
pub struct Client {
    name: Arc<str>,
    limits: Limits,
    listener: Arc<dyn ServerListener>,
    link: UpstreamHandle,
    /// What of its tools' arguments goes along as headers, where it is spoken to over HTTP.
    mirrors: Option<Arc<Mirrors>>,
    /// Rung when a subscription has broken off, so that another process may be there now.
    doubted: Arc<Notify>,
}

impl Client {
    /// Starts the server and returns at once. Must be called in a runtime.
    #[must_use]
    pub fn start(spec: ClientSpec) -> Self {
        Self::start_knowing(spec, false)
    }

    /// The same with a server of which it is known whether it was found to know handshakes alone.
    pub fn start_knowing(spec: ClientSpec, is_legacy: bool) -> Self {
        let ClientSpec { name, endpoint, limits, listener } = spec;
        let (link, mailbox) = crate::link();
        let introduction = Introduction::new(&introduced(), &listener.capabilities().into());
        let client = Client {
            name: name.as_str().into(),
            limits: limits.clone(),
            listener: listener.clone(),
            link,
            mirrors: matches!(endpoint, Endpoint::Http(_)).then(Arc::default),
            doubted: Arc::default(),
        };
        let config = UpstreamConfig { name, limits, introduction, listener, is_legacy };
        match endpoint {
            Endpoint::Stdio(server) => drop(tokio::spawn(stdio::live(server, config, mailbox))),
            Endpoint::Http(server) => drop(tokio::spawn(http::live(server, config, mailbox))),
        }
        client
    }

    /// What the server is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its limits.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Waits until the server has answered the handshake (L-12), and gives what it said.
    ///
    /// # Errors
    /// Why it will not be ready.
    pub async fn ready(&self) -> Result<Arc<ServerInfo>, Error> {
        self.link.ready().await
    }

    /// Whether it can be asked, now or when it is ready.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.link.is_usable()
    }

    /// Waits until it has answered the handshake, or will not; true when it has. Keeps nothing of it by that.
    pub fn opened(&self) -> impl Future<Output = bool> + Send + use<> {
        self.link.opened()
    }

    /// Waits until it can be asked nothing any more, and keeps nothing of it by that.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        self.link.ended()
    }

    /// Waits until everything that it was has ended, and keeps nothing of it by that.
    pub fn gone(&self) -> impl Future<Output = ()> + Send + use<> {
        self.link.gone()
    }

    /// Why it cannot be asked any more, where that is so.
    pub fn why_over(&self) -> Option<Failure> {
        self.link.why_over()
    }

    /// Asks the server anything. A request for input that comes back instead of a result is answered by the listener, and the
    /// request made again with that (2026-07-28).
    ///
    /// # Errors
    /// The server's error, or why there is no answer.
    pub async fn request(
        &self,
        method: &str,
        params: Map<String, Value>,
        options: &RequestOptions,
    ) -> Result<Box<RawValue>, Error> {
        self.ask(method, &Value::from(params).to_string(), &options.into()).await
    }

    /// The same with params that are JSON already, and go out as they are but for what the server has to be told with every request.
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
        let rounds = if stands("input-rounds-bounded") { INPUT_ROUNDS } else { usize::MAX };
        for _ in 0..rounds {
            let result = self.attempt(&session, method, &asked, (since, limit), manner).await?;
            if matches!(manner.signed, RequestSignature::Already) {
                return Ok(result);
            }
            // Only a stateless server may want the same once more.
            let input_requests =
                session.revision.is_stateless().then(|| InputRequest::read(&result)).flatten();
            let Some(InputRequest { input_requests, request_state }) = input_requests else {
                return Ok(result);
            };
            // Only a gateway of ours asks once more for what a request comes back without.
            let is_ours =
                request_state.as_ref().and_then(Value::as_str).is_some_and(|state| state.starts_with(STATE));
            let doubted = async {
                match is_ours {
                    true => self.doubted.notified().await,
                    false => pending().await,
                }
            };
            let inputs = async {
                tokio::select! {
                    inputs = self.inputs(method, input_requests, manner.asides.as_ref()) => inputs,
                    // Whether the call is there still is to be seen.
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
            // Params are an object.
            asked = again.apply().unwrap_or_default();
        }
        let happened = format!(
            "`{}` asked for more input {INPUT_ROUNDS} times before it answered `{method}`",
            self.name
        );
        Err(self.failure(FaultKind::BadResponse, method, happened, "this is a fault of the server"))
    }

    /// One request of those that an answer may take. Its limit counts from then, and is one for all that it takes.
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
            let CallOptions { progress, asides, session, signed, headers, .. } = manner.clone();
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
            })
        };
        let Some(mirrors) = self.mirrors.as_ref().filter(|_| session.revision.is_stateless()) else {
            return request(Vec::new()).await;
        };
        let mirrored = mirrors.of_request(self, method, params, deadline).await?;
        match request(mirrored).await {
            // The tool has changed since it was listed; nothing was carried out.
            Err(Error::Server(error)) if error.code == HEADER_MISMATCH && method == "tools/call" => {
                mirrors.forget();
                let mirrored = mirrors.of_request(self, method, params, deadline).await?;
                request(mirrored).await
            }
            outcome => outcome,
        }
    }

    /// The answers to what a server wants to know before it answers, as an object in JSON.
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
                Some(asides) => question::ask(asides, asked.clone(), params).await,
                None => self.listener.asked(asked.clone(), params).await.map(|answer| answer.to_string()),
            };
            let answer = answer.map(RawValue::from_string);
            match answer {
                Ok(Ok(answer)) => drop(inputs.insert(key, answer)),
                other => {
                    let why = match other {
                        Err((_, why)) => why,
                        Ok(_) => "what was answered is no JSON".to_owned(),
                    };
                    let happened =
                        format!("`{}` asks for `{asked}` before it answers `{method}`, and {why}", self.name);
                    let hint = "call it where that can be answered";
                    return Err(self.failure(FaultKind::Cancelled, method, happened, hint));
                }
            }
        }
        Ok(serde_json::to_string(&inputs).unwrap_or_default())
    }

    /// Whoever was asked has not answered while the request could wait.
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

    /// Calls a tool, and gives its result as received; also one that says `isError`.
    ///
    /// # Errors
    /// As [`Client::request`].
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
    /// As [`Client::request`].
    pub async fn read_resource(&self, uri: &str, options: &RequestOptions) -> Result<Box<RawValue>, Error> {
        self.request("resources/read", object(json!({ "uri": uri })), options).await
    }

    /// Gets a prompt.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub async fn get_prompt(
        &self,
        prompt: &str,
        arguments: Map<String, Value>,
        options: &RequestOptions,
    ) -> Result<Box<RawValue>, Error> {
        self.request("prompts/get", object(json!({ "name": prompt, "arguments": arguments })), options).await
    }

    /// Asks how an argument of a prompt or of a resource template could go on. `reference` is `{"type": "ref/prompt", "name": ...}`
    /// or `{"type": "ref/resource", "uri": ...}`.
    ///
    /// # Errors
    /// As [`Client::request`].
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

    /// Hears of changes from now on.
    ///
    /// # Errors
    /// As [`Client::request`]; also where a server does not acknowledge it in time.
    pub async fn subscribe(&self, topics: Topics, options: &RequestOptions) -> Result<Subscription, Error> {
        Subscription::begin(self, topics, options).await
    }

    /// Asks for a sign of life, and gives how long it took: `ping`, or `server/discover` where there is no such thing any more.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub async fn ping(&self, options: &RequestOptions) -> Result<Duration, Error> {
        let session = self.ready().await?;
        let method = if session.revision.is_stateless() { "server/discover" } else { "ping" };
        let begin = Instant::now();
        self.request(method, Map::new(), options).await?;
        Ok(begin.elapsed())
    }

    /// Ends the server, and waits for that within its limits. True when everything that it was has gone; otherwise its lifeline
    /// goes on without us. May be called as often as anybody likes.
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
        // The search is cheap, and nearly no result has it.
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
}

/// Who we are.
fn introduced() -> Value {
    json!({ "name": "unhang", "version": env!("CARGO_PKG_VERSION") })
}

/// What is written as an object is one.
fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}
