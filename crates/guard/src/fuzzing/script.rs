//! The way from bytes to events.
//!
//! Invariants: every sequence of bytes is a story. After the last byte, every remaining choice is the first one. A changed byte changes its
//! own event and little else, so that mutations of a good story are good stories.

use std::{fmt, time::Duration};

use unhang_core::{limits::Limits, promotion::Promotion};

/// The bytes, taken from the front.
struct Script<'a> {
    bytes: &'a [u8],
}

impl<'a> Script<'a> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        *first
    }

    fn below(&mut self, count: u8) -> u8 {
        self.byte() % count
    }

    fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    fn choose<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.byte()) % from.len()]
    }

    fn raw(&mut self) -> Raw {
        let length = usize::from(self.byte()).min(self.bytes.len());
        let (raw, rest) = self.bytes.split_at(length);
        self.bytes = rest;
        Raw(raw.to_vec())
    }

    fn several<T>(&mut self, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = self.choose(&[1, 1, 1, 1, 1, 2, 3, 6]);
        (0..count).map(|_| one(self)).collect()
    }
}

/// A whole life: limits, then events.
pub struct FuzzScript {
    pub(super) limits: Limits,
    /// Whether the handshake is done before anything else happens.
    pub(super) shaken: bool,
    /// Whether the end comes by a signal, and not by the client's end of input.
    pub(super) by_signal: bool,
    /// Whether slow calls become jobs.
    pub(super) makes_jobs: bool,
    pub(super) events: Vec<ScriptEvent>,
}

/// The most events in one life. It is enough for any sequence of events, and it bounds the time of a life.
const MAX_EVENTS: usize = 400;

impl fmt::Debug for FuzzScript {
    /// Writes one event a line, for a person who has to follow it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FuzzScript { limits, shaken, by_signal, makes_jobs, events } = self;
        writeln!(formatter, "{limits:?}, shaken: {shaken}, by a signal: {by_signal}, jobs: {makes_jobs}")?;
        events.iter().try_for_each(|event| writeln!(formatter, "  {event:?}"))
    }
}

impl FuzzScript {
    /// Reads the story that the bytes tell. All bytes tell one.
    pub fn read(bytes: &[u8]) -> FuzzScript {
        let script = &mut Script { bytes };
        let mut limits = limits(script);
        let (shaken, others) = (script.below(8) < 7, script.byte());
        let [by_signal, makes_jobs, soon] = [1, 2, 4].map(|bit| others & bit != 0);
        if soon {
            limits.promote_after = Promotion::After(Duration::from_secs(2));
        }
        let mut events = Vec::new();
        while !script.bytes.is_empty() && events.len() < MAX_EVENTS {
            events.push(ScriptEvent::read(script));
        }
        FuzzScript { limits, shaken, by_signal, makes_jobs, events }
    }
}

/// Chooses the limits. Small limits are reached often, so they come first.
fn limits(script: &mut Script<'_>) -> Limits {
    let defaults = Limits::default();
    let seconds = Duration::from_secs;
    Limits {
        max_in_flight: script.choose(&[3, 1, 2, defaults.max_in_flight]),
        queue_bytes: script.choose(&[defaults.queue_bytes, 300, 4_000, 40_000]),
        max_message: script.choose(&[1 << 20, 200, 600]),
        breaker_failures: script.choose(&[defaults.breaker_failures, 1, 2]),
        call_timeout: script.choose(&[defaults.call_timeout, seconds(20), seconds(3)]),
        eof_grace: script.choose(&[defaults.eof_grace, seconds(60)]),
        stop_grace: script.choose(&[defaults.stop_grace, seconds(4)]),
        quiet: script.below(4) == 3,
        ..defaults
    }
}

/// One event of a life.
#[derive(Debug)]
pub(super) enum ScriptEvent {
    /// The client writes lines. The first field says how they are put together.
    Client(Packing, Vec<ClientWord>),
    Server(Packing, Vec<ServerWord>),
    /// Time passes, with every tick that is due on the way.
    Wait(Duration),
    /// Time passes up to the next tick, or to this much before it.
    UntilTick(Duration),
    /// Time passes, and the clock's tick is late.
    Oversleep(Duration),
    Process(ProcessStep),
    /// The client takes this many more bytes.
    ClientReads(usize),
    ClientEnds,
    ClientGone,
    Signal,
    /// The server stops reading, or goes on.
    ServerReads(usize),
    /// The server computes, or does not.
    Busy(bool),
    /// Starting the server fails from now on, or does not.
    Unstartable(bool),
    /// The server ends when it is stopped, or is never heard of again.
    Obeys(bool),
}

/// An event of the server's process.
#[derive(Clone, Copy, Debug)]
pub(super) enum ProcessStep {
    Dies,
    DiesAndIsGone,
    IsGone,
    ClosesStdout,
    ClosesStdin,
}

/// The form in which the words of one side are written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Packing {
    Lines,
    Array,
    Glued,
    /// The last line has no ending yet.
    Torn,
}

/// Bytes as they are.
#[derive(Clone)]
pub(super) struct Raw(pub(super) Vec<u8>);

impl fmt::Debug for Raw {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "\"{}\"", self.0.escape_ascii())
    }
}

/// A word of the client. Ids and tokens are indices of [`IDS`](super::speech::IDS).
#[derive(Clone, Debug)]
pub(super) enum ClientWord {
    Request {
        id: u8,
        method: u8,
        token: u8,
    },
    Cancel(u8),
    /// Answers one of the server's requests, counted from the newest.
    Answer(u8, ScriptedAnswer),
    Note(u8),
    Raw(Raw),
}

/// A word of the server.
#[derive(Clone, Debug)]
pub(super) enum ServerWord {
    /// Answers one of its open requests, counted from the newest.
    Answer(u8, ScriptedAnswer),
    Ask {
        id: u8,
        method: u8,
    },
    /// Withdraws a request of its own, or ends a subscription.
    Cancel(u8),
    Note {
        kind: u8,
        token: u8,
    },
    Raw(Raw),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScriptedAnswer {
    Well,
    /// A good answer. If it answers a handshake, it names the one revision with batches.
    OldRevision,
    Error,
    Twice,
    OtherType,
    NoOutcome,
    NoVersion,
    Cut,
    TooLong,
    NotText,
    WithoutId,
}

impl ScriptEvent {
    fn read(script: &mut Script<'_>) -> ScriptEvent {
        match script.below(32) {
            0..=9 => ScriptEvent::Client(Packing::read(script), script.several(ClientWord::read)),
            10..=17 => ScriptEvent::Server(Packing::read(script), script.several(ServerWord::read)),
            18 | 19 => ScriptEvent::Wait(Duration::from_millis(script.choose(&WAITS))),
            20 | 21 => ScriptEvent::UntilTick(Duration::from_millis(script.choose(&[0, 1]))),
            22 => ScriptEvent::Oversleep(Duration::from_millis(script.choose(&WAITS))),
            23 | 24 => ScriptEvent::Process(script.choose(&[
                ProcessStep::DiesAndIsGone,
                ProcessStep::Dies,
                ProcessStep::IsGone,
                ProcessStep::ClosesStdout,
                ProcessStep::ClosesStdin,
            ])),
            25 => ScriptEvent::ClientReads(script.choose(&ROOMS)),
            26 => ScriptEvent::ServerReads(script.choose(&ROOMS)),
            27 => ScriptEvent::Busy(script.flag()),
            28 => ScriptEvent::Obeys(script.flag()),
            29 => ScriptEvent::Unstartable(script.flag()),
            30 => ScriptEvent::Process(ProcessStep::IsGone),
            _ => match script.below(8) {
                0 => ScriptEvent::Signal,
                1 => ScriptEvent::ClientGone,
                2..=4 => ScriptEvent::ClientEnds,
                _ => ScriptEvent::Wait(Duration::from_millis(script.choose(&WAITS))),
            },
        }
    }
}

/// Milliseconds: around the limits, and between them.
const WAITS: [u64; 10] = [100, 1, 1_000, 5_000, 29_999, 30_000, 55_000, 300_000, 900_000, 250];

/// Bytes.
const ROOMS: [usize; 5] = [0, 1, 100, 1_000, usize::MAX];

impl Packing {
    fn read(script: &mut Script<'_>) -> Packing {
        use Packing::{Array, Glued, Lines, Torn};
        script.choose(&[Lines, Lines, Lines, Lines, Array, Array, Glued, Torn])
    }
}

impl ClientWord {
    fn read(script: &mut Script<'_>) -> ClientWord {
        match script.below(16) {
            0..=8 => ClientWord::Request { id: script.byte(), method: script.byte(), token: script.byte() },
            9 | 10 => ClientWord::Cancel(script.byte()),
            11 | 12 => ClientWord::Answer(script.byte(), ScriptedAnswer::read(script)),
            13 | 14 => ClientWord::Note(script.byte()),
            _ => ClientWord::Raw(script.raw()),
        }
    }
}

impl ServerWord {
    fn read(script: &mut Script<'_>) -> ServerWord {
        match script.below(16) {
            0..=7 => ServerWord::Answer(script.choose(&[0, 0, 0, 1, 2, 3, 5]), ScriptedAnswer::read(script)),
            8..=10 => ServerWord::Ask { id: script.byte(), method: script.byte() },
            11 => ServerWord::Cancel(script.byte()),
            12..=14 => ServerWord::Note { kind: script.byte(), token: script.byte() },
            _ => ServerWord::Raw(script.raw()),
        }
    }
}

impl ScriptedAnswer {
    fn read(script: &mut Script<'_>) -> ScriptedAnswer {
        use ScriptedAnswer::{
            Cut, Error, NoOutcome, NoVersion, NotText, OldRevision, OtherType, TooLong, Twice, Well,
            WithoutId,
        };
        script.choose(&[
            Well,
            Well,
            Well,
            Well,
            Well,
            OldRevision,
            OldRevision,
            Error,
            Twice,
            OtherType,
            NoOutcome,
            NoVersion,
            Cut,
            TooLong,
            NotText,
            WithoutId,
        ])
    }
}
