//! The ids that are in flight towards one peer, and those whose answers may still come late.
//!
//! Time is a [`Duration`] since an origin that the owner chooses. The table reads no clock.
//!
//! Invariants
//!
//! - An id is in flight, or awaited late, or neither. It is never both.
//! - Every registered entry comes out exactly once: by `complete`, `cancel`, `expire` or `take_all`.
//! - The number of late ids is bounded. The oldest is forgotten first. Its answer is then unknown, and is dropped as well.
//! - No operation costs more than O(log n), except for `take_all` and `iter`.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::Id;

/// The table of ids in flight. Each id has one entry of the owner's.
#[derive(Debug)]
pub struct InFlight<E> {
    waiting: HashMap<Id, InFlightEntry<E>>,
    /// The deadlines, sorted by time and then by registration, so that entries due at the same moment keep their order.
    deadlines: BTreeMap<(Duration, u64), Id>,
    registered: u64,
    late: LateIds,
}

#[derive(Debug)]
struct InFlightEntry<E> {
    order: u64,
    deadline: Option<Duration>,
    entry: E,
}

/// The reason why an id could not be registered. It returns the entry.
///
/// The enum is closed on purpose: an owner has to answer each case differently, and must not lose the entry.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError<E> {
    /// A request with the same id still waits for its answer.
    #[error("the id is in flight already")]
    InFlight(E),
    /// A request with the same id was cancelled or has expired, and its answer may still come. It would be taken for the answer to the new
    /// request.
    #[error("the late answer to an earlier request with this id may still come")]
    AwaitsLate(E),
}

impl<E> RegisterError<E> {
    /// Returns the entry that was to be registered.
    pub fn into_entry(self) -> E {
        match self {
            Self::InFlight(entry) | Self::AwaitsLate(entry) => entry,
        }
    }
}

/// The meaning of an answer's id.
#[derive(Debug, PartialEq, Eq)]
pub enum Completion<E> {
    /// The id was in flight.
    Matched(E),
    /// The id itself was not in flight, but the same id in the other type was (`"1"` for `1`). An id has only one such variant. Some
    /// servers change types, and clients that compare numbers work with them.
    Repaired {
        /// The id as it was registered. The answer has to carry this one.
        id: Id,
        /// The entry of that id.
        entry: E,
    },
    /// The request was cancelled or has expired. The owner swallows the answer. The table has now forgotten the id.
    Late,
    /// The id was never seen, was answered before, or is forgotten.
    Unknown,
}

impl<E> Completion<E> {
    /// Returns the entry that was in flight, if there was one.
    pub fn entry(self) -> Option<E> {
        match self {
            Completion::Matched(entry) | Completion::Repaired { entry, .. } => Some(entry),
            Completion::Late | Completion::Unknown => None,
        }
    }
}

impl<E> InFlight<E> {
    /// Makes an empty table that remembers up to `late_capacity` ids whose answers may come late.
    pub fn new(late_capacity: usize) -> Self {
        Self {
            waiting: HashMap::new(),
            deadlines: BTreeMap::new(),
            registered: 0,
            late: LateIds::new(late_capacity),
        }
    }

    /// Puts an id in flight. Without a deadline it never expires.
    pub fn register(&mut self, id: Id, deadline: Option<Duration>, entry: E) -> Result<(), RegisterError<E>> {
        if self.waiting.contains_key(&id) {
            return Err(RegisterError::InFlight(entry));
        }
        if self.late.contains(&id) {
            return Err(RegisterError::AwaitsLate(entry));
        }
        let order = self.registered;
        self.registered += 1;
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, order), id.clone());
        }
        self.waiting.insert(id, InFlightEntry { order, deadline, entry });
        Ok(())
    }

    /// Takes out the entry that an answer with this id belongs to.
    pub fn complete(&mut self, id: &Id) -> Completion<E> {
        if let Some((_, entry)) = self.remove(id) {
            return Completion::Matched(entry);
        }
        if self.late.forget(id) {
            return Completion::Late;
        }
        let Some(variant) = id.variant() else {
            return Completion::Unknown;
        };
        if self.late.forget(&variant) {
            return Completion::Late;
        }
        match self.remove(&variant) {
            Some((id, entry)) => Completion::Repaired { id, entry },
            None => Completion::Unknown,
        }
    }

    /// Takes an id out of flight because nobody waits for it any more. The owner swallows its late answer.
    pub fn cancel(&mut self, id: &Id) -> Option<E> {
        let (id, entry) = self.remove(id)?;
        self.late.remember(id);
        Some(entry)
    }

    /// Takes out one id that is due at `now`, the earliest first. The owner swallows its late answer.
    pub fn expire(&mut self, now: Duration) -> Option<(Id, E)> {
        let due = self.deadlines.first_entry().filter(|first| first.key().0 <= now)?;
        let id = due.remove();
        let waiting = self.waiting.remove(&id)?;
        self.late.remember(id.clone());
        Some((id, waiting.entry))
    }

    /// Returns the id that [`InFlight::expire`] would take out at `now`.
    pub fn due(&self, now: Duration) -> Option<&Id> {
        self.deadlines.first_key_value().filter(|((deadline, _), _)| *deadline <= now).map(|(_, id)| id)
    }

    /// Gives an id in flight another deadline. Among entries with the same deadline it keeps its place. Returns false if the id is not in
    /// flight.
    pub fn postpone(&mut self, id: &Id, deadline: Duration) -> bool {
        let Some(waiting) = self.waiting.get_mut(id) else { return false };
        if let Some(earlier) = waiting.deadline.replace(deadline) {
            self.deadlines.remove(&(earlier, waiting.order));
        }
        self.deadlines.insert((deadline, waiting.order), id.clone());
        true
    }

    /// Returns when the next id is due, or `None` if none ever is.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.deadlines.first_key_value().map(|((deadline, _), _)| *deadline)
    }

    /// Takes out everything in order of registration, and forgets the late ids too. The peer is gone, so no answer will come from it.
    pub fn take_all(&mut self) -> Vec<(Id, E)> {
        self.deadlines.clear();
        self.late.clear();
        let mut all: Vec<_> = self.waiting.drain().collect();
        all.sort_unstable_by_key(|(_, waiting)| waiting.order);
        all.into_iter().map(|(id, waiting)| (id, waiting.entry)).collect()
    }

    /// Returns the entry of an id in flight.
    pub fn get(&self, id: &Id) -> Option<&E> {
        self.waiting.get(id).map(|waiting| &waiting.entry)
    }

    /// Returns the entry of an id in flight, to be changed.
    pub fn get_mut(&mut self, id: &Id) -> Option<&mut E> {
        self.waiting.get_mut(id).map(|waiting| &mut waiting.entry)
    }

    /// Returns whether the id is in flight.
    pub fn contains(&self, id: &Id) -> bool {
        self.waiting.contains_key(id)
    }

    /// Returns whether the id can be registered: it is neither in flight nor awaited late.
    pub fn is_free(&self, id: &Id) -> bool {
        !self.contains(id) && !self.late.contains(id)
    }

    /// Counts the ids in flight, without the late ids.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns whether no id is in flight.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Lists all ids in flight with their entries, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&Id, &E)> {
        self.waiting.iter().map(|(id, waiting)| (id, &waiting.entry))
    }

    /// Returns the only id in flight, or `None` if there is none or more than one.
    pub fn only(&self) -> Option<(&Id, &E)> {
        self.iter().next().filter(|_| self.len() == 1)
    }

    fn remove(&mut self, id: &Id) -> Option<(Id, E)> {
        let (id, waiting) = self.waiting.remove_entry(id)?;
        if let Some(deadline) = waiting.deadline {
            self.deadlines.remove(&(deadline, waiting.order));
        }
        Some((id, waiting.entry))
    }
}

/// The ids whose answers may come late. The oldest is forgotten first.
#[derive(Debug)]
struct LateIds {
    capacity: usize,
    remembered: u64,
    by_id: HashMap<Id, u64>,
    by_age: BTreeMap<u64, Id>,
}

impl LateIds {
    fn new(capacity: usize) -> Self {
        Self { capacity, remembered: 0, by_id: HashMap::new(), by_age: BTreeMap::new() }
    }

    fn remember(&mut self, id: Id) {
        if self.capacity == 0 {
            return;
        }
        if self.by_age.len() >= self.capacity
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.by_id.remove(&oldest);
        }
        self.by_id.insert(id.clone(), self.remembered);
        self.by_age.insert(self.remembered, id);
        self.remembered += 1;
    }

    fn contains(&self, id: &Id) -> bool {
        self.by_id.contains_key(id)
    }

    fn forget(&mut self, id: &Id) -> bool {
        self.by_id.remove(id).and_then(|age| self.by_age.remove(&age)).is_some()
    }

    fn clear(&mut self) {
        self.by_id.clear();
        self.by_age.clear();
    }
}

#[cfg(test)]
mod tests;
