//! What the commands about jobs and the state share: the engine on the data folder, how errors are told, how data is printed.
//!
//! Invariants
//!
//! - No server is needed, and none is started: each command opens the data folder itself.
//! - A command comes home: what blocks has a limit, and nothing waits for the runtime at the end.
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
    settings::JobSettings,
};
use unhang_terminal::{failure::CommandFailure, failure::Format, output};

use super::client::{beside, files::job_settings};
use crate::{arguments::jobs::Common, data_folder, diagnostics::Diagnostics};

/// How long the folder may take to be opened. It takes milliseconds; other processes may hold the database for ten seconds.
const OPEN_LIMIT: Duration = Duration::from_secs(30);

/// What a command comes to: its exit code, or what went wrong.
pub(super) type CommandOutcome = Result<u8, CommandFailure>;

/// One command at work.
pub(super) struct JobContext {
    /// How the engine is to work.
    pub(super) options: EngineOptions,
    /// What the configuration file says of jobs.
    pub(super) of_file: JobSettings,
    format: Option<Format>,
    opened: RefCell<Vec<Engine>>,
}

/// Lets a command work to its end, and tells what went wrong.
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

/// Lets anything that waits work to its end, and tells what went wrong.
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
        // Nothing that is still running may hold the end up (C-59).
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

/// How the engine is to work on the data folder that the environment names: as each of `layers` says, over those before it.
pub(super) fn options(layers: &[JobSettings]) -> Result<EngineOptions, CommandFailure> {
    let mut options = EngineOptions::new(wanted_data_folder("jobs")?, ShimCommand::this_program());
    layers.iter().for_each(|layer| layer.apply(&mut options));
    Ok(options)
}

/// The data folder that the environment names, or what to do where it names none and there is something to keep, or where another
/// user could change what is kept.
pub(super) fn wanted_data_folder(what: &str) -> Result<PathBuf, CommandFailure> {
    data_folder::check()?.ok_or_else(|| CommandFailure {
        code: exit::USAGE,
        kind: "no_data_folder",
        message: format!("there is no place for {what}: {}", data_folder::absence()),
        hint: Some("set UNHANG_HOME to the folder that shall hold them".to_owned()),
        data: None,
    })
}

impl JobContext {
    async fn new(common: &Common) -> Result<Self, CommandFailure> {
        let choice = common.files.choice();
        let (of_file, warnings) = beside(move || job_settings(&choice)).await?;
        warnings.iter().for_each(|warning| output::error(&warning.to_string(), None));
        let layers = [of_file, common.limits.settings()];
        let options = EngineOptions { keeps_recorded_limits: true, ..options(&layers)? };
        let [of_file, _] = layers;
        Ok(Self { options, of_file, format: common.output, opened: RefCell::default() })
    }

    /// Opens the data folder, and says what was found amiss.
    pub(super) async fn engine(&self) -> Result<Engine, CommandFailure> {
        let options = self.options.clone();
        let (engine, opened) = self.blocking("be opened", move || Engine::open(options)).await?;
        if opened.replayed > 0 {
            tracing::info!("{} had not reached the state yet", counted(opened.replayed, "result"));
        }
        if let Some(Rebuilt { jobs, damaged }) = opened.rebuilt {
            let hint = format!(
                "{} cannot be read; `unhang job rebuild` names them",
                counted(damaged.len(), "job folder")
            );
            output::error(
                &format!(
                    "the database was missing and was made anew from the folders of {}",
                    counted(jobs, "job")
                ),
                Some(hint.as_str()).filter(|_| !damaged.is_empty()),
            );
        }
        Ok(self.keep(engine))
    }

    /// Remembers an engine, so that it is closed at the end.
    pub(super) fn keep(&self, engine: Engine) -> Engine {
        self.opened.borrow_mut().push(engine.clone());
        engine
    }

    /// Lets what this command has given a slot be started before we go.
    async fn close(&self) {
        for engine in self.opened.take() {
            if let Err(error) = engine.close().await {
                tracing::warn!("{error}");
            }
        }
    }

    /// Does what may wait for the disk, within a limit.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        what: &str,
        work: impl FnOnce() -> Result<T, JobError> + Send + 'static,
    ) -> Result<T, CommandFailure> {
        tracing::debug!("waiting for the data folder {} to {what}", self.options.folder.display());
        match timeout(OPEN_LIMIT, spawn_blocking(work)).await {
            Ok(Ok(done)) => done.map_err(|error| failure(&error)),
            // A panic, which has been told.
            Ok(Err(_)) => Err(failure(&JobError::Closed)),
            Err(_) => Err(CommandFailure {
                code: exit::DEADLINE,
                kind: "deadline",
                message: format!(
                    "the data folder {} could not {what} within {} s",
                    self.options.folder.display(),
                    OPEN_LIMIT.as_secs()
                ),
                hint: Some("see whether its disk answers, or set UNHANG_HOME to another folder".to_owned()),
                data: None,
            }),
        }
    }

    /// How a report is printed: text for a person who looks, JSON for whoever reads on.
    pub(super) fn report_format(&self) -> Format {
        let unsaid = if io::stdout().is_terminal() { Format::Text } else { Format::Json };
        self.format.unwrap_or(unsaid)
    }

    /// How something is printed that already is what was asked for: an id, a log, a document.
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

    /// Tells of something that went wrong beside others that went well.
    pub(super) fn complain(&self, failure: &CommandFailure) {
        failure.print(self.format);
    }
}

/// Prints a document.
pub(super) fn json(document: &impl Serialize) -> u8 {
    // Nothing that is printed has keys that are no text.
    let text = serde_json::to_string_pretty(document).unwrap_or_default();
    output::write_json(&format!("{text}\n")).err().unwrap_or(exit::DONE)
}

/// Prints a document on one line, as one of several. The exit code where nobody reads it.
pub(super) fn json_line(document: &impl Serialize) -> Result<(), u8> {
    let text = serde_json::to_string(document).unwrap_or_default();
    output::write_json(&format!("{text}\n"))
}

/// Columns of a terminal that everybody has.
const COLUMNS: u16 = 80;

/// A table without lines between its cells, as wide as [`COLUMNS`]. The first `unbroken` columns are never wrapped, even where they
/// are wider.
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

/// The lines of a table without the blanks around them.
pub(super) fn lines(table: &Table) -> String {
    table.lines().map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(&line).trim_end())).collect()
}

/// Lines of words behind an indent, none wider than [`COLUMNS`] but where a word is.
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

/// A word as it would be typed: what a shell would split stands in quotes.
pub(super) fn quoted_word(word: &str) -> String {
    let is_plain = !word.is_empty()
        && word.chars().all(|character| character.is_alphanumeric() || "-_./=:,@%+".contains(character));
    if is_plain { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// At most so many characters of a text, the last of which says that there were more.
pub(super) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some(_) => text.chars().take(most.saturating_sub(1)).chain(['…']).collect(),
        None => text.to_owned(),
    }
}

/// Whether what is printed is set off by marks and colours: on a terminal that has them, unless NO_COLOR says otherwise.
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
    /// As a file or a pipe has them: not at all.
    pub(super) const NONE: TerminalMarks = TerminalMarks { has_marks: false, has_colours: false };

    /// What stdout can show.
    pub(super) fn of_stdout() -> TerminalMarks {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let has_marks = io::stdout().is_terminal();
        TerminalMarks { has_marks, has_colours: has_marks && !is_dumb && !is_set("NO_COLOR") }
    }

    /// The mark, where there are any.
    pub(super) fn mark(self, mark: char) -> String {
        if self.has_marks { format!("{mark} ") } else { String::new() }
    }

    /// The text in this colour, where there are any.
    pub(super) fn paint(self, colour: TerminalColour, text: &str) -> String {
        if self.has_colours { format!("\u{1b}[{}m{text}\u{1b}[0m", colour as u8) } else { text.to_owned() }
    }
}

/// `1 job`, `2 jobs`.
pub(super) fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// How an error of the engine is told.
pub(super) fn failure(error: &JobError) -> CommandFailure {
    let code = match error {
        JobError::NoSuchJob(_) | JobError::Removed(_) | JobError::MissingState(_) => exit::NOT_FOUND,
        JobError::NoCommand | JobError::ArgumentsTaken => exit::USAGE,
        JobError::Uncertain { .. }
        | JobError::Unconfirmed { .. }
        | JobError::Late { .. }
        | JobError::StillEnding { .. } => exit::DEADLINE,
        JobError::Store(error) if matches!(**error, StoreError::Busy { .. }) => exit::DEADLINE,
        _ => exit::FAILED,
    };
    let hint = match error {
        JobError::File(_) => Some("UNHANG_HOME names the folder that holds jobs and state"),
        JobError::NoSuchJob(_) | JobError::Removed(_) => Some("`unhang job list` shows those that there are"),
        JobError::IdTaken(_) => Some("leave --id out, and one is drawn"),
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
