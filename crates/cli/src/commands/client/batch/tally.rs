//! How far a batch is, and what came of it, for a person.
//!
//! Invariant: the summary is told once, however the batch ends.

use std::{collections::BTreeMap, fmt};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::item::Asked;
use crate::output;

/// Where the number of lines is known.
const MEASURED: &str = "[{bar:24}] {pos} of {len}, {rate}/s, {eta} left{msg}";
/// Where it is not.
const UNMEASURED: &str = "{spinner} {pos}, {rate}/s{msg}";

/// The counts, and the line on the terminal.
pub(super) struct Tally {
    bar: ProgressBar,
    lines: Option<u64>,
    well: u64,
    failed: u64,
    skipped: u64,
    begun: u64,
    /// By the names of the servers, of which there are as many as were started.
    used: BTreeMap<String, Used>,
    is_spoilt: bool,
    is_told: bool,
}

/// What one server was asked for.
#[derive(Default)]
struct Used {
    tools: u64,
    resources: u64,
    prompts: u64,
}

impl Tally {
    pub(super) fn new(lines: Option<u64>) -> Self {
        // Where stderr is no terminal the line is hidden.
        let bar = ProgressBar::with_draw_target(lines, ProgressDrawTarget::stderr());
        let template = if lines.is_some() { MEASURED } else { UNMEASURED };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let rate = |state: &ProgressState, text: &mut dyn fmt::Write| {
            // Nobody is told where a terminal cannot be written to.
            let _untold = write!(text, "{:.0}", state.per_sec());
        };
        bar.set_style(style.progress_chars("=> ").tick_chars("|/-\\ ").with_key("rate", rate));
        let used = BTreeMap::new();
        Self { bar, lines, well: 0, failed: 0, skipped: 0, begun: 0, used, is_spoilt: false, is_told: false }
    }

    /// A server is asked for this.
    pub(super) fn ask(&mut self, server: &str, asked: &Asked) {
        if !self.used.contains_key(server) {
            self.used.insert(server.to_owned(), Used::default());
        }
        let Some(used) = self.used.get_mut(server) else { return };
        *match asked {
            Asked::Tool(..) => &mut used.tools,
            Asked::Resource(..) => &mut used.resources,
            Asked::Prompt(..) => &mut used.prompts,
        } += 1;
    }

    pub(super) fn count(&mut self, is_ok: bool) {
        if is_ok {
            self.well += 1;
        } else {
            self.failed += 1;
            self.bar.set_message(format!(", {} failed", self.failed));
        }
        self.bar.inc(1);
    }

    /// It was done by an earlier run.
    pub(super) fn skip(&mut self) {
        self.skipped += 1;
        self.bar.inc(1);
    }

    /// A line that asks for nothing.
    pub(super) fn ignore(&mut self) {
        if let Some(lines) = &mut self.lines {
            *lines = lines.saturating_sub(1);
            self.bar.set_length(*lines);
        }
    }

    /// Not all lines could be read.
    pub(super) fn spoil(&mut self) {
        self.is_spoilt = true;
    }

    /// One is begun, which will have an outcome unless the batch is broken off.
    pub(super) fn begin(&mut self) {
        self.begun += 1;
    }

    pub(super) fn is_all_well(&self) -> bool {
        self.failed == 0 && !self.is_spoilt
    }

    /// Tells what came of it.
    pub(super) fn close(&mut self) {
        if std::mem::replace(&mut self.is_told, true) {
            return;
        }
        self.bar.finish_and_clear();
        for (server, Used { tools, resources, prompts }) in &self.used {
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
                told.push(format!("{} begun and not done", self.begun - self.well - self.failed));
            }
            _ => {}
        }
        output::note(&told.join(", "));
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.close();
    }
}
