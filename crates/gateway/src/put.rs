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
    Answered, Aside, Asked, Progress,
    backend::{Backend, Starter},
    lasting::{Stage, TaskNews},
    places::Places,
    tasks::Course,
    told::{Spent, explained, named},
    turns::Wanting,
};
use unhang_upstream::{
    client::{Error, Manner, Signed},
    http::headers::CallLimit,
};

/// Puts a question to a server, once it is ready and it is this caller's turn.
pub(super) async fn put(
    backend: &Arc<Backend>,
    all: &Arc<Places>,
    asked: Asked,
    progress: Option<Progress>,
    asides: Option<mpsc::Sender<Aside>>,
    news: Option<TaskNews>,
) -> Answered {
    let Asked {
        method,
        params,
        client,
        signature,
        tool,
        limit,
        waited,
        asked_for,
        asker,
        may_wait,
        session: key,
        ..
    } = asked;
    let mut answered = Answered { era: client, server_info: None, outcome: Err(Error::Disposed), asked_for };
    let now = Instant::now();
    let (since, deadline) =
        (now.checked_sub(waited).unwrap_or(now), Deadline::after(limit.saturating_sub(waited)));
    let _use = backend.used();
    let wanting =
        Wanting { asker: &asker, session: key, method, tool: tool.as_deref(), limit, deadline, since: now };
    // Before anything else, so that what is waited for longest is not what grew old meanwhile.
    let comes_to = |stage| news.as_ref().map(|news| news.comes_to(stage)).unwrap_or_default();
    let mut spent = Spent::default();
    let turn = backend.turn(&wanting).await;
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
        comes_to(Stage::Starting);
        let wanted = Instant::now();
        let ready = deadline.timeout(backend.ready(Starter::Caller)).await;
        spent.starting += wanted.elapsed();
        let ready = ready.unwrap_or_else(|_| Err(backend.still_starting(method, limit)));
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
            answered.outcome = Err(backend.no_such_question(method));
            return answered;
        }
        let (asides, signed) = match (client, &signature) {
            // One that speaks as the server does answers what it is asked in its own way.
            (Era::Modern, _) if answered.era == Era::Modern => (asides.clone(), Signed::Already),
            (Era::Legacy, Some(signature)) => (asides.clone(), Signed::By(Arc::clone(signature))),
            (Era::Modern, _) => (asides.clone(), Signed::ByUs),
            (Era::Legacy, None) => (None, Signed::ByUs),
        };
        comes_to(Stage::InLine);
        let wanted = Instant::now();
        let turns = backend.turns_once_ready(answered.era, all, &wanting).await;
        let asked = Instant::now();
        spent.in_line += asked - wanted;
        let turns = match turns.and_then(|turns| backend.in_time(&wanting).map(|()| turns)) {
            Ok(turns) => turns,
            Err(error) => {
                answered.outcome = Err(error);
                return answered;
            }
        };
        if asks.is_usable() {
            break (asks, session, legacy, asides, signed, asked, turns);
        }
        // It has ended while this request waited for its turn, and never had it: the next one has it instead.
    };
    let params = legacy.as_deref().unwrap_or(&params);
    let course = tool
        .as_deref()
        .and_then(|tool| Course::of(backend, &session, tool, params, &signed, asides.as_ref(), may_wait))
        .map(|course| course.asked_in(key));
    let as_task = course.as_ref().and_then(|course| course.params(params, may_wait));
    let signed = course.as_ref().map_or(signed, Course::signed);
    let call_limit = (method == "tools/call").then(|| CallLimit { limit, waited: since.elapsed() });
    let headers = backend.headers(key, call_limit);
    let manner = Manner {
        timeout: Some(backend.patience_for(limit)),
        since: Some(since),
        progress,
        asides,
        session: key,
        signed,
        headers,
    };
    let trial = backend.trial();
    comes_to(if backend.is_gateway() { Stage::Elsewhere } else { Stage::Asked });
    answered.outcome = asks.ask(method, as_task.as_deref().unwrap_or(params), &manner).await;
    answered.outcome = answered.outcome.map_err(|error| explained(error, spent, asked));
    trial.ended(&answered.outcome);
    if let Some(course) = course {
        answered.outcome = course.told_to(news).follow(answered.outcome, deadline).await;
    }
    answered
}

/// Whether params answer what nobody has asked: a server of old asks nothing by its results.
fn answers_nothing(params: &str) -> bool {
    let params = Json::new(params.as_bytes());
    let has = |member| params.is_some_and(|params| params.member(member).is_some());
    (has("requestState") || has("inputResponses")) && stands("answers-to-nothing-refused")
}
