//! A server of 2026-07-28 that decides by itself what becomes a task (SEP-2663), on whatever carries its messages.
//!
//! # Invariants
//!
//! - Nobody gets a task, or hears of one, who has not said with the very request that tasks are understood: -32021.
//! - A question before the work is a round of the call; one within it belongs to the task. Neither shows in the other.
//! - What a listener hears begins after the acknowledgement, and is no more than what changes from then on.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use unhang_demo_servers::{
    arguments::ProgramArguments,
    pipe::{self, ClientMessage},
    plain_server::{INVALID_PARAMS, METHOD_NOT_FOUND, MODERN_REVISION, UNSUPPORTED_VERSION},
};

use super::plan::{self, PLANS, TaskChoice, TaskTool};
use super::record::{TaskEntry, TaskStage};
use super::{SEEN, StatusWatcher, Tasks, now, seen, timestamp};

/// What client and server call the extension.
pub(crate) const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// The error for a client that has not said it can do what a request needs.
pub(crate) const MISSING_CAPABILITY: i64 = -32021;

const INTERNAL: i64 = -32603;

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// A server with tasks.
pub(crate) struct ModernTaskServer {
    name: &'static str,
    tasks: Tasks,
}

/// What becomes of a request.
pub(crate) enum TaskAnswer {
    /// The response.
    Now(Value),
    /// The response, after a while, unless the client has lost interest.
    Later(Duration, Value),
    /// The acknowledgement; what follows is heard by the ear.
    Listen(Value, TaskListener),
}

/// Somebody who listens to tasks.
pub(crate) struct TaskListener {
    /// Its subscription.
    id: Value,
    watcher: StatusWatcher,
}

impl TaskListener {
    /// Returns the notifications that are due.
    pub(crate) fn news(&mut self, server: &ModernTaskServer) -> Vec<Value> {
        let news = self.watcher.news(&server.tasks).into_iter();
        news.map(|(task, now)| {
            let mut params = server.detailed(&task, now);
            params["_meta"] = json!({SUBSCRIPTION_ID: self.id});
            pipe::notification("notifications/tasks", &params)
        })
        .collect()
    }
}

impl ModernTaskServer {
    pub(crate) fn open(name: &'static str, arguments: &ProgramArguments) -> io::Result<Self> {
        Ok(Self { name, tasks: Tasks::open(arguments)? })
    }

    /// Says no to a request that lacks what every one must have.
    pub(crate) fn refusal(message: &ClientMessage) -> Option<Value> {
        let meta = &message.params()["_meta"];
        if meta[VERSION].is_null() || meta[CAPABILITIES].is_null() {
            return Some(pipe::error(message.id(), INVALID_PARAMS, "`_meta` lacks what it must have"));
        }
        (meta[VERSION] != MODERN_REVISION).then(|| {
            let mut error = pipe::error(message.id(), UNSUPPORTED_VERSION, "Unsupported protocol version");
            error["error"]["data"] = json!({"supported": [MODERN_REVISION], "requested": meta[VERSION]});
            error
        })
    }

    /// Deals with a request that was not refused.
    pub(crate) fn answer(&self, message: &ClientMessage) -> TaskAnswer {
        let method = message.method();
        match method {
            "tools/call" => self.call(message),
            "subscriptions/listen" => self.listen(message),
            "server/discover" => self.complete(message, discovery()),
            "tools/list" => self.complete(message, tools()),
            "tasks/get" | "tasks/update" | "tasks/cancel" => self.of_task(message),
            _ => TaskAnswer::Now(pipe::error(
                message.id(),
                METHOD_NOT_FOUND,
                &format!("Method not found: {method}"),
            )),
        }
    }

    fn call(&self, message: &ClientMessage) -> TaskAnswer {
        let arguments = &message.params()["arguments"];
        if message.tool() == SEEN {
            return self.complete(message, pipe::text(&self.tasks.tell().to_string()));
        }
        let Some(plan) = plan::find(message.tool()) else {
            let text = format!("Unknown tool: {}", message.tool());
            return TaskAnswer::Now(pipe::error(message.id(), INVALID_PARAMS, &text));
        };
        let can_wait = knows_tasks(message) && plan.support != TaskChoice::Forbidden;
        if plan.support == TaskChoice::Required && !can_wait {
            return TaskAnswer::Now(lacking(message, &json!({"extensions": {EXTENSION: {}}})));
        }
        let answers = &message.params()["inputResponses"];
        let open = plan::unanswered(plan.before, answers);
        if !open.is_empty() {
            if message.params()["_meta"][CAPABILITIES]["elicitation"].is_null() {
                return TaskAnswer::Now(lacking(message, &json!({"elicitation": {}})));
            }
            let questions = plan::input_requests(&open);
            let result = json!({"resultType": "input_required", "inputRequests": questions});
            return self.complete(message, result);
        }
        let work = plan.work(arguments);
        // What takes no time is not worth a task, where it need not be one.
        if can_wait && (work > 0 || plan.support == TaskChoice::Required) {
            self.begin(message, plan)
        } else {
            self.work(message, plan, work)
        }
    }

    /// Begins a task: it can be asked for before anybody has its id.
    fn begin(&self, message: &ClientMessage, plan: &TaskTool) -> TaskAnswer {
        let params = message.params();
        let answers = if plan.before.is_empty() { json!({}) } else { params["inputResponses"].clone() };
        match self.tasks.begin(plan, &params["arguments"], answers, None) {
            Ok(task) => {
                let mut result = self.plain(&task, task.created);
                result["resultType"] = json!("task");
                self.complete(message, result)
            }
            Err(error) => not_kept(message, &error),
        }
    }

    /// Does the work without a task.
    fn work(&self, message: &ClientMessage, plan: &TaskTool, work: u64) -> TaskAnswer {
        let params = message.params();
        let response = match plan.end(&params["arguments"], &params["inputResponses"]) {
            Ok(result) => pipe::result(message.id(), self.dress(message, result)),
            Err(broken) => pipe::error(message.id(), broken.code, broken.message),
        };
        TaskAnswer::Later(Duration::from_millis(work), response)
    }

    fn of_task(&self, message: &ClientMessage) -> TaskAnswer {
        if !knows_tasks(message) {
            return TaskAnswer::Now(lacking(message, &json!({"extensions": {EXTENSION: {}}})));
        }
        let id = message.params()["taskId"].as_str().unwrap_or_default();
        let changed = match message.method() {
            "tasks/get" => {
                return match self.tasks.poll(id) {
                    Some(task) => self.complete(message, self.detailed(&task, now())),
                    None => no_such_task(message),
                };
            }
            "tasks/update" => self.tasks.answer(id, &message.params()["inputResponses"]),
            _ => self.tasks.cancel(id),
        };
        match changed {
            None => no_such_task(message),
            Some(Err(error)) => not_kept(message, &error),
            // What has become of the task is for the next `tasks/get` to say.
            Some(Ok(_)) => self.complete(message, json!({})),
        }
    }

    fn listen(&self, message: &ClientMessage) -> TaskAnswer {
        let requested = message.params()["notifications"]["taskIds"].as_array();
        if requested.is_some() && !knows_tasks(message) {
            return TaskAnswer::Now(lacking(message, &json!({"extensions": {EXTENSION: {}}})));
        }
        let ids = requested.into_iter().flatten().filter_map(Value::as_str);
        let ids: Vec<_> = ids.filter(|id| self.tasks.get(id).is_some()).map(str::to_owned).collect();
        let params = json!({"_meta": {SUBSCRIPTION_ID: message.id()}, "notifications": {"taskIds": ids}});
        let listener =
            TaskListener { id: message.id().clone(), watcher: StatusWatcher::new(&self.tasks, Some(ids)) };
        TaskAnswer::Listen(pipe::notification("notifications/subscriptions/acknowledged", &params), listener)
    }

    /// Returns a task with nothing but what every task has.
    fn plain(&self, task: &TaskEntry, now: u64) -> Value {
        let stage = task.stage_at(now);
        json!({
            "taskId": task.id,
            "status": stage.word(),
            "statusMessage": stage.sentence(),
            "createdAt": timestamp(task.created),
            "lastUpdatedAt": timestamp(task.updated_at(now)),
            "ttlMs": task.ttl,
            "pollIntervalMs": self.tasks.poll,
        })
    }

    /// Returns a task with what has come of it.
    fn detailed(&self, task: &TaskEntry, now: u64) -> Value {
        let mut detailed = self.plain(task, now);
        match task.stage_at(now) {
            TaskStage::Asking(open) => detailed["inputRequests"] = plan::input_requests(&open),
            TaskStage::Completed(result) => detailed["result"] = result,
            TaskStage::Failed(broken) => {
                detailed["error"] = json!({"code": broken.code, "message": broken.message});
            }
            TaskStage::Working | TaskStage::Cancelled => {}
        }
        detailed
    }

    fn complete(&self, message: &ClientMessage, result: Value) -> TaskAnswer {
        TaskAnswer::Now(pipe::result(message.id(), self.dress(message, result)))
    }

    /// Adds to a result what every one has.
    fn dress(&self, message: &ClientMessage, mut result: Value) -> Value {
        if result["resultType"].is_null() {
            result["resultType"] = json!("complete");
        }
        result["_meta"][SERVER_INFO] = json!({"name": self.name, "version": env!("CARGO_PKG_VERSION")});
        if matches!(message.method(), "server/discover" | "tools/list") {
            result["ttlMs"] = json!(0);
            result["cacheScope"] = json!("private");
        }
        result
    }
}

fn discovery() -> Value {
    json!({
        "supportedVersions": [MODERN_REVISION],
        "capabilities": {"tools": {}, "extensions": {EXTENSION: {}}},
        "instructions": "A server to test tasks with.",
    })
}

fn tools() -> Value {
    let mut tools: Vec<_> = PLANS.iter().map(TaskTool::description).collect();
    tools.push(seen());
    tools.sort_by_key(|tool| tool["name"].to_string());
    json!({"tools": tools})
}

/// Whether the client has said with this request that it understands tasks.
fn knows_tasks(message: &ClientMessage) -> bool {
    message.params()["_meta"][CAPABILITIES]["extensions"][EXTENSION].is_object()
}

fn lacking(message: &ClientMessage, required: &Value) -> Value {
    let mut error = pipe::error(message.id(), MISSING_CAPABILITY, "Missing required client capability");
    error["error"]["data"] = json!({"requiredCapabilities": required});
    error
}

fn no_such_task(message: &ClientMessage) -> TaskAnswer {
    TaskAnswer::Now(pipe::error(message.id(), INVALID_PARAMS, "Task not found"))
}

fn not_kept(message: &ClientMessage, error: &io::Error) -> TaskAnswer {
    TaskAnswer::Now(pipe::error(message.id(), INTERNAL, &format!("The tasks cannot be kept: {error}")))
}
