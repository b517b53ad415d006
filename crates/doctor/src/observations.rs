//! What was seen of a server, as plain data: no verdict is in it.
//!
//! Invariants: bounded, whatever the server says: samples are cut and counted; what was not looked at is absent.

use std::{collections::BTreeMap, time::Duration};

/// Everything that was seen.
#[derive(Clone, Debug, Default)]
pub struct Observations {
    /// The first start.
    pub cold: Option<StartResult>,
    /// A later one.
    pub warm: Option<StartResult>,
    /// What it said to a handshake.
    pub handshake: Option<HandshakeSeen>,
    /// What it said to a client of the stateless revision.
    pub modern: Option<DiscoverSeen>,
    /// Its lists.
    pub lists: Vec<ObservedList>,
    /// Its tools.
    pub tools: Vec<ObservedTool>,
    /// Calls that were made.
    pub calls: Vec<ObservedCall>,
    /// What went wrong while it was used.
    pub troubles: Vec<ServerTrouble>,
    /// What was read from its stdout.
    pub stdout_seen: StdoutSeen,
    /// Bytes on stderr in the longest session.
    pub stderr_bytes: u64,
    /// A line on stderr had this many bytes at least.
    pub stderr_longest: u64,
    /// The last line on stderr of the session.
    pub stderr_last: Option<String>,
    /// Processes that came to hold its stdin while it worked.
    pub sharers: usize,
    /// Variables that it gets from whoever starts it, and not from its configuration.
    pub inherited: Vec<String>,
    /// Its end after its stdin had ended.
    pub stdin_end: Option<ServerExit>,
    /// Its end after SIGTERM.
    pub sigterm: Option<ServerExit>,
    /// What became of it after lines that are no messages.
    pub garbage: Option<AfterGarbage>,
    /// The slowest answer.
    pub slowest: Option<SlowestAnswer>,
    /// The limit that passed before everything was looked at.
    pub unfinished_after: Option<Duration>,
}

/// How a start went.
#[derive(Clone, Debug)]
pub enum StartResult {
    /// Its first answer came after this, not counting how long it had to wait for a processor.
    Answered(Duration),
    /// The command could not be executed, for this reason.
    Failed(String),
    /// Its URL could not be asked, for this reason.
    Unreachable(String),
    /// It ended in this way before it answered.
    Ended(String),
    /// It did not answer within this.
    Silent(Duration),
    /// What it said could not be used as an answer.
    Unusable,
}

/// The answer to `initialize`.
#[derive(Clone, Debug)]
pub enum HandshakeSeen {
    /// It agreed on this revision.
    Agreed(String),
    /// It refused with this error.
    Refused(i64, String),
}

/// What it said to `server/discover`.
#[derive(Clone, Debug)]
pub enum DiscoverSeen {
    /// It speaks 2026-07-28.
    Spoken {
        /// It then refused a handshake.
        is_locked: bool,
    },
    /// It does not.
    Unknown {
        /// It answered a stateless request nevertheless.
        is_ambiguous: bool,
    },
    /// The answer came this late.
    Late(Duration),
    /// No answer came within this.
    Silent(Duration),
    /// It ended in this way.
    Ended(String),
}

/// One list.
#[derive(Clone, Debug)]
pub struct ObservedList {
    /// The method.
    pub method: &'static str,
    /// Items in it.
    pub items: usize,
    /// Bytes of its answers.
    pub bytes: usize,
    /// What is wrong with it.
    pub fault: Option<ListFault>,
}

/// What can be wrong with a list.
#[derive(Clone, Debug)]
pub enum ListFault {
    /// The answer is no list.
    Invalid,
    /// It was refused with this error.
    Refused(i64, String),
    /// It has no end of pages.
    Endless,
}

/// One tool.
#[derive(Clone, Debug)]
pub struct ObservedTool {
    /// Its name.
    pub name: String,
    /// What is wrong with its schemas.
    pub fault: Option<String>,
    /// It may be called: it says that it only reads, and needs nothing.
    pub is_safe: bool,
}

/// One call.
#[derive(Clone, Debug)]
pub struct ObservedCall {
    /// The tool.
    pub tool: String,
    /// How long it took.
    pub took: Duration,
    /// Why it was refused, if it was.
    pub refusal: Option<String>,
    /// A `ping` beside it was answered only after it.
    pub blocked: bool,
}

/// Something that went wrong while the server was used.
#[derive(Clone, Debug)]
pub enum ServerTrouble {
    /// No answer to this within that.
    Silence(String, Duration),
    /// It ended at this, in this way.
    Ended(String, String),
    /// The connection to its URL was lost at this, in this way. What became of the server cannot be seen from here.
    Lost(String, String),
    /// It ended while it was idle, in this way.
    EndedIdle(String),
    /// No answer to a `ping` after it was idle.
    SilenceIdle(Duration),
    /// It closed its stdout and lives on.
    Mute(String),
    /// It closed its stdin and lives on.
    Deaf(String),
}

/// How the server ended, or not.
#[derive(Clone, Debug)]
pub struct ServerExit {
    /// After this; absent where it had to be killed.
    pub after: Option<Duration>,
    /// How long it was waited for.
    pub waited: Duration,
    /// In which way.
    pub exit: Option<String>,
    /// It was no success.
    pub is_failure: bool,
    /// Processes that it left behind.
    pub leaked: u32,
}

/// What became of it after lines that are no messages.
#[derive(Clone, Debug)]
pub enum AfterGarbage {
    /// It goes on.
    Survived,
    /// It ended in this way.
    Died(String),
    /// It answers no more.
    Deaf(Duration),
}

/// The answer that took longest.
#[derive(Clone, Debug)]
pub struct SlowestAnswer {
    /// What was asked.
    pub what: String,
    /// It is a call of a tool.
    pub is_call: bool,
    /// How long it took.
    pub took: Duration,
}

/// A kind of thing that was heard: how often, and some of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    /// How often.
    pub count: u64,
    /// The first of them.
    pub first: Vec<String>,
}

/// Samples that are kept of each kind.
const KEPT: usize = 3;
/// Characters that are kept of a sample.
const LONGEST: usize = 120;

impl Samples {
    /// Counts one more.
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

/// What was heard on stdout that is not as it should be, or may be of interest.
#[derive(Clone, Debug, Default)]
pub struct StdoutSeen {
    /// Lines that are no messages.
    pub junk: Samples,
    /// Lines on which text stands beside a message.
    pub glued: Samples,
    /// Lines with several messages.
    pub crowded: Samples,
    /// Arrays of messages.
    pub batches: Samples,
    /// What was meant as a message and is none, with the reason in front.
    pub invalid: Samples,
    /// Answers under ids that nobody used.
    pub misaddressed: Samples,
    /// Answers under the id in another type.
    pub retyped: Samples,
    /// Second answers.
    pub repeated: Samples,
    /// Answers to what was cancelled.
    pub late: Samples,
    /// Progress of what was cancelled.
    pub progress_after_cancel: u64,
    /// Notifications.
    pub notifications: u64,
    /// The most notifications between two answers.
    pub most_notifications: u64,
    /// Answers with a log notification before them.
    pub announced: u64,
    /// Answers.
    pub answers: u64,
    /// Requests to the client, by method.
    pub questions: BTreeMap<String, u64>,
    /// It begins with a byte order mark.
    pub has_mark: bool,
    /// Lines that end with CR LF.
    pub crlf: u64,
    /// The longest line.
    pub longest: u64,
    /// The deepest nesting.
    pub deepest: usize,
    /// The most pieces in which a short line came.
    pub most_pieces: u32,
}
