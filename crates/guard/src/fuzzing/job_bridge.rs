//! A model of the job bridge, as far as the session notices it.
//!
//! Invariants: the numbers of the requests decide what it does and when, so that the same bytes give the same life. It does nothing that
//! the real bridge would not do. A job has one answer.

use std::{collections::HashMap, mem::take};

use unhang_jobs::id::JobId;
use unhang_wire::{Body, Id, Json, Message, Piece, cancelled_request, read};

use super::{
    super::{
        effects::JobNews,
        promotion::{Join, JoinOutcome, Promote, WrapPromotionOrder},
    },
    speech::number,
};

/// An event of the model.
pub(super) enum TestBridgeEvent {
    /// There is a job, and this is the result for the client.
    Promotes(Id, WrapPromotionOrder, String),
    /// The call cannot become a job.
    Refuses(Id, WrapPromotionOrder),
    Joins(Id, WrapPromotionOrder, JoinOutcome),
    /// Nobody wants the job any more.
    Withdraws(Id),
    /// The answer of a job asks for more.
    AsksAgain,
}

/// The model of the job bridge. See the module's text.
#[derive(Debug, Default)]
pub(super) struct TestJobBridge {
    /// Calls that were ordered to become jobs, with their numbers. The first number counts the events until then.
    ordered: Vec<(u64, (Id, WrapPromotionOrder), u64)>,
    /// Calls that wait for jobs. The number counts the events until the outcome.
    joining: Vec<(u64, (Id, WrapPromotionOrder))>,
    /// Calls that are jobs. The number counts the events until nobody wants them any more.
    jobs: HashMap<Id, u64>,
    turns: u64,
    /// The lines that the local job server has got.
    asked: Vec<Vec<u8>>,
    /// The number of jobs whose answers ask for more.
    again: usize,
    /// How often a job made the server get one more request.
    pub(super) asked_again: usize,
}

/// The number for a job that somebody always wants, which is most of them.
const NEVER: u64 = u64::MAX;

impl TestJobBridge {
    pub(super) fn orders(&mut self, order: Promote) {
        let number = Json::new(&order.params).and_then(number).unwrap_or_default();
        match order.joins {
            Some(_) => self.joining.push((0, (order.call, order.order))),
            None => self.ordered.push((number % 3, (order.call, order.order), number)),
        }
    }

    pub(super) fn joins(&mut self, join: Join) {
        self.joining.push((self.turns % 5, (join.call, join.order)));
    }

    pub(super) fn same_call(&self, params: &[u8]) -> Option<JobId> {
        let is_same = Json::new(params).and_then(number).is_some_and(|number| number % 7 == 3);
        is_same.then(|| "abcdefgh2345".parse().ok()).flatten()
    }

    /// Returns the events of the model after an event of the life.
    pub(super) fn events(&mut self) -> Vec<TestBridgeEvent> {
        self.turns += 1;
        let mut events = Vec::new();
        for (left, call, number) in take(&mut self.ordered) {
            match (left.checked_sub(1), number % 11) {
                (Some(left), _) => self.ordered.push((left, call, number)),
                (None, 5) => events.push(TestBridgeEvent::Refuses(call.0, call.1)),
                (None, _) => {
                    events.push(TestBridgeEvent::Promotes(
                        call.0,
                        call.1,
                        format!(r#"{{"number":{number},"job":1}}"#),
                    ));
                }
            }
        }
        for (left, call) in take(&mut self.joining) {
            match (left.checked_sub(1), self.turns % 3) {
                (Some(left), _) => self.joining.push((left, call)),
                (None, 0) => events.push(TestBridgeEvent::Joins(call.0, call.1, JoinOutcome::Nothing)),
                (None, 1) => {
                    events.push(TestBridgeEvent::Joins(call.0, call.1, JoinOutcome::Still("{}".to_owned())));
                }
                (None, _) => {
                    events.push(TestBridgeEvent::Joins(call.0, call.1, JoinOutcome::Answer("{}".to_owned())));
                }
            }
        }
        for (call, left) in &mut self.jobs {
            *left = left.saturating_sub(u64::from(*left != NEVER));
            if *left == 0 {
                events.push(TestBridgeEvent::Withdraws(call.clone()));
            }
        }
        self.jobs.retain(|_, left| *left > 0);
        self.asked_again += self.again;
        events.extend((0..take(&mut self.again)).map(|_| TestBridgeEvent::AsksAgain));
        events
    }

    pub(super) fn promoted(&mut self, call: Id, is_told: bool) {
        if is_told {
            self.jobs.insert(call, if self.turns % 4 == 1 { 2 } else { NEVER });
        }
    }

    pub(super) fn hears(&mut self, call: &Id, news: JobNews<'_>) {
        assert!(self.jobs.contains_key(call), "{news:?} of {call}, which is no job, or not any more");
        if let JobNews::Answer(_, line) = news {
            // Some servers ask for something first.
            self.again += usize::from(line.len() % 3 == 0 && self.asked_again < 10);
            let is_answer = |piece: &Piece<'_>| {
                matches!(piece, Piece::Message(Message { body: Body::Response { .. }, .. }))
            };
            assert!(read(line).all(|piece| is_answer(&piece)), "{}", String::from_utf8_lossy(line));
            self.jobs.remove(call);
        }
    }

    pub(super) fn is_asked(&mut self, line: &[u8]) {
        self.asked.push(line.to_vec());
    }

    /// Returns the answers of the local job server.
    pub(super) fn answers(&mut self) -> Vec<Vec<u8>> {
        let (mut answers, mut withdrawn) = (Vec::new(), Vec::new());
        let asked = take(&mut self.asked);
        for piece in asked.iter().flat_map(|line| read(line)) {
            match piece {
                Piece::Message(Message { body: Body::Request { id, params, .. }, .. }) => {
                    let number = params.and_then(number).unwrap_or_default();
                    let line = format!(
                        r#"{{"jsonrpc":"2.0","id":{},"result":{{"number":{number}}}}}"#,
                        id.to_json()
                    );
                    answers.push((id, line.into_bytes()));
                }
                Piece::Message(Message { body: Body::Notification { params: Some(params), .. }, .. }) => {
                    withdrawn.extend(cancelled_request(params));
                }
                _ => {}
            }
        }
        answers.retain(|(id, _)| !withdrawn.contains(id));
        answers.into_iter().map(|(_, line)| line).collect()
    }
}
