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

use super::{Outgoing, UpstreamSession, request_table};
use unhang_core::{limits::Limits, wording::is_round};

/// What a reply costs besides its bytes: its place in line, and what the memory for it costs.
const OVERHEAD: usize = size_of::<Outgoing>() + 64;

/// The room for replies.
#[derive(Debug)]
pub(super) struct Replies {
    taken: Arc<AtomicUsize>,
    most: usize,
    most_bytes: usize,
    /// The same with questions that somebody is asked.
    pub(super) most_of_questions: usize,
    /// How many questions there was no room for.
    unanswered: u64,
}

/// The room of one reply, until it has left.
#[derive(Debug)]
pub(crate) struct Room {
    taken: Arc<AtomicUsize>,
    bytes: usize,
}

impl Room {
    fn grow(&mut self, bytes: usize) {
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Replies {
    pub(super) fn new(limits: &Limits) -> Self {
        let most_of_questions = limits.max_message.max(limits.queue_bytes);
        Self {
            taken: Arc::default(),
            most: usize::MAX,
            most_bytes: limits.queue_bytes,
            most_of_questions,
            unanswered: 0,
        }
    }

    /// Room for one more reply, if there is any. Where nothing waits there always is.
    fn room(&self, id_bytes: usize) -> Option<Room> {
        let count = Arc::strong_count(&self.taken) - 1;
        let fits = count < self.most && self.taken.load(Ordering::Relaxed) < self.most_bytes;
        (fits || count == 0).then(|| {
            let mut room = Room { taken: Arc::clone(&self.taken), bytes: 0 };
            room.grow(id_bytes + OVERHEAD);
            room
        })
    }
}

impl UpstreamSession {
    /// No more replies than this wait, where each costs more than its bytes.
    pub(crate) fn bound_replies(&mut self, most: usize) {
        self.replies.most = most;
    }

    /// Room for the reply to this question; none where the server takes fewer replies than it asks for.
    pub(super) fn room(&mut self, id: &Id) -> Option<Room> {
        self.room_for(match id {
            Id::Text(text) | Id::BigInteger(text) => text.len(),
            Id::Integer(_) => 0,
        })
    }

    /// Whether so many bytes of a question may be kept until it is answered. One alone may be as long as a message.
    pub(super) fn holds(&self, room: &mut Room, bytes: usize) -> bool {
        let others = self.replies.taken.load(Ordering::Relaxed) - room.bytes;
        let holds = others + bytes <= self.replies.most_of_questions;
        if holds {
            room.grow(bytes);
        }
        holds
    }

    fn room_for(&mut self, id_bytes: usize) -> Option<Room> {
        let room = self.replies.room(id_bytes);
        if room.is_none() {
            self.replies.unanswered += 1;
            if is_round(self.replies.unanswered) {
                tracing::warn!(
                    "`{}` asks for more than it takes answers to: {} of its requests were left unanswered",
                    self.name,
                    self.replies.unanswered
                );
            }
        }
        room
    }

    /// Replies to what the server asked, in the room that the question has had.
    pub(super) fn reply(&mut self, line: Vec<u8>, mut room: Room) {
        room.grow(line.len());
        self.unsent += line.len();
        self.out.push_back(Outgoing::Reply(line, room));
    }

    /// Refuses what is no valid request, if there is room for that.
    pub(super) fn refuse(&mut self, line: Vec<u8>) {
        if let Some(room) = self.room_for(0) {
            self.reply(line, room);
        }
    }

    pub(super) fn refused(&mut self, id: &Id, code: i32, text: &str, room: Room) {
        self.reply(request_table::refusal(id, code, text), room);
    }
}
