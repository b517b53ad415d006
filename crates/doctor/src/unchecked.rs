//! The checks that an examination did not make, and why. Pure.
//!
//! Invariants: a check with a finding was made. The view of an examination decides which checks it leaves out, and not the findings that it
//! happens to have.

use super::{
    Finding,
    checks::{self, CHECKS, Check},
    observations::{DiscoverSeen, HandshakeSeen, Observations, StartResult},
};

/// A check that was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UncheckedCheck {
    /// The check.
    pub check: &'static Check,
    /// The reason why it was not made.
    pub reason: UncheckedReason,
}

/// The reason why a check was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UncheckedReason {
    /// The check needs the server's process and its pipes.
    OverHttp,
    /// The server could not be started or reached, or agreed to no session.
    NoSession,
    /// The time of the examination was up before.
    NotFinished,
}

impl UncheckedReason {
    /// Words the reason for a report.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::OverHttp => "not checked over HTTP",
            Self::NoSession => {
                "not checked: the server could not be started or reached, or agreed to no session"
            }
            Self::NotFinished => "not checked: the examination was not over within its limit",
        }
    }
}

/// Lists the checks that were not made, in the order of the checks.
pub(super) fn unchecked(seen: &Observations, findings: &[Finding], as_client: bool) -> Vec<UncheckedCheck> {
    let reason = |check: &'static Check| {
        let is_decided_at_the_start = || decided_without_a_session(seen).contains(&check);
        if as_client && check.needs_process && check != checks::INVALID_MESSAGE {
            // A client sees invalid answers, and nothing else that a process does.
            Some(UncheckedReason::OverHttp)
        } else if had_session(seen) || is_decided_at_the_start() {
            seen.unfinished_after.map(|_| UncheckedReason::NotFinished)
        } else if seen.cold.is_none() && seen.unfinished_after.is_some() {
            Some(UncheckedReason::NotFinished)
        } else {
            Some(UncheckedReason::NoSession)
        }
    };
    let is_found = |check: &Check| findings.iter().any(|finding| finding.check.id == check.id);
    let unfound = CHECKS.iter().filter(|check| !is_found(check));
    unfound.filter_map(|check| Some(UncheckedCheck { check, reason: reason(check)? })).collect()
}

fn had_session(seen: &Observations) -> bool {
    matches!(seen.handshake, Some(HandshakeSeen::Agreed(_)))
        || matches!(seen.modern, Some(DiscoverSeen::Spoken { .. }))
}

/// Lists the checks that are made even without a session.
fn decided_without_a_session(seen: &Observations) -> &'static [&'static Check] {
    const NEVER_BEGUN: &[&Check] = &[checks::DID_NOT_FINISH];
    const BEGUN: &[&Check] = &[
        checks::DID_NOT_FINISH,
        checks::CANNOT_START,
        checks::CANNOT_REACH,
        checks::DIES_AT_START,
        checks::SILENT_AT_START,
    ];
    match (&seen.cold, &seen.handshake) {
        (None, None) | (Some(StartResult::Failed(_) | StartResult::Unreachable(_)), _) => NEVER_BEGUN,
        _ => BEGUN,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::judge;

    /// The ids of the checks that were not made for this reason.
    fn ids(seen: &Observations, as_client: bool, reason: UncheckedReason) -> Vec<&'static str> {
        let all = unchecked(seen, &judge(seen), as_client);
        all.iter()
            .filter(|unchecked| unchecked.reason == reason)
            .map(|unchecked| unchecked.check.id)
            .collect()
    }

    fn started(cold: StartResult) -> Observations {
        Observations { cold: Some(cold), ..Observations::default() }
    }

    #[test]
    fn what_never_started_was_not_checked() {
        let failed = started(StartResult::Failed("no such file".to_owned()));
        let missing = ids(&failed, false, UncheckedReason::NoSession);
        assert_eq!(missing.len(), CHECKS.len() - 2, "all but cannot-start and did-not-finish: {missing:?}");
        let ended = started(StartResult::Ended("exit code 1".to_owned()));
        let missing = ids(&ended, false, UncheckedReason::NoSession);
        assert!(missing.contains(&"no-answer") && !missing.contains(&"silent-at-start"), "{missing:?}");
        let away = started(StartResult::Unreachable("refused".to_owned()));
        assert!(ids(&away, true, UncheckedReason::NoSession).contains(&"no-answer"));
        assert!(ids(&away, true, UncheckedReason::OverHttp).contains(&"leaves-processes"));
    }

    #[test]
    fn what_had_a_session_was_checked_and_a_limit_cuts_it_short() {
        let mut seen = started(StartResult::Answered(Duration::from_millis(5)));
        seen.handshake = Some(HandshakeSeen::Agreed("2025-11-25".to_owned()));
        assert_eq!(unchecked(&seen, &judge(&seen), false), []);
        seen.unfinished_after = Some(Duration::from_secs(1));
        let missing = ids(&seen, false, UncheckedReason::NotFinished);
        assert_eq!(missing.len(), CHECKS.len() - 1, "all but did-not-finish");
    }

    #[test]
    fn what_a_client_cannot_see_does_not_depend_on_what_it_finds() {
        let mut seen = started(StartResult::Answered(Duration::from_millis(5)));
        seen.handshake = Some(HandshakeSeen::Agreed("2025-11-25".to_owned()));
        let before = ids(&seen, true, UncheckedReason::OverHttp);
        seen.stdout_seen.invalid.add(b"x");
        seen.troubles.push(crate::observations::ServerTrouble::Lost("`ping`".to_owned(), "broke".to_owned()));
        assert_eq!(ids(&seen, true, UncheckedReason::OverHttp), before);
        assert!(before.contains(&"dies-in-use"), "{before:?}");
    }
}
