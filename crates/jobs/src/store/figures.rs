//! Figures that all processes on a data folder share, beside its jobs.

use rusqlite::{Connection, OptionalExtension, params};

/// What is kept from one look to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoreFigures {
    /// In which boot.
    pub(crate) boot: i64,
    /// The wall clock at the boot, in milliseconds since 1970.
    pub(crate) offset: i64,
    /// A jump after which nothing has been removed yet.
    pub(crate) jump: Option<ClockJump>,
}

/// The wall clock was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockJump {
    /// When it was seen, in milliseconds since the boot.
    pub(crate) seen: i64,
    /// By how many milliseconds it was set forward.
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

/// All of them by name, for tables that are made anew. How folders look is for whoever has read them anew.
pub(super) fn all(connection: &Connection) -> rusqlite::Result<Vec<(String, i64)>> {
    let mut statement = connection
        .prepare("SELECT name, value FROM counters WHERE name NOT IN ('revision', 'removals', 'layout')")?;
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

/// Keeps these.
pub(super) fn keep_all(connection: &Connection, figures: &[(String, i64)]) -> rusqlite::Result<()> {
    figures.iter().try_for_each(|(name, value)| set(connection, name, *value))
}

/// What is kept of the clocks.
pub(crate) fn clock(connection: &Connection) -> rusqlite::Result<Option<StoreFigures>> {
    let (Some(boot), Some(offset)) = (figure(connection, BOOT)?, figure(connection, OFFSET)?) else {
        return Ok(None);
    };
    let by = figure(connection, JUMP)?.filter(|by| *by > 0);
    let seen = figure(connection, JUMP_SEEN)?.unwrap_or_default();
    Ok(Some(StoreFigures { boot, offset, jump: by.map(|by| ClockJump { seen, by }) }))
}

/// Keeps this of the clocks.
pub(crate) fn keep_clock(connection: &Connection, kept: StoreFigures) -> rusqlite::Result<()> {
    set(connection, BOOT, kept.boot)?;
    set(connection, OFFSET, kept.offset)?;
    set(connection, JUMP, kept.jump.map_or(0, |jump| jump.by))?;
    set(connection, JUMP_SEEN, kept.jump.map_or(0, |jump| jump.seen))
}

/// How long, in milliseconds, ended jobs are kept by whoever was told how long last.
pub(crate) fn retention(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    figure(connection, RETENTION)
}

/// Keeps how long that is.
pub(crate) fn keep_retention(connection: &Connection, millis: i64) -> rusqlite::Result<()> {
    set(connection, RETENTION, millis)
}

/// The format that the folders of all jobs have, once that is known.
pub(crate) fn layout(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    figure(connection, LAYOUT)
}

/// Keeps which format that is.
pub(crate) fn keep_layout(connection: &Connection, format: i64) -> rusqlite::Result<()> {
    set(connection, LAYOUT, format)
}
