//! What one client session will do: drawn from a seed before it begins, so that it can be done again.
//!
//! # Invariants
//!
//! - Pure: the same seed and number give the same plan.
//! - A plan is bounded: steps, sizes and pauses.

use std::fmt;
use std::time::Duration;

use super::random::Random;

/// The most steps of a session.
const MOST_STEPS: usize = 24;

/// The revision that has batches.
pub(crate) const BATCH_REVISION: &str = "2025-03-26";
/// The revision without a handshake.
pub(crate) const MODERN_REVISION: &str = "2026-07-28";

const REVISIONS: &[&str] = &[
    "2024-11-05",
    BATCH_REVISION,
    BATCH_REVISION,
    "2025-06-18",
    "2025-11-25",
    "2025-11-25",
    MODERN_REVISION,
];

/// Tools of the plain and of the well-behaved server; one that a faulty server does not have is an answered error.
const TOOLS: &[&str] = &[
    "echo", "echo", "echo", "echo", "pid", "sleep", "big", "stuck", "held", "ask", "log", "fail", "state",
    "die",
];

const METHODS: &[&str] = &[
    "ping",
    "tools/list",
    "tools/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "prompts/list",
    "prompts/get",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
    "server/discover",
    "no/such/method",
];

/// A line that is no valid message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum GarbageLine {
    /// Gets one error without an id.
    Nameless(&'static [u8]),
    /// Is nothing at all to anybody.
    Silent(&'static [u8]),
    /// A request whose method is a number.
    NoMethod,
    /// A request without `jsonrpc`.
    NoVersion,
    /// Two requests on one line.
    TwoOnALine,
    /// Text, and a request behind it.
    TextBefore,
    /// A request over the size limit.
    Oversized,
}

impl fmt::Debug for GarbageLine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nameless(line) => write!(formatter, "Nameless({})", line.escape_ascii()),
            Self::Silent(line) => write!(formatter, "Silent({})", line.escape_ascii()),
            Self::NoMethod => formatter.write_str("NoMethod"),
            Self::NoVersion => formatter.write_str("NoVersion"),
            Self::TwoOnALine => formatter.write_str("TwoOnALine"),
            Self::TextBefore => formatter.write_str("TextBefore"),
            Self::Oversized => formatter.write_str("Oversized"),
        }
    }
}

const GARBAGE: &[GarbageLine] = &[
    GarbageLine::Nameless(b"this is no JSON"),
    GarbageLine::Nameless(br#"{"jsonrpc":"2.0","method":"#),
    GarbageLine::Nameless(b"[]"),
    GarbageLine::Nameless(b"42"),
    GarbageLine::Nameless(br#""text""#),
    GarbageLine::Nameless(b"{\"jsonrpc\":\"2.0\",\"method\":\"caf\xE9\"}"),
    GarbageLine::Nameless(br#"{"level":"info","message":"a log line"}"#),
    GarbageLine::Silent(b""),
    GarbageLine::Silent(b" \t"),
    GarbageLine::Silent(br#"{"jsonrpc":"2.0","id":"nobody asked","result":{}}"#),
    GarbageLine::Silent(br#"{"jsonrpc":"2.0","method":"notifications/no-such-thing"}"#),
    GarbageLine::Silent(
        br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"no such id"}}"#,
    ),
    GarbageLine::NoMethod,
    GarbageLine::NoVersion,
    GarbageLine::TwoOnALine,
    GarbageLine::TextBefore,
    GarbageLine::Oversized,
];

/// One thing that the client does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SessionStep {
    Call {
        tool: &'static str,
        /// Bytes of text to be echoed or made.
        size: usize,
        /// Whether progress is asked for.
        progress: bool,
    },
    /// So many calls at once.
    Burst(usize),
    Request(&'static str),
    /// A subscription that stays open; only where there is no handshake.
    Listen,
    /// Withdraws a waiting request.
    Cancel,
    /// Asks again under an id that was withdrawn.
    Again,
    Garbage(GarbageLine),
    Batch(usize),
    /// A line in two pieces with a pause between.
    TwoPieces(Duration),
    Pause(Duration),
    /// Does not read for a while.
    Deaf(Duration),
    /// Waits until everything is answered.
    Settle,
    StopServer,
    ContinueServer,
    KillServer,
    KillLifeline,
}

/// How the session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionEnding {
    EndOfInput,
    /// With half a line before it.
    EndInMidLine,
    Interrupt,
    Terminate,
    KillGuard,
    /// The client is gone at once, with both pipes.
    Vanish,
}

/// One session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionPlan {
    pub(crate) seed: u64,
    pub(crate) number: u64,
    pub(crate) faulty_server: &'static str,
    pub(crate) revision: &'static str,
    /// Whether the answer to the first request is awaited before anything else.
    pub(crate) waits_for_start: bool,
    pub(crate) reads_stderr: bool,
    pub(crate) answers_asks: bool,
    pub(crate) quiet: bool,
    pub(crate) steps: Vec<SessionStep>,
    pub(crate) ending: SessionEnding,
}

impl SessionPlan {
    /// Draws the session with this number, on one of these faulty servers.
    pub(crate) fn draw(seed: u64, number: u64, faulty_servers: &[&'static str]) -> Self {
        let mut random = Random::of(seed, number);
        let plan = Self {
            seed,
            number,
            faulty_server: random.pick(faulty_servers),
            revision: random.pick(REVISIONS),
            waits_for_start: random.chance(75),
            reads_stderr: random.chance(75),
            answers_asks: random.chance(85),
            quiet: random.chance(10),
            steps: (0..random.size(2, MOST_STEPS)).map(|_| step(&mut random)).collect(),
            ending: ending(&mut random),
        };
        // Killed at the same moment, guard and lifeline leave nobody to sweep, and cannot do better
        // (docs/concepts/what-the-guard-cannot-do.md).
        match plan.ending {
            SessionEnding::KillGuard if plan.steps.contains(&SessionStep::KillLifeline) => {
                Self { ending: SessionEnding::Terminate, ..plan }
            }
            _ => plan,
        }
    }

    /// Whether the session has no handshake.
    pub(crate) fn is_modern(&self) -> bool {
        self.revision == MODERN_REVISION
    }
}

fn step(random: &mut Random) -> SessionStep {
    let milliseconds = |random: &mut Random, most| Duration::from_millis(random.between(1, most));
    match random.between(1, 100) {
        1..=30 => {
            let most = random.pick(&[10, 1000, 1000, 70_000, 400_000]);
            let (tool, size) = (random.pick(TOOLS), random.size(0, most));
            SessionStep::Call { tool, size, progress: random.chance(30) }
        }
        31..=36 => SessionStep::Burst(random.size(2, 200)),
        37..=51 => SessionStep::Request(random.pick(METHODS)),
        52..=53 => SessionStep::Listen,
        54..=63 => SessionStep::Cancel,
        64..=65 => SessionStep::Again,
        66..=75 => SessionStep::Garbage(random.pick(GARBAGE)),
        76..=79 => SessionStep::Batch(random.size(1, 12)),
        80..=82 => SessionStep::TwoPieces(milliseconds(random, 60)),
        83..=86 => SessionStep::Pause(milliseconds(random, 250)),
        87..=89 => SessionStep::Deaf(milliseconds(random, 600)),
        90..=93 => SessionStep::Settle,
        94..=95 => SessionStep::StopServer,
        96..=97 => SessionStep::ContinueServer,
        98..=99 => SessionStep::KillServer,
        _ => SessionStep::KillLifeline,
    }
}

fn ending(random: &mut Random) -> SessionEnding {
    match random.between(1, 100) {
        1..=45 => SessionEnding::EndOfInput,
        46..=52 => SessionEnding::EndInMidLine,
        53..=70 => SessionEnding::Terminate,
        71..=77 => SessionEnding::Interrupt,
        78..=90 => SessionEnding::KillGuard,
        _ => SessionEnding::Vanish,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAMS: &[&str] = &["a", "b", "c", "d", "e"];

    #[test]
    fn the_same_seed_and_number_give_the_same_plan() {
        for number in 0..50 {
            assert_eq!(SessionPlan::draw(42, number, PROGRAMS), SessionPlan::draw(42, number, PROGRAMS));
        }
        let draw = |seed| (0..50).map(|number| SessionPlan::draw(seed, number, PROGRAMS)).collect::<Vec<_>>();
        let steps = |seed| draw(seed).into_iter().map(|plan| plan.steps).collect::<Vec<_>>();
        assert_ne!(steps(42), steps(43));
        assert!(draw(42).windows(2).any(|pair| pair[0].steps != pair[1].steps));
    }

    #[test]
    fn no_session_kills_both_guard_and_lifeline() {
        let plans = (0..1000).map(|number| SessionPlan::draw(1, number, PROGRAMS));
        let kills_lifeline = |plan: &SessionPlan| plan.steps.contains(&SessionStep::KillLifeline);
        assert!(plans.filter(kills_lifeline).all(|plan| plan.ending != SessionEnding::KillGuard));
    }

    #[test]
    fn a_thousand_sessions_have_every_program_and_every_kind_of_step_and_ending() {
        let plans: Vec<_> = (0..1000).map(|number| SessionPlan::draw(1, number, PROGRAMS)).collect();
        assert!(
            PROGRAMS
                .iter()
                .all(|faulty_server| plans.iter().any(|plan| plan.faulty_server == *faulty_server))
        );
        let kinds = |step: &SessionStep| std::mem::discriminant(step);
        let steps: std::collections::HashSet<_> =
            plans.iter().flat_map(|plan| &plan.steps).map(kinds).collect();
        assert_eq!(steps.len(), 16, "one of the kinds of step is never drawn");
        let endings: std::collections::HashSet<_> =
            plans.iter().map(|plan| std::mem::discriminant(&plan.ending)).collect();
        assert_eq!(endings.len(), 6);
        assert!(GARBAGE.iter().all(|garbage| {
            plans.iter().any(|plan| plan.steps.contains(&SessionStep::Garbage(*garbage)))
        }));
    }
}
