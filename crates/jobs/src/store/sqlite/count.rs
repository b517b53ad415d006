//! The number of jobs of each state.

use rusqlite::Connection;

use crate::record::JobState;

/// Returns how many jobs each state has that has any. The table has one state for starting and running jobs, which counts as running.
pub(super) fn by_state(connection: &Connection) -> rusqlite::Result<Vec<(JobState, u64)>> {
    let mut statement = connection.prepare_cached("SELECT state, count(*) FROM jobs GROUP BY state")?;
    let rows = statement.query_map([], |row| {
        let (state, count): (String, i64) = (row.get(0)?, row.get(1)?);
        // The table has only states that are known, and this one.
        Ok((state.parse().unwrap_or(JobState::Running), u64::try_from(count).unwrap_or_default()))
    })?;
    rows.collect()
}
