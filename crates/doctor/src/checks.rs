//! The checks of the doctor. Each has a severity, a meaning and a remedy.
//!
//! Invariants: an id never changes its meaning, and names one check. The page of the guide is this table.

use serde::Serialize;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing, but not a fault. It does not count.
    Note,
    /// Some clients will have problems.
    Warning,
    /// A client will hang or break, or the server leaves something behind.
    Error,
}

impl Severity {
    /// Returns the word for the severity.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// One check of the doctor.
#[derive(Debug, PartialEq, Eq)]
pub struct Check {
    /// The check's name, for programs and for searching.
    pub id: &'static str,
    /// How bad a finding of this check is.
    pub severity: Severity,
    /// The meaning of a finding, as a sentence without its end.
    pub means: &'static str,
    /// The remedy.
    pub remedy: &'static str,
    /// Whether the check needs the server's process and its pipes. Over HTTP it cannot be made.
    pub needs_process: bool,
}

impl Check {
    /// Returns the remedy for a server behind a URL, which has no stderr to look at. `unhang wrap` guards commands alone.
    pub(super) fn remedy_at_a_url(&self) -> &'static str {
        match self.id {
            "no-answer" => {
                "answer every request whole, also with an error; see the server's own log, and that of a proxy before it; behind \
                 `unhang serve` the client gets an answer in time"
            }
            "hangs-idle" => {
                "look for its work while it is idle, and for a proxy that closes idle connections; \
                 behind `unhang serve` the client gets an answer in time"
            }
            // The processes of a remote server are not started here.
            "blocks-while-busy" => "run tools beside the loop that reads requests",
            _ => self.remedy,
        }
    }
}

/// Declares the checks and the list of all of them, in the order of reports.
macro_rules! checks {
    ($($name:ident = $id:literal, $severity:ident, $reach:ident, $means:literal, $remedy:literal;)*) => {
        $(pub(super) const $name: &Check = &Check {
            id: $id,
            severity: Severity::$severity,
            means: $means,
            remedy: $remedy,
            needs_process: needs_process!($reach),
        };)*

        /// Every check, in the order in which they are told.
        pub const CHECKS: &[&Check] = &[$($name),*];
    };
}

macro_rules! needs_process {
    (process) => {
        true
    };
    (anywhere) => {
        false
    };
}

checks! {
    DID_NOT_FINISH = "did-not-finish", Error, anywhere,
        "the examination was not over within its limit",
        "look at the other findings first; `--timeout` gives it longer";

    CANNOT_START = "cannot-start", Error, anywhere,
        "the server cannot be started",
        "check its command and its folder: `unhang servers` shows what is configured";
    CANNOT_REACH = "cannot-reach", Error, anywhere,
        "no MCP server answers at the server's URL",
        "check the URL, its port and path, and that the server runs; then the network, a proxy, and the headers or the login that it wants";
    DIES_AT_START = "dies-at-start", Error, process,
        "it ends before it has answered anything",
        "run its command in a terminal; its stderr usually says what is missing";
    SILENT_AT_START = "silent-at-start", Error, anywhere,
        "it does not answer `initialize`, and many clients wait for that without an end",
        "answer `initialize` before loading anything; `--start-timeout` gives it longer here";
    DIES_AT_SECOND_START = "dies-at-second-start", Error, process,
        "its first start succeeds and its second fails, so no client can restart it",
        "look for what the first start leaves behind: a lock, a port, half an installation";
    SLOW_START = "slow-start", Warning, process,
        "the first answer comes after the timeout of a known client; or after half of that timeout, at both \
         starts",
        "answer `initialize` first and import the rest when it is needed; install it instead of fetching it at each start";
    REFUSES_HANDSHAKE = "refuses-handshake", Error, anywhere,
        "it answers `initialize` with an error",
        "see its error for the cause; no client of the handshake revisions gets further";
    MODERN_ONLY = "modern-only", Warning, process,
        "it speaks the stateless revision 2026-07-28 alone, and most clients begin with a handshake",
        "let it answer `initialize` as well";
    STRANGE_REVISION = "strange-revision", Warning, anywhere,
        "it answers `initialize` with a revision of MCP that does not exist",
        "answer with the revision that was asked for, or with the newest that it speaks";
    LATE_DISCOVER = "late-discover", Warning, process,
        "`server/discover` gets no answer, or a late one, so each modern client loses time at each start",
        "refuse unknown methods at once with -32601";
    DIES_ON_DISCOVER = "dies-on-discover", Error, process,
        "it ends when it is asked `server/discover`, which modern clients send first",
        "refuse unknown methods with -32601 instead";
    ERA_LOCKED = "era-locked", Note, process,
        "its first request decides for good whether it speaks with or without a handshake",
        "nothing to do: clients that probe have to start it anew to go back";
    ERA_AMBIGUOUS = "era-ambiguous", Note, process,
        "it answers a request without a handshake as if there had been one",
        "nothing to do: clients have to probe before they rely on the new rules";

    NO_ANSWER = "no-answer", Error, anywhere,
        "a request gets no answer, and a client without a timeout waits for ever",
        "answer every request, also with an error; behind `unhang wrap` the client gets one in time";
    DIES_IN_USE = "dies-in-use", Error, process,
        "it ends while or right after it answers a request",
        "see its stderr; behind `unhang wrap` it is started again, with its session";
    DIES_IDLE = "dies-idle", Error, process,
        "it ends while it has no request",
        "keep it alive until its stdin ends; most clients never start it again";
    HANGS_IDLE = "hangs-idle", Error, anywhere,
        "it stops answering after it was idle for a moment",
        "look for its work while it is idle; behind `unhang wrap` it is restarted";
    CLOSES_STDIN = "closes-stdin", Error, process,
        "it closes its stdin and lives on, so nothing can reach it any more",
        "end with the reader of stdin, or keep reading";
    CLOSES_STDOUT = "closes-stdout", Error, process,
        "it closes its stdout and lives on, so it can answer nothing any more",
        "end when stdout is closed";
    SLOW_ANSWER = "slow-answer", Warning, anywhere,
        "an answer takes longer than the timeout of a client",
        "make it a job that answers at once (`unhang serve`), or page the list";
    BLOCKS_WHILE_BUSY = "blocks-while-busy", Warning, anywhere,
        "while a call runs it answers nothing else, not even `ping`, and looks hung",
        "run tools beside the loop that reads requests; until then it works on one call at a time; `instances = 2` would answer others meanwhile, if it keeps no state between calls";
    ANSWERS_AFTER_CANCEL = "answers-after-cancel", Warning, process,
        "it answers a call only after the client has cancelled it and no longer waits",
        "answer when the work is done, and drop the answer of a cancelled request";
    GOES_ON_AFTER_CANCEL = "goes-on-after-cancel", Note, process,
        "it continues a call that was cancelled",
        "stop the work when `notifications/cancelled` comes";
    CALL_REFUSED = "call-refused", Note, anywhere,
        "a tool declares that it only reads and needs no arguments, and refuses a call without arguments",
        "nothing to do if the tool needs something that this machine does not have";
    NO_SAFE_TOOL = "no-safe-tool", Note, anywhere,
        "doctor called no tool, because no tool declares that it only reads and needs no arguments",
        "mark tools that change nothing with `readOnlyHint`";

    STDOUT_JUNK = "stdout-junk", Error, process,
        "it writes lines to stdout that are not messages, and some clients then disconnect",
        "write logs to stderr; behind `unhang wrap` the client never sees them";
    GLUED_TEXT = "glued-text", Error, process,
        "text stands on the same line as a message, which a client then loses",
        "write logs to stderr, and end every line";
    MANY_ON_A_LINE = "many-on-a-line", Error, process,
        "two messages stand on one line, of which a client loses one or both",
        "write one message a line, under one lock";
    BATCH_ANSWER = "batch-answer", Error, process,
        "it answers with an array, which the revision that was agreed on forbids",
        "answer each request with one object";
    INVALID_MESSAGE = "invalid-message", Error, process,
        "it sends invalid JSON-RPC, so a client that waits for the answer waits for ever",
        "write responses with a library for JSON-RPC 2.0";
    WRONG_ID = "wrong-id", Error, process,
        "it answers under an id that no request has, so the caller waits for ever",
        "copy the id of the request, as it is";
    ID_TYPE_CHANGED = "id-type-changed", Error, process,
        "it answers under the id in another type, text for a number or a number for text, and strict clients find no match",
        "copy the id of the request, as it is";
    ANSWERS_TWICE = "answers-twice", Error, process,
        "it answers one request twice",
        "answer once";
    BYTE_ORDER_MARK = "byte-order-mark", Error, process,
        "its output begins with a byte order mark, which strict readers take for junk",
        "write UTF-8 without one";
    CRLF_LINES = "crlf-lines", Note, process,
        "its lines end with CR LF",
        "end lines with LF alone; readers that cut at LF hand the CR on";
    HUGE_LINE = "huge-line", Warning, process,
        "it writes a line of more than 8 MiB, which some clients cut off or refuse",
        "return a link to large data, or split the data into pages";
    DEEP_NESTING = "deep-nesting", Warning, process,
        "it nests JSON deeper than common parsers follow",
        "answer with flatter data";
    ANSWERS_IN_PIECES = "answers-in-pieces", Note, process,
        "it writes one answer in very many pieces",
        "write each line at once; it costs every reader time";
    NOTIFICATION_FLOOD = "notification-flood", Warning, process,
        "it sends notifications by the thousand, and clients that queue them grow without a bound",
        "send fewer, or merge them";
    NOTIFIES_BEFORE_ANSWERS = "notifies-before-answers", Note, process,
        "it sends a notification before most answers",
        "nothing to do: but clients that take the next line for their answer go wrong";
    ASKS_UNDECLARED = "asks-undeclared", Warning, process,
        "it sends the client requests that the client did not declare",
        "send only requests that the client declared in `initialize`";
    REQUEST_FLOOD = "request-flood", Warning, process,
        "it sends requests to the client by the hundred, and waits for none",
        "wait for an answer before asking again";

    STDERR_FLOOD = "stderr-flood", Warning, process,
        "it writes more to stderr than a pipe holds, and hangs if a client does not read stderr",
        "log less; behind `unhang wrap` stderr is always read";
    STDERR_LONG_LINE = "stderr-long-line", Warning, process,
        "it writes a very long line to stderr, over which clients that read lines stumble",
        "shorten its log lines";
    SHARES_STDIN = "shares-stdin", Error, process,
        "a process that it starts while it works inherits the protocol's stdin and can take messages from it",
        "start subprocesses with a null stdin";
    INHERITS_SECRETS = "inherits-secrets", Note, process,
        "it inherits variables that look like secrets and are not in its own configuration",
        "configure it by name: then it gets a small set of variables, and those in its `env`";

    DIES_ON_GARBAGE = "dies-on-garbage", Error, process,
        "it ends after an invalid message on its stdin",
        "skip it, or answer -32700";
    DEAF_AFTER_GARBAGE = "deaf-after-garbage", Error, process,
        "it stops answering after an invalid message on its stdin",
        "skip it, or answer -32700";
    IGNORES_STDIN_END = "ignores-stdin-end", Error, process,
        "it lives on when its stdin ends, so every client that closes it leaves an orphan",
        "end when stdin does; behind `unhang wrap` it is ended";
    IGNORES_SIGTERM = "ignores-sigterm", Error, process,
        "it does not end on SIGTERM, so only SIGKILL ends it",
        "do not catch the signal, or end in its handler";
    LEAVES_PROCESSES = "leaves-processes", Error, process,
        "processes that it started live on when it has ended",
        "end them with it; behind `unhang wrap` they are ended, daemons too";
    ENDS_WITH_CODE = "ends-with-code", Note, process,
        "it ends with a failure when its stdin ends, which is the usual goodbye",
        "end with code 0";

    INVALID_LIST = "invalid-list", Error, anywhere,
        "its answer to a list request is not a list",
        "answer with an array under the name of the list";
    LIST_REFUSED = "list-refused", Warning, anywhere,
        "it declares a list and refuses to give it",
        "answer with an empty list, or do not declare it";
    ENDLESS_LIST = "endless-list", Error, anywhere,
        "a list has no end of pages",
        "leave `nextCursor` out on the last page";
    INVALID_TOOL_SCHEMA = "invalid-tool-schema", Error, anywhere,
        "the schema of a tool is not a valid JSON schema of an object, and some clients drop the tool or \
         the whole server",
        "give each tool a schema with `\"type\": \"object\"`";
    DUPLICATE_TOOL = "duplicate-tool", Error, anywhere,
        "two tools have the same name",
        "name each tool once";
    ODD_TOOL_NAME = "odd-tool-name", Warning, anywhere,
        "the name of a tool has characters or a length that model APIs refuse",
        "use up to 64 letters, digits, `_` and `-`";
    LARGE_LIST = "large-list", Warning, anywhere,
        "the list of tools has more than 64 KiB: some readers break at that, and every session pays for it in tokens",
        "offer fewer tools, or describe them more briefly";
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use unhang_core::health::WORKS_ON_ONE_CALL;

    use super::*;

    #[test]
    fn a_server_that_blocks_is_told_of_instances_where_they_can_be_started() {
        assert!(BLOCKS_WHILE_BUSY.remedy.contains(WORKS_ON_ONE_CALL));
        assert!(!BLOCKS_WHILE_BUSY.remedy_at_a_url().contains("instances"));
    }

    #[test]
    fn every_check_has_an_id_of_its_own_in_plain_words() {
        let mut seen = HashSet::new();
        for check in CHECKS {
            assert!(seen.insert(check.id), "{} is there twice", check.id);
            assert!(check.id.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{}", check.id);
            assert!(!check.means.ends_with('.') && !check.remedy.ends_with('.'), "{}", check.id);
        }
    }
}
