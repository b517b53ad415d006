//! Where diagnostics go: the server's log file, our stderr, and the exit code of a bug.
//!
//! Invariants: nothing here blocks the data path; both sinks have a thread and a bounded buffer of their own (promise 3); nothing that
//! was configured as a secret is in any line.

mod json;

use std::{
    borrow::Cow,
    io::{self, Write},
    path::Path,
    sync::{Arc, PoisonError, RwLock},
    thread::{self, ThreadId},
    time::Duration,
};

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::{MakeWriter, format::Format};
use unhang::{
    notices::Notices,
    process::{
        log_file::{LogFile, prune},
        lossy::LossyWriter,
    },
    secrets::Secrets,
};
use unhang_terminal::output::{self, StderrSink};

use self::json::JsonEvents;
use crate::{
    arguments::logging::{LogFormat, Logging},
    data_folder::{self, data_folder},
};

/// Text that may wait for a stderr that nobody reads.
const NOTICES_BYTES: usize = 256 << 10;
/// Text that may wait for the disk.
const LOG_BYTES: usize = 1 << 20;
/// Bytes that the log of a command may have.
const COMMAND_LOG_BYTES: u64 = 1 << 20;
/// How long the thread that drains a server may wait for the disk, once, before it goes on without logging.
const LOG_PATIENCE: Duration = Duration::from_millis(100);
/// How long what was said last may take to leave at the end.
const LAST_FLUSH: Duration = Duration::from_millis(200);

/// What to do about a log that was asked for and cannot be kept.
pub(crate) const LOG_HINT: &str = "name a file that can be written with --log-file, or leave it out";

/// Which log is kept.
pub(crate) struct KeptLog<'a> {
    /// What is logged.
    pub(crate) name: &'a str,
    /// Bytes that it may have on the disk.
    pub(crate) cap: u64,
    /// Where it goes and how it is written.
    pub(crate) logging: &'a Logging,
    /// Whether our stderr can be the place: not where a server's own goes to it.
    pub(crate) may_be_stderr: bool,
}

/// The sinks of one run.
pub(crate) struct Diagnostics {
    /// Our stderr.
    pub(crate) notices: LossyWriter,
    log: Option<LossyWriter>,
    format: LogFormat,
    /// Events go to stderr.
    is_on_stderr: bool,
    redaction: Redaction,
}

/// What is left out of every line, once it is known. Clones are the same.
#[derive(Clone, Default)]
struct Redaction(Arc<RwLock<Secrets>>);

impl Redaction {
    fn hide<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).hide(text)
    }
}

/// Says this in one line.
fn say(sink: &LossyWriter, format: LogFormat, redaction: &Redaction, level: &str, text: &str) {
    let text = redaction.hide(text);
    let line = match format {
        LogFormat::Text => format!("unhang: {text}\n"),
        LogFormat::Json => format!("{}\n", json::line(level, "unhang", &text)),
    };
    sink.send(line.as_bytes());
}

impl Diagnostics {
    /// Opens the log and becomes the process's tracing subscriber. Without a log folder the run goes on, and says so.
    ///
    /// # Errors
    /// Why the log cannot be where somebody wants it to be.
    pub(crate) fn start(log: &KeptLog<'_>, verbose: bool) -> Result<Diagnostics, String> {
        let &KeptLog { name, cap, logging: Logging { log_format: format, log_file }, may_be_stderr } = log;
        let format = *format;
        let writer = |name: &str, sink: Box<dyn Write + Send>, bytes| match format {
            LogFormat::Text => LossyWriter::new(name, sink, bytes),
            LogFormat::Json => LossyWriter::telling(name, sink, bytes, json::loss),
        };
        let notices = writer("notices", Box::new(StderrSink::new(format == LogFormat::Json)), NOTICES_BYTES);
        let file = |file: LogFile| Some(writer("log", Box::new(file), LOG_BYTES));
        let mut diagnostics = Diagnostics {
            notices,
            log: None,
            format,
            is_on_stderr: verbose,
            redaction: Redaction::default(),
        };
        match log_file.as_deref() {
            Some(path) if path == Path::new("-") => {
                if !may_be_stderr {
                    return Err(
                        "the log cannot be on stderr: what the server writes there goes to it".to_owned()
                    );
                }
                diagnostics.is_on_stderr = true;
            }
            Some(path) => {
                let opened = LogFile::open_at(path.to_owned(), cap).map_err(|error| error.to_string())?;
                diagnostics.log = file(opened);
            }
            None => match open_log(name, cap) {
                Ok(opened) => diagnostics.log = file(opened),
                Err(error) => diagnostics.notice(&format!("no log is kept: {error}")),
            },
        }
        let level = if verbose { Level::DEBUG } else { Level::INFO };
        let on_stderr = diagnostics.is_on_stderr.then(|| diagnostics.notices.clone());
        // Without a file stderr has all of it.
        let sinks = Sinks {
            shows_servers: diagnostics.log.is_none() && may_be_stderr,
            ..diagnostics.sinks(on_stderr)
        };
        diagnostics.subscribe(sinks, level);
        Ok(diagnostics)
    }

    /// Becomes the process's tracing subscriber for a command that comes home soon, without a log: what goes wrong in the
    /// background is said on stderr, and what servers write there to whoever wants to know everything. Where a program reads
    /// JSON on stderr, and did not ask for more, a log has what goes wrong.
    pub(crate) fn of_command(verbose: bool, is_json: bool) -> Diagnostics {
        let sink: Box<dyn Write + Send> =
            if is_json && !verbose { Box::new(LateLog::default()) } else { Box::new(StderrSink::new(false)) };
        let notices = LossyWriter::new("notices", sink, NOTICES_BYTES);
        let (format, redaction) = (LogFormat::Text, Redaction::default());
        let diagnostics = Diagnostics { notices, log: None, format, is_on_stderr: true, redaction };
        let level = if verbose { Level::DEBUG } else { Level::WARN };
        let sinks = diagnostics.sinks(Some(diagnostics.notices.clone()));
        diagnostics.subscribe(Sinks { shows_servers: verbose, ..sinks }, level);
        diagnostics
    }

    /// From now on these are in no line, and neither are those of before: whoever has them may still say so.
    pub(crate) fn hide(&self, secrets: impl Iterator<Item = Secrets>) {
        let mut known = self.redaction.0.write().unwrap_or_else(PoisonError::into_inner);
        let secrets: Vec<Secrets> = secrets.chain([known.clone()]).collect();
        *known = Secrets::of_all(&secrets);
    }

    /// Says this to whoever looks at stderr.
    pub(crate) fn notice(&self, text: &str) {
        self.say("INFO", text);
    }

    /// Says this to whoever looks at stderr, and in the log.
    pub(crate) fn warn(&self, text: &str) {
        tracing::warn!("{text}");
        // Where events are on stderr it stands there already.
        if !(self.is_on_stderr && self.format == LogFormat::Json) {
            self.say("WARN", text);
        }
    }

    fn say(&self, level: &str, text: &str) {
        say(&self.notices, self.format, &self.redaction, level, text);
    }

    /// The same for what goes on beside: what is said by it is said to whoever looks at stderr.
    pub(crate) fn notices(&self) -> Notices {
        let (sink, format, redaction) = (self.notices.clone(), self.format, self.redaction.clone());
        Notices::new(move |text| say(&sink, format, &redaction, "WARN", text))
    }

    /// Lets what was said last leave, bounded.
    pub(crate) fn finish(&self) {
        self.notices.flush(LAST_FLUSH);
        if let Some(log) = &self.log {
            log.flush(LAST_FLUSH);
        }
    }

    fn sinks(&self, notices: Option<LossyWriter>) -> Sinks {
        Sinks {
            log: self.log.clone(),
            notices,
            shows_servers: false,
            event_loop: thread::current().id(),
            // JSON has its texts redacted before they are quoted.
            redaction: (self.format == LogFormat::Text).then(|| self.redaction.clone()),
        }
    }

    fn subscribe(&self, sinks: Sinks, level: Level) {
        let builder = tracing_subscriber::fmt().with_max_level(level).with_writer(sinks);
        // Only a second call could fail, and there is none.
        let _already_set = match self.format {
            LogFormat::Text => {
                let lines = Format::default().with_ansi(false).with_target(false);
                tracing::subscriber::set_global_default(builder.with_ansi(false).event_format(lines).finish())
            }
            LogFormat::Json => {
                let lines = JsonEvents { redaction: self.redaction.clone() };
                tracing::subscriber::set_global_default(builder.with_ansi(false).event_format(lines).finish())
            }
        };
    }
}

fn open_log(name: &str, cap: u64) -> io::Result<LogFile> {
    let folder = data_folder().ok_or_else(|| io::Error::other(data_folder::absence()))?.join("logs");
    let file = LogFile::open(&folder, name, cap)?;
    let _best_effort = prune(&folder, name, unhang::config::LOGS_KEPT);
    Ok(file)
}

/// The log of a command that seldom has anything to log: it is opened for the first line.
#[derive(Default)]
struct LateLog(Option<LogFile>);

impl Write for LateLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.is_none() {
            // Nothing is kept in a folder that is another's too.
            data_folder::check().map_err(|failure| io::Error::other(failure.message))?;
            self.0 = Some(open_log("command", COMMAND_LOG_BYTES)?);
        }
        self.0.as_mut().map_or(Ok(bytes.len()), |log| log.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.as_mut().map_or(Ok(()), Write::flush)
    }
}

/// Hands each event to the log, and to stderr where that was asked for.
struct Sinks {
    log: Option<LossyWriter>,
    notices: Option<LossyWriter>,
    /// What servers write goes to stderr as well.
    shows_servers: bool,
    event_loop: ThreadId,
    /// What is left out of a line, where it was not before.
    redaction: Option<Redaction>,
}

struct Event<'a> {
    sinks: &'a Sinks,
    to_notices: bool,
    to_log: bool,
}

impl<'a> MakeWriter<'a> for Sinks {
    type Writer = Event<'a>;

    fn make_writer(&'a self) -> Event<'a> {
        Event { sinks: self, to_notices: true, to_log: true }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Event<'a> {
        // Where a guard copies what its server wrote to stderr, it does so whether or not we are verbose.
        let is_servers = matches!(metadata.target(), "unhang::stderr" | "unhang::junk");
        // What the libraries below say of each step helps nobody.
        let is_ours = metadata.target().starts_with("unhang") || *metadata.level() <= Level::WARN;
        Event { sinks: self, to_notices: is_ours && (!is_servers || self.shows_servers), to_log: is_ours }
    }
}

impl Write for Event<'_> {
    fn write(&mut self, written: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(written);
        let hidden = self.sinks.redaction.as_ref().map(|redaction| redaction.hide(&text));
        let event = hidden.as_ref().map_or(written, |hidden| hidden.as_bytes());
        if let Some(log) = self.sinks.log.as_ref().filter(|_| self.to_log) {
            // A burst of stderr is worth a moment's wait; the data path never waits.
            if thread::current().id() == self.sinks.event_loop {
                log.send(event);
            } else {
                log.send_patiently(event, LOG_PATIENCE);
            }
        }
        if let Some(notices) = self.sinks.notices.as_ref().filter(|_| self.to_notices) {
            notices.send(event);
        }
        Ok(written.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A panic is a bug of ours: it is reported in words that a user can pass on.
pub(crate) fn report_bugs() {
    std::panic::set_hook(Box::new(|panic| {
        tracing::error!("bug: {panic}");
        output::error(
            &format!("this is a bug in unhang: {panic}"),
            Some("please report it with the text above"),
        );
    }));
}
