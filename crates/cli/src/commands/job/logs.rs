//! `unhang job logs`: the output of a job, also while the job writes it.
//!
//! Invariants
//!
//! - A pipe gets what the job wrote, byte for byte. A terminal gets nothing that steers it.
//! - Following ends by itself when the job has ended and all of its log was printed, or when nobody reads any more. Without following, the
//!   command prints the log as it was at the beginning, however fast the job goes on writing.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use tokio::time::timeout;
use unhang::{
    exit,
    guard::Stop,
    job_report::LogReport,
    jobs::{
        engine::Engine,
        id::JobId,
        log::{LogPage, LogStream, MAX_PAGE},
    },
};
use unhang_terminal::{failure::CommandFailure, failure::Format, output, text::PlainBytes};

use super::wait::leave_running;
use crate::{
    arguments::jobs::JobLogs,
    commands::engine::{CommandOutcome, JobContext, failure, json_line},
    signals::signals,
};

/// The interval at which a followed log is read: not every system can wait for changes of files.
const LOOK: Duration = Duration::from_millis(100);

/// The number of bytes of one look.
const PIECE: usize = 64 << 10;

pub(super) async fn run(context: &JobContext, arguments: &JobLogs) -> CommandOutcome {
    let engine = context.engine().await?;
    let id = context.meant(&engine, &arguments.id).await?;
    let mut reader = LogReader::new(engine, id, arguments, context.plain_format());
    if arguments.follow { reader.follow().await } else { reader.read().await }
}

/// A reader that prints a log from its offset on.
struct LogReader<'a> {
    engine: Engine,
    id: JobId,
    arguments: &'a JobLogs,
    stream: LogStream,
    offset: u64,
    /// The number of bytes that may still be printed.
    left: u64,
    form: LogForm,
}

/// The form in which the log is printed.
enum LogForm {
    /// Unchanged bytes.
    Raw,
    /// Text without control sequences, for a terminal.
    Terminal(PlainBytes),
    /// One page of JSON on each line.
    Json,
}

/// The outcome of one look.
struct LogLook {
    /// Whether the log had anything new.
    is_new: bool,
    /// Whether nothing more can come.
    is_last: bool,
    /// Whether printing succeeded, and the exit code if not.
    printed: Result<(), u8>,
}

impl<'a> LogReader<'a> {
    fn new(engine: Engine, id: JobId, arguments: &'a JobLogs, format: Format) -> Self {
        let form = match format {
            Format::Json => LogForm::Json,
            Format::Text if io::stdout().is_terminal() => LogForm::Terminal(PlainBytes::default()),
            Format::Text => LogForm::Raw,
        };
        Self {
            engine,
            id,
            arguments,
            stream: if arguments.stderr { LogStream::Stderr } else { LogStream::Stdout },
            offset: arguments.offset,
            left: arguments.max_bytes.unwrap_or(u64::MAX),
            form,
        }
    }

    /// Prints the log as it is now; as JSON, one page of it.
    async fn read(&mut self) -> CommandOutcome {
        // An offset beyond the end yields an empty page at the end of the log.
        let end = self.raw_page(u64::MAX, 0).await?.offset;
        loop {
            self.left = self.left.min(end.saturating_sub(self.offset));
            let look = self.look().await?;
            match look.printed {
                Err(code) => return Ok(code),
                Ok(()) if self.left == 0 || !look.is_new || matches!(self.form, LogForm::Json) => {
                    return Ok(exit::DONE);
                }
                Ok(()) => {}
            }
        }
    }

    /// Prints the log as it is now and what comes, until nothing more can come.
    async fn follow(&mut self) -> CommandOutcome {
        let mut changes = self.engine.changes();
        let mut signals =
            signals().map_err(|error| CommandFailure::system("signals cannot be waited for", &error))?;
        loop {
            let look = self.look().await?;
            match look.printed {
                Err(code) => return Ok(code),
                Ok(()) if look.is_last || self.left == 0 || !output::is_read() => return Ok(exit::DONE),
                Ok(()) => {}
            }
            tokio::select! {
                biased;
                stop = signals.recv() => {
                    let status = self.engine.status(self.id).await.map_err(|error| failure(&error))?;
                    return Ok(leave_running(&[status], stop.unwrap_or(Stop::Terminate)));
                }
                // The log may have more already.
                () = std::future::ready(()), if look.is_new => {}
                // The job has ended, or may have written.
                _ = timeout(LOOK, changes.changed()) => {}
            }
        }
    }

    /// Reads and prints the next piece.
    async fn look(&mut self) -> Result<LogLook, CommandFailure> {
        if matches!(self.form, LogForm::Json) {
            return self.look_for_page().await;
        }
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        let mut page = self.raw_page(self.offset, left.min(PIECE)).await?;
        // A page has a smallest size, which may be more than is wanted.
        page.text.truncate(left);
        let printed = match &mut self.form {
            LogForm::Terminal(plain) => output::write(plain.take(&page.text).as_bytes()),
            LogForm::Raw | LogForm::Json => output::write(&page.text),
        };
        let length = u64::try_from(page.text.len()).unwrap_or(u64::MAX);
        self.go_on(page.offset, length);
        Ok(LogLook { is_new: length > 0, is_last: page.eof, printed })
    }

    async fn look_for_page(&mut self) -> Result<LogLook, CommandFailure> {
        let length = usize::try_from(self.left).map_or(MAX_PAGE, |left| left.min(MAX_PAGE));
        let page = self.engine.logs(self.id, self.stream, self.offset, length).await;
        let page = LogReport::from(page.map_err(|error| failure(&error))?);
        let (is_new, is_last) = (page.next_offset > page.offset, page.eof);
        let is_told = is_new || is_last || !self.arguments.follow;
        let printed = if is_told { json_line(&page) } else { Ok(()) };
        self.go_on(page.offset, page.next_offset.saturating_sub(page.offset));
        Ok(LogLook { is_new, is_last, printed })
    }

    fn go_on(&mut self, begin: u64, length: u64) {
        if begin > self.offset && !matches!(self.form, LogForm::Json) {
            let dropped = begin - self.offset;
            output::error(
                &format!("{dropped} bytes were dropped here, to keep the log within its limit"),
                None,
            );
        }
        self.offset = begin + length;
        self.left = self.left.saturating_sub(length);
    }

    async fn raw_page(&self, offset: u64, length: usize) -> Result<LogPage<Vec<u8>>, CommandFailure> {
        let page = self.engine.raw_logs(self.id, self.stream, offset, length).await;
        page.map_err(|error| failure(&error))
    }
}
