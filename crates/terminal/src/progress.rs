//! Says what is being done, to a person only.
//!
//! Invariant: it is one row of the terminal, however narrow that is: of what breaks only the last row could be taken back.

use std::io::{self, IsTerminal, Write};

use crate::{
    output::columns,
    text::{escaped, fitted},
};

/// Replaces what was said before.
pub fn show(doing: &str) {
    let mut stderr = io::stderr();
    if stderr.is_terminal() {
        // A character in the last column makes some terminals go on in the next row.
        let line = fitted(&escaped(doing), columns(&stderr).saturating_sub(1));
        let _nobody_reads = write!(stderr, "\r\x1b[K{line}");
    }
}

/// Takes back what was said.
pub fn end() {
    show("");
}
