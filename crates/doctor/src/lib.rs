//! The doctor: it tries a server, and finds what could hang, break or be left behind.
//!
//! ```text
//! Examination ─ DoctorSession ─ ExaminedServer ─┬ ServerProcess    pipes, lifeline
//!      │                                        └ ResponseReader   meaning of each line, pure
//!      └─► Observations ─ judge, pure ─► findings
//! ```
//!
//! Observations and conclusions are kept apart, so that every verdict has a test without a server. A [`Check`] is one possible problem, and
//! [`CHECKS`] is the list of all.
//!
//! Invariants
//!
//! - An examination ends within its limit, whatever the server does. The observations until then are judged.
//! - Each start is ended, with all processes that it started.
//! - A tool is called only if it says that it only reads, and if it needs no arguments.

mod as_client;
mod checks;
mod examined_server;
mod judge;
mod lists;
pub mod observations;
mod response_reader;
mod session;
mod stdio;
mod unchecked;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::json;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::Instant,
};
use unhang_proc::{deadline::Deadline, identity::Identity};

pub use self::{
    checks::{CHECKS, Check, Severity},
    judge::{judge, size},
    unchecked::{UncheckedCheck, UncheckedReason},
};
use self::{
    observations::{Observations, StartResult},
    stdio::Examination,
};
use unhang_core::limits::Limits;
use unhang_upstream::{
    client::{ClientSpec, Endpoint},
    handshake::Introduction,
};

/// The most starts side by side. A start keeps a processor busy, and a start that shares one looks slow.
const STARTS: u32 = 2;
/// The longest wait for a call. A tool that needs no arguments and only reads should take moments.
const CALL_LIMIT: Duration = Duration::from_secs(60);
/// The pause between two checks whether servers have ended. A lifeline is a process that cannot be waited for here.
const LOOK: Duration = Duration::from_millis(20);
/// The most servers that are examined at the same time.
const SERVERS: usize = 32;

/// A problem that was found.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The check that found it.
    pub check: &'static Check,
    /// The evidence for it.
    pub evidence: String,
    /// The remedy, which may depend on how the server is reached.
    pub remedy: &'static str,
}

/// The outcome of one examination.
#[derive(Clone, Debug)]
pub struct DoctorReport {
    /// The server's name.
    pub server: String,
    /// The observations.
    pub observations: Observations,
    /// The findings, in the order of the checks.
    pub findings: Vec<Finding>,
    /// The checks that were not made, and why: the server is reached over HTTP, there was no session with it, or the time was up.
    pub unchecked: Vec<UncheckedCheck>,
    /// How long the examination took.
    pub took: Duration,
}

impl DoctorReport {
    /// Makes a report on a server that cannot even be tried.
    #[must_use]
    pub fn untried(server: &str, why: String) -> DoctorReport {
        let observations = Observations { cold: Some(StartResult::Failed(why)), ..Observations::default() };
        report(server, observations, Duration::ZERO, Sight::Process)
    }

    /// Returns whether there is no finding that counts. Notes do not count.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.iter().all(|finding| finding.check.severity == Severity::Note)
    }
}

/// A server to be examined.
#[derive(Clone)]
pub struct ExaminedTarget {
    /// The way to the server.
    pub spec: ClientSpec,
    /// Variables that the server inherits, instead of getting them from its own configuration.
    pub inherited: Vec<String>,
    /// How long the examination may take.
    pub limit: Duration,
}

/// State that examinations side by side share: a measured start happens alone.
#[derive(Debug)]
pub struct Starts {
    starts: Semaphore,
    servers: Semaphore,
    started: Arc<Mutex<StartedServers>>,
}

/// The servers that were started.
#[derive(Debug, Default)]
struct StartedServers {
    /// The number of servers that are examined now.
    examined: usize,
    /// The lifelines of servers that were dropped before they had ended, and that are about to end them.
    lifelines: Vec<Identity>,
}

impl Default for Starts {
    fn default() -> Self {
        Self {
            starts: Semaphore::new(STARTS as usize),
            servers: Semaphore::new(SERVERS),
            started: Arc::default(),
        }
    }
}

impl StartedServers {
    fn lock(shared: &Mutex<Self>) -> MutexGuard<'_, Self> {
        shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Starts {
    /// Returns whether every server that was started has ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let mut started = StartedServers::lock(&self.started);
        started.lifelines.retain(|lifeline| lifeline.is_alive());
        started.examined == 0 && started.lifelines.is_empty()
    }

    /// Waits until every server that was started has ended. The lifeline of a dropped examination needs as long as a stop takes. The caller
    /// sets the limit.
    pub async fn ended(&self) {
        while !self.is_empty() {
            // The process table has to be polled.
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits for a permit during which nothing else starts.
    async fn alone(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.starts.acquire_many(STARTS).await.ok()
    }

    /// Waits for a permit during which no start is measured.
    async fn beside(&self) -> Option<SemaphorePermit<'_>> {
        self.starts.acquire().await.ok()
    }
}

/// Examines a server. A server over HTTP has no process that is ours, and is examined as any client sees it. Must be called in a runtime.
pub async fn examine(patient: &ExaminedTarget, starts: &Starts) -> DoctorReport {
    let _turn = starts.servers.acquire().await;
    let Endpoint::Stdio(server) = &patient.spec.endpoint else { return examine_as_client(patient).await };
    let introduction = Introduction::new(
        &json!({ "name": "unhang-doctor", "version": env!("CARGO_PKG_VERSION") }),
        &json!({}),
    );
    let limits = limits_of(patient);
    let mut seen = Observations { inherited: patient.inherited.clone(), ..Observations::default() };
    let work = async |seen: &mut Observations| {
        let name = &patient.spec.name;
        Examination { name, server, limits: &limits, starts, introduction, seen }.run().await;
    };
    let took = within(patient.limit, &mut seen, work).await;
    report(&patient.spec.name, seen, took, Sight::Process)
}

/// Examines a server as any client sees it, without a look at its process. This is the only way if the process is not ours. The report
/// lists the checks that were not made. Must be called in a runtime.
pub async fn examine_as_client(patient: &ExaminedTarget) -> DoctorReport {
    let spec = ClientSpec { limits: limits_of(patient), ..patient.spec.clone() };
    let mut seen = Observations::default();
    let work = async |seen: &mut Observations| as_client::observe(&spec, seen).await;
    let took = within(patient.limit, &mut seen, work).await;
    let sight = if matches!(spec.endpoint, Endpoint::Http(_)) { Sight::Url } else { Sight::Client };
    report(&spec.name, seen, took, sight)
}

fn limits_of(patient: &ExaminedTarget) -> Limits {
    let limits = &patient.spec.limits;
    Limits { call_timeout: limits.call_timeout.min(CALL_LIMIT), ..limits.clone() }
}

/// Runs an examination until its time is up, and returns how long it took. The lifeline ends a server whose examination is dropped.
async fn within(
    limit: Duration,
    seen: &mut Observations,
    work: impl AsyncFnOnce(&mut Observations),
) -> Duration {
    let since = Instant::now();
    if Deadline::after(limit).timeout(Box::pin(work(seen))).await.is_err() {
        seen.unfinished_after = Some(limit);
    }
    since.elapsed()
}

/// The parts of a server that an examination can see.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sight {
    /// The server's process and its pipes.
    Process,
    /// The view of a client on a process.
    Client,
    /// The view of a client on a URL.
    Url,
}

fn report(server: &str, observations: Observations, took: Duration, sight: Sight) -> DoctorReport {
    let mut findings = judge(&observations);
    if sight == Sight::Url {
        findings.iter_mut().for_each(|finding| finding.remedy = finding.check.remedy_at_a_url());
    }
    let unchecked = unchecked::unchecked(&observations, &findings, sight != Sight::Process);
    DoctorReport { server: server.to_owned(), observations, findings, unchecked, took }
}
