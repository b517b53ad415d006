//! How many jobs there are of each state.

use rusqlite::Connection;

/// How many jobs there are of each state that the table has, as it writes them.
pub(crate) fn by_state(connection: &Connection) -> rusqlite::Result<Vec<(String, u64)>> {
    let mut statement = connection.prepare_cached("SELECT state, count(*) FROM jobs GROUP BY state")?;
    let rows = statement.query_map([], |row| {
        let count: i64 = row.get(1)?;
        Ok((row.get(0)?, u64::try_from(count).unwrap_or_default()))
    })?;
    rows.collect()
}
