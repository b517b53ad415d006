//! The judge: which requests went out, what came back, and whether that was right.
//!
//! # Theory of operation
//!
//! Each request is an entry with the number of its turn. The guard reads its client's lines in order and answers in
//! order, so the answer to a request proves that everything sent before it was read. A cancellation that was sent before
//! an answered request is therefore in force: from then on nothing may come for what it withdrew. Before that, the one
//! answer that may have crossed it is no fault.
//!
//! # Invariants
//!
//! - Pure: time is handed in, and it must stand still while the client does not read.
//! - Every violation is told with the id that it is about.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::envelope::{self, AnswerOutcome, Said};

/// Where a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestState {
    Waiting,
    /// Withdrawn in this turn; an answer may be on its way.
    Withdrawn(u64),
    /// Withdrawn, and the guard knows it.
    Gone,
    Answered,
}

#[derive(Debug)]
struct LedgerEntry {
    turn: u64,
    method: String,
    due: Option<Duration>,
    /// What a result must contain to be the answer to this very request.
    proof: Option<String>,
    state: RequestState,
}

/// What went over one wire, for the summary.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct WireTally {
    pub(crate) sent: u64,
    pub(crate) results: u64,
    pub(crate) server_errors: u64,
    /// Errors of unhang by their kind.
    pub(crate) faults: BTreeMap<String, u64>,
    /// Withdrawn and never answered.
    pub(crate) withdrawn: u64,
    /// Without an answer because the soak killed the guard or went away.
    pub(crate) forsaken: u64,
    pub(crate) nameless: u64,
    pub(crate) asks: u64,
    pub(crate) notifications: u64,
}

impl WireTally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.results += other.results;
        self.server_errors += other.server_errors;
        for (kind, count) in &other.faults {
            *self.faults.entry(kind.clone()).or_default() += count;
        }
        self.withdrawn += other.withdrawn;
        self.forsaken += other.forsaken;
        self.nameless += other.nameless;
        self.asks += other.asks;
        self.notifications += other.notifications;
    }

    /// Requests that got their one answer, whoever gave it.
    pub(crate) fn answered(&self) -> u64 {
        self.results + self.server_errors + self.faults.values().sum::<u64>()
    }
}

/// The requests of one session.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    turn: u64,
    entries: HashMap<String, LedgerEntry>,
    /// Cancellations that the guard may not have read yet: turn and id.
    crossing: Vec<(u64, String)>,
    waiting: usize,
    nameless_due: u64,
    tally: WireTally,
}

/// A request that is about to be sent. Its id is in its JSON form.
#[derive(Debug)]
pub(crate) struct LedgerRequest<'a> {
    pub(crate) id: &'a str,
    pub(crate) method: &'a str,
    /// How long the guard may take; for ever if none.
    pub(crate) limit: Option<Duration>,
    pub(crate) proof: Option<String>,
}

impl Ledger {
    /// A request goes out.
    pub(crate) fn request(&mut self, now: Duration, request: LedgerRequest<'_>) {
        self.turn += 1;
        self.tally.sent += 1;
        self.waiting += usize::from(request.limit.is_some());
        let entry = LedgerEntry {
            turn: self.turn,
            method: request.method.to_owned(),
            due: request.limit.map(|limit| now + limit),
            proof: request.proof,
            state: RequestState::Waiting,
        };
        self.entries.insert(request.id.to_owned(), entry);
    }

    /// A line goes out that gets an error without an id.
    pub(crate) fn garbage(&mut self) {
        self.nameless_due += 1;
    }

    /// A request is withdrawn.
    pub(crate) fn cancel(&mut self, id: &str) {
        self.turn += 1;
        if let Some(entry) = self.entries.get_mut(id).filter(|entry| entry.state == RequestState::Waiting) {
            entry.state = RequestState::Withdrawn(self.turn);
            self.waiting -= usize::from(entry.due.is_some());
            self.tally.withdrawn += 1;
            self.crossing.push((self.turn, id.to_owned()));
        }
    }

    /// A line came from the guard.
    pub(crate) fn hear(&mut self, line: &[u8]) -> Result<Vec<Said>, String> {
        let all = envelope::read(line)?;
        for said in &all {
            self.judge(said, line)?;
        }
        Ok(all)
    }

    fn judge(&mut self, said: &Said, line: &[u8]) -> Result<(), String> {
        match said {
            Said::Answer { id, outcome } => self.settle(id, outcome, line)?,
            Said::Nameless { kind } => {
                self.tally.nameless += 1;
                if self.tally.nameless > self.nameless_due {
                    return Err(format!("an error of the kind `{kind}` without an id, for no line of ours"));
                }
            }
            Said::Ask { .. } => self.tally.asks += 1,
            Said::Notification { token, .. } => {
                self.tally.notifications += 1;
                let about = token.as_ref().and_then(|token| self.entries.get(token));
                if about.is_some_and(|entry| entry.state == RequestState::Gone) {
                    return Err(format!(
                        "progress for the cancelled request {}",
                        token.as_deref().unwrap_or_default()
                    ));
                }
            }
        }
        Ok(())
    }

    fn settle(&mut self, id: &str, outcome: &AnswerOutcome, line: &[u8]) -> Result<(), String> {
        let Some(entry) = self.entries.get_mut(id) else {
            return Err(format!("an answer to {id}, which was never asked"));
        };
        let method = &entry.method;
        match entry.state {
            RequestState::Waiting => self.waiting -= usize::from(entry.due.is_some()),
            RequestState::Withdrawn(_) => self.tally.withdrawn -= 1,
            RequestState::Gone => {
                return Err(format!("an answer to {id} (`{method}`) after it was cancelled"));
            }
            RequestState::Answered => return Err(format!("a second answer to {id} (`{method}`)")),
        }
        let was_proved = |proof: &String| contains(line, proof.as_bytes());
        if *outcome == AnswerOutcome::Result && !entry.proof.as_ref().is_none_or(was_proved) {
            return Err(format!("the answer to {id} (`{method}`) belongs to another request"));
        }
        entry.state = RequestState::Answered;
        let turn = entry.turn;
        match outcome {
            AnswerOutcome::Result => self.tally.results += 1,
            AnswerOutcome::ServerError => self.tally.server_errors += 1,
            AnswerOutcome::Fault(kind) => *self.tally.faults.entry(kind.clone()).or_default() += 1,
        }
        for (_, id) in self.crossing.extract_if(.., |(cancelled, _)| *cancelled < turn) {
            if let Some(entry) =
                self.entries.get_mut(&id).filter(|entry| matches!(entry.state, RequestState::Withdrawn(_)))
            {
                entry.state = RequestState::Gone;
            }
        }
        Ok(())
    }

    /// Requests with a deadline that wait for their answer.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether this request waits for its answer.
    pub(crate) fn waits(&self, id: &str) -> bool {
        self.entries.get(id).is_some_and(|entry| entry.state == RequestState::Waiting)
    }

    /// The id that was withdrawn last of those that are free again, because the guard knows it.
    pub(crate) fn free_id(&self) -> Option<String> {
        let free = self.entries.iter().filter(|(_, entry)| entry.state == RequestState::Gone);
        free.max_by_key(|(_, entry)| entry.turn).map(|(id, _)| id.clone())
    }

    /// Whether it was answered, by whomever.
    pub(crate) fn is_answered(&self, id: &str) -> bool {
        self.entries.get(id).is_some_and(|entry| entry.state == RequestState::Answered)
    }

    /// Demands that nothing waits for longer than its limit and `slack`.
    pub(crate) fn demand_in_time(&self, now: Duration, slack: Duration) -> Result<(), String> {
        let late = |entry: &&LedgerEntry| entry.due.is_some_and(|due| now > due + slack);
        let waiting = self.entries.iter().filter(|(_, entry)| entry.state == RequestState::Waiting);
        match waiting
            .min_by_key(|(_, entry)| entry.due.unwrap_or(Duration::MAX))
            .filter(|(_, entry)| late(entry))
        {
            None => Ok(()),
            Some((id, entry)) => Err(format!(
                "no answer to {id} (`{}`), {:.1} s after its deadline",
                entry.method,
                now.saturating_sub(entry.due.unwrap_or_default()).as_secs_f64()
            )),
        }
    }

    /// Demands, when the guard has ended by itself, that nothing is missing.
    pub(crate) fn demand_complete(&self) -> Result<(), String> {
        let mut waiting: Vec<_> =
            self.entries.iter().filter(|(_, entry)| entry.state == RequestState::Waiting).collect();
        waiting.sort_by_key(|(_, entry)| entry.turn);
        if let Some((id, entry)) = waiting.first() {
            let (count, method) = (waiting.len(), &entry.method);
            return Err(format!("{count} requests were never answered, the first is {id} (`{method}`)"));
        }
        if self.tally.nameless != self.nameless_due {
            let (due, seen) = (self.nameless_due, self.tally.nameless);
            return Err(format!("{due} lines of garbage, but {seen} errors about them"));
        }
        Ok(())
    }

    /// What went over the wire; what still waits is counted as forsaken.
    pub(crate) fn into_tally(self) -> WireTally {
        let waiting = self.entries.values().filter(|entry| entry.state == RequestState::Waiting).count();
        WireTally { forsaken: waiting as u64, ..self.tally }
    }

    /// Whether the server itself has answered anything.
    pub(crate) fn heard_server(&self) -> bool {
        self.tally.results + self.tally.server_errors > 0
    }
}

fn contains(line: &[u8], part: &[u8]) -> bool {
    line.windows(part.len().max(1)).any(|window| window == part)
}

#[cfg(test)]
mod tests;
