//! Where diagnostics go: the server's log file, our stderr, and the exit code of a bug.
//!
//! Invariants: nothing here blocks the data path; both sinks have a thread and a bounded buffer of their own (promise 3).

use std::{
    io::{self, Write},
    thread::{self, ThreadId},
    time::Duration,
};

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;
use unhang::process::{
    log_file::{LogFile, prune},
    lossy::LossyWriter,
};

use crate::{data_folder::data_folder, output};

/// Text that may wait for a stderr that nobody reads.
const NOTICES_BYTES: usize = 256 << 10;
/// Text that may wait for the disk.
const LOG_BYTES: usize = 1 << 20;
/// How long the thread that drains a server may wait for the disk, once, before it goes on without logging.
const LOG_PATIENCE: Duration = Duration::from_millis(100);
/// How long what was said last may take to leave at the end.
const LAST_FLUSH: Duration = Duration::from_millis(200);

/// The sinks of one run.
pub(crate) struct Diagnostics {
    /// Our stderr.
    pub(crate) notices: LossyWriter,
    log: Option<LossyWriter>,
}

impl Diagnostics {
    /// Opens the log of the server `name` and becomes the process's tracing subscriber. Without a log folder the run goes
    /// on, and says so.
    pub(crate) fn start(name: &str, log_cap: u64, verbose: bool) -> Diagnostics {
        let notices = LossyWriter::new("notices", io::stderr(), NOTICES_BYTES);
        let log = match open_log(name, log_cap) {
            Ok(file) => Some(LossyWriter::new("log", file, LOG_BYTES)),
            Err(error) => {
                notices.send(format!("unhang: no log is kept: {error}\n").as_bytes());
                None
            }
        };
        let level = if verbose { Level::DEBUG } else { Level::INFO };
        subscribe(Sinks::new(log.clone(), verbose.then(|| notices.clone()), false), level);
        Diagnostics { notices, log }
    }

    /// Becomes the process's tracing subscriber for a command that comes home soon, without a log: what goes wrong in the
    /// background is said on stderr, and what servers write there to whoever wants to know everything.
    pub(crate) fn on_stderr(verbose: bool) -> Diagnostics {
        let notices = LossyWriter::new("notices", io::stderr(), NOTICES_BYTES);
        let level = if verbose { Level::DEBUG } else { Level::WARN };
        subscribe(Sinks::new(None, Some(notices.clone()), verbose), level);
        Diagnostics { notices, log: None }
    }

    /// Lets what was said last leave, bounded.
    pub(crate) fn finish(&self) {
        self.notices.flush(LAST_FLUSH);
        if let Some(log) = &self.log {
            log.flush(LAST_FLUSH);
        }
    }
}

fn subscribe(sinks: Sinks, level: Level) {
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_target(false)
        .with_max_level(level)
        .with_writer(sinks)
        .finish();
    // Only a second call could fail, and there is none.
    let _already_set = tracing::subscriber::set_global_default(subscriber);
}

fn open_log(name: &str, cap: u64) -> io::Result<LogFile> {
    let folder =
        data_folder().ok_or_else(|| io::Error::other("neither UNHANG_HOME nor HOME is set"))?.join("logs");
    let file = LogFile::open(&folder, name, cap)?;
    let _best_effort = prune(&folder, name, unhang::config::LOGS_KEPT);
    Ok(file)
}

/// Hands each event to the log, and to stderr where that was asked for.
struct Sinks {
    log: Option<LossyWriter>,
    notices: Option<LossyWriter>,
    /// What servers write goes to stderr as well.
    shows_servers: bool,
    event_loop: ThreadId,
}

impl Sinks {
    fn new(log: Option<LossyWriter>, notices: Option<LossyWriter>, shows_servers: bool) -> Self {
        Self { log, notices, shows_servers, event_loop: thread::current().id() }
    }
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
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
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
        Ok(event.len())
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
