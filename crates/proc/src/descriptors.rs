//! How many descriptors this process may have: more than it was given, if the system allows it.
//!
//! The usual soft limit of 1,024 is for programs that wait with `select`. A process that we start may be one of those, so it gets the limit
//! that we were given.
//!
//! Invariants: the hard limit stays as it is. A process that [`crate::spawn`] starts has the soft limit that we had before the raise.

use std::{io, sync::OnceLock};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The most descriptors that we ask for: tables of descriptors cost memory, and nothing here holds as many.
const MOST: u64 = 65_536;

/// The limit that we were given, if it was raised.
static GIVEN: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit as far as the hard one allows, once.
///
/// # Errors
/// Fails with the system's error if the limit cannot be raised. The limit then stays as it was.
pub fn raise() -> io::Result<()> {
    let given = getrlimit(Resource::Nofile);
    let limit = given.maximum.map_or(MOST, |maximum| maximum.min(MOST));
    let raised = Rlimit { current: Some(limit), maximum: given.maximum };
    // The given limit is kept before the raise, so that no process that is started meanwhile misses it.
    if given.current.is_some_and(|current| current < limit) && GIVEN.set(given).is_ok() {
        setrlimit(Resource::Nofile, raised)?;
    }
    Ok(())
}

/// Returns how many descriptors this process may have.
#[must_use]
pub fn most() -> usize {
    let current = getrlimit(Resource::Nofile).current;
    current.map_or(usize::MAX, |current| usize::try_from(current).unwrap_or(usize::MAX))
}

/// Returns the limit that each new process gets back, if ours was raised.
pub(crate) fn given() -> Option<Rlimit> {
    GIVEN.get().copied()
}
