//! Every number that bounds something, with its default and its reason (design 3, R-22).
//!
//! Invariants
//!
//! - No other module holds such a number. [`Limits`](crate::limits::Limits) starts from the ones here.
//! - This module imports nothing of the crate.
//! - Each limit of a server has a flag, an environment variable and a default; in text each has a unit.

use std::time::Duration;

/// From spawn to the first answer. A cold `npx` needs tens of seconds and the usual client gives up at 60 s, so ours fires first (G-06,
/// peers.md 3.1 I).
pub const START_TIMEOUT: Duration = Duration::from_secs(55);
/// How long `server/discover` may stay unanswered after a server's first sign of life before `initialize` goes out (design 4).
pub const PROBE_PATIENCE: Duration = Duration::from_secs(3);
/// The same limit for a server that gives no sign of life at all: some servers are silent until they hear words that they know.
pub const PROBE_SILENCE: Duration = Duration::from_secs(10);
/// The limit of any request but `tools/call` (L-19, L-79). It covers a list with all its pages, so slow pages are no way round it.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The limit of a `tools/call` in all; progress does not extend it (design 3).
pub const CALL_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// How much of a client's known clock we use, in per cent, so that our deadline fires before the client's (G-06).
pub const CLOCK_PERCENT: u32 = 95;
/// How much of a client's clock a `tools/call` may use before it becomes a job, in per cent. Fast calls stay simple. Before
/// [`CLOCK_PERCENT`] and the client's own end there is time to record the job and to deliver its id (G-06).
pub const PROMOTE_PERCENT: u32 = 80;
/// How long a call may take before it becomes a job, if the client's clock is not known. Most clients with a clock have 60 s, and this
/// leaves a quarter of it (peers.md 3.3).
pub const PROMOTE_AFTER: Duration = Duration::from_secs(45);
/// How long a server may be silent about a call before unhang sends a heartbeat to a client that wants progress. It is a third of the
/// shortest known clock of a client, so two heartbeats may get lost (peers.md 3.3).
pub const HEARTBEAT: Duration = Duration::from_secs(10);
/// The limit of a call that has become a job, in all. Builds and simulations take an hour. A longer task is better made a command job,
/// which outlives us. A server that forgot a call is not waited for all day (design 3).
pub const JOB_TIMEOUT: Duration = Duration::from_secs(2 * 60 * 60);
/// How long calls in flight may still be answered after the client's stdin ended. Clients close stdin to say goodbye, and real servers
/// still answer afterwards (contract 4).
pub const EOF_GRACE: Duration = Duration::from_secs(5);
/// The time between the rungs of the stop ladder: after stdin closes, and again after SIGTERM.
pub const STOP_GRACE: Duration = Duration::from_secs(1);
/// The limit of the whole stop of one server (X-05, C-53).
pub const STOP_LIMIT: Duration = Duration::from_secs(3);
/// How long beyond its limit unhang waits for a stop that reports nothing; the server's lifeline ends the tree without us.
pub const STOP_SLACK: Duration = Duration::from_secs(1);
/// The limit for the end of all servers of a client together (X-05, C-47).
pub const DISPOSE_LIMIT: Duration = Duration::from_secs(5);
/// How long the process may take to end once its outcome is known (X-05, C-38).
pub const EXIT_LIMIT: Duration = Duration::from_secs(10);
/// How long calls in flight over stdio may take after a signal: the client sends it when it has finished.
pub const SIGNAL_GRACE: Duration = Duration::from_millis(500);
/// How long our own last answers may wait in any case for a client that does not read, while we end.
pub const FLUSH_LIMIT: Duration = Duration::from_millis(500);
/// How long a client may pause while it reads the last answers, if [`EXIT_LIMIT`] allows it. On a busy machine a client that had not
/// stopped reading was kept from it for more than half a second.
pub const FLUSH_PAUSE: Duration = Duration::from_secs(2);
/// How long a server may live that has closed its stdin with unread bytes in it. A server that is about to end closes its stdin too.
pub const LAST_MOMENT: Duration = Duration::from_secs(1);
/// How long to wait for the right answer after an answer without a usable id, which is probably meant for the same call.
pub const STRAY_ANSWER_PATIENCE: Duration = Duration::from_secs(1);
/// How long a dead server's stdout is still read. Another process can hold the pipe open, so its end is never waited for (processes.md
/// 1.5).
pub const LAST_WORDS: Duration = Duration::from_millis(200);
/// The size of one line in either direction (design 3), and of a list with all its pages.
pub const MAX_MESSAGE: usize = 64 << 20;
/// The most requests of one client. Servers do not push back on their own: they were seen to take 10,662 requests and grow to 329 MB
/// (contract 4).
pub const MAX_IN_FLIGHT: usize = 1000;
/// The most requests that wait for their turn at one server, of all clients together: as many as one client may make. The request that
/// waits longest has an answer by the time its own limit is over.
pub const MAX_WAITING: usize = MAX_IN_FLIGHT;
/// The most requests with all servers together. Servers of one machine cannot handle nearly as many; the number bounds what a gateway
/// holds.
pub const MAX_IN_FLIGHT_OF_ALL: usize = 4096;
/// The most requests that wait because of that.
pub const MAX_WAITING_OF_ALL: usize = 4096;
/// The most instances of servers of which each session has its own, of all sessions together. A server was seen to take 70 MB.
pub const MAX_INSTANCES: usize = 32;
/// How long a call may keep an instance of a server before the next call goes to another instance. A process that starts in a moment is not
/// started for each pair of calls that meet (issue 24).
pub const BUSY_AFTER: Duration = Duration::from_secs(1);
/// The most instances of one server that all sessions share. A call each is more than one machine has processors.
pub const MAX_SHARED_INSTANCES: u32 = 64;
/// How long unhang waits for the same change of a resource from the other instances of a server, so that a client hears of it once. Two
/// processes that see one change tell of it within milliseconds of each other.
pub const UPDATE_MERGE: Duration = Duration::from_millis(100);
/// The shortest time after which a refused client is told to try again. It is also the estimate before there were any calls.
pub const RETRY_LEAST: Duration = Duration::from_millis(100);
/// The longest such time. By then most requests have ended, one way or the other.
pub const RETRY_MOST: Duration = Duration::from_secs(60);
/// The bytes that wait for one peer before pressure is answered (design 3).
pub const QUEUE_BYTES: usize = 16 << 20;
/// The first pause after an unexpected exit; it doubles.
pub const RESTART_DELAY: Duration = Duration::from_millis(250);
/// The longest pause between restarts.
pub const RESTART_DELAY_MAX: Duration = Duration::from_secs(30);
/// Failures in a row that open the breaker (L-56).
pub const BREAKER_FAILURES: u32 = 5;
/// How long an open breaker refuses before one trial (L-56).
pub const BREAKER_COOLDOWN: Duration = Duration::from_secs(30);
/// The longest such time for a server over HTTP, and from one failed try to list it to the next. A try costs a connection and no process.
pub const REMOTE_COOLDOWN_MAX: Duration = Duration::from_secs(5);
/// How long a server is idle before it is asked whether it lives (L-58).
pub const HEALTH_INTERVAL: Duration = Duration::from_secs(30);
/// The number of unanswered health checks in a row that restart a server. One or two are not enough: a 2 s ping once killed a healthy
/// gateway ten times in a row (peers.md 0.10).
pub const HEALTH_MISSES: u32 = 3;
/// The share of the time between two health checks that a server must have computed to count as busy, in per cent. A hung server whose
/// timers still tick uses a hundredth of that. A server that works on a crowded machine gets many times more.
pub const BUSY_PERCENT: u32 = 1;
/// The last bytes of stderr that are kept in memory for error messages.
pub const STDERR_TAIL: usize = 64 << 10;
/// The size of one server's log on disk.
pub const STDERR_LOG: u64 = 10 << 20;
/// The number of logs of earlier runs of the same server that are kept.
pub const LOGS_KEPT: usize = 5;
/// The number of lines of stderr in an error's data (design 4).
pub const TAIL_LINES: usize = 20;
/// The number of lines of quarantined stdout in an error's data (design 4).
pub const JUNK_LINES: usize = 5;
/// The bytes that are kept of one quarantined line; a line can be [`MAX_MESSAGE`] long.
pub const JUNK_LINE_BYTES: usize = 500;
/// How long memory that a long line needed is kept for the next one. It is given back within one to two of these times.
pub const LARGE_BUFFER_KEPT: Duration = Duration::from_secs(1);
/// The number of cancelled and expired ids whose late answers are still recognised.
pub const LATE_IDS: usize = 1000;
/// The size up to which a request that may be sent again after a restart is kept whole.
pub const RETRY_BYTES: usize = 64 << 10;
/// The most pages of one list. Real servers have one (contract 4); a server that gave pages for ever would never be done with.
pub const LIST_PAGES: usize = 1000;
/// How often a stateless server may ask for input before it answers one request.
pub const INPUT_ROUNDS: usize = 10;
/// The most subscriptions that are replayed after a restart.
pub const MAX_SUBSCRIPTIONS: usize = 1000;
/// The most extensions of clients that the gateway declares to servers.
pub const CLIENT_EXTENSIONS: usize = 16;
/// The largest settings of such an extension, in bytes of JSON.
pub const CLIENT_EXTENSION_BYTES: usize = 4 << 10;
/// The longest answer of a tool of ours, in characters: clients cut or refuse longer ones (design 7).
pub const ANSWER_CHARACTERS: usize = 25_000;
/// The size of a tool's arguments, in bytes of JSON, from which they are checked beside the event loop. So a check that takes long delays
/// nobody else.
pub const LARGE_ARGUMENTS: usize = 64 << 10;
/// How long a client may keep the list of tools of a stateless revision before it asks again. The list changes with the configuration file
/// only, which is read at the start.
pub const LIST_LIFE: Duration = Duration::from_secs(60);

/// The shortest `idle-timeout` of a server behind the gateway. A stopped server has to be started for the next request, which takes longer
/// than a shorter timeout would save.
pub const IDLE_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// How long requests wait while a restarted server takes up the state that sessions had told the one before. This is its level of logs and
/// the resources that somebody watches. A server that answers takes milliseconds, and a machine may be busy.
pub const RESTORE_PATIENCE: Duration = Duration::from_secs(5);
/// How long a list waits for servers that are still starting. Then the known part has to do, and clients are told of changes. Some clients
/// give a list up after 5 s (peers.md 3.3).
pub const LIST_PATIENCE: Duration = Duration::from_secs(2);
/// How long a list request of a client waits while a server is asked whether its list has changed. A server that works on one call at a time
/// answers only after that call; then the known list has to do.
pub const LIST_REFRESH_PATIENCE: Duration = Duration::from_secs(1);
/// How long a guard waits for the list of tools that it has requested itself, to learn which names the server has. Clients give a request up
/// after 10 s and more (peers.md 3.3).
pub const OWN_LIST_PATIENCE: Duration = Duration::from_secs(5);
/// How long the tools of a server wait for its other lists. Lists that come later are published when they come.
pub const TOOLS_PATIENCE: Duration = Duration::from_secs(1);
/// The time from one notification of a changed list to the next for which a server announces a change and its list is the same. Some servers
/// announce changes without end, and each notification wakes every client. A list that differs is told at once.
pub const LIST_ANNOUNCEMENT_PAUSE: Duration = Duration::from_secs(1);
/// How long the first start of a server behind a pipe waits for a client to show its era, so that the server is greeted in that era. A
/// client begins its session within milliseconds after it has started unhang.
pub const ERA_PATIENCE: Duration = Duration::from_millis(300);
/// The time for which a server's question outside calls waits for a session whose client can be asked. Servers ask as soon as they are
/// greeted, and clients need a moment for their own handshake.
pub const INBOX_PATIENCE: Duration = Duration::from_secs(5);
/// How long a request about a task waits for the answer of the server that has the task. Then the last known state has to do.
pub const TASK_LOOK_PATIENCE: Duration = Duration::from_secs(1);
/// How long beyond its limit unhang still waits for a request to a server. The part of unhang that knows why there is no answer can then
/// report it.
pub const VERDICT_SLACK: Duration = Duration::from_millis(500);
/// How long a status request waits for the disk that knows of jobs; without it the jobs are left out. Prometheus gives up after 10 s.
pub const STATUS_PATIENCE: Duration = Duration::from_secs(2);
/// How long a session over HTTP may be silent before it is over: clients go without a word.
pub const SESSION_IDLE: Duration = Duration::from_secs(30 * 60);
/// The most sessions over HTTP at a time. Each costs memory, and any client can begin one.
pub const MAX_SESSIONS: usize = 10_000;
/// The most connections over HTTP at a time: two for each of two thousand clients, and some more. Each may hold a message.
pub const MAX_CONNECTIONS: usize = 4096;
/// The descriptors that connections over HTTP leave for everything else: servers have six each, and jobs and logs have some. If the system
/// gives so few that this would be more than half, connections leave half of them.
pub const DESCRIPTORS_KEPT: usize = 512;
/// The share of all connections that one address may have, if other machines may connect. Before the first token nothing else tells clients
/// apart. It is a quarter, because a reverse proxy brings many clients in one address.
pub const CONNECTIONS_OF_ONE: usize = 4;
/// The same share if only this machine may connect. Nearly all connections come from one address then, and a quarter is left for the
/// others.
pub const CONNECTIONS_OF_ONE_AT_HOME: (usize, usize) = (3, 4);
/// The most requests in flight of one client, which a token tells from others. It is half, because a team may share a token, and others
/// come in all the same.
pub const REQUESTS_OF_ONE: usize = MAX_CONNECTIONS / 2;
/// The most sessions of one client, for the same reason, and the most of its requests that stand alone.
pub const SESSIONS_OF_ONE: usize = MAX_SESSIONS / 2;
/// How long one answer of the authorization server may take, head and body, while a client that has sent a token waits for our answer.
pub const OAUTH_ANSWER: Duration = Duration::from_secs(10);
/// The size of such an answer: metadata and keys have a few kilobytes.
pub const OAUTH_ANSWER_BYTES: usize = 1 << 20;
/// How long the keys of the authorization server are kept before they are fetched again: a key that it takes back counts no longer.
pub const KEYS_KEPT: Duration = Duration::from_secs(60 * 60);
/// How long to wait after a fetch before the next one, however many tokens name unknown keys: anybody can make names up.
pub const KEYS_PAUSE: Duration = Duration::from_secs(60);
/// The same pause while there are no keys at all, and no client is let in.
pub const KEYS_FIRST_PAUSE: Duration = Duration::from_secs(5);
/// How far the clocks of authorization servers may differ from ours.
pub const CLOCK_LEEWAY: Duration = Duration::from_secs(60);
/// How long a connection over HTTP may be idle, shake hands for TLS, or take for the head of a request.
pub const HEAD_PATIENCE: Duration = Duration::from_secs(60);
/// How long the body of a request may take once it has begun.
pub const BODY_PATIENCE: Duration = Duration::from_secs(30);
/// The memory that bodies of requests over HTTP, until they are answered, and whole replies, until they are taken, may have together. It is
/// two of the longest messages, so that one that stands still does not keep another out. It is twice `max-message` if that is more.
pub const MESSAGE_MEMORY: usize = 2 * MAX_MESSAGE;
/// The size up to which a message does not count for it. Nearly all messages are shorter, and with [`MAX_CONNECTIONS`] they come to 64 MiB.
pub const SMALL_MESSAGE: usize = 16 << 10;
/// The size over which messages wait for their room one after the other. Shorter ones need so little that they find it beside them.
pub const LARGE_MESSAGE: usize = 1 << 20;
/// How long a message waits for its room in all, and after what time another try makes sense. With the wait for a turn it is over before
/// [`BODY_PATIENCE`].
pub const ROOM_PATIENCE: Duration = Duration::from_secs(5);
/// How long the message that has the turn waits for its room. It is twice as long, because by then the messages that wait for their turn
/// have given back what they had.
pub const TURN_PATIENCE: Duration = Duration::from_secs(10);
/// The most messages that wait for their room at a time; each is woken when some is freed.
pub const MESSAGES_WAITING: usize = 256;
/// How long a client over HTTP is asked to wait before it resumes a broken stream (`retry:`). The official SDKs try twice and then give up,
/// so this gives a network six seconds to come back. `rmcp` servers ask for the same.
pub const STREAM_RETRY: Duration = Duration::from_secs(3);
/// How long a client over HTTP may read nothing of what is sent to it before its connection is closed.
pub const DEAF_PATIENCE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_long_times_have_the_values_that_people_are_told() {
        const HOUR: u64 = 3600;
        for (name, value, expect) in [
            ("MAX_MESSAGE", MAX_MESSAGE, 67_108_864),
            ("QUEUE_BYTES", QUEUE_BYTES, 16_777_216),
            ("STDERR_TAIL", STDERR_TAIL, 65_536),
            ("STDERR_LOG", usize::try_from(STDERR_LOG).expect("a size"), 10_485_760),
            ("RETRY_BYTES", RETRY_BYTES, 65_536),
            ("LARGE_ARGUMENTS", LARGE_ARGUMENTS, 65_536),
            ("OAUTH_ANSWER_BYTES", OAUTH_ANSWER_BYTES, 1_048_576),
            ("MESSAGE_MEMORY", MESSAGE_MEMORY, 134_217_728),
            ("SMALL_MESSAGE", SMALL_MESSAGE, 16_384),
            ("LARGE_MESSAGE", LARGE_MESSAGE, 1_048_576),
            ("REQUESTS_OF_ONE", REQUESTS_OF_ONE, 2048),
            ("SESSIONS_OF_ONE", SESSIONS_OF_ONE, 5000),
        ] {
            assert_eq!(value, expect, "{name}");
        }
        for (name, value, seconds) in [
            ("CALL_TIMEOUT", CALL_TIMEOUT, 300),
            ("JOB_TIMEOUT", JOB_TIMEOUT, 2 * HOUR),
            ("SESSION_IDLE", SESSION_IDLE, HOUR / 2),
            ("KEYS_KEPT", KEYS_KEPT, HOUR),
        ] {
            assert_eq!(value.as_secs(), seconds, "{name}");
        }
    }

    #[test]
    fn limits_that_depend_on_each_other_fit() {
        assert_eq!(SMALL_MESSAGE * MAX_CONNECTIONS, 64 << 20, "as the docs of `SMALL_MESSAGE` say");
        for (name, smaller, larger) in [
            ("the room for a body", ROOM_PATIENCE + TURN_PATIENCE, BODY_PATIENCE),
            ("a promotion without a clock", PROMOTE_AFTER, CALL_TIMEOUT),
            ("a job", CALL_TIMEOUT, JOB_TIMEOUT),
            ("a retry", RETRY_LEAST, RETRY_MOST),
            ("a restart", RESTART_DELAY, RESTART_DELAY_MAX),
            ("the last answers", FLUSH_LIMIT, FLUSH_PAUSE),
            ("a pause in the last answers", FLUSH_PAUSE, EXIT_LIMIT),
            ("the end of all servers", DISPOSE_LIMIT, EXIT_LIMIT),
        ] {
            assert!(smaller < larger, "{name}");
        }
        let sizes = [SMALL_MESSAGE, LARGE_MESSAGE, MAX_MESSAGE, MESSAGE_MEMORY];
        assert!(sizes.is_sorted_by(|smaller, larger| smaller < larger));
    }
}
