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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_junk_is_kept_in_a_form_that_can_be_shown() {
        let long = "x".repeat(JUNK_LINE_BYTES);
        let cut = format!("{long}…");
        let longer = format!("{long}yy");
        for (line, expect) in [
            (b"Listening on 8080".as_slice(), "Listening on 8080"),
            (b"", ""),
            (b"\x1b[31mred\x1b[0m\tend\r", " [31mred [0m end "),
            ("gr\u{fc}n".as_bytes(), "gr\u{fc}n"),
            (b"a\xffb", "a\u{fffd}b"),
            (long.as_bytes(), &long),
            (&longer.as_bytes()[..=JUNK_LINE_BYTES], &cut),
            (longer.as_bytes(), &cut),
        ] {
            let mut junk = Junk::default();
            assert_eq!(junk.keep(line), expect);
            assert_eq!(junk.lines(), [expect]);
        }
    }

    #[test]
    fn the_last_lines_are_kept_oldest_first() {
        let mut junk = Junk::default();
        assert_eq!(junk.lines(), Vec::<String>::new());
        let written: Vec<String> = (0..JUNK_LINES + 3).map(|number| format!("line {number}")).collect();
        for (number, line) in written.iter().enumerate() {
            assert_eq!(junk.keep(line.as_bytes()), line);
            let first = (number + 1).saturating_sub(JUNK_LINES);
            assert_eq!(junk.lines(), written[first..=number]);
        }
    }
}
