//! Prints, waits for a file, prints, leaves a result, and ends by a signal or with a code; counts its runs in another file.

use std::io;
use std::process::ExitCode;

use unhang_demo_servers::{arguments::ProgramArguments, entry::ProgramDescription};

use crate::child_processes;
use crate::job_work::{self, RESULT};
use crate::signals;

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "slow",
    incident: "A tool that imports for 18 s and computes for five minutes is longer at work than any client waits (contract.md 1.3).",
    usage: "--gate FILE [--tally FILE] [--lines N] [--leaves TEXT] [--signal N] [CODE]",
    promises: &[7],
    run,
};

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let (gate, code) = (arguments.required("gate")?, arguments.number(0, 0)?);
    let code = u8::try_from(code).map_err(|_| io::ErrorKind::InvalidInput)?;
    let tally = arguments.option("tally")?;
    let signal = arguments.number_option("signal", 0)?.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
    job_work::count(tally, "begin")?;
    if let Some(marker) = arguments.option("leaves")? {
        child_processes::leave_nested(marker)?;
    }
    for number in 1..=arguments.number_option("lines", 1)? {
        job_work::tell(&format!("line {number}"))?;
    }
    job_work::wait_until(|| std::fs::exists(gate).unwrap_or(true));
    job_work::tell("the last line")?;
    job_work::leave(RESULT, br#"{"answer": 42, "a/b": {"": 7}}"#)?;
    job_work::count(tally, "end")?;
    if signal != 0 {
        signals::meet(signal)?;
    }
    Ok(ExitCode::from(code))
}
