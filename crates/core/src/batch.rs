//! A client's batch (2025-03-26): taken apart, and answered as one array (design 4).
//!
//! Invariants: pure. An array goes out once, when its last request is answered or withdrawn. A batch of notifications alone gets none.

use std::collections::HashMap;

/// Names a batch that is being answered.
pub type BatchId = u64;

#[derive(Debug, Default)]
struct OpenBatch {
    remaining: usize,
    answers: Vec<u8>,
}

/// The batches that are not yet answered.
#[derive(Debug, Default)]
pub struct Batches {
    next: BatchId,
    open: HashMap<BatchId, OpenBatch>,
}

impl Batches {
    /// Opens a batch in which `remaining` answers are awaited.
    pub fn open(&mut self, remaining: usize) -> BatchId {
        self.next += 1;
        self.open.insert(self.next, OpenBatch { remaining, answers: Vec::new() });
        self.next
    }

    /// Returns whether answers of the batch are still awaited.
    pub fn is_open(&self, batch: BatchId) -> bool {
        self.open.contains_key(&batch)
    }

    /// Returns the bytes of answers that wait for the rest of their batch.
    pub fn cost(&self) -> usize {
        self.open.values().map(|open| open.answers.len()).sum()
    }

    /// Adds an answer, or none for a request that was withdrawn. Returns the whole array if it was the last answer; `None` if answers are
    /// still awaited, or if there are none to send.
    pub fn settle(&mut self, batch: BatchId, answer: Option<&[u8]>) -> Option<Vec<u8>> {
        let open = self.open.get_mut(&batch)?;
        if let Some(answer) = answer {
            open.answers.push(if open.answers.is_empty() { b'[' } else { b',' });
            open.answers.extend_from_slice(answer);
        }
        open.remaining = open.remaining.saturating_sub(1);
        if open.remaining > 0 {
            return None;
        }
        let mut answers = self.open.remove(&batch)?.answers;
        if answers.is_empty() {
            return None;
        }
        answers.push(b']');
        Some(answers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_back_as_one_array_when_the_last_is_there() {
        let mut batches = Batches::default();
        let batch = batches.open(3);
        assert_eq!(batches.settle(batch, Some(b"1")), None);
        assert_eq!(batches.settle(batch, None), None);
        assert_eq!(batches.settle(batch, Some(b"2")).as_deref(), Some(b"[1,2]".as_slice()));
        assert_eq!(batches.settle(batch, Some(b"3")), None, "a batch is answered once");
    }

    #[test]
    fn nothing_is_said_when_every_request_was_withdrawn() {
        let mut batches = Batches::default();
        let batch = batches.open(1);
        assert_eq!(batches.settle(batch, None), None);
    }

    #[test]
    fn batches_are_apart_and_open_until_their_last_answer() {
        let mut batches = Batches::default();
        let (one, other) = (batches.open(2), batches.open(2));
        assert_ne!(one, other);
        assert!(batches.is_open(one) && batches.is_open(other) && !batches.is_open(other + 1));
        assert_eq!(batches.cost(), 0, "no answer waits");
        for (batch, answer, sent, cost, are_open) in [
            (one, Some("12"), None, 3, (true, true)),
            (other, Some("345"), None, 7, (true, true)),
            (one, None, Some("[12]"), 4, (false, true)),
            (other, Some("6"), Some("[345,6]"), 0, (false, false)),
        ] {
            let whole = batches.settle(batch, answer.map(str::as_bytes));
            assert_eq!(whole.as_deref(), sent.map(str::as_bytes), "{batch} {answer:?}");
            assert_eq!(batches.cost(), cost, "the bytes of both that wait, after {answer:?} in {batch}");
            assert_eq!((batches.is_open(one), batches.is_open(other)), are_open, "{batch} {answer:?}");
        }
    }
}
