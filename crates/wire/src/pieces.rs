//! Cuts one line into messages, invalid messages and junk. The docs of [`read`] have the rules.
//!
//! Invariants
//!
//! - Every byte of the line that is not white space is in exactly one piece, or is a bracket or comma of a batch.
//! - Nothing is recovered from inside a string, or from inside anything that is or may be a JSON value.
//! - Each byte is parsed a constant number of times. A parse that fails ends the line, or is never repeated over the same bytes. Pieces are
//!   made one by one, so a hostile line of millions of them costs no memory.
//! - Nothing recurses with the nesting of the JSON.

use crate::Json;
use crate::envelope::Envelope;
use crate::envelope_scan::EnvelopeScan;
use crate::json::{array, blanks, is_blank};
use crate::message::{Invalid, InvalidReason, MessageShape, Piece};

/// The most elements of a batch that are read. A line of 64 MiB could hold thirty million, and each costs memory here.
pub const MAX_BATCH: usize = 10_000;

/// Cuts a line into its pieces, lazily. A line that is one valid message costs one pass and no memory.
///
/// # Which objects are JSON-RPC
///
/// An object is judged by which of these members it has: `jsonrpc` (J), `id` (I), `method` (M), and `result` or `error` (O).
///
/// | members | piece |
/// |---|---|
/// | J, and all as JSON-RPC 2.0 demands | [`Piece::Message`] |
/// | J, but otherwise | [`Piece::Invalid`] |
/// | no J, but I and M, or I and O | [`Piece::Invalid`], [`InvalidReason::MissingVersion`] |
/// | no J, and anything less (a log record in JSON, say) | [`Piece::Junk`] |
///
/// A line that is one array is a [`Piece::Batch`]. Its elements are judged the same way, except that an element that is not an object is
/// invalid. An empty array is invalid. Any other JSON value is junk.
///
/// # Lines that are not one JSON value
///
/// Servers print log text on the protocol's stream, with or without a line feed (protocol.md 3.2). So the line is read from left to right:
///
/// 1. A whole object is judged by the table: a brace, followed by a quote or the closing brace, that parses to its end. Behind text, only a
///    valid message is accepted: text may well quote an invalid one.
/// 2. An object that begins like that and does not parse takes the rest of the line with it: it is unknown where it ends. It may be cut
///    off or wrong in the middle. A message found further on may be one of its members or the contents of a string. Behind text the rest
///    is junk. Otherwise it is one [`Piece::Invalid`], with the id that can be read at the top level.
/// 3. Any other brace is text. While one is open, messages are not accepted: they would be members of something that is not quite JSON,
///    such as `{ body: {"jsonrpc":…} }` from a JavaScript console.
/// 4. A bracket is text too (`[INFO]`, terminal escapes), unless a quote or an object follows it with nothing but numbers, commas and
///    brackets between. Then it is an array. If it does not parse, it takes the rest of the line as in 2, as junk. If it does parse, it is
///    junk unless all its elements are valid messages.
/// 5. Everything else is text. Text that stands together is one [`Piece::Junk`].
///
/// Junk in a request stream should be answered without an id (-32700): real servers stay silent on it, and the sender would wait for ever
/// (contract 4). In a response stream it is only logged.
pub fn read(line: &[u8]) -> Pieces<'_> {
    Pieces { line, at: 0, begun: false, text: false, open_braces: 0, found: None }
}

/// The pieces of one line, in order, as [`read`] cuts them.
#[derive(Clone, Debug)]
pub struct Pieces<'a> {
    line: &'a [u8],
    at: usize,
    /// Whether something other than white space was seen.
    begun: bool,
    /// Whether text that is not a JSON object was seen.
    text: bool,
    /// The number of open braces in text.
    open_braces: usize,
    /// The piece behind junk that had to be handed out first.
    found: Option<Piece<'a>>,
}

/// The outcome of one step over the line.
enum PieceStep<'a> {
    Take(Piece<'a>),
    /// The bytes that were stepped over are junk.
    Skip,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        if let Some(piece) = self.found.take() {
            return Some(piece);
        }
        let mut junk = None;
        loop {
            self.at += blanks(self.rest());
            let start = self.at;
            if start == self.line.len() {
                return junk.map(|from| self.junk(from, start));
            }
            let step = self.step();
            self.begun = true;
            match (step, junk) {
                (PieceStep::Skip, _) => junk = junk.or(Some(start)),
                (PieceStep::Take(piece), None) => return Some(piece),
                (PieceStep::Take(piece), Some(from)) => {
                    self.found = Some(piece);
                    return Some(self.junk(from, start));
                }
            }
        }
    }
}

impl std::iter::FusedIterator for Pieces<'_> {}

impl<'a> Pieces<'a> {
    fn rest(&self) -> &'a [u8] {
        &self.line[self.at..]
    }

    fn junk(&self, from: usize, to: usize) -> Piece<'a> {
        Piece::Junk(trim_end(&self.line[from..to]))
    }

    /// Steps over one JSON value or some text.
    fn step(&mut self) -> PieceStep<'a> {
        match self.rest().first() {
            Some(b'{') if begins_object(self.rest()) => self.object(),
            Some(b'{') => {
                self.open_braces += 1;
                self.skip_text(1)
            }
            Some(b'}') => {
                self.open_braces = self.open_braces.saturating_sub(1);
                self.skip_text(1)
            }
            Some(b'[') => self.array(),
            _ => {
                let rest = self.rest();
                let found = memchr::memchr3(b'{', b'}', b'[', rest);
                self.skip_text(found.unwrap_or(rest.len()))
            }
        }
    }

    fn skip_text(&mut self, length: usize) -> PieceStep<'a> {
        self.at += length;
        self.text = true;
        PieceStep::Skip
    }

    fn object(&mut self) -> PieceStep<'a> {
        let rest = self.rest();
        let Some((envelope, length)) = Envelope::read(rest) else {
            return self.broken();
        };
        self.at += length;
        let piece = envelope.classify(&rest[..length]);
        let outermost = self.open_braces == 0;
        let is_taken = match piece {
            Piece::Message(_) => outermost,
            Piece::Invalid(_) => outermost && !self.text,
            Piece::Batch(_) | Piece::Junk(_) => false,
        };
        if is_taken { PieceStep::Take(piece) } else { PieceStep::Skip }
    }

    /// Takes the rest of the line for an object that is broken or cut off.
    fn broken(&mut self) -> PieceStep<'a> {
        let raw = trim_end(self.rest());
        self.at = self.line.len();
        if self.text {
            return PieceStep::Skip;
        }
        let mut envelope_scan = EnvelopeScan::default();
        envelope_scan.feed(raw);
        let skimmed = envelope_scan.finish();
        let reason = if std::str::from_utf8(raw).is_ok() {
            InvalidReason::NotJson
        } else {
            InvalidReason::InvalidUtf8
        };
        PieceStep::Take(Piece::Invalid(Invalid {
            raw,
            id: skimmed.id,
            raw_id: None,
            shape: skimmed.shape,
            reason,
        }))
    }

    fn array(&mut self) -> PieceStep<'a> {
        let rest = self.rest();
        let json = begins_array(rest);
        if self.begun && json.is_err() {
            return self.skip_text(json.err().unwrap_or(1));
        }
        match (BatchElements::read(rest), json) {
            (Some((batch, length)), _) => {
                self.at += length;
                let alone = !self.begun && blanks(self.rest()) == self.rest().len();
                if alone {
                    return PieceStep::Take(batch.piece(&rest[..length]));
                }
                if self.open_braces == 0 && batch.is_messages() {
                    return PieceStep::Take(Piece::Batch(batch.pieces));
                }
                self.skip_text(0)
            }
            (None, Err(length)) => self.skip_text(length),
            (None, Ok(())) => self.skip_text(rest.len()),
        }
    }
}

/// The elements of a JSON array.
struct BatchElements<'a> {
    pieces: Vec<Piece<'a>>,
    overflow: bool,
}

impl<'a> BatchElements<'a> {
    /// Reads the array at the beginning of `text`, and returns it with its length. Returns `None` if it is broken or not in UTF-8.
    fn read(text: &'a [u8]) -> Option<(Self, usize)> {
        let mut batch = BatchElements { pieces: Vec::new(), overflow: false };
        let length = array(text, |element| {
            if batch.pieces.len() < MAX_BATCH {
                batch.pieces.push(Self::element(Json::in_utf8(element)?));
            } else {
                batch.overflow = true;
            }
            Some(())
        })?;
        Some((batch, length))
    }

    fn piece(self, raw: &'a [u8]) -> Piece<'a> {
        let reason = match (self.overflow, self.pieces.is_empty()) {
            (true, _) => InvalidReason::LongBatch,
            (false, true) => InvalidReason::EmptyBatch,
            (false, _) => return Piece::Batch(self.pieces),
        };
        Piece::Invalid(Invalid { raw, id: None, raw_id: None, shape: MessageShape::Unknown, reason })
    }

    fn is_messages(&self) -> bool {
        let all = self.pieces.iter().all(|piece| matches!(piece, Piece::Message(_)));
        (all) && !self.overflow && !self.pieces.is_empty()
    }

    fn element(element: Json<'a>) -> Piece<'a> {
        let raw = element.get().as_bytes();
        if let Some((envelope, _)) = raw.starts_with(b"{").then(|| Envelope::read(raw)).flatten() {
            return envelope.classify(raw);
        }
        let (shape, reason) = (MessageShape::Unknown, InvalidReason::NotAnObject);
        Piece::Invalid(Invalid { raw, id: None, raw_id: None, shape, reason })
    }
}

/// Returns whether a text that begins with a brace begins like a JSON object.
fn begins_object(bytes: &[u8]) -> bool {
    let inside = &bytes[1..];
    matches!(inside.get(blanks(inside)), Some(b'"' | b'}'))
}

/// Tells whether a text that begins with a bracket begins like a JSON array that may hold an object or a string.
///
/// # Errors
///
/// Fails with the length of the text that certainly holds neither, if it does not begin like such an array.
fn begins_array(bytes: &[u8]) -> Result<(), usize> {
    let mut depth = 0_usize;
    for (index, byte) in bytes.iter().enumerate() {
        match byte {
            b'[' => depth += 1,
            b']' if depth == 1 => return Err(index + 1),
            b']' => depth -= 1,
            b' ' | b'\t' | b'\r' | b'\n' | b',' | b'.' | b'+' | b'-' | b'0'..=b'9' => {}
            b'"' => return Ok(()),
            b'{' if begins_object(&bytes[index..]) => return Ok(()),
            _ => return Err(index),
        }
    }
    Err(bytes.len())
}

fn trim_end(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| !is_blank(*byte));
    &bytes[..end.map_or(0, |last| last + 1)]
}

#[cfg(test)]
mod tests;
