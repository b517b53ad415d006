//! All tools behind a front: those of the file, and the nine of ours.
//!
//! Invariants: a name stands for one tool. Arguments are checked before the tool sees them (J-16). A check that may take long runs beside
//! the event loop, so that it delays no other call (promise 8).

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use serde_json::{Map, Value};
use tokio::sync::watch;

use super::{
    ArgumentSchema, Definition, ModeOverrides, ToolAnswer, ToolAnswerFuture, ToolCall, ToolListing,
    ToolSettings, Toolbox, builtin::Builtin, declared::Declared, service::JobService,
};
use crate::job_report::ToolNames;
use unhang_core::config::LARGE_ARGUMENTS;

/// A tool, and the work that a call of it does.
struct TableTool {
    schema: ArgumentSchema,
    work: ToolWork,
}

enum ToolWork {
    Builtin(Builtin),
    Declared(Box<Declared>),
}

/// Selects the tools of ours that stand in the list. The others can be called all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobTools {
    /// The tools about jobs; also those about the named state, if a tool of the file uses that.
    Listed,
    /// The same if there is a tool of the file. Otherwise none, since no call can become a job.
    ListedWithTools,
}

/// The tools of one configuration, on one [`JobService`].
pub struct Table {
    definitions: Arc<[Definition]>,
    tools: HashMap<String, Arc<TableTool>>,
    service: Arc<dyn JobService>,
}

impl Table {
    /// Makes the table of the tools of the file, with ours behind them. `overrides` may change the modes of the former, and `job_tools`
    /// selects which of the latter are listed.
    ///
    /// # Errors
    /// Fails with a sentence about the tool if a tool of the file has the name of one of ours.
    pub fn new(
        tools: Vec<ToolSettings>,
        overrides: &ModeOverrides,
        service: Arc<dyn JobService>,
        job_tools: JobTools,
    ) -> Result<Table, String> {
        let mut entries = Vec::new();
        let uses_state = tools.iter().any(|tool| tool.state.is_some() || !tool.inputs.is_empty());
        let lists_jobs = job_tools == JobTools::Listed || !tools.is_empty();
        let is_listed = |builtin: &Builtin| if builtin.is_about_state() { uses_state } else { lists_jobs };
        for settings in tools {
            if Builtin::ALL.iter().any(|builtin| builtin.name() == settings.name) {
                return Err(format!(
                    "tools.{0}: `{0}` is the name of a tool that unhang itself offers; give your tool \
                     another name",
                    settings.name
                ));
            }
            let mode = overrides.mode(&settings.name, settings.mode);
            let schema = settings.input_schema.clone();
            let declared = Declared { settings, mode };
            entries.push((
                declared.definition(),
                TableTool { schema, work: ToolWork::Declared(Box::new(declared)) },
            ));
        }
        let ours = Builtin::ALL.iter().map(|builtin| {
            let definition = builtin.definition(ToolNames::default());
            let listing = if is_listed(builtin) { definition.listing } else { ToolListing::Nowhere };
            (*builtin, Definition { listing, ..definition })
        });
        Self::with_entries(entries, ours, service)
    }

    /// Makes the table of our tools about jobs alone, under these names.
    ///
    /// # Errors
    /// Fails if a schema of ours cannot be compiled, which is not known to happen.
    pub fn of_jobs(names: ToolNames, service: Arc<dyn JobService>) -> Result<Table, String> {
        let ours = Builtin::OF_JOBS.iter().map(|builtin| (*builtin, builtin.definition(names)));
        Self::with_entries(Vec::new(), ours, service)
    }

    fn with_entries(
        mut entries: Vec<(Definition, TableTool)>,
        ours: impl Iterator<Item = (Builtin, Definition)>,
        service: Arc<dyn JobService>,
    ) -> Result<Table, String> {
        for (builtin, definition) in ours {
            let schema = ArgumentSchema::new(definition.input_schema.clone())?;
            entries.push((definition, TableTool { schema, work: ToolWork::Builtin(builtin) }));
        }
        let (mut definitions, mut tools) = (Vec::new(), HashMap::new());
        for (definition, tool) in entries {
            tools.insert(definition.name.clone(), Arc::new(tool));
            definitions.push(definition);
        }
        Ok(Table { definitions: definitions.into(), tools, service })
    }
}

impl Toolbox for Table {
    fn definitions(&self) -> Arc<[Definition]> {
        Arc::clone(&self.definitions)
    }

    fn call(&self, call: ToolCall) -> ToolAnswerFuture {
        let (tool, service) = (self.tools.get(&call.tool).map(Arc::clone), Arc::clone(&self.service));
        Box::pin(async move {
            let ToolCall { tool: name, arguments, length, caller, limit, cancellation } = call;
            let service = service.on_behalf(&caller);
            let Some(tool) = tool else { return ToolAnswer::error(format!("there is no tool `{name}`")) };
            let arguments = match checked(&tool, arguments, length).await {
                Ok(arguments) => arguments,
                Err(why) => {
                    return ToolAnswer::error(format!(
                        "The arguments of `{name}` do not fit: {why}. Nothing was done."
                    ));
                }
            };
            match &tool.work {
                ToolWork::Builtin(builtin) => builtin.call(&*service, arguments, limit).await,
                ToolWork::Declared(declared) => declared.call(&*service, arguments, cancellation).await,
            }
        })
    }
}

/// A table that can be replaced: calls that begin later go to the new one.
pub struct CurrentTable {
    table: RwLock<Arc<Table>>,
    changes: watch::Sender<()>,
}

impl CurrentTable {
    /// Makes one that begins with this table.
    #[must_use]
    pub fn new(table: Table) -> CurrentTable {
        CurrentTable { table: RwLock::new(Arc::new(table)), changes: watch::Sender::default() }
    }

    /// Replaces the table. Calls that have begun go on with theirs.
    pub fn replace(&self, table: Table) {
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
        self.changes.send_replace(());
    }

    fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Toolbox for CurrentTable {
    fn definitions(&self) -> Arc<[Definition]> {
        self.table().definitions()
    }

    fn changes(&self) -> Option<watch::Receiver<()>> {
        Some(self.changes.subscribe())
    }

    fn call(&self, call: ToolCall) -> ToolAnswerFuture {
        self.table().call(call)
    }
}

async fn checked(
    tool: &Arc<TableTool>,
    arguments: Map<String, Value>,
    length: usize,
) -> Result<Map<String, Value>, String> {
    let tool = Arc::clone(tool);
    let check = move || {
        let arguments = Value::Object(arguments);
        tool.schema.check(&arguments)?;
        match arguments {
            Value::Object(arguments) => Ok(arguments),
            _ => Ok(Map::new()),
        }
    };
    if length <= LARGE_ARGUMENTS {
        return check();
    }
    tokio::task::spawn_blocking(check).await.map_err(|_panicked| "they could not be checked".to_owned())?
}
