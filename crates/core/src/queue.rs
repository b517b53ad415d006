//! The messages that wait for one peer while it does not read, bounded in bytes (promise 3, X-01).
//!
//! Invariants: `push` and `flush` never wait. Order is kept. A response, a request or any notification that is not named in [`Class`] is
//! never dropped. Over the limit log messages go first. Then progress is merged to the newest of each token, and then list-changed
//! notifications are merged to one a kind. A message that has begun to leave is never touched. The owner of the queue stops producing while
//! [`Queue::is_full`]. Replies are counted apart, for an owner that produces those alone.

use std::{
    collections::{HashMap, VecDeque},
    io::{self, IoSlice},
    ops::Range,
    sync::Arc,
};

use unhang_wire::Id;

/// The destination of a queue's bytes: a write that takes as many as it can and never waits.
pub trait Sink {
    /// Writes from the parts in order, and returns how many bytes were taken.
    ///
    /// # Errors
    /// Fails with `WouldBlock` if no byte can be taken now. Any other error means that the peer has gone.
    fn write_some(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize>;
}

impl Sink for unhang_proc::pipe::PipeWriter {
    fn write_some(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.try_write_vectored(parts)
    }
}

/// The treatment of a message under pressure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Class {
    /// Never dropped: responses, requests, and notifications that mean something alone.
    Kept,
    /// Never dropped either: the reply to a request of a peer that sends more requests than it takes replies.
    Reply,
    /// `notifications/message`: dropped first.
    Log,
    /// `notifications/progress`: only the newest of a token matters.
    Progress(Id),
    /// `notifications/*/list_changed`: one of a kind is enough.
    ListChanged(Box<str>),
}

#[derive(Debug)]
struct QueuedLine {
    class: Class,
    line: PendingLine,
}

/// A line with its ending, or the rest of one.
#[derive(Debug)]
enum PendingLine {
    Own(Vec<u8>),
    /// Part of the memory that it was read into.
    Shared(Arc<Vec<u8>>, Range<usize>),
}

impl PendingLine {
    /// Shares the memory in which a rest and its line ending stand. Returns `None` if they do not stand there. Also returns `None` if they
    /// are so little of the memory that holding it would cost far more than the queue counts.
    fn shared(rest: &[u8], memory: &Arc<Vec<u8>>) -> Option<PendingLine> {
        let start = rest.as_ptr().addr().checked_sub(memory.as_ptr().addr())?;
        let range = start..start + rest.len() + 1;
        let fits = memory.get(range.clone())?.ends_with(b"\n") && rest.len() >= memory.len() / SHARED_PART;
        fits.then(|| PendingLine::Shared(Arc::clone(memory), range))
    }

    fn copied(rest: &[u8]) -> PendingLine {
        let mut bytes = Vec::with_capacity(rest.len() + 1);
        bytes.extend_from_slice(rest);
        bytes.push(b'\n');
        PendingLine::Own(bytes)
    }
}

impl QueuedLine {
    fn bytes(&self) -> &[u8] {
        match &self.line {
            PendingLine::Own(bytes) => bytes,
            PendingLine::Shared(memory, range) => &memory[range.clone()],
        }
    }

    /// Returns the bytes that the line counts for while it waits.
    fn cost(&self) -> usize {
        self.bytes().len() + ENTRY_OVERHEAD
    }
}

/// The cost of an entry besides its bytes, so that a million empty messages count too.
const ENTRY_OVERHEAD: usize = 96;
/// A line shares the memory that it was read into if it is at least this part of it. A shorter line is copied, so the memory that is held
/// is at most so many times what is counted.
const SHARED_PART: usize = 2;
/// The most entries in one write.
const VECTOR: usize = 64;

/// The messages on their way to one peer.
#[derive(Debug)]
pub struct Queue {
    limit: usize,
    entries: VecDeque<QueuedLine>,
    /// Bytes of the first entry that have left already.
    begun: usize,
    cost: usize,
    /// The number of entries that could be shed; at zero there is no use in trying.
    logs: usize,
    mergeable: usize,
    /// The part of `cost` that is replies.
    replies: usize,
    shed: u64,
    peer_gone: bool,
}

impl Queue {
    /// Makes an empty queue that sheds above `limit` bytes.
    pub fn new(limit: usize) -> Queue {
        Queue {
            limit,
            entries: VecDeque::new(),
            begun: 0,
            cost: 0,
            logs: 0,
            mergeable: 0,
            replies: 0,
            shed: 0,
            peer_gone: false,
        }
    }

    /// Returns the bytes that wait, bookkeeping included.
    pub fn cost(&self) -> usize {
        self.cost
    }

    /// Returns the bytes of the messages that wait.
    pub fn bytes(&self) -> usize {
        self.cost - self.entries.len() * ENTRY_OVERHEAD - self.begun
    }

    /// Returns the part of the cost that is replies.
    pub fn replies(&self) -> usize {
        self.replies
    }

    /// Returns whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns whether the queue is over its limit even after shedding: the producer then has to be held back.
    pub fn is_full(&self) -> bool {
        self.cost > self.limit
    }

    /// Returns how many messages were dropped or merged so far.
    pub fn shed(&self) -> u64 {
        self.shed
    }

    /// Returns whether a write failed: then nothing can be delivered any more, and nothing is kept.
    pub fn peer_gone(&self) -> bool {
        self.peer_gone
    }

    /// Takes a message without its line ending, and adds the ending. With a sink the message leaves at once, behind those that wait, and
    /// only the part that did not fit is kept. Without a sink it waits for the next [`Queue::flush`]. The kept part of a long message that
    /// stands in `memory` is not copied.
    pub fn push(
        &mut self,
        class: Class,
        message: &[u8],
        sink: Option<&mut impl Sink>,
        memory: Option<&Arc<Vec<u8>>>,
    ) {
        if self.peer_gone {
            return;
        }
        let mut taken = 0;
        if let Some(sink) = sink {
            self.flush(sink);
            if self.peer_gone {
                return;
            }
            if self.entries.is_empty() {
                match write_line(message, sink) {
                    Ok(count) => taken = count,
                    Err(_) => return self.lose_peer(),
                }
            }
            if taken > message.len() {
                return;
            }
        }
        let rest = &message[taken..];
        let line = memory
            .and_then(|memory| PendingLine::shared(rest, memory))
            .unwrap_or_else(|| PendingLine::copied(rest));
        // The rest of a message that has begun to leave cannot be taken back.
        let has_begun = taken > 0 && class != Class::Reply;
        self.append(QueuedLine { class: if has_begun { Class::Kept } else { class }, line });
        if self.is_full() {
            self.relieve();
        }
    }

    /// Sends as much as can be sent now.
    pub fn flush(&mut self, sink: &mut impl Sink) {
        while !self.entries.is_empty() && !self.peer_gone {
            let mut parts = [IoSlice::new(&[]); VECTOR];
            let mut count = 0;
            for (part, entry) in parts.iter_mut().zip(&self.entries) {
                let from = if count == 0 { self.begun } else { 0 };
                *part = IoSlice::new(&entry.bytes()[from..]);
                count += 1;
            }
            match sink.write_some(&parts[..count]) {
                Ok(0) => return,
                Ok(written) => self.left(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.lose_peer(),
            }
        }
    }

    /// Forgets everything, because the peer has gone.
    pub fn clear(&mut self) {
        *self = Queue { shed: self.shed, ..Queue::new(self.limit) };
    }

    fn lose_peer(&mut self) {
        self.clear();
        self.peer_gone = true;
    }

    fn append(&mut self, entry: QueuedLine) {
        self.count(&entry.class, true);
        let cost = entry.cost();
        self.cost += cost;
        self.replies += if entry.class == Class::Reply { cost } else { 0 };
        self.entries.push_back(entry);
    }

    fn count(&mut self, class: &Class, added: bool) {
        let counter = match class {
            Class::Kept | Class::Reply => return,
            Class::Log => &mut self.logs,
            Class::Progress(_) | Class::ListChanged(_) => &mut self.mergeable,
        };
        *counter = if added { *counter + 1 } else { counter.saturating_sub(1) };
    }

    fn left(&mut self, mut written: usize) {
        while let Some(first) = self.entries.front() {
            let rest = first.bytes().len() - self.begun;
            if written < rest {
                self.begun += written;
                return;
            }
            written -= rest;
            self.begun = 0;
            if let Some(entry) = self.entries.pop_front() {
                let cost = entry.cost();
                self.cost -= cost;
                self.replies -= if entry.class == Class::Reply { cost } else { 0 };
                self.count(&entry.class, false);
            }
        }
    }

    /// Sheds down to three quarters of the limit, so the work is done once for many messages.
    fn relieve(&mut self) {
        let target = self.limit / 4 * 3;
        if self.logs > 0 {
            self.drop_where(target, |entry, _| entry.class == Class::Log);
        }
        if self.is_full() && self.mergeable > 0 {
            let newest = self.newest_of_each(|class| matches!(class, Class::Progress(_)));
            self.drop_where(target, |entry, position| superseded(&newest, entry, position));
            if self.is_full() {
                let newest = self.newest_of_each(|class| matches!(class, Class::ListChanged(_)));
                self.drop_where(target, |entry, position| superseded(&newest, entry, position));
            }
            // The remaining entries are one of a kind. Another look pays only once there are new ones.
            self.mergeable = 0;
        }
    }

    fn newest_of_each(&self, filter: impl Fn(&Class) -> bool) -> HashMap<String, usize> {
        let positions = self.entries.iter().enumerate().filter(|(_, entry)| filter(&entry.class));
        positions.map(|(position, entry)| (format!("{:?}", entry.class), position)).collect()
    }

    fn drop_where(&mut self, target: usize, unwanted: impl Fn(&QueuedLine, usize) -> bool) {
        let begun = self.begun > 0;
        let mut cost = self.cost;
        let (mut position, mut dropped_logs, mut dropped) = (0, 0, 0);
        self.entries.retain(|entry| {
            let drop_it = cost > target && !(begun && position == 0) && unwanted(entry, position);
            position += 1;
            if drop_it {
                cost -= entry.cost();
                dropped += 1;
                dropped_logs += usize::from(entry.class == Class::Log);
            }
            !drop_it
        });
        self.cost = cost;
        self.logs = self.logs.saturating_sub(dropped_logs);
        self.shed += dropped;
    }
}

fn superseded(newest: &HashMap<String, usize>, entry: &QueuedLine, position: usize) -> bool {
    newest.get(&format!("{:?}", entry.class)).is_some_and(|last| *last > position)
}

/// Writes a message and its line ending, as far as the sink takes them now. Returns how many bytes it took.
fn write_line(message: &[u8], sink: &mut impl Sink) -> io::Result<usize> {
    let mut taken = 0;
    while taken <= message.len() {
        match sink.write_some(&[IoSlice::new(&message[taken..]), IoSlice::new(b"\n")]) {
            Ok(0) => break,
            Ok(count) => taken += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(taken)
}

#[cfg(test)]
mod tests;
