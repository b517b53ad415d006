//! The sinks of diagnostics: the server's log file, the stderr of this process, and the exit code of a bug.
//!
//! Invariants: nothing here blocks the data path. Both sinks have a thread and a bounded buffer of their own (promise 3). No line contains
//! a value that was configured as a secret.

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
    config::STDERR_LOG,
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

/// The number of bytes that may wait for a stderr that nobody reads.
const NOTICES_BYTES: usize = 256 << 10;
/// The number of bytes that may wait for the disk.
const LOG_BYTES: usize = 1 << 20;
/// The number of bytes that the log of a command may have.
const COMMAND_LOG_BYTES: u64 = 1 << 20;
/// The time that the thread that drains a server may wait for the disk, once, before it goes on without logging.
const LOG_PATIENCE: Duration = Duration::from_millis(100);
/// The time that the last messages may take to leave at the end.
const LAST_FLUSH: Duration = Duration::from_millis(200);

/// The hint for a person who asked for a log that cannot be kept.
pub(crate) const LOG_HINT: &str = "set --log-file to a file that unhang can write, or leave it out";

/// The log to keep.
pub(crate) struct KeptLog<'a> {
    /// The name of the server or command in the log's file name.
    pub(crate) name: &'a str,
    /// The number of bytes that it may have on the disk.
    pub(crate) cap: u64,
    /// The place and the format of the log.
    pub(crate) logging: &'a Logging,
    /// Whether the log may go to stderr: not if a server's own stderr goes there.
    pub(crate) may_be_stderr: bool,
}

/// The sinks of one run.
pub(crate) struct Diagnostics {
    /// The stderr of this process.
    pub(crate) notices: LossyWriter,
    log: Option<LossyWriter>,
    format: LogFormat,
    /// Whether events go to stderr.
    is_on_stderr: bool,
    redaction: Redaction,
}

/// The secrets that are left out of every line, once they are known. Clones share them.
#[derive(Clone, Default)]
struct Redaction(Arc<RwLock<Secrets>>);

impl Redaction {
    fn hide<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).hide(text)
    }
}

/// Sends this text to a sink, as one line.
fn say(sink: &LossyWriter, format: LogFormat, redaction: &Redaction, level: &str, text: &str) {
    let text = redaction.hide(text);
    let line = match format {
        LogFormat::Text => format!("unhang: {text}\n"),
        LogFormat::Json => format!("{}\n", json::line(level, "unhang", &text)),
    };
    sink.send(line.as_bytes());
}

impl Diagnostics {
    /// Opens the log and becomes the process's tracing subscriber. Without a log folder the run goes on, and a notice says so.
    ///
    /// # Errors
    /// Fails with the reason why the log cannot be in the place that a person chose.
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
                        "the log cannot be on stderr, because the server's stderr goes there".to_owned()
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
                Err(error) => diagnostics.notice(&format!("the log cannot be kept: {error}")),
            },
        }
        let level = if verbose { Level::DEBUG } else { Level::INFO };
        let on_stderr = diagnostics.is_on_stderr.then(|| diagnostics.notices.clone());
        // Without a file, stderr gets everything.
        let sinks = Sinks {
            shows_servers: diagnostics.log.is_none() && may_be_stderr,
            ..diagnostics.sinks(on_stderr)
        };
        diagnostics.subscribe(sinks, level);
        Ok(diagnostics)
    }

    /// Becomes the tracing subscriber of a call holder, which continues the log of this server. Without a log folder nobody hears of it.
    pub(crate) fn of_call_holder(server: &str) -> Option<Diagnostics> {
        let logging = Logging { log_format: LogFormat::Text, log_file: None };
        let log = KeptLog { name: server, cap: STDERR_LOG, logging: &logging, may_be_stderr: false };
        Diagnostics::start(&log, false).ok()
    }

    /// Becomes the process's tracing subscriber for a command that soon ends, without a log. Failures in the background go to stderr, and
    /// with `verbose` also the stderr of servers. If a program reads JSON on stderr, and `verbose` is not set, a log gets the failures
    /// instead.
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

    /// Hides these secrets in every line from now on. The earlier ones stay hidden: a server that has them may still write them.
    pub(crate) fn hide(&self, secrets: impl Iterator<Item = Secrets>) {
        let mut known = self.redaction.0.write().unwrap_or_else(PoisonError::into_inner);
        let secrets: Vec<Secrets> = secrets.chain([known.clone()]).collect();
        *known = Secrets::of_all(&secrets);
    }

    /// Prints this text on stderr.
    pub(crate) fn notice(&self, text: &str) {
        self.say("INFO", text);
    }

    /// Prints this text on stderr, and logs it.
    pub(crate) fn warn(&self, text: &str) {
        tracing::warn!("{text}");
        // If events go to stderr, the text is there already.
        if !(self.is_on_stderr && self.format == LogFormat::Json) {
            self.say("WARN", text);
        }
    }

    fn say(&self, level: &str, text: &str) {
        say(&self.notices, self.format, &self.redaction, level, text);
    }

    /// Returns a sink for background work, whose messages go to stderr.
    pub(crate) fn notices(&self) -> Notices {
        let (sink, format, redaction) = (self.notices.clone(), self.format, self.redaction.clone());
        Notices::new(move |text| say(&sink, format, &redaction, "WARN", text))
    }

    /// Waits, bounded, until the last messages have left.
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
            // JSON events redact their texts before these are quoted.
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

/// The log of a command that seldom logs anything: the first line opens it.
#[derive(Default)]
struct LateLog(Option<LogFile>);

impl Write for LateLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.is_none() {
            // Nothing is kept in a folder that another user can write to.
            data_folder::check().map_err(|failure| io::Error::other(failure.message))?;
            self.0 = Some(open_log("command", COMMAND_LOG_BYTES)?);
        }
        self.0.as_mut().map_or(Ok(bytes.len()), |log| log.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.as_mut().map_or(Ok(()), Write::flush)
    }
}

/// The maker of writers that send each event to the log, and to stderr if that was asked for.
struct Sinks {
    log: Option<LossyWriter>,
    notices: Option<LossyWriter>,
    /// Whether the stderr of servers goes to stderr as well.
    shows_servers: bool,
    event_loop: ThreadId,
    /// The secrets to leave out of a line, unless they were left out before.
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
        // If a guard copies its server's stderr, it does so whether or not the run is verbose.
        let is_servers = matches!(metadata.target(), "unhang::stderr" | "unhang::junk");
        // The low-level events of libraries help nobody.
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
            // A thread that drains stderr may wait a moment in a burst; the data path never waits.
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

/// Reports each panic as a bug of unhang, in words that a user can pass on.
pub(crate) fn report_bugs() {
    std::panic::set_hook(Box::new(|panic| {
        tracing::error!("bug: {panic}");
        output::error(
            &format!("this is a bug in unhang: {panic}"),
            Some("please report it with the text above"),
        );
    }));
}
