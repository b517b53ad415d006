//! `cargo xtask ci`: every check. Where one step leaves processors idle, another one runs beside it.
//!
//! # Invariants
//!
//! - The steps are a [table]; the first that fails ends the run, and what runs beside it is ended too.
//! - A stage that leaves a process behind has failed.

mod table;

use std::sync::mpsc::sync_channel;
use std::thread;

use crate::failure::ChoreFailure;
use crate::options::Options;
use crate::project::Project;
use crate::{clock, custody, report, run};

use table::{CiStep, LanePriority, STAGES, Stage, StepLane, StepWork};

/// The steps of a lane that the options ask for.
struct ChosenLane {
    priority: LanePriority,
    steps: Vec<&'static CiStep>,
}

/// Runs the steps that the options ask for.
pub(crate) fn ci(project: &Project, options: &Options) -> Result<(), ChoreFailure> {
    let stages = chosen(&options.only)?;
    if options.list {
        for step in stages.iter().flatten().flat_map(|lane| &lane.steps) {
            report::text(&format!("{:<8} {}\n", step.name, step.about));
        }
        return Ok(());
    }
    let start = clock::now();
    for lanes in stages {
        perform_stage(project, lanes)?;
    }
    report::ended("all", true, start.elapsed());
    Ok(())
}

/// Returns what is left of each stage.
fn chosen(only: &[String]) -> Result<Vec<Vec<ChosenLane>>, ChoreFailure> {
    let every = || STAGES.iter().copied().flatten().flat_map(|lane| lane.steps);
    if let Some(unknown) = only.iter().find(|name| every().all(|step| step.name != **name)) {
        let names: Vec<_> = every().map(|step| step.name).collect();
        return Err(ChoreFailure::usage(format!("no step {unknown}; there are {}", names.join(", "))));
    }
    let is_wanted = |step: &&CiStep| only.is_empty() || only.iter().any(|name| name == step.name);
    let of_lane = |lane: &'static StepLane| ChosenLane {
        priority: lane.priority,
        steps: lane.steps.iter().filter(is_wanted).collect(),
    };
    let of_stage = |stage: &Stage| {
        let lanes = stage.iter().map(of_lane);
        lanes.filter(|lane| !lane.steps.is_empty()).collect::<Vec<_>>()
    };
    Ok(STAGES.iter().map(of_stage).collect())
}

/// Runs the lanes of a stage, at the same time if there are several.
fn perform_stage(project: &Project, lanes: Vec<ChosenLane>) -> Result<(), ChoreFailure> {
    match &lanes[..] {
        [] => Ok(()),
        [lane] => lane.steps.iter().try_for_each(|step| {
            report::timed(step.name, || perform(project, step).and_then(|()| custody::demand_nothing_left()))
        }),
        _ => perform_side_by_side(project, lanes).and_then(|()| custody::demand_nothing_left()),
    }
}

/// Returns when all lanes have ended, or one has failed: the end of this program ends the others.
fn perform_side_by_side(project: &Project, lanes: Vec<ChosenLane>) -> Result<(), ChoreFailure> {
    let count = lanes.len();
    let (sender, outcomes) = sync_channel(count);
    for lane in lanes {
        let (sender, project) = (sender.clone(), project.clone());
        thread::spawn(move || {
            if lane.priority == LanePriority::Last {
                run::yield_processors();
            }
            let mut steps = lane.steps.iter();
            let outcome =
                steps.try_for_each(|step| report::timed_beside_others(step.name, || perform(&project, step)));
            // The receiver is gone if another lane has failed.
            let _ = sender.send(outcome);
        });
    }
    drop(sender);
    let no_outcome = |_| ChoreFailure::new("a lane of steps panicked");
    (0..count).try_for_each(|_| outcomes.recv().map_err(no_outcome)?)
}

fn perform(project: &Project, step: &CiStep) -> Result<(), ChoreFailure> {
    match &step.work {
        StepWork::Own(work) => work(project),
        StepWork::Cargo { arguments, environment, deadline } => {
            let mut task = project.cargo(step.name, *deadline).arguments(*arguments);
            for (name, value) in *environment {
                task = task.variable(name, value);
            }
            run::run(task)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(only: &[&str]) -> Vec<&'static str> {
        let only: Vec<_> = only.iter().copied().map(str::to_owned).collect();
        let stages = chosen(&only).expect("they exist");
        stages.iter().flatten().flat_map(|lane| &lane.steps).map(|step| step.name).collect()
    }

    #[test]
    fn only_picks_by_whole_name_and_keeps_the_order_of_the_table() {
        assert_eq!(names(&["deny", "fmt"]), ["fmt", "deny"]);
        let mut every = names(&[]);
        let all = every.len();
        every.sort_unstable();
        every.dedup();
        assert_eq!(
            (every.len(), all),
            (all, STAGES.iter().copied().flatten().map(|lane| lane.steps.len()).sum())
        );
    }

    #[test]
    fn an_unknown_step_is_refused_with_the_names_there_are() {
        let failure = chosen(&["fnt".to_owned()]).err().expect("there is no such step");
        assert!(failure.is_usage());
        assert!(failure.to_string().contains("fmt"), "{failure}");
    }
}
