//! What operators and their programs ask: whether it lives, whether it is ready, how all is, and what was counted.
//!
//! Invariants: what servers have written, and what went wrong with them, is for operators alone, for it may be about anybody's calls; nothing here starts a server or waits for one; what waits for the disk has a limit, and is asked for once at a time.

use std::{
    pin::Pin,
    sync::{Arc, atomic::Ordering},
};

use serde_json::{Map, Value, json};
use tokio::{sync::Semaphore, time::timeout};
use unhang_jobs::record::JobState;
use unhang_net::serve::axum::{
    Extension,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use unhang_switches::stands;

use super::{
    HttpState,
    access::TokenOwner,
    handlers::JSON,
    metrics::{self, Snapshot},
};
use unhang_core::config::STATUS_PATIENCE;
use unhang_gateway::{ServerStatus, Servers};
use unhang_tools::service::JobService;

/// How many jobs there are of each state.
pub(super) type JobCounts = Vec<(JobState, u64)>;

/// Counts them; nothing where that cannot be done.
pub(super) type JobCounter =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Option<JobCounts>> + Send>> + Send + Sync>;

/// The jobs, as far as they are counted here.
pub(super) struct JobGauge {
    count: Option<JobCounter>,
    /// For whoever counts them.
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
                Box::pin(async move { service.counts().await.ok() })
            })
        }))
    }

    /// How many there are of each state; nothing where there are none, or the disk does not say it in time.
    async fn counts(&self) -> Option<JobCounts> {
        let count = Arc::clone(self.count.as_ref()?);
        let counted = async {
            // It is never closed. One that waits for a stuck disk keeps its turn, so that there are not more and more of them.
            let turn = match stands("jobs-counted-once-at-a-time") {
                true => Some(Arc::clone(&self.turn).acquire_owned().await.ok()?),
                false => None,
            };
            let task = tokio::spawn(async move {
                let counts = count().await;
                drop(turn);
                counts
            });
            task.await.ok()?
        };
        match stands("status-waits-for-no-disk") {
            true => timeout(STATUS_PATIENCE, counted).await.ok().flatten(),
            false => counted.await,
        }
    }
}

/// The process lives.
pub(super) async fn health() -> Response {
    told(StatusCode::OK, &json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION") }))
}

/// Every server has been listed, or has failed to be.
pub(super) async fn ready(State(http_state): State<Arc<HttpState>>) -> Response {
    let servers = http_state.context.servers.as_ref();
    let was_settled = servers.is_none_or(|servers| servers.known().borrow().was_settled);
    match was_settled && !http_state.is_ending() {
        true => told(StatusCode::OK, &json!({ "ready": true })),
        false => told(StatusCode::SERVICE_UNAVAILABLE, &json!({ "ready": false })),
    }
}

/// How all is.
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
        let counts: Map<String, Value> =
            counts.into_iter().map(|(state, count)| (state.as_str().to_owned(), count.into())).collect();
        whole["jobs"] = counts.into();
    }
    told(StatusCode::OK, &whole)
}

/// What was counted, for Prometheus.
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
