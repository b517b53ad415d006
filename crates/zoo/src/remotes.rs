//! The servers that are spoken to over HTTP, one file each, and their table.

mod auth_server;

use crate::entry::{Entry, table};

/// Every one of them, sorted by name.
pub(crate) const ALL: &[Entry] = table!(
    Remote in "remotes":
    auth_server,
);
