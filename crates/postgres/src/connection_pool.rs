//! A few connections for callers on many threads.
//!
//! Invariant: an operation has a connection of its own while it runs. Connections that rest are kept for the next operations.

use std::sync::{Mutex, PoisonError};

use crate::{address::StoreAddress, error::PostgresError, store::PostgresStore};

/// The most connections that rest.
const MOST_AT_REST: usize = 4;

/// The connections to one store.
#[derive(Debug)]
pub(crate) struct ConnectionPool {
    address: StoreAddress,
    at_rest: Mutex<Vec<PostgresStore>>,
}

impl ConnectionPool {
    /// Makes a pool that connects with the first operation.
    pub(crate) fn new(address: StoreAddress) -> Self {
        Self { address, at_rest: Mutex::default() }
    }

    /// Runs an operation. Blocks.
    pub(crate) fn run<T>(
        &self,
        work: impl FnOnce(&mut PostgresStore) -> Result<T, PostgresError>,
    ) -> Result<T, PostgresError> {
        let rested = self.at_rest.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut store = rested.map_or_else(|| PostgresStore::open(self.address.clone()), Ok)?;
        let outcome = work(&mut store);
        let mut at_rest = self.at_rest.lock().unwrap_or_else(PoisonError::into_inner);
        if at_rest.len() < MOST_AT_REST {
            at_rest.push(store);
        }
        outcome
    }
}
