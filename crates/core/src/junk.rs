//! The junk of a server: lines on its stdout that are not messages. The last of them are kept, for the errors that they may explain.
//!
//! Invariants: bounded in lines and in bytes a line. The kept lines can be shown on a terminal.

use std::collections::VecDeque;

use crate::config::{JUNK_LINE_BYTES, JUNK_LINES};

/// The last lines of a server's stdout that were not messages, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Junk(VecDeque<String>);

impl Junk {
    /// Keeps a line, and returns it in a form that can be shown.
    pub fn keep(&mut self, line: &[u8]) -> &str {
        let cut = &line[..line.len().min(JUNK_LINE_BYTES)];
        let mut text: String = String::from_utf8_lossy(cut)
            .chars()
            .map(|character| if character.is_control() { ' ' } else { character })
            .collect();
        if cut.len() < line.len() {
            text.push('…');
        }
        if self.0.len() >= JUNK_LINES {
            self.0.pop_front();
        }
        self.0.push_back(text);
        self.0.back().map_or("", String::as_str)
    }

    /// Returns all kept lines.
    pub fn lines(&self) -> Vec<String> {
        self.0.iter().cloned().collect()
    }
}
