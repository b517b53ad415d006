//! Judges how a job ended by the end of its work and the files that it left.

use std::fmt::Display;

use serde_json::Value;
use unhang_proc::spawn::Exit;

use crate::{
    document::{MAX_DOCUMENT, check},
    folder::{ERROR, FileError, WorkFolder},
    large_numbers,
    record::{EndReason, EndRecord, JobEnd, JobRecord},
};

/// The most characters of a failed work's own account that are told together with its end.
const LONGEST_WORDS: usize = 300;

/// The reason why the work had to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    /// The job was cancelled.
    Cancelled,
    /// The work ran longer than it may.
    Timeout,
}

/// Judges the end of a job. Only work that ended with code 0 and left the agreed results counts as completed.
pub(super) fn judge(
    work: &WorkFolder,
    record: &JobRecord,
    exit: Exit,
    stopped: Option<Stopped>,
) -> EndRecord {
    let ending = EndRecord {
        exit_code: if let Exit::Code(code) = exit { Some(code) } else { None },
        signal: if let Exit::Signal(signal) = exit { Some(signal) } else { None },
        ..EndRecord::without_run(JobEnd::Failed)
    };
    match stopped {
        Some(Stopped::Cancelled) => EndRecord { outcome: JobEnd::Cancelled, ..ending },
        Some(Stopped::Timeout) => {
            let limit = record.timeout().unwrap_or_default();
            ending.because(
                EndReason::Timeout,
                format!("it ran longer than {}", humantime::format_duration(limit)),
            )
        }
        None if !exit.is_success() => {
            let detail = own_words(work).map_or_else(|| exit.to_string(), |words| format!("{exit}: {words}"));
            EndRecord { detail: Some(detail), ..ending }
        }
        None => match record.results.as_deref().map(|name| missing(work, name)) {
            Some(Err((reason, detail))) => ending.because(reason, detail),
            _ => EndRecord { outcome: JobEnd::Completed, ..ending },
        },
    }
}

/// Reads the work's own account of its failure in `error.json`: its `message`, or the whole if it is a text. Returns one line, shortened;
/// `None` if there is none.
fn own_words(work: &WorkFolder) -> Option<String> {
    let said: Value = serde_json::from_slice(&work.read(ERROR, MAX_DOCUMENT).ok()??).ok()?;
    let words =
        said.get("message").unwrap_or(&said).as_str()?.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_long = words.chars().count() > LONGEST_WORDS;
    let shown: String = words.chars().take(LONGEST_WORDS).chain(is_long.then_some('…')).collect();
    (!shown.is_empty()).then_some(shown)
}

/// Returns an error with the fault of the result file, if it has one.
fn missing(work: &WorkFolder, name: &str) -> Result<(), (EndReason, String)> {
    let invalid = |error: &dyn Display| (EndReason::ResultsInvalid, error.to_string());
    match work.read(name, MAX_DOCUMENT) {
        Ok(None) => Err((EndReason::ResultsMissing, format!("it ended with code 0 and left no {name}"))),
        Ok(Some(bytes)) => {
            let damaged = |detail: &dyn Display| invalid(&FileError::damaged(&work.file(name), detail));
            check(&bytes).map_err(|error| damaged(&error))?;
            // The state and the results would have an approximation of such a number.
            large_numbers::check(&bytes, name).map_err(|told| damaged(&told))
        }
        Err(error) => Err(invalid(&error)),
    }
}
