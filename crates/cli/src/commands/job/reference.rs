//! The job that a word on the command line names: by its id, by the beginning of its id, or as the newest.
//!
//! Invariant: the word is compared with existing ids, and never becomes a part of a path.

use std::{collections::BTreeSet, fs};

use unhang::{
    exit,
    jobs::{engine::Engine, id::JobId, store::JobOwnerFilter},
};
use unhang_terminal::failure::CommandFailure;

use crate::{
    arguments::jobs::JobReference,
    commands::engine::{JobContext, failure},
};

/// The number of jobs that are searched by their records. Older ones are found by their folders.
const NEWEST: u32 = 1000;
/// The number of ids that an error lists if several jobs fit.
const TOLD: usize = 5;

impl JobContext {
    /// Returns the id of the job that a reference names.
    pub(super) async fn meant(
        &self,
        engine: &Engine,
        reference: &JobReference,
    ) -> Result<JobId, CommandFailure> {
        let limit = match reference {
            JobReference::Id(id) => return Ok(*id),
            JobReference::Last => 1,
            JobReference::Beginning(_) => NEWEST,
        };
        let newest =
            engine.list(None, JobOwnerFilter::Anybodys, limit).await.map_err(|error| failure(&error))?;
        let newest = newest.into_iter().map(|status| status.record.job_id);
        let JobReference::Beginning(beginning) = reference else {
            return newest.into_iter().next().ok_or_else(|| unknown("there are no jobs yet".to_owned()));
        };
        let mut found: BTreeSet<JobId> = newest.filter(|id| id.as_str().starts_with(beginning)).collect();
        let (folder, beginning_of_id) = (self.options.folder.join("jobs"), beginning.clone());
        let in_folders = self.blocking("be looked through", move || {
            let names = fs::read_dir(folder).into_iter().flatten().flatten();
            let ids = names.filter_map(|entry| entry.file_name().to_str()?.parse::<JobId>().ok());
            Ok(ids.filter(|id| id.as_str().starts_with(&beginning_of_id)).collect::<Vec<_>>())
        });
        for id in in_folders.await? {
            // A folder without a record is not a job.
            if !found.contains(&id) && engine.status(id).await.is_ok() {
                found.insert(id);
            }
        }
        let mut ids = found.iter();
        match (ids.next(), ids.len()) {
            (Some(id), 0) => Ok(*id),
            (None, _) => Err(unknown(format!("no job has an id that begins with `{beginning}`"))),
            (Some(_), more) => Err(several(beginning, &found, more + 1)),
        }
    }

    /// Returns the ids of the jobs that several references name. A job that cannot be found is reported, and spoils no other; the exit code
    /// is that of the first failure.
    pub(super) async fn all_meant(&self, engine: &Engine, references: &[JobReference]) -> (Vec<JobId>, u8) {
        let (mut ids, mut code) = (Vec::new(), exit::DONE);
        for reference in references {
            match self.meant(engine, reference).await {
                Ok(id) => ids.push(id),
                Err(failure) => {
                    self.complain(&failure);
                    code = if code == exit::DONE { failure.code } else { code };
                }
            }
        }
        (ids, code)
    }
}

fn unknown(message: String) -> CommandFailure {
    CommandFailure {
        code: exit::NOT_FOUND,
        kind: "no_such_job",
        message,
        hint: Some("`unhang job list` shows the newest jobs".to_owned()),
        data: None,
    }
}

fn several(beginning: &str, found: &BTreeSet<JobId>, count: usize) -> CommandFailure {
    let mut told: Vec<String> = found.iter().take(TOLD).map(ToString::to_string).collect();
    if count > TOLD {
        told.push(format!("{} more", count - TOLD));
    }
    let message = format!("{count} jobs have an id that begins with `{beginning}`: {}", told.join(", "));
    CommandFailure::usage(message, Some("type more characters of the id"))
}
