//! A corpus of hangs: cases that show whether what stands between a client and a server keeps the promises.
//!
//! Each case meets one faulty server through a *contender*: nothing at all, or a command that takes a server's command after it.
//! An independent client goes through a small script with a patience, and what it sees is judged. Nothing in here knows
//! how a contender does it, so that any can be measured in the same way.
//!
//! # Invariants
//!
//! - A case judges what any client can see: answers, lines, streams, processes. No contender's own codes or texts.
//! - Each case says what is expected of no wrapper and of the naive pump, the controls included that both of them keep.
//! - Every wait of a case has a limit, and nothing of it is left when it is over, whatever the contender does.

mod case_run;
pub(crate) mod client;
mod naive_pump;
mod promise_1;
mod promise_2;
mod promise_3;
mod promise_4;
mod promise_5;
mod promise_6;
mod promise_8;
mod received;
pub(crate) mod verdict;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use unhang_demo_servers::bounded_waits::lock;

use crate::signals;

use case_run::WrapperTrial;
pub(crate) use naive_pump::naive_pump;
pub use verdict::CaseVerdict;
use verdict::Judged;

/// How long the client waits for anything, where nothing else is said.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// How many trials there are at the same time. Nearly all of them wait, else it could not be as many.
const AT_ONCE: usize = 6;

/// The promises that have cases: their numbers and names.
pub const PROMISES: [(u8, &str); 7] = [
    (1, "Answered"),
    (2, "Clean wire"),
    (3, "Drained"),
    (4, "Isolated"),
    (5, "Nothing left behind"),
    (6, "Restarted"),
    (8, "Fair"),
];

/// What is put between the client and the faulty servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contender {
    /// What it is called in the table.
    pub name: String,
    /// The words before the server's command; none for a bare connection.
    pub command: Vec<String>,
}

/// Which of two well-known contenders keep a case: if all goes as it ought to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ought {
    /// Whether a bare connection keeps it.
    pub bare: bool,
    /// Whether the naive pump keeps it.
    pub pump: bool,
}

/// Nobody keeps it who does nothing for it.
const NEITHER: Ought = Ought { bare: false, pump: false };
/// A control: whoever does nothing keeps it, and a wrapper can only spoil it.
const BOTH: Ought = Ought { bare: true, pump: true };
/// Two more pipes are enough to keep it.
const ONLY_PUMP: Ought = Ought { bare: false, pump: true };
/// The naive pump makes it worse.
const ONLY_BARE: Ought = Ought { bare: true, pump: false };

/// One case.
pub struct Case {
    /// What it is called.
    pub name: &'static str,
    /// What it demands, in one sentence.
    pub demands: &'static str,
    /// What is expected of those who do nothing for it.
    pub ought: Ought,
    judge: fn(&WrapperTrial<'_>) -> Judged,
}

/// Returns all cases, each with the number of its promise, in that order.
pub fn cases() -> impl Iterator<Item = (u8, &'static Case)> {
    let tables = [
        promise_1::CASES,
        promise_2::CASES,
        promise_3::CASES,
        promise_4::CASES,
        promise_5::CASES,
        promise_6::CASES,
        promise_8::CASES,
    ];
    PROMISES.iter().zip(tables).flat_map(|((number, _), cases)| cases.iter().map(|case| (*number, case)))
}

/// Tries whether a contender can be used at all: a handshake and a call with an honest server.
///
/// # Errors
///
/// In a few words, why it cannot; with what it said on stderr.
pub fn try_out(contender: &Contender, program: &str, timeout: Duration) -> Result<(), String> {
    let trial = WrapperTrial::new(contender, program, timeout);
    let mut words = None;
    let judged = trial.connect(&["well-behaved"]).and_then(|mut client| {
        let judged = client.shake_hands().and_then(|()| client.echo("are you there?"));
        client.close();
        words = judged.is_err().then(|| client.last_words()).flatten();
        judged
    });
    match trial.end(judged) {
        CaseVerdict::Kept => Ok(()),
        CaseVerdict::Broken(reason) | CaseVerdict::FailedToRun(reason) => {
            Err(words.map_or(reason.clone(), |words| format!("{reason} ({words})")))
        }
    }
}

/// What is run.
pub struct CorpusPlan<'a> {
    /// The cases.
    pub cases: &'a [&'static Case],
    /// Each of them meets all cases.
    pub contenders: &'a [Contender],
    /// The program that has the faulty servers: this one.
    pub program: &'a str,
    /// How long the client waits for anything.
    pub timeout: Duration,
}

/// A run was cut short from outside; nothing of it is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted {
    /// The number of the signal.
    pub signal: i32,
}

/// Runs all cases with all contenders, a few at a time; the verdicts are by case, then by contender, in the plan's order.
/// `on_progress` hears how many are done.
///
/// From here on SIGINT, SIGTERM and SIGHUP do not end this process by themselves: the run is cut short, clears up and says so.
///
/// # Errors
///
/// When one of those signals came.
pub fn run(
    plan: &CorpusPlan<'_>,
    on_progress: &(dyn Fn(usize) + Sync),
) -> Result<Vec<Vec<CaseVerdict>>, Interrupted> {
    signals::catch_every_end();
    let (width, next, done) = (plan.contenders.len(), AtomicUsize::new(0), AtomicUsize::new(0));
    let count = plan.cases.len() * width;
    let verdicts = std::sync::Mutex::new(vec![None; count]);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(count) {
            // Each thread stays to the end, for the kernel kills what a thread has started when that thread ends.
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count || signals::was_interrupted() {
                        break;
                    }
                    let trial =
                        WrapperTrial::new(&plan.contenders[number % width], plan.program, plan.timeout);
                    let judged = (plan.cases[number / width].judge)(&trial);
                    lock(&verdicts)[number] = Some(trial.end(judged));
                    on_progress(done.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });
    if let Some(signal) = signals::caught() {
        return Err(Interrupted { signal });
    }
    let verdicts: Vec<CaseVerdict> = verdicts
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
        .into_iter()
        .flatten()
        .collect();
    Ok(verdicts.chunks(width.max(1)).map(<[CaseVerdict]>::to_vec).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_named_once_and_say_what_they_demand() {
        let mut names: Vec<_> = cases().map(|(_, case)| case.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for (_, Case { name, demands, .. }) in cases() {
            assert!(name.len() <= 24, "{name} fits into its column");
            let begins = |first: char| first.is_uppercase() || first.is_ascii_digit();
            assert!(demands.starts_with(begins) && demands.ends_with('.'), "{name}: {demands}");
        }
    }

    #[test]
    fn every_promise_has_cases() {
        for (promise, name) in PROMISES {
            assert!(cases().any(|(number, _)| number == promise), "{name}");
        }
    }
}
