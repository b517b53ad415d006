//! The bound on instances of servers of which each session has its own: an outsider begins sessions, and each may cost processes.
//!
//! Invariants
//!
//! - A permit is held until all of the instance has gone, so that there are never more processes than permits.
//! - An owner that is told from others by a token has half of the instances at most, so that nobody has all of them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use unhang_core::fair::FairnessKey;

/// The instances of all servers together.
#[derive(Debug)]
pub(super) struct InstanceLimit(Mutex<InstanceCounts>);

#[derive(Debug)]
struct InstanceCounts {
    most: usize,
    taken: usize,
    /// Instances of each owner that is told from others.
    of_each: HashMap<Arc<str>, usize>,
}

/// Permission for one instance, until it is dropped.
#[derive(Debug)]
pub(super) struct InstancePermit {
    instances: Arc<InstanceLimit>,
    owner: Option<Arc<str>>,
}

/// Why there is no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoInstance {
    /// All instances, this many, are taken.
    All(usize),
    /// The owner has this many instances, and may have no more.
    OfOne(usize),
}

impl InstanceLimit {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(InstanceCounts { most, taken: 0, of_each: HashMap::new() })))
    }

    /// Bounds the instances from now on. Running instances keep their permits.
    pub(super) fn bound(&self, most: usize) {
        self.state().most = most;
    }

    /// Takes a permit for an instance of this owner. `None` stands for an owner that is not told from others.
    ///
    /// # Errors
    /// Fails with [`NoInstance::All`] if all instances are taken, and with [`NoInstance::OfOne`] if the owner has as many as one owner may
    /// have.
    pub(super) fn take(self: &Arc<Self>, owner: Option<&FairnessKey>) -> Result<InstancePermit, NoInstance> {
        let owner: Option<Arc<str>> = owner.map(|owner| owner.name().into());
        let mut state = self.state();
        if state.taken >= state.most {
            return Err(NoInstance::All(state.most));
        }
        if let Some(owner) = &owner {
            let share = state.most.div_ceil(2);
            let count = state.of_each.entry(Arc::clone(owner)).or_default();
            if *count >= share {
                return Err(NoInstance::OfOne(share));
            }
            *count += 1;
        }
        state.taken += 1;
        Ok(InstancePermit { instances: Arc::clone(self), owner })
    }

    fn state(&self) -> MutexGuard<'_, InstanceCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for InstancePermit {
    fn drop(&mut self) {
        let mut state = self.instances.state();
        state.taken = state.taken.saturating_sub(1);
        let Some(owner) = &self.owner else { return };
        if let Some(count) = state.of_each.get_mut(owner) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                state.of_each.remove(owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_so_many_seats_and_each_is_given_back() {
        let instances = InstanceLimit::new(2);
        let first = instances.take(None).expect("there is one");
        let _second = instances.take(None).expect("there is another");
        assert_eq!(instances.take(None).expect_err("there are two"), NoInstance::All(2));
        drop(first);
        let _again = instances.take(None).expect("it was given back");
        instances.bound(1);
        assert_eq!(instances.take(None).expect_err("two are kept"), NoInstance::All(1));
        instances.bound(3);
        assert!(instances.take(None).is_ok());
    }

    #[test]
    fn who_is_known_has_half_of_them_at_most() {
        let (instances, one, other) =
            (InstanceLimit::new(3), FairnessKey::new("token 1"), FairnessKey::new("token 2"));
        let first = instances.take(Some(&one)).expect("there is one");
        let _second = instances.take(Some(&one)).expect("half, rounded up");
        assert_eq!(instances.take(Some(&one)).expect_err("it is more than half"), NoInstance::OfOne(2));
        let theirs = instances.take(Some(&other)).expect("it is another's");
        drop((first, theirs));
        assert!(instances.take(Some(&one)).is_ok());
        assert_eq!(instances.state().of_each.len(), 1, "of who has none nothing is kept");
    }
}
