//! JSON text: the end of a value, and its members. Nothing is built.
//!
//! `serde_json` can do this too, but it looks at long strings eight bytes at a time. Results of many megabytes consist almost entirely of
//! such strings.
//!
//! Invariants
//!
//! - This module accepts exactly the values that `serde_json` accepts when it skips a value: RFC 8259, where an escape may be half a
//!   surrogate pair.
//! - Every byte is looked at once, and nothing recurses with the nesting.
//! - A [`Json`] is one whole value, in UTF-8, without white space around it.

use std::borrow::Cow;

use memchr::memchr2;

/// The longest run of plain bytes in a string that is looked at a word at a time alone.
const SHORT_RUN: usize = 64;
/// The number of bytes of a longer run that are looked at together.
const STRETCH: usize = 4096;

/// A JSON value as it stands in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Json<'a>(&'a str);

impl<'a> Json<'a> {
    /// An object without members.
    pub const EMPTY: Json<'static> = Json("{}");

    /// Reads bytes that are one value, with or without white space around it. Returns `None` if they are not.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let mut cursor = Cursor { text: bytes, at: 0 };
        cursor.skip_blanks();
        let value = cursor.value()?;
        cursor.skip_blanks();
        (cursor.at == bytes.len()).then(|| Self::in_utf8(value)).flatten()
    }

    /// Takes a value that this module has found. Returns `None` if it is not in UTF-8.
    pub(crate) fn in_utf8(value: &'a [u8]) -> Option<Self> {
        std::str::from_utf8(value).ok().map(Self)
    }

    /// Returns the JSON text.
    pub fn get(self) -> &'a str {
        self.0
    }

    /// Returns the contents of a string, borrowed if it has no escapes. Returns `None` for other values and for half a surrogate pair.
    pub fn text(self) -> Option<Cow<'a, str>> {
        let text = self.0.strip_prefix('"')?.strip_suffix('"')?;
        if memchr::memchr(b'\\', text.as_bytes()).is_none() {
            return Some(Cow::Borrowed(text));
        }
        serde_json::from_str(self.0).ok().map(Cow::Owned)
    }

    /// Finds a member of an object. If several members have this name, the last one counts.
    pub fn member(self, name: &str) -> Option<Json<'a>> {
        let mut found = None;
        object(self.0.as_bytes(), |key, value| {
            if is_named(key, name) {
                found = Some(value);
            }
            Some(())
        })?;
        Self::in_utf8(found?)
    }

    /// Passes the name and the value of every member to `each`, in order, as they stand in the text. Returns false if the value is not an
    /// object.
    pub fn each_member(self, mut each: impl FnMut(Json<'a>, Json<'a>)) -> bool {
        let members = object(self.0.as_bytes(), |name, value| {
            each(Self::in_utf8(name)?, Self::in_utf8(value)?);
            Some(())
        });
        members.is_some()
    }

    /// Passes every element of an array to `each`, in order, as it stands in the text. Returns false if the value is not an array.
    pub fn each_element(self, mut each: impl FnMut(Json<'a>)) -> bool {
        let elements = array(self.0.as_bytes(), |element| {
            each(Self::in_utf8(element)?);
            Some(())
        });
        elements.is_some()
    }
}

/// Returns whether the key of a member, as it stands in the text, is this name.
fn is_named(key: &[u8], name: &str) -> bool {
    match memchr::memchr(b'\\', key) {
        None => key.strip_prefix(b"\"").and_then(|key| key.strip_suffix(b"\"")) == Some(name.as_bytes()),
        Some(_) => Json::in_utf8(key).and_then(Json::text).is_some_and(|key| key == name),
    }
}

/// Passes every member of the object at the beginning of `text` to `each`, names with their quotes. Returns the object's length, or `None`
/// if it is broken or `each` gives up.
pub(crate) fn object<'a>(
    text: &'a [u8],
    mut each: impl FnMut(&'a [u8], &'a [u8]) -> Option<()>,
) -> Option<usize> {
    let mut cursor = Cursor { text, at: 0 };
    let mut more = cursor.open(b'{', b'}')?;
    while more {
        let name = cursor.name()?;
        each(name, cursor.value()?)?;
        more = cursor.more(b'}')?;
    }
    Some(cursor.at)
}

/// Passes every element of the array at the beginning of `text` to `each`. Returns the array's length, or `None` if it is broken or `each`
/// gives up.
pub(crate) fn array<'a>(text: &'a [u8], mut each: impl FnMut(&'a [u8]) -> Option<()>) -> Option<usize> {
    let mut cursor = Cursor { text, at: 0 };
    let mut more = cursor.open(b'[', b']')?;
    while more {
        each(cursor.value()?)?;
        more = cursor.more(b']')?;
    }
    Some(cursor.at)
}

/// Counts the bytes of white space at the beginning.
pub(crate) fn blanks(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| !is_blank(*byte)).unwrap_or(bytes.len())
}

/// Returns whether JSON treats this byte as white space. ASCII has more white space than JSON.
pub(crate) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// The levels of a value for which [`ClosingBrackets`] allocates nothing.
const FEW_LEVELS: usize = 16;

/// The closing brackets that are still missing, the innermost last. Every message is read with this.
#[derive(Default)]
struct ClosingBrackets {
    few: [u8; FEW_LEVELS],
    more: Vec<u8>,
    levels: usize,
}

impl ClosingBrackets {
    fn push(&mut self, close: u8) {
        match self.few.get_mut(self.levels) {
            Some(place) => *place = close,
            None => self.more.push(close),
        }
        self.levels += 1;
    }

    fn last(&self) -> Option<u8> {
        let last = self.levels.checked_sub(1)?;
        self.few.get(last).or_else(|| self.more.last()).copied()
    }

    fn pop(&mut self) {
        self.levels = self.levels.saturating_sub(1);
        self.more.truncate(self.levels.saturating_sub(FEW_LEVELS));
    }
}

/// A place in a text. Each method steps over the part that it is named after. It returns `None` if that part is missing or broken.
struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn rest(&self) -> &'a [u8] {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    fn skip_blanks(&mut self) {
        self.at += blanks(self.rest());
    }

    /// Steps over the beginning of an object or array. Returns whether it has any contents.
    fn open(&mut self, open: u8, close: u8) -> Option<bool> {
        self.expect(open)?;
        self.skip_blanks();
        let empty = self.peek()? == close;
        self.at += usize::from(empty);
        Some(!empty)
    }

    /// Steps over the comma or bracket behind a member or element. Returns whether another one follows.
    fn more(&mut self, close: u8) -> Option<bool> {
        self.skip_blanks();
        match self.next()? {
            b',' => {
                self.skip_blanks();
                Some(true)
            }
            byte => (byte == close).then_some(false),
        }
    }

    /// Steps over the name of a member and its colon. Returns the name.
    fn name(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        self.expect(b'"')?;
        self.string()?;
        let name = &self.text[start..self.at];
        self.skip_blanks();
        self.expect(b':')?;
        self.skip_blanks();
        Some(name)
    }

    /// Steps over a value of any kind. Returns its text.
    fn value(&mut self) -> Option<&'a [u8]> {
        let start = self.at;
        let mut closing = ClosingBrackets::default();
        loop {
            let inside = match self.peek()? {
                b'{' => self.open(b'{', b'}')?.then_some(b'}'),
                b'[' => self.open(b'[', b']')?.then_some(b']'),
                _ => {
                    self.scalar()?;
                    None
                }
            };
            let mut more = inside.is_some();
            if let Some(close) = inside {
                closing.push(close);
            }
            while !more {
                let Some(close) = closing.last() else { return Some(&self.text[start..self.at]) };
                more = self.more(close)?;
                if !more {
                    closing.pop();
                }
            }
            if closing.last() == Some(b'}') {
                self.name()?;
            }
        }
    }

    /// Steps over a value without members or elements.
    fn scalar(&mut self) -> Option<()> {
        match self.next()? {
            b'"' => self.string(),
            b't' => self.literal(b"rue"),
            b'f' => self.literal(b"alse"),
            b'n' => self.literal(b"ull"),
            b'-' => {
                let first = self.next()?;
                self.number(first)
            }
            first => self.number(first),
        }
    }

    fn literal(&mut self, rest: &[u8]) -> Option<()> {
        self.at += self.rest().starts_with(rest).then_some(rest.len())?;
        Some(())
    }

    /// Steps over the rest of a number, behind its first digit.
    fn number(&mut self, first: u8) -> Option<()> {
        match first {
            b'0' if self.peek().is_some_and(|byte| byte.is_ascii_digit()) => return None,
            b'0' => {}
            b'1'..=b'9' => self.at += digits(self.rest()),
            _ => return None,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.some_digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            self.some_digits()?;
        }
        Some(())
    }

    fn some_digits(&mut self) -> Option<()> {
        let count = digits(self.rest());
        self.at += count;
        (count > 0).then_some(())
    }

    /// Steps over the rest of a string, behind its opening quote.
    fn string(&mut self) -> Option<()> {
        loop {
            self.at += plain(self.rest());
            match self.next()? {
                b'"' => return Some(()),
                b'\\' => self.escape()?,
                _ => return None,
            }
        }
    }

    /// Steps over the rest of an escape, behind its backslash.
    fn escape(&mut self) -> Option<()> {
        match self.next()? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(()),
            b'u' => {
                let digits = self.rest().first_chunk::<4>()?;
                self.at += digits.len();
                digits.iter().all(u8::is_ascii_hexdigit).then_some(())
            }
            _ => None,
        }
    }
}

fn digits(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(bytes.len())
}

/// Counts the bytes at the beginning that are neither a quote, nor a backslash, nor a control character.
fn plain(bytes: &[u8]) -> usize {
    // Most runs are short. In long runs, `memchr` finds quotes and backslashes faster than any loop here; control characters remain.
    // Both look at the same few kilobytes, so that the second finds them in the first cache. None of it depends on the optimiser:
    // a program that is built for size is as fast.
    let (short, long) = bytes.split_at(bytes.len().min(SHORT_RUN));
    let mut count = plain_by_words(short);
    if count < short.len() {
        return count;
    }
    for stretch in long.chunks(STRETCH) {
        let end = printable(&stretch[..memchr2(b'"', b'\\', stretch).unwrap_or(stretch.len())]);
        count += end;
        if end < stretch.len() {
            break;
        }
    }
    count
}

/// Counts the bytes at the beginning that are not control characters.
fn printable(bytes: &[u8]) -> usize {
    let controls =
        |words: &[[u8; 8]]| words.iter().fold(0, |all, word| all | controls_in(u64::from_le_bytes(*word)));
    let (words, rest) = bytes.as_chunks::<8>();
    let (fours, _) = words.as_chunks::<4>();
    let start = 4 * fours.iter().take_while(|four| controls(&four[..]) == 0).count();
    let position = words[start..].iter().position(|word| controls_in(u64::from_le_bytes(*word)) != 0);
    match position {
        Some(index) => {
            let at = start + index;
            8 * at + controls_in(u64::from_le_bytes(words[at])).trailing_zeros() as usize / 8
        }
        None => 8 * words.len() + rest.iter().position(|byte| *byte < b' ').unwrap_or(rest.len()),
    }
}

/// Counts the same bytes as [`plain`], eight at a time.
fn plain_by_words(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let found = ends_run_in(u64::from_le_bytes(*word));
        if found != 0 {
            return 8 * index + found.trailing_zeros() as usize / 8;
        }
    }
    8 * words.len() + rest.iter().position(|byte| ends_run(*byte)).unwrap_or(rest.len())
}

fn ends_run(byte: u8) -> bool {
    byte == b'"' || byte == b'\\' || byte < b' '
}

/// Applies [`ends_run`] to eight bytes. The lowest bit that is set is the highest bit of the first byte that ends a run.
fn ends_run_in(word: u64) -> u64 {
    let is = |byte: u8| below(word ^ (EACH * u64::from(byte)), 1);
    controls_in(word) | ((is(b'"') | is(b'\\')) & HIGHEST)
}

/// Finds control characters among eight bytes. The lowest bit that is set is the highest bit of the first one.
fn controls_in(word: u64) -> u64 {
    below(word, b' ') & HIGHEST
}

const EACH: u64 = u64::from_ne_bytes([1; 8]);
const HIGHEST: u64 = EACH << 7;

/// Sets the highest bit of each byte below `limit`. A byte below it borrows: the borrow changes only bytes above it, which no longer
/// matter.
fn below(word: u64, limit: u8) -> u64 {
    word.wrapping_sub(EACH * u64::from(limit)) & !word
}

#[cfg(test)]
mod tests;
