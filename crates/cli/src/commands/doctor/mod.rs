//! `unhang doctor`: what could hang, in a report that a person can read.
//!
//! Invariants: all servers are examined side by side, and one that cannot be tried is a finding and keeps no other from its
//! examination; notes do not count for the exit code.

mod json;
mod junit;
mod text;

use std::{collections::BTreeSet, process::ExitCode, sync::Arc};

use tokio::task::JoinSet;
use unhang::{
    doctor::{Patient, Report, Starts, examine},
    exit,
    settings::Transport,
};

use super::{
    client::{Desk, files::Found, no_server, run as at_a_desk},
    engine::{Outcome, counted},
};
use crate::{arguments::doctor::Doctor, job_arguments::Format, output::Failure, progress};

/// Examines one server, or all.
pub(super) fn run(doctor: &Doctor, verbose: bool) -> ExitCode {
    at_a_desk(&doctor.common, verbose, async |desk| examined(desk, doctor).await)
}

async fn examined(desk: &Desk, doctor: &Doctor) -> Outcome {
    let asked: Vec<Asked> = match (&doctor.server, &doctor.command[..]) {
        (Some(url), _) if url.contains("://") => {
            let spec = desk.of_url(url)?;
            vec![Asked::Patient(Box::new(Patient { spec, inherited: Vec::new(), limit: doctor.timeout }))]
        }
        (Some(name), _) => vec![Asked::configured(desk, doctor, desk.named(name).await?)],
        (None, [_, ..]) => vec![Asked::typed(desk, doctor)],
        (None, []) => {
            desk.known().await?.in_use().map(|found| Asked::configured(desk, doctor, found)).collect()
        }
    };
    if asked.is_empty() {
        return Err(no_server());
    }
    let is_one = doctor.server.is_some() || !doctor.command.is_empty();
    let reports = examine_all(asked).await;
    let printed = print(desk, doctor, &reports, is_one).await;
    let is_clean = reports.iter().all(Report::is_clean);
    Ok(if printed == exit::DONE && !is_clean { exit::FAILED } else { printed })
}

async fn print(desk: &Desk, doctor: &Doctor, reports: &[Report], is_one: bool) -> u8 {
    if doctor.junit {
        return desk.print(junit::document(reports).into_bytes()).await;
    }
    match (doctor.json, desk.format(), reports) {
        (false, Format::Text, _) => desk.print(text::document(reports, is_one).into_bytes()).await,
        (_, _, [report]) if is_one => desk.print_json(&json::Document::of(report)).await,
        _ => desk.print_json(&reports.iter().map(json::Document::of).collect::<Vec<_>>()).await,
    }
}

/// A server that is asked for: how to examine it, or why that cannot be.
enum Asked {
    Patient(Box<Patient>),
    Untried(String, Failure),
}

impl Asked {
    fn typed(desk: &Desk, doctor: &Doctor) -> Asked {
        let spec = desk.of_command(&doctor.command);
        Asked::Patient(Box::new(Patient { spec, inherited: variables(), limit: doctor.timeout }))
    }

    fn configured(desk: &Desk, doctor: &Doctor, found: &Found) -> Asked {
        let inherited = match found.settings.as_ref().map(|settings| &settings.transport) {
            Ok(Transport::Stdio { inherits_environment: true, environment, .. }) => {
                let own: BTreeSet<&str> = environment.keys().map(String::as_str).collect();
                variables().into_iter().filter(|name| !own.contains(name.as_str())).collect()
            }
            _ => Vec::new(),
        };
        match desk.of_file(found) {
            Ok(spec) => Asked::Patient(Box::new(Patient { spec, inherited, limit: doctor.timeout })),
            Err(failure) => Asked::Untried(found.name.clone(), failure),
        }
    }
}

/// The names of our own variables.
fn variables() -> Vec<String> {
    std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect()
}

/// Examines all, and says how far it has got. The reports come in the order of the servers.
async fn examine_all(asked: Vec<Asked>) -> Vec<Report> {
    let (starts, count) = (Arc::new(Starts::default()), asked.len());
    let mut reports: Vec<(usize, Report)> = Vec::new();
    let mut examinations = JoinSet::new();
    for (place, asked) in asked.into_iter().enumerate() {
        match asked {
            Asked::Untried(name, failure) => reports.push((place, Report::untried(&name, failure.message))),
            Asked::Patient(patient) => {
                let starts = starts.clone();
                examinations.spawn(async move { (place, examine(&patient, &starts).await) });
            }
        }
    }
    let servers = counted(count, "server");
    progress::show(&format!("examining {servers}: some ten seconds, longer where something hangs"));
    while let Some(report) = examinations.join_next().await {
        // A panic has been told.
        reports.extend(report.ok());
        progress::show(&format!("{} of {servers} examined", reports.len()));
    }
    progress::end();
    reports.sort_by_key(|(place, _)| *place);
    reports.into_iter().map(|(_, report)| report).collect()
}
