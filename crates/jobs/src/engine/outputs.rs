//! The files that a job's work leaves, its logs and its results, and the named state, to which results go.
//!
//! Invariant: a file that the work wrote and that is gone is an error or is named, and never reads as "printed nothing" (F-10).

use std::path::{Path, PathBuf};

use serde_json::{Value, value::RawValue};

use super::{CHANGE_LIMIT, Engine, EngineState};
use crate::{
    document::{Document, DocumentEntry, Documents, Field, MAX_DOCUMENT},
    error::JobError,
    folder::{ARGUMENTS, ERROR, FileError, FileName, OWN_WORK_FOLDER, RESULT, RUN, WorkFolder},
    id::JobId,
    log::{LogPage, LogStream, MAX_PAGE, SHORTEST_PAGE, page, raw_page, tail},
    record::{JobRecord, JobState, RunRecord},
    settle::{read_result, set_document},
    status::JobStatus,
    timestamp::JobTimestamp,
};

/// The number of bytes of the end of each log that come with the results.
pub(super) const TAIL: usize = 2000;

/// The files that a job has left.
#[derive(Clone, Debug)]
pub struct Results {
    /// The status of the job.
    pub status: JobStatus,
    /// The content of the result file, if one was agreed on and exists. The answer of a call that a [`Value`] cannot have is JSON in a text.
    pub results: Option<Value>,
    /// The job's own account of its failure, in `error.json`.
    pub error: Option<Value>,
    /// The end of its stdout.
    pub stdout_tail: String,
    /// The end of its stderr.
    pub stderr_tail: String,
    /// The files of the job that existed, and are gone.
    pub gone: Vec<PathBuf>,
}

impl Engine {
    /// Reads the results of a job, and the ends of its logs.
    ///
    /// # Errors
    /// Fails if there is no such job, its folder is gone, or its files cannot be read.
    pub async fn results(&self, id: JobId) -> Result<Results, JobError> {
        if let (Some(shared), Some(status)) = (&self.inner.shared, self.status_in_store(id).await?) {
            return shared.results(status).await;
        }
        self.run_read(move |inner| results(inner, id)).await
    }

    /// Reads a file in the work's folder, as the work has left it; `None` if there is none, or if a work can leave no file of this name.
    ///
    /// # Errors
    /// Fails if there is no such job, or if the file is too long or cannot be read.
    pub async fn left_file(&self, id: JobId, name: &str) -> Result<Option<Vec<u8>>, JobError> {
        // A person cannot choose the two names, which have a meaning of their own.
        if ![ERROR, ARGUMENTS].contains(&name) && FileName::new(name).is_err() {
            return Ok(None);
        }
        let name = name.to_owned();
        self.run_read(move |inner| {
            let format = inner.status(id)?.record.format;
            Ok(inner.data.job(id).work(format).read(&name, MAX_DOCUMENT)?)
        })
        .await
    }

    /// Returns the result of a call that has ended with one, as JSON, as its server gave it; `None` otherwise.
    ///
    /// # Errors
    /// Fails if there is no such job, or its files cannot be read.
    pub async fn call_result(&self, id: JobId) -> Result<Option<String>, JobError> {
        self.text_of(id, RESULT).await
    }

    /// Returns the error that the caller of a failed call would have had, as JSON; `None` if there is none.
    ///
    /// # Errors
    /// Fails as [`Self::call_result`] does.
    pub async fn call_error(&self, id: JobId) -> Result<Option<String>, JobError> {
        self.text_of(id, ERROR).await
    }

    /// Returns the arguments of a call, as JSON; `None` if it has none, or the job is not a call.
    ///
    /// # Errors
    /// Fails as [`Self::call_result`] does.
    pub async fn call_arguments(&self, id: JobId) -> Result<Option<String>, JobError> {
        self.text_of(id, ARGUMENTS).await
    }

    async fn text_of(&self, id: JobId, name: &'static str) -> Result<Option<String>, JobError> {
        if let (Some(shared), Some(status)) = (&self.inner.shared, self.status_in_store(id).await?) {
            let is_there = status.record.call.is_some() && status.record.status.is_final();
            return if is_there { shared.call_file(id, name).await } else { Ok(None) };
        }
        self.run_read(move |inner| {
            let status = inner.status(id)?;
            let is_there = status.record.status.is_final() || name == ARGUMENTS;
            if status.record.call.is_none() || !is_there {
                return Ok(None);
            }
            let work = inner.data.job(id).work(status.record.format);
            let bytes = work.read(name, MAX_DOCUMENT)?;
            let text = bytes.map(|bytes| {
                String::from_utf8(bytes).map_err(|error| FileError::damaged(&work.file(name), error).into())
            });
            text.transpose()
        })
        .await
    }

    /// Reads a page of a job's log.
    ///
    /// # Errors
    /// Fails if there is no such job, or its log is gone or cannot be read.
    pub async fn logs(
        &self,
        id: JobId,
        stream: LogStream,
        offset: u64,
        max_bytes: usize,
    ) -> Result<LogPage, JobError> {
        match self.log_in_store(id, stream, offset, max_bytes).await? {
            Some((page, has_ended)) => Ok(page.between_characters(has_ended)),
            None => {
                self.read_log(id, stream, move |file, has_ended| page(file, offset, max_bytes, has_ended))
                    .await
            }
        }
    }

    /// Reads a page of a job's log with the bytes as they were written, whether they are text or not.
    ///
    /// # Errors
    /// Fails as [`Self::logs`] does.
    pub async fn raw_logs(
        &self,
        id: JobId,
        stream: LogStream,
        offset: u64,
        max_bytes: usize,
    ) -> Result<LogPage<Vec<u8>>, JobError> {
        match self.log_in_store(id, stream, offset, max_bytes).await? {
            Some((page, _)) => Ok(page),
            None => {
                let read = move |file: &Path, has_ended| raw_page(file, offset, max_bytes, has_ended);
                self.read_log(id, stream, read).await
            }
        }
    }

    /// Reads a page of the log of a job that the store of many machines has, and whether the job has ended. Returns `None` if there is no
    /// such store, or it does not know the job.
    async fn log_in_store(
        &self,
        id: JobId,
        stream: LogStream,
        offset: u64,
        max_bytes: usize,
    ) -> Result<Option<(LogPage<Vec<u8>>, bool)>, JobError> {
        let (Some(shared), Some(status)) = (&self.inner.shared, self.status_in_store(id).await?) else {
            return Ok(None);
        };
        // The status is read before the log: the whole log is there when the end is.
        let has_ended = status.record.status.is_final();
        let max_bytes = max_bytes.clamp(SHORTEST_PAGE, MAX_PAGE);
        Ok(Some((shared.log_page(id, stream, offset, max_bytes, has_ended).await?, has_ended)))
    }

    async fn read_log<T: Send + 'static>(
        &self,
        id: JobId,
        stream: LogStream,
        read: impl FnOnce(&Path, bool) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, JobError> {
        self.run_read(move |inner| {
            // The status is read before the log: everything written before the end is in the log then.
            let record = inner.status(id)?.record;
            let file = inner.data.job(id).file(stream.file());
            let page = read(&file, record.status.is_final())?;
            match gone(inner, &record, stream)? {
                Some(path) => Err(JobError::LogGone { id, path }),
                None => Ok(page),
            }
        })
        .await
    }

    /// Reads a document of the named state that is shared or belongs to the data folder's owner; `None` if the field was never set.
    ///
    /// # Errors
    /// Fails if the file cannot be read or is not JSON, or if the store of many machines cannot be asked.
    pub async fn document(&self, field: Field) -> Result<Option<Document>, JobError> {
        self.document_of(None, field).await
    }

    /// Reads a document of this owner; `None` as owner means the data folder's owner.
    ///
    /// # Errors
    /// Fails as [`Self::document`] does.
    pub async fn document_of(
        &self,
        owner: Option<String>,
        field: Field,
    ) -> Result<Option<Document>, JobError> {
        if let Some(shared) = &self.inner.shared {
            return shared.document(owner, field).await;
        }
        self.run_read(move |inner| Ok(Documents::owned(&inner.data, owner.as_deref()).get(&field)?)).await
    }

    /// Returns the path of a document of this owner; `None` if a store of many machines has the documents.
    #[must_use]
    pub fn document_path(&self, owner: Option<&str>, field: &Field) -> Option<PathBuf> {
        self.inner.shared.is_none().then(|| Documents::owned(&self.inner.data, owner).path(field))
    }

    /// Replaces a document of the named state that is shared or belongs to the data folder's owner. Returns the document's new time.
    ///
    /// # Errors
    /// Fails if the document cannot be written.
    pub async fn set_document(&self, field: Field, value: Value) -> Result<JobTimestamp, JobError> {
        self.set_document_of(None, field, value).await
    }

    /// Replaces a document of this owner; `None` as owner means the data folder's owner.
    ///
    /// # Errors
    /// Fails as [`Self::set_document`] does.
    pub async fn set_document_of(
        &self,
        owner: Option<String>,
        field: Field,
        value: Value,
    ) -> Result<JobTimestamp, JobError> {
        if let Some(shared) = &self.inner.shared {
            return shared.set_document(owner, field, value).await;
        }
        self.run_write(CHANGE_LIMIT, move |inner| {
            Ok(set_document(&inner.data, || inner.store(), owner.as_deref(), &field, &value)?)
        })
        .await
    }

    /// Lists all documents of the named state that are shared or belong to the data folder's owner, sorted by name.
    ///
    /// # Errors
    /// Fails if the folder of the documents cannot be read.
    pub async fn documents(&self) -> Result<Vec<DocumentEntry>, JobError> {
        self.documents_of(None).await
    }

    /// Lists all documents of this owner; `None` as owner means the data folder's owner.
    ///
    /// # Errors
    /// Fails as [`Self::documents`] does.
    pub async fn documents_of(&self, owner: Option<String>) -> Result<Vec<DocumentEntry>, JobError> {
        if let Some(shared) = &self.inner.shared {
            return shared.list_documents(owner).await;
        }
        self.run_read(move |inner| Ok(Documents::owned(&inner.data, owner.as_deref()).list()?)).await
    }
}

/// Reads the results. Reads them again if the work's files were moved meanwhile, as in folders of the first format.
fn results(inner: &EngineState, id: JobId) -> Result<Results, JobError> {
    let status = inner.status(id)?;
    let (folder, format) = (inner.data.job(id), status.record.format);
    if format >= OWN_WORK_FOLDER {
        return results_once(inner, status);
    }
    let before = folder.settled_work(format);
    let found = results_once(inner, status);
    if folder.settled_work(format) == before { found } else { results_once(inner, inner.status(id)?) }
}

fn results_once(inner: &EngineState, status: JobStatus) -> Result<Results, JobError> {
    let folder = inner.data.job(status.record.job_id);
    let read = |name: &str| read_result(&inner.data, &status.record, name);
    let results = match &status.record.results {
        // A call may also have an answer that says that it failed.
        Some(name) if status.record.call.is_some() => match read(name) {
            Err(FileError::Damaged { .. }) => answer_as_text(&folder.work(status.record.format), name)?,
            found => found?,
        },
        Some(name) if status.record.status == JobState::Completed => read(name)?,
        _ => None,
    };
    let has_failed = status.record.status.is_final() && status.record.status != JobState::Completed;
    // The job's own account is told if it can be read; its logs are there in any case.
    let own_words = || {
        let bytes = folder.work(status.record.format).read(ERROR, MAX_DOCUMENT).ok()??;
        serde_json::from_slice(&bytes).ok()
    };
    let error = if has_failed { own_words() } else { None };
    let tail = |stream: LogStream| tail(&folder.file(stream.file()), TAIL);
    let (stdout_tail, stderr_tail) = (tail(LogStream::Stdout)?, tail(LogStream::Stderr)?);
    let mut missing = Vec::new();
    for stream in [LogStream::Stdout, LogStream::Stderr] {
        missing.extend(gone(inner, &status.record, stream)?);
    }
    Ok(Results { results, error, stdout_tail, stderr_tail, gone: missing, status })
}

/// Reads the answer of a server that a [`Value`] cannot have, as JSON in a text. It has a whole number beyond 64 bits, half a surrogate pair,
/// or too many levels, and is whole all the same.
///
/// # Errors
/// Fails if the file has no JSON.
fn answer_as_text(work: &WorkFolder, name: &str) -> Result<Option<Value>, FileError> {
    let Some(bytes) = work.read(name, MAX_DOCUMENT)? else { return Ok(None) };
    let json: Box<RawValue> =
        serde_json::from_slice(&bytes).map_err(|error| FileError::damaged(&work.file(name), error))?;
    Ok(Some(Value::from(json.get())))
}

/// Returns the path of a log that the work had and that is gone; `None` otherwise. Jobs whose work has not begun have no log yet.
///
/// # Errors
/// Fails with [`JobError::FolderGone`] if the whole folder of the job is gone.
fn gone(inner: &EngineState, record: &JobRecord, stream: LogStream) -> Result<Option<PathBuf>, JobError> {
    let (id, folder) = (record.job_id, inner.data.job(record.job_id));
    if folder.has(stream.file()) {
        return Ok(None);
    }
    if !folder.is_there() {
        // The database has everything that a queued job needs, and its folder may still be on its way to the disk.
        let has_begun = !matches!(record.status, JobState::Queued | JobState::Starting);
        let path = folder.path().to_owned();
        return if has_begun { Err(JobError::FolderGone { id, path }) } else { Ok(None) };
    }
    // A slow call has a log from its first line on. The supervisor of a command makes both logs before it writes the identity of the work.
    let run: Option<RunRecord> = folder.read(RUN).ok().flatten();
    let had_log = record.call.is_none() && run.is_some_and(|run| run.work.is_some());
    Ok(had_log.then(|| folder.file(stream.file())))
}
