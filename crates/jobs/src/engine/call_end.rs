//! The end of a call, and its way to the disk.
//!
//! Invariant: a result or an error is on the disk before the record that names the end.

use crate::{
    folder::{ERROR, FileError, RESULT, WorkFolder},
    record::{EndReason, EndRecord, JobEnd},
};

/// The way in which a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallEnd {
    /// The tool answered.
    Answered {
        /// The result, as JSON.
        result: String,
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
                work.replace(RESULT, result.as_bytes())?;
                match is_error {
                    false => EndRecord::without_run(JobEnd::Completed),
                    true => EndRecord::without_run(JobEnd::Failed).because(
                        EndReason::ToolError,
                        "the tool answered with an error; its answer has the reason",
                    ),
                }
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
