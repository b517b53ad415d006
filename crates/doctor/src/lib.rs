//! The doctor: what could hang, break or be left behind with a server, found out by trying it.
//!
//! ```text
//! Examination ─ Session ─ Talk ─┬ Process   pipes, lifeline
//!      │                        └ Ear       what each line means, pure
//!      └─► Observations ─ judge, pure ─► findings
//! ```
//!
//! What is seen and what follows from it are kept apart, so that every verdict has a test without a server. A [`Check`] is one
//! thing that is looked for; [`CHECKS`] is the list of all.
//!
//! Invariants
//!
//! - An examination comes home whatever the server does; what was seen until then is judged.
//! - Each start is ended with all that it started.
//! - A tool is called only if it says that it only reads, and needs no arguments.

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
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::json;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::Instant,
};
use unhang_proc::{deadline::Deadline, identity::Identity};
use unhang_switches::stands;

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

/// Starts that may happen side by side. A start keeps a processor busy, and one that shares it looks slow.
const STARTS: u32 = 2;
/// How long a call is waited for at most: a tool that needs nothing and only reads ought to take moments.
const CALL_LIMIT: Duration = Duration::from_secs(60);
/// Between two looks at whether servers have ended: a lifeline is a process that nobody can wait for here.
const LOOK: Duration = Duration::from_millis(20);
/// Servers that are examined at the same time.
const SERVERS: usize = 32;

/// What was found.
#[derive(Clone, Debug)]
pub struct Finding {
    /// What was looked for.
    pub check: &'static Check,
    /// What shows it.
    pub evidence: String,
    /// What to do about it, as far as it depends on how the server is reached.
    pub remedy: &'static str,
}

/// The outcome of one examination.
#[derive(Clone, Debug)]
pub struct DoctorReport {
    /// The server's name.
    pub server: String,
    /// What was seen.
    pub observations: Observations,
    /// What follows, in the order of the checks.
    pub findings: Vec<Finding>,
    /// What was not looked for, and why: the server is reached over HTTP, there was no session with it, or the time was up.
    pub unchecked: Vec<UncheckedCheck>,
    /// How long it took.
    pub took: Duration,
}

impl DoctorReport {
    /// What there is to say of a server that cannot even be tried, and why.
    #[must_use]
    pub fn untried(server: &str, why: String) -> DoctorReport {
        let observations = Observations { cold: Some(StartResult::Failed(why)), ..Observations::default() };
        report(server, observations, Duration::ZERO, Sight::Process)
    }

    /// Nothing was found that counts: notes do not.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.iter().all(|finding| finding.check.severity == Severity::Note)
    }
}

/// A server to be examined.
#[derive(Clone)]
pub struct ExaminedTarget {
    /// How it is reached.
    pub spec: ClientSpec,
    /// Variables that it gets from whoever starts it, and not from its own configuration.
    pub inherited: Vec<String>,
    /// How long the examination may take.
    pub limit: Duration,
}

/// What examinations that run side by side share: a start that is measured is measured alone.
#[derive(Debug)]
pub struct Starts {
    starts: Semaphore,
    servers: Semaphore,
    lifelines: Mutex<Vec<Identity>>,
}

impl Default for Starts {
    fn default() -> Self {
        Self {
            starts: Semaphore::new(STARTS as usize),
            servers: Semaphore::new(SERVERS),
            lifelines: Mutex::default(),
        }
    }
}

impl Starts {
    /// Returns whether every server that was started has ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.living().is_empty()
    }

    /// Waits until every server that was started has ended. The lifeline of a dropped examination needs as long as a stop takes. The
    /// caller sets the limit.
    pub async fn ended(&self) {
        while !self.is_empty() {
            // Between two looks: the process table cannot be waited on.
            tokio::time::sleep(LOOK).await;
        }
    }

    fn note(&self, lifeline: Option<u32>) {
        self.living().extend(lifeline.and_then(Identity::of));
    }

    /// Returns the lifelines that live.
    fn living(&self) -> MutexGuard<'_, Vec<Identity>> {
        let mut lifelines = self.lifelines.lock().unwrap_or_else(PoisonError::into_inner);
        lifelines.retain(|lifeline| lifeline.is_alive());
        lifelines
    }

    /// Nothing else starts meanwhile.
    async fn alone(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.starts.acquire_many(STARTS).await.ok()
    }

    /// Nothing is measured meanwhile.
    async fn beside(&self) -> Option<SemaphorePermit<'_>> {
        self.starts.acquire().await.ok()
    }
}

/// Examines a server. One over HTTP has no process that is ours, and is examined as any client sees it. Must be called in a runtime.
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

/// Examines a server as any client sees it, without a look at its process: what can be done where it has none that is ours. The
/// report says what was not checked. Must be called in a runtime.
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

/// Lets an examination work until its time is up, and gives how long it took. What is dropped in the middle is ended by its lifeline.
async fn within(
    limit: Duration,
    seen: &mut Observations,
    work: impl AsyncFnOnce(&mut Observations),
) -> Duration {
    let since = Instant::now();
    let bound = if stands("doctor-comes-home") { limit } else { Duration::MAX };
    if Deadline::after(bound).timeout(Box::pin(work(seen))).await.is_err() {
        seen.unfinished_after = Some(limit);
    }
    since.elapsed()
}

/// What an examination can see of a server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sight {
    /// Its process and its pipes.
    Process,
    /// What any client sees of a process.
    Client,
    /// What any client sees of a URL.
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
