//! Tells a person, and nobody else, what a command is doing.
//!
//! Invariant: the message takes one row of the terminal, however narrow that is. If it broke into several rows, only the last one could be
//! taken back.

use std::io::{self, IsTerminal, Write};

use crate::{
    output::columns,
    text::{escaped, fitted},
};

/// Replaces the previous message.
pub fn show(doing: &str) {
    let mut stderr = io::stderr();
    if stderr.is_terminal() {
        // Some terminals go on in the next row after a character in the last column.
        let line = fitted(&escaped(doing), columns(&stderr).saturating_sub(1));
        let _nobody_reads = write!(stderr, "\r\x1b[K{line}");
    }
}

/// Takes back the message.
pub fn end() {
    show("");
}
