//! The files that small jobs need to start, beside their rows.
//!
//! # Theory of operation
//!
//! A submission is answered when one thing is on the disk: the log of the database. Making a file and two folders durable as well would
//! take longer than everything else in a submission. So the orders stand in the database until the job has ended, with the arguments in
//! them. Their file is written without waiting for the disk.
//!
//! A crash of programs does not touch the files. After a power failure they may be missing, empty or torn, and the first engine of the new
//! boot writes them anew. A job for which it cannot, as on a full disk, waits.
//!
//! # Invariants
//!
//! - A job whose files are not here has them on the disk, with their names
//!   ([`PreparedSubmission::sync`](crate::submission::PreparedSubmission::sync)).
//! - In a boot in which the files have not been looked at, no job gets a slot; nor does a job whose own files could not be written anew.
//! - Files are written anew with the write lock held, for queued jobs alone: no process starts one meanwhile, and a started job does not
//!   get its orders back, which may be secret.
//! - The contents go with the end of the job, and are written over (`secure_delete`).

use rusqlite::{Connection, OptionalExtension, params};
use unhang_proc::identity::is_same_boot;

use super::{JobRow, SqliteStore, StoreError, queries::open_jobs};
use crate::{
    folder::{FileError, JobFolder},
    id::JobId,
    launch::LaunchFiles,
};

pub(super) const TABLES: &str = "
    CREATE TABLE launch_files (
        sequence INTEGER PRIMARY KEY REFERENCES jobs (sequence) ON DELETE CASCADE,
        launch TEXT NOT NULL,
        arguments TEXT
    ) STRICT;
    CREATE TABLE IF NOT EXISTS boots (id TEXT NOT NULL) STRICT;
";

/// Stores the files of the job that was inserted last.
pub(super) fn keep(connection: &Connection, files: &LaunchFiles) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT INTO launch_files VALUES (?1, ?2, ?3)")?
        .execute(params![connection.last_insert_rowid(), files.launch, files.arguments])
        .map(drop)
}

/// Removes the files of a job that has ended.
pub(super) fn forget(connection: &Connection, id: JobId) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "DELETE FROM launch_files WHERE sequence = (SELECT sequence FROM jobs WHERE id = ?1)",
        )?
        .execute([id])
        .map(drop)
}

pub(super) fn of(connection: &Connection, sequence: i64) -> rusqlite::Result<Option<LaunchFiles>> {
    connection
        .prepare_cached("SELECT launch, arguments FROM launch_files WHERE sequence = ?1")?
        .query_row([sequence], |row| Ok(LaunchFiles { launch: row.get(0)?, arguments: row.get(1)? }))
        .optional()
}

/// Returns whether the files belong to this boot.
pub(super) fn are_of(connection: &Connection, boot: &str) -> rusqlite::Result<bool> {
    let last: Option<String> = connection
        .prepare_cached("SELECT id FROM boots WHERE id NOT LIKE 'without %'")?
        .query_row([], |row| row.get(0))
        .optional()?;
    // The boot of another container on this system counts as the same: only the end of the system takes files.
    Ok(last.is_some_and(|last| is_same_boot(&last, boot)))
}

/// Notes that the files belong to this boot.
pub(super) fn note(connection: &Connection, boot: &str) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM boots", [])?;
    connection.execute("INSERT INTO boots VALUES (?1)", [boot]).map(drop)
}

/// Returns the jobs whose files could not be written anew in this boot. Each has a row behind that of the boot.
fn without_files(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement =
        connection.prepare_cached("SELECT substr(id, 9) FROM boots WHERE id LIKE 'without %'")?;
    statement.query_map([], |row| row.get(0))?.collect()
}

fn note_without(connection: &Connection, id: JobId) -> rusqlite::Result<()> {
    connection.execute("INSERT INTO boots VALUES ('without ' || ?1)", [id]).map(drop)
}

fn note_with(connection: &Connection, id: &str) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM boots WHERE id = 'without ' || ?1", [id]).map(drop)
}

/// A job whose files were to be written anew, with the reason if they could not be.
pub(crate) type Restored = (JobId, Option<String>);

/// Writes the files of queued jobs anew if a power failure may have taken them, once in every boot. Files that cannot be written are
/// tried again with the next call, and the other jobs do not wait for that.
///
/// # Errors
/// Fails if the database does.
pub(crate) fn restore_files(store: &mut SqliteStore, boot: &str) -> Result<Vec<Restored>, StoreError> {
    if store.read(|connection| Ok(are_of(connection, boot)? && without_files(connection)?.is_empty()))? {
        return Ok(Vec::new());
    }
    let data = store.data.clone();
    store.write(|transaction| {
        // Another process may have been first.
        let is_new_boot = !are_of(transaction, boot)?;
        if is_new_boot {
            note(transaction, boot)?;
        }
        let mut without = without_files(transaction)?;
        let mut restored = Vec::new();
        for job in open_jobs(transaction)? {
            let id = job.record.job_id;
            let index = without.iter().position(|other| other == id.as_str());
            let was_without = index.map(|index| without.swap_remove(index)).is_some();
            if !is_new_boot && !was_without {
                continue;
            }
            let Some(files) = of(transaction, job.sequence)? else { continue };
            let trouble = restore(&data.job(id), &job, &files).err().map(|error| error.to_string());
            match (was_without, &trouble) {
                (false, Some(_)) => note_without(transaction, id)?,
                (true, None) => note_with(transaction, id.as_str())?,
                _ => {}
            }
            if was_without || trouble.is_some() {
                restored.push((id, trouble));
            }
        }
        // The remaining jobs have ended meanwhile.
        without.iter().try_for_each(|id| note_with(transaction, id))?;
        Ok(restored)
    })
}

fn restore(folder: &JobFolder, job: &JobRow, files: &LaunchFiles) -> Result<(), FileError> {
    // A job that had a slot is lost, and its end is written into its folder.
    if job.is_active { folder.create_if_missing() } else { files.restore(folder, &job.record) }
}
