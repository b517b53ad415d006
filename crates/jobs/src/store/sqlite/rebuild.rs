//! Makes the table of jobs anew from their folders.
//!
//! Invariants
//!
//! - A folder's record of the end of a job counts, whatever `job.json` says. A damaged `exit.json` says nothing.
//! - A job of the old table stays known, even if its folder cannot be understood.
//! - A result that had not reached the named state still does: such a job is taken in as a job whose end has to be noted.
//! - Nothing is thrown away: a folder that cannot be understood stays where it is and is named. The retention moves it to quarantine later
//!   (`engine/quarantine.rs`).
//! - A job that may have run is not queued again; it gets a slot, and is judged like every job with a slot. If the lock of a folder is
//!   held, its supervisor lives.
//! - A folder that is being submitted is passed by. A job that was accepted while the folders were looked at stays.

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::PathBuf,
};

use rusqlite::{Connection, params};
use serde::Deserialize;

use super::{JobRow, SqliteStore, StoreError, changes::insert, figures, files, queries, schema};
use crate::{
    folder::{DataFolder, EXIT, FileError, JobFolder, LAUNCH, RECORD, RUN, STDERR, STDOUT},
    id::JobId,
    launch::{LaunchFiles, LaunchOrders},
    record::{EndReason, EndRecord, FORMAT, JobEnd, JobRecord, JobState, RunRecord},
    submitting::was_not_accepted,
};

/// The findings in the folders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// The number of jobs that are known again.
    pub jobs: usize,
    /// The folders that could not be understood, each with the reason. They were left as they are.
    pub damaged: Vec<(PathBuf, String)>,
}

impl Rebuilt {
    /// Returns whether the folders had no jobs and no damage.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs == 0 && self.damaged.is_empty()
    }
}

/// The jobs of all folders, oldest first.
pub(super) struct FolderScan {
    pub(super) jobs: Vec<ScannedJob>,
    damaged: Vec<(PathBuf, String)>,
    damaged_ids: Vec<JobId>,
}

/// A job, with the files that it needs to start if it has not started.
pub(super) type ScannedJob = (JobRecord, Option<LaunchFiles>);

impl FolderScan {
    pub(super) fn summary(&self) -> Rebuilt {
        Rebuilt { jobs: self.jobs.len(), damaged: self.damaged.clone() }
    }
}

impl FolderScan {
    /// Brings the findings up to the table, which nobody changes any more: since the scan, jobs were accepted, have ended, or were removed.
    fn catch_up(&mut self, data: &DataFolder, transaction: &Connection) -> rusqlite::Result<()> {
        let known = states(transaction)?;
        self.jobs.retain(|(record, _)| {
            let has_ended_since = known.get(&record.job_id) == Some(&true) && !record.status.is_final();
            !has_ended_since && data.job(record.job_id).is_there()
        });
        let found: HashSet<JobId> = self.jobs.iter().map(|(record, _)| record.job_id).collect();
        for (id, has_ended) in known {
            if found.contains(&id) || self.damaged_ids.contains(&id) {
                continue;
            }
            match read(&data.job(id), id) {
                Ok(Some(job)) => self.jobs.push(job),
                Ok(None) if has_ended => {}
                // The job was accepted, whatever its folder says.
                Ok(None) => {
                    if let Some(job) = queries::get(transaction, id)? {
                        self.jobs.push(as_the_table_has_it(transaction, job)?);
                    }
                }
                Err(error) => {
                    self.damaged.push((data.job(id).path().to_owned(), error.to_string()));
                    self.damaged_ids.push(id);
                }
            }
        }
        Ok(())
    }
}

/// Returns every job of the table, and whether it has ended.
fn states(connection: &Connection) -> rusqlite::Result<HashMap<JobId, bool>> {
    let mut statement = connection.prepare("SELECT id, state NOT IN ('queued', 'active') FROM jobs")?;
    let mut rows = statement.query([])?;
    let mut states = HashMap::new();
    while let Some(row) = rows.next()? {
        // A text that is not an id has no folder.
        if let Ok(id) = row.get::<_, String>(0)?.parse() {
            states.insert(id, row.get(1)?);
        }
    }
    Ok(states)
}

fn as_the_table_has_it(transaction: &Connection, job: JobRow) -> rusqlite::Result<ScannedJob> {
    let files = files::of(transaction, job.sequence)?;
    let mut record = job.record;
    if job.is_active {
        record.status = if record.call.is_some() { JobState::Running } else { JobState::Starting };
    }
    Ok((record, files))
}

/// Scans all folders.
pub(super) fn scan(data: &DataFolder) -> Result<FolderScan, FileError> {
    let (jobs, mut scan) =
        (data.jobs(), FolderScan { jobs: Vec::new(), damaged: Vec::new(), damaged_ids: Vec::new() });
    let failed = |error| FileError::system("cannot read", &jobs, error);
    for entry in fs::read_dir(&jobs).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // Anything else that lies there does not belong to unhang.
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<JobId>().ok()) else {
            continue;
        };
        match read(&data.job(id), id) {
            Ok(Some(found)) => scan.jobs.push(found),
            // The submitter died before the job was accepted.
            Ok(None) => {}
            Err(error) => {
                scan.damaged.push((entry.path(), error.to_string()));
                scan.damaged_ids.push(id);
            }
        }
    }
    scan.jobs.sort_unstable_by_key(|(record, _)| (record.created_at, record.job_id));
    Ok(scan)
}

/// Returns the record of the job in this folder, as its files say; `None` if the job was never accepted.
///
/// # Errors
/// Fails if the files are damaged, or were made by a newer unhang.
pub(crate) fn look_into(folder: &JobFolder, id: JobId) -> Result<Option<JobRecord>, FileError> {
    Ok(read(folder, id)?.map(|(record, _)| record))
}

/// The one member that is read before all others: a newer format may have any other members.
#[derive(Deserialize)]
struct Version {
    format: u32,
}

fn check_format(folder: &JobFolder, name: &str) -> Result<(), FileError> {
    match folder.read::<Version>(name) {
        Ok(Some(Version { format })) if format > FORMAT => {
            let text = format!("it has format {format}, and this unhang knows formats up to {FORMAT}");
            Err(FileError::damaged(&folder.file(name), text))
        }
        // Any other fault of the file is found by its readers.
        _ => Ok(()),
    }
}

fn read(folder: &JobFolder, id: JobId) -> Result<Option<ScannedJob>, FileError> {
    if folder.is_something_else() {
        return Err(FileError::damaged(folder.path(), "it is not a folder"));
    }
    [EXIT, RECORD, LAUNCH, RUN].into_iter().try_for_each(|name| check_format(folder, name))?;
    let ending: Result<Option<EndRecord>, FileError> = folder.read(EXIT);
    let mut orders: Result<Option<LaunchOrders>, FileError> = folder.read(LAUNCH);
    if orders.is_err() && !was_not_accepted(folder) {
        // A submitter may have been writing them, and they are whole before it takes its mark away.
        orders = folder.read(LAUNCH);
    }
    let mut record: JobRecord = match (folder.read(RECORD), orders) {
        (Ok(Some(record)), _) => record,
        // The mark is checked after the orders were read: a submitter marks the orders before it writes them.
        (Ok(None), Ok(Some(_)) | Err(_)) if was_not_accepted(folder) => return Ok(None),
        (_, Ok(Some(orders))) => orders.record,
        (Ok(None), Err(error)) | (Err(error), _) => return Err(error),
        (Ok(None), Ok(None)) => {
            let left = [RUN, EXIT, STDOUT, STDERR].into_iter().find(|name| folder.has(name));
            return match left {
                None => Ok(None),
                Some(left) => {
                    let text = format!("it has {left}, but neither {RECORD} nor {LAUNCH}");
                    Err(FileError::damaged(folder.path(), text))
                }
            };
        }
    };
    record.job_id = id;
    let ending = match ending {
        // The record says already how the job ended.
        Err(_) if record.status.is_final() => None,
        read => read?,
    };
    if let Some(ending) = ending {
        // The end is noted anew, and the result is brought to the state with it.
        let is_owed = record.patch.is_some() && record.state_applied.is_none() && !record.status.is_final();
        match ending.outcome {
            JobEnd::Completed if is_owed => record.status = JobState::Starting,
            _ => record.end(&ending),
        }
    } else if record.call.is_some() {
        // The next look at the call tells whether its holder still waits for the answer.
        record.status = JobState::Running;
    } else if !record.status.is_final() {
        // A damaged `run.json` also says that there was a supervisor, and a living supervisor holds the lock.
        let has_begun = folder.is_locked() || !matches!(folder.read::<RunRecord>(RUN), Ok(None));
        record.status = match has_begun {
            true => JobState::Starting,
            false if folder.has(LAUNCH) => JobState::Queued,
            false => {
                let detail = format!("its {LAUNCH} is missing, so unhang does not know the command");
                record.end(&EndRecord::without_run(JobEnd::Lost).because(EndReason::RecordDamaged, detail));
                record.status
            }
        };
    }
    let files =
        if record.status == JobState::Queued { LaunchFiles::read(folder, record.format) } else { None };
    Ok(Some((record, files)))
}

/// Inserts the jobs that were found, in their order.
pub(super) fn insert_all(connection: &Connection, jobs: &[ScannedJob]) -> rusqlite::Result<()> {
    for (record, files) in jobs {
        insert(connection, record, files.as_ref())?;
    }
    Ok(())
}

impl SqliteStore {
    /// Makes the whole table anew from the folders.
    pub(crate) fn rebuild(&mut self, data: &DataFolder) -> Result<Rebuilt, StoreError> {
        let found = scan(data)?;
        self.rebuild_from(data, found)
    }

    pub(super) fn rebuild_from(
        &mut self,
        data: &DataFolder,
        found: FolderScan,
    ) -> Result<Rebuilt, StoreError> {
        self.write(|transaction| {
            let kept = queries::counters(transaction)?;
            let shared = figures::all(transaction)?;
            let mut found = found;
            found.catch_up(data, transaction)?;
            let summary = found.summary();
            let mut jobs = found.jobs;
            for id in &found.damaged_ids {
                if let Some(job) = queries::get(transaction, *id)? {
                    jobs.push(as_the_table_has_it(transaction, job)?);
                }
            }
            jobs.sort_unstable_by_key(|(record, _)| (record.created_at, record.job_id));
            transaction.execute_batch("DROP TABLE launch_files; DROP TABLE jobs; DROP TABLE counters;")?;
            schema::create(transaction)?;
            // Processes that follow the changes must not take the new numbers for old ones.
            transaction.execute("UPDATE counters SET value = ?1 WHERE name = 'revision'", params![kept.0])?;
            transaction
                .execute("UPDATE counters SET value = ?1 WHERE name = 'removals'", params![kept.1 + 1])?;
            figures::keep_all(transaction, &shared)?;
            insert_all(transaction, &jobs)?;
            Ok(summary)
        })
    }

    /// Puts a damaged database aside and makes a new one from the folders. Returns where the old one lies.
    pub(crate) fn replace_damaged(data: &DataFolder) -> Result<(PathBuf, Rebuilt), StoreError> {
        let path = data.database();
        let aside =
            data.path().join(format!("unhang.db.damaged-{}", crate::timestamp::JobTimestamp::now().millis()));
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
