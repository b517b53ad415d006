//! The place of each file of a job: in the database, or in an object store.
//!
//! Theory of operation. The database has a row for each object (`unhang.artifacts`). The row comes first, in the state `writing`. Then the
//! object is written. Then the row becomes `written`: for inputs in the transaction that accepts the job, for other files by a statement that
//! names the token of the lease. Readers find objects by `written` rows of the job alone.
//!
//! An object whose job is gone is removed by [`SharedFiles::sweep`]. The row goes to `removing`, then the object is removed, and then the
//! row. So a process that is killed at any moment leaves a row by which the next sweep finds the object.
//!
//! Invariants
//!
//! - Every object has a row. So nobody lists a bucket.
//! - A row of a job that exists never goes to `removing` once it is `written`.
//! - A row that is `writing` for [`ABANDONED_AFTER`] has no writer any more: each operation of an object store has a shorter limit.
//! - Nothing of a row becomes part of a path but the id of the job, a number and a digest ([`ArtifactKey`]).

use std::time::Duration;

use bytes::Bytes;
use tokio_postgres::{
    Row, Transaction,
    types::{ToSql, Type},
};
use unhang_artifacts::{ArtifactKey, ArtifactStore};
use unhang_jobs::{document::MAX_DOCUMENT, id::JobId, store::JobStore as _};

use crate::{error::PostgresError, outputs::HELD, store::PostgresStore};

/// The size of a file in bytes above which it goes to the object store, if there is one.
pub const ARTIFACT_INLINE: u64 = 1 << 20;

/// The size in bytes of the largest file that the database takes. No file of a job is larger anywhere.
pub const ARTIFACT_MAX: u64 = MAX_DOCUMENT;

/// The time after which nobody writes an object any more that is not complete.
const ABANDONED_AFTER: Duration = Duration::from_secs(60 * 60);

/// The number of objects that are removed with one look.
const AT_ONCE: i64 = 200;

/// The label of a worker that has an object store, before the store's name. It is one of unhang's own.
const LABEL: &str = "unhang:artifacts:";

/// The rules by which a file goes to the database or to an object store.
#[derive(Clone, Debug)]
pub struct SharedFiles {
    /// The object store, if there is one.
    pub artifacts: Option<ArtifactStore>,
    /// The size in bytes above which a file goes to the object store.
    pub inline: u64,
    /// The size in bytes of the largest file for the database.
    pub largest: u64,
}

impl Default for SharedFiles {
    fn default() -> Self {
        Self { artifacts: None, inline: ARTIFACT_INLINE, largest: ARTIFACT_MAX }
    }
}

/// The place of a file.
#[derive(Clone, Debug)]
pub enum FilePlace {
    /// The database takes it.
    Database,
    /// It goes to this object store.
    Artifacts(ArtifactStore),
}

/// Files of a job that is about to be accepted, by their places.
#[derive(Debug, Default)]
pub(crate) struct PlacedFiles<'a> {
    /// Those for the database, by name.
    pub(crate) pieces: Vec<(&'a str, &'a [u8])>,
    /// Those that are in the object store.
    pub(crate) objects: Vec<ArtifactKey>,
    /// The name of the object store; empty if there is none.
    pub(crate) location: &'a str,
}

/// Gives objects that were written beforehand to the job that is accepted now.
const TAKE: &str = "UPDATE unhang.artifacts AS object
     SET state = 'written', job = sequence, made_at = clock_timestamp() FROM unhang.jobs
     WHERE id = $1 AND job_id = $1 AND attempt = $4 AND location = $2 AND digest = ANY ($3)
        AND object.state <> 'removing'";

impl PlacedFiles<'_> {
    /// Gives the objects to the job that this transaction has inserted. Returns false if some of them are gone: then there must be no commit.
    pub(crate) async fn take_objects(
        &self,
        transaction: &Transaction<'_>,
        id: JobId,
        attempt: u32,
    ) -> Result<bool, tokio_postgres::Error> {
        if self.objects.is_empty() {
            return Ok(true);
        }
        let digests: Vec<&[u8]> = self.objects.iter().map(ArtifactKey::digest).collect();
        let values: [(&(dyn ToSql + Sync), Type); 4] = [
            (&id.as_str(), Type::TEXT),
            (&self.location, Type::TEXT),
            (&digests, Type::BYTEA_ARRAY),
            (&signed(attempt), Type::INT4),
        ];
        Ok(transaction.execute_typed(TAKE, &values).await? == self.objects.len() as u64)
    }
}

/// Makes the error of a job whose large files were removed before it was accepted.
pub(crate) fn gone(store: &PostgresStore) -> PostgresError {
    PostgresError::Failed {
        store: store.connection.shown().to_owned(),
        doing: "submitted a job",
        detail: "its large files were removed meanwhile; submit it again".to_owned(),
    }
}

impl SharedFiles {
    /// Returns the place of a file of this size.
    ///
    /// # Errors
    /// Fails if the file is too large for the database, and there is no object store.
    pub fn place(&self, store: &str, name: &str, bytes: u64) -> Result<FilePlace, PostgresError> {
        match &self.artifacts {
            Some(artifacts) if bytes > self.inline => Ok(FilePlace::Artifacts(artifacts.clone())),
            _ if bytes <= self.largest => Ok(FilePlace::Database),
            _ => {
                let (store, name, limit) = (store.to_owned(), name.to_owned(), self.largest);
                Err(PostgresError::FileTooLarge { store, name, bytes, limit })
            }
        }
    }

    /// Returns the label that a worker needs for files of this object store, if there is one.
    #[must_use]
    pub fn label(&self) -> Option<String> {
        self.artifacts.as_ref().map(|artifacts| format!("{LABEL}{}", artifacts.shown()))
    }

    /// Writes the large files of a job that is about to be accepted. Nothing points to them before that. Inputs have attempt 0.
    pub(crate) fn place_all<'a>(
        &'a self,
        store: &mut PostgresStore,
        (id, attempt): (JobId, u32),
        files: &'a [(String, Vec<u8>)],
    ) -> Result<PlacedFiles<'a>, PostgresError> {
        let mut placed = PlacedFiles::default();
        for (name, content) in files {
            match self.place(store.connection.shown(), name, content.len() as u64)? {
                FilePlace::Database => placed.pieces.push((name, content)),
                FilePlace::Artifacts(artifacts) => {
                    let key = ArtifactKey::of(id, attempt, name, content);
                    announce_early(store, &artifacts, &key, (id, attempt), name, content.len() as u64)?;
                    artifacts.put(&key, Bytes::copy_from_slice(content)).map_err(PostgresError::Artifacts)?;
                    placed.objects.push(key);
                }
            }
        }
        placed.location = self.artifacts.as_ref().map_or("", ArtifactStore::shown);
        Ok(placed)
    }

    /// Keeps a file of a job, in place of an earlier one of this name. Returns false if the job is not the worker's any more.
    ///
    /// # Errors
    /// Fails if database or object store cannot be asked, or cannot write, and if the file is too large.
    pub fn put(
        &self,
        store: &mut PostgresStore,
        id: JobId,
        token: &str,
        name: &str,
        content: Vec<u8>,
    ) -> Result<bool, PostgresError> {
        let bytes = content.len() as u64;
        let artifacts = match self.place(store.connection.shown(), name, bytes)? {
            FilePlace::Database => return store.put_file(id, token, name, &content),
            FilePlace::Artifacts(artifacts) => artifacts,
        };
        // The attempt is the database's to say: the digest depends on name and content alone.
        let key = ArtifactKey::of(id, 0, name, &content);
        let Some(attempt) = announce(store, &artifacts, &key, id, token, name, bytes)? else {
            return Ok(false);
        };
        let key = key.with_attempt(attempt);
        artifacts.put(&key, content.into()).map_err(PostgresError::Artifacts)?;
        let sql = format!(
            "WITH held AS ({HELD})
             UPDATE unhang.artifacts SET state = 'written', made_at = clock_timestamp() FROM held
             WHERE job = held.sequence AND attempt = held.claims AND attempt = $3 AND digest = $4
                AND location = $5 AND artifacts.state <> 'removing'"
        );
        store.changes(
            "kept a file",
            &sql,
            &[
                (&id.as_str(), Type::TEXT),
                (&token, Type::TEXT),
                (&signed(attempt), Type::INT4),
                (&key.digest(), Type::BYTEA),
                (&artifacts.shown(), Type::TEXT),
            ],
        )
    }

    /// Reads the files that are in the work's folder before the job starts.
    ///
    /// # Errors
    /// Fails if database or object store cannot be asked. Also fails if a file is in an object store that is not this one.
    pub fn inputs(
        &self,
        store: &mut PostgresStore,
        id: JobId,
    ) -> Result<Vec<(String, Vec<u8>)>, PostgresError> {
        let mut inputs = store.inputs(id)?;
        let rows = store.rows(
            "read the inputs of a job",
            "SELECT name, attempt, digest, bytes, location
             FROM unhang.artifacts JOIN unhang.jobs ON job = sequence
             WHERE id = $1 AND attempt = 0 AND artifacts.state = 'written' ORDER BY name",
            &[(&id.as_str(), Type::TEXT)],
        )?;
        for row in &rows {
            inputs.push((row.get("name"), self.object(store, id, row)?));
        }
        Ok(inputs)
    }

    /// Reads a file that the newest attempt of a job has left; `None` if there is none.
    ///
    /// # Errors
    /// Fails as [`Self::inputs`] does.
    pub fn file(
        &self,
        store: &mut PostgresStore,
        id: JobId,
        name: &str,
    ) -> Result<Option<Vec<u8>>, PostgresError> {
        let rows = store.rows(
            "read a file",
            "SELECT name, attempt, digest, bytes, location
             FROM unhang.artifacts JOIN unhang.jobs ON job = sequence AND attempt = claims
             WHERE id = $1 AND name = $2 AND artifacts.state = 'written' ORDER BY made_at DESC LIMIT 1",
            &[(&id.as_str(), Type::TEXT), (&name, Type::TEXT)],
        )?;
        match rows.first() {
            Some(row) => self.object(store, id, row).map(Some),
            None => store.file(id, name),
        }
    }

    /// Removes a job that has ended, and its objects. An object that cannot be removed now is removed by a later sweep. Returns false if the
    /// job has not ended, or does not exist.
    ///
    /// # Errors
    /// Fails if the database cannot be asked, or cannot write.
    pub fn remove(&self, store: &mut PostgresStore, id: JobId) -> Result<bool, PostgresError> {
        let is_removed = store.remove(id)?;
        if is_removed && let Err(error) = self.sweep_some(store, Some(id)) {
            tracing::warn!("the large files of job {id} are removed later, by a worker: {error}");
        }
        Ok(is_removed)
    }

    /// Removes the objects of jobs that are gone, and those that nobody completed.
    ///
    /// # Errors
    /// Fails if database or object store cannot be asked. The next sweep goes on there.
    pub fn sweep(&self, store: &mut PostgresStore) -> Result<(), PostgresError> {
        while self.sweep_some(store, None)? > 0 {}
        Ok(())
    }

    /// Removes some of these objects, or some of one job that is gone. Returns their number.
    fn sweep_some(&self, store: &mut PostgresStore, id: Option<JobId>) -> Result<usize, PostgresError> {
        let Some(artifacts) = &self.artifacts else { return Ok(0) };
        let location = artifacts.shown();
        let abandoned_ms = ABANDONED_AFTER.as_secs_f64() * 1000.0;
        let rows = store.rows(
            "looked for objects without a job",
            "UPDATE unhang.artifacts AS object SET state = 'removing'
             WHERE (job_id, attempt, digest, location) IN (
                SELECT job_id, attempt, digest, location FROM unhang.artifacts AS found
                WHERE location = $1 AND ($2::text IS NULL OR job_id = $2) AND (state = 'removing'
                    OR state = 'written' AND NOT EXISTS (SELECT FROM unhang.jobs WHERE sequence = found.job)
                    OR state = 'writing' AND made_at + $3 * interval '1 ms' < clock_timestamp())
                LIMIT $4 FOR UPDATE SKIP LOCKED)
             RETURNING job_id, attempt, digest",
            &[
                (&location, Type::TEXT),
                (&id.as_ref().map(JobId::as_str), Type::TEXT),
                (&abandoned_ms, Type::FLOAT8),
                (&AT_ONCE, Type::INT8),
            ],
        )?;
        for row in &rows {
            let (job, attempt, digest): (&str, i32, &[u8]) = (row.get(0), row.get(1), row.get(2));
            // A row that names no object has none.
            if let Some(key) = key(job, attempt, digest) {
                artifacts.remove(&key).map_err(PostgresError::Artifacts)?;
            }
            store.changes(
                "removed an object",
                "DELETE FROM unhang.artifacts
                 WHERE job_id = $1 AND attempt = $2 AND digest = $3 AND location = $4 AND state = 'removing'",
                &[
                    (&job, Type::TEXT),
                    (&attempt, Type::INT4),
                    (&digest, Type::BYTEA),
                    (&location, Type::TEXT),
                ],
            )?;
        }
        Ok(rows.len())
    }

    /// Reads the object of a row.
    fn object(&self, store: &PostgresStore, id: JobId, row: &Row) -> Result<Vec<u8>, PostgresError> {
        let (name, location): (String, String) = (row.get("name"), row.get("location"));
        let Some(artifacts) = self.artifacts.as_ref().filter(|own| own.shown() == location) else {
            let own = self.artifacts.as_ref().map(|own| own.shown().to_owned());
            return Err(PostgresError::OtherArtifacts { id, name, location, own });
        };
        let bytes: i64 = row.get("bytes");
        let key = key(id.as_str(), row.get("attempt"), row.get("digest"));
        let size = u64::try_from(bytes).ok().filter(|bytes| *bytes <= ARTIFACT_MAX);
        let Some((key, size)) = key.zip(size) else {
            let (store, detail) = (store.connection.shown().to_owned(), format!("that of file {name}"));
            return Err(PostgresError::UnknownRecord { store, detail });
        };
        artifacts.get(&key, &name, size).map_err(PostgresError::Artifacts)
    }
}

/// Returns the name of the object store in a label of [`SharedFiles::label`].
pub(crate) fn of_label(label: &str) -> Option<&str> {
    label.strip_prefix(LABEL)
}

/// Makes the key of an object from a row, which is not trusted.
fn key(job: &str, attempt: i32, digest: &[u8]) -> Option<ArtifactKey> {
    ArtifactKey::stored(job.parse().ok()?, u32::try_from(attempt).ok()?, digest)
}

/// Notes that a file of a job is about to be written that is not accepted yet.
fn announce_early(
    store: &mut PostgresStore,
    artifacts: &ArtifactStore,
    key: &ArtifactKey,
    (id, attempt): (JobId, u32),
    name: &str,
    bytes: u64,
) -> Result<(), PostgresError> {
    let noted = store.changes(
        "noted a file",
        "INSERT INTO unhang.artifacts AS known (job_id, attempt, digest, location, name, bytes)
         VALUES ($1, $6, $2, $3, $4, $5)
         ON CONFLICT (job_id, attempt, digest, location) DO UPDATE SET made_at = clock_timestamp()
         WHERE known.state <> 'removing'",
        &[
            (&id.as_str(), Type::TEXT),
            (&key.digest(), Type::BYTEA),
            (&artifacts.shown(), Type::TEXT),
            (&name, Type::TEXT),
            (&wide(bytes), Type::INT8),
            (&signed(attempt), Type::INT4),
        ],
    )?;
    if noted { Ok(()) } else { Err(being_removed(store)) }
}

/// Notes that a file of a worker is about to be written. Returns the attempt; `None` if the job is not the worker's any more.
fn announce(
    store: &mut PostgresStore,
    artifacts: &ArtifactStore,
    key: &ArtifactKey,
    id: JobId,
    token: &str,
    name: &str,
    bytes: u64,
) -> Result<Option<u32>, PostgresError> {
    let sql = format!(
        "WITH held AS ({HELD}), noted AS (
            INSERT INTO unhang.artifacts AS known (job_id, attempt, digest, location, name, bytes, job)
            SELECT $1, held.claims, $3, $4, $5, $6, held.sequence FROM held
            ON CONFLICT (job_id, attempt, digest, location)
            DO UPDATE SET job = excluded.job, state = 'writing', made_at = clock_timestamp()
            WHERE known.state <> 'removing' RETURNING 1
         )
         SELECT claims, (SELECT count(*) FROM noted) FROM held"
    );
    let rows = store.rows(
        "noted a file",
        &sql,
        &[
            (&id.as_str(), Type::TEXT),
            (&token, Type::TEXT),
            (&key.digest(), Type::BYTEA),
            (&artifacts.shown(), Type::TEXT),
            (&name, Type::TEXT),
            (&wide(bytes), Type::INT8),
        ],
    )?;
    let Some(row) = rows.first() else { return Ok(None) };
    let (attempt, noted): (i32, i64) = (row.get(0), row.get(1));
    if noted == 0 {
        return Err(being_removed(store));
    }
    Ok(u32::try_from(attempt).ok())
}

/// Makes the error of a file that was left by a removed job of the same id.
fn being_removed(store: &PostgresStore) -> PostgresError {
    let detail = "the files of an earlier job with this id are being removed; try again later".to_owned();
    PostgresError::Failed { store: store.connection.shown().to_owned(), doing: "noted a file", detail }
}

fn signed(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn wide(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use unhang_artifacts::{ArtifactLocation, ObjectAccess};

    use super::*;

    #[test]
    fn the_size_of_a_file_decides_its_place() {
        let location = ArtifactLocation::parse("/mnt/shared").unwrap();
        let artifacts = Some(ArtifactStore::new(&location, ObjectAccess::default()));
        let database_alone = SharedFiles { artifacts: None, inline: 5, largest: 10 };
        let both = SharedFiles { artifacts, ..database_alone };
        let place = |files: &SharedFiles, bytes| match files.place("postgres://db", "a.bin", bytes) {
            Ok(FilePlace::Database) => "database".to_owned(),
            Ok(FilePlace::Artifacts(artifacts)) => artifacts.shown().to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!([5, 6, 10].map(|bytes| place(&database_alone, bytes)), ["database"; 3]);
        let told = place(&database_alone, 11);
        let parts = ["a.bin", "11 bytes", "postgres://db", "10", "artifact-max", "artifacts"];
        assert!(parts.iter().all(|part| told.contains(part)), "{told}");
        assert_eq!([5, 6, 11].map(|bytes| place(&both, bytes)), ["database", "/mnt/shared", "/mnt/shared"]);
        assert_eq!(both.label().as_deref().and_then(of_label), Some("/mnt/shared"));
    }
}
