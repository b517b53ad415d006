//! The call holder: the process that goes on with the calls of a server whose guard has ended.
//!
//! ```text
//! owner ── HolderPlan::words ──► lifeline (unhang_proc: keeps pipes, journals and this command)
//!   ✝ ──────────────────────────► call_holder::run ─┬ Engine::resume: the jobs, from the data folder
//!                                                    ├ ResumedServer::resume: the server, from its pipes
//!                                                    └ PromotedCalls: each job to its end ─► the server's stop ladder ─► exit
//! ```
//!
//! # Theory of operation
//!
//! A guard and its lifeline agree on a call holder before the id of a job goes out. While the guard lives, nothing of the call holder exists
//! but its command line in the memory of the lifeline. The call holder is unhang's own binary. It makes a client of the running server, and
//! follows each job as the guard would have. A call of the plan whose job has ended meanwhile is cancelled at the server, unless the server
//! has answered it.
//!
//! # Invariants
//!
//! - A job is followed only after this process holds it, so two processes never settle the same job.
//! - The server is read as soon as this process holds the jobs. Until then, what it says waits in its pipe and in the journal.
//! - The call holder ends when no job is left, and the server ends with it. If the call holder fails, the lifeline ends the server.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    pin::Pin,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use serde_json::{Value, json, value::RawValue};
use tokio::{
    runtime::Builder,
    sync::{mpsc, oneshot, watch},
    task::spawn_blocking,
    time::{Instant, sleep},
};
use unhang_bridge::{Era, params::Signature};
use unhang_jobs::{
    engine::{CallEnd, Engine, EngineOptions, HeldCall, JobStatus},
    error::JobError,
    folder::presence::{AWAY_LIMIT, is_away},
    id::JobId,
    record::{EndReason, Holder, JobEnd},
    shims::ShimCommand,
    timestamp::JobTimestamp,
};
use unhang_proc::{
    deadline::Deadline,
    pipe::PipeWriter,
    server::{HandOver, ResumeError, Server},
    unnamed_file::{FilePart, UnnamedFile},
};

use crate::{
    CallSource, FollowedJob, PendingCall, PromotedCalls, RunningCall, WhoIsAsked, advice, store_end,
};
use unhang_core::revision::Revision;
use unhang_gateway::ServerAnswer;
use unhang_upstream::{
    client::{
        CallOptions, Client, DecliningListener, Error, Failure, RequestSignature, ResumedAnswer,
        ResumedRequest, ResumedServer,
    },
    handshake::ServerInfo,
    keeping::{HolderPlan, KeptCall, PlanError},
    question::{ASIDES, OfSession},
};

/// The hidden first argument of the process.
pub const ARGUMENT: &str = "mcp-call-holder";

/// The exit code for arguments that make no sense: only a lifeline is meant to start a call holder.
const USAGE: u8 = 2;

/// The time for which a data folder is tried that cannot be opened, as on a full disk.
const OPEN_LIMIT: Duration = Duration::from_secs(60);

/// The pause between two tries to open the data folder.
const OPEN_PAUSE: Duration = Duration::from_secs(1);

/// The pause between two looks for a data folder that is away.
const FOLDER_LOOK: Duration = Duration::from_millis(50);

/// The time in which the kernel frees the locks of a guard that has ended.
const RESUME_LIMIT: Duration = Duration::from_secs(10);

/// The reason why a call holder cannot go on with a server. The lifeline then ends the server, and the next process that uses the data
/// folder says how the jobs ended.
#[derive(Debug, thiserror::Error)]
pub enum CallHolderError {
    /// The plan cannot be read.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The plan names a revision of MCP that this version does not know.
    #[error("its plan names a revision of MCP that this version of unhang does not know")]
    Revision,
    /// The server cannot be taken over.
    #[error(transparent)]
    Resume(#[from] ResumeError),
    /// The system has no means for the process.
    #[error("the system refuses a step: {0}")]
    System(io::Error),
    /// The data folder is not there any more.
    #[error("the data folder {} was moved or removed", .0.display())]
    NoFolder(PathBuf),
    /// The data folder cannot be opened, or its last changes do not reach the disk.
    #[error("the data folder cannot be used: {0}")]
    Jobs(JobError),
}

/// Runs a call holder and returns its exit code. `words` are those after [`ARGUMENT`]; `shim` runs unhang's own binary as a supervisor of
/// jobs. Call it before anything else opens a descriptor.
///
/// The process has no terminal, so the caller opens a log: `begin` gets the plan before anything else happens. `run` keeps the result of
/// `begin` until the process ends.
pub fn run<L>(
    words: impl Iterator<Item = OsString>,
    shim: ShimCommand,
    begin: impl FnOnce(&HolderPlan) -> L,
) -> ExitCode {
    let mut log = None;
    match hold(words, shim, |plan| log = Some(begin(plan))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("the call holder cannot go on with its server: {error}");
            match error {
                CallHolderError::Plan(_) => ExitCode::from(USAGE),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

fn hold(
    words: impl Iterator<Item = OsString>,
    shim: ShimCommand,
    begin: impl FnOnce(&HolderPlan),
) -> Result<(), CallHolderError> {
    let mut words = words.peekable();
    let plan = HolderPlan::parse(&mut words)?;
    // One thread is enough: the server's pipes and the disk are the only sources of events.
    let runtime = Builder::new_current_thread().enable_all().build().map_err(CallHolderError::System)?;
    // The log would make a data folder in the place of one that is being moved.
    runtime.block_on(until_present(&plan.data_folder))?;
    begin(&plan);
    let hand_over = HandOver::parse(words)?;
    runtime.block_on(follow_all(plan, hand_over, shim))
}

/// Goes on with the calls of the plan until each job has ended, and then ends the server.
async fn follow_all(plan: HolderPlan, hand_over: HandOver, shim: ShimCommand) -> Result<(), CallHolderError> {
    let HolderPlan { data_folder, server, calls } = plan;
    let keeper = Holder::here(hand_over.lifeline()).map_err(CallHolderError::System)?;
    let revision = server.revision().ok_or(CallHolderError::Revision)?;
    // The jobs name the lifeline as their keeper, so it stays until this process holds them.
    let lifeline = hand_over.hold_lifeline().map_err(CallHolderError::System)?;
    let (process, stderr) = Server::resume(hand_over)?;
    // The process waits, perhaps for hours.
    let options = EngineOptions::new(data_folder, shim);
    let engine = open(EngineOptions { keeps_recorded_limits: true, rests: true, ..options }).await?;
    let (mut resumed, mut unwanted, mut answered) = (Vec::new(), Vec::new(), Vec::new());
    let accepted = process.input.as_ref().map_or(0, PipeWriter::accepted);
    for mut call in calls {
        // The owner was killed when it made the next request of the job, and the server has that or has not.
        answered.extend(call.go_on(accepted));
        match resume(&engine, call.job, &keeper).await {
            Ok(Some((held, status))) if call.is_sent => resumed.push((call, held, status)),
            Ok(Some((held, status))) => {
                settle_unsent(held, &status).await;
                unwanted.push(call);
            }
            Ok(None) if has_answered(&engine, call.job).await => answered.push(call.id),
            // The job was cancelled or its time was over, or nobody was told of it, or it was never left to this process.
            Ok(None) | Err(JobError::NotKept { .. }) => unwanted.push(call),
            Err(error) => {
                tracing::warn!(job = call.job.as_str(), "unhang cannot go on with the job: {error}");
            }
        }
    }
    drop(lifeline);
    tracing::info!("goes on with {} jobs of `{}`, whose owner has ended", resumed.len(), server.name);
    let requests = resumed.iter().map(|(call, _, status)| (request_of(call, status), call.session()));
    let unwanted = unwanted.iter().map(|call| (unwanted_request(call), call.session()));
    let requests = requests.chain(unwanted).collect();
    let resumed_server = ResumedServer {
        name: server.name.clone(),
        limits: server.limits(),
        listener: Arc::new(DecliningListener),
        process,
        stderr,
        info: ServerInfo::read(revision, RawValue::NULL),
        folder: engine.options().folder.clone(),
        answered,
    };
    let (client, mut answers) = resumed_server.resume(requests);
    // The server is told that nobody waits for these.
    answers.truncate(resumed.len());
    let era = if revision.is_stateless() { Era::Modern } else { Era::Legacy };
    let promoted_calls = PromotedCalls::new(engine.clone());
    for ((call, held, status), answer) in resumed.into_iter().zip(answers) {
        let mut source = ResumedSource {
            client: client.clone(),
            era,
            session: call.session(),
            signed: signature_of(&call.who, era),
            long_result: None,
        };
        let params = params_of(&engine, &status).await;
        let running_call = RunningCall { params, way: source.pending(answer), source: Box::new(source) };
        let is_repeatable = status.record.call.is_some_and(|call| call.is_repeatable);
        let roots = server.roots.of(call.client).map(|roots| roots.to_string().into());
        let _end = promoted_calls.go_on(
            held,
            running_call,
            FollowedJob { who: call.who, session: None, is_repeatable, roots, is_of_call_holder: true },
        );
    }
    promoted_calls.until_all_have_ended().await;
    client.dispose().await;
    engine.close().await.map_err(CallHolderError::Jobs)
}

/// Ends a job whose server had not got the call when unhang was ended, as far as the plan says. Its client was not told of it.
async fn settle_unsent(held: HeldCall, status: &JobStatus) {
    let is_repeatable = status.record.call.as_ref().is_some_and(|call| call.is_repeatable);
    let end = CallEnd::Failed {
        reason: EndReason::UnhangEnded,
        detail: format!("unhang was ended while it sent the call to its server; {}", advice(is_repeatable)),
        error: None,
    };
    store_end(held, end).await;
}

/// Makes this process the holder of a job. Waits as long as the disk or the database fails; the server waits too once its pipe is full. If
/// the data folder is away, it waits for [`AWAY_LIMIT`].
async fn resume(
    engine: &Engine,
    job: JobId,
    keeper: &Holder,
) -> Result<Option<(HeldCall, JobStatus)>, JobError> {
    let mut is_told = false;
    loop {
        match engine.resume(job, keeper, Deadline::after(RESUME_LIMIT)).await {
            Err(JobError::DataFolderGone { id, path, away }) if away >= AWAY_LIMIT => {
                return Err(JobError::DataFolderGone { id, path, away });
            }
            Err(error) if error.is_of_the_disk() => {
                if !std::mem::replace(&mut is_told, true) {
                    tracing::warn!(
                        job = job.as_str(),
                        "unhang tries every second to go on with the job: {error}"
                    );
                }
            }
            resumed => return resumed,
        }
        sleep(OPEN_PAUSE).await;
    }
}

/// Waits for a data folder that somebody may be moving. Touches nothing.
async fn until_present(folder: &Path) -> Result<(), CallHolderError> {
    let until = Deadline::after(AWAY_LIMIT);
    while is_away(folder) {
        if until.is_past() {
            return Err(CallHolderError::NoFolder(folder.to_owned()));
        }
        sleep(FOLDER_LOOK).await;
    }
    Ok(())
}

fn is_read_only(folder: &Path) -> bool {
    UnnamedFile::create(folder).is_err_and(|error| error.kind() == io::ErrorKind::ReadOnlyFilesystem)
}

/// Opens the data folder. A disk that is full for a moment may let that fail.
async fn open(options: EngineOptions) -> Result<Engine, CallHolderError> {
    // SQLite shares what it knows of a database among all its connections in a process. One that was opened on a read-only disk never writes.
    let mut is_told = false;
    while is_read_only(&options.folder) {
        if !std::mem::replace(&mut is_told, true) {
            tracing::warn!("unhang tries every second to open the data folder: its disk is read-only");
        }
        sleep(OPEN_PAUSE).await;
    }
    is_told = false;
    let until = Instant::now() + OPEN_LIMIT;
    loop {
        if !options.folder.is_dir() {
            // The engine would make an empty folder, and the ends of the jobs would be in the wrong place.
            return Err(CallHolderError::NoFolder(options.folder));
        }
        let options = options.clone();
        let opened = spawn_blocking(move || Engine::open(options)).await;
        match opened.map_err(|error| CallHolderError::System(io::Error::other(error)))? {
            Ok((engine, _)) => return Ok(engine),
            Err(error) if Instant::now() >= until && !error.is_for_lack_of_room() => {
                return Err(CallHolderError::Jobs(error));
            }
            Err(error) => {
                if !std::mem::replace(&mut is_told, true) {
                    tracing::warn!("unhang tries every second to open the data folder: {error}");
                }
            }
        }
        sleep(OPEN_PAUSE).await;
    }
}

/// Returns the request of a call, as the guard has sent it.
fn request_of(call: &KeptCall, status: &JobStatus) -> ResumedRequest {
    let limit = status.record.timeout().unwrap_or(Duration::MAX);
    let left = status.time_left(JobTimestamp::now()).unwrap_or(limit);
    ResumedRequest {
        id: call.id.clone(),
        token: call.token.clone(),
        method: "tools/call".into(),
        elapsed: limit.saturating_sub(left),
        limit,
    }
}

/// Returns whether the server has ended this job by its answer.
async fn has_answered(engine: &Engine, job: JobId) -> bool {
    // A job that cannot be read was removed.
    let ending = engine.status(job).await.ok().and_then(|status| status.record.ending);
    ending.is_some_and(|ending| match ending.outcome {
        JobEnd::Completed => true,
        _ => matches!(ending.reason, Some(EndReason::ServerError | EndReason::ToolError)),
    })
}

/// Returns the request of a call for whose answer nobody waits any more.
fn unwanted_request(call: &KeptCall) -> ResumedRequest {
    ResumedRequest {
        id: call.id.clone(),
        token: call.token.clone(),
        method: "tools/call".into(),
        elapsed: Duration::ZERO,
        limit: RESUME_LIMIT,
    }
}

/// Returns the params of a call, for a request that repeats it with the input that its server wants.
async fn params_of(engine: &Engine, status: &JobStatus) -> Arc<str> {
    let Some(call) = &status.record.call else { return "{}".into() };
    let arguments = engine.call_arguments(status.record.job_id).await.unwrap_or_else(|error| {
        tracing::warn!(
            job = status.record.job_id.as_str(),
            "the arguments of the call cannot be read: {error}"
        );
        None
    });
    let arguments = arguments.map_or_else(String::new, |arguments| {
        // The file ends with a line feed, which would end the message.
        format!(r#","arguments":{}"#, arguments.trim_end())
    });
    format!(r#"{{"name":{}{arguments}}}"#, Value::from(call.tool.as_str())).into()
}

/// Returns the identity under which a request of a call is made once more: a stateless server asks its client only what that client
/// declares. It declares no extension, because a call holder follows no task of a server, and no model.
fn signature_of(who: &WhoIsAsked, era: Era) -> RequestSignature {
    let WhoIsAsked::Followers(capabilities) = who else { return RequestSignature::ByUs };
    let Some(Value::Object(mut capabilities)) =
        serde_json::from_str(capabilities).ok().filter(|_| era == Era::Modern)
    else {
        return RequestSignature::ByUs;
    };
    capabilities.retain(|name, _| !["extensions", "sampling"].contains(&name.as_str()));
    RequestSignature::By(Arc::new(Signature {
        revision: Revision::V2026July.name(),
        client_info: json!({ "name": "unhang", "version": env!("CARGO_PKG_VERSION") }).to_string(),
        client_capabilities: Value::Object(capabilities).to_string(),
        log_level: None,
    }))
}

/// The sender of a call's requests to a server that was taken over.
struct ResumedSource {
    client: Client,
    era: Era,
    session: Option<OfSession>,
    signed: RequestSignature,
    /// The result of the request that was taken over, if it is long; `None` once another request was made.
    long_result: Option<oneshot::Receiver<FilePart>>,
}

impl ResumedSource {
    fn pending(&mut self, answer: ResumedAnswer) -> PendingCall {
        let ResumedAnswer { outcome, progress, asides, long_result } = answer;
        self.long_result = Some(long_result);
        let (era, client) = (self.era, self.client.clone());
        let answering = Box::pin(async move {
            // The server lives as long as one of its calls.
            let _client = client;
            ServerAnswer { era, server_info: None, outcome: outcome.await, asked_for: None }
        });
        PendingCall { answering, seen: progress, said: asides }
    }
}

impl CallSource for ResumedSource {
    fn ask(&mut self, params: Arc<str>) -> PendingCall {
        self.long_result = None;
        let (client, era) = (self.client.clone(), self.era);
        let (progress, seen) = watch::channel(None);
        let (asides, said) = mpsc::channel(ASIDES);
        let options = CallOptions {
            timeout: Some(client.limits().job_timeout),
            progress: Some(progress),
            asides: Some(asides),
            session: self.session,
            signed: self.signed.clone(),
            ..CallOptions::default()
        };
        let answering = Box::pin(async move {
            let outcome = client.ask("tools/call", &params, &options).await;
            ServerAnswer { era, server_info: None, outcome, asked_for: None }
        });
        PendingCall { answering, seen, said }
    }

    fn long_result(&mut self) -> Option<FilePart> {
        self.long_result.take()?.try_recv().ok()
    }

    fn server_over(&self) -> Pin<Box<dyn Future<Output = ServerAnswer> + Send>> {
        let (client, era) = (self.client.clone(), self.era);
        Box::pin(async move {
            client.ended().await;
            let outcome = Err(Error::Failure(client.why_over().unwrap_or_else(Failure::ended).into()));
            ServerAnswer { era, server_info: None, outcome, asked_for: None }
        })
    }
}
