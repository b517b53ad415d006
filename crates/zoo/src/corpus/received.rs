//! What a client has received, and what a strict client makes of it. Pure.
//!
//! # Invariants
//!
//! - Memory is bounded whatever comes: of a line at most [`LONGEST_LINE`] bytes are kept, of all messages at most
//!   [`MOST_BYTES`].
//! - A line is a message or it is noise; nothing is mended here.

use serde_json::Value;

/// Longer lines are no messages to this client; well over the largest answer of a case.
const LONGEST_LINE: usize = 32 << 20;
/// More than any case asks for.
const MOST_BYTES: usize = 128 << 20;
/// How much of a line that is no message is shown.
const GLIMPSE: usize = 24;

/// One whole message.
struct ReceivedMessage {
    line: Vec<u8>,
    value: Value,
}

/// Everything that came, in order.
#[derive(Default)]
pub(crate) struct Received {
    messages: Vec<ReceivedMessage>,
    bytes: usize,
    /// The line that has not ended yet, as much of it as is kept.
    open: Vec<u8>,
    /// Whether more of it came than is kept.
    is_cut: bool,
    first_noise: Option<String>,
}

impl Received {
    /// Takes the next bytes of the stream.
    pub(super) fn push(&mut self, mut piece: &[u8]) {
        while let Some(end) = piece.iter().position(|byte| *byte == b'\n') {
            self.extend(&piece[..end]);
            self.end_line();
            piece = &piece[end + 1..];
        }
        self.extend(piece);
    }

    fn extend(&mut self, piece: &[u8]) {
        let room = LONGEST_LINE.saturating_sub(self.open.len()).min(piece.len());
        self.is_cut |= room < piece.len();
        self.open.extend_from_slice(&piece[..room]);
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.open);
        let read = if std::mem::take(&mut self.is_cut) { Err("a line too long") } else { read(&line) };
        match read {
            Ok(value) => {
                self.bytes += line.len();
                if self.bytes <= MOST_BYTES {
                    self.messages.push(ReceivedMessage { line, value });
                }
            }
            Err(why) => {
                let glimpse = || format!("{why}: `{}`", glimpse(&line));
                self.first_noise.get_or_insert_with(glimpse);
            }
        }
    }

    /// What is wrong with the stream so far, in a few words; half a line that has not ended is not looked at.
    pub(super) fn flaw(&self) -> Option<String> {
        if self.bytes > MOST_BYTES {
            return Some(format!("more than {} MiB came", MOST_BYTES >> 20));
        }
        let noise = self.first_noise.clone();
        noise.or_else(|| Some(format!("request {} was answered twice", self.answered_twice()?)))
    }

    fn answered_twice(&self) -> Option<String> {
        let mut ids: Vec<_> = self.answers().map(|answer| answer.value["id"].to_string()).collect();
        ids.sort_unstable();
        ids.windows(2).find(|pair| pair[0] == pair[1] && pair[0] != "null").map(|pair| pair[0].clone())
    }

    fn answers(&self) -> impl Iterator<Item = &ReceivedMessage> {
        self.messages.iter().filter(|message| message.value.get("method").is_none())
    }

    /// The first answer to a request.
    pub(super) fn answer(&self, id: &Value) -> Option<&Value> {
        self.answers().map(|answer| &answer.value).find(|answer| answer["id"] == *id)
    }

    /// The line of the first answer to a request, as it came.
    pub(super) fn answer_line(&self, id: &Value) -> Option<&[u8]> {
        self.answers().find(|answer| answer.value["id"] == *id).map(|answer| &*answer.line)
    }

    /// How many answers came before the one to this request.
    pub(super) fn answers_before(&self, id: &Value) -> usize {
        self.answers().take_while(|answer| answer.value["id"] != *id).count()
    }

    /// Requests and notifications of the server.
    pub(super) fn asked(&self) -> impl Iterator<Item = &Value> {
        self.messages.iter().map(|message| &message.value).filter(|message| message.get("method").is_some())
    }
}

/// The beginning of a line, on one line and with nothing that a terminal would obey.
fn glimpse(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(GLIMPSE)]);
    let show = |letter: char| match letter {
        '"' | '\'' => letter.to_string(),
        _ => letter.escape_debug().to_string(),
    };
    text.chars().map(show).collect()
}

/// Reads a line as one JSON-RPC 2.0 message of a revision without batches, or says why it is none.
fn read(line: &[u8]) -> Result<Value, &'static str> {
    let message: Value = serde_json::from_slice(line).map_err(|_| "not JSON")?;
    let members = message.as_object().ok_or("not an object")?;
    if members.get("jsonrpc").is_none_or(|version| version != "2.0") {
        return Err("not JSON-RPC 2.0");
    }
    let id = members.get("id");
    if id.is_some_and(|id| !(id.is_string() || id.is_number() || id.is_null())) {
        return Err("an impossible id");
    }
    let outcomes = usize::from(members.contains_key("result")) + usize::from(members.contains_key("error"));
    let is_fine = match members.get("method") {
        Some(method) => method.is_string() && outcomes == 0,
        None => id.is_some() && outcomes == 1,
    };
    if is_fine { Ok(message) } else { Err("no valid message") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn received(text: &str) -> Received {
        let mut received = Received::default();
        received.push(text.as_bytes());
        received
    }

    #[test]
    fn only_whole_valid_messages_are_messages() {
        for line in [
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":"a","error":{"code":1,"message":""}}"#,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/message"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\r",
        ] {
            assert!(read(line.as_bytes()).is_ok(), "{line}");
        }
        for line in [
            "",
            "Starting server...",
            r#"{"level":"info"}"#,
            r#"[{"jsonrpc":"2.0","id":1,"result":{}}]"#,
            r#"{"id":1,"result":{}}"#,
            r#"{"jsonrpc":"1.0","id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#,
            r#"{"jsonrpc":"2.0","id":[1],"result":{}}"#,
            r#"{"jsonrpc":"2.0","result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}{"jsonrpc":"2.0","id":2,"result":{}}"#,
            "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}",
        ] {
            assert!(read(line.as_bytes()).is_err(), "{line}");
        }
        assert!(read(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\xE9\"}").is_err(), "no UTF-8");
    }

    #[test]
    fn lines_may_come_in_pieces_and_the_last_one_waits_for_its_end() {
        let mut received = Received::default();
        for byte in b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":1}\n{\"jsonrpc\"" {
            received.push(std::slice::from_ref(byte));
        }
        assert_eq!(received.answer(&json!(7)).map(|answer| &answer["result"]), Some(&json!(1)));
        assert_eq!(received.answer_line(&json!(7)), Some(&br#"{"jsonrpc":"2.0","id":7,"result":1}"#[..]));
        assert_eq!(received.flaw(), None);
    }

    #[test]
    fn an_id_of_another_type_is_no_answer() {
        let received = received("{\"jsonrpc\":\"2.0\",\"id\":\"1\",\"result\":1}\n");
        assert_eq!(received.answer(&json!(1)), None);
    }

    #[test]
    fn noise_and_second_answers_are_flaws() {
        let noisy = received("\u{1b}[32m\"hello\"\n{}\n");
        assert_eq!(noisy.flaw().as_deref(), Some(r#"not JSON: `\u{1b}[32m"hello"`"#));
        let answer = "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":1}\n";
        assert_eq!(received(answer).flaw(), None);
        assert_eq!(received(&answer.repeat(2)).flaw().as_deref(), Some("request 1 was answered twice"));
    }

    #[test]
    fn a_line_without_end_takes_no_more_memory_than_it_may() {
        let mut received = Received::default();
        for _ in 0..=(LONGEST_LINE >> 20) {
            received.push(&vec![b'x'; 1 << 20]);
        }
        assert_eq!(received.open.len(), LONGEST_LINE);
        received.push(b"\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":1}\n");
        assert!(received.flaw().is_some_and(|flaw| flaw.starts_with("a line too long")));
        assert!(received.answer(&json!(1)).is_some(), "the next line is read again");
    }

    #[test]
    fn what_came_first_is_known() {
        let answers = received(
            "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":1}\n{\"jsonrpc\":\"2.0\",\"method\":\"m\"}\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":1}\n",
        );
        assert_eq!((answers.answers_before(&json!(2)), answers.answers_before(&json!(1))), (0, 1));
        assert_eq!(answers.asked().count(), 1);
    }
}
