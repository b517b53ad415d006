//! The reader of a server's stdout: it matches answers to requests, and notes all faults. Pure.
//!
//! Where [`unhang_upstream`] repairs faults for its caller, this reader keeps account of them.
//!
//! Invariants: an answer is matched by its id alone. Every fault is counted, but only a bounded part of it is kept.

use std::collections::HashMap;

use unhang_wire::{
    Body, Id, Invalid, InvalidReason, Line, Lines, Message, MessageShape, Piece, ResponseOutcome, read,
};

use super::observations::StdoutSeen;

/// The most pieces of a line that are looked at. A hostile line has millions.
const MOST_PIECES: usize = 1000;
/// A line shorter than this fits into one write.
const SHORT_LINE: u64 = 4 << 10;
/// The most questions of a server that are kept until they are answered.
const MOST_QUESTIONS: usize = 4096;

/// The most methods of such questions that are told apart.
const MOST_METHODS: usize = 50;

/// The outcome of a request.
#[derive(Clone, Debug)]
pub(super) enum ObservedReply {
    /// A result, as received.
    Result(String),
    /// An error.
    Error(i64, String),
    /// The answer that came cannot be used.
    Spoilt,
}

/// The state of one of our ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestFate {
    Waiting,
    Answered,
    Cancelled,
}

/// The reader of one server's stdout.
#[derive(Debug)]
pub(super) struct ResponseReader {
    lines: Lines,
    book: ReaderState,
    begun: bool,
    last_byte: u8,
    /// The number of reads, and of bytes, of the line that is not complete yet.
    pieces: u32,
    pending: u64,
}

/// The observations, and the requests that wait.
#[derive(Debug, Default)]
pub(super) struct ReaderState {
    pub(super) stdout_seen: StdoutSeen,
    /// Requests of the server that have no answer yet.
    pub(super) questions: Vec<(Id, String)>,
    /// Whether the server was sent lines that are not messages. It may answer them with an error that has no id.
    pub(super) is_excused: bool,
    fates: HashMap<i64, RequestFate>,
    replies: HashMap<i64, ObservedReply>,
    /// The ids in the order of their answers.
    order: Vec<i64>,
    /// Notifications since the last answer.
    notifications: u64,
    logs: u64,
}

impl ResponseReader {
    pub(super) fn new(max_message: usize) -> Self {
        let (lines, book) = (Lines::new(max_message), ReaderState::default());
        Self { lines, book, begun: false, last_byte: 0, pieces: 0, pending: 0 }
    }

    pub(super) fn book(&mut self) -> &mut ReaderState {
        &mut self.book
    }

    pub(super) fn stdout_seen(&self) -> &StdoutSeen {
        &self.book.stdout_seen
    }

    /// Returns whether there is an outcome of this request.
    pub(super) fn has_reply(&self, id: i64) -> bool {
        self.book.replies.contains_key(&id)
    }

    /// Takes bytes that were read.
    pub(super) fn hear(&mut self, mut bytes: &[u8]) {
        if !std::mem::replace(&mut self.begun, true) {
            self.book.stdout_seen.has_mark = bytes.starts_with(b"\xef\xbb\xbf");
        }
        self.notice_pieces(bytes);
        while !bytes.is_empty() {
            let spare = self.lines.spare();
            let (now, later) = bytes.split_at(bytes.len().min(spare.len()));
            spare[..now.len()].copy_from_slice(now);
            self.lines.filled(now.len());
            bytes = later;
            while let Some(line) = self.lines.next_line() {
                self.book.line(line);
            }
        }
    }

    /// Takes what is left at the end of the stream.
    pub(super) fn finish(&mut self) {
        while let Some(line) = self.lines.finish() {
            self.book.line(line);
        }
    }

    fn notice_pieces(&mut self, bytes: &[u8]) {
        let mut before = self.last_byte;
        for end in memchr::memchr_iter(b'\n', bytes) {
            let previous = end.checked_sub(1).map_or(before, |at| bytes[at]);
            self.book.stdout_seen.crlf += u64::from(previous == b'\r');
            before = b'\n';
        }
        self.last_byte = bytes.last().copied().unwrap_or(self.last_byte);
        self.pieces += 1;
        self.pending += bytes.len() as u64;
        if bytes.contains(&b'\n') {
            if self.pending < SHORT_LINE {
                self.book.stdout_seen.most_pieces = self.book.stdout_seen.most_pieces.max(self.pieces);
            }
            (self.pieces, self.pending) = (0, 0);
        }
    }
}

impl ReaderState {
    /// Notes that a request goes out under this id.
    pub(super) fn ask(&mut self, id: i64) {
        self.fates.insert(id, RequestFate::Waiting);
    }

    /// Notes that nobody waits for this request any more.
    pub(super) fn cancel(&mut self, id: i64) {
        self.fates.insert(id, RequestFate::Cancelled);
    }

    /// Takes the outcome of a request, if there is one.
    pub(super) fn take(&mut self, id: i64) -> Option<ObservedReply> {
        self.replies.remove(&id)
    }

    /// Returns whether the first request was answered before the other one. It counts as before if the other one was never answered.
    pub(super) fn came_first(&self, id: i64, other: i64) -> bool {
        let position = |wanted: i64| self.order.iter().position(|id| *id == wanted);
        position(id).is_some_and(|first| position(other).is_none_or(|second| first < second))
    }

    fn settle(&mut self, id: i64, reply: ObservedReply) {
        self.fates.insert(id, RequestFate::Answered);
        self.replies.insert(id, reply);
        self.order.push(id);
    }

    fn line(&mut self, line: Line<'_>) {
        let bytes = match line {
            Line::Whole(bytes) => bytes,
            Line::Oversized(oversized) => {
                self.stdout_seen.longest = self.stdout_seen.longest.max(oversized.length);
                match oversized.shape {
                    MessageShape::Response => self.spoil(oversized.id.as_ref()),
                    MessageShape::Unknown => {
                        self.stdout_seen.junk.add(format!("{} bytes", oversized.length).as_bytes());
                    }
                    MessageShape::Request => {}
                }
                return;
            }
        };
        self.stdout_seen.longest = self.stdout_seen.longest.max(bytes.len() as u64);
        let pieces: Vec<Piece<'_>> = read(bytes).take(MOST_PIECES).collect();
        let messages = pieces.iter().filter(|piece| !matches!(piece, Piece::Junk(_))).count();
        match (messages, pieces.len() - messages) {
            (0, _) => self.stdout_seen.junk.add(bytes),
            (_, 1..) => self.stdout_seen.glued.add(bytes),
            (2.., 0) => self.stdout_seen.crowded.add(bytes),
            (1, 0) => {}
        }
        pieces.into_iter().for_each(|piece| self.piece(piece));
    }

    fn piece(&mut self, piece: Piece<'_>) {
        match piece {
            Piece::Message(message) => self.message(&message),
            Piece::Batch(pieces) => {
                let sample = pieces.first().and_then(raw).unwrap_or_default();
                self.stdout_seen.batches.add(&[b"[", sample].concat());
                pieces.into_iter().for_each(|piece| self.piece(piece));
            }
            Piece::Invalid(invalid) => self.invalid(&invalid),
            Piece::Junk(_) => {}
        }
    }

    fn message(&mut self, message: &Message<'_>) {
        self.stdout_seen.deepest = self.stdout_seen.deepest.max(depth(message.raw));
        match &message.body {
            Body::Response { id, outcome, .. } => self.response(id, *outcome, message.raw),
            Body::Request { id, method, .. } => {
                let known = if self.stdout_seen.questions.len() < MOST_METHODS { method } else { "(others)" };
                *self.stdout_seen.questions.entry(shortened(known)).or_default() += 1;
                if self.questions.len() < MOST_QUESTIONS {
                    self.questions.push((id.clone(), method.as_ref().into()));
                }
            }
            Body::Notification { method, params } => {
                self.stdout_seen.notifications += 1;
                self.notifications += 1;
                self.logs += u64::from(method == "notifications/message");
                self.stdout_seen.most_notifications =
                    self.stdout_seen.most_notifications.max(self.notifications);
                if method == "notifications/progress"
                    && let Some(Id::Integer(token)) = params.and_then(unhang_wire::notified_token)
                    && self.fates.get(&token) == Some(&RequestFate::Cancelled)
                {
                    self.stdout_seen.progress_after_cancel += 1;
                }
            }
        }
    }

    fn response(&mut self, id: &Id, outcome: ResponseOutcome<'_>, bytes: &[u8]) {
        self.notifications = 0;
        let announced = std::mem::take(&mut self.logs) > 0;
        let number = match (id, id.variant()) {
            (Id::Integer(number), _) if self.fates.contains_key(number) => Some((*number, false)),
            (_, Some(Id::Integer(number))) if self.is_waiting(number) => Some((number, true)),
            _ => None,
        };
        let Some((number, is_retyped)) = number else {
            self.stdout_seen.misaddressed.add(bytes);
            self.spoil(None);
            return;
        };
        match self.fates.get(&number) {
            Some(RequestFate::Answered) => self.stdout_seen.repeated.add(bytes),
            Some(RequestFate::Cancelled) => self.stdout_seen.late.add(bytes),
            _ => {
                self.stdout_seen.answers += 1;
                self.stdout_seen.announced += u64::from(announced);
                if is_retyped {
                    self.stdout_seen.retyped.add(bytes);
                }
                let reply = match outcome {
                    ResponseOutcome::Result(result) => ObservedReply::Result(result.get().to_owned()),
                    ResponseOutcome::Error(error) => refusal(error.get()),
                };
                self.settle(number, reply);
            }
        }
    }

    fn invalid(&mut self, invalid: &Invalid<'_>) {
        let has_no_id =
            matches!(invalid.reason, InvalidReason::BadId | InvalidReason::MissingId | InvalidReason::LongId);
        if has_no_id && invalid.shape == MessageShape::Response {
            if self.is_excused {
                return;
            }
            self.stdout_seen.misaddressed.add(invalid.raw);
        } else {
            let reason = format!("{}: ", invalid.reason);
            self.stdout_seen.invalid.add(&[reason.as_bytes(), invalid.raw].concat());
        }
        if invalid.shape == MessageShape::Response {
            self.spoil(invalid.id.as_ref());
        }
    }

    /// Settles the request that an unusable answer was meant for: the one with this id, or else the only one that waits.
    fn spoil(&mut self, id: Option<&Id>) {
        let mut waiting = self.fates.iter().filter(|(_, fate)| **fate == RequestFate::Waiting);
        let only = match (waiting.next(), waiting.next()) {
            (Some((number, _)), None) => Some(*number),
            _ => None,
        };
        let named = id.and_then(|id| match id {
            Id::Integer(number) if self.is_waiting(*number) => Some(*number),
            _ => None,
        });
        if let Some(number) = named.or(only) {
            self.settle(number, ObservedReply::Spoilt);
        }
    }

    fn is_waiting(&self, number: i64) -> bool {
        self.fates.get(&number) == Some(&RequestFate::Waiting)
    }
}

fn raw<'a>(piece: &Piece<'a>) -> Option<&'a [u8]> {
    match piece {
        Piece::Message(message) => Some(message.raw),
        Piece::Invalid(invalid) => Some(invalid.raw),
        Piece::Junk(bytes) => Some(bytes),
        Piece::Batch(_) => None,
    }
}

fn refusal(error: &str) -> ObservedReply {
    #[derive(serde::Deserialize)]
    struct ReceivedError {
        code: i64,
        message: String,
    }
    match serde_json::from_str(error) {
        Ok(ReceivedError { code, message }) => ObservedReply::Error(code, message),
        // The code does not fit 64 bits, and has no meaning for us.
        Err(_) => ObservedReply::Error(0, error.to_owned()),
    }
}

/// Shortens a method. Methods are short, but a long one would be kept as often as it comes.
fn shortened(method: &str) -> String {
    unhang_core::wording::shortened(method, 60).into_owned()
}

/// Returns how deep arrays and objects are nested in valid JSON.
fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_text, mut is_escaped) = (0_usize, 0, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_text => is_escaped = true,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is heard of these bytes while request 1 waits.
    fn stdout_seen(bytes: &[u8]) -> (StdoutSeen, Option<ObservedReply>) {
        let mut reader = ResponseReader::new(1 << 20);
        reader.book().ask(1);
        reader.hear(bytes);
        reader.finish();
        (reader.stdout_seen().clone(), reader.book().take(1))
    }

    const ANSWER: &str = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;

    #[test]
    fn a_plain_answer_has_no_fault() {
        let (stdout_seen, reply) = stdout_seen(format!("{ANSWER}\n").as_bytes());
        assert!(matches!(reply, Some(ObservedReply::Result(result)) if result == "{}"));
        assert_eq!(
            (stdout_seen.answers, stdout_seen.junk.count, stdout_seen.crlf, stdout_seen.invalid.count),
            (1, 0, 0, 0)
        );
    }

    #[test]
    fn each_fault_is_counted_as_what_it_is() {
        type Count = fn(&StdoutSeen) -> u64;
        let cases: &[(&str, Count)] = &[
            ("INFO starting\nANSWER", |stdout_seen| stdout_seen.junk.count),
            ("INFO starting ANSWER", |stdout_seen| stdout_seen.glued.count),
            ("ANSWER{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}", |stdout_seen| {
                stdout_seen.crowded.count
            }),
            ("[ANSWER]", |stdout_seen| stdout_seen.batches.count),
            (r#"{"jsonrpc":"1.0","id":1,"result":{}}"#, |stdout_seen| stdout_seen.invalid.count),
            (r#"{"jsonrpc":"2.0","id":9,"result":{}}"#, |stdout_seen| stdout_seen.misaddressed.count),
            (r#"{"jsonrpc":"2.0","id":null,"result":{}}"#, |stdout_seen| stdout_seen.misaddressed.count),
            (r#"{"jsonrpc":"2.0","id":"1","result":{}}"#, |stdout_seen| stdout_seen.retyped.count),
            ("ANSWER\nANSWER", |stdout_seen| stdout_seen.repeated.count),
            ("ANSWER\r", |stdout_seen| stdout_seen.crlf),
            ("\u{feff}ANSWER", |stdout_seen| u64::from(stdout_seen.has_mark)),
            (r#"{"jsonrpc":"2.0","id":"q","method":"ping"}"#, |stdout_seen| stdout_seen.questions["ping"]),
        ];
        for (text, count) in cases {
            let (stdout_seen, _) = stdout_seen(format!("{}\n", text.replace("ANSWER", ANSWER)).as_bytes());
            assert_eq!(count(&stdout_seen), 1, "{text}: {stdout_seen:?}");
        }
    }

    #[test]
    fn an_answer_that_cannot_be_used_ends_the_wait() {
        for line in [
            r#"{"id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":null,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{"x":NaN}}"#,
        ] {
            let (_, reply) = stdout_seen(format!("{line}\n").as_bytes());
            assert!(matches!(reply, Some(ObservedReply::Spoilt)), "{line}: {reply:?}");
        }
    }

    #[test]
    fn what_is_cancelled_is_late_and_no_second_answer() {
        let mut reader = ResponseReader::new(1 << 20);
        reader.book().ask(1);
        reader.book().cancel(1);
        reader.hear(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":1,\"progress\":1}}\n");
        reader.hear(format!("{ANSWER}\n").as_bytes());
        let stdout_seen = reader.stdout_seen();
        assert_eq!(
            (stdout_seen.late.count, stdout_seen.repeated.count, stdout_seen.progress_after_cancel),
            (1, 0, 1)
        );
    }

    #[test]
    fn the_order_of_answers_is_known_though_they_come_at_once() {
        let mut reader = ResponseReader::new(1 << 20);
        reader.book().ask(1);
        reader.book().ask(2);
        reader.book().ask(3);
        reader.hear(
            b"{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n",
        );
        assert!(reader.book().came_first(2, 1) && reader.book().came_first(1, 3));
        assert!(!reader.book().came_first(1, 2) && !reader.book().came_first(3, 1));
    }

    #[test]
    fn nesting_is_counted_outside_of_texts() {
        assert_eq!(depth(br#"{"a":["[[[[\"[[",{"b":[]}]}"#), 4);
    }
}
