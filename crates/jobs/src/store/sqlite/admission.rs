//! The conditions under which a process asks the database for the next jobs of the queue.

use rusqlite::Connection;

use super::{changes::admit, row::ShimStarter};
use crate::id::JobId;

/// The asker for the next jobs, and its limit. A server has its own limit. For all, the limits that other processes with the folder open
/// were told count, and the limit that each job brought with it.
#[derive(Debug)]
pub(crate) struct JobAdmission<'a> {
    pub(crate) starter: &'a ShimStarter,
    pub(crate) limit: Option<u32>,
    /// Whether any job may start now.
    pub(crate) is_open: bool,
}

impl JobAdmission<'_> {
    /// Fills the free slots, and returns the jobs that got one.
    pub(super) fn admit(&self, connection: &Connection) -> rusqlite::Result<Vec<JobId>> {
        let mut admitted = Vec::new();
        while self.is_open
            && let Some(id) = admit(connection, self.limit, self.starter)?
        {
            admitted.push(id);
        }
        Ok(admitted)
    }
}
