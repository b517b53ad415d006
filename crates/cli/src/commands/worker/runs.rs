//! A worker at work, from its settings to its end.

use std::{cell::RefCell, collections::BTreeMap, path::PathBuf, slice, sync::Arc, time::Duration};

use unhang::{
    exit,
    guard::Stop,
    jobs::engine::Engine,
    settings::{FunctionRules, JobSettings, Settings, StoreUrl, ToolSettings, WorkerRules},
    units::in_words,
    worker::{Worker, WorkerEnd, WorkerError, WorkerIdentity, WorkerSettings},
};
use unhang_terminal::{failure::CommandFailure, output};

use super::work::WorkerTools;
use crate::{
    arguments::worker::WorkerArguments,
    commands::{
        client::{beside, files::own_file_of_user},
        engine::{CommandOutcome, counted, failure, options},
        serve::load,
    },
    shared_store,
    signals::signals,
};

/// The number of heartbeats in a lease, at least. With fewer of them one late answer of the database ends a job.
const FEWEST_HEARTBEATS: u32 = 2;

/// The settings of a worker from its file and the command line.
pub(super) struct WorkerPlan {
    pub(super) store: StoreUrl,
    jobs: JobSettings,
    rules: WorkerRules,
    tools: Vec<ToolSettings>,
    /// The file, if there is one.
    file: Option<PathBuf>,
}

impl WorkerPlan {
    /// Reads the file, and puts the command line above it.
    pub(super) async fn read(arguments: &WorkerArguments) -> Result<Self, CommandFailure> {
        let file = arguments.config.clone().or_else(own_file_of_user);
        let path = file.clone();
        let read = beside(move || {
            let asked = RefCell::new(BTreeMap::new());
            let loaded = path.map(|path| load(&path, &asked)).transpose();
            loaded.map_err(|why| CommandFailure::usage(why, None))
        });
        let (settings, warnings) =
            read.await?.unwrap_or_else(|| (Settings::of_servers(Vec::new()), Vec::new()));
        warnings.iter().for_each(|warning| output::error(warning, None));
        let Settings { jobs, worker: of_file, tools, .. } = settings;
        let store = arguments.store.url.clone().or_else(|| jobs.store.clone());
        let store = store.filter(|store| !store.is_empty()).ok_or_else(|| {
            CommandFailure::usage(
                "there is no database from which a worker could take jobs".to_owned(),
                Some("name it by --store, UNHANG_JOBS_STORE or `store` in [jobs] of unhang.toml"),
            )
        })?;
        let rules = WorkerRules {
            slots: arguments.slots.or(of_file.slots).or(jobs.max_concurrent),
            labels: if arguments.labels.is_empty() { of_file.labels } else { arguments.labels.clone() },
            any_command: Some(arguments.any_command || of_file.any_command == Some(true)),
            functions: of_file.functions,
            lease: arguments.lease.or(of_file.lease),
            heartbeat: arguments.heartbeat.or(of_file.heartbeat),
            lost_after: arguments.lost_after.or(of_file.lost_after),
        };
        Ok(Self { store, jobs, rules, tools, file })
    }

    /// Returns the settings of the worker, in which this many jobs may run unless something else was said.
    fn settings(&self, slots: u32) -> Result<WorkerSettings, CommandFailure> {
        let mut settings = WorkerSettings::new(self.rules.slots.unwrap_or(slots));
        settings.labels.clone_from(&self.rules.labels);
        let lengths = &mut settings.lengths;
        lengths.repeatable = self.rules.lease.unwrap_or(lengths.repeatable);
        lengths.others = self.rules.lost_after.unwrap_or(lengths.others);
        settings.heartbeat =
            self.rules.heartbeat.unwrap_or_else(|| WorkerSettings::heartbeat_of(lengths.repeatable));
        for (name, length) in
            [("--lease", settings.lengths.repeatable), ("--lost-after", settings.lengths.others)]
        {
            if settings.heartbeat.is_zero() || settings.heartbeat > length / FEWEST_HEARTBEATS {
                let (heartbeat, length) = (in_words(settings.heartbeat), in_words(length));
                return Err(CommandFailure::usage(
                    format!("a heartbeat each {heartbeat} does not fit into {name} {length}"),
                    Some("at least two heartbeats have to fit into --lease and into --lost-after"),
                ));
            }
        }
        Ok(settings)
    }
}

/// Runs a worker until a signal ends it or somebody drains it.
pub(super) async fn run(arguments: &WorkerArguments) -> CommandOutcome {
    let plan = WorkerPlan::read(arguments).await?;
    let address = shared_store::address(&plan.store)?;
    let files = shared_store::files(slice::from_ref(&plan.jobs))?;
    if let Some(artifacts) = &files.artifacts {
        artifacts.check_access().map_err(|error| CommandFailure::usage(error.to_string(), None))?;
    }
    // Its engine runs jobs here, whatever store others submit to.
    let own = JobSettings { store: None, max_concurrent: plan.rules.slots, ..plan.jobs.clone() };
    let options = options(&[own])?;
    let settings = plan.settings(options.rules.max_concurrent)?;
    let any_command = plan.rules.any_command == Some(true);
    if !any_command && plan.tools.is_empty() && plan.rules.functions.patterns.is_empty() {
        let file = plan.file.as_ref().map_or_else(
            || "there is no unhang.toml".to_owned(),
            |path| format!("{} has no [tools], and no `functions` in [worker]", path.display()),
        );
        return Err(CommandFailure::usage(
            format!("this worker would run nothing: {file}, and it allows no commands"),
            Some("allow all commands by --any-command, or name a file with tools by --config"),
        ));
    }
    check_folder(&plan.rules.functions)?;
    let folder = options.folder.clone();
    let (identity, engine) = beside(move || {
        let identity = WorkerIdentity::take(&folder).map_err(|error| not_begun(&error))?;
        let (engine, _) = Engine::open(options).map_err(|error| failure(&error))?;
        Ok((identity, engine))
    })
    .await?;
    let functions = plan.rules.functions;
    let tools = WorkerTools::new(engine.clone(), plan.tools, functions, &plan.jobs, any_command, &files);
    let begins = format!(
        "worker {} runs {} at the same time for {}{}",
        identity.name(),
        counted(usize::try_from(settings.slots).unwrap_or(usize::MAX), "job"),
        address.shown(),
        tools.in_words()
    );
    let _shown = shared_store::show_calls(&engine, address.clone());
    let worker = Worker::new(engine.clone(), identity, address, files, settings, Arc::new(tools));
    let mut stops =
        signals().map_err(|error| CommandFailure::system("signals cannot be waited for", &error))?;
    let mut code = exit::DONE;
    let stopped = async {
        code = match stops.recv().await {
            Some(Stop::Interrupt) => exit::INTERRUPTED,
            _ => exit::TERMINATED,
        };
    };
    output::error(&begins, None);
    let end = worker.run(stopped).await.map_err(|error| not_begun(&error))?;
    engine.close().await.map_err(|error| failure(&error))?;
    match end {
        WorkerEnd::Drained => {
            output::error("the worker was drained: its last job has ended", None);
            Ok(exit::DONE)
        }
        WorkerEnd::Stopped { running: 0 } => Ok(code),
        WorkerEnd::Stopped { running } => {
            let jobs = counted(running, "job");
            output::error(
                &format!("{jobs} still running; the next worker on this data folder goes on from there"),
                None,
            );
            Ok(code)
        }
    }
}

/// Refuses a worker whose functions have no folder to run in.
fn check_folder(functions: &FunctionRules) -> Result<(), CommandFailure> {
    match &functions.folder {
        Some(folder) if !functions.patterns.is_empty() && !folder.is_dir() => Err(CommandFailure::usage(
            format!("the folder {} for functions does not exist", folder.display()),
            Some("name the folder with the modules by `folder` in [worker]"),
        )),
        _ => Ok(()),
    }
}

/// Makes the failure of a worker that did not begin.
fn not_begun(error: &WorkerError) -> CommandFailure {
    let (code, kind) = match error {
        WorkerError::Store(_) => (exit::UNREACHABLE, "store_unavailable"),
        WorkerError::FolderTaken(_) => (exit::FAILED, "folder_taken"),
        _ => (exit::FAILED, "storage"),
    };
    CommandFailure { code, kind, message: error.to_string(), hint: None, data: None }
}

/// Returns a length of time in whole seconds, for a table.
pub(super) fn seconds(length: Duration) -> String {
    in_words(Duration::from_secs(length.as_secs()))
}
