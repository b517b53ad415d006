//! Observations of a server, as plain data. They hold no verdict.
//!
//! Invariants: the data is bounded, whatever the server says: samples are cut and counted. Parts that were not examined are absent.

use std::{collections::BTreeMap, time::Duration};

/// All observations of one examination.
#[derive(Clone, Debug, Default)]
pub struct Observations {
    /// The first start.
    pub cold: Option<StartResult>,
    /// A later start.
    pub warm: Option<StartResult>,
    /// The answer to a handshake.
    pub handshake: Option<HandshakeSeen>,
    /// The answer to a client of the stateless revision.
    pub modern: Option<DiscoverSeen>,
    /// The server's lists.
    pub lists: Vec<ObservedList>,
    /// The server's tools.
    pub tools: Vec<ObservedTool>,
    /// Calls that were made.
    pub calls: Vec<ObservedCall>,
    /// Problems while the server was used.
    pub troubles: Vec<ServerTrouble>,
    /// The observations on the server's stdout.
    pub stdout_seen: StdoutSeen,
    /// Bytes on stderr in the longest session.
    pub stderr_bytes: u64,
    /// The length of the longest line on stderr, at least.
    pub stderr_longest: u64,
    /// The last line on stderr of the session.
    pub stderr_last: Option<String>,
    /// The number of processes that came to hold the server's stdin while it worked.
    pub sharers: usize,
    /// Variables that the server inherits, instead of getting them from its configuration.
    pub inherited: Vec<String>,
    /// The server's end after its stdin had ended.
    pub stdin_end: Option<ServerExit>,
    /// The server's end after SIGTERM.
    pub sigterm: Option<ServerExit>,
    /// The server's reaction to lines that are not messages.
    pub garbage: Option<AfterGarbage>,
    /// The slowest answer.
    pub slowest: Option<SlowestAnswer>,
    /// The limit that passed before everything was examined.
    pub unfinished_after: Option<Duration>,
}

/// The result of a start.
#[derive(Clone, Debug)]
pub enum StartResult {
    /// The first answer came after this time, not counting the wait for a processor.
    Answered(Duration),
    /// The command could not be executed, for this reason.
    Failed(String),
    /// The URL could not be reached, for this reason.
    Unreachable(String),
    /// The server ended in this way before it answered.
    Ended(String),
    /// The server did not answer within this time.
    Silent(Duration),
    /// The server said something that cannot be used as an answer.
    Unusable,
}

/// The answer to `initialize`.
#[derive(Clone, Debug)]
pub enum HandshakeSeen {
    /// The server agreed on this revision.
    Agreed(String),
    /// The server refused with this error.
    Refused(i64, String),
}

/// The answer to `server/discover`.
#[derive(Clone, Debug)]
pub enum DiscoverSeen {
    /// The server speaks 2026-07-28.
    Spoken {
        /// Whether the server then refused a handshake.
        is_locked: bool,
    },
    /// The server does not speak it.
    Unknown {
        /// Whether the server answered a stateless request nevertheless.
        is_ambiguous: bool,
    },
    /// The answer came this long after the start.
    Late(Duration),
    /// No answer came within this time.
    Silent(Duration),
    /// The server ended in this way.
    Ended(String),
}

/// One list.
#[derive(Clone, Debug)]
pub struct ObservedList {
    /// The method.
    pub method: &'static str,
    /// The number of items.
    pub items: usize,
    /// The bytes of the answers.
    pub bytes: usize,
    /// The fault of the list, if there is one.
    pub fault: Option<ListFault>,
}

/// A fault of a list.
#[derive(Clone, Debug)]
pub enum ListFault {
    /// The answer is not a list.
    Invalid,
    /// The server refused the list with this error.
    Refused(i64, String),
    /// The pages of the list have no end.
    Endless,
}

/// One tool.
#[derive(Clone, Debug)]
pub struct ObservedTool {
    /// The tool's name.
    pub name: String,
    /// The fault of its schemas, if there is one.
    pub fault: Option<String>,
    /// Whether the tool may be called: it says that it only reads, and needs no arguments.
    pub is_safe: bool,
}

/// One call.
#[derive(Clone, Debug)]
pub struct ObservedCall {
    /// The tool.
    pub tool: String,
    /// How long the call took.
    pub took: Duration,
    /// Why the call was refused, if it was.
    pub refusal: Option<String>,
    /// Whether a `ping` during the call was answered only after it.
    pub blocked: bool,
}

/// A problem that occurred while the server was used.
#[derive(Clone, Debug)]
pub enum ServerTrouble {
    /// There was no answer to this request within this time.
    Silence(String, Duration),
    /// The server ended during this request, in this way.
    Ended(String, String),
    /// The connection to the URL was lost during this request, in this way. The client cannot see what became of the server.
    Lost(String, String),
    /// The server ended in this way while it was idle.
    EndedIdle(String),
    /// There was no answer to a `ping` within this time after it was idle.
    SilenceIdle(Duration),
    /// The server closed its stdout during this request and still runs.
    Mute(String),
    /// The server closed its stdin before this request and still runs.
    Deaf(String),
}

/// The end of the server, or the lack of one.
#[derive(Clone, Debug)]
pub struct ServerExit {
    /// How long it took to end; `None` if it had to be killed.
    pub after: Option<Duration>,
    /// How long the doctor waited for the end.
    pub waited: Duration,
    /// How it ended.
    pub exit: Option<String>,
    /// Whether the end was a failure.
    pub is_failure: bool,
    /// The number of processes that it left behind.
    pub leaked: u32,
}

/// The server's reaction to lines that are not messages.
#[derive(Clone, Debug)]
pub enum AfterGarbage {
    /// The server goes on.
    Survived,
    /// The server ended in this way.
    Died(String),
    /// The server stopped answering: there was no answer within this time.
    Deaf(Duration),
}

/// The answer that took the longest.
#[derive(Clone, Debug)]
pub struct SlowestAnswer {
    /// The request.
    pub what: String,
    /// Whether it was a call of a tool.
    pub is_call: bool,
    /// How long the answer took.
    pub took: Duration,
}

/// One kind of observation: a count, and a few samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    /// How often it was observed.
    pub count: u64,
    /// The first samples.
    pub first: Vec<String>,
}

/// The samples that are kept of each kind.
const KEPT: usize = 3;
/// The bytes that are kept of a sample.
const LONGEST: usize = 120;

impl Samples {
    /// Counts one more observation, and keeps it if it is among the first.
    pub fn add(&mut self, sample: &[u8]) {
        self.count += 1;
        if self.first.len() < KEPT {
            let cut = &sample[..sample.len().min(LONGEST)];
            let plain = |character: char| if character.is_control() { ' ' } else { character };
            let mut text: String = String::from_utf8_lossy(cut).chars().map(plain).collect();
            if cut.len() < sample.len() {
                text.push('…');
            }
            self.first.push(text.trim().to_owned());
        }
    }
}

/// Observations on stdout that are faults, or may be of interest.
#[derive(Clone, Debug, Default)]
pub struct StdoutSeen {
    /// Lines that are not messages.
    pub junk: Samples,
    /// Lines on which text stands beside a message.
    pub glued: Samples,
    /// Lines with several messages.
    pub crowded: Samples,
    /// Arrays of messages.
    pub batches: Samples,
    /// Objects that were meant as messages but are not valid, each with the reason in front.
    pub invalid: Samples,
    /// Answers under ids that nobody used.
    pub misaddressed: Samples,
    /// Answers under the id in another type.
    pub retyped: Samples,
    /// Second answers.
    pub repeated: Samples,
    /// Answers to cancelled requests.
    pub late: Samples,
    /// The number of progress notifications for cancelled requests.
    pub progress_after_cancel: u64,
    /// The number of notifications.
    pub notifications: u64,
    /// The most notifications between two answers.
    pub most_notifications: u64,
    /// The number of answers with a log notification before them.
    pub announced: u64,
    /// The number of answers.
    pub answers: u64,
    /// Requests to the client, by method.
    pub questions: BTreeMap<String, u64>,
    /// Whether the output begins with a byte order mark.
    pub has_mark: bool,
    /// The number of lines that end with CR LF.
    pub crlf: u64,
    /// The length of the longest line.
    pub longest: u64,
    /// The deepest nesting.
    pub deepest: usize,
    /// The most pieces in which a short line came.
    pub most_pieces: u32,
}
