//! The number of jobs of each state.

use rusqlite::Connection;

use crate::{record::JobState, store::state_of_column};

/// Returns how many jobs each state has that has any. The table has one state for starting and running jobs, which counts as running.
pub(super) fn by_state(connection: &Connection) -> rusqlite::Result<Vec<(JobState, u64)>> {
    let mut statement = connection.prepare_cached("SELECT state, count(*) FROM jobs GROUP BY state")?;
    let rows = statement.query_map([], |row| {
        let (state, count): (String, i64) = (row.get(0)?, row.get(1)?);
        Ok((state_of_column(&state), u64::try_from(count).unwrap_or_default()))
    })?;
    rows.collect()
}
