//! How many descriptors this process may have: more than it was given, where the system lets it.
//!
//! The usual soft limit of 1,024 is for programs that wait with `select`. Whatever is started from here may be one of those, so that it
//! gets the limit that we were given.
//!
//! Invariants: the hard limit stays as it is; what [`crate::spawn`] starts has the soft limit that we had before it was raised.

use std::{io, sync::OnceLock};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than this is never wanted: tables of descriptors cost memory, and nothing here holds as many.
const MOST: u64 = 65_536;

/// What we were given, if it was raised.
static GIVEN: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit as far as the hard one allows, once.
///
/// # Errors
/// What the system said; the limit stays as it was.
pub fn raise() -> io::Result<()> {
    let given = getrlimit(Resource::Nofile);
    let limit = given.maximum.map_or(MOST, |maximum| maximum.min(MOST));
    let raised = Rlimit { current: Some(limit), maximum: given.maximum };
    // It is kept before it is raised, so that nothing that is started meanwhile misses it.
    if given.current.is_some_and(|current| current < limit) && GIVEN.set(given).is_ok() {
        setrlimit(Resource::Nofile, raised)?;
    }
    Ok(())
}

/// How many there may be.
#[must_use]
pub fn most() -> usize {
    let current = getrlimit(Resource::Nofile).current;
    current.map_or(usize::MAX, |current| usize::try_from(current).unwrap_or(usize::MAX))
}

/// What a process that is started gets back, if it was raised here.
pub(crate) fn given() -> Option<Rlimit> {
    GIVEN.get().copied()
}
