//! `unhang-lab zoo run`: drives any wrapper, or the three well-known ways to a server, through the corpus of hangs.
//!
//! The cases and their client are the zoo's; this module assembles the contenders and shows their score.
//!
//! Invariant: `unhang wrap` is one contender among others. Beyond its command it gets only the flags that tell it the patience of the
//! client.

use std::{process::ExitCode, time::Duration};

use unhang::exit;
use unhang_terminal::{output, progress};
use unhang_zoo::corpus::{self, Case, CaseVerdict, Contender, CorpusPlan, Interrupted};

use super::report::{CaseRow, CorpusReport};
use crate::{
    arguments::ZooRun,
    product::{MeasuredPrograms, MeasuredQuality},
};

/// Runs the chosen cases, shows the score and returns the exit code.
pub(super) fn run(arguments: &ZooRun) -> ExitCode {
    let chosen = match choose(arguments) {
        Ok(chosen) => chosen,
        Err(reason) => {
            output::error(&reason, Some("`unhang-lab zoo run --list` shows them all"));
            return ExitCode::from(exit::USAGE);
        }
    };
    if arguments.list {
        return output::data(&super::report::list(&chosen));
    }
    let programs = match MeasuredPrograms::find(&arguments.product, MeasuredQuality::Behavior) {
        Ok(programs) => programs,
        Err(reason) => {
            output::error(&reason, None);
            return ExitCode::from(exit::USAGE);
        }
    };
    let contenders = contenders(&programs, arguments);
    let try_all = || contenders.iter().try_for_each(|one| try_out(one, programs.lab(), arguments.patience));
    if let Err(reason) = try_all() {
        let hint =
            "a wrapper takes a server's command after its own words; give it more time with --patience";
        output::error(&reason, Some(hint));
        return ExitCode::from(exit::UNREACHABLE);
    }
    let cases: Vec<&Case> = chosen.iter().map(|(_, case)| *case).collect();
    let count = cases.len() * contenders.len();
    let plan = CorpusPlan {
        cases: &cases,
        contenders: &contenders,
        program: programs.lab(),
        timeout: arguments.patience,
    };
    let show = |done| progress::show(&format!("{done} of {count} trials "));
    show(0);
    let verdicts = corpus::run(&plan, &show);
    progress::end();
    let verdicts = match verdicts {
        Ok(verdicts) => verdicts,
        Err(Interrupted { signal }) => {
            output::error("interrupted; nothing is left running", None);
            return ExitCode::from(u8::try_from(128 + signal).unwrap_or(exit::INTERRUPTED));
        }
    };
    let rows = chosen
        .into_iter()
        .zip(verdicts)
        .map(|((promise, case), verdicts)| CaseRow { promise, case, verdicts })
        .collect();
    let report = CorpusReport { contenders, rows, timeout: arguments.patience };
    conclude(&report, arguments)
}

/// Returns the cases that were asked for, each with its promise. Fails with the reason if there are none, because a run of nothing would
/// keep everything.
fn choose(arguments: &ZooRun) -> Result<Vec<(u8, &'static Case)>, String> {
    let is_known = |name: &&String| corpus::cases().any(|(_, case)| case.name == **name);
    if let Some(unknown) = arguments.only.iter().find(|name| !is_known(name)) {
        return Err(format!("no case is called `{unknown}`"));
    }
    let is_chosen = |(promise, case): &(u8, &Case)| {
        (arguments.only.is_empty() || arguments.only.iter().any(|name| name == case.name))
            && (arguments.promise.is_empty() || arguments.promise.contains(promise))
    };
    let chosen: Vec<_> = corpus::cases().filter(is_chosen).collect();
    if chosen.is_empty() { Err("no chosen case belongs to these promises".to_owned()) } else { Ok(chosen) }
}

/// Returns the wrapper that was given, or else the three contenders for which the score is always shown.
fn contenders(programs: &MeasuredPrograms, arguments: &ZooRun) -> Vec<Contender> {
    let contender =
        |name: &str, command: &[String]| Contender { name: name.to_owned(), command: command.to_vec() };
    if !arguments.wrapper.is_empty() {
        return vec![contender("the wrapper", &arguments.wrapper)];
    }
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    // The flags tell the guard the client's clock: an answer at two fifths of it comes in time on a busy machine too.
    let limit = format!("{}ms", (arguments.patience * 2 / 5).as_millis().max(1));
    let guard = words(&[
        programs.unhang(),
        "wrap",
        "--name",
        "corpus",
        "--start-timeout",
        &limit,
        "--request-timeout",
        &limit,
        "--call-timeout",
        &limit,
        "--",
    ]);
    vec![
        contender(super::report::BARE, &[]),
        contender(super::report::PUMP, &words(&[programs.lab(), "zoo", "naive-pump", "--"])),
        contender(super::report::GUARD, &guard),
    ]
}

fn try_out(contender: &Contender, program: &str, timeout: Duration) -> Result<(), String> {
    corpus::try_out(contender, program, timeout).map_err(|reason| {
        let what = if contender.command.is_empty() { &contender.name } else { &contender.command.join(" ") };
        format!("an honest server cannot be reached through `{what}`: {reason}")
    })
}

/// Prints the report and returns the exit code.
fn conclude(report: &CorpusReport, arguments: &ZooRun) -> ExitCode {
    let text = if arguments.output == "json" { report.json() } else { report.text() };
    let printed = output::data(&text);
    if arguments.check {
        let count = report.surprises().len();
        if count > 0 {
            output::error(&format!("not as expected: {count} of the verdicts"), None);
            return ExitCode::from(exit::FAILED);
        }
    }
    let is_broken = |row: &CaseRow| row.verdicts.iter().any(|verdict| *verdict != CaseVerdict::Kept);
    if !arguments.wrapper.is_empty() && report.rows.iter().any(is_broken) {
        return ExitCode::from(exit::FAILED);
    }
    printed
}
