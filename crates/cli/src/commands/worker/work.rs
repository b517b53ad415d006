//! The work that a worker does: tools of its own file, functions of the modules that the file names, and commands if a person allows that.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use serde_json::{Map, Value};
use unhang::{
    jobs::{
        engine::Engine,
        folder::FileName,
        record::JobRecord,
        shared_work::{SharedWork, tool_label},
        submission::Submission,
    },
    postgres::SharedFiles,
    promoted::EngineService,
    settings::{FunctionRules, JobSettings, ToolSettings},
    worker::{AnyCommand, CommandEnvironment, PythonFunctions, WorkRefusal, WorkResolver},
};

use crate::{
    job_environment::{all_variables, inherited},
    shared_store::keeps_from_jobs,
};

/// The tools of a worker.
pub(super) struct WorkerTools {
    engine: Engine,
    service: EngineService,
    tools: BTreeMap<String, ToolSettings>,
    functions: PythonFunctions,
    any_command: Option<AnyCommand>,
}

/// Leaves out the environment.
impl fmt::Debug for WorkerTools {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("WorkerTools").field("tools", &self.tools.keys()).finish_non_exhaustive()
    }
}

impl WorkerTools {
    /// Makes a worker that runs these tools and functions, and any command if that is allowed. Functions have the limits of `jobs`. Its jobs do
    /// not get the access to its stores.
    pub(super) fn new(
        engine: Engine,
        tools: Vec<ToolSettings>,
        functions: FunctionRules,
        jobs: &JobSettings,
        any_command: bool,
        files: &SharedFiles,
    ) -> Self {
        let all = all_variables()
            .filter(|(name, _)| !name.to_str().is_some_and(|name| keeps_from_jobs(name, files)));
        let environment = CommandEnvironment { usual: inherited().collect(), all: all.collect() };
        let service = EngineService::new(Ok(engine.clone()), environment.usual.clone())
            .with_all(environment.all.clone());
        Self {
            engine,
            service,
            tools: tools.into_iter().map(|tool| (tool.name.clone(), tool)).collect(),
            functions: PythonFunctions {
                patterns: functions.patterns,
                python: functions.python.into(),
                folder: functions.folder.unwrap_or_else(|| PathBuf::from("/")),
                environment: environment.clone(),
                timeout: jobs.timeout,
                log_limit: jobs.log_limit,
            },
            any_command: any_command.then_some(AnyCommand(environment)),
        }
    }

    /// Says what the worker runs, as the end of a sentence.
    pub(super) fn in_words(&self) -> String {
        let functions = self.functions.patterns.iter().map(|pattern| format!("functions of {pattern}"));
        let tools: Vec<String> = self.tools.keys().cloned().chain(functions).collect();
        let tools = if tools.is_empty() { String::new() } else { format!(": {}", tools.join(", ")) };
        let commands = if self.any_command.is_some() { ", and any command" } else { "" };
        format!("{tools}{commands}")
    }

    fn tool(
        &self,
        record: &JobRecord,
        name: &str,
        arguments: &Map<String, Value>,
    ) -> Result<Submission, WorkRefusal> {
        let tool =
            self.tools.get(name).ok_or_else(|| WorkRefusal(format!("its worker has no tool {name}")))?;
        let checked = tool.input_schema.check(&Value::Object(arguments.clone()));
        let request = checked.and_then(|()| tool.request(arguments.clone()));
        let request = request.map_err(|why| {
            WorkRefusal(format!("the tool {name} of its worker does not take the arguments: {why}"))
        })?;
        let own = self.service.submission(&self.engine, record.job_id, request);
        if own.results.as_ref().map(FileName::as_str) != record.results.as_deref() {
            let why = format!("the tool {name} of its worker leaves its results in another file, or in none");
            return Err(WorkRefusal(why));
        }
        Ok(Submission {
            owner: record.owner.clone(),
            // The store has inputs and takes results; the named state of this machine has no part in it.
            inputs: Vec::new(),
            patch: None,
            // Of two limits the stricter one holds: the owner of this machine has set the one.
            timeout: own.timeout.into_iter().chain(record.timeout()).min(),
            log_limit: own.log_limit.min(record.log_limit),
            ..own
        })
    }
}

impl WorkResolver for WorkerTools {
    fn own_labels(&self) -> Vec<String> {
        let commands = self.any_command.iter().flat_map(WorkResolver::own_labels);
        let functions = self.functions.own_labels();
        self.tools.keys().map(|name| tool_label(name)).chain(functions).chain(commands).collect()
    }

    fn submission(&self, record: &JobRecord, work: &SharedWork) -> Result<Submission, WorkRefusal> {
        match (work, &self.any_command) {
            (SharedWork::Tool { name, arguments }, _) => self.tool(record, name, arguments),
            (SharedWork::PythonFunction { .. }, _) => self.functions.submission(record, work),
            (SharedWork::Command(_), Some(commands)) => commands.submission(record, work),
            (SharedWork::Command(_), None) => {
                Err(WorkRefusal("its worker runs no commands, but only tools of its own file".to_owned()))
            }
        }
    }
}
