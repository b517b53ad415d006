//! The progress of a batch and its summary, for a person.
//!
//! Invariants: the summary is printed once, however the batch ends. The progress line takes one row, however narrow the terminal is. It
//! disappears while something else is written.

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal, Write},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use unhang::units::in_words;
use unhang_terminal::output;

use super::item::ItemRequest;

/// The template of the line, which is cut if the terminal is narrower.
const TEMPLATE: &str = "{wide_msg}";
/// The number of steps in a full bar.
const STEPS: usize = 24;

/// The counts, and the line on the terminal.
pub(super) struct BatchTally {
    bar: ProgressBar,
    /// The number of lines that ask for something, if it is known.
    lines: Option<u64>,
    well: u64,
    failed: u64,
    skipped: u64,
    begun: u64,
    /// The use of each server that was started, by its name.
    used: BTreeMap<String, ServerUse>,
    is_spoilt: bool,
    is_told: bool,
}

/// The number of requests to one server.
#[derive(Default)]
struct ServerUse {
    tools: u64,
    resources: u64,
    prompts: u64,
}

impl BatchTally {
    pub(super) fn new(lines: Option<u64>) -> Self {
        // The line is hidden if stderr is not a terminal.
        let bar = ProgressBar::with_draw_target(lines, ProgressDrawTarget::stderr());
        bar.set_style(
            ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        let used = BTreeMap::new();
        Self { bar, lines, well: 0, failed: 0, skipped: 0, begun: 0, used, is_spoilt: false, is_told: false }
    }

    /// Notes a request to a server.
    pub(super) fn ask(&mut self, server: &str, asked: &ItemRequest) {
        if !self.used.contains_key(server) {
            self.used.insert(server.to_owned(), ServerUse::default());
        }
        let Some(used) = self.used.get_mut(server) else { return };
        *match asked {
            ItemRequest::Tool(..) => &mut used.tools,
            ItemRequest::Resource(..) => &mut used.resources,
            ItemRequest::Prompt(..) => &mut used.prompts,
        } += 1;
    }

    pub(super) fn count(&mut self, is_ok: bool) {
        if is_ok {
            self.well += 1;
        } else {
            self.failed += 1;
        }
        self.bar.inc(1);
        self.draw();
    }

    /// Draws the line. A narrow terminal cuts its end off.
    fn draw(&self) {
        if self.bar.is_hidden() {
            return;
        }
        let (done, rate) = (self.bar.position(), self.bar.per_sec());
        let failed = if self.failed > 0 { format!(", {} failed", self.failed) } else { String::new() };
        self.bar.set_message(match self.lines {
            Some(lines) => {
                let steps = usize::try_from(done * STEPS as u64 / lines.max(1)).unwrap_or(STEPS).min(STEPS);
                let (full, empty) = ("=".repeat(steps), " ".repeat(STEPS - steps));
                let left = in_words(Duration::from_secs(self.bar.eta().as_secs()));
                format!("{done} of {lines}{failed}, {rate:.0}/s, {left} left [{full}{empty}]")
            }
            None => format!("{done}{failed}, {rate:.0}/s"),
        });
    }

    /// Writes something beside the line, and hides the line meanwhile.
    pub(super) fn aside<R>(&self, write: impl FnOnce() -> R) -> R {
        self.bar.suspend(write)
    }

    /// Wraps a sink on stdout, which may lead to the same terminal, so that the line is hidden while the sink writes.
    pub(super) fn beside<W: Write + Send + 'static>(&self, sink: W) -> Box<dyn Write + Send> {
        if !io::stdout().is_terminal() || self.bar.is_hidden() {
            return Box::new(sink);
        }
        Box::new(LineSink { bar: self.bar.clone(), sink })
    }

    /// Notes that an earlier run did a line.
    pub(super) fn skip(&mut self) {
        self.skipped += 1;
        self.bar.inc(1);
        self.draw();
    }

    /// Notes that not all lines could be read.
    pub(super) fn spoil(&mut self) {
        self.is_spoilt = true;
    }

    /// Notes that a line was begun. It gets an outcome unless the batch is broken off.
    pub(super) fn begin(&mut self) {
        self.begun += 1;
    }

    pub(super) fn is_all_well(&self) -> bool {
        self.failed == 0 && !self.is_spoilt
    }

    /// Prints the summary, unless it was printed before.
    pub(super) fn close(&mut self) {
        if std::mem::replace(&mut self.is_told, true) {
            return;
        }
        self.bar.finish_and_clear();
        for (server, ServerUse { tools, resources, prompts }) in &self.used {
            tracing::debug!(
                "`{server}` had to do: tools called {tools}, resources read {resources}, prompts got {prompts}"
            );
        }
        let mut told = vec![format!("{} ok", self.well), format!("{} failed", self.failed)];
        if self.skipped > 0 {
            told.push(format!("{} done before", self.skipped));
        }
        let done = self.well + self.failed + self.skipped;
        match self.lines {
            Some(lines) if lines > done => told.push(format!("{} not done", lines - done)),
            None if self.begun > self.well + self.failed => {
                told.push(format!("{} begun but not done", self.begun - self.well - self.failed));
            }
            _ => {}
        }
        output::note(&told.join(", "));
    }
}

/// A sink that hides the line for as long as it writes.
struct LineSink<W> {
    bar: ProgressBar,
    sink: W,
}

impl<W: Write> Write for LineSink<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Self { bar, sink } = self;
        bar.suspend(|| sink.write(bytes).and_then(|written| sink.flush().map(|()| written)))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

impl Drop for BatchTally {
    fn drop(&mut self) {
        self.close();
    }
}
