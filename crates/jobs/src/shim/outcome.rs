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

/// The end of a job whose worker could not prolong the lease.
pub(super) const LEASE_OVER: &str = "its worker could not prolong the lease, so the work was ended";

/// The reason why the work had to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    /// The job was cancelled.
    Cancelled,
    /// The work ran longer than it may.
    Timeout,
    /// The worker that has the job could not prolong its lease.
    LeaseOver,
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
        Some(Stopped::LeaseOver) => ending.because(EndReason::LeaseOver, LEASE_OVER),
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{
        folder::JobFolder,
        record::FORMAT,
        testing::{TestFolder, command},
    };

    /// The end of work that left this file: outcome, exit code, signal, reason and words.
    fn end(
        exit: Exit,
        stopped: Option<Stopped>,
        results: Option<&str>,
        (name, content): (&str, &str),
    ) -> (JobEnd, Option<i32>, Option<i32>, Option<EndReason>, String) {
        let home = TestFolder::new();
        let work = JobFolder::at(home.folder.path()).work(FORMAT);
        work.create_if_missing().unwrap();
        fs::write(work.file(name), content).unwrap();
        let record = JobRecord { results: results.map(Into::into), timeout_ms: Some(90_000), ..command() };
        let ending = judge(&work, &record, exit, stopped);
        assert_eq!(ending.started_at, None);
        (ending.outcome, ending.exit_code, ending.signal, ending.reason, ending.detail.unwrap_or_default())
    }

    #[test]
    fn work_is_completed_only_if_it_ended_by_itself_with_code_0_and_the_agreed_results() {
        use JobEnd::{Cancelled, Completed, Failed};
        let (zero, seven, killed) = (Exit::Code(0), Exit::Code(7), Exit::Signal(9));
        let (cancelled, timeout) = (Some(Stopped::Cancelled), Some(Stopped::Timeout));
        let lease_over = Some(Stopped::LeaseOver);
        let name = Some("out.json");
        let (missing, invalid) = (Some(EndReason::ResultsMissing), Some(EndReason::ResultsInvalid));
        let other = ("other.json", "{");
        let large = ("out.json", "[18446744073709551616]");
        for (exit, stopped, results, file, outcome, reason, words) in [
            (zero, None, None, other, Completed, None, ""),
            (zero, None, name, ("out.json", "{}"), Completed, None, ""),
            (zero, None, name, other, Failed, missing, "it ended with code 0 and left no out.json"),
            (zero, None, name, ("out.json", "{"), Failed, invalid, "out.json is damaged"),
            (zero, None, name, large, Failed, invalid, "does not fit into 64 bits"),
            (seven, None, name, other, Failed, None, "exit code 7"),
            (killed, None, None, other, Failed, None, "signal 9 (SIGKILL)"),
            (Exit::Unknown, None, None, other, Failed, None, "unknown exit status"),
            (zero, cancelled, None, other, Cancelled, None, ""),
            (killed, cancelled, name, other, Cancelled, None, ""),
            (zero, timeout, None, other, Failed, Some(EndReason::Timeout), "it ran longer than 1m 30s"),
            (killed, timeout, name, other, Failed, Some(EndReason::Timeout), "it ran longer than 1m 30s"),
            (killed, lease_over, None, other, Failed, Some(EndReason::LeaseOver), LEASE_OVER),
        ] {
            let (is, code, signal, because, detail) = end(exit, stopped, results, file);
            let case = format!("{exit}, {stopped:?}, {results:?}, {file:?}: {detail}");
            assert_eq!((is, because), (outcome, reason), "{case}");
            let expected = match exit {
                Exit::Code(code) => (Some(code), None),
                Exit::Signal(signal) => (None, Some(signal)),
                Exit::Unknown => (None, None),
            };
            assert_eq!((code, signal), expected, "{case}");
            assert!(detail.contains(words) && detail.is_empty() == words.is_empty(), "{case}");
        }
    }

    #[test]
    fn failed_work_is_quoted_in_one_line_of_300_characters() {
        let long = |length: usize| "ä".repeat(length);
        for (said, words) in [
            (r#"{"message": "no mesh"}"#.to_owned(), "exit code 7: no mesh".to_owned()),
            (r#""no\n  mesh\t here""#.to_owned(), "exit code 7: no mesh here".to_owned()),
            (format!("\"{}\"", long(300)), format!("exit code 7: {}", long(300))),
            (format!("\"{}\"", long(301)), format!("exit code 7: {}…", long(300))),
            (r#"{"message": 3}"#.to_owned(), "exit code 7".to_owned()),
            (r#"{"message": " \n"}"#.to_owned(), "exit code 7".to_owned()),
            ("no JSON".to_owned(), "exit code 7".to_owned()),
        ] {
            assert_eq!(end(Exit::Code(7), None, None, (ERROR, &said)).4, words, "{said}");
        }
    }
}
