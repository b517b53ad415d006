//! Puts a request to a server, once it is ready and it is the caller's turn.
//!
//! Invariants
//!
//! - A request that a server has not had is not lost with it: it waits for the next one, for as long as it may.
//! - Whoever waits for a server to start keeps no turn meanwhile but that of the server's own places.

use std::sync::Arc;

use tokio::{sync::mpsc, time::Instant};
use unhang_bridge::{Era, params};
use unhang_proc::deadline::Deadline;
use unhang_switches::stands;
use unhang_wire::Json;

use super::{
    ProgressSender, ServerAnswer, ServerRequest, SideMessage,
    admission_limits::Acquire,
    backend::Backend,
    caller_errors::{TimeSpent, explained, named},
    lifecycle::StartReason,
    owners,
    permits::PermitQueue,
    task_news::{CallStage, TaskNews},
    tasks::TaskPoller,
    verdicts,
};
use unhang_upstream::{
    client::{CallOptions, Error, Signed},
    http::headers::CallLimit,
};

/// Puts a question to a server, once it is ready and it is this caller's turn.
pub(super) async fn dispatch(
    backend: &Arc<Backend>,
    all: &Arc<PermitQueue>,
    asked: ServerRequest,
    progress: Option<ProgressSender>,
    asides: Option<mpsc::Sender<SideMessage>>,
    news: Option<TaskNews>,
) -> ServerAnswer {
    let ServerRequest {
        method,
        params,
        client,
        signature,
        tool,
        limit,
        waited,
        asked_for,
        fairness_key,
        may_wait,
        session: key,
        ..
    } = asked;
    let mut answered =
        ServerAnswer { era: client, server_info: None, outcome: Err(Error::Disposed), asked_for };
    let now = Instant::now();
    let (since, deadline) =
        (now.checked_sub(waited).unwrap_or(now), Deadline::after(limit.saturating_sub(waited)));
    let _use = backend.used();
    let acquire = Acquire {
        fairness_key: &fairness_key,
        session: key,
        method,
        tool: tool.as_deref(),
        limit,
        deadline,
        since: now,
    };
    // Before anything else, so that what is waited for longest is not what grew old meanwhile.
    let comes_to = |stage| news.as_ref().map(|news| news.comes_to(stage)).unwrap_or_default();
    let mut spent = TimeSpent::default();
    let turn = backend.admission.turn(&acquire).await;
    spent.in_line += now.elapsed();
    let _turn = match turn {
        Ok(turn) => turn,
        Err(error) => {
            answered.outcome = Err(error);
            return answered;
        }
    };
    let (asks, session, legacy, asides, signed, asked, _turns) = loop {
        // A server that is still starting has its own deadline, which may be longer than this caller's.
        comes_to(CallStage::Starting);
        let wanted = Instant::now();
        let ready = deadline.timeout(backend.ready(StartReason::Request)).await;
        spent.starting += wanted.elapsed();
        let ready = ready.unwrap_or_else(|_| Err(verdicts::still_starting(backend.name(), method, limit)));
        let (asks, session) = match ready {
            Ok(ready) => ready,
            Err(error) => {
                backend.note(&error);
                answered.outcome = Err(named(error, method, since));
                return answered;
            }
        };
        answered.era = session.revision.era();
        let server_info =
            session.server_info.as_ref().filter(|_| (client, answered.era) == (Era::Modern, Era::Legacy));
        answered.server_info = server_info.map(ToString::to_string);
        let legacy = Json::new(params.as_bytes())
            .filter(|_| (client, answered.era) == (Era::Modern, Era::Legacy))
            .and_then(|params| params::to_legacy(Some(params)));
        if legacy.is_some() && answers_nothing(&params) {
            answered.outcome = Err(verdicts::no_such_question(backend.name(), method));
            return answered;
        }
        let (asides, signed) = match (client, &signature) {
            // One that speaks as the server does answers what it is asked in its own way.
            (Era::Modern, _) if answered.era == Era::Modern => (asides.clone(), Signed::Already),
            (Era::Legacy, Some(signature)) => (asides.clone(), Signed::By(Arc::clone(signature))),
            (Era::Modern, _) => (asides.clone(), Signed::ByUs),
            (Era::Legacy, None) => (None, Signed::ByUs),
        };
        comes_to(CallStage::InLine);
        let wanted = Instant::now();
        let admission = backend.admission.turns_once_ready(answered.era, all, &acquire).await;
        let asked = Instant::now();
        spent.in_line += asked - wanted;
        let admission =
            match admission.and_then(|admission| backend.admission.in_time(&acquire).map(|()| admission)) {
                Ok(admission) => admission,
                Err(error) => {
                    answered.outcome = Err(error);
                    return answered;
                }
            };
        if asks.is_usable() {
            break (asks, session, legacy, asides, signed, asked, admission);
        }
        // It has ended while this request waited for its turn, and never had it: the next one has it instead.
    };
    let params = legacy.as_deref().unwrap_or(&params);
    let poller = tool
        .as_deref()
        .and_then(|tool| TaskPoller::of(backend, &session, tool, params, &signed, asides.as_ref(), may_wait))
        .map(|poller| poller.asked_in(key));
    let as_task = poller.as_ref().and_then(|poller| poller.params(params, may_wait));
    let signed = poller.as_ref().map_or(signed, TaskPoller::signed);
    let call_limit = (method == "tools/call").then(|| CallLimit { limit, waited: since.elapsed() });
    let headers = if backend.is_gateway() { owners::headers(key, call_limit) } else { Vec::new() };
    let manner = CallOptions {
        timeout: Some(if backend.is_gateway() { owners::patience_for(limit) } else { limit }),
        since: Some(since),
        progress,
        asides,
        session: key,
        signed,
        headers,
    };
    let trial = backend.trial();
    comes_to(if backend.is_gateway() { CallStage::Elsewhere } else { CallStage::Asked });
    answered.outcome = asks.ask(method, as_task.as_deref().unwrap_or(params), &manner).await;
    answered.outcome = answered.outcome.map_err(|error| explained(error, spent, asked));
    trial.ended(&answered.outcome);
    if let Some(poller) = poller {
        answered.outcome = poller.told_to(news).follow(answered.outcome, deadline).await;
    }
    answered
}

/// Whether params answer what nobody has asked: a server of old asks nothing by its results.
fn answers_nothing(params: &str) -> bool {
    let params = Json::new(params.as_bytes());
    let has = |member| params.is_some_and(|params| params.member(member).is_some());
    (has("requestState") || has("inputResponses")) && stands("answers-to-nothing-refused")
}
