//! Figures that all processes on a data folder share, beside its jobs.

use rusqlite::{Connection, OptionalExtension, params};

/// The figures that are kept from one look at the clocks to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoreFigures {
    /// The number of the boot.
    pub(crate) boot: i64,
    /// The wall clock at the boot, in milliseconds since 1970.
    pub(crate) offset: i64,
    /// A jump of the clock after which nothing has been removed yet.
    pub(crate) jump: Option<ClockJump>,
}

/// A jump of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockJump {
    /// The time when it was seen, in milliseconds since the boot.
    pub(crate) seen: i64,
    /// The milliseconds by which the clock was set forward.
    pub(crate) by: i64,
}

const BOOT: &str = "clock_boot";
const OFFSET: &str = "clock_offset";
const JUMP_SEEN: &str = "clock_jump_seen";
const JUMP: &str = "clock_jump";
const RETENTION: &str = "retention_ms";
const LAYOUT: &str = "layout";

fn figure(connection: &Connection, name: &str) -> rusqlite::Result<Option<i64>> {
    let mut statement = connection.prepare_cached("SELECT value FROM counters WHERE name = ?1")?;
    statement.query_row([name], |row| row.get(0)).optional()
}

fn set(connection: &Connection, name: &str, value: i64) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO counters VALUES (?1, ?2)")?
        .execute(params![name, value])
        .map(drop)
}

/// Returns all figures by name, for tables that are made anew. Leaves out the layout of folders, which the next reader of all folders finds
/// anew.
pub(super) fn all(connection: &Connection) -> rusqlite::Result<Vec<(String, i64)>> {
    let mut statement = connection
        .prepare("SELECT name, value FROM counters WHERE name NOT IN ('revision', 'removals', 'layout')")?;
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// Stores these figures.
pub(super) fn keep_all(connection: &Connection, figures: &[(String, i64)]) -> rusqlite::Result<()> {
    figures.iter().try_for_each(|(name, value)| set(connection, name, *value))
}

/// Returns the figures of the clocks; `None` if there are none yet.
pub(super) fn clock(connection: &Connection) -> rusqlite::Result<Option<StoreFigures>> {
    let (Some(boot), Some(offset)) = (figure(connection, BOOT)?, figure(connection, OFFSET)?) else {
        return Ok(None);
    };
    let by = figure(connection, JUMP)?.filter(|by| *by > 0);
    let seen = figure(connection, JUMP_SEEN)?.unwrap_or_default();
    Ok(Some(StoreFigures { boot, offset, jump: by.map(|by| ClockJump { seen, by }) }))
}

/// Stores the figures of the clocks.
pub(super) fn keep_clock(connection: &Connection, kept: StoreFigures) -> rusqlite::Result<()> {
    set(connection, BOOT, kept.boot)?;
    set(connection, OFFSET, kept.offset)?;
    set(connection, JUMP, kept.jump.map_or(0, |jump| jump.by))?;
    set(connection, JUMP_SEEN, kept.jump.map_or(0, |jump| jump.seen))
}

/// Returns the retention in milliseconds that a process was told last; `None` if none was told one.
pub(super) fn retention(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    figure(connection, RETENTION)
}

/// Stores the retention.
pub(super) fn keep_retention(connection: &Connection, millis: i64) -> rusqlite::Result<()> {
    set(connection, RETENTION, millis)
}

/// Returns the format that the folders of all jobs have; `None` as long as it is not known.
pub(super) fn layout(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    figure(connection, LAYOUT)
}

/// Stores the format of the folders.
pub(super) fn keep_layout(connection: &Connection, format: i64) -> rusqlite::Result<()> {
    set(connection, LAYOUT, format)
}
