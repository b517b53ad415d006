//! Lines at a terminal that say how far something is: they are in the way of nothing else.

use std::{
    fs::{self, File},
    io::Read,
    process::Stdio,
};

use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::{Value, json};

use crate::{
    harness::{Client, Sandbox, lab_program},
    terminal::terminal,
};

/// What a terminal of so many columns shows in the end.
struct Screen {
    columns: usize,
    rows: Vec<Vec<char>>,
    /// Rows that go on in the next.
    broken: Vec<bool>,
    row: usize,
    column: usize,
}

impl Screen {
    fn new(columns: usize) -> Self {
        Self { columns, rows: vec![Vec::new()], broken: vec![false], row: 0, column: 0 }
    }

    fn down(&mut self, is_broken: bool) {
        self.broken[self.row] = is_broken;
        self.row += 1;
        if self.row == self.rows.len() {
            self.rows.push(Vec::new());
            self.broken.push(false);
        }
    }

    fn put(&mut self, letter: char) {
        if self.column == self.columns {
            self.down(true);
            self.column = 0;
        }
        let row = &mut self.rows[self.row];
        row.resize(row.len().max(self.column + 1), ' ');
        row[self.column] = letter;
        self.column += 1;
    }

    fn show(&mut self, text: &str) {
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '\r' => self.column = 0,
                '\n' => self.down(false),
                '\u{1b}' => {
                    assert_eq!(letters.next(), Some('['));
                    let mut number = String::new();
                    let command = letters
                        .find(|letter| {
                            if letter.is_ascii_digit() {
                                number.push(*letter);
                            }
                            letter.is_ascii_alphabetic()
                        })
                        .expect("a command");
                    match (command, number.parse().unwrap_or(1)) {
                        ('A', count) => self.row = self.row.saturating_sub(count),
                        ('B', count) => (0..count).for_each(|_: usize| self.down(false)),
                        ('K', 2) => self.rows[self.row].clear(),
                        ('K', _) => self.rows[self.row].truncate(self.column),
                        _ => {}
                    }
                }
                _ => self.put(letter),
            }
        }
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = vec![String::new()];
        for (row, is_broken) in self.rows.iter().zip(&self.broken) {
            lines.last_mut().expect("one").extend(row);
            if !is_broken {
                lines.push(String::new());
            }
        }
        lines.into_iter().map(|line| line.trim_end().to_owned()).filter(|line| !line.is_empty()).collect()
    }
}

#[test]
fn the_bar_is_away_while_an_outcome_is_written_however_narrow_the_terminal_is() {
    for columns in [120, 80, 60, 30] {
        let sandbox = Sandbox::new();
        let slow = |number: u64| json!({ "tool": "sleep", "arguments": { "ms": 80 + number } });
        let text: String = (0..12).map(|number| format!("{}\n", slow(number))).collect();
        fs::write(
            sandbox.path().join("in.jsonl"),
            text + "{\"tool\":\"fail\",\"arguments\":{\"text\":\"no\"}}\n",
        )
        .expect("a file");
        let (master, terminal) = terminal();
        let size = Winsize { ws_row: 40, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size).expect("a size");
        let stdout = Stdio::from(terminal.try_clone().expect("another"));
        let mut command = sandbox.unhang();
        command.args(["batch", "in.jsonl", "-j1", "--", lab_program(), "zoo", "well-behaved"]);
        command.env("TERM", "xterm").stdin(Stdio::null()).stdout(stdout).stderr(Stdio::from(terminal));
        let mut client = Client::start_alone(command);
        let mut shown = Vec::new();
        // The terminal reports the end of its last holder as an error.
        let _ended = File::from(master).read_to_end(&mut shown);
        assert_eq!(client.exit_code(), 1);
        let shown = String::from_utf8(shown).expect("text");
        assert!(shown.contains(" of 13"), "there is a bar: {shown:?}");
        let mut screen = Screen::new(usize::from(columns));
        screen.show(&shown);
        let lines = screen.lines();
        let (summary, outcomes) = lines.split_last().expect("lines");
        assert_eq!(summary, "unhang: 12 ok, 1 failed", "{columns}: {lines:#?}");
        assert_eq!(outcomes.len(), 13, "{columns}: {lines:#?}");
        for line in outcomes {
            let outcome = serde_json::from_str::<Value>(line);
            assert!(outcome.is_ok(), "{columns}: {line:?} of {lines:#?}");
        }
        // No row of the bar goes on in the next.
        let bars = shown.split(['\r', '\n']).filter(|piece| piece.contains(" of 13"));
        for bar in bars {
            let plain: String = bar
                .split('\u{1b}')
                .map(|part| part.trim_start_matches("[2K").trim_start_matches("[K"))
                .collect();
            assert!(plain.chars().count() <= usize::from(columns), "{columns}: {plain:?}");
        }
    }
}

#[test]
fn the_line_of_the_doctor_names_whom_it_waits_for_or_is_not_there() {
    for columns in [80, 30] {
        let sandbox = Sandbox::new();
        let (master, terminal) = terminal();
        let size = Winsize { ws_row: 40, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size).expect("a size");
        let mut command = sandbox.unhang();
        command.args(["doctor", "--", lab_program(), "zoo", "dies-at-start"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::from(terminal));
        let mut client = Client::start_alone(command);
        let mut shown = Vec::new();
        // The terminal reports the end of its last holder as an error.
        let _ended = File::from(master).read_to_end(&mut shown);
        assert_eq!(client.exit_code(), 1);
        let shown = String::from_utf8(shown).expect("text");
        let mut lines = shown.split("\r\u{1b}[K").filter(|line| !line.is_empty()).peekable();
        assert!(lines.peek().is_some(), "there is one: {shown:?}");
        for line in lines {
            assert!(!line.trim_end().ends_with("waiting for"), "{shown:?}");
            assert!(line.chars().count() < usize::from(columns), "{columns}: {shown:?}");
        }
    }
}
