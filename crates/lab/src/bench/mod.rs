//! `unhang-lab bench`: measures what guard, jobs, command line, gateway, slow calls and functions cost, in one run beside the floor.
//!
//! The load generator is the zoo's; this module assembles, compares and shows the parts. The figures say what was measured, never what
//! should have been.
//!
//! Invariant: if one part cannot be measured, the figures of the others remain.

mod commands;
mod data_folder;
mod functions;
mod gateway;
mod jobs;
mod measures;
mod report;
mod slow;
mod wrap;

use std::process::ExitCode;

use unhang::exit;
use unhang_terminal::output;

use crate::{
    arguments::{BenchArguments, BenchPart},
    product::{MeasuredPrograms, MeasuredQuality},
};
use report::MeasuredPart;

/// Measures, shows and judges.
pub(crate) fn run(bench: &BenchArguments) -> ExitCode {
    let is_wanted = |part| bench.only.is_none_or(|only| only == part);
    if !is_wanted(BenchPart::Wrap) && !bench.peer.is_empty() {
        output::error("--peer needs the part `wrap`, which --only leaves out", None);
        return ExitCode::from(exit::USAGE);
    }
    if !is_wanted(BenchPart::Jobs) && !bench.job_peer.is_empty() {
        output::error("--job-peer needs the part `jobs`, which --only leaves out", None);
        return ExitCode::from(exit::USAGE);
    }
    if !is_wanted(BenchPart::Gateway) && bench.nginx.is_some() {
        output::error("--nginx needs the part `gateway`, which --only leaves out", None);
        return ExitCode::from(exit::USAGE);
    }
    let has_languages = bench.python.is_some() || bench.node_modules.is_some();
    if has_languages && !is_wanted(BenchPart::Functions) {
        output::error("--python and --node-modules need the part `functions`, which --only leaves out", None);
        return ExitCode::from(exit::USAGE);
    }
    if !has_languages && bench.only == Some(BenchPart::Functions) {
        output::error("the part `functions` needs --python, --node-modules, or both", None);
        return ExitCode::from(exit::USAGE);
    }
    let programs = match MeasuredPrograms::find(&bench.product, MeasuredQuality::Cost) {
        Ok(programs) => programs,
        Err(reason) => {
            output::error(&reason, None);
            return ExitCode::from(exit::USAGE);
        }
    };
    let (mut parts, mut is_whole) = (Vec::new(), true);
    if is_wanted(BenchPart::Wrap) {
        match wrap::measure(&programs, bench) {
            Ok((part, is_complete)) => {
                parts.push(part);
                is_whole = is_complete;
            }
            Err(code) => return ExitCode::from(code),
        }
    }
    if is_wanted(BenchPart::Jobs) {
        match jobs::measure(&programs, bench) {
            Ok((part, is_complete)) => {
                parts.push(part);
                is_whole &= is_complete;
            }
            Err(exit::UNREACHABLE) => is_whole = false,
            Err(code) => return ExitCode::from(code),
        }
    }
    if is_wanted(BenchPart::Commands) {
        match commands::measure(&programs, bench) {
            Ok(part) => parts.push(part),
            Err(_) => is_whole = false,
        }
    }
    if is_wanted(BenchPart::Gateway) {
        match gateway::measure(&programs, bench) {
            Ok((measured, is_complete)) => {
                parts.extend(measured);
                is_whole &= is_complete;
            }
            Err(_) => is_whole = false,
        }
    }
    if is_wanted(BenchPart::Slow) {
        match slow::measure(&programs, bench) {
            Ok(part) => parts.push(part),
            Err(exit::UNREACHABLE) => is_whole = false,
            Err(code) => return ExitCode::from(code),
        }
    }
    if has_languages {
        match functions::measure(&programs, bench) {
            Ok(part) => parts.push(part),
            Err(exit::UNREACHABLE) => is_whole = false,
            Err(code) => return ExitCode::from(code),
        }
    }
    if parts.is_empty() { ExitCode::from(exit::UNREACHABLE) } else { conclude(&parts, bench, is_whole) }
}

/// Prints the report and returns the exit code.
fn conclude(parts: &[MeasuredPart], bench: &BenchArguments, is_whole: bool) -> ExitCode {
    let text = if bench.output == "json" { report::json(parts) } else { report::text(parts) };
    let printed = output::data(&text);
    let bars = parts.iter().flat_map(|part| &part.bars);
    let missed: Vec<String> = bars.filter(|bar| !bar.met).map(ToString::to_string).collect();
    if bench.check && !missed.is_empty() {
        output::error(&format!("missed: {}", missed.join("; ")), None);
        return ExitCode::from(exit::FAILED);
    }
    if is_whole { printed } else { ExitCode::from(exit::UNREACHABLE) }
}
