//! The answers that the client is owed, learnt from the lines alone (promises 1, 2 and 8).
//!
//! Invariants: a request is owed one answer from the moment its line is handed over. After the answer or the withdrawal, one more is a
//! fault. A request that was withdrawn out of a batch while the batch is answered may be answered or not.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    time::Duration,
};

use unhang_wire::{
    self as wire, Body, Id, Invalid, InvalidReason, Json, Line, Message, MessageShape, Piece,
    ResponseOutcome, read,
};

use super::speech::{PROGRESS, number};
use unhang_core::{fault::FaultKind, limits::Limits};

/// A request without an answer so far.
#[derive(Clone, Debug)]
struct UnansweredRequest {
    number: Option<u64>,
    since: Duration,
    /// When the answer has to be there.
    latest: Option<Duration>,
    token: Option<Id>,
    /// The number of requests that had used the token, this one included.
    token_use: u64,
    batch: Option<u64>,
    /// Whether silence is fine too.
    optional: bool,
}

/// The model of the client: the answers that it is owed.
#[derive(Debug)]
pub(super) struct ClientModel {
    limits: Limits,
    owed: HashMap<Id, Vec<UnansweredRequest>>,
    /// The number of answers without a usable id: of those that must come, and of those that may.
    nameless: (usize, usize),
    /// Requests of the server that the client may answer, the newest last.
    pub(super) asked: Vec<Id>,
    dead_tokens: HashSet<Id>,
    /// The number of requests that have used each token.
    token_uses: HashMap<Id, u64>,
    batches: u64,
    /// The highest progress by token, since the token was used last. Only tokens with progress that did not come from the server are here.
    beaten: HashMap<Id, f64>,
}

/// The facts that the model needs when the client says something.
#[derive(Clone, Copy)]
pub(super) struct SendContext {
    pub(super) now: Duration,
    /// Whether the server has answered something, so that it counts as started.
    pub(super) started: bool,
    /// Whether batches are taken apart. Otherwise each is refused as a whole.
    pub(super) takes_batches: bool,
}

impl ClientModel {
    pub(super) fn new(limits: &Limits) -> ClientModel {
        ClientModel {
            limits: limits.clone(),
            owed: HashMap::new(),
            nameless: (0, 0),
            asked: Vec::new(),
            dead_tokens: HashSet::new(),
            token_uses: HashMap::new(),
            batches: 0,
            beaten: HashMap::new(),
        }
    }

    /// Enters a line of the client, of one piece, before it is handed to the guard.
    pub(super) fn says(&mut self, line: &Line<'_>, moment: SendContext) {
        match line {
            Line::Oversized(oversized) => match (&oversized.id, oversized.shape) {
                (Some(id), MessageShape::Request) => self.owe(id, None, "", moment),
                (id, MessageShape::Response) => self.broken_answer(id.as_ref()),
                _ => self.owe_nameless(),
            },
            Line::Whole(bytes) => {
                read(bytes).for_each(|piece| self.says_piece(&piece, false, moment));
            }
        }
    }

    /// Returns whether the line is a batch with an id that an earlier batch still waits for. Such a client cannot tell its arrays of
    /// answers apart, and neither can this model.
    pub(super) fn would_mix_batches(&self, line: &Line<'_>) -> bool {
        let Line::Whole(bytes) = line else { return false };
        let waits = |id: &Id| {
            self.owed.get(id).is_some_and(|entries| entries.iter().any(|owed| owed.batch.is_some()))
        };
        read(bytes).any(|piece| match &piece {
            Piece::Batch(elements) => elements.iter().any(|element| match element {
                Piece::Message(Message { body: Body::Request { id, .. }, .. }) => waits(id),
                Piece::Invalid(Invalid { id: Some(id), .. }) => waits(id),
                _ => false,
            }),
            _ => false,
        })
    }

    fn says_piece(&mut self, piece: &Piece<'_>, in_batch: bool, moment: SendContext) {
        match piece {
            Piece::Message(message) => match &message.body {
                Body::Request { id, method, params, .. } => self.owe(id, *params, method, moment),
                Body::Notification { method, params } => {
                    let withdrawn = params.filter(|_| method == "notifications/cancelled");
                    if let Some(id) = withdrawn.and_then(wire::cancelled_request) {
                        self.withdraw(&id, in_batch);
                    }
                }
                Body::Response { id, .. } => self.answered(id),
            },
            Piece::Invalid(invalid) => self.says_invalid(invalid, moment),
            Piece::Junk(_) => self.owe_nameless(),
            Piece::Batch(_) if !moment.takes_batches => self.owe_nameless(),
            Piece::Batch(pieces) => self.says_batch(pieces, moment),
        }
    }

    fn says_invalid(&mut self, invalid: &Invalid<'_>, moment: SendContext) {
        match (&invalid.id, invalid.shape) {
            (id, MessageShape::Response) => self.broken_answer(id.as_ref()),
            (Some(id), _) => self.owe(id, None, "", moment),
            (None, _) => self.owe_nameless(),
        }
    }

    fn says_batch(&mut self, pieces: &[Piece<'_>], moment: SendContext) {
        let before: HashMap<Id, usize> =
            self.owed.iter().map(|(id, entries)| (id.clone(), entries.len())).collect();
        for piece in pieces {
            self.says_piece(piece, true, moment);
        }
        self.batches += 1;
        let batch = self.batches;
        let of_batch = self.owed.iter_mut().flat_map(|(id, entries)| {
            let known = before.get(id).copied().unwrap_or_default();
            entries.iter_mut().skip(known)
        });
        let of_batch: Vec<_> = of_batch.collect();
        let latest = of_batch
            .iter()
            .map(|owed| owed.latest)
            .reduce(|one, other| one.zip(other).map(|(one, other)| one.max(other)));
        for owed in of_batch {
            owed.batch = Some(batch);
            owed.latest = latest.flatten();
        }
    }

    fn owe(&mut self, id: &Id, params: Option<Json<'_>>, method: &str, moment: SendContext) {
        let token = params.and_then(wire::progress_token);
        let token_use = token.as_ref().map_or(0, |token| {
            self.dead_tokens.remove(token);
            self.beaten.remove(token);
            let uses = self.token_uses.entry(token.clone()).or_default();
            *uses += 1;
            *uses
        });
        let latest = self.time_limit(method, moment.started).map(|time_limit| moment.now + time_limit);
        let owed = UnansweredRequest {
            number: params.and_then(number),
            since: moment.now,
            latest,
            token,
            token_use,
            batch: None,
            optional: false,
        };
        self.owed.entry(id.clone()).or_default().push(owed);
    }

    fn owe_nameless(&mut self) {
        self.nameless.0 += 1;
        self.nameless.1 += 1;
    }

    /// Enters an answer that is not valid. It may be for the server, or be answered without an id.
    fn broken_answer(&mut self, id: Option<&Id>) {
        self.nameless.1 += 1;
        id.into_iter().for_each(|id| self.answered(id));
    }

    /// Returns the longest that a request may take, or `None` if it has no limit (design 3).
    fn time_limit(&self, method: &str, started: bool) -> Option<Duration> {
        let own = match method {
            "subscriptions/listen" => return None,
            "initialize" => self.limits.start_timeout,
            "tools/call" | "tasks/result" => self.limits.call_timeout,
            _ => self.limits.request_timeout,
        };
        Some(if started { own } else { own.max(self.limits.start_timeout) })
    }

    fn withdraw(&mut self, id: &Id, in_batch: bool) {
        let Some(entries) = self.owed.get_mut(id) else { return };
        let withdrawn: Vec<_> = entries.extract_if(.., |owed| !in_batch && owed.batch.is_none()).collect();
        entries.iter_mut().for_each(|owed| owed.optional = true);
        // Requests that had ended already were not ended by this.
        let ended = withdrawn.into_iter().filter(|owed| !owed.optional);
        ended.for_each(|owed| self.bury(&owed));
    }

    /// Notes that no progress may come for the token of an ended request. A faulty client may have used the token for another request too:
    /// one that is still open, or a later one, made after this one was given up and while its batch was still to be answered. The token
    /// then stays alive.
    fn bury(&mut self, ended: &UnansweredRequest) {
        let still_used =
            |token: &Id| self.owed.values().flatten().any(|owed| owed.token.as_ref() == Some(token));
        let used_later = |token: &Id| self.token_uses.get(token) != Some(&ended.token_use);
        let dead = ended.token.as_ref().filter(|token| !still_used(token) && !used_later(token));
        self.dead_tokens.extend(dead.cloned());
    }

    /// Notes that the client has answered the server.
    fn answered(&mut self, id: &Id) {
        let variant = id.variant();
        let exact = self.asked.iter().position(|asked| asked == id);
        let found = exact.or_else(|| self.asked.iter().position(|asked| Some(asked) == variant.as_ref()));
        found.into_iter().for_each(|position| drop(self.asked.remove(position)));
    }

    /// Checks a line that the guard has sent to the client. Numbers in `suspicious` were sent under an id that was not theirs. If `hushed`,
    /// only answers may come while a call runs.
    pub(super) fn hears(&mut self, now: Duration, line: &[u8], suspicious: &HashSet<u64>, hushed: bool) {
        let text = String::from_utf8_lossy(line);
        let pieces: Vec<_> = read(line).collect();
        assert!(!line.contains(&b'\n') && !line.contains(&b'\r'), "one message, one line: {text}");
        match &pieces[..] {
            [Piece::Batch(answers)] => self.hears_batch(now, answers, suspicious),
            [piece] => self.hears_piece(now, piece, suspicious, hushed),
            _ => panic!("only messages reach the client: {text}"),
        }
    }

    fn hears_piece(&mut self, now: Duration, piece: &Piece<'_>, suspicious: &HashSet<u64>, hushed: bool) {
        match piece {
            Piece::Message(Message { body: Body::Response { id, outcome, .. }, .. }) => {
                let answer = HeardAnswer::new(id, outcome, suspicious);
                let entries = self.owed.entry(id.clone()).or_default();
                let owed = answer.take(entries, None, answer.suspicious);
                let Some(owed) = owed else { panic!("nobody waits for {answer:?}; owed: {:?}", self.owed) };
                self.settle(now, &answer, &owed);
            }
            Piece::Message(Message { body: Body::Request { id, .. }, .. }) => {
                assert!(!self.asked.contains(id), "the client cannot tell two requests {id} apart");
                self.asked.push(id.clone());
            }
            Piece::Message(Message { body: Body::Notification { method, params }, .. }) => {
                self.hears_note(method, *params, hushed);
            }
            // This is JSON-RPC's own answer to a message without a usable id.
            Piece::Invalid(Invalid {
                reason: InvalidReason::BadId,
                raw_id: Some(_),
                shape: MessageShape::Response,
                ..
            }) => {
                assert!(self.nameless.1 > 0, "an answer without an id that nobody waits for: {piece:?}");
                self.nameless = (self.nameless.0.saturating_sub(1), self.nameless.1 - 1);
            }
            _ => panic!("only messages reach the client: {piece:?}"),
        }
    }

    /// Checks an array, which answers one whole batch. Missing answers belong to requests that were withdrawn or had no id.
    fn hears_batch(&mut self, now: Duration, pieces: &[Piece<'_>], suspicious: &HashSet<u64>) {
        let mut answers = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Message(Message { body: Body::Response { id, outcome, .. }, .. }) => {
                    answers.push(HeardAnswer::new(id, outcome, suspicious));
                }
                Piece::Invalid(_) => self.hears_piece(now, piece, suspicious, false),
                _ => panic!("only answers are put together: {piece:?}"),
            }
        }
        // Answers that fit only one request choose first.
        answers.sort_by_key(|answer| answer.number.is_none());
        let open: BTreeSet<u64> = self.owed.values().flatten().filter_map(|owed| owed.batch).collect();
        let fit =
            |trusting| open.iter().find_map(|batch| Some((*batch, self.fit(&answers, *batch, trusting)?)));
        let Some((batch, settled)) = fit(false).or_else(|| fit(true)) else {
            assert!(answers.is_empty(), "no batch has these answers: {answers:?}; owed: {:?}", self.owed);
            return;
        };
        self.owed.values_mut().for_each(|entries| entries.retain(|owed| owed.batch != Some(batch)));
        answers.iter().zip(settled).for_each(|(answer, owed)| self.settle(now, answer, &owed));
    }

    /// Returns the requests of a batch that these answers would settle, if they settle the whole batch.
    fn fit(&self, answers: &[HeardAnswer], batch: u64, trusting: bool) -> Option<Vec<UnansweredRequest>> {
        let mut open = self.owed.clone();
        let take = |answer: &HeardAnswer| answer.take(open.get_mut(&answer.id)?, Some(batch), trusting);
        let settled: Vec<_> = answers.iter().map(take).collect::<Option<_>>()?;
        let mut left = open.values().flatten().filter(|owed| owed.batch == Some(batch));
        (!settled.is_empty() && left.all(|owed| owed.optional)).then_some(settled)
    }

    fn settle(&mut self, now: Duration, answer: &HeardAnswer, owed: &UnansweredRequest) {
        if answer.gives_up {
            let shortest = self.limits.request_timeout.min(self.limits.call_timeout).min(SHORTEST_CLOCK);
            assert!(now - owed.since >= shortest, "given up after {:?}: {owed:?}", now - owed.since);
            self.bury(owed);
        }
    }

    fn hears_note(&mut self, method: &str, params: Option<Json<'_>>, hushed: bool) {
        match method {
            "notifications/cancelled" => {
                if let Some(id) = params.and_then(wire::cancelled_request) {
                    self.answered(&id);
                    // A subscription ends like this too.
                    let subscriptions = self.owed.get_mut(&id).into_iter().flatten();
                    subscriptions.filter(|owed| owed.latest.is_none()).for_each(|owed| owed.optional = true);
                }
            }
            "notifications/progress" => {
                let token = params.and_then(wire::notified_token);
                let dead = token.filter(|token| self.dead_tokens.contains(token));
                assert!(dead.is_none(), "progress of {dead:?}, which was withdrawn or given up");
                params.into_iter().for_each(|params| self.hears_progress(params));
            }
            _ => {}
        }
        let chatter = matches!(method, "notifications/message" | "notifications/progress")
            || method.ends_with("/list_changed");
        // A subscription has no limit, and is not a call.
        let runs = |owed: &UnansweredRequest| !owed.optional && owed.latest.is_some();
        let disturbs = hushed && chatter && self.owed.values().flatten().any(runs);
        assert!(!disturbs, "`{method}` while a call runs (G-13)");
    }

    /// Checks a progress notification. The numbers of servers are known. All others are heartbeats, or were raised above one.
    fn hears_progress(&mut self, params: Json<'_>) {
        let number = params.member("progress").and_then(|progress| progress.get().parse::<f64>().ok());
        let Some((token, number)) = wire::notified_token(params).zip(number) else { return };
        let is_open = self.owed.values().flatten().any(|owed| owed.token.as_ref() == Some(&token));
        let is_servers = params.member("progress").is_some_and(|progress| PROGRESS.contains(&progress.get()));
        assert!(is_servers || is_open, "a heartbeat of {token}, which nobody waits for");
        if !is_open {
            // Late progress is the server's own affair.
            self.beaten.remove(&token);
        } else if let Some(highest) = self.beaten.get_mut(&token) {
            assert!(number > *highest, "progress of {token} goes from {highest} to {number}");
            *highest = number;
        } else if !is_servers {
            self.beaten.insert(token, number);
        }
    }

    /// Checks that no answer is late, once the clock's ticks up to now have been given.
    pub(super) fn check_deadlines(&self, now: Duration) {
        for (id, entries) in &self.owed {
            let late =
                entries.iter().find(|owed| !owed.optional && owed.latest.is_some_and(|latest| latest <= now));
            assert!(late.is_none(), "{id} is in flight for longer than its limit: {late:?} at {now:?}");
        }
    }

    /// Checks that everything is answered, once the guard has ended.
    pub(super) fn check_end(&self) {
        for (id, entries) in &self.owed {
            assert!(entries.iter().all(|owed| owed.optional), "{id} was never answered: {entries:?}");
        }
        assert_eq!(self.nameless.0, 0, "answers without an id that never came");
    }
}

/// An answer as the client gets it.
#[derive(Debug)]
struct HeardAnswer {
    id: Id,
    /// The number of the request that it answers, if it has one.
    number: Option<u64>,
    /// Whether that number may be wrong.
    suspicious: bool,
    /// Whether it says that a deadline has passed.
    gives_up: bool,
}

impl HeardAnswer {
    fn new(id: &Id, outcome: &ResponseOutcome<'_>, suspicious: &HashSet<u64>) -> HeardAnswer {
        let (number, error) = match outcome {
            ResponseOutcome::Result(result) => (number(*result), ""),
            ResponseOutcome::Error(error) => (None, error.get()),
        };
        let suspicious = number.is_some_and(|number| suspicious.contains(&number));
        let gives_up = error.starts_with(&format!(r#"{{"code":{},"#, FaultKind::Deadline.code()));
        HeardAnswer { id: id.clone(), number, suspicious, gives_up }
    }

    /// Takes the request that this answers. An answer without a number takes the newest, as a refusal would. If `trusting`, a suspicious
    /// answer may take any request.
    fn take(
        &self,
        entries: &mut Vec<UnansweredRequest>,
        batch: Option<u64>,
        trusting: bool,
    ) -> Option<UnansweredRequest> {
        let any = self.number.is_none() || (trusting && self.suspicious);
        let fits = |owed: &UnansweredRequest| owed.batch == batch && (any || self.number == owed.number);
        let owed = entries.iter().rposition(|owed| fits(owed) && !owed.optional);
        let position = owed.or_else(|| entries.iter().position(fits))?;
        Some(entries.remove(position))
    }
}

/// 95 % of the shortest clock of all known clients.
const SHORTEST_CLOCK: Duration = Duration::from_millis(28_500);
