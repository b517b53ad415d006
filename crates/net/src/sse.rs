//! Server-sent events: a stream of bytes cut into messages, in bounded memory. Pure.
//!
//! MCP needs these parts of the format (HTML standard, "Server-sent events"): the data of an event, its name, the id from which a stream
//! can be taken up again, and how long to wait before that.
//!
//! Invariants
//!
//! - The events depend on the bytes alone, never on how they were cut into reads.
//! - Of an event whose data is over the limit, only its length is kept, and the next one is read as usual.
//! - An event without data says nothing; its id and its `retry` count all the same. An event in which the stream breaks off does not count,
//!   and neither does its id.

use std::{collections::VecDeque, time::Duration};

/// The longest time that a server can make a client wait before it takes a stream up again.
const LONGEST_RETRY: Duration = Duration::from_secs(60);

/// The longest id that is kept. It goes into a header.
const LONGEST_ID: usize = 4 << 10;

/// An event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SseEvent {
    /// A message: its data.
    Message(Vec<u8>),
    /// The URL to which messages are to be posted (2024-11-05).
    Endpoint(String),
    /// A message that was longer than the limit, and is gone; its length.
    Oversized(u64),
    /// The id after which the stream can be taken up again: everything up to here has been given.
    Mark(String),
}

/// Cuts a stream into events.
#[derive(Debug)]
pub struct Events {
    limit: usize,
    /// The line so far, with the name of the field.
    line: Vec<u8>,
    /// The line was longer than it may be; this many bytes of it have gone.
    skipped: u64,
    after_carriage_return: bool,
    begun: bool,
    name: Name,
    data: Option<Vec<u8>>,
    /// The data is over the limit; this many bytes of it have gone.
    lost: u64,
    id: Option<String>,
    /// The id of the event that has not ended.
    next_id: Option<String>,
    retry: Option<Duration>,
    found: VecDeque<SseEvent>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Name {
    #[default]
    Message,
    Endpoint,
    Other,
}

/// Room for the name of a field beside data of the greatest length.
const FIELD: usize = 16;

impl Events {
    /// Makes a reader for messages of up to so many bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            skipped: 0,
            after_carriage_return: false,
            begun: false,
            name: Name::Message,
            data: None,
            lost: 0,
            id: None,
            next_id: None,
            retry: None,
            found: VecDeque::new(),
        }
    }

    /// Returns the id of the last event, after which the stream can be taken up again; `None` if the stream has no ids.
    #[must_use]
    pub fn last_id(&self) -> Option<&str> {
        self.id.as_deref().filter(|id| !id.is_empty())
    }

    /// Returns how long to wait before that; `None` if the server did not say.
    #[must_use]
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Returns how many bytes have gone of an event that is over the limit and has not ended.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped + self.lost
    }

    /// Takes bytes in.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_carriage_return) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            match memchr::memchr2(b'\r', b'\n', bytes) {
                Some(end) => {
                    self.gather(&bytes[..end]);
                    self.after_carriage_return = bytes[end] == b'\r';
                    bytes = &bytes[end + 1..];
                    self.line_ended();
                }
                None => {
                    self.gather(bytes);
                    return;
                }
            }
        }
    }

    /// Takes the next event, if there is one.
    pub fn next_event(&mut self) -> Option<SseEvent> {
        self.found.pop_front()
    }

    fn gather(&mut self, bytes: &[u8]) {
        let room = (self.limit + FIELD).saturating_sub(self.line.len());
        if self.skipped == 0 && bytes.len() <= room {
            self.line.extend_from_slice(bytes);
            return;
        }
        // The beginning tells which field it is, which is enough.
        let (kept, gone) = bytes.split_at(FIELD.saturating_sub(self.line.len()).min(bytes.len()));
        self.line.extend_from_slice(kept);
        self.skipped += (gone.len() + self.line.len().saturating_sub(FIELD)) as u64;
        self.line.truncate(FIELD);
    }

    fn line_ended(&mut self) {
        let line = std::mem::take(&mut self.line);
        let skipped = std::mem::take(&mut self.skipped);
        let mut text = &line[..];
        if !std::mem::replace(&mut self.begun, true) {
            text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        }
        if text.is_empty() {
            self.event_ended();
        } else {
            let (field, value) = match memchr::memchr(b':', text) {
                Some(colon) => (&text[..colon], &text[colon + 1..]),
                None => (text, &b""[..]),
            };
            self.field(field, value.strip_prefix(b" ").unwrap_or(value), skipped);
        }
        // The memory of a line serves the next one, unless the line was a giant.
        if line.capacity() <= 64 << 10 {
            self.line = line;
            self.line.clear();
        }
    }

    fn field(&mut self, field: &[u8], value: &[u8], skipped: u64) {
        match field {
            b"data" => self.data(value, skipped),
            b"event" => {
                self.name = match value {
                    b"" | b"message" => Name::Message,
                    b"endpoint" => Name::Endpoint,
                    _ => Name::Other,
                }
            }
            b"id" if skipped == 0 && value.len() <= LONGEST_ID && !value.contains(&0) => {
                self.next_id = String::from_utf8(value.to_vec()).ok();
            }
            b"retry" => {
                let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                if let Some(milliseconds) = number {
                    self.retry = Some(Duration::from_millis(milliseconds).min(LONGEST_RETRY));
                }
            }
            // A comment, or a field of the future.
            _ => {}
        }
    }

    fn data(&mut self, value: &[u8], skipped: u64) {
        let held = self.data.as_ref().map_or(0, |data| data.len() + 1);
        if skipped > 0 || self.lost > 0 || held + value.len() > self.limit {
            let gone = self.data.take().map_or(0, |data| data.len() as u64);
            self.lost += gone + value.len() as u64 + skipped;
            return;
        }
        match &mut self.data {
            Some(data) => {
                data.push(b'\n');
                data.extend_from_slice(value);
            }
            None => self.data = Some(value.to_vec()),
        }
    }

    fn event_ended(&mut self) {
        let (name, data) = (std::mem::take(&mut self.name), self.data.take());
        let lost = std::mem::take(&mut self.lost);
        let found = match (name, data) {
            (Name::Other, _) => None,
            (_, _) if lost > 0 => Some(SseEvent::Oversized(lost)),
            (Name::Message, Some(data)) if !data.is_empty() => Some(SseEvent::Message(data)),
            (Name::Endpoint, Some(data)) => String::from_utf8(data).ok().map(SseEvent::Endpoint),
            _ => None,
        };
        self.found.extend(found);
        if let Some(id) = self.next_id.take() {
            if !id.is_empty() && self.id.as_ref() != Some(&id) {
                self.found.push_back(SseEvent::Mark(id.clone()));
            }
            self.id = Some(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(bytes: &[u8], size: usize, limit: usize) -> (Vec<SseEvent>, Events) {
        let mut events = Events::new(limit);
        let mut found = Vec::new();
        for part in bytes.chunks(size) {
            events.push(part);
            found.extend(std::iter::from_fn(|| events.next_event()));
        }
        (found, events)
    }

    fn message(text: &str) -> SseEvent {
        SseEvent::Message(text.as_bytes().to_vec())
    }

    #[test]
    fn events_depend_on_the_bytes_and_not_on_how_they_come() {
        let stream = b"\xef\xbb\xbf: hello\n\nevent: message\ndata: {\"a\":1}\n\ndata:x\r\ndata: y\r\n\r\ndata: z\r\rid\nretry: 250\nid: 7\ndata: \n\nevent: odd\ndata: no\n\nevent: endpoint\ndata: /messages?s=1\n\ndata: broken off";
        for size in 1..stream.len() {
            let (found, events) = cut(stream, size, 100);
            let expected = [
                message("{\"a\":1}"),
                message("x\ny"),
                message("z"),
                SseEvent::Mark("7".to_owned()),
                SseEvent::Endpoint("/messages?s=1".to_owned()),
            ];
            assert_eq!(found, expected, "in pieces of {size}");
            assert_eq!((events.last_id(), events.retry()), (Some("7"), Some(Duration::from_millis(250))));
        }
    }

    #[test]
    fn an_id_counts_when_its_event_has_ended_and_comes_after_it() {
        let mark = |id: &str| SseEvent::Mark(id.to_owned());
        let stream =
            b"id: 1\ndata: a\n\ndata: b\n\nid: 2\ndata: c\n\nid: 2\ndata: d\n\nid: 3\ndata: broken off";
        for size in 1..stream.len() {
            let (found, events) = cut(stream, size, 100);
            let expected = [message("a"), mark("1"), message("b"), message("c"), mark("2"), message("d")];
            assert_eq!(found, expected, "in pieces of {size}");
            assert_eq!(events.last_id(), Some("2"), "the event with the id 3 is to come again");
        }
    }

    #[test]
    fn what_is_over_the_limit_is_counted_and_harms_nobody() {
        let long = "x".repeat(300);
        let stream = format!(
            "data: {long}\n\ndata: short\n\ndata: {0}\ndata: {0}\n\n{long}: {long}\ndata: end\n\n",
            "y".repeat(60)
        );
        for size in [1, 7, 4096] {
            let (found, events) = cut(stream.as_bytes(), size, 100);
            let expected =
                [SseEvent::Oversized(300), message("short"), SseEvent::Oversized(120), message("end")];
            assert_eq!(found, expected);
            assert!(events.line.capacity() <= 1024, "{}", events.line.capacity());
        }
    }

    #[test]
    fn what_a_server_says_of_waiting_is_bounded() {
        let (_, events) = cut(b"retry: 99999999\nretry: soon\n\n", 100, 10);
        assert_eq!(events.retry(), Some(LONGEST_RETRY));
        let (_, events) = cut(format!("id: {}\n\n", "i".repeat(5000)).as_bytes(), 100, 10_000);
        assert_eq!(events.last_id(), None);
    }
}
