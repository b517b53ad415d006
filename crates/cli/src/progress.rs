//! Says what is being done, to a person only.

use std::io::{self, IsTerminal, Write};

use crate::terminal_text::escaped;

/// Replaces what was said before.
pub(crate) fn show(doing: &str) {
    let mut stderr = io::stderr();
    if stderr.is_terminal() {
        let _nobody_reads = write!(stderr, "\r\x1b[K{}", escaped(doing));
    }
}

/// Takes back what was said.
pub(crate) fn end() {
    show("");
}
