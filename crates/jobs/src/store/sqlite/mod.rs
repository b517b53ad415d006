//! The database: the jobs, their order, and the process that is to start the next one.
//!
//! Several processes share it: servers, command lines, and each supervisor at its end. Every change is one transaction that takes the write
//! lock first (`BEGIN IMMEDIATE`), so that its reads are still true when it writes.
//!
//! Invariants
//!
//! - Everything that a caller was told is on the disk (`synchronous=FULL`): an accepted job outlives a power failure. Only what the power
//!   failure itself makes untrue, as the keeper of a call, is written without that wait.
//! - Jobs run in the order of their acceptance, and never more than the limit that counts for the next one.
//! - A slot is taken and given back in the transaction that changes the state, so that it cannot leak.
//! - A final state stays as it is, but for `lost` if the true end is found after all.
//! - A record that cannot be read, as that of a newer unhang, is passed over and reported; no other job is missing because of it.
//! - Tables of a newer unhang are not written, even if they were upgraded while this process ran.
//! - Everything that is known only here can be found again in the folders: see `rebuild.rs`.
//! - A write fails if the data folder has another database when the transaction has committed.

mod admission;
mod changes;
mod count;
mod error;
mod figures;
mod files;
mod operations;
mod queries;
mod rebuild;
mod row;
mod schema;
#[cfg(test)]
mod tests;
mod turn;

use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use rustix::io::Errno;
use unhang_proc::{identity::boot_id, make_private_file};

pub(crate) use self::{
    admission::JobAdmission,
    figures::{ClockJump, StoreFigures},
    files::restore_files,
    operations::AcceptedRows,
    rebuild::look_into,
    row::{JobRow, ShimStarter},
};
pub use self::{error::StoreError, rebuild::Rebuilt};
use self::{
    error::{check_plain, explain, is_busy},
    schema::{VERSION, version},
    turn::WriteQueue,
};
use crate::{
    filesystem,
    folder::{DataFolder, Durability, FileError, sync},
    wait::{WaitLimit, pause},
};

/// The time that a transaction waits for those of other processes. Each takes milliseconds; a disk may stall for seconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// The pause between two tries. SQLite's own handler waits up to 100 ms between two, as long as a submission may take.
const RETRY: Duration = Duration::from_micros(500);

/// The kibibytes of pages that a connection keeps: a job's supervisor opens one for a moment and has 4 MiB for everything.
const CACHE: i64 = 512;

/// A connection to the database.
#[derive(Debug)]
pub(crate) struct SqliteStore {
    connection: Connection,
    data: DataFolder,
    turns: WriteQueue,
    path: PathBuf,
    /// The device and number of the connected file.
    file: Option<(u64, u64)>,
    /// The number of times that the connection went over to another file.
    replaced: u64,
    /// The event that the next transaction survives: the current setting of the connection.
    durability: Durability,
}

impl SqliteStore {
    /// Opens the database, and makes it if it is missing, from the folders if there are any.
    pub(crate) fn open(data: &DataFolder) -> Result<(Self, Option<Rebuilt>), StoreError> {
        if let Some(system) = filesystem::network_below(data.path())? {
            return Err(StoreError::OnNetwork { path: data.path().to_owned(), system });
        }
        let path = data.database();
        check_plain(&path)?;
        make_private(&path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let failed = |error| explain(&path, &error);
        // Read before the connection is opened: if the file is replaced in between, the next look at it finds that out.
        let file = lies_at(&path);
        let mut connection = Connection::open_with_flags(&path, flags).map_err(failed)?;
        connection.busy_handler(Some(wait_for_others)).map_err(failed)?;
        let (data_folder, turns, durability) = (data.clone(), WriteQueue::of(data), Durability::Disk);
        let mut store = Self { connection, data: data_folder, turns, path, file, replaced: 0, durability };
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

    /// Makes the name of the log durable if it is new, and with it the end of the journal that a new database begins with.
    ///
    /// SQLite would do so at the first commit of every connection, with the write lock in its hand: each supervisor once. It is built
    /// without that (`.cargo/config.toml`). Every process that writes to the log has called this method before. Nobody can remove the log as
    /// long as this process is connected. So a log with content has a name that lasts.
    fn name_the_log(&self) -> Result<(), FileError> {
        let log = self.path.with_extension("db-wal");
        let is_new = log.metadata().map_or(true, |metadata| metadata.len() == 0);
        if is_new { sync(self.data.path()) } else { Ok(()) }
    }

    /// Brings the tables to the version of this unhang; makes them from the folders if there are none.
    fn migrate(&mut self, data: &DataFolder) -> Result<Option<Rebuilt>, StoreError> {
        let path = self.path.clone();
        let boot = || boot_id().map_err(|error| FileError::system("cannot name this boot for", &path, error));
        match version(&self.connection).map_err(|error| explain(&path, &error))? {
            0 => {}
            1..VERSION => {
                let boot = boot()?;
                self.write(|transaction| schema::upgrade(transaction, &boot))?;
                return Ok(None);
            }
            VERSION => return Ok(None),
            found => return Err(StoreError::Newer { path, found }),
        }
        let (found, boot) = (rebuild::scan(data)?, boot()?);
        let rebuilt = self.write(|transaction| {
            // Another process may have been first.
            if version(transaction)? != 0 {
                return Ok(None);
            }
            schema::create(transaction)?;
            files::note(transaction, &boot)?;
            schema::note_version(transaction)?;
            rebuild::insert_all(transaction, &found.jobs)?;
            Ok(Some(found.summary()))
        })?;
        Ok(rebuilt.filter(|rebuilt| !rebuilt.is_empty()))
    }

    /// Returns how often another database was found in the place of the one before. Knowledge from the one before is worth nothing then.
    pub(crate) fn replaced(&self) -> u64 {
        self.replaced
    }

    /// Goes on with the database that lies there now, if somebody has put another one there, as `unhang job rebuild` does.
    fn follow(&mut self) -> Result<(), StoreError> {
        if self.is_in_place() {
            return Ok(());
        }
        if self.data.is_away() {
            let error =
                FileError::system("cannot find the data folder", self.data.path(), Errno::NOENT.into());
            return Err(error.into());
        }
        // The maintenance thread of an engine reports this: once, however many connections the engine has.
        let replaced = self.replaced + 1;
        *self = Self { replaced, ..Self::open(&self.data)?.0 };
        Ok(())
    }

    /// Returns whether the database that lies there is the connected one.
    pub(crate) fn is_in_place(&self) -> bool {
        self.file.is_some() && lies_at(&self.path) == self.file
    }

    /// Makes changes in one transaction that outlives a power failure. Fails with [`StoreError::Replaced`] if the database was replaced
    /// meanwhile.
    pub(crate) fn write<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        self.write_surviving(Durability::Disk, work)
    }

    /// Does the same as [`Self::write`] with a transaction that survives this event. Other processes see its changes at once.
    pub(crate) fn write_surviving<T>(
        &mut self,
        durability: Durability,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        self.follow()?;
        self.survive(durability).map_err(|error| explain(&self.path, &error))?;
        let _turn = self.turns.wait(turn::LIMIT);
        let path = &self.path;
        let run = |connection: &mut Connection| -> rusqlite::Result<Result<T, i64>> {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            // A newer unhang may have changed the tables since they were opened (F-16); only from here on nobody can do so.
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
        // A replacement begins with the later state of the folders, so it knows everything that was written before it.
        if self.is_in_place() { Ok(value) } else { Err(StoreError::Replaced { path: self.path.clone() }) }
    }

    /// Sets the event that the next transactions survive.
    fn survive(&mut self, durability: Durability) -> rusqlite::Result<()> {
        if self.durability != durability {
            let level = if durability == Durability::Disk { "FULL" } else { "NORMAL" };
            self.connection.pragma_update(None, "synchronous", level)?;
            self.durability = durability;
        }
        Ok(())
    }

    /// Runs a query on the database that lies there now.
    pub(crate) fn read<T>(
        &mut self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        self.follow()?;
        work(&self.connection).map_err(|error| explain(&self.path, &error))
    }
}

/// Returns the device and number of the file at this path, which no other file shares; `None` if there is none.
fn lies_at(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Makes an empty file for this user alone, if there is none; SQLite gives the files that it makes beside it the same mode.
///
/// The file is never opened here. Otherwise the next process that closed the database would take itself for the last one, and remove the
/// log that this process goes on writing to.
fn make_private(path: &Path) -> Result<(), StoreError> {
    make_private_file(path).map_err(|error| FileError::system("cannot make", path, error).into())
}

fn wait_for_others(tries: i32) -> bool {
    pause(RETRY);
    RETRY * u32::try_from(tries).unwrap_or(u32::MAX) < PATIENCE
}
