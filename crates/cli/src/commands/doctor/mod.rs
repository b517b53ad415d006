//! `unhang doctor`: everything that could hang, in a report that a person can read.
//!
//! Invariants: all servers are examined side by side. A server that cannot be tried becomes a finding, and keeps no other from its
//! examination. Notes do not count for the exit code.

mod json;
mod junit;
mod text;

use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use tokio::{
    task::JoinSet,
    time::{Instant, interval},
};
use unhang::{
    doctor::{DoctorReport, ExaminedTarget, Starts, examine},
    exit,
    settings::Transport,
    units::in_words,
};
use unhang_terminal::failure::Format;
use unhang_terminal::{failure::CommandFailure, progress, text::escaped};

use super::{
    adopt::UserGuards,
    client::{ClientContext, beside, files::FoundServer, no_server, run as in_context},
    engine::{CommandOutcome, TerminalMarks, counted, shortened},
};
use crate::arguments::doctor::Doctor;

/// The interval at which the line is drawn anew.
const TICK: Duration = Duration::from_millis(500);
/// The width of a line that is overwritten: a longer one would break.
const COLUMNS: usize = 79;

/// Examines one server, or all.
pub(super) fn run(doctor: &Doctor, verbose: bool) -> ExitCode {
    in_context(&doctor.common, &doctor.ad_hoc, verbose, async |context| examined(context, doctor).await)
}

async fn examined(context: &ClientContext<'_>, doctor: &Doctor) -> CommandOutcome {
    let mut named = doctor.servers.clone();
    let mut seen = BTreeSet::new();
    named.retain(|name| seen.insert(name.clone()));
    let asked: Vec<Examinee> = match (&named[..], &doctor.command[..]) {
        ([_, ..], _) => {
            let mut asked = Vec::with_capacity(named.len());
            for name in &named {
                asked.push(Examinee::named(context, doctor, name).await?);
            }
            asked
        }
        ([], [_, ..]) => vec![Examinee::typed(context, doctor)?],
        ([], []) => context
            .known()
            .await?
            .in_use()
            .map(|found| Examinee::configured(context, doctor, found))
            .collect(),
    };
    if asked.is_empty() {
        return Err(no_server(context.known().await?));
    }
    let is_one = named.len() == 1 || !doctor.command.is_empty();
    let reports = examine_all(asked, &context.examinations).await;
    let is_configured = doctor.command.is_empty() && doctor.common.files.choice().config.is_none();
    let guards = match is_configured && !doctor.junit {
        true => Some(beside(|| Ok(UserGuards::find())).await?),
        false => None,
    };
    let printed = print(context, doctor, &reports, is_one, guards).await;
    let is_clean = reports.iter().all(DoctorReport::is_clean);
    Ok(if printed == exit::DONE && !is_clean { exit::FAILED } else { printed })
}

async fn print(
    context: &ClientContext<'_>,
    doctor: &Doctor,
    reports: &[DoctorReport],
    is_one: bool,
    guards: Option<UserGuards>,
) -> u8 {
    if doctor.junit {
        return context.print(junit::document(reports).into_bytes()).await;
    }
    match (doctor.json, context.format()) {
        (false, Format::Text) => {
            let marks = TerminalMarks::of_stdout();
            let mut text = text::document(reports, is_one, marks);
            let guards = match (guards, reports) {
                (Some(guards), [report]) if is_one => guards.repairs(&report.server),
                (Some(guards), _) => guards.text(),
                (None, _) => String::new(),
            };
            if !guards.is_empty() {
                text.push_str(&format!("\n{guards}"));
            }
            context.print_escaped(text).await
        }
        _ => {
            let guards = |report: &DoctorReport| guards.as_ref().map(|guards| guards.of(&report.server));
            let json =
                reports.iter().map(|report| json::ReportJson::of(report, guards(report).unwrap_or_default()));
            context.print_json(&json.collect::<Vec<_>>()).await
        }
    }
}

/// A server to examine: its target, or the reason why it cannot be examined.
enum Examinee {
    Patient(Box<ExaminedTarget>),
    Untried(String, CommandFailure),
}

impl Examinee {
    /// Makes the examinee of this name. Each of several names has to be right before anything starts.
    async fn named(
        context: &ClientContext<'_>,
        doctor: &Doctor,
        name: &str,
    ) -> Result<Examinee, CommandFailure> {
        if name.contains("://") {
            let spec = context.of_url(name)?;
            return Ok(Examinee::Patient(Box::new(ExaminedTarget {
                spec,
                inherited: Vec::new(),
                limit: doctor.timeout,
            })));
        }
        context.demand_no_ad_hoc(name)?;
        Ok(Examinee::configured(context, doctor, context.named(name).await?))
    }

    fn typed(context: &ClientContext<'_>, doctor: &Doctor) -> Result<Examinee, CommandFailure> {
        let spec = context.of_command(&doctor.command)?;
        let mut inherited = variables();
        inherited.retain(|name| doctor.ad_hoc.env.iter().all(|(typed, _)| typed != name));
        Ok(Examinee::Patient(Box::new(ExaminedTarget { spec, inherited, limit: doctor.timeout })))
    }

    fn configured(context: &ClientContext<'_>, doctor: &Doctor, found: &FoundServer) -> Examinee {
        let inherited = match found.settings.as_ref().map(|settings| &settings.transport) {
            Ok(Transport::Stdio { inherits_environment: true, environment, .. }) => {
                let own: BTreeSet<&str> = environment.keys().map(String::as_str).collect();
                variables().into_iter().filter(|name| !own.contains(name.as_str())).collect()
            }
            _ => Vec::new(),
        };
        match context.of_file(found) {
            Ok(spec) => {
                Examinee::Patient(Box::new(ExaminedTarget { spec, inherited, limit: doctor.timeout }))
            }
            Err(failure) => Examinee::Untried(found.name.clone(), failure),
        }
    }
}

/// Returns the names of this process's own variables.
fn variables() -> Vec<String> {
    std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect()
}

/// Examines all servers, and shows which it waits for. The reports come in the order of the servers.
async fn examine_all(asked: Vec<Examinee>, starts: &Arc<Starts>) -> Vec<DoctorReport> {
    let count = asked.len();
    let mut reports: Vec<(usize, DoctorReport)> = Vec::new();
    let mut examinations = JoinSet::new();
    let mut waiting: BTreeMap<usize, String> = BTreeMap::new();
    for (index, asked) in asked.into_iter().enumerate() {
        match asked {
            Examinee::Untried(name, failure) => {
                reports.push((index, DoctorReport::untried(&name, failure.message)));
            }
            Examinee::Patient(patient) => {
                waiting.insert(index, escaped(&patient.spec.name));
                let starts = starts.clone();
                examinations.spawn(async move { (index, examine(&patient, &starts).await) });
            }
        }
    }
    let since = Instant::now();
    let mut ticks = interval(TICK);
    while !waiting.is_empty() {
        tokio::select! {
            report = examinations.join_next() => match report {
                Some(report) => {
                    // A panic has been reported.
                    if let Ok((index, report)) = report {
                        waiting.remove(&index);
                        reports.push((index, report));
                    }
                }
                None => break,
            },
            _ = ticks.tick() => {}
        }
        if !waiting.is_empty() {
            progress::show(&waited_for(&waiting, reports.len(), count, since.elapsed()));
        }
    }
    progress::end();
    reports.sort_unstable_by_key(|(index, _)| *index);
    reports.into_iter().map(|(_, report)| report).collect()
}

/// Returns the line that shows the progress and the servers it waits for.
fn waited_for(waiting: &BTreeMap<usize, String>, done: usize, count: usize, elapsed: Duration) -> String {
    let names = waiting.values().cloned().collect::<Vec<_>>().join(", ");
    let line = format!(
        "{done} of {} examined, {}; waiting for {names}",
        counted(count, "server"),
        in_words(Duration::from_secs(elapsed.as_secs()))
    );
    shortened(&line, COLUMNS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f_78_the_progress_names_whom_it_waits_for_and_stays_on_one_line() {
        let mut waiting = BTreeMap::from([(0, "time".to_owned()), (2, "search".to_owned())]);
        let line = waited_for(&waiting, 1, 3, Duration::from_secs(4));
        assert_eq!(line, "1 of 3 servers examined, 4s; waiting for time, search");
        waiting.insert(3, "n".repeat(100));
        assert_eq!(waited_for(&waiting, 1, 4, Duration::ZERO).chars().count(), COLUMNS);
    }
}
