//! What a server asks and has no reply to yet: bounded in number and in bytes, however much it asks and however little it takes.
//!
//! Theory of operation. What is asked takes room when it is read, and gives it back when the reply has left: over HTTP when the server
//! has taken it, on stdio when it stands in the queue to the server, which counts it from then on. An actor that can stop reading does so
//! before there is no room. One that cannot, for answers come on the same way, leaves unanswered what there is no room for.
//!
//! Invariants: nothing is kept of a question for which there is no room; it is told how many there were, and not of each.

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

/// What a reply costs besides its bytes: its place in line, and what the memory for it costs.
const OVERHEAD: usize = size_of::<Outgoing>() + 64;

/// The room for replies, all together.
#[derive(Debug)]
pub(super) struct ReplyBudget {
    taken: Arc<AtomicUsize>,
    most: usize,
    most_bytes: usize,
    /// The same with questions that somebody is asked.
    pub(super) most_of_questions: usize,
    /// How many questions there was no room for.
    unanswered: u64,
    /// What the server is called, for the log.
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

    /// Lets no more replies than this wait, where each costs more than its bytes.
    pub(super) fn bound(&mut self, most: usize) {
        self.most = most;
    }

    /// Reserves room for the reply to the question with this id; none where the server takes fewer replies than it asks for.
    pub(super) fn reserve(&mut self, id: &Id) -> Option<ReplyReservation> {
        self.reserve_bytes(match id {
            Id::Text(text) | Id::BigInteger(text) => text.len(),
            Id::Integer(_) => 0,
        })
    }

    /// Reserves room for the refusal of what has no usable id.
    pub(super) fn reserve_refusal(&mut self) -> Option<ReplyReservation> {
        self.reserve_bytes(0)
    }

    /// Whether so many bytes of a question may be kept until it is answered. One alone may be as long as a message.
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
                    "`{}` asks for more than it takes answers to: {} of its requests were left unanswered",
                    self.server,
                    self.unanswered
                );
            }
        }
        room
    }

    /// Reserves room for one more reply, if there is any. Where nothing waits there always is.
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
