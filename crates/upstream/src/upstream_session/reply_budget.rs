//! The questions of a server that have no reply yet: bounded in number and in bytes, however much it asks and however little it takes.
//!
//! Theory of operation. A question takes room when it is read, and gives it back when the reply has left. Over HTTP, that is when the
//! server has taken it; on stdio, when it is in the queue to the server, which counts it from then on. An actor that can stop reading does
//! so before the room is used up. An actor that cannot, because answers come on the same way, leaves questions unanswered for which there
//! is no room.
//!
//! Invariants: nothing is kept of a question for which there is no room. The log tells how many there were, and not of each.

use std::{
    mem::size_of,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use unhang_wire::Id;

use super::outbox::Outgoing;
use unhang_core::{limits::Limits, wording::is_round};

/// The cost of a reply besides its bytes: its place in line, and the cost of allocating it.
const OVERHEAD: usize = size_of::<Outgoing>() + 64;

/// The room for all replies together.
#[derive(Debug)]
pub(super) struct ReplyBudget {
    taken: Arc<AtomicUsize>,
    most: usize,
    most_bytes: usize,
    /// The most bytes while there are questions that somebody is asked.
    pub(super) most_of_questions: usize,
    /// The number of questions for which there was no room.
    unanswered: u64,
    /// The server's name, for the log.
    server: Box<str>,
}

/// The room of one reply, until it has left.
#[derive(Debug)]
pub(crate) struct ReplyReservation {
    taken: Arc<AtomicUsize>,
    bytes: usize,
}

impl ReplyReservation {
    /// Takes more bytes. The reply or the question is kept in any case.
    pub(super) fn grow(&mut self, bytes: usize) {
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
    }
}

impl Drop for ReplyReservation {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl ReplyBudget {
    pub(super) fn new(server: &str, limits: &Limits) -> Self {
        let most_of_questions = limits.max_message.max(limits.queue_bytes);
        Self {
            taken: Arc::default(),
            most: usize::MAX,
            most_bytes: limits.queue_bytes,
            most_of_questions,
            unanswered: 0,
            server: server.into(),
        }
    }

    /// Limits the number of replies that may wait, for a transport on which each costs more than its bytes.
    pub(super) fn bound(&mut self, most: usize) {
        self.most = most;
    }

    /// Reserves room for the reply to the question with this id; `None` if the server takes fewer replies than it asks for.
    pub(super) fn reserve(&mut self, id: &Id) -> Option<ReplyReservation> {
        self.reserve_bytes(match id {
            Id::Text(text) | Id::BigInteger(text) => text.len(),
            Id::Integer(_) => 0,
        })
    }

    /// Reserves room for the refusal of a message without a usable id; `None` if the server takes fewer replies than it asks for.
    pub(super) fn reserve_refusal(&mut self) -> Option<ReplyReservation> {
        self.reserve_bytes(0)
    }

    /// Returns whether so many bytes of a question may be kept until it is answered, and takes the room for them. One question alone may be
    /// as long as a message.
    pub(super) fn holds(&self, room: &mut ReplyReservation, bytes: usize) -> bool {
        let others = self.taken.load(Ordering::Relaxed) - room.bytes;
        let holds = others + bytes <= self.most_of_questions;
        if holds {
            room.grow(bytes);
        }
        holds
    }

    fn reserve_bytes(&mut self, id_bytes: usize) -> Option<ReplyReservation> {
        let room = self.room(id_bytes);
        if room.is_none() {
            self.unanswered += 1;
            if is_round(self.unanswered) {
                tracing::warn!(
                    "`{}` sends more requests than it reads answers: unhang left {} of its requests \
                     unanswered",
                    self.server,
                    self.unanswered
                );
            }
        }
        room
    }

    /// Reserves room for one more reply, if there is any. If no reply waits, there always is.
    fn room(&self, id_bytes: usize) -> Option<ReplyReservation> {
        let count = Arc::strong_count(&self.taken) - 1;
        let fits = count < self.most && self.taken.load(Ordering::Relaxed) < self.most_bytes;
        (fits || count == 0).then(|| {
            let mut room = ReplyReservation { taken: Arc::clone(&self.taken), bytes: 0 };
            room.grow(id_bytes + OVERHEAD);
            room
        })
    }
}
