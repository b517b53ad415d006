//! The nine tools with which an agent follows jobs and keeps state, as tools of an `rmcp` server: `get_job_status`,
//! `get_job_results`, `get_job_logs` and so on, with their schemas and bounded answers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use rmcp::{
    ErrorData,
    handler::server::{
        router::tool::{ToolRoute, ToolRouter},
        tool::ToolCallContext,
    },
    model::{CallToolResponse, CallToolResult, JsonObject, ResultType, Tool},
};
use serde_json::{Value, from_value, json};
use unhang::{
    front::Revision,
    jobs::engine::Engine,
    promoted::EngineService,
    tools::{Cancellation, JobTools, ModeOverrides, Table, ToolCall, Toolbox, service::Caller},
};

/// In which form they are listed and answered; `rmcp` leaves out what an older client does not know.
const REVISION: Revision = Revision::V2025November;

/// How long clients wait for an answer at least: `wait_seconds` counts for no longer.
const CALL_LIMIT: Duration = Duration::from_secs(30);

/// The tools on the jobs of this engine, for a server of any type.
pub(crate) fn routes<S: Send + Sync + 'static>(engine: &Engine) -> Result<ToolRouter<S>, String> {
    // The environment is for commands out of a configuration file, of which there are none here.
    let service = EngineService::new(Ok(engine.clone()), BTreeMap::new());
    let table =
        Arc::new(Table::new(Vec::new(), &ModeOverrides::default(), Arc::new(service), JobTools::Listed)?);
    let mut router = ToolRouter::new();
    for definition in &*table.definitions() {
        let tool: Tool = from_value(definition.to_json(REVISION)).map_err(|error| error.to_string())?;
        let table = Arc::clone(&table);
        router.add_route(ToolRoute::new_dyn(tool, move |call: ToolCallContext<'_, S>| {
            Box::pin(answer(Arc::clone(&table), call.name.into_owned(), call.arguments.unwrap_or_default()))
        }));
    }
    Ok(router)
}

async fn answer(
    table: Arc<Table>,
    tool: String,
    arguments: JsonObject,
) -> Result<CallToolResponse, ErrorData> {
    let length = json!(arguments).to_string().len();
    let (_kept_while_it_answers, cancellation) = Cancellation::new();
    let call = ToolCall { tool, arguments, length, caller: Caller::owner(), limit: CALL_LIMIT, cancellation };
    let answer = table.call(call).await;
    let mut result: CallToolResult = from_value(Value::Object(answer.to_json(REVISION)))
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    result.result_type = Some(ResultType::COMPLETE);
    Ok(result.into())
}
