//! The database: which jobs there are, in which order, and who is to start the next one.
//!
//! Several processes share it: servers, command lines, and each shim at its end. Every change is one transaction that takes
//! the write lock first (`BEGIN IMMEDIATE`), so that what it reads is still true when it writes.
//!
//! Invariants
//!
//! - What a caller was told is on the disk (`synchronous=FULL`): an accepted job outlives a power failure.
//! - Jobs run in the order of their acceptance, and never more than the limit that counts for the next one.
//! - A slot is taken and given back in the transaction that changes the state, so that it cannot leak.
//! - A state that is final stays as it is, but for `lost` where the true end is found after all.
//! - A record that cannot be read, as one of a newer unhang, is passed over and told of; no other job is missing for that.
//! - Tables of a newer unhang are not written, whenever they became that.
//! - What is known only here can be found again in the folders: see `rebuild.rs`.
//! - Nobody is told of a change that was made in a database which is no longer the one of the data folder.

pub(crate) mod count;
mod error;
pub(crate) mod figures;
mod files;
mod rebuild;
#[cfg(test)]
mod tests;
mod turn;
mod unreadable;

use std::{
    collections::HashSet,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{
    Connection, OpenFlags, OptionalExtension, Row, ToSql, Transaction, TransactionBehavior, params,
    types::ToSqlOutput,
};
use rustix::{
    fs::{CWD, FileType, Mode, mknodat},
    io::Errno,
};
use serde::{Deserialize, Serialize};
use unhang_proc::identity::boot_id;
use unhang_switches::stands;

pub(crate) use self::rebuild::look_into;
pub use self::{error::StoreError, rebuild::Rebuilt};
use self::{
    error::{check_plain, explain, is_busy},
    turn::Turns,
};
use crate::{
    filesystem,
    folder::{DataFolder, FileError, sync},
    id::JobId,
    launch::LaunchFiles,
    moment::Moment,
    record::{JobRecord, JobState, ProcessRecord},
    room::Rules,
    wait::{WaitLimit, pause},
};

/// The version of the tables. The first had no files, the second no calls.
const VERSION: i64 = 3;

/// How long a transaction waits for those of other processes. Each takes milliseconds; a disk may stall for seconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// The pause between two tries. SQLite's own handler waits up to 100 ms between two, which is what a submit may take.
const RETRY: Duration = Duration::from_micros(500);

/// Kibibytes of pages that a connection keeps: a job's shim opens one for a moment and has 4 MiB for everything.
const CACHE: i64 = 512;

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

/// What tables without calls lack.
const CALLS: &str = "
    ALTER TABLE jobs ADD COLUMN is_call INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE jobs ADD COLUMN owner TEXT;
";

/// Whose jobs are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Whose {
    /// All that there are.
    #[default]
    Anybodys,
    /// Those of this owner; of whoever has the data folder, where it is nobody else.
    Of(Option<String>),
}

/// Who is to start a job's shim, and since when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Starter {
    pub(crate) boot_id: String,
    pub(crate) process: ProcessRecord,
    pub(crate) since: Moment,
}

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JobRow {
    /// Its place in the order of acceptance.
    pub(crate) sequence: i64,
    /// Grows with every change of any job.
    pub(crate) revision: i64,
    /// Whether it has a slot; of a call, whether it is waited for.
    pub(crate) is_active: bool,
    /// Who is to start its shim.
    pub(crate) starter: Option<Starter>,
    /// How often a shim was to be started for it.
    pub(crate) starts: u32,
    pub(crate) record: JobRecord,
}

const COLUMNS: &str = "sequence, revision, state = 'active', starter, starts, record, id";

impl JobRow {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let starter: Option<String> = row.get(3)?;
        let record: String = row.get(5)?;
        Ok(Self {
            sequence: row.get(0)?,
            revision: row.get(1)?,
            is_active: row.get(2)?,
            starter: starter.as_deref().map(from_json).transpose()?,
            starts: row.get(4)?,
            record: from_json(&record)?,
        })
    }
}

fn from_json<'a, T: Deserialize<'a>>(text: &'a str) -> rusqlite::Result<T> {
    let text_type = rusqlite::types::Type::Text;
    serde_json::from_str(text)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, text_type, Box::new(error)))
}

fn to_json(value: &impl Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

/// The state as the table has it: that of a job with a slot is told by its lock and its files.
fn column(state: JobState) -> &'static str {
    match state {
        JobState::Starting | JobState::Running => "active",
        other => other.as_str(),
    }
}

/// A connection to the database.
#[derive(Debug)]
pub(crate) struct Store {
    connection: Connection,
    data: DataFolder,
    turns: Turns,
    path: PathBuf,
    /// Device and number of the file that it is connected to.
    file: Option<(u64, u64)>,
    /// How often another file had to be followed.
    replaced: u64,
}

impl Store {
    /// Opens it, and makes it where it is missing, from the folders if there are any.
    pub(crate) fn open(data: &DataFolder) -> Result<(Self, Option<Rebuilt>), StoreError> {
        if let Some(system) = filesystem::network_below(data.path())? {
            return Err(StoreError::OnNetwork { path: data.path().to_owned(), system });
        }
        let path = data.database();
        check_plain(&path)?;
        make_private(&path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let failed = |error| explain(&path, &error);
        // Noted before: where the file is replaced in between, the next look at it finds that out.
        let file = lies_at(&path);
        let mut connection = Connection::open_with_flags(&path, flags).map_err(failed)?;
        connection.busy_handler(Some(wait_for_others)).map_err(failed)?;
        let mut store =
            Self { connection, data: data.clone(), turns: Turns::of(data), path, file, replaced: 0 };
        store.configure()?;
        store.name_the_log()?;
        let rebuilt = store.migrate(data)?;
        Ok((store, rebuilt))
    }

    fn configure(&self) -> Result<(), StoreError> {
        let limit = WaitLimit::after(PATIENCE);
        loop {
            let configured = self.connection.execute_batch(&format!(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -{CACHE};
                 PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF; PRAGMA secure_delete = ON;"
            ));
            match configured {
                Ok(()) => return Ok(()),
                // The change to WAL needs the file for itself, and does not ask the handler.
                Err(error) if is_busy(&error) && !limit.is_over() => pause(RETRY),
                Err(error) => return Err(explain(&self.path, &error)),
            }
        }
    }

    /// Makes the name of the log durable where it is new, and with it the end of the journal that a new database begins with.
    ///
    /// SQLite would do so at the first commit of every connection, with the write lock in its hand: each shim once. It is built
    /// without that (`.cargo/config.toml`). Whoever has written to the log has come by here before, and nobody can remove it as
    /// long as we are connected, so a log that has something in it has a name that lasts.
    fn name_the_log(&self) -> Result<(), FileError> {
        let log = self.path.with_extension("db-wal");
        let is_new = log.metadata().map_or(true, |metadata| metadata.len() == 0);
        if is_new && stands("new-log-outlives-power") { sync(self.data.path()) } else { Ok(()) }
    }

    fn migrate(&mut self, data: &DataFolder) -> Result<Option<Rebuilt>, StoreError> {
        let path = self.path.clone();
        let boot = || boot_id().map_err(|error| FileError::system("cannot name this boot for", &path, error));
        match version(&self.connection).map_err(|error| explain(&path, &error))? {
            0 => {}
            1 | 2 => {
                let boot = boot()?;
                return self.write(|transaction| {
                    // Somebody else may have been first.
                    let found = version(transaction)?;
                    if found == 1 {
                        transaction.execute_batch(files::TABLES)?;
                        files::note(transaction, &boot)?;
                    }
                    if found < VERSION {
                        transaction.execute_batch(CALLS)?;
                        transaction.pragma_update(None, "user_version", VERSION)?;
                    }
                    Ok(None)
                });
            }
            VERSION => return Ok(None),
            found => return Err(StoreError::Newer { path, found }),
        }
        let (found, boot) = (rebuild::scan(data)?, boot()?);
        let rebuilt = self.write(|transaction| {
            // Somebody else may have been first.
            if version(transaction)? != 0 {
                return Ok(None);
            }
            transaction.execute_batch(TABLES)?;
            transaction.execute_batch(files::TABLES)?;
            files::note(transaction, &boot)?;
            transaction.pragma_update(None, "user_version", VERSION)?;
            rebuild::insert_all(transaction, &found.jobs)?;
            Ok(Some(found.summary()))
        })?;
        Ok(rebuilt.filter(|rebuilt| !rebuilt.is_empty()))
    }

    /// How often another database was found in the place of the one before. What was known of that one is worth nothing then.
    pub(crate) fn replaced(&self) -> u64 {
        self.replaced
    }

    /// Goes on with the database that lies there now, if somebody has put another one there, as `unhang job rebuild` does.
    fn follow(&mut self) -> Result<(), StoreError> {
        if self.is_in_place() {
            return Ok(());
        }
        let replaced = self.replaced + 1;
        tracing::warn!("the database {} was replaced; going on with the new one", self.path.display());
        *self = Self { replaced, ..Self::open(&self.data)?.0 };
        Ok(())
    }

    /// Whether the database that lies there is the one that we are connected to.
    pub(crate) fn is_in_place(&self) -> bool {
        (self.file.is_some() && lies_at(&self.path) == self.file) || !stands("replaced-database-followed")
    }

    /// Does some changes as one.
    pub(crate) fn write<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        self.follow()?;
        let _turn = self.turns.wait(turn::LIMIT);
        let path = &self.path;
        let run = |connection: &mut Connection| -> rusqlite::Result<Result<T, i64>> {
            let behavior = if stands("write-lock-first") {
                TransactionBehavior::Immediate
            } else {
                TransactionBehavior::Deferred
            };
            let transaction = connection.transaction_with_behavior(behavior)?;
            // A newer unhang may have changed the tables since they were opened (F-16); only now nobody can do so any more.
            let found = version(&transaction)?;
            if found > VERSION {
                return Ok(Err(found));
            }
            let value = work(&transaction)?;
            transaction.commit()?;
            Ok(Ok(value))
        };
        let value = run(&mut self.connection).map_err(|error| explain(path, &error))?;
        let value = value.map_err(|found| StoreError::Newer { path: path.clone(), found })?;
        // A replacement begins with the folders as they are after it, so what was written before it is known to it.
        if self.is_in_place() { Ok(value) } else { Err(StoreError::Replaced { path: self.path.clone() }) }
    }

    /// Reads.
    pub(crate) fn read<T>(
        &mut self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        self.follow()?;
        work(&self.connection).map_err(|error| explain(&self.path, &error))
    }
}

/// The version of the tables; none has the number 0.
fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("PRAGMA user_version")?.query_row([], |row| row.get(0))
}

/// What tells the file at this path from every other; none where there is none.
fn lies_at(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Takes in a job at the end of the queue, with what it needs to start where that may not be on the disk. False where its id is
/// taken.
pub(crate) fn insert(
    connection: &Connection,
    record: &JobRecord,
    files: Option<&LaunchFiles>,
) -> rusqlite::Result<bool> {
    let added = connection
        .prepare_cached(
            "INSERT INTO jobs (id, state, revision, max_concurrent, completed_at, record, is_call, owner)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (id) DO NOTHING",
        )?
        .execute(params![
            record.job_id,
            column(record.status),
            next_revision(connection)?,
            record.rules.max_concurrent,
            completed_at(record),
            to_json(record)?,
            record.call.is_some(),
            record.owner,
        ])?;
    if let Some(files) = files
        && added == 1
        && stands("launch-files-kept")
    {
        files::keep(connection, files)?;
    }
    Ok(added == 1)
}

fn completed_at(record: &JobRecord) -> Option<i64> {
    record.ending.as_ref().and_then(|ending| i64::try_from(ending.completed_at.millis()).ok())
}

fn next_revision(connection: &Connection) -> rusqlite::Result<i64> {
    count(connection, "revision")
}

fn count(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    connection
        .prepare_cached("UPDATE counters SET value = value + 1 WHERE name = ?1 RETURNING value")?
        .query_row([name], |row| row.get(0))
}

/// Gives a slot to the first job of the queue if there is one and a slot is free. `limit` is that of a server; a shim
/// goes by the one that the job brought with it.
pub(crate) fn admit(
    connection: &Connection,
    limit: Option<u32>,
    starter: &Starter,
) -> rusqlite::Result<Option<JobId>> {
    if !files::are_of(connection, &starter.boot_id)? && stands("no-slot-before-the-files") {
        return Ok(None);
    }
    let first = connection
        .prepare_cached(
            "SELECT id, max_concurrent FROM jobs
             WHERE state = 'queued' AND 'without ' || id NOT IN (SELECT id FROM boots) ORDER BY sequence LIMIT 1",
        )?
        .query_row([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, u32>(1)?)))
        .optional()?;
    let Some((id, own_limit)) = first else { return Ok(None) };
    let (running, strictest): (u32, Option<u32>) = connection
        .prepare_cached(if stands("calls-take-no-slot") {
            "SELECT count(*), min(max_concurrent) FROM jobs WHERE state = 'active' AND NOT is_call"
        } else {
            "SELECT count(*), min(max_concurrent) FROM jobs WHERE state = 'active'"
        })?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    // Several processes may have different limits here: the strictest holds, among them those that the jobs were accepted with.
    let limits = [limit, Some(own_limit), strictest];
    let limit = limits.into_iter().flatten().min().unwrap_or(own_limit);
    if running >= limit && stands("slots-are-counted") {
        return Ok(None);
    }
    let Ok(id) = id.parse() else { return Ok(None) };
    connection
        .prepare_cached(
            "UPDATE jobs SET state = 'active', starter = ?2, starts = starts + 1, revision = ?3 WHERE id = ?1",
        )?
        .execute(params![id, to_json(starter)?, next_revision(connection)?])?;
    Ok(Some(id))
}

/// Returns the rules of the first job of the queue whose files are there.
pub(crate) fn next_rules(connection: &Connection) -> rusqlite::Result<Option<Rules>> {
    let first = select(
        connection,
        "WHERE state = 'queued' AND 'without ' || id NOT IN (SELECT id FROM boots) ORDER BY sequence LIMIT 1",
        [],
    )?
    .pop();
    Ok(first.map(|job| job.record.rules))
}

/// Makes `starter` the one who is to start the shim of a job with a slot, if nobody else did so meanwhile.
pub(crate) fn take_over(
    connection: &Connection,
    id: JobId,
    seen: Option<&Starter>,
    starter: &Starter,
) -> rusqlite::Result<bool> {
    let seen = seen.map(to_json).transpose()?;
    let changed = connection
        .prepare_cached(
            "UPDATE jobs SET starter = ?2, starts = starts + 1, revision = ?3
             WHERE id = ?1 AND state = 'active' AND starter IS ?4",
        )?
        .execute(params![id, to_json(starter)?, next_revision(connection)?, seen])?;
    Ok(changed == 1)
}

/// Brings a job to its final state. False where it has one already, or is not there.
pub(crate) fn finish(connection: &Connection, record: &JobRecord) -> rusqlite::Result<bool> {
    let changed = connection
        .prepare_cached(
            "UPDATE jobs SET state = ?2, record = ?3, completed_at = ?4, revision = ?5, starter = NULL, is_patching = 0
             WHERE id = ?1 AND (state IN ('queued', 'active') OR state = 'lost' AND ?2 <> 'lost')",
        )?
        .execute(params![
            record.job_id,
            column(record.status),
            to_json(record)?,
            completed_at(record),
            next_revision(connection)?,
        ])?;
    files::forget(connection, record.job_id)?;
    Ok(changed == 1)
}

/// Notes that the result of this job is about to reach the named state, or that it has (or could not), as the record says.
pub(crate) fn note_patch(
    connection: &Connection,
    record: &JobRecord,
    is_patching: bool,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached("UPDATE jobs SET record = ?2, is_patching = ?3, revision = ?4 WHERE id = ?1")?
        .execute(params![record.job_id, to_json(record)?, is_patching, next_revision(connection)?])?;
    Ok(())
}

/// Notes who waits for a call, and what its answer can be had with. False where it has ended.
pub(crate) fn note_call(connection: &Connection, record: &JobRecord) -> rusqlite::Result<bool> {
    let changed = connection
        .prepare_cached("UPDATE jobs SET record = ?2, revision = ?3 WHERE id = ?1 AND state = 'active'")?
        .execute(params![record.job_id, to_json(record)?, next_revision(connection)?])?;
    Ok(changed == 1)
}

/// Jobs whose results were about to reach the named state when their writer died.
pub(crate) fn patching(connection: &Connection) -> rusqlite::Result<Vec<JobRow>> {
    select(connection, "INDEXED BY jobs_patching WHERE is_patching ORDER BY sequence", [])
}

/// One job.
pub(crate) fn get(connection: &Connection, id: JobId) -> rusqlite::Result<Option<JobRow>> {
    let mut statement = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM jobs WHERE id = ?1"))?;
    statement.query_row([id], JobRow::read).optional()
}

/// Every job that has not ended, in the order of acceptance.
pub(crate) fn open_jobs(connection: &Connection) -> rusqlite::Result<Vec<JobRow>> {
    select(connection, "INDEXED BY jobs_open WHERE state IN ('queued', 'active') ORDER BY sequence", [])
}

/// What has changed since, oldest change first.
pub(crate) fn changed_since(connection: &Connection, revision: i64) -> rusqlite::Result<Vec<JobRow>> {
    select(connection, "WHERE revision > ?1 ORDER BY revision", [revision])
}

/// The newest of these jobs, newest first. Starting and running jobs are one to the table.
pub(crate) fn newest(
    connection: &Connection,
    state: Option<JobState>,
    whose: &Whose,
    limit: u32,
) -> rusqlite::Result<Vec<JobRow>> {
    let rest = match (state, whose) {
        (None, Whose::Anybodys) => "ORDER BY sequence DESC LIMIT ?3",
        (None, Whose::Of(_)) => "WHERE owner IS ?2 ORDER BY sequence DESC LIMIT ?3",
        (Some(_), Whose::Anybodys) => "WHERE state = ?1 ORDER BY sequence DESC LIMIT ?3",
        (Some(_), Whose::Of(_)) => "WHERE state = ?1 AND owner IS ?2 ORDER BY sequence DESC LIMIT ?3",
    };
    let owner = if let Whose::Of(owner) = whose { owner.as_deref() } else { None };
    select(connection, rest, params![state.map(column), owner, limit])
}

/// Whether jobs that were accepted with a retention are kept for as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeptAsAccepted {
    No,
    AsAccepted,
}

/// Jobs that ended before `moment`, oldest first.
pub(crate) fn ended_before(
    connection: &Connection,
    moment: Moment,
    kept: KeptAsAccepted,
    limit: u32,
) -> rusqlite::Result<Vec<JobRow>> {
    let bounded = |moment: Moment| i64::try_from(moment.millis()).unwrap_or(i64::MAX);
    // A retention without end is longer than any integer, and then a real number here.
    let rest = "WHERE completed_at IS NOT NULL AND completed_at < ?1
        AND (?2 OR completed_at + iif(json_valid(record), coalesce(json_extract(record, '$.rules.retention_ms'), 0), 0) < ?3)
        ORDER BY completed_at LIMIT ?4";
    select(
        connection,
        rest,
        params![bounded(moment), kept == KeptAsAccepted::No, bounded(Moment::now()), limit],
    )
}

/// How many jobs there are.
pub(crate) fn how_many(connection: &Connection) -> rusqlite::Result<u32> {
    connection.query_row("SELECT count(*) FROM jobs", [], |row| row.get(0))
}

/// The jobs whose records have an older format, and whether each has ended.
pub(crate) fn of_older_format(connection: &Connection, format: u32) -> rusqlite::Result<Vec<(JobId, bool)>> {
    let mut statement = connection.prepare_cached(
        "SELECT id, completed_at IS NOT NULL FROM jobs
         WHERE iif(json_valid(record), json_extract(record, '$.format'), NULL) < ?1",
    )?;
    let rows = statement.query_map([format], |row| Ok((row.get::<_, String>(0)?, row.get(1)?)))?;
    let known = |row: (String, bool)| Some((row.0.parse().ok()?, row.1));
    rows.filter_map(|row| row.map(known).transpose()).collect()
}

/// Forgets a job that has ended. False where it has not, or is not there.
pub(crate) fn remove(connection: &Connection, id: JobId) -> rusqlite::Result<bool> {
    let mut sql = String::from("DELETE FROM jobs WHERE id = ?1");
    if stands("open-jobs-kept") {
        sql.push_str(" AND state NOT IN ('queued', 'active')");
    }
    let removed = connection.prepare_cached(&sql)?.execute([id])?;
    if removed == 1 {
        count(connection, "removals")?;
    }
    Ok(removed == 1)
}

/// Those of these jobs that are not there.
pub(crate) fn missing(connection: &Connection, ids: &[JobId]) -> rusqlite::Result<HashSet<JobId>> {
    let mut statement = connection.prepare_cached("SELECT 1 FROM jobs WHERE id = ?1")?;
    let mut missing = HashSet::new();
    for id in ids {
        if !statement.exists([id])? {
            missing.insert(*id);
        }
    }
    Ok(missing)
}

/// The last revision, and how many jobs were ever removed.
pub(crate) fn counters(connection: &Connection) -> rusqlite::Result<(i64, i64)> {
    let read = |name: &str| {
        connection
            .prepare_cached("SELECT value FROM counters WHERE name = ?1")?
            .query_row([name], |row| row.get(0))
    };
    Ok((read("revision")?, read("removals")?))
}

fn select(
    connection: &Connection,
    rest: &str,
    values: impl rusqlite::Params,
) -> rusqlite::Result<Vec<JobRow>> {
    let mut statement = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM jobs {rest}"))?;
    let mut rows = statement.query(values)?;
    let mut jobs = Vec::new();
    while let Some(row) = rows.next()? {
        match JobRow::read(row) {
            // It is one of many, and the others are what they are.
            Err(error @ rusqlite::Error::FromSqlConversionFailure(..)) => {
                unreadable::passed_over(row, &error);
            }
            read => jobs.push(read?),
        }
    }
    Ok(jobs)
}

impl ToSql for JobId {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.as_str().into())
    }
}

/// Makes an empty file that is ours alone, where there is none; SQLite gives the files that it makes beside it the same mode.
///
/// The file is never opened here, because to close it again would take every lock from it that SQLite holds for this process
/// (`fcntl_locking(2)`). Whoever closed the database next would then take itself for the last one, and remove the log that
/// we go on writing to.
fn make_private(path: &Path) -> Result<(), StoreError> {
    match mknodat(CWD, path, FileType::RegularFile, Mode::RUSR | Mode::WUSR, 0) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(FileError::system("cannot make", path, error.into()).into()),
    }
}

fn wait_for_others(tries: i32) -> bool {
    pause(RETRY);
    RETRY * u32::try_from(tries).unwrap_or(u32::MAX) < PATIENCE
}
