//! Makes the table of jobs anew from their folders.
//!
//! Invariants
//!
//! - What a folder says about the end of a job counts, whatever `job.json` says.
//! - Nothing is thrown away: a folder that cannot be understood stays where it is and is named.
//! - What may have run is not queued again; it gets a slot, and is judged like every job that has one.

use std::{fs, path::PathBuf};

use rusqlite::{Connection, params};

use super::{Store, StoreError, TABLES, files, insert};
use crate::{
    folder::{DataFolder, EXIT, FileError, JobFolder, LAUNCH, RECORD, RUN},
    id::JobId,
    launch::{Launch, LaunchFiles},
    record::{Ending, FORMAT, JobState, Outcome, Reason, Record, Run},
};

/// What was found in the folders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Jobs that are known again.
    pub jobs: usize,
    /// Folders that could not be understood, each with the reason. They were left as they are.
    pub damaged: Vec<(PathBuf, String)>,
}

impl Rebuilt {
    /// Whether there was nothing at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs == 0 && self.damaged.is_empty()
    }
}

/// The jobs of all folders, oldest first.
pub(super) struct Scan {
    pub(super) jobs: Vec<Found>,
    damaged: Vec<(PathBuf, String)>,
}

/// A job, with what it needs to start if it has not.
pub(super) type Found = (Record, Option<LaunchFiles>);

impl Scan {
    pub(super) fn summary(&self) -> Rebuilt {
        Rebuilt { jobs: self.jobs.len(), damaged: self.damaged.clone() }
    }
}

/// Looks at every folder.
pub(super) fn scan(data: &DataFolder) -> Result<Scan, FileError> {
    let (jobs, mut scan) = (data.jobs(), Scan { jobs: Vec::new(), damaged: Vec::new() });
    let failed = |error| FileError::system("cannot read", &jobs, error);
    for entry in fs::read_dir(&jobs).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // Anything else that lies there is none of ours.
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<JobId>().ok()) else {
            continue;
        };
        match read(&data.job(id), id) {
            Ok(Some(found)) => scan.jobs.push(found),
            // Its maker died before it was accepted.
            Ok(None) => {}
            Err(error) => scan.damaged.push((entry.path(), error.to_string())),
        }
    }
    scan.jobs.sort_by_key(|(record, _)| (record.created_at, record.job_id));
    Ok(scan)
}

fn read(folder: &JobFolder, id: JobId) -> Result<Option<Found>, FileError> {
    let ending: Option<Ending> = folder.read(EXIT)?;
    let orders: Result<Option<Launch>, FileError> = folder.read(LAUNCH);
    let mut record: Record = match (folder.read(RECORD), orders) {
        (Ok(Some(record)), _) => record,
        (_, Ok(Some(orders))) => orders.record,
        (Ok(None), _) => return Ok(None),
        (Err(error), _) => return Err(error),
    };
    if record.format > FORMAT {
        let text = format!("it has format {}, and this unhang knows formats up to {FORMAT}", record.format);
        return Err(FileError::damaged(&folder.file(RECORD), text));
    }
    record.job_id = id;
    if let Some(ending) = ending {
        record.end(&ending);
    } else if record.call.is_some() {
        // Whether somebody still waits for its answer is up to whoever looks at it next.
        record.status = JobState::Running;
    } else if !record.status.is_final() {
        // A damaged `run.json` also says that a shim was there.
        let has_begun = !matches!(folder.read::<Run>(RUN), Ok(None));
        record.status = match has_begun {
            true => JobState::Starting,
            false if folder.has(LAUNCH) => JobState::Queued,
            false => {
                let detail = format!("its {LAUNCH} is missing, so that nobody knows what to start");
                record.end(&Ending::without_run(Outcome::Lost).because(Reason::RecordDamaged, detail));
                record.status
            }
        };
    }
    let files =
        if record.status == JobState::Queued { LaunchFiles::read(folder, record.format) } else { None };
    Ok(Some((record, files)))
}

/// Takes in what was found, in its order.
pub(super) fn insert_all(connection: &Connection, jobs: &[Found]) -> rusqlite::Result<()> {
    for (record, files) in jobs {
        insert(connection, record, files.as_ref())?;
    }
    Ok(())
}

impl Store {
    /// Makes the whole table anew from the folders.
    pub(crate) fn rebuild(&mut self, data: &DataFolder) -> Result<Rebuilt, StoreError> {
        let found = scan(data)?;
        self.write(|transaction| {
            let kept = super::counters(transaction)?;
            transaction.execute_batch("DROP TABLE launch_files; DROP TABLE jobs; DROP TABLE counters;")?;
            transaction.execute_batch(TABLES)?;
            transaction.execute_batch(files::TABLES)?;
            // Whoever follows the changes must not take the new numbers for old ones.
            transaction.execute("UPDATE counters SET value = ?1 WHERE name = 'revision'", params![kept.0])?;
            transaction
                .execute("UPDATE counters SET value = ?1 WHERE name = 'removals'", params![kept.1 + 1])?;
            insert_all(transaction, &found.jobs)
        })?;
        Ok(found.summary())
    }

    /// Puts a damaged database aside and makes a new one from the folders. Returns where the old one lies.
    pub(crate) fn replace_damaged(data: &DataFolder) -> Result<(PathBuf, Rebuilt), StoreError> {
        let path = data.database();
        let aside = data.path().join(format!("unhang.db.damaged-{}", crate::moment::Moment::now().millis()));
        for suffix in ["", "-wal", "-shm"] {
            let with_suffix = |path: &PathBuf| {
                let mut name = path.clone().into_os_string();
                name.push(suffix);
                PathBuf::from(name)
            };
            let (from, to) = (with_suffix(&path), with_suffix(&aside));
            match fs::rename(&from, &to) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(FileError::system("cannot put aside", &from, error).into()),
            }
        }
        let (_, rebuilt) = Self::open(data)?;
        Ok((aside, rebuilt.unwrap_or_default()))
    }
}
