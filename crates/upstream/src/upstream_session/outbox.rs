//! The messages to the server, in order, and the number of their bytes that the actor has not taken yet.
//!
//! Invariant: the count of unsent bytes returns to 0 when the actor has taken everything.

use std::collections::VecDeque;

use unhang_wire::{Id, compose};

use super::ReplyReservation;

/// A message to send, or news of a request that are no message.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// A request. `mirrored` becomes headers if the transport has them.
    Request { id: Id, method: Box<str>, line: Vec<u8>, mirrored: Vec<(String, String)> },
    /// The request with the id `id`, which comes next, is of the caller whose request `before` was answered.
    Repeats { before: Id, id: Id },
    /// The end of a legacy handshake.
    Initialized(Vec<u8>),
    /// The roots of the client have changed.
    RootsChanged(Vec<u8>),
    /// The reply to a question of the server, and the room that it has until it has left.
    Reply(Vec<u8>, ReplyReservation),
    /// Nobody waits for the answer to this request any more, for this reason.
    Withdrawn(Id, &'static str),
    /// This request has its outcome.
    Over(Id),
}

/// The queue of messages that the actor has to send.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    waiting: VecDeque<Outgoing>,
    unsent: usize,
}

impl Outbox {
    /// Puts a message behind all others. Its bytes do not count as unsent.
    pub(super) fn push(&mut self, out: Outgoing) {
        self.waiting.push_back(out);
    }

    /// Puts a request of a caller behind all other messages.
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

    /// Replies to a question of the server, in the room that the question has had.
    pub(super) fn reply(&mut self, line: Vec<u8>, mut room: ReplyReservation) {
        room.grow(line.len());
        self.unsent += line.len();
        self.push(Outgoing::Reply(line, room));
    }

    /// Refuses a question of the server.
    pub(super) fn refuse(&mut self, id: &Id, code: i32, text: &str, room: ReplyReservation) {
        self.reply(compose::refusal(id, code, text), room);
    }

    /// Returns how many bytes of requests and replies the actor has not taken yet.
    pub(super) fn unsent(&self) -> usize {
        self.unsent
    }

    /// Takes the next message to send, if any.
    pub(super) fn next(&mut self) -> Option<Outgoing> {
        let out = self.waiting.pop_front();
        if out.is_none() {
            self.unsent = 0;
        }
        out
    }
}
