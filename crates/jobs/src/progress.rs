//! The progress of a job, as the job reports it in its output.
//!
//! Two forms are understood, each on a line of its own in stdout: `{"progress": 0.4, "message": "..."}`, and text with `progress: 40%` in
//! it, in upper or lower case. The last one counts.
//!
//! Invariants
//!
//! - A fraction is between 0 and 1; a line with any other number is ignored.
//! - A line is looked at whole or not at all: a line that the end of a window cut off is ignored.
//! - The message is bounded, whatever the job prints.

use serde::Deserialize;

/// The longest line that is looked at, in bytes.
pub const MAX_LINE: usize = 4096;

/// The longest message that is kept, in characters.
const MAX_MESSAGE: usize = 200;

/// The progress that a job last reported.
#[derive(Clone, Debug, PartialEq)]
pub struct JobProgress {
    /// The part that is done, 0 to 1. `None` if only the step is known: the output of a job always names a part.
    pub fraction: Option<f64>,
    /// The job's description of its current step, if it gave one.
    pub message: Option<String>,
}

#[derive(Deserialize)]
struct ProgressText {
    progress: f64,
    message: Option<String>,
}

impl JobProgress {
    /// Returns the progress with its message cut to the length that a job may give it.
    #[must_use]
    pub fn bounded(self) -> Self {
        let cut = |message: String| message.chars().take(MAX_MESSAGE).collect();
        Self { message: self.message.map(cut), ..self }
    }

    /// Returns the last progress in `text`, without the unfinished line behind the last line feed; `None` if there is no progress.
    pub fn last(text: &[u8]) -> Option<Self> {
        let finished = text.iter().rposition(|&byte| byte == b'\n')?;
        text[..finished].rsplit(|&byte| byte == b'\n' || byte == b'\r').find_map(Self::of_line)
    }

    fn of_line(line: &[u8]) -> Option<Self> {
        let line = str::from_utf8(line).ok().filter(|line| line.len() <= MAX_LINE)?.trim();
        let (fraction, message) = if line.starts_with('{') {
            let line: ProgressText = serde_json::from_str(line).ok()?;
            (line.progress, line.message)
        } else {
            (percentage(line)? / 100.0, None)
        };
        let message = message.map(|message| message.chars().take(MAX_MESSAGE).collect());
        (0.0..=1.0).contains(&fraction).then_some(Self { fraction: Some(fraction), message })
    }
}

/// Parses the number in `progress: 40%`.
fn percentage(line: &str) -> Option<f64> {
    const WORD: &str = "progress:";
    let at = line.to_ascii_lowercase().rfind(WORD)?;
    let (number, _) = line[at + WORD.len()..].split_once('%')?;
    number.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(text: &str) -> Option<(f64, Option<String>)> {
        JobProgress::last(text.as_bytes()).and_then(|progress| Some((progress.fraction?, progress.message)))
    }

    #[test]
    fn both_forms_are_understood_and_the_last_counts() {
        assert_eq!(last("Progress: 40%\n"), Some((0.4, None)));
        assert_eq!(last("[INFO] progress:  7.5 % of it\nother text\n"), Some((0.075, None)));
        let json = "{\"progress\": 0.4, \"message\": \"half of it\"}\n";
        assert_eq!(last(json), Some((0.4, Some("half of it".into()))));
        assert_eq!(last(&format!("{json}progress: 41%\nlog\n")), Some((0.41, None)));
        assert_eq!(last("progress: 1%\rprogress: 2%\r\n"), Some((0.02, None)));
    }

    #[test]
    fn what_is_no_progress_says_nothing() {
        for text in [
            "",
            "progress: 40%",
            "progress: 140%\n",
            "progress: -1%\n",
            "progress: NaN%\n",
            "progress: much%\n",
            "{\"progress\": 2}\n",
            "{\"progress\": \"0.4\"}\n",
            "{\"progress\": 0.4\n",
            "no progress\n",
        ] {
            assert_eq!(last(text), None, "{text}");
        }
    }

    #[test]
    fn a_long_message_is_cut() {
        let text = format!("{{\"progress\":1,\"message\":\"{}\"}}\n", "ä".repeat(1000));
        assert_eq!(last(&text).unwrap().1.unwrap().chars().count(), MAX_MESSAGE);
    }
}
