//! The report for programs.
//!
//! Invariants: times are milliseconds; a fact that was not observed is absent.

use std::time::Duration;

use serde::Serialize;
use unhang::doctor::{
    DoctorReport,
    observations::{DiscoverSeen, HandshakeSeen, ServerExit, StartResult},
};

use crate::commands::adopt::ClientGuard;

/// The JSON about one server.
#[derive(Serialize)]
pub(super) struct ReportJson<'a> {
    server: &'a str,
    clean: bool,
    ms: u64,
    facts: FactsJson<'a>,
    findings: Vec<FindingJson<'a>>,
    /// Checks that were not made: over HTTP, without a session, or for lack of time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unchecked: Vec<&'a str>,
    /// The guards that the user's clients start in front of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    guards: Vec<ClientGuard>,
}

#[derive(Serialize)]
struct FindingJson<'a> {
    id: &'a str,
    severity: &'a str,
    evidence: &'a str,
    means: &'a str,
    remedy: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FactsJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    cold_start_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warm_start_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stateless: Option<bool>,
    lists: Vec<ListJson>,
    calls: Vec<CallJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slowest: Option<SlowestJson<'a>>,
    stderr_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    stdin_end: Option<EndJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sigterm: Option<EndJson<'a>>,
}

#[derive(Serialize)]
struct ListJson {
    method: &'static str,
    items: usize,
    bytes: usize,
}

#[derive(Serialize)]
struct CallJson<'a> {
    tool: &'a str,
    ms: u64,
    refused: bool,
}

#[derive(Serialize)]
struct SlowestJson<'a> {
    what: &'a str,
    ms: u64,
}

#[derive(Serialize)]
struct EndJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit: Option<&'a str>,
    leaked: u32,
}

impl<'a> ReportJson<'a> {
    pub(super) fn of(report: &'a DoctorReport, guards: Vec<ClientGuard>) -> Self {
        let findings = report.findings.iter().map(|finding| FindingJson {
            id: finding.check.id,
            severity: finding.check.severity.word(),
            evidence: &finding.evidence,
            means: finding.check.means,
            remedy: finding.remedy,
        });
        ReportJson {
            server: &report.server,
            clean: report.is_clean(),
            ms: milliseconds(report.took),
            facts: FactsJson::of(report),
            findings: findings.collect(),
            unchecked: report.unchecked.iter().map(|unchecked| unchecked.check.id).collect(),
            guards,
        }
    }
}

impl<'a> FactsJson<'a> {
    fn of(report: &'a DoctorReport) -> Self {
        let seen = &report.observations;
        let calls = seen.calls.iter().map(|call| CallJson {
            tool: &call.tool,
            ms: milliseconds(call.took),
            refused: call.refusal.is_some(),
        });
        FactsJson {
            cold_start_ms: answered(seen.cold.as_ref()).map(milliseconds),
            warm_start_ms: answered(seen.warm.as_ref()).map(milliseconds),
            revision: seen.handshake.as_ref().and_then(|handshake| match handshake {
                HandshakeSeen::Agreed(revision) => Some(revision.as_str()),
                HandshakeSeen::Refused(..) => None,
            }),
            stateless: seen.modern.as_ref().map(|modern| matches!(modern, DiscoverSeen::Spoken { .. })),
            lists: seen
                .lists
                .iter()
                .map(|list| ListJson { method: list.method, items: list.items, bytes: list.bytes })
                .collect(),
            calls: calls.collect(),
            slowest: seen
                .slowest
                .as_ref()
                .map(|slowest| SlowestJson { what: &slowest.what, ms: milliseconds(slowest.took) }),
            stderr_bytes: seen.stderr_bytes,
            stdin_end: seen.stdin_end.as_ref().map(EndJson::of),
            sigterm: seen.sigterm.as_ref().map(EndJson::of),
        }
    }
}

impl<'a> EndJson<'a> {
    fn of(ending: &'a ServerExit) -> Self {
        let ServerExit { after, exit, leaked, .. } = ending;
        EndJson { ms: after.map(milliseconds), exit: exit.as_deref(), leaked: *leaked }
    }
}

/// Returns how long a start took, or `None` if it did not come to an answer.
pub(super) fn answered(start: Option<&StartResult>) -> Option<Duration> {
    match start {
        Some(StartResult::Answered(after)) => Some(*after),
        _ => None,
    }
}

fn milliseconds(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
