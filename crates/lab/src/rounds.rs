//! `unhang-lab rounds`: ends the processes around jobs of slow calls, and shows what became of the jobs.
//!
//! The rounds are the zoo's; this module finds the programs and shows the table. `docs/reference/rounds.md` documents them.

use std::{
    env,
    fmt::Write,
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
    time::SystemTime,
};

use comfy_table::{CellAlignment, LineStyle, Table, presets};
use unhang::exit;
use unhang_terminal::{output, progress};
use unhang_zoo::{
    corpus::Interrupted,
    rounds::{self, RoundEnding, RoundTally, RoundVictim, RoundsOutcome, RoundsPlan},
};

use crate::{
    arguments::RoundsArguments,
    product::{MeasuredPrograms, MeasuredQuality},
};

/// Plays the rounds, prints the table and returns the exit code.
pub(crate) fn run(arguments: &RoundsArguments) -> ExitCode {
    let programs = match MeasuredPrograms::find(&arguments.product, MeasuredQuality::Behavior) {
        Ok(programs) => programs,
        Err(reason) => {
            output::error(&reason, None);
            return ExitCode::from(exit::USAGE);
        }
    };
    let seed = arguments.seed.unwrap_or_else(seed_of_the_moment);
    let folder = match folder(seed) {
        Ok(folder) => folder,
        Err(error) => {
            output::error(&format!("there is no folder for the rounds: {error}"), None);
            return ExitCode::from(exit::UNREACHABLE);
        }
    };
    let plan = RoundsPlan {
        seed,
        first: arguments.first,
        count: arguments.count,
        at_once: arguments.at_once.into(),
    };
    let show = |over| progress::show(&format!("{over} of {} rounds ", plan.count));
    show(0);
    let played = rounds::play(programs.of_load(), &folder, &plan, &show);
    progress::end();
    // It stays where a round with a fault has its files in it.
    let _not_empty = fs::remove_dir(&folder);
    match played {
        Ok(outcome) => conclude(&outcome, &plan),
        Err(Interrupted { signal }) => {
            output::error("interrupted; nothing is left running", None);
            ExitCode::from(u8::try_from(128 + signal).unwrap_or(exit::INTERRUPTED))
        }
    }
}

fn seed_of_the_moment() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    // Short enough to be copied by hand.
    1 + u64::from(since.subsec_nanos()) % 999_999
}

/// Makes a new folder for the folders of the rounds.
fn folder(seed: u64) -> io::Result<PathBuf> {
    let parent: &Path = &env::temp_dir();
    let folder = parent.canonicalize()?.join(format!("unhang-rounds-{seed}-{}", std::process::id()));
    fs::create_dir(&folder)?;
    Ok(folder)
}

fn conclude(outcome: &RoundsOutcome, plan: &RoundsPlan) -> ExitCode {
    let printed = output::data(&text(outcome, plan.seed));
    if outcome.faults.is_empty() {
        return printed;
    }
    for fault in &outcome.faults {
        output::error(fault, None);
    }
    let hint = format!("repeat one with --seed {} --first NUMBER --count 1", plan.seed);
    output::error(&format!("{} of {} rounds have a fault", outcome.faults.len(), plan.count), Some(&hint));
    ExitCode::from(exit::FAILED)
}

fn victim_in_words(victim: RoundVictim) -> &'static str {
    match victim {
        RoundVictim::Guard => "guard",
        RoundVictim::Gateway => "gateway",
        RoundVictim::HttpGateway => "HTTP gateway",
        RoundVictim::GuardClient => "guard's client",
        RoundVictim::GatewayClient => "gateway's client",
        RoundVictim::HttpClient => "HTTP client",
        RoundVictim::CallHolder => "call holder",
        RoundVictim::Lifeline => "lifeline",
    }
}

fn ending_in_words(victim: RoundVictim, ending: RoundEnding) -> &'static str {
    match ending {
        RoundEnding::Killed => "SIGKILL",
        RoundEnding::Terminated => "SIGTERM",
        RoundEnding::HungUp => "SIGHUP",
        RoundEnding::Closed if victim == RoundVictim::HttpClient => "disconnects",
        RoundEnding::Closed => "stdin closed",
        RoundEnding::GroupKilled => "group killed",
        RoundEnding::TreeKilledDownwards => "tree, down",
        RoundEnding::TreeKilledUpwards => "tree, up",
    }
}

/// The table, the reasons and the seed.
fn text(outcome: &RoundsOutcome, seed: u64) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none()));
    table.set_header(["ended", "how", "rounds", "done", "failed", "lost", "twice", "left", "wrong"]);
    let mut all = RoundTally::default();
    let row = |counts: &RoundTally| {
        [
            counts.rounds,
            counts.completed,
            counts.failed,
            counts.lost,
            counts.ran_twice,
            counts.left_behind,
            counts.otherwise_wrong,
        ]
        .map(|count| count.to_string())
    };
    let mut last = None;
    for ((victim, ending), counts) in &outcome.counts {
        let name = if last.replace(*victim) == Some(*victim) { "" } else { victim_in_words(*victim) };
        let start = [name.to_owned(), ending_in_words(*victim, *ending).to_owned()];
        table.add_row(start.into_iter().chain(row(counts)));
        all.rounds += counts.rounds;
        all.completed += counts.completed;
        all.failed += counts.failed;
        all.lost += counts.lost;
        all.ran_twice += counts.ran_twice;
        all.left_behind += counts.left_behind;
        all.otherwise_wrong += counts.otherwise_wrong;
    }
    table.add_row(["in all".to_owned(), String::new()].into_iter().chain(row(&all)));
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
        column.set_padding((0, 1));
    }
    let mut text = format!("{table}\n\n");
    let reasons: Vec<_> =
        outcome.reasons.iter().map(|(reason, count)| format!("{reason}: {count}")).collect();
    if !reasons.is_empty() {
        let _infallible = writeln!(text, "Of the jobs that did not complete: {}.", reasons.join("; "));
    }
    let _infallible = writeln!(text, "seed {seed}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_fits_into_80_columns() {
        let counts = RoundTally {
            rounds: 9999,
            completed: 99_999,
            failed: 99_999,
            lost: 9999,
            ran_twice: 9999,
            left_behind: 9999,
            otherwise_wrong: 9999,
        };
        let key = (RoundVictim::GatewayClient, RoundEnding::TreeKilledUpwards);
        let outcome = RoundsOutcome {
            counts: [(key, counts)].into(),
            reasons: [("failed, server_exited".to_owned(), 12)].into(),
            faults: Vec::new(),
        };
        let text = text(&outcome, 7);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("gateway's client") && text.ends_with("seed 7\n"), "{text}");
    }
}
