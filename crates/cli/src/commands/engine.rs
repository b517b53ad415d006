//! The shared parts of the commands about jobs and the state: the engine on the data folder, its errors, and the printing of data.
//!
//! Invariants
//!
//! - No server is needed, and none is started: each command opens the data folder itself.
//! - A command ends by itself: blocking work has a limit, and nothing waits for the runtime at the end.
//! - One place maps the errors of the engine to exit codes (R-14).

use std::{
    cell::RefCell,
    io::{self, IsTerminal},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use comfy_table::{ColumnConstraint, ContentArrangement, Row, Table, presets};
use serde::Serialize;
use tokio::{runtime, task::spawn_blocking, time::timeout};
use unhang::{
    exit,
    job_report::kind,
    jobs::{
        engine::{Engine, EngineOptions},
        error::JobError,
        shims::ShimCommand,
        store::{Rebuilt, StoreError},
    },
    settings::{JobSettings, StoreUrl},
};
use unhang_terminal::{failure::CommandFailure, failure::Format, output};

use super::client::{beside, files::job_settings};
use crate::{arguments::jobs::Common, data_folder, diagnostics::Diagnostics, shared_store};

/// The time that the folder may take to be opened. Opening takes milliseconds, but other processes may hold the database for ten seconds.
const OPEN_LIMIT: Duration = Duration::from_secs(30);

/// The outcome of a command: its exit code, or its failure.
pub(super) type CommandOutcome = Result<u8, CommandFailure>;

/// The state of one command at work.
pub(super) struct JobContext {
    /// The options of the engine.
    pub(super) options: EngineOptions,
    /// The settings of jobs in the configuration file.
    pub(super) of_file: JobSettings,
    format: Option<Format>,
    opened: RefCell<Vec<Engine>>,
}

/// Runs a command to its end, and prints any error.
pub(super) fn run(
    common: &Common,
    verbose: bool,
    work: impl AsyncFnOnce(&JobContext) -> CommandOutcome,
) -> ExitCode {
    to_its_end(common.output, verbose, async || {
        let context = JobContext::new(common).await?;
        let outcome = work(&context).await;
        context.close().await;
        outcome
    })
}

/// Runs work that may wait to its end, and prints any error.
pub(super) fn to_its_end(
    format: Option<Format>,
    verbose: bool,
    work: impl AsyncFnOnce() -> CommandOutcome,
) -> ExitCode {
    let diagnostics = Diagnostics::of_command(verbose, format == Some(Format::Json));
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CommandFailure::system("events cannot be waited for", &error));
    let outcome = runtime.and_then(|runtime| {
        let outcome = runtime.block_on(work());
        // Work that still runs must not delay the end (C-59).
        runtime.shutdown_background();
        outcome
    });
    let code = match outcome {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.print(format),
    };
    diagnostics.finish();
    code
}

/// Returns the options of the engine on the data folder that the environment names. Each of `layers` overrides those before it.
pub(super) fn options(layers: &[JobSettings]) -> Result<EngineOptions, CommandFailure> {
    let mut options = EngineOptions::new(wanted_data_folder("jobs")?, ShimCommand::this_program());
    layers.iter().for_each(|layer| layer.apply(&mut options));
    options.shared = store(layers).map(|store| shared_store::jobs(store, layers)).transpose()?;
    Ok(options)
}

/// Returns the store of many machines that these settings name, if they name one. Each of `layers` overrides those before it.
pub(super) fn store(layers: &[JobSettings]) -> Option<&StoreUrl> {
    let store = layers.iter().rev().find_map(|layer| layer.store.as_ref());
    store.filter(|store| !store.is_empty())
}

/// Returns the data folder that the environment names. Fails with a hint if it names none, because there is something to keep. Also fails
/// if another user could change the content.
pub(super) fn wanted_data_folder(what: &str) -> Result<PathBuf, CommandFailure> {
    data_folder::check()?.ok_or_else(|| CommandFailure {
        code: exit::USAGE,
        kind: "no_data_folder",
        message: format!("there is no folder for {what}: {}", data_folder::absence()),
        hint: Some("set UNHANG_HOME to a folder for them".to_owned()),
        data: None,
    })
}

impl JobContext {
    async fn new(common: &Common) -> Result<Self, CommandFailure> {
        let choice = common.files.choice();
        let (of_file, warnings) = beside(move || job_settings(&choice)).await?;
        warnings.iter().for_each(|warning| output::error(&warning.to_string(), None));
        let of_flags = JobSettings { store: common.store.url.clone(), ..common.limits.settings() };
        let layers = [of_file, of_flags];
        let options = EngineOptions { keeps_recorded_limits: true, ..options(&layers)? };
        let [of_file, _] = layers;
        Ok(Self { options, of_file, format: common.output, opened: RefCell::default() })
    }

    /// Opens the data folder, and reports problems that it found there.
    pub(super) async fn engine(&self) -> Result<Engine, CommandFailure> {
        let options = self.options.clone();
        let (engine, opened) = self.blocking("be opened", move || Engine::open(options)).await?;
        if opened.replayed > 0 {
            tracing::info!(
                "unhang wrote {} to the state that an earlier process had not written",
                counted(opened.replayed, "result")
            );
        }
        if let Some(Rebuilt { jobs, damaged }) = opened.rebuilt {
            let hint = format!(
                "unhang cannot read {}; `unhang job rebuild` names them",
                counted(damaged.len(), "job folder")
            );
            output::error(
                &format!(
                    "the database was missing, and unhang created it again from the folders of {}",
                    counted(jobs, "job")
                ),
                Some(hint.as_str()).filter(|_| !damaged.is_empty()),
            );
        }
        Ok(self.keep(engine))
    }

    /// Keeps an engine, so that it is closed at the end.
    pub(super) fn keep(&self, engine: Engine) -> Engine {
        self.opened.borrow_mut().push(engine.clone());
        engine
    }

    /// Closes the engines. Jobs to which this command has given a slot are started before it ends.
    async fn close(&self) {
        for engine in self.opened.take() {
            if let Err(error) = engine.close().await {
                tracing::warn!("{error}");
            }
        }
    }

    /// Runs work that may wait for the disk, within a limit.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        what: &str,
        work: impl FnOnce() -> Result<T, JobError> + Send + 'static,
    ) -> Result<T, CommandFailure> {
        tracing::debug!("waiting for the data folder {} to {what}", self.options.folder.display());
        match timeout(OPEN_LIMIT, spawn_blocking(work)).await {
            Ok(Ok(done)) => done.map_err(|error| failure(&error)),
            // The thread panicked, which has been reported.
            Ok(Err(_)) => Err(failure(&JobError::Closed)),
            Err(_) => Err(CommandFailure {
                code: exit::DEADLINE,
                kind: "deadline",
                message: format!(
                    "the data folder {} could not {what} within {} s",
                    self.options.folder.display(),
                    OPEN_LIMIT.as_secs()
                ),
                hint: Some("check whether its disk answers, or set UNHANG_HOME to another folder".to_owned()),
                data: None,
            }),
        }
    }

    /// Returns the format for a report: text on a terminal, else JSON.
    pub(super) fn report_format(&self) -> Format {
        report_format(self.format)
    }

    /// Returns the format for output that is the requested thing itself: an id, a log, a document.
    pub(super) fn plain_format(&self) -> Format {
        self.format.unwrap_or(Format::Text)
    }

    /// Prints a report.
    pub(super) fn report(&self, report: &impl Serialize, text: impl FnOnce() -> String) -> u8 {
        match self.report_format() {
            Format::Json => json(report),
            Format::Text => output::bytes(text().as_bytes()),
        }
    }

    /// Reports an error about one item, while others went well.
    pub(super) fn complain(&self, failure: &CommandFailure) {
        failure.print(self.format);
    }
}

/// Returns the format for a report if this one was asked for: else text on a terminal, else JSON.
pub(super) fn report_format(asked_for: Option<Format>) -> Format {
    let unsaid = if io::stdout().is_terminal() { Format::Text } else { Format::Json };
    asked_for.unwrap_or(unsaid)
}

/// Prints a document.
pub(super) fn json(document: &impl Serialize) -> u8 {
    // No printed document has keys that are not text.
    let text = serde_json::to_string_pretty(document).unwrap_or_default();
    output::write_json(&format!("{text}\n")).err().unwrap_or(exit::DONE)
}

/// Prints a document on one line, as one of several. Fails with the exit code if nobody reads it.
pub(super) fn json_line(document: &impl Serialize) -> Result<(), u8> {
    let text = serde_json::to_string(document).unwrap_or_default();
    output::write_json(&format!("{text}\n"))
}

/// The width in columns that every terminal has.
const COLUMNS: u16 = 80;

/// Makes a table without lines between its cells, as wide as [`COLUMNS`]. The first `unbroken` columns are never wrapped, even if that
/// makes the table wider.
pub(super) fn table(head: impl Into<Row>, unbroken: usize) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(COLUMNS)
        .set_header(head);
    for column in table.column_iter_mut().take(unbroken) {
        column.set_constraint(ColumnConstraint::ContentWidth);
    }
    table
}

/// Returns the lines of a table without the blanks around them.
pub(super) fn lines(table: &Table) -> String {
    table.lines().map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(&line).trim_end())).collect()
}

/// Wraps words into lines with an indent. No line is wider than [`COLUMNS`], unless a single word is.
pub(super) fn wrapped_in(indent: &str, text: &str) -> String {
    let mut lines = String::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let length = indent.len() + line.chars().count() + 1 + word.chars().count();
        if !line.is_empty() && length > usize::from(COLUMNS) {
            lines.push_str(&format!("{indent}{line}\n"));
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        lines.push_str(&format!("{indent}{line}\n"));
    }
    lines
}

/// Returns a word as a person would type it: if a shell would split it, it is in quotes.
pub(super) fn quoted_word(word: &str) -> String {
    let is_plain = !word.is_empty()
        && word.chars().all(|character| character.is_alphanumeric() || "-_./=:,@%+".contains(character));
    if is_plain { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// Shortens a text to at most so many characters. If something is missing, the last character is an ellipsis.
pub(super) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
        None => text.to_owned(),
    }
}

/// The marks and colours that a stream can show: those of its terminal, unless NO_COLOR forbids colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TerminalMarks {
    has_marks: bool,
    has_colours: bool,
}

/// A colour of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TerminalColour {
    Red = 31,
    Green = 32,
    Yellow = 33,
    Cyan = 36,
}

impl TerminalMarks {
    /// No marks and no colours, as in a file or a pipe.
    pub(super) const NONE: TerminalMarks = TerminalMarks { has_marks: false, has_colours: false };

    /// Returns the marks and colours that stdout can show.
    pub(super) fn of_stdout() -> TerminalMarks {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let has_marks = io::stdout().is_terminal();
        TerminalMarks { has_marks, has_colours: has_marks && !is_dumb && !is_set("NO_COLOR") }
    }

    /// Returns the mark with a space, or nothing if the stream has no marks.
    pub(super) fn mark(self, mark: char) -> String {
        if self.has_marks { format!("{mark} ") } else { String::new() }
    }

    /// Returns the text in this colour, or unchanged if the stream has no colours.
    pub(super) fn paint(self, colour: TerminalColour, text: &str) -> String {
        if self.has_colours { format!("\u{1b}[{}m{text}\u{1b}[0m", colour as u8) } else { text.to_owned() }
    }
}

/// Formats a count with its noun: `1 job`, `2 jobs`.
pub(super) fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Makes the failure that reports an error of the engine.
pub(super) fn failure(error: &JobError) -> CommandFailure {
    let code = match error {
        JobError::NoSuchJob(_) | JobError::Removed(_) | JobError::MissingState(_) => exit::NOT_FOUND,
        JobError::NoCommand | JobError::ArgumentsTaken => exit::USAGE,
        JobError::Uncertain { .. }
        | JobError::Unconfirmed { .. }
        | JobError::Late { .. }
        | JobError::SharedUncertain { .. }
        | JobError::CancelWaits { .. }
        | JobError::StillEnding { .. } => exit::DEADLINE,
        JobError::Shared { .. } => exit::UNREACHABLE,
        JobError::NotShared(_) => exit::USAGE,
        JobError::Store(error) if matches!(**error, StoreError::Busy { .. }) => exit::DEADLINE,
        _ => exit::FAILED,
    };
    let hint = match error {
        JobError::File(_) => Some("UNHANG_HOME names the folder that holds jobs and state"),
        JobError::NoSuchJob(_) | JobError::Removed(_) => Some("`unhang job list` shows the jobs"),
        JobError::IdTaken(_) => Some("leave out --id, and unhang draws an id"),
        _ => None,
    };
    CommandFailure {
        code,
        kind: kind(error),
        message: error.to_string(),
        hint: hint.map(str::to_owned),
        data: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_and_colours_are_for_terminals() {
        let all = TerminalMarks { has_marks: true, has_colours: true };
        assert_eq!(all.paint(TerminalColour::Red, "failed"), "\u{1b}[31mfailed\u{1b}[0m");
        assert_eq!((all.mark('✓'), TerminalMarks::NONE.mark('✓')), ("✓ ".to_owned(), String::new()));
        assert_eq!(TerminalMarks::NONE.paint(TerminalColour::Red, "failed"), "failed");
        assert_eq!(shortened("abcd", 3), "ab…");
    }

    #[test]
    fn a_table_wraps_what_may_be_wrapped_and_has_80_columns() {
        let (name, text) = ("n".repeat(60), "word ".repeat(20));
        let mut wrapped = table(["NAME", "TEXT"], 1);
        wrapped.add_row([&name, &text]);
        let printed = lines(&wrapped);
        assert!(printed.contains(&name) && printed.lines().count() > 3, "{printed}");
        assert!(printed.lines().all(|line| line.chars().count() <= 80 && !line.ends_with(' ')), "{printed}");
    }
}
