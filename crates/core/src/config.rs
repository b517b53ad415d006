//! Every number that bounds something, with its default and its reason (design 3, R-22).
//!
//! Invariants
//!
//! - No other module holds such a number. [`Limits`](crate::limits::Limits) starts from the ones here.
//! - This module imports nothing of the crate.
//! - Each limit of a server has a flag, an environment variable and a default; in text each has a unit.

use std::time::Duration;

/// From spawn to the first answer. A cold `npx` needs tens of seconds and the usual client gives up at 60 s, so that
/// ours fires first (G-06, peers.md 3.1 I).
pub const START_TIMEOUT: Duration = Duration::from_secs(55);
/// How long `server/discover` may stay unanswered after a server's first sign of life before `initialize` goes out (design 4).
pub const PROBE_PATIENCE: Duration = Duration::from_secs(3);
/// The same for a server that gives no sign of life at all: some are silent until they are spoken to in words that they know.
pub const PROBE_SILENCE: Duration = Duration::from_secs(10);
/// Any request but `tools/call` (L-19, L-79); a list with all its pages, so that slow pages are no way round it.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// A `tools/call` in all; progress does not extend it (design 3).
pub const CALL_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// How much of a client's known clock we use, in per cent, so that our deadline fires before the client's (G-06).
pub const CLOCK_PERCENT: u32 = 95;
/// How much of it a `tools/call` may use before it becomes a job, in per cent: fast calls stay simple, and there is time left for the
/// job to be recorded and its id to be delivered before [`CLOCK_PERCENT`] and the client's own end of it (G-06).
pub const PROMOTE_PERCENT: u32 = 80;
/// The same for a client whose clock is not known: most that have one have 60 s, and this leaves a quarter of it (peers.md 3.3).
pub const PROMOTE_AFTER: Duration = Duration::from_secs(45);
/// For how long a server may be silent about a call before a client that wants to hear of progress is told that it is still waited for: a
/// third of the shortest clock of a client that is known, so that two may get lost (peers.md 3.3).
pub const HEARTBEAT: Duration = Duration::from_secs(10);
/// A call that has become a job, in all. Builds and simulations take an hour; what takes longer is better made a command job,
/// which outlives us, and a server that forgot a call is not waited for all day (design 3).
pub const JOB_TIMEOUT: Duration = Duration::from_secs(2 * 60 * 60);
/// How long calls in flight may still be answered after the client's stdin ended. Closing stdin is how clients say
/// goodbye, and real servers still answer afterwards (contract 4).
pub const EOF_GRACE: Duration = Duration::from_secs(5);
/// Between the rungs of the stop ladder: after stdin closes, and again after SIGTERM.
pub const STOP_GRACE: Duration = Duration::from_secs(1);
/// The whole stop of one server (X-05, C-53).
pub const STOP_LIMIT: Duration = Duration::from_secs(3);
/// What a stop that reports nothing is waited for beyond its limit; its lifeline ends the tree without us.
pub const STOP_SLACK: Duration = Duration::from_secs(1);
/// The end of all servers of a client together (X-05, C-47).
pub const DISPOSE_LIMIT: Duration = Duration::from_secs(5);
/// What the process may take to end once its outcome is known (X-05, C-38).
pub const EXIT_LIMIT: Duration = Duration::from_secs(10);
/// What calls in flight over stdio may take after a signal: the client sends it when it has finished.
pub const SIGNAL_GRACE: Duration = Duration::from_millis(500);
/// How long our own last answers may wait in any case for a client that does not read, while we end.
pub const FLUSH_LIMIT: Duration = Duration::from_millis(500);
/// How long a client may pause in reading them where [`EXIT_LIMIT`] allows it. On a busy machine a client that has not
/// stopped reading was kept from it for more than half a second.
pub const FLUSH_PAUSE: Duration = Duration::from_secs(2);
/// What a server that has closed its stdin with something in it may still live: one that is about to end closes it too.
pub const LAST_MOMENT: Duration = Duration::from_secs(1);
/// How long the right answer may still come behind one that is probably meant for the same call and has no usable id.
pub const STRAY_ANSWER_PATIENCE: Duration = Duration::from_secs(1);
/// What a dead server's stdout is still read for. The pipe can be held open by somebody else, so its end is never
/// waited for (processes.md 1.5).
pub const LAST_WORDS: Duration = Duration::from_millis(200);
/// One line in either direction (design 3), and a list with all its pages.
pub const MAX_MESSAGE: usize = 64 << 20;
/// Requests of one client. Servers do not push back on their own: they were seen to take 10,662 requests and grow to
/// 329 MB (contract 4).
pub const MAX_IN_FLIGHT: usize = 1000;
/// Requests that wait for their turn at one server, of all clients together: as many as one client may make. Whoever waits longest has
/// an answer by the time its own limit is over.
pub const MAX_WAITING: usize = MAX_IN_FLIGHT;
/// Requests with all servers together. Far more than servers of one machine are good for; it bounds what a gateway holds.
pub const MAX_IN_FLIGHT_OF_ALL: usize = 4096;
/// Those that wait because of that.
pub const MAX_WAITING_OF_ALL: usize = 4096;
/// Instances of servers of which each session has its own, of all sessions together. A server was seen to take 70 MB.
pub const MAX_INSTANCES: usize = 32;
/// The shortest time after which whoever is refused is told to try again; what is known of calls before there were any.
pub const RETRY_LEAST: Duration = Duration::from_millis(100);
/// The longest. By then most of what is asked has ended, one way or the other.
pub const RETRY_MOST: Duration = Duration::from_secs(60);
/// Bytes that wait for one peer before pressure is answered (design 3).
pub const QUEUE_BYTES: usize = 16 << 20;
/// The first pause after an unexpected exit; it doubles.
pub const RESTART_DELAY: Duration = Duration::from_millis(250);
/// The longest pause between restarts.
pub const RESTART_DELAY_MAX: Duration = Duration::from_secs(30);
/// Failures in a row that open the breaker (L-56).
pub const BREAKER_FAILURES: u32 = 5;
/// How long an open breaker refuses before one trial (L-56).
pub const BREAKER_COOLDOWN: Duration = Duration::from_secs(30);
/// Idle time before the server is asked whether it lives (L-58).
pub const HEALTH_INTERVAL: Duration = Duration::from_secs(30);
/// Unanswered health checks in a row that restart a server. One or two are not enough: a 2 s ping once killed a healthy
/// gateway ten times in a row (peers.md 0.10).
pub const HEALTH_MISSES: u32 = 3;
/// What share of the time between two health checks a server must have computed to count as busy, in per cent. A hung
/// server whose timers still tick uses a hundredth of that; one that works on a crowded machine gets many times more.
pub const BUSY_PERCENT: u32 = 1;
/// Last bytes of stderr kept in memory for error messages.
pub const STDERR_TAIL: usize = 64 << 10;
/// Log of one server on disk.
pub const STDERR_LOG: u64 = 10 << 20;
/// Logs of earlier runs of the same server that are kept.
pub const LOGS_KEPT: usize = 5;
/// Lines of stderr in an error's data (design 4).
pub const TAIL_LINES: usize = 20;
/// Lines of quarantined stdout in an error's data (design 4).
pub const JUNK_LINES: usize = 5;
/// What is kept of one quarantined line; a line can be [`MAX_MESSAGE`] long.
pub const JUNK_LINE_BYTES: usize = 500;
/// How long memory that a long line needed is kept for the next one before it is given back: within one to two of these.
pub const LARGE_BUFFER_KEPT: Duration = Duration::from_secs(1);
/// Cancelled and expired ids whose late answers are still recognised.
pub const LATE_IDS: usize = 1000;
/// A request that may be sent again after a restart is kept whole up to this size.
pub const RETRY_BYTES: usize = 64 << 10;
/// Pages of one list. Real servers have one (contract 4); one that gave pages for ever would never be done with.
pub const LIST_PAGES: usize = 1000;
/// How often a stateless server may ask for input before it answers one request.
pub const INPUT_ROUNDS: usize = 10;
/// Subscriptions that are replayed after a restart.
pub const MAX_SUBSCRIPTIONS: usize = 1000;
/// The longest answer of a tool of ours, in characters: clients cut or refuse what is longer (design 7).
pub const ANSWER_CHARACTERS: usize = 25_000;
/// Arguments of a tool, in bytes of JSON, that are checked beside the event loop, so that a check which takes long delays
/// nobody else.
pub const LARGE_ARGUMENTS: usize = 64 << 10;
/// How long a client may keep the list of tools of a stateless revision before it asks again. The list changes with the
/// configuration file only, which is read at the start.
pub const LIST_LIFE: Duration = Duration::from_secs(60);

/// The shortest `idle-timeout` of a server behind the gateway: one that is stopped has to be started for the next request, which takes
/// longer than anything that is won by a shorter one.
pub const IDLE_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// How long requests wait for a server that was started anew to take up again what sessions had told the one before: its level of logs
/// and the resources that somebody watches. A server that answers takes milliseconds, and a machine may be busy.
pub const RESTORE_PATIENCE: Duration = Duration::from_secs(5);
/// How long a list waits for servers that are still starting; then what is known has to do, and changes are told of. Some clients
/// give a list up after 5 s (peers.md 3.3).
pub const LIST_PATIENCE: Duration = Duration::from_secs(2);
/// What a request to a server is still waited for beyond its limit, so that whoever knows why there is no answer can say it.
pub const VERDICT_SLACK: Duration = Duration::from_millis(500);
/// How long whoever asks how all is waits for the disk that knows of jobs; without it they are left out. Prometheus gives up after 10 s.
pub const STATUS_PATIENCE: Duration = Duration::from_secs(2);
/// A session over HTTP of which nobody has heard for so long is over: clients go without a word.
pub const SESSION_IDLE: Duration = Duration::from_secs(30 * 60);
/// Sessions over HTTP at a time. Each costs memory, and whoever comes can begin one.
pub const MAX_SESSIONS: usize = 10_000;
/// Connections over HTTP at a time: two for each of two thousand clients, and some. Each may hold a message.
pub const MAX_CONNECTIONS: usize = 4096;
/// Descriptors that connections over HTTP leave for everything else: servers have six each, jobs and logs some. Half of all, where the
/// system gives so few that this would be more.
pub const DESCRIPTORS_KEPT: usize = 512;
/// The share of one address of all connections, where other machines come: before the first token nothing else tells clients apart. A
/// quarter, for a reverse proxy brings many in one.
pub const CONNECTIONS_OF_ONE: usize = 4;
/// The same where this machine alone comes: nearly all come from one address then, which leaves a quarter for the others.
pub const CONNECTIONS_OF_ONE_AT_HOME: (usize, usize) = (3, 4);
/// Requests in flight of one client, which a token tells from others. Half, for a team may share one, and others come in all the same.
pub const REQUESTS_OF_ONE: usize = MAX_CONNECTIONS / 2;
/// Sessions of one client, for the same reason; and requests of it that stand alone.
pub const SESSIONS_OF_ONE: usize = MAX_SESSIONS / 2;
/// What one answer of the authorization server may take, head and body, while whoever has sent a token waits for what we say to it.
pub const OAUTH_ANSWER: Duration = Duration::from_secs(10);
/// Its bytes: metadata and keys have a few kilobytes.
pub const OAUTH_ANSWER_BYTES: usize = 1 << 20;
/// For how long the keys of the authorization server are kept before they are fetched again: one that it takes back counts no longer.
pub const KEYS_KEPT: Duration = Duration::from_secs(60 * 60);
/// How long after a fetch the next one is, however many tokens name keys that are not known: anybody can make names up.
pub const KEYS_PAUSE: Duration = Duration::from_secs(60);
/// The same while there are no keys at all, and nobody comes in.
pub const KEYS_FIRST_PAUSE: Duration = Duration::from_secs(5);
/// By how much the clocks of authorization servers may differ from ours.
pub const CLOCK_LEEWAY: Duration = Duration::from_secs(60);
/// For how long a connection over HTTP may be idle, shake hands for TLS, or take for the head of a request.
pub const HEAD_PATIENCE: Duration = Duration::from_secs(60);
/// How long the body of a request may take that has begun.
pub const BODY_PATIENCE: Duration = Duration::from_secs(30);
/// Bytes that bodies of requests over HTTP, until they are answered, and whole replies, until they are taken, may have together: two of the
/// longest, so that one that stands still does not keep another out. Twice `max-message` where that is more.
pub const MESSAGE_MEMORY: usize = 2 * MAX_MESSAGE;
/// Messages up to this do not count for it: nearly all are shorter, and with [`MAX_CONNECTIONS`] they come to 64 MiB.
pub const SMALL_MESSAGE: usize = 16 << 10;
/// Messages over this wait for their room one after the other. Shorter ones need so little that they find it beside them.
pub const LARGE_MESSAGE: usize = 1 << 20;
/// How long a message waits for its room in all, and when it is worth another try: with the wait for a turn it is over before [`BODY_PATIENCE`].
pub const ROOM_PATIENCE: Duration = Duration::from_secs(5);
/// The same for the one that has the turn: twice as long, for by then those that wait for theirs have given back what they had.
pub const TURN_PATIENCE: Duration = Duration::from_secs(10);
/// Messages that wait for their room at a time; each is woken when some is freed.
pub const MESSAGES_WAITING: usize = 256;
/// For how long a client over HTTP may take nothing of what is sent to it before its connection is given up.
pub const DEAF_PATIENCE: Duration = Duration::from_secs(60);
