//! A scanner that reads the top-level `id` and `method` of one JSON object without keeping the object.
//!
//! It serves lines that are too long to be held, and objects that are broken, so that the sender of the request still gets an answer. It
//! takes chunks of any size and holds a few hundred bytes.
//!
//! Invariants
//!
//! - Only members at the top level count, wherever they stand. Strings and nested values are stepped over.
//! - Nothing is guessed. An id does not count if it occurs twice, is too long, is cut off, or is neither a string nor an integer. A quote
//!   in a place where JSON allows none may mean that strings and text are the wrong way round. Nothing after it is believed.
//! - On valid JSON it agrees with a full parser.

use crate::message::MessageShape;
use crate::{Id, Json};

/// The longest name of a member that is looked at, in bytes with escapes. `jsonrpc` in `\u` escapes has 42.
const MAX_NAME: usize = 64;

/// The longest `method` that is read, in bytes of JSON text.
const MAX_METHOD: usize = 512;

/// The parts of the envelope that the scanner found.
#[derive(Clone, Debug)]
pub(crate) struct ScannedEnvelope {
    pub(crate) id: Option<Id>,
    pub(crate) method: Option<String>,
    pub(crate) shape: MessageShape,
}

/// The scanner. It takes the bytes of one line in order.
#[derive(Debug, Default)]
pub(crate) struct EnvelopeScan {
    state: ScanState,
    expect: Expect,
    depth: u64,
    /// A bit for each depth that tells whether the container is an array. Containers nested deeper than the bits reach are not checked.
    arrays: u64,
    /// The last byte outside of strings that is not white space, or a quote after a string.
    last: u8,
    reading: ScannedText,
    /// The text that is being read. It is empty if it grew over its bound.
    text: Vec<u8>,
    overflow: bool,
    id: ScannedMember,
    method: ScannedMember,
    outcome: bool,
    params: bool,
}

/// The scanner's place in the line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ScanState {
    #[default]
    Outside,
    InString,
    AfterBackslash,
    /// The object has ended, there was none, or the rest cannot be believed.
    Done,
}

/// The next part that the top level of the object awaits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Expect {
    #[default]
    Name,
    Colon,
    Value,
    /// The rest of a number or literal.
    Scalar,
    Comma,
}

/// The kind of the text that is being read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ScannedText {
    #[default]
    Nothing,
    Name,
    Id,
    Method,
}

/// A member that the scanner looks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum ScannedMember {
    #[default]
    Absent,
    Text(Vec<u8>),
    /// The member is too long, of a wrong type, cut off, or occurs twice.
    Unreadable,
}

impl EnvelopeScan {
    /// Reads the next bytes.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let used = match self.state {
                ScanState::Done => return,
                ScanState::Outside => self.outside(bytes),
                ScanState::InString => self.in_string(bytes),
                ScanState::AfterBackslash => {
                    self.state = ScanState::InString;
                    self.keep(&bytes[..1]);
                    1
                }
            };
            bytes = &bytes[used..];
        }
    }

    /// Returns the parts that were found, once the line has ended.
    pub(crate) fn finish(mut self) -> ScannedEnvelope {
        // A number that was cut off is another number. A string counts only if JSON went on correctly behind it.
        let cut_off = self.state == ScanState::Done || self.expect != Expect::Comma;
        self.overflow |= cut_off;
        self.end_value();
        let shape = MessageShape::of(
            self.method != ScannedMember::Absent,
            self.outcome,
            self.id != ScannedMember::Absent,
            self.params,
        );
        ScannedEnvelope {
            id: self.id.text().as_deref().and_then(Id::from_json),
            method: self.method.text().and_then(|text| json_string(text.as_bytes())),
            shape,
        }
    }

    /// Steps through text outside of strings, up to and including the next quote.
    fn outside(&mut self, bytes: &[u8]) -> usize {
        for (index, &byte) in bytes.iter().enumerate() {
            if matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
                if self.expect == Expect::Scalar && self.depth == 1 {
                    self.keep(&[byte]);
                }
                continue;
            }
            self.significant(byte);
            self.last = byte;
            if self.state != ScanState::Outside {
                return index + 1;
            }
        }
        bytes.len()
    }

    fn significant(&mut self, byte: u8) {
        if self.depth == 0 {
            match byte {
                b'{' => self.depth = 1,
                _ => self.state = ScanState::Done,
            }
            return;
        }
        let after_string = self.last == b'"';
        match byte {
            b'"' => self.open_string(),
            b'}' | b']' => self.close(byte),
            b',' | b':' if self.depth > 1 => {}
            b',' => self.comma(),
            b':' => self.colon(),
            _ if after_string => self.state = ScanState::Done,
            b'{' | b'[' => self.open(byte),
            b'\\' => self.state = ScanState::Done,
            _ if self.depth == 1 => self.scalar(byte),
            _ => {}
        }
    }

    fn open_string(&mut self) {
        if !matches!(self.last, b'{' | b'[' | b',' | b':') {
            self.state = ScanState::Done;
            return;
        }
        self.state = ScanState::InString;
        if self.depth > 1 {
            return;
        }
        match self.expect {
            Expect::Name => self.begin(ScannedText::Name),
            Expect::Value => {}
            Expect::Colon | Expect::Scalar | Expect::Comma => self.state = ScanState::Done,
        }
        self.keep(b"\"");
    }

    /// Steps through a string, up to and including its end.
    fn in_string(&mut self, bytes: &[u8]) -> usize {
        let Some(index) = memchr::memchr2(b'"', b'\\', bytes) else {
            self.keep(bytes);
            return bytes.len();
        };
        self.keep(&bytes[..=index]);
        if bytes[index] == b'\\' {
            self.state = ScanState::AfterBackslash;
        } else {
            self.state = ScanState::Outside;
            if self.depth == 1 {
                // The value counts once a comma or a brace follows. Without one, this quote may not have been its end.
                self.expect = if self.expect == Expect::Name { Expect::Colon } else { Expect::Comma };
            }
        }
        index + 1
    }

    fn open(&mut self, byte: u8) {
        if self.depth == 1 {
            if self.expect != Expect::Value {
                self.state = ScanState::Done;
                return;
            }
            // An id or a method cannot be an object or an array.
            self.overflow = true;
            self.end_value();
            self.expect = Expect::Comma;
        }
        self.depth += 1;
        let bit = self.depth_bit();
        self.arrays = if byte == b'[' { self.arrays | bit } else { self.arrays & !bit };
    }

    fn close(&mut self, byte: u8) {
        let bit = self.depth_bit();
        if bit != 0 && (self.arrays & bit != 0) != (byte == b']') {
            // A bracket closes a brace. It is unknown which of them is missing, so the depth is unknown too.
            self.state = ScanState::Done;
            return;
        }
        if self.depth == 1 {
            self.end_value();
            self.state = ScanState::Done;
        }
        self.depth -= 1;
    }

    /// Returns the bit of the innermost container, or zero if it is nested too deep.
    fn depth_bit(&self) -> u64 {
        u32::try_from(self.depth).ok().and_then(|depth| 1_u64.checked_shl(depth)).unwrap_or(0)
    }

    fn comma(&mut self) {
        match self.expect {
            Expect::Scalar | Expect::Comma => {
                self.end_value();
                self.expect = Expect::Name;
            }
            Expect::Name | Expect::Colon | Expect::Value => self.state = ScanState::Done,
        }
    }

    fn colon(&mut self) {
        if self.expect != Expect::Colon {
            self.state = ScanState::Done;
            return;
        }
        self.expect = Expect::Value;
        // A name that was too long has lost its closing quote, and matches nothing here.
        let name = json_string(&self.text);
        let reading = match name.as_deref() {
            Some("id") => ScannedText::Id,
            Some("method") => ScannedText::Method,
            Some("result" | "error") => {
                self.outcome = true;
                ScannedText::Nothing
            }
            Some("params") => {
                self.params = true;
                ScannedText::Nothing
            }
            _ => ScannedText::Nothing,
        };
        self.begin(reading);
    }

    fn scalar(&mut self, byte: u8) {
        match self.expect {
            Expect::Value | Expect::Scalar => {
                self.expect = Expect::Scalar;
                self.keep(&[byte]);
            }
            Expect::Name | Expect::Colon | Expect::Comma => self.state = ScanState::Done,
        }
    }

    fn begin(&mut self, reading: ScannedText) {
        self.reading = reading;
        self.text.clear();
        self.overflow = false;
    }

    /// Keeps bytes of the text that is being read, within its bound.
    fn keep(&mut self, bytes: &[u8]) {
        let bound = match self.reading {
            ScannedText::Nothing => return,
            ScannedText::Name => MAX_NAME,
            ScannedText::Id => Id::MAX_JSON,
            ScannedText::Method => MAX_METHOD,
        };
        if self.overflow {
            return;
        }
        if self.text.len() + bytes.len() > bound {
            self.overflow = true;
        } else {
            self.text.extend_from_slice(bytes);
        }
    }

    /// Ends a value of the top level, and stores it if it was looked for.
    fn end_value(&mut self) {
        let slot = match self.reading {
            ScannedText::Id => &mut self.id,
            ScannedText::Method => &mut self.method,
            ScannedText::Nothing | ScannedText::Name => return,
        };
        *slot = match slot {
            ScannedMember::Absent if !self.overflow => ScannedMember::Text(std::mem::take(&mut self.text)),
            _ => ScannedMember::Unreadable,
        };
        self.begin(ScannedText::Nothing);
    }
}

impl ScannedMember {
    fn text(self) -> Option<String> {
        match self {
            Self::Text(text) => String::from_utf8(text).ok(),
            Self::Absent | Self::Unreadable => None,
        }
    }
}

/// Decodes a JSON string.
fn json_string(bytes: &[u8]) -> Option<String> {
    Json::new(bytes)?.text().map(Into::into)
}

#[cfg(test)]
mod tests;
