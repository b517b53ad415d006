//! The endpoints for operators and their programs: whether unhang lives, whether it is ready, its status, and its counters.
//!
//! Invariants: the output and the failures of servers are for operators alone, for they may be about anybody's calls. No request here
//! starts a server or waits for one. Waiting for the disk has a limit, and only one count at a time reads the disk.

use std::{
    pin::Pin,
    sync::{Arc, atomic::Ordering},
};

use serde_json::{Map, Value, json};
use tokio::{sync::Semaphore, time::timeout};
use unhang_jobs::{record::JobState, shared_jobs::WorkerSummary};
use unhang_net::serve::axum::{
    Extension,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};

use super::{
    HttpState,
    accept::JSON,
    access::TokenOwner,
    metrics::{self, Snapshot},
};
use unhang_core::config::STATUS_PATIENCE;
use unhang_gateway::{ServerStatus, Servers};
use unhang_tools::service::JobService;

/// The number of jobs of each state, and the workers of the store that machines share.
#[derive(Clone, Debug, Default)]
pub(super) struct JobCounts {
    pub(super) states: Vec<(JobState, u64)>,
    pub(super) workers: Vec<WorkerSummary>,
}

/// Counts the jobs; gives `None` if that fails.
pub(super) type JobCounter =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Option<JobCounts>> + Send>> + Send + Sync>;

/// The source of the job counts.
pub(super) struct JobGauge {
    count: Option<JobCounter>,
    /// Held while the jobs are counted.
    turn: Arc<Semaphore>,
}

impl JobGauge {
    pub(super) fn new(count: Option<JobCounter>) -> JobGauge {
        JobGauge { count, turn: Arc::new(Semaphore::new(1)) }
    }

    pub(super) fn of(service: Option<Arc<dyn JobService>>) -> JobGauge {
        JobGauge::new(service.map(|service| -> JobCounter {
            Arc::new(move || {
                let service = Arc::clone(&service);
                Box::pin(async move {
                    let states = service.counts().await.ok()?;
                    Some(JobCounts { states, workers: service.workers().await.unwrap_or_default() })
                })
            })
        }))
    }

    /// Counts the jobs of each state. Returns `None` if there is no job service, or the disk does not answer in time.
    async fn counts(&self) -> Option<JobCounts> {
        let count = Arc::clone(self.count.as_ref()?);
        let counted = async {
            // The semaphore is never closed. A count that waits for a stuck disk keeps its turn, so that such counts do not pile up.
            let turn = Some(Arc::clone(&self.turn).acquire_owned().await.ok()?);
            let task = tokio::spawn(async move {
                let counts = count().await;
                drop(turn);
                counts
            });
            task.await.ok()?
        };
        timeout(STATUS_PATIENCE, counted).await.ok().flatten()
    }
}

/// Tells that the process lives.
pub(super) async fn health() -> Response {
    told(StatusCode::OK, &json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION") }))
}

/// Tells whether every server has been listed, or has failed to be.
pub(super) async fn ready(State(http_state): State<Arc<HttpState>>) -> Response {
    let servers = http_state.context.servers.as_ref();
    let was_settled = servers.is_none_or(|servers| servers.known().borrow().was_settled);
    match was_settled && !http_state.is_ending() {
        true => told(StatusCode::OK, &json!({ "ready": true })),
        false => told(StatusCode::SERVICE_UNAVAILABLE, &json!({ "ready": false })),
    }
}

/// Reports the status of unhang and its servers.
pub(super) async fn status(
    State(http_state): State<Arc<HttpState>>,
    Extension(caller): Extension<TokenOwner>,
) -> Response {
    let counts = http_state.jobs.counts().await;
    let mut servers = http_state.context.servers.as_ref().map(|servers| servers.status()).unwrap_or_default();
    if !http_state.access_policy().access.is_operator(&caller) {
        servers.iter_mut().for_each(ServerStatus::leave_out_words);
    }
    let mut whole = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "uptimeMs": u64::try_from(http_state.since.elapsed().as_millis()).unwrap_or(u64::MAX),
        "sessions": http_state.sessions().len(),
        "waiting": http_state.context.servers.as_ref().map_or(0, Servers::waiting),
        "queueBytes": http_state.context.tally.waiting.load(Ordering::Relaxed),
        "servers": servers,
    });
    if let Some(counts) = counts {
        let states = counts.states.into_iter();
        let states: Map<String, Value> =
            states.map(|(state, count)| (state.as_str().to_owned(), count.into())).collect();
        whole["jobs"] = states.into();
    }
    told(StatusCode::OK, &whole)
}

/// Reports the counters, for Prometheus.
pub(super) async fn metrics(State(http_state): State<Arc<HttpState>>, headers: HeaderMap) -> Response {
    let jobs = http_state.jobs.counts().await;
    let servers = http_state.context.servers.clone();
    let snapshot = Snapshot {
        uptime: http_state.since.elapsed(),
        sessions: http_state.sessions().len(),
        alone: http_state.waiting_alone(),
        statuses: servers.as_ref().map(|servers| servers.status()).unwrap_or_default(),
        servers,
        tally: Arc::clone(&http_state.context.tally),
        jobs,
    };
    match metrics::page(snapshot) {
        Ok(page) => {
            let mut kinds = headers.get_all(header::ACCEPT).iter().filter_map(|kinds| kinds.to_str().ok());
            let (kind, page) = match kinds.any(|kinds| kinds.contains("application/openmetrics-text")) {
                true => (metrics::OPEN, page),
                false => (metrics::CLASSIC, metrics::classic(&page)),
            };
            ([(header::CONTENT_TYPE, kind)], page).into_response()
        }
        // Text can always be written to memory.
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

pub(super) fn told(status: StatusCode, value: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, JSON)], format!("{value:#}\n")).into_response()
}
