//! The tables of the database, and their versions.
//!
//! Invariants
//!
//! - Tables of an older unhang are brought up to date in one transaction, once, by the first process that opens them.
//! - Nothing of an older table is lost.

use rusqlite::Connection;

use super::files;

/// The version of the tables. The first had no files, the second no calls.
pub(super) const VERSION: i64 = 3;

const TABLES: &str = "
    CREATE TABLE jobs (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        state TEXT NOT NULL CHECK (state IN ('queued', 'active', 'completed', 'failed', 'cancelled', 'lost')),
        revision INTEGER NOT NULL,
        max_concurrent INTEGER NOT NULL,
        starter TEXT,
        starts INTEGER NOT NULL DEFAULT 0,
        completed_at INTEGER,
        is_patching INTEGER NOT NULL DEFAULT 0,
        record TEXT NOT NULL,
        is_call INTEGER NOT NULL DEFAULT 0,
        owner TEXT
    ) STRICT;
    CREATE INDEX jobs_open ON jobs (sequence) WHERE state IN ('queued', 'active');
    CREATE INDEX jobs_active ON jobs (id) WHERE state = 'active';
    CREATE INDEX jobs_state ON jobs (state, sequence);
    CREATE INDEX jobs_revision ON jobs (revision);
    CREATE INDEX jobs_completed ON jobs (completed_at) WHERE completed_at IS NOT NULL;
    CREATE INDEX jobs_patching ON jobs (sequence) WHERE is_patching;
    CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT;
    INSERT INTO counters VALUES ('revision', 0), ('removals', 0);
";

/// The columns that tables without calls lack.
const CALLS: &str = "
    ALTER TABLE jobs ADD COLUMN is_call INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE jobs ADD COLUMN owner TEXT;
";

/// Returns the version of the tables; 0 if there are no tables.
pub(super) fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("PRAGMA user_version")?.query_row([], |row| row.get(0))
}

/// Makes empty tables.
pub(super) fn create(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(TABLES)?;
    connection.execute_batch(files::TABLES)
}

/// Notes that the tables have the newest version.
pub(super) fn note_version(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "user_version", VERSION)
}

/// Brings the tables of an older version up to date. Does nothing if another process was first.
pub(super) fn upgrade(connection: &Connection, boot: &str) -> rusqlite::Result<()> {
    let found = version(connection)?;
    if found == 1 {
        connection.execute_batch(files::TABLES)?;
        files::note(connection, boot)?;
    }
    if found < VERSION {
        connection.execute_batch(CALLS)?;
        note_version(connection)?;
    }
    Ok(())
}
