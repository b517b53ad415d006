//! Input that waits for the server to be live again, in order.
//!
//! Invariant: bytes are counted from the moment they are held until they are all sent or given up.

use std::collections::VecDeque;

use unhang_wire::Id;

/// A call or a line that waits for the server.
#[derive(Debug)]
pub(super) enum WaitingForServer {
    /// A call, whose line the table of calls keeps.
    Call(Id),
    /// A line that is not a request.
    Line(Vec<u8>),
}

/// The input that waits for the server. See the module's text.
#[derive(Debug, Default)]
pub(super) struct HeldInput {
    waiting: VecDeque<WaitingForServer>,
    bytes: usize,
}

impl HeldInput {
    /// Returns the bytes that wait, for the bound on them.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Holds a call whose line has this many bytes.
    pub(super) fn hold_call(&mut self, wire_id: Id, bytes: usize) {
        self.bytes += bytes;
        self.waiting.push_back(WaitingForServer::Call(wire_id));
    }

    /// Holds a line that is not a request.
    pub(super) fn hold_line(&mut self, line: Vec<u8>) {
        self.bytes += line.len();
        self.waiting.push_back(WaitingForServer::Line(line));
    }

    /// Holds calls in front of all others that wait, with this many bytes together.
    pub(super) fn hold_first(&mut self, calls: Vec<Id>, bytes: usize) {
        self.bytes += bytes;
        for wire_id in calls.into_iter().rev() {
            self.waiting.push_front(WaitingForServer::Call(wire_id));
        }
    }

    /// Takes everything that waits. The caller sends it or gives it up now.
    pub(super) fn take(&mut self) -> VecDeque<WaitingForServer> {
        self.bytes = 0;
        std::mem::take(&mut self.waiting)
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn iter(&self) -> impl Iterator<Item = &WaitingForServer> {
        self.waiting.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_are_sent_again_stand_in_front_and_all_bytes_are_counted() {
        let mut held = HeldInput::default();
        held.hold_call(Id::from(1), 10);
        held.hold_line(b"12345".to_vec());
        assert_eq!(held.bytes(), 15);
        held.hold_first(vec![Id::from(2), Id::from(3)], 100);
        assert_eq!(held.bytes(), 115);
        let in_words = |waiting: &WaitingForServer| match waiting {
            WaitingForServer::Call(id) => id.to_json(),
            WaitingForServer::Line(line) => String::from_utf8_lossy(line).into_owned(),
        };
        assert_eq!(held.iter().map(in_words).collect::<Vec<_>>(), ["2", "3", "1", "12345"]);
        assert_eq!(held.take().iter().map(in_words).collect::<Vec<_>>(), ["2", "3", "1", "12345"]);
        assert_eq!((held.bytes(), held.take().len()), (0, 0), "it is taken once");
        held.hold_first(vec![Id::from(4)], 7);
        assert_eq!(held.bytes(), 7);
    }
}
