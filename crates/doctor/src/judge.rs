//! The findings that follow from the observations. Pure.
//!
//! Invariants: a finding has evidence, and each check has at most one finding. Only observed facts lead to findings. Behaviour of every
//! real server (contract 4) is not a finding: silence on garbage, a refused `server/discover`, a banner on stderr.

use std::{cmp::Reverse, collections::HashSet, time::Duration};

use super::{
    Finding,
    checks::{self, Check, Severity},
    observations::{
        AfterGarbage, DiscoverSeen, HandshakeSeen, ListFault, Observations, ObservedList, ObservedTool,
        Samples, ServerExit, ServerTrouble, StartResult, StdoutSeen,
    },
};
use unhang_core::{
    clients::{LIST_CLOCKS, START_CLOCKS, call_clocks},
    revision::Revision,
    units::in_words,
};

/// The bytes that a pipe holds if nobody reads it.
const PIPE: u64 = 64 << 10;
/// A longer list breaks readers with a buffer of the usual size (contract 3.3).
const LARGE_LIST: usize = 64 << 10;
/// The shortest known limit of a client for one line (peers.md 3.1 J).
const HUGE_LINE: u64 = 8 << 20;
/// The deepest nesting that `serde_json` and other parsers follow.
const DEEP: usize = 128;
/// This many notifications between two answers are a flood.
const FLOOD: u64 = 1000;
/// More questions than this are a flood, too.
const QUESTION_FLOOD: u64 = 100;
/// The most pieces of a short line that are not reported.
const MOST_PIECES: u32 = 20;
/// The most characters of a name that model APIs accept.
const LONGEST_NAME: usize = 64;
/// The refusal of a server that does not speak the revision.
const WRONG_REVISION: i64 = -32022;

/// Returns the findings, the worst first, and then in the order of the checks.
#[must_use]
pub fn judge(seen: &Observations) -> Vec<Finding> {
    let mut verdict = FindingList { findings: Vec::new() };
    verdict.limit(seen);
    verdict.start(seen);
    verdict.eras(seen);
    verdict.troubles(&seen.troubles);
    verdict.calls(seen);
    verdict.stdout_seen(&seen.stdout_seen);
    verdict.conversation(&seen.stdout_seen);
    verdict.cancelled(seen);
    verdict.surroundings(seen);
    verdict.ends(seen);
    verdict.lists(&seen.lists);
    verdict.tools(&seen.tools);
    verdict.start_without_a_name(seen);
    let rank = |finding: &Finding| checks::CHECKS.iter().position(|check| check.id == finding.check.id);
    verdict.findings.sort_by_key(|finding| (Reverse(finding.check.severity), rank(finding)));
    verdict.findings
}

struct FindingList {
    findings: Vec<Finding>,
}

impl FindingList {
    fn find(&mut self, check: &'static Check, evidence: impl Into<String>) {
        if !self.findings.iter().any(|finding| finding.check.id == check.id) {
            self.findings.push(Finding { check, evidence: evidence.into(), remedy: check.remedy });
        }
    }

    fn samples(&mut self, check: &'static Check, what: &str, samples: &Samples) {
        if let Some(first) = samples.first.first() {
            let times =
                if samples.count == 1 { String::new() } else { format!("{} times, first ", samples.count) };
            self.find(check, format!("{what}{times}{first}"));
        }
    }

    fn limit(&mut self, seen: &Observations) {
        if let Some(limit) = seen.unfinished_after {
            self.find(checks::DID_NOT_FINISH, format!("not over within {}", in_words(limit)));
        }
    }

    fn start(&mut self, seen: &Observations) {
        match &seen.cold {
            Some(StartResult::Failed(why)) => return self.find(checks::CANNOT_START, why),
            Some(StartResult::Unreachable(why)) => return self.find(checks::CANNOT_REACH, why),
            Some(StartResult::Ended(exit)) => return self.find(checks::DIES_AT_START, exit),
            Some(StartResult::Silent(waited))
                if !matches!(seen.modern, Some(DiscoverSeen::Spoken { .. })) =>
            {
                return self.find(
                    checks::SILENT_AT_START,
                    format!("no answer to `initialize` within {}", in_words(*waited)),
                );
            }
            _ => {}
        }
        match &seen.warm {
            Some(StartResult::Failed(why) | StartResult::Unreachable(why) | StartResult::Ended(why)) => {
                self.find(checks::DIES_AT_SECOND_START, why);
            }
            Some(StartResult::Silent(waited)) => {
                let evidence = format!("no answer within {} at the second start", in_words(*waited));
                self.find(checks::DIES_AT_SECOND_START, evidence);
            }
            _ => {}
        }
        let took = |start: &Option<StartResult>| match start {
            Some(StartResult::Answered(after)) => *after,
            _ => Duration::ZERO,
        };
        // The first start may be the first in a long time. A later start shows the cost of every day.
        let (cold, warm) = (took(&seen.cold), took(&seen.warm));
        let pressed = START_CLOCKS.iter().filter(|(_, clock)| cold >= *clock || warm * 2 >= *clock);
        // The list is requested right after the start, so a slow start delays it.
        let delayed = LIST_CLOCKS.iter().filter(|(_, clock)| warm * 2 >= *clock);
        let pressed: Vec<String> = delayed
            .chain(pressed)
            .map(|(name, clock)| format!("{name} gives up after {}", in_words(*clock)))
            .collect();
        if !pressed.is_empty() {
            let (cold, warm) = (in_words(cold), in_words(warm));
            self.find(
                checks::SLOW_START,
                format!("first answer after {cold}, and {warm} the next time; {}", pressed.join(", ")),
            );
        }
    }

    /// Notes a finding for a server that never answered if there is no other, whatever the reason is.
    fn start_without_a_name(&mut self, seen: &Observations) {
        let is_found = self.findings.iter().any(|finding| finding.check.severity != Severity::Note);
        if matches!(seen.cold, Some(StartResult::Unusable)) && !is_found {
            self.find(checks::SILENT_AT_START, "it sent no answer to `initialize`");
        }
    }

    fn eras(&mut self, seen: &Observations) {
        let is_modern = matches!(seen.modern, Some(DiscoverSeen::Spoken { .. }));
        if let (Some(StartResult::Silent(waited)), true) = (&seen.cold, is_modern) {
            let waited = in_words(*waited);
            self.find(checks::MODERN_ONLY, format!("no answer to `initialize` within {waited}"));
        }
        match &seen.handshake {
            Some(HandshakeSeen::Refused(WRONG_REVISION, why)) if is_modern => {
                self.find(checks::MODERN_ONLY, why);
            }
            Some(HandshakeSeen::Refused(code, why)) if is_modern => {
                self.find(checks::MODERN_ONLY, format!("{why} (error {code})"));
            }
            Some(HandshakeSeen::Refused(code, why)) => {
                self.find(checks::REFUSES_HANDSHAKE, format!("{why} (error {code})"));
            }
            Some(HandshakeSeen::Agreed(revision)) if Revision::of_handshake(revision).is_none() => {
                self.find(checks::STRANGE_REVISION, format!("it answered with `{revision}`"));
            }
            _ => {}
        }
        match &seen.modern {
            Some(DiscoverSeen::Late(after)) => {
                self.find(checks::LATE_DISCOVER, format!("it came {} after the start", in_words(*after)));
            }
            Some(DiscoverSeen::Silent(waited)) if seen.handshake.is_some() => {
                self.find(checks::LATE_DISCOVER, format!("none within {}", in_words(*waited)));
            }
            // A server that cannot start a second time died of that.
            Some(DiscoverSeen::Ended(exit)) if matches!(seen.warm, Some(StartResult::Answered(_))) => {
                self.find(checks::DIES_ON_DISCOVER, exit);
            }
            Some(DiscoverSeen::Spoken { is_locked: true }) => {
                self.find(checks::ERA_LOCKED, "`initialize` after `server/discover` is refused with -32022");
            }
            Some(DiscoverSeen::Unknown { is_ambiguous: true }) => {
                self.find(
                    checks::ERA_AMBIGUOUS,
                    "`tools/list` without a handshake is answered without `resultType`",
                );
            }
            _ => {}
        }
    }

    fn troubles(&mut self, troubles: &[ServerTrouble]) {
        for trouble in troubles {
            match trouble {
                ServerTrouble::Silence(what, waited) => {
                    self.find(checks::NO_ANSWER, format!("{what}: none within {}", in_words(*waited)));
                }
                ServerTrouble::Ended(what, exit) => {
                    self.find(checks::DIES_IN_USE, format!("at {what}: {exit}"));
                }
                ServerTrouble::Lost(what, why) => self.find(checks::NO_ANSWER, format!("{what}: {why}")),
                ServerTrouble::EndedIdle(exit) => self.find(checks::DIES_IDLE, exit),
                ServerTrouble::SilenceIdle(waited) => {
                    self.find(
                        checks::HANGS_IDLE,
                        format!("no answer to `ping` within {}", in_words(*waited)),
                    );
                }
                ServerTrouble::Mute(what) => self.find(checks::CLOSES_STDOUT, format!("at {what}")),
                ServerTrouble::Deaf(what) => self.find(checks::CLOSES_STDIN, format!("before {what}")),
            }
        }
    }

    fn calls(&mut self, seen: &Observations) {
        if let Some(slowest) = &seen.slowest {
            let clocks: Vec<(&str, Duration)> =
                if slowest.is_call { call_clocks().collect() } else { LIST_CLOCKS.to_vec() };
            let passed: Vec<String> = clocks
                .iter()
                .filter(|(_, clock)| slowest.took >= *clock)
                .map(|(name, clock)| format!("{name} ({})", in_words(*clock)))
                .collect();
            if !passed.is_empty() {
                let took = in_words(slowest.took);
                self.find(
                    checks::SLOW_ANSWER,
                    format!("{} took {took}, longer than the timeout of {}", slowest.what, passed.join(", ")),
                );
            }
        }
        for call in &seen.calls {
            if call.blocked {
                let took = in_words(call.took);
                self.find(
                    checks::BLOCKS_WHILE_BUSY,
                    format!("`ping` waited for `{}`, which took {took}", call.tool),
                );
            }
            if let Some(why) = &call.refusal {
                self.find(checks::CALL_REFUSED, format!("`{}`: {why}", call.tool));
            }
        }
        let was_listed = seen.lists.iter().any(|list| list.method == "tools/list" && list.items > 0);
        if was_listed && !seen.tools.iter().any(|tool| tool.is_safe) {
            self.find(checks::NO_SAFE_TOOL, format!("{} tools", seen.tools.len()));
        }
    }

    fn stdout_seen(&mut self, stdout_seen: &StdoutSeen) {
        self.samples(checks::STDOUT_JUNK, "", &stdout_seen.junk);
        self.samples(checks::GLUED_TEXT, "", &stdout_seen.glued);
        self.samples(checks::MANY_ON_A_LINE, "", &stdout_seen.crowded);
        self.samples(checks::BATCH_ANSWER, "", &stdout_seen.batches);
        self.samples(checks::INVALID_MESSAGE, "it ", &stdout_seen.invalid);
        self.samples(checks::WRONG_ID, "", &stdout_seen.misaddressed);
        self.samples(checks::ID_TYPE_CHANGED, "", &stdout_seen.retyped);
        self.samples(checks::ANSWERS_TWICE, "", &stdout_seen.repeated);
        if stdout_seen.has_mark {
            self.find(checks::BYTE_ORDER_MARK, "EF BB BF");
        }
        if stdout_seen.crlf > 0 {
            self.find(checks::CRLF_LINES, format!("{} lines", stdout_seen.crlf));
        }
        if stdout_seen.longest > HUGE_LINE {
            self.find(checks::HUGE_LINE, format!("a line of {}", size(stdout_seen.longest)));
        }
        if stdout_seen.deepest > DEEP {
            self.find(checks::DEEP_NESTING, format!("{} levels", stdout_seen.deepest));
        }
        if stdout_seen.most_pieces > MOST_PIECES {
            self.find(
                checks::ANSWERS_IN_PIECES,
                format!("{} pieces of one short line", stdout_seen.most_pieces),
            );
        }
    }

    fn conversation(&mut self, stdout_seen: &StdoutSeen) {
        if stdout_seen.most_notifications >= FLOOD {
            let count = stdout_seen.most_notifications;
            self.find(checks::NOTIFICATION_FLOOD, format!("{count} notifications before one answer"));
        } else if stdout_seen.answers > 2 && stdout_seen.announced * 2 > stdout_seen.answers {
            let StdoutSeen { announced, answers, .. } = stdout_seen;
            self.find(checks::NOTIFIES_BEFORE_ANSWERS, format!("before {announced} of {answers} answers"));
        }
        let asked: u64 = stdout_seen.questions.values().sum();
        if asked > QUESTION_FLOOD {
            self.find(checks::REQUEST_FLOOD, format!("{asked} requests to the client"));
        }
        let undeclared: Vec<&str> =
            stdout_seen.questions.keys().map(String::as_str).filter(|method| *method != "ping").collect();
        if !undeclared.is_empty() {
            self.find(checks::ASKS_UNDECLARED, format!("`{}`", undeclared.join("`, `")));
        }
    }

    /// Judges the answers to cancelled calls. A call that is cancelled midway may well be answered: few servers can stop one. An answer
    /// that comes only because of the cancel is different.
    fn cancelled(&mut self, seen: &Observations) {
        let stdout_seen = &seen.stdout_seen;
        let was_silent = seen.troubles.iter().any(|trouble| matches!(trouble, ServerTrouble::Silence(..)));
        if was_silent {
            self.samples(checks::ANSWERS_AFTER_CANCEL, "", &stdout_seen.late);
        } else if stdout_seen.progress_after_cancel > 0 {
            let count = stdout_seen.progress_after_cancel;
            self.find(checks::GOES_ON_AFTER_CANCEL, format!("{count} reports of progress after the cancel"));
        } else {
            self.samples(checks::GOES_ON_AFTER_CANCEL, "it answered: ", &stdout_seen.late);
        }
    }

    fn surroundings(&mut self, seen: &Observations) {
        if seen.stderr_bytes > PIPE {
            let last = seen.stderr_last.as_deref().unwrap_or_default();
            let last = unhang_core::wording::shortened(last, 80);
            self.find(
                checks::STDERR_FLOOD,
                format!("{} in one session, at last {last}", size(seen.stderr_bytes)),
            );
        }
        if seen.stderr_longest >= PIPE {
            self.find(checks::STDERR_LONG_LINE, format!("{} and more", size(seen.stderr_longest)));
        }
        if seen.sharers > 0 {
            let evidence = match seen.sharers {
                1 => "1 process more holds it than at the start".to_owned(),
                count => format!("{count} processes more hold it than at the start"),
            };
            self.find(checks::SHARES_STDIN, evidence);
        }
        let secrets: Vec<&str> =
            seen.inherited.iter().map(String::as_str).filter(|name| is_secret(name)).collect();
        if !secrets.is_empty() {
            self.find(checks::INHERITS_SECRETS, secrets.join(", "));
        }
    }

    fn ends(&mut self, seen: &Observations) {
        // A server that had problems without garbage may have had the same problem here.
        match seen.garbage.as_ref().filter(|_| seen.troubles.is_empty()) {
            Some(AfterGarbage::Died(exit)) => self.find(checks::DIES_ON_GARBAGE, exit),
            Some(AfterGarbage::Deaf(waited)) => {
                self.find(
                    checks::DEAF_AFTER_GARBAGE,
                    format!("no answer to `ping` within {}", in_words(*waited)),
                );
            }
            Some(AfterGarbage::Survived) | None => {}
        }
        let lives = |ending: &ServerExit| format!("still there after {}", in_words(ending.waited));
        if let Some(ending) = &seen.stdin_end {
            if ending.after.is_none() {
                self.find(checks::IGNORES_STDIN_END, lives(ending));
            } else if ending.is_failure {
                self.find(checks::ENDS_WITH_CODE, ending.exit.clone().unwrap_or_default());
            }
            if ending.leaked > 0 {
                let evidence = match ending.leaked {
                    1 => "1 process was left".to_owned(),
                    count => format!("{count} processes were left"),
                };
                self.find(checks::LEAVES_PROCESSES, evidence);
            }
        }
        if let Some(ending) = seen.sigterm.as_ref().filter(|ending| ending.after.is_none()) {
            self.find(checks::IGNORES_SIGTERM, lives(ending));
        }
    }

    fn lists(&mut self, lists: &[ObservedList]) {
        for list in lists {
            let method = list.method;
            match &list.fault {
                Some(ListFault::Invalid) => self.find(checks::INVALID_LIST, format!("`{method}`")),
                Some(ListFault::Refused(code, why)) => {
                    self.find(checks::LIST_REFUSED, format!("`{method}`: {why} (error {code})"));
                }
                Some(ListFault::Endless) => {
                    self.find(checks::ENDLESS_LIST, format!("`{method}`: {} items and no end", list.items));
                }
                None => {}
            }
            if method == "tools/list" && list.bytes > LARGE_LIST {
                let size = size(list.bytes as u64);
                self.find(checks::LARGE_LIST, format!("{} tools in {size}", list.items));
            }
        }
    }

    fn tools(&mut self, tools: &[ObservedTool]) {
        let faulty: Vec<&ObservedTool> = tools.iter().filter(|tool| tool.fault.is_some()).collect();
        if let [first, others @ ..] = &faulty[..] {
            let more = if others.is_empty() { String::new() } else { format!(", and {} more", others.len()) };
            let why = first.fault.as_deref().unwrap_or_default();
            self.find(checks::INVALID_TOOL_SCHEMA, format!("`{}`: {why}{more}", first.name));
        }
        let mut names = HashSet::new();
        for tool in tools {
            if !names.insert(tool.name.as_str()) {
                self.find(checks::DUPLICATE_TOOL, format!("`{}`", tool.name));
            }
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
            if tool.name.is_empty() || tool.name.len() > LONGEST_NAME || !tool.name.bytes().all(is_plain) {
                self.find(checks::ODD_TOOL_NAME, format!("`{}`", tool.name));
            }
        }
    }
}

/// Returns whether a variable of this name probably holds a secret.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    ["TOKEN", "SECRET", "PASSWORD", "PASSWD", "API_KEY", "APIKEY", "ACCESS_KEY", "PRIVATE_KEY", "CREDENTIAL"]
        .iter()
        .any(|part| name.contains(part))
}

/// Words a number of bytes for a person.
#[must_use]
pub fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 2] = [(1 << 20, "MiB"), (1 << 10, "KiB")];
    let Some((unit, name)) = UNITS.into_iter().find(|(unit, _)| bytes >= *unit) else {
        return format!("{bytes} B");
    };
    let tenths = bytes * 10 / unit;
    if tenths >= 100 || tenths.is_multiple_of(10) {
        return format!("{} {name}", tenths / 10);
    }
    format!("{}.{} {name}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests;
