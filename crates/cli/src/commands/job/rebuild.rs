//! `unhang job rebuild`: makes the database anew from the job folders.

use std::{fmt::Write, path::PathBuf};

use serde::Serialize;
use unhang::jobs::{
    engine::{Engine, replace_damaged_database},
    error::JobError,
    store::{Rebuilt, StoreError},
};
use unhang_terminal::{failure::CommandFailure, text::escaped};

use super::quarantine;
use crate::commands::engine::{CommandOutcome, JobContext, counted, failure};

/// The outcome of the rebuild.
#[derive(Serialize)]
struct RebuildJson {
    jobs: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    old_database: Option<PathBuf>,
    damaged: Vec<DamagedFolder>,
}

/// A folder that could not be understood.
#[derive(Serialize)]
struct DamagedFolder {
    folder: PathBuf,
    reason: String,
}

pub(super) async fn run(context: &JobContext) -> CommandOutcome {
    let (Rebuilt { jobs, damaged }, old_database) = rebuild(context).await?;
    let damaged = damaged.into_iter().map(|(folder, reason)| DamagedFolder { folder, reason }).collect();
    let report = RebuildJson { jobs, old_database, damaged };
    quarantine::tell(&context.engine().await?).await;
    Ok(context.report(&report, || text(&report)))
}

async fn rebuild(context: &JobContext) -> Result<(Rebuilt, Option<PathBuf>), CommandFailure> {
    let (folder, options) = (context.options.folder.clone(), context.options.clone());
    // If the database was missing, opening has made it. A sound database is made anew, and a damaged one is put aside.
    let opened = context.blocking("be opened", move || match Engine::open(options) {
        Ok((engine, opened)) => Ok(Ok((engine, opened.rebuilt))),
        Err(JobError::Store(error)) if matches!(*error, StoreError::Damaged { .. }) => Ok(Err(())),
        Err(error) => Err(error),
    });
    match opened.await? {
        Ok((engine, Some(rebuilt))) => {
            context.keep(engine);
            Ok((rebuilt, None))
        }
        Ok((engine, None)) => {
            Ok((context.keep(engine).rebuild().await.map_err(|error| failure(&error))?, None))
        }
        Err(()) => {
            let replace = move || replace_damaged_database(&folder);
            let (aside, rebuilt) = context.blocking("be rebuilt", replace).await?;
            // Opening the engine lets it supervise the waiting jobs of the new database.
            let _engine = context.engine().await?;
            Ok((rebuilt, Some(aside)))
        }
    }
}

fn text(report: &RebuildJson) -> String {
    let mut text = format!("Found {} in the job folders.\n", counted(report.jobs, "job"));
    if let Some(old) = &report.old_database {
        let _infallible = writeln!(text, "The damaged database lies at {}", escaped(&old.to_string_lossy()));
    }
    for DamagedFolder { folder, reason } in &report.damaged {
        let folder = folder.to_string_lossy();
        let _infallible = writeln!(text, "Left as it is: {}: {}", escaped(&folder), escaped(reason));
    }
    text
}
