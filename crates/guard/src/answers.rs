//! The way of answers to the client: alone, or together with the other answers of their batch.
//!
//! Invariant: each answer goes to the client exactly once, within its batch if it has one.

use unhang_core::{
    batch::{BatchId, Batches},
    queue::Class,
};

use super::effects::WrapEffects;

/// The batches without all their answers, and the way past them.
#[derive(Debug, Default)]
pub(super) struct BatchedAnswers {
    batches: Batches,
}

impl BatchedAnswers {
    /// Opens a batch that awaits this many answers. Opens none if the number is zero.
    pub(super) fn open(&mut self, awaited: usize) -> Option<BatchId> {
        (awaited > 0).then(|| self.batches.open(awaited))
    }

    /// Returns whether an array with one more answer of `length` bytes stays within `limit`.
    pub(super) fn has_room(&self, batch: Option<BatchId>, length: usize, limit: usize) -> bool {
        batch.is_none() || self.batches.cost() + length <= limit
    }

    /// Sends an answer to the client, or adds it to its batch.
    pub(super) fn send(&mut self, batch: Option<BatchId>, line: &[u8], effects: &mut impl WrapEffects) {
        match batch {
            None => effects.to_client(Class::Kept, line),
            Some(batch) => {
                if let Some(array) = self.batches.settle(batch, Some(line)) {
                    effects.to_client(Class::Kept, &array);
                }
            }
        }
    }

    /// Notes that a request was withdrawn. It gets no answer, but its batch may now be complete.
    pub(super) fn send_nothing(&mut self, batch: Option<BatchId>, effects: &mut impl WrapEffects) {
        if let Some(array) = batch.and_then(|batch| self.batches.settle(batch, None)) {
            effects.to_client(Class::Kept, &array);
        }
    }

    /// Counts the bytes of answers that wait for the rest of their batches.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn cost(&self) -> usize {
        self.batches.cost()
    }
}
