//! The part `sessions`: many short sessions, several at once, each as its plan says.
//!
//! # Invariants
//!
//! - A broken session is reported with what repeats it; after a few of them no further one begins.
//! - The guards of all sessions share one folder of logs, which must stay bounded.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::faulty_servers;
use super::ledger::WireTally;
use super::plan::SessionPlan;
use super::progress::PartProgress;
use super::session::{SessionFailure, SoakStage, perform};
use super::side_by_side::side_by_side;

/// Logs of one server that are kept (docs/guide/wrap.md).
const LOGS_KEPT: usize = 5;

/// What became of the sessions.
#[derive(Debug, Default)]
pub(crate) struct SessionTotals {
    pub(crate) tally: WireTally,
    /// How many there were, by group of faulty servers.
    pub(crate) groups: BTreeMap<&'static str, u64>,
    /// A sentence for each that went wrong.
    pub(crate) broken: Vec<String>,
}

/// Runs the sessions with these numbers, so many at once.
pub(crate) fn sessions(
    stage: &SoakStage,
    seed: u64,
    numbers: std::ops::Range<u64>,
    at_once: usize,
    progress: &PartProgress,
) -> SessionTotals {
    let names = faulty_servers::names();
    let all = Mutex::new(SessionTotals::default());
    let broken = side_by_side(numbers, at_once, progress, |number| {
        let plan = SessionPlan::draw(seed, number, &names);
        let outcome = perform(&plan, stage);
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        *all.groups.entry(faulty_servers::group(plan.faulty_server)).or_default() += 1;
        match outcome {
            Ok(tally) => {
                all.tally.add(&tally);
                Ok(())
            }
            Err(broken) => Err(report(&plan, &broken, stage)),
        }
    });
    let mut all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    all.broken = broken;
    all.broken.extend(demand_bounded_logs(&stage.home().join("logs"), at_once).err());
    all
}

/// Writes down what happened and returns the sentence for the summary.
fn report(plan: &SessionPlan, broken: &SessionFailure, stage: &SoakStage) -> String {
    let (seed, number, faulty_server) = (plan.seed, plan.number, plan.faulty_server);
    let kept_path = broken.keep(stage, &format!("session-{number}"), plan);
    format!(
        "session {number} ({faulty_server}): {}\n  {kept_path}\n  again: cargo xtask soak --only sessions --seed {seed} --session {number}",
        broken.what
    )
}

/// Demands that no server has more logs than are kept, and those of guards that ran at the same time.
fn demand_bounded_logs(folder: &Path, at_once: usize) -> Result<(), String> {
    let mut logs: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some((server, _)) = name.strip_suffix(".log").and_then(|name| name.rsplit_once('-')) {
            logs.entry(server.to_owned()).or_default().push(entry.path());
        }
    }
    let bound = LOGS_KEPT + at_once;
    match logs.iter().find(|(_, files)| files.len() > bound) {
        Some((server, files)) => Err(format!("{} logs of `{server}` are kept, over {bound}", files.len())),
        None => Ok(()),
    }
}
