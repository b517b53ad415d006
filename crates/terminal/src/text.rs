//! Text from outside in a form that is safe for a terminal: no job moves the cursor, changes a colour or rings the bell.
//!
//! Invariants
//!
//! - The output has no control character but line feed and tab, whatever the input was and wherever it was cut. It has no character that
//!   misleads a person: none that turns the direction of text, separates lines, or is invisible. Joiners stay, because scripts and emoji
//!   need them, and so does the selector that shows a sign as an emoji.
//! - A sequence that does not end hides no more than the rest of its line.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Returns the number of columns that a line takes on a terminal.
pub fn width(line: &str) -> usize {
    line.width()
}

/// Returns as much of a line as fits into so many columns. If that is not all of it, the last character is an ellipsis.
pub fn fitted(line: &str, columns: usize) -> String {
    if width(line) <= columns {
        return line.to_owned();
    }
    let (mut fitted, mut room) = (String::new(), columns.saturating_sub(1));
    for character in line.chars() {
        let Some(left) = room.checked_sub(character.width().unwrap_or_default()) else { break };
        fitted.push(character);
        room = left;
    }
    if columns > 0 {
        fitted.push('…');
    }
    fitted
}

/// Returns the line cut or padded to exactly so many columns.
pub fn padded(line: &str, columns: usize) -> String {
    let mut padded = fitted(line, columns);
    padded.extend(std::iter::repeat_n(' ', columns.saturating_sub(width(&padded))));
    padded
}

/// Makes a name or a message fit into one line: it escapes control characters and characters that mislead a person.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if steers(character) {
            escaped.extend(character.escape_default());
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// Escapes a message of several lines as [`escaped`] does, but keeps line feeds and tabs.
pub fn escaped_lines(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if steers(character) && !matches!(character, '\n' | '\t') {
            escaped.extend(character.escape_default());
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// Escapes JSON so that it stays JSON of the same meaning. Characters that steer a terminal can only stand in its strings. The one
/// exception is a carriage return, which is white space between them.
pub fn escaped_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '\n' | '\t' => escaped.push(character),
            '\r' => escaped.push(' '),
            _ if steers(character) => {
                // JSON spells a character beyond the first plane as two units.
                for unit in character.encode_utf16(&mut [0; 2]) {
                    escaped.push_str(&format!("\\u{unit:04x}"));
                }
            }
            _ => escaped.push(character),
        }
    }
    escaped
}

/// Returns whether a terminal may take the character as a command, or whether it may mislead a person.
fn steers(character: char) -> bool {
    character.is_control() || misleads(character)
}

/// Returns whether the character would make a person read something else than the text contains.
fn misleads(character: char) -> bool {
    // Joiners, and the selector that makes an emoji of a sign.
    if matches!(character, '\u{200c}' | '\u{200d}' | '\u{fe0f}') {
        return false;
    }
    // The separators of lines and paragraphs inside a text.
    matches!(character, '\u{2028}' | '\u{2029}')
        || is_ignorable(character)
        || is_format(character)
        // Terminals draw nothing for the Braille pattern without dots and for the null note head.
        || matches!(character, '\u{2800}' | '\u{1d159}')
}

/// Returns whether Unicode 16.0 gives the character the property `Default_Ignorable_Code_Point` (DerivedCoreProperties.txt). Nobody sees
/// such a character, unless a program knows what to do with it. The property includes code points that are not assigned yet.
fn is_ignorable(character: char) -> bool {
    matches!(
        character,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Returns whether the character has the general category `Cf` of Unicode 16.0 (DerivedGeneralCategory.txt) but not the property above.
/// Such characters turn the direction of text, for example. The signs in front of Arabic numbers and verses (U+0600 to U+0605, U+06DD,
/// U+0890, U+0891, U+08E2) are visible, and stay.
fn is_format(character: char) -> bool {
    matches!(
        character,
        '\u{70f}' | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}'
    )
}

/// A filter that makes plain text of bytes in pieces, wherever the pieces were cut.
#[derive(Debug, Default)]
pub struct PlainBytes {
    plain: PlainText,
    /// The beginning of a character whose rest is in the next piece.
    unfinished: Vec<u8>,
}

impl PlainBytes {
    /// Returns the plain text of the next piece.
    pub fn take(&mut self, piece: &[u8]) -> String {
        let bytes = [std::mem::take(&mut self.unfinished).as_slice(), piece].concat();
        let mut text = String::with_capacity(bytes.len());
        for chunk in bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            match std::str::from_utf8(chunk.invalid()) {
                Err(error) if error.error_len().is_none() => self.unfinished = chunk.invalid().to_owned(),
                Err(_) => text.push(char::REPLACEMENT_CHARACTER),
                Ok(_) => {}
            }
        }
        self.plain.take(&text)
    }
}

/// A filter that takes control sequences out of a text that comes in pieces.
#[derive(Debug, Default)]
pub struct PlainText {
    state: EscapeState,
    /// Whether the last character was a carriage return, whose meaning the next character decides.
    has_returned: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum EscapeState {
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// Inside a sequence with parameters, such as for colours.
    Parameters,
    /// Inside a string for the terminal, such as for its title.
    Title,
}

impl PlainText {
    /// Returns the plain text of the next piece.
    pub fn take(&mut self, piece: &str) -> String {
        let mut plain = String::with_capacity(piece.len());
        for character in piece.chars() {
            self.state = self.next(character, &mut plain);
        }
        plain
    }

    fn next(&mut self, character: char, plain: &mut String) -> EscapeState {
        // If a program overwrites a line, the versions become lines one below the other.
        if std::mem::take(&mut self.has_returned) && character != '\n' {
            plain.push('\n');
        }
        match (self.state, character) {
            (_, '\n') => {
                plain.push('\n');
                EscapeState::Text
            }
            (_, '\u{1b}') => EscapeState::Escape,
            (EscapeState::Text, '\t') => {
                plain.push('\t');
                EscapeState::Text
            }
            (EscapeState::Text, '\r') => {
                self.has_returned = true;
                EscapeState::Text
            }
            (EscapeState::Text, '\u{9b}') | (EscapeState::Escape, '[') => EscapeState::Parameters,
            (EscapeState::Text, '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}')
            | (EscapeState::Escape, ']' | 'P' | 'X' | '^' | '_') => EscapeState::Title,
            (EscapeState::Text, character) => {
                if !steers(character) {
                    plain.push(character);
                }
                EscapeState::Text
            }
            (EscapeState::Escape, ' '..='/') => EscapeState::Escape,
            (EscapeState::Escape, _)
            | (EscapeState::Parameters, '@'..='~')
            | (EscapeState::Title, '\u{7}' | '\u{9c}') => EscapeState::Text,
            (EscapeState::Parameters | EscapeState::Title, _) => self.state,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whole, and in pieces of one character.
    fn check(text: &str, expect: &str) {
        assert_eq!(PlainText::default().take(text), expect, "{text:?}");
        let mut plain = PlainText::default();
        let pieces: String = text.chars().map(|character| plain.take(&character.to_string())).collect();
        assert_eq!(pieces, expect, "{text:?} in pieces");
    }

    #[test]
    fn what_steers_a_terminal_is_taken_out() {
        check("plain\ttext äö\n", "plain\ttext äö\n");
        check("\u{1b}[1;31mred\u{1b}[0m", "red");
        check("\u{1b}]0;title\u{7}a\u{1b}]0;title\u{1b}\\b", "ab");
        check("a\u{1b}(Bb\u{1b}7c", "abc");
        check("\u{9b}31mred\u{9d}title\u{9c}.", "red.");
        check("bell\u{7} back\u{8}\u{7f}\0", "bell back");
        check("10%\r20%\r\nend\r\n", "10%\n20%\nend\n");
    }

    #[test]
    fn a_sequence_that_does_not_end_hides_the_rest_of_its_line_alone() {
        check("\u{1b}]0;never ends\nnext\n", "\nnext\n");
        check("\u{1b}[31\nnext", "\nnext");
        check("\u{1b}\u{1b}[0mtext", "text");
    }

    #[test]
    fn a_terminal_is_given_whole_characters_wherever_the_pieces_were_cut() {
        let text = "grüße\u{1b}[31m 世界 🦀\n".as_bytes();
        for cut in 0..=text.len() {
            let mut plain = PlainBytes::default();
            let pieces = [plain.take(&text[..cut]), plain.take(&text[cut..])];
            assert_eq!(pieces.concat(), "grüße 世界 🦀\n", "cut at {cut}");
        }
        assert_eq!(PlainBytes::default().take(b"a\xff\xfeb"), "a\u{fffd}\u{fffd}b");
    }

    #[test]
    fn f_40_nobody_is_misled_by_what_is_not_seen_or_turned() {
        let misleading = "\u{202a}\u{202e}\u{2066}\u{2069}\u{200e}\u{200f}\u{61c}\u{2028}\u{2029}\u{200b}\u{e0001}\u{e007f}";
        check(&format!("a{misleading}b"), "ab");
        // Scripts and emoji need the joiners.
        let joined = "\u{645}\u{6cc}\u{200c}\u{62e} \u{1f469}\u{200d}\u{1f52c} \u{2764}\u{fe0f}";
        check(joined, joined);
        assert_eq!((escaped(joined).as_str(), escaped_json(joined).as_str()), (joined, joined));
        for one in misleading.chars() {
            let spelt = format!("\\u{{{:x}}}", u32::from(one));
            assert_eq!(escaped(&one.to_string()), spelt);
            assert_eq!(escaped_lines(&one.to_string()), spelt);
            let json = format!("\"{one}\"");
            let escaped = escaped_json(&json);
            assert!(escaped.is_ascii(), "{escaped}");
            assert_eq!(serde_json::from_str::<String>(&escaped).expect("JSON"), one.to_string());
        }
    }

    #[test]
    fn f_40_what_unicode_says_is_not_seen_reaches_no_terminal() {
        let unseen = [
            0xad..=0xad,
            0x34f..=0x34f,
            0x61c..=0x61c,
            0x70f..=0x70f,
            0x115f..=0x1160,
            0x17b4..=0x17b5,
            0x180b..=0x180f,
            0x200b..=0x200b,
            0x200e..=0x200f,
            0x2028..=0x202e,
            0x2060..=0x206f,
            0x2800..=0x2800,
            0x3164..=0x3164,
            0xfe00..=0xfe0e,
            0xfeff..=0xfeff,
            0xffa0..=0xffa0,
            0xfff0..=0xfffb,
            0x110bd..=0x110bd,
            0x110cd..=0x110cd,
            0x13430..=0x1343f,
            0x1bca0..=0x1bca3,
            0x1d159..=0x1d159,
            0x1d173..=0x1d17a,
            0xe0000..=0xe0fff,
        ];
        for number in 0xa0..=0x10_ffff {
            let Some(one) = char::from_u32(number) else { continue };
            let is_unseen = unseen.iter().any(|range| range.contains(&number));
            let expect = if is_unseen { format!("a\\u{{{number:x}}}b") } else { format!("a{one}b") };
            assert_eq!(escaped(&format!("a{one}b")), expect, "U+{number:04X}");
        }
    }

    #[test]
    fn f_40_json_keeps_its_meaning_and_steers_nothing() {
        let json = "{\n\t\"a\": \"\u{9b}31mred\u{7f}\u{202e}ä\",\r\"b\": 1}";
        let escaped = escaped_json(json);
        assert_eq!(escaped, "{\n\t\"a\": \"\\u009b31mred\\u007f\\u202eä\", \"b\": 1}");
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
        assert_eq!(read(&escaped), read(json));
    }

    #[test]
    fn f_40_a_message_keeps_its_lines_and_nothing_else_that_steers() {
        assert_eq!(escaped_lines("a\n\tb\u{1b}]52;c\u{9c}\r"), "a\n\tb\\u{1b}]52;c\\u{9c}\\r");
    }

    #[test]
    fn a_name_stays_on_its_line() {
        assert_eq!(escaped("simulate α"), "simulate α");
        assert_eq!(escaped("a\u{1b}[2J\nb\u{202e}c"), "a\\u{1b}[2J\\nb\\u{202e}c");
    }

    #[test]
    fn what_is_cut_takes_no_more_columns_than_there_are() {
        assert_eq!((width("abc"), width("模拟"), width("e\u{301}")), (3, 4, 1));
        for (line, columns, expect) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("模拟整", 5, "模拟…"),
            ("模拟整", 4, "模…"),
            ("ab", 0, ""),
        ] {
            assert_eq!(fitted(line, columns), expect, "{line} {columns}");
        }
        assert_eq!((padded("模拟整", 4).as_str(), padded("a", 3).as_str()), ("模… ", "a  "));
    }
}
