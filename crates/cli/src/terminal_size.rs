//! How wide the terminal is that a stream leads to.

use std::os::fd::AsFd;

use rustix::termios::tcgetwinsize;

/// Columns of a terminal that everybody has.
pub(crate) const COLUMNS: usize = 80;

/// The columns of the terminal that this stream leads to: [`COLUMNS`] where it leads to none, or to one that does not say it.
pub(crate) fn columns(stream: impl AsFd) -> usize {
    let told = tcgetwinsize(stream).map_or(0, |size| usize::from(size.ws_col));
    if told == 0 { COLUMNS } else { told }
}
