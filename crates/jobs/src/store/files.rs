//! What small jobs need to start, beside their rows.
//!
//! # Theory of operation
//!
//! A submit is answered when one thing is on the disk: the log of the database. To make two files and two folders durable as well
//! takes longer than everything else in a submit. So the contents of those files stand in the database until the job has ended, and
//! the files are written without waiting for the disk. A crash of programs does not touch them; after a power failure they may be
//! missing, empty or torn, and the first engine of the new boot writes them anew. Where it cannot, as on a full disk, jobs wait.
//!
//! # Invariants
//!
//! - A job whose files are not here has them on the disk, with their names ([`Submission::sync`](crate::submission::Submission::sync)).
//! - In a boot in which the files have not been looked at, no job gets a slot.
//! - Files are written anew with the write lock held, for queued jobs alone: nobody starts one meanwhile, and what was started
//!   does not get its orders back, which may be secret.
//! - The contents go with the end of the job, and are written over (`secure_delete`).

use rusqlite::{Connection, OptionalExtension, params};
use unhang_switches::stands;

use super::{Store, StoreError, open_jobs};
use crate::{folder::FileError, id::JobId, launch::LaunchFiles};

pub(super) const TABLES: &str = "
    CREATE TABLE launch_files (
        sequence INTEGER PRIMARY KEY REFERENCES jobs (sequence) ON DELETE CASCADE,
        launch TEXT NOT NULL,
        arguments TEXT
    ) STRICT;
    CREATE TABLE IF NOT EXISTS boots (id TEXT NOT NULL) STRICT;
";

/// Keeps the files of the job that was inserted last.
pub(super) fn keep(connection: &Connection, files: &LaunchFiles) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT INTO launch_files VALUES (?1, ?2, ?3)")?
        .execute(params![connection.last_insert_rowid(), files.launch, files.arguments])
        .map(drop)
}

/// Forgets those of a job that has ended.
pub(super) fn forget(connection: &Connection, id: JobId) -> rusqlite::Result<()> {
    if !stands("launch-files-written-over") {
        return Ok(());
    }
    connection
        .prepare_cached(
            "DELETE FROM launch_files WHERE sequence = (SELECT sequence FROM jobs WHERE id = ?1)",
        )?
        .execute([id])
        .map(drop)
}

fn of(connection: &Connection, sequence: i64) -> rusqlite::Result<Option<LaunchFiles>> {
    connection
        .prepare_cached("SELECT launch, arguments FROM launch_files WHERE sequence = ?1")?
        .query_row([sequence], |row| Ok(LaunchFiles { launch: row.get(0)?, arguments: row.get(1)? }))
        .optional()
}

/// Whether the files are those of this boot.
pub(super) fn are_of(connection: &Connection, boot: &str) -> rusqlite::Result<bool> {
    let last: Option<String> =
        connection.prepare_cached("SELECT id FROM boots")?.query_row([], |row| row.get(0)).optional()?;
    Ok(last.as_deref() == Some(boot))
}

/// Notes that they are.
pub(super) fn note(connection: &Connection, boot: &str) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM boots", [])?;
    connection.execute("INSERT INTO boots VALUES (?1)", [boot]).map(drop)
}

impl Store {
    /// Writes the files of queued jobs anew where a power failure may have taken them, once in every boot.
    ///
    /// # Errors
    /// Where one of them cannot be written; then it is tried again with the next call.
    pub(crate) fn restore_files(&mut self, boot: &str) -> Result<(), StoreError> {
        if self.read(|connection| are_of(connection, boot))? {
            return Ok(());
        }
        let data = self.data.clone();
        let restored: Result<(), FileError> = self.write(|transaction| {
            for job in open_jobs(transaction)? {
                let Some(files) = of(transaction, job.sequence)? else { continue };
                let folder = data.job(job.record.job_id);
                // One that had a slot is lost, and its folder is where that is written.
                let restored = match job.is_active {
                    true => folder.create_if_missing(),
                    false if stands("files-written-after-a-boot") => files.restore(&folder, &job.record),
                    false => Ok(()),
                };
                if let Err(error) = restored {
                    return Ok(Err(error));
                }
            }
            note(transaction, boot)?;
            Ok(Ok(()))
        })?;
        Ok(restored?)
    }
}
