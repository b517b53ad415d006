//! Runs tools as tasks for whoever asks for that, in the dialect of 2025-11-25, and has some that it runs in no other way.
//!
//! # Invariants
//!
//! - Tasks are offered under 2025-11-25 alone; under older revisions every tool is a plain one.
//! - A task asks on behalf of `tasks/result` alone: whoever does not wait for the result is asked nothing.
//! - A question is put once. Whoever cannot be asked counts as having cancelled it.

use std::collections::{HashMap, HashSet};
use std::io;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use unhang_demo_servers::{
    arguments::ProgramArguments,
    bounded_waits::{BOUND, lock},
    entry::ProgramDescription,
    pipe::{self, ClientMessage},
    plain_server::{INVALID_PARAMS, METHOD_NOT_FOUND, settle_revision},
};

use crate::tasks::open::OpenTasks;
use crate::tasks::plan::{self, PLANS, TaskChoice, TaskTool};
use crate::tasks::record::{TaskEntry, TaskStage};
use crate::tasks::{SEEN, StatusWatcher, Tasks, now, seen, timestamp};

pub(crate) const PROGRAM: ProgramDescription = ProgramDescription {
    name: "tasks-legacy",
    incident: "A tool that has to be a task cannot be called by clients that know none, and `tasks/result` blocks those that do for as long as the task lasts (protocol.md 2.1).",
    usage: "[--state FILE] [--poll MS] [--ttl MS] [--page N]",
    promises: &[1, 7],
    run,
};

/// The revision that has these tasks.
const REVISION: &str = "2025-11-25";

const RELATED: &str = "io.modelcontextprotocol/related-task";
const IMMEDIATE: &str = "io.modelcontextprotocol/model-immediate-response";

const INTERNAL: i64 = -32603;

/// Between two looks at what became of tasks.
const LOOK: Duration = Duration::from_millis(20);

/// What is known of the session.
#[derive(Default)]
struct LegacySession {
    has_tasks: bool,
    can_be_asked: bool,
    /// What was asked: task and key by the id of the question.
    asked: HashMap<String, (String, &'static str)>,
    /// The same for what was asked ever.
    asked_ever: HashSet<(String, &'static str)>,
}

struct LegacyTaskServer {
    tasks: Tasks,
    page: usize,
    session: Mutex<LegacySession>,
    open: Arc<OpenTasks>,
}

fn run(arguments: &ProgramArguments) -> io::Result<ExitCode> {
    let page = usize::try_from(arguments.number_option("page", u64::MAX)?).unwrap_or(usize::MAX).max(1);
    let server = Arc::new(LegacyTaskServer {
        tasks: Tasks::open(arguments)?,
        page,
        session: Mutex::default(),
        open: Arc::default(),
    });
    while let Some(message) = pipe::receive()? {
        match message.method() {
            "" => server.hear(&message),
            "notifications/cancelled" => server.open.withdraw(&message.params()["requestId"]),
            "notifications/initialized" => server.tell_of_changes()?,
            _ if message.is_request() => server.answer(&message)?,
            _ => {}
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl LegacyTaskServer {
    fn answer(self: &Arc<Self>, message: &ClientMessage) -> io::Result<()> {
        let id = message.id();
        let params = message.params();
        let has_tasks = lock(&self.session).has_tasks;
        let task = || params["taskId"].as_str().unwrap_or_default();
        let response = match message.method() {
            "initialize" => pipe::result(id, self.introduce(message)),
            "ping" => pipe::result(id, json!({})),
            "tools/list" => pipe::result(id, tools(has_tasks)),
            "tools/call" => return self.call(message, has_tasks),
            "tasks/get" if has_tasks => match self.tasks.poll(task()) {
                Some(task) => pipe::result(id, self.shown(&task)),
                None => no_such_task(id),
            },
            "tasks/result" if has_tasks => match self.tasks.get(task()) {
                Some(task) => return self.deliver(message, task.id),
                None => no_such_task(id),
            },
            "tasks/list" if has_tasks => self.list(message),
            "tasks/cancel" if has_tasks => self.cancel(id, task()),
            method => pipe::error(id, METHOD_NOT_FOUND, &format!("Method not found: {method}")),
        };
        pipe::send(&response)
    }

    fn introduce(&self, message: &ClientMessage) -> Value {
        let revision = settle_revision(message);
        let mut session = lock(&self.session);
        session.has_tasks = revision == REVISION;
        session.can_be_asked = !message.params()["capabilities"]["elicitation"].is_null();
        let mut capabilities = json!({"tools": {}});
        if session.has_tasks {
            capabilities["tasks"] = json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}});
        }
        json!({
            "protocolVersion": revision,
            "capabilities": capabilities,
            "serverInfo": {"name": PROGRAM.name, "version": env!("CARGO_PKG_VERSION")},
        })
    }

    fn call(self: &Arc<Self>, message: &ClientMessage, has_tasks: bool) -> io::Result<()> {
        let id = message.id();
        if message.tool() == SEEN {
            return pipe::send(&pipe::result(id, pipe::text(&self.tasks.tell().to_string())));
        }
        let Some(plan) = plan::find(message.tool()) else {
            let text = format!("Unknown tool: {}", message.tool());
            return pipe::send(&pipe::error(id, INVALID_PARAMS, &text));
        };
        let wants_a_task = has_tasks && message.params()["task"].is_object();
        let refusal = match plan.support {
            TaskChoice::Forbidden if wants_a_task => "does not run as a task",
            TaskChoice::Required if has_tasks && !wants_a_task => "runs as a task alone",
            _ if wants_a_task => return self.begin(message, plan),
            _ => return self.work(message, plan),
        };
        let text = format!("The tool `{}` {refusal}", plan.tool);
        pipe::send(&pipe::error(id, METHOD_NOT_FOUND, &text))
    }

    fn begin(&self, message: &ClientMessage, plan: &TaskTool) -> io::Result<()> {
        let params = message.params();
        let ttl = params["task"]["ttl"].as_u64();
        let response = match self.tasks.begin(plan, &params["arguments"], json!({}), ttl) {
            Ok(task) => {
                let said = format!("`{}` is being worked on; its task is {}.", plan.tool, task.id);
                let result = json!({"task": self.shown_at(&task, task.created), "_meta": {IMMEDIATE: said}});
                pipe::result(message.id(), result)
            }
            Err(error) => not_kept(message.id(), &error),
        };
        pipe::send(&response)
    }

    /// Does the work of a tool that is no task now. Questions within it are left open.
    fn work(&self, message: &ClientMessage, plan: &'static TaskTool) -> io::Result<()> {
        let arguments = message.params()["arguments"].clone();
        let id = message.id().clone();
        let length = Duration::from_millis(plan.work(&arguments)).min(BOUND);
        self.open.beside(message.id(), move |open, call| {
            if !open.rest(call, length) {
                return Ok(());
            }
            pipe::send(&match plan.end(&arguments, &json!({})) {
                Ok(result) => pipe::result(&id, result),
                Err(broken) => pipe::error(&id, broken.code, broken.message),
            })
        })
    }

    /// Waits until a task has ended, asks for it meanwhile, and answers with what came of it.
    fn deliver(self: &Arc<Self>, message: &ClientMessage, task: String) -> io::Result<()> {
        let (server, id) = (Arc::clone(self), message.id().clone());
        self.open.beside(message.id(), move |open, call| {
            loop {
                let Some(record) = server.tasks.get(&task) else { return pipe::send(&no_such_task(&id)) };
                match record.stage_at(now()) {
                    TaskStage::Asking(questions) => server.ask(&task, &questions)?,
                    TaskStage::Working => {}
                    stage => return pipe::send(&outcome(&id, &task, stage)),
                }
                if !open.rest(call, LOOK) {
                    return Ok(());
                }
            }
        })
    }

    fn ask(&self, task: &str, questions: &[&'static plan::UserQuestion]) -> io::Result<()> {
        for question in questions {
            let mut session = lock(&self.session);
            if !session.asked_ever.insert((task.to_owned(), question.key)) {
                continue;
            }
            if !session.can_be_asked {
                drop(session);
                self.take(task, question.key, &json!({"action": "cancel"}));
                continue;
            }
            let id = json!(format!("question-{}", session.asked_ever.len()));
            session.asked.insert(id.to_string(), (task.to_owned(), question.key));
            drop(session);
            let mut params = question.params();
            params["_meta"] = json!({RELATED: {"taskId": task}});
            let method = "elicitation/create";
            pipe::send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        }
        Ok(())
    }

    /// Takes the response to a question.
    fn hear(&self, message: &ClientMessage) {
        let Some((task, key)) = lock(&self.session).asked.remove(&message.id().to_string()) else { return };
        let refused = json!({"action": "cancel"});
        let answer = Some(&message.raw()["result"]).filter(|answer| answer.is_object());
        self.take(&task, key, answer.unwrap_or(&refused));
    }

    fn take(&self, task: &str, key: &str, answer: &Value) {
        // A task that is not there any more, or not kept, has nobody who waits for it.
        let _ = self.tasks.answer(task, &json!({key: answer}));
    }

    fn list(&self, message: &ClientMessage) -> Value {
        let all = self.tasks.all();
        let start = match &message.params()["cursor"] {
            Value::Null => Some(0),
            cursor => cursor.as_str().and_then(|text| text.parse().ok()).filter(|start| *start < all.len()),
        };
        let Some(start) = start else {
            return pipe::error(message.id(), INVALID_PARAMS, "Invalid cursor");
        };
        let end = all.len().min(self.page.saturating_add(start));
        let mut result =
            json!({"tasks": all[start..end].iter().map(|task| self.shown(task)).collect::<Vec<_>>()});
        if end < all.len() {
            result["nextCursor"] = json!(end.to_string());
        }
        pipe::result(message.id(), result)
    }

    fn cancel(&self, id: &Value, task: &str) -> Value {
        match self.tasks.get(task) {
            None => no_such_task(id),
            Some(record) if record.stage_at(now()).is_final() => {
                let status = self.shown(&record)["status"].take();
                pipe::error(id, INVALID_PARAMS, &format!("The task has ended already: {status}"))
            }
            Some(_) => match self.tasks.cancel(task) {
                None => no_such_task(id),
                Some(Ok(task)) => pipe::result(id, self.shown(&task)),
                Some(Err(error)) => not_kept(id, &error),
            },
        }
    }

    /// Returns a task as it is now.
    fn shown(&self, task: &TaskEntry) -> Value {
        self.shown_at(task, now())
    }

    fn shown_at(&self, task: &TaskEntry, now: u64) -> Value {
        let stage = task.stage_at(now);
        json!({
            "taskId": task.id,
            // A tool that failed is a task that failed, whatever its result.
            "status": if has_failed(&stage) { "failed" } else { stage.word() },
            "statusMessage": stage.sentence(),
            "createdAt": timestamp(task.created),
            "lastUpdatedAt": timestamp(task.updated_at(now)),
            "ttl": task.ttl,
            "pollInterval": self.tasks.poll,
        })
    }

    /// Sends a notification whenever the status of a task has changed, until the process ends.
    fn tell_of_changes(self: &Arc<Self>) -> io::Result<()> {
        let server = Arc::clone(self);
        let mut watcher = StatusWatcher::new(&self.tasks, None);
        // Of no request, so under an id that none can have.
        self.open.beside(&Value::Null, move |open, never| {
            while open.rest(never, LOOK) {
                for (task, _) in watcher.news(&server.tasks) {
                    pipe::send(&pipe::notification("notifications/tasks/status", &server.shown(&task)))?;
                }
            }
            Ok(())
        })
    }
}

fn tools(has_tasks: bool) -> Value {
    let describe = |plan: &TaskTool| {
        let mut tool = plan.description();
        if has_tasks {
            tool["execution"] = json!({"taskSupport": plan.support.word()});
        }
        tool
    };
    let mut tools: Vec<_> = PLANS.iter().map(describe).collect();
    tools.push(seen());
    tools.sort_by_key(|tool| tool["name"].to_string());
    json!({"tools": tools})
}

fn has_failed(stage: &TaskStage) -> bool {
    matches!(stage, TaskStage::Completed(result) if result["isError"] == true)
}

/// Returns the response to `tasks/result` for a task that has ended: what the tool would have answered.
fn outcome(id: &Value, task: &str, stage: TaskStage) -> Value {
    match stage {
        TaskStage::Completed(mut result) => {
            result["_meta"] = json!({RELATED: {"taskId": task}});
            pipe::result(id, result)
        }
        TaskStage::Failed(broken) => pipe::error(id, broken.code, broken.message),
        _ => pipe::error(id, INTERNAL, "The task was cancelled"),
    }
}

fn no_such_task(id: &Value) -> Value {
    pipe::error(id, INVALID_PARAMS, "Failed to retrieve task: Task not found")
}

fn not_kept(id: &Value, error: &io::Error) -> Value {
    pipe::error(id, INTERNAL, &format!("The tasks cannot be kept: {error}"))
}
