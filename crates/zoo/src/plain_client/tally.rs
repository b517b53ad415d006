//! What a client has heard: counted by a thread that reads, looked at by the one that asks.
//!
//! # Invariants
//!
//! - Only what is needed for the verdict is kept: the outcome of each answer, and numbers of everything else.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use unhang_demo_servers::bounded_waits::lock;

/// Everything that came.
#[derive(Clone, Default)]
pub(crate) struct GuestTally {
    /// For each id, in the order of arrival, the error code of each answer, 0 for a result.
    answers: BTreeMap<String, Vec<i64>>,
    /// Errors without an id: about lines whose id could not be read.
    unaddressed: Vec<i64>,
    pub(crate) notifications: u64,
    /// Requests of the server.
    pub(crate) questions: u64,
    /// Lines that are no JSON-RPC message.
    pub(crate) strange: u64,
    pub(crate) bytes: u64,
    pub(crate) has_ended: bool,
}

impl GuestTally {
    /// Returns what the answers to this id were.
    pub(crate) fn outcomes(&self, id: &str) -> &[i64] {
        self.answers.get(id).map_or(&[], Vec::as_slice)
    }

    /// Returns the ids that were answered.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &String> {
        self.answers.keys()
    }

    fn line(&mut self, line: &[u8]) {
        match serde_json::from_slice::<Value>(line) {
            Ok(Value::Array(messages)) if !messages.is_empty() => {
                messages.iter().for_each(|message| self.message(message));
            }
            Ok(message) => self.message(&message),
            Err(_) => self.strange += 1,
        }
    }

    fn message(&mut self, message: &Value) {
        let outcome = match (&message["result"], &message["error"]["code"]) {
            (Value::Null, code) => code.as_i64(),
            (_, Value::Null) => Some(0),
            _ => None,
        };
        match (message["method"].is_string(), &message["id"], outcome) {
            _ if message["jsonrpc"] != "2.0" => self.strange += 1,
            (true, Value::Null, None) => self.notifications += 1,
            (true, _, None) => self.questions += 1,
            (false, Value::Null, Some(code)) if code != 0 => self.unaddressed.push(code),
            (false, id @ (Value::Number(_) | Value::String(_)), Some(code)) => {
                self.answers.entry(id.to_string()).or_default().push(code);
            }
            _ => self.strange += 1,
        }
    }

    /// Adds what came to a report.
    pub(super) fn tell(&self, report: &mut Value) {
        let mut errors = BTreeMap::<String, u64>::new();
        let outcomes = || self.answers.values().flatten().chain(&self.unaddressed);
        for code in outcomes().filter(|code| **code != 0) {
            *errors.entry(code.to_string()).or_default() += 1;
        }
        report["results"] = json!(outcomes().filter(|code| **code == 0).count());
        report["errors"] = json!(errors);
        report["notifications"] = json!(self.notifications);
        report["questions"] = json!(self.questions);
        report["bytes"] = json!(self.bytes);
    }
}

/// The tally of a stream that is being read.
pub(super) struct StreamTally(Arc<(Mutex<GuestTally>, Condvar)>);

/// Reads a stream to its end, so many bytes at once, in a thread of its own.
pub(super) fn listen(mut stream: impl Read + Send + 'static, size: usize) -> StreamTally {
    let shared = Arc::<(Mutex<GuestTally>, Condvar)>::default();
    let (tally, changed) = (Arc::clone(&shared), Arc::clone(&shared));
    std::thread::spawn(move || {
        let (mut piece, mut line) = (vec![0; size], Vec::new());
        while let Ok(count @ 1..) = stream.read(&mut piece) {
            let mut tally = lock(&tally.0);
            tally.bytes += count as u64;
            for part in piece[..count].split_inclusive(|byte| *byte == b'\n') {
                line.extend_from_slice(part);
                if line.ends_with(b"\n") {
                    tally.line(&line);
                    line.clear();
                }
            }
            changed.1.notify_all();
        }
        let mut tally = lock(&tally.0);
        tally.strange += u64::from(!line.is_empty());
        tally.has_ended = true;
        changed.1.notify_all();
    });
    StreamTally(shared)
}

impl StreamTally {
    /// Waits until something holds; false when it does not, in time or before the stream ends.
    pub(super) fn wait(&self, limit: Duration, condition: impl Fn(&GuestTally) -> bool) -> bool {
        let (tally, changed) = &*self.0;
        let unsettled = |tally: &mut GuestTally| !condition(tally) && !tally.has_ended;
        let waited = changed.wait_timeout_while(lock(tally), limit, unsettled);
        condition(&waited.unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Returns what has come so far.
    pub(super) fn tally(&self) -> GuestTally {
        lock(&self.0.0).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_line_is_counted_as_what_it_is() {
        let text = concat!(
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n",
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-31005,\"message\":\"m\"}}\n",
            "[{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{}},{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}]\n",
            "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"m\"}}\n",
            "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n",
            "{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"ping\"}\n",
            "{\"id\":3,\"result\":{}}\nnoise\n[]\n{\"jsonrpc\":\"2.0\",\"id\":4}\nhalf",
        );
        for size in [1, 7, 4096] {
            let listening = listen(std::io::Cursor::new(text), size);
            assert!(listening.wait(Duration::from_secs(30), |tally| tally.has_ended));
            let tally = listening.tally();
            assert_eq!(tally.outcomes("1"), [0, -31005]);
            assert_eq!((tally.outcomes("\"a\""), tally.outcomes("2")), (&[0][..], &[0][..]));
            assert_eq!((tally.unaddressed.len() as u64, tally.notifications, tally.questions), (1, 1, 1));
            assert_eq!((tally.strange, tally.bytes), (5, text.len() as u64));
            assert!(!listening.wait(Duration::from_secs(30), |tally| tally.questions == 2), "it has ended");
        }
    }
}
