//! What is to be sent to the server, in order, and how many bytes of it have not been handed to the actor.
//!
//! Invariant: what was counted as unsent is forgotten when the actor has taken everything.

use std::collections::VecDeque;

use unhang_wire::{Id, compose};

use super::ReplyReservation;

/// What is to be sent, or to be sent no more.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// A request. `mirrored` goes along where messages have headers.
    Request { id: Id, method: Box<str>, line: Vec<u8>, mirrored: Vec<(String, String)> },
    /// The end of a handshake of old.
    Initialized(Vec<u8>),
    /// The reply to what the server asked, and the room that it has until it has left.
    Reply(Vec<u8>, ReplyReservation),
    /// Nobody waits for the answer to this request any more, for this reason.
    Withdrawn(Id, &'static str),
    /// This request has its outcome.
    Over(Id),
}

/// What the actor has to send now.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: VecDeque<Outgoing>,
    unsent: usize,
}

impl Outbox {
    /// Puts it behind everything else. Its bytes do not count as unsent.
    pub(super) fn push(&mut self, out: Outgoing) {
        self.waiting.push_back(out);
    }

    /// Puts a request of a caller behind everything else.
    pub(super) fn request(
        &mut self,
        id: Id,
        method: Box<str>,
        line: Vec<u8>,
        mirrored: Vec<(String, String)>,
    ) {
        self.unsent += line.len();
        self.push(Outgoing::Request { id, method, line, mirrored });
    }

    /// Replies to what the server asked, in the room that the question has had.
    pub(super) fn reply(&mut self, line: Vec<u8>, mut room: ReplyReservation) {
        room.grow(line.len());
        self.unsent += line.len();
        self.push(Outgoing::Reply(line, room));
    }

    /// Refuses what the server asked.
    pub(super) fn refuse(&mut self, id: &Id, code: i32, text: &str, room: ReplyReservation) {
        self.reply(compose::refusal(id, code, text), room);
    }

    /// How many bytes of requests and replies the actor has not taken yet.
    pub(super) fn unsent(&self) -> usize {
        self.unsent
    }

    /// Takes the next thing to send, if any.
    pub(super) fn next(&mut self) -> Option<Outgoing> {
        let out = self.waiting.pop_front();
        if out.is_none() {
            self.unsent = 0;
        }
        out
    }
}
