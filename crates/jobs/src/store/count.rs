//! The number of jobs of each state.

use rusqlite::Connection;

/// Returns how many jobs each state of the table has. The states have the table's names.
pub(crate) fn by_state(connection: &Connection) -> rusqlite::Result<Vec<(String, u64)>> {
    let mut statement = connection.prepare_cached("SELECT state, count(*) FROM jobs GROUP BY state")?;
    let rows = statement.query_map([], |row| {
        let count: i64 = row.get(1)?;
        Ok((row.get(0)?, u64::try_from(count).unwrap_or_default()))
    })?;
    rows.collect()
}
