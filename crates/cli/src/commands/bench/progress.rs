//! Says what is being done, to a person only.

use std::io::{self, IsTerminal, Write};

/// Replaces what was said before.
pub(super) fn show(doing: &str) {
    say(doing);
}

/// Takes back what was said.
pub(super) fn end() {
    say("");
}

fn say(text: &str) {
    let mut stderr = io::stderr();
    if stderr.is_terminal() {
        let _nobody_reads = write!(stderr, "\r\x1b[K{text}");
    }
}
