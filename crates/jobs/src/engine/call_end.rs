//! The end of a call, and its way to the disk.
//!
//! Invariant: a result or an error is on the disk before the record that names the end.

use std::sync::{Arc, Mutex, PoisonError};

use unhang_proc::unnamed_file::FilePart;

use crate::{
    folder::{ERROR, FileError, RESULT, WorkFolder},
    record::{EndReason, EndRecord, JobEnd},
};

/// The result of a tool, as JSON.
#[derive(Clone, Debug)]
pub enum CallResult {
    /// The result is in memory.
    Text(String),
    /// The result is in a file, because it is long.
    InFile(Arc<StoredResult>),
}

/// A result in a file without a name, as long as the disk has room for this file and for its copy.
#[derive(Debug)]
pub struct StoredResult(Mutex<ResultPlace>);

#[derive(Debug)]
enum ResultPlace {
    File(FilePart),
    Memory(Vec<u8>),
}

impl StoredResult {
    /// Copies the result into the folder. If there is no room, the result goes into memory first, because its file takes the room that the
    /// copy needs.
    fn write(&self, work: &WorkFolder) -> Result<(), FileError> {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let written = place.write(work);
        if let (Err(error), ResultPlace::File(part)) = (&written, &*place)
            && error.is_for_lack_of_room()
        {
            let mut text = Vec::new();
            // A file that cannot be read now stays.
            if part.copy_to(&mut text).is_ok() {
                *place = ResultPlace::Memory(text);
                return place.write(work);
            }
        }
        written
    }
}

impl ResultPlace {
    fn write(&self, work: &WorkFolder) -> Result<(), FileError> {
        match self {
            ResultPlace::File(part) => work.replace_with(RESULT, |file| part.copy_to(file)),
            ResultPlace::Memory(text) => work.replace(RESULT, text),
        }
    }
}

impl From<FilePart> for CallResult {
    fn from(part: FilePart) -> Self {
        Self::InFile(Arc::new(StoredResult(Mutex::new(ResultPlace::File(part)))))
    }
}

impl From<String> for CallResult {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// The way in which a call ended.
#[derive(Clone, Debug)]
pub enum CallEnd {
    /// The tool answered.
    Answered {
        /// The result.
        result: CallResult,
        /// Whether the tool says that it failed.
        is_error: bool,
    },
    /// The call has no answer.
    Failed {
        /// The reason.
        reason: EndReason,
        /// The reason in words for a person.
        detail: String,
        /// The error that the caller would have had, as JSON.
        error: Option<String>,
    },
    /// unhang cannot find out how the call ended at its server.
    Lost {
        /// The reason.
        reason: EndReason,
        /// The reason in words for a person.
        detail: String,
    },
    /// Somebody cancelled the call.
    Cancelled,
}

impl CallEnd {
    /// The end of a call whose answer came and exceeds the limit of the process for files.
    pub(super) fn not_stored(error: &FileError) -> Self {
        let detail = format!("the server answered, and unhang cannot store the answer: {error}");
        Self::Failed { reason: EndReason::ResultsInvalid, detail, error: None }
    }

    /// Writes the result or error into the folder, durably, and returns the record of the end.
    pub(super) fn write(&self, work: &WorkFolder) -> Result<EndRecord, FileError> {
        // A power failure may have taken a folder that was made a moment ago.
        work.create_if_missing()?;
        // The holder before this one may have been killed while it wrote the answer. There is never more than one.
        work.remove_unfinished();
        Ok(match self {
            CallEnd::Answered { result, is_error } => {
                match result {
                    CallResult::Text(text) => work.replace(RESULT, text.as_bytes())?,
                    CallResult::InFile(stored) => stored.write(work)?,
                }
                EndRecord::of_answer(*is_error)
            }
            CallEnd::Failed { reason, detail, error } => {
                if let Some(error) = error {
                    work.replace(ERROR, error.as_bytes())?;
                }
                EndRecord::without_run(JobEnd::Failed).because(*reason, detail.clone())
            }
            CallEnd::Lost { reason, detail } => {
                EndRecord::without_run(JobEnd::Lost).because(*reason, detail.clone())
            }
            CallEnd::Cancelled => EndRecord::without_run(JobEnd::Cancelled),
        })
    }
}
